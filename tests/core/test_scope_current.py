"""Asking for the current scope sets nothing up: older vLLM answers that question with a default config of its own."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

from ascend_hotfix import scope


def test_without_a_current_config_the_scope_is_empty_and_vllm_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    config: Any = ModuleType("vllm.config")
    config._current_vllm_config = None
    config.get_current_vllm_config = lambda: pytest.fail("vLLM would make a default config and set up its platform")
    monkeypatch.setitem(sys.modules, "vllm", ModuleType("vllm"))
    monkeypatch.setitem(sys.modules, "vllm.config", config)
    monkeypatch.delitem(sys.modules, "vllm.config.vllm", raising=False)
    assert scope.current().types == ()
