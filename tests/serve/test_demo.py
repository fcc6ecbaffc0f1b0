"""The demo does what it says: the released server fails, the same command with a patch answers."""

from __future__ import annotations

import pytest

from ascend_hotfix.sim import demo


@pytest.mark.longer
def test_the_demo_fails_and_then_serves(capsys: pytest.CaptureFixture[str]) -> None:
    assert demo.main() == 0
    said = capsys.readouterr().out
    failed, served = said.split("== 4.")
    assert "KeyError: 'model.layers.0.self_attn.q_proj.weight'" in failed
    assert "POST /v1/completions ->" in served
    assert "moved_names.moved-names" in served
