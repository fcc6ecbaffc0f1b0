"""What is changed in config.json as vLLM reads it, and that it is said where it is done."""

from __future__ import annotations

import logging

import pytest

from ascend_hotfix import log, scope
from ascend_hotfix.catalog import Selection
from ascend_hotfix.ledger import LEDGER
from ascend_hotfix.records import Config, Fix
from ascend_hotfix.scope import Scope
from ascend_hotfix.seams import config


def test_a_change_before_there_is_a_model_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fix = Fix(id="fix", why="w", refs=("r",), config=(Config(remove=("quantization_config",), put={"a": 1}),))
    monkeypatch.setattr(scope, "of_types", lambda *_: Scope(("tiny",), [Selection("patch", fix)]))
    LEDGER.entries.clear()
    log._said.clear()
    caplog.set_level(logging.INFO, logger="vllm.ascend_hotfix")
    for _ in range(2):
        assert config._changed({"model_type": "tiny", "quantization_config": {}}) == {"model_type": "tiny", "a": 1}
    assert caplog.messages == ["ascend-hotfix: patch.fix: no quantization_config; a=1"]
    assert LEDGER.entry("patch", "fix", "config").hits == 2
    assert config._changed({"model_type": "tiny", "a": 1}) == {"model_type": "tiny", "a": 1}
