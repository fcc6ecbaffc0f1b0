"""What the tests of the probe share."""

from __future__ import annotations

import json
from typing import Any

import pytest
from reading import Probed
from speaking import Behaviour, speaking

from ascend_hotfix.cli import main


@pytest.fixture(autouse=True)
def no_key_and_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def probed(capsys: pytest.CaptureFixture[str]) -> Probed:
    """Exit code and JSON of ``ascend-hotfix probe`` against servers that behave so (the second is for ``--against``)."""

    def run(behaviour: Behaviour, *options: str, against: Behaviour | None = None) -> tuple[int, dict[str, Any]]:
        with speaking(behaviour) as url, speaking(against) as other:
            code = main(["probe", url, "--json", *(["--against", other] if against is not None else []), *options])
        report = json.loads(capsys.readouterr().out, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
        assert report["exit_code"] == code
        return code, report

    return run
