"""The record kinds refuse what cannot work, when they are made."""

from __future__ import annotations

from typing import Any

import pytest

from ascend_hotfix import records
from ascend_hotfix.records import Fix, PatchError

WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("Config", {}, "changes nothing"),
    ("Config", {"put": ["model_type"]}, "put must map"),
    ("DescriptionFile", {"name": "folder/description.json"}, "file name"),
    ("DescriptionFile", {"name": "description.txt"}, "file name"),
    ("DescriptionSet", {"key": "", "value": 1}, "key: '' must be whole dotted segments"),
    ("Children", {"pattern": "**"}, "matches everything"),
    ("KVCache", {"pattern": "**.attn", "leaf": "k_proj..scale"}, "dotted segments"),
    ("Unnamed", {"cls": "vllm.ParallelLMHead", "name": "lm_head"}, "one name"),
    ("Inside", {"cls": "MLP", "inside": "", "name": "shared"}, "one name"),
    ("ByPath", {"pattern": "vision.*foo"}, "whole segment"),
    ("Bias", {"pattern": "**.qkv_proj", "scheme": "w8a8_mix"}, "upper case"),
    ("ParamAttr", {"pattern": "**.scale", "attribute": "weight_loader", "value": "mine"}, "'layer' or 'default'"),
    ("Reuse", {"cls": "Impl", "method": "a.b", "layers": "types"}, "one name"),
    ("LayerIndex", {"modules": 1}, "above 1"),
    ("TargetLayers", {"cls": ""}, "one name"),
    ("ClassAlias", {"cls": "RoutedExperts", "target": "a b"}, "one name"),
    ("Dequantize", {"pattern": "**.gate", "scale": "a.b"}, "one segment"),
    ("Dequantize", {"pattern": "**.gate", "block": 0}, "above 0"),
    ("Unfuse", {"fused": "experts.gate_up_proj", "parts": ()}, "parts is empty"),
    ("Stack", {"fused": "qkv_proj", "shards": ("q_proj",)}, "pairs"),
    ("Absent", {"pattern": ""}, "dotted segments"),
]


@pytest.mark.parametrize(("kind", "arguments", "message"), WRONG)
def test_a_record_that_cannot_work_is_refused(kind: str, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(PatchError, match=message) as caught:
        getattr(records, kind)(**arguments)
    assert kind in str(caught.value)


def test_a_record_in_the_wrong_field_is_refused() -> None:
    with pytest.raises(PatchError, match="tensors"):
        Fix(id="one", why="why", refs=("here",), tensors=(records.Fill("a.b"),))  # type: ignore[arg-type]
