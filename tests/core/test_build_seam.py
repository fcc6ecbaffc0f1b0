"""The build seam: the names that a quantization config speaks of are those of the checkpoint, not our own."""

from __future__ import annotations

import gc
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from ascend_hotfix import scope
from ascend_hotfix.catalog import Selection
from ascend_hotfix.records import Fix, Prefix
from ascend_hotfix.scope import Scope
from ascend_hotfix.seams import build, ignore, lookup

LOOKUP = Fix(id="fix", why="w", refs=("r",), lookup=(Prefix("visual", "model.visual"),))
BUILD = Fix(id="fix", why="w", refs=("r",), build=(Prefix("visual", "model.visual"),))


class AscendQuantConfig:
    def __init__(self, description: dict[str, Any]) -> None:
        self.quant_description = description
        self.packed_modules_mapping: dict[str, list[str]] = {}

    def get_quant_method(self, layer: object, prefix: str) -> Any:
        return self.quant_description[f"{prefix}.weight"]


class ListConfig:
    """As compressed-tensors, FP8 and their like."""

    def __init__(self) -> None:
        self.ignore = ["model.visual.fc"]


lookup.arm_class(AscendQuantConfig)


@pytest.fixture
def current(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """vLLM's current config, of which the seam asks the quantization config only."""
    held = SimpleNamespace(quant_config=None)
    module = ModuleType("vllm.config")
    module.get_current_vllm_config = lambda: held  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vllm.config", module)
    monkeypatch.setitem(sys.modules, "vllm", ModuleType("vllm"))
    monkeypatch.delenv("ASCEND_HOTFIX_MODELS", raising=False)
    return held


def renamed(prefix: str) -> str:
    with scope.pinned(Scope(("tiny",), [Selection("patch", BUILD)])):
        return build._renamed(prefix)


def test_a_prefix_that_only_a_lookup_has_described_is_still_renamed(current: SimpleNamespace) -> None:
    current.quant_config = AscendQuantConfig({"model.visual.fc.weight": "W8A8"})
    assert renamed("visual.fc") == "model.visual.fc"
    with scope.pinned(Scope(("tiny",), [Selection("patch", LOOKUP)])):
        assert current.quant_config.get_quant_method(object(), "visual.fc") == "W8A8"
    assert "visual.fc.weight" in current.quant_config.quant_description
    assert renamed("visual.fc") == "model.visual.fc"


def test_what_was_put_into_a_list_is_not_the_checkpoints(current: SimpleNamespace) -> None:
    current.quant_config = config = ListConfig()
    ignore.unlisted(config, "visual.fc", Scope(("tiny",), [Selection("patch", LOOKUP)]))
    assert config.ignore == ["model.visual.fc", "visual.fc"]
    assert renamed("visual.fc") == "model.visual.fc"


def test_a_description_that_is_replaced_is_read_anew_wherever_it_lies(current: SimpleNamespace) -> None:
    """A dict that takes the place of one that is gone may have its id."""
    current.quant_config = config = AscendQuantConfig({})
    for number in range(50):
        config.quant_description = {}
        gc.collect()
        config.quant_description = {f"model.visual.{number}.weight": "W8A8"}
        assert renamed(f"visual.{number}") == f"model.visual.{number}"
