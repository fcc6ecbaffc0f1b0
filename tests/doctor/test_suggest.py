"""Suggested patches: they mend names, are tried before they are written, and leave open what names cannot tell."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from mutations import make
from pairs import CHECKPOINTS, EACH_PAIR
from writer import genuine

from ascend_hotfix.doctor.dryrun import Split
from ascend_hotfix.doctor.findings import Severity
from ascend_hotfix.doctor.suggest import Proposal, patch_text, suggestion
from ascend_hotfix.names import Prefix
from ascend_hotfix.records import ModelPatch, Packed, Scheme

VERSIONS = {"vllm": "0.18.0", "vllm-ascend": "0.18.0"}


def loaded(text: str, folder: Path) -> ModelPatch:
    file = folder / "suggested.py"
    file.write_text(text)
    spec = importlib.util.spec_from_file_location("suggested", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    patch: ModelPatch = module.PATCH
    return patch


def test_the_written_text_is_a_patch(tmp_path: Path) -> None:
    proposal = Proposal(
        lookup=[Prefix("visual", "model.visual")],
        packed=[Packed("qkv", ("q", "k", "v"))],
        types=[Scheme("model.layers.*.mlp.gate", "FLOAT")],
    )
    patch = loaded(patch_text(proposal, ["qwen3_vl"], VERSIONS, "made up"), tmp_path)
    assert patch.model_types == ("qwen3_vl",)
    assert [fix.lookup for fix in patch.fixes] == [(Prefix("visual", "model.visual"),)]
    assert dict(patch.fixes[0].versions) == {"vllm": "==0.18.0", "vllm-ascend": "==0.18.0"}
    assert patch.fixes[0].refs == ("doctor",)


def suggested(upstreams: Any, pair: str, model_dir: Path) -> Any:
    versions = {"vllm-ascend": "0.30.0rc2" if pair == "0.30" else f"{pair}.0"}
    return suggestion(upstreams.zygote(pair), str(model_dir), Split(), versions, {"ASCEND_HOTFIX_MODELS": "all"})


@pytest.mark.parametrize("pair", EACH_PAIR)
@pytest.mark.parametrize("kind", ["prefix_added_both", "segment_renamed_described"])
def test_a_renamed_checkpoint_is_clean_with_the_suggested_patch(
    upstreams: Any, pair: str, kind: str, tmp_path: Path
) -> None:
    spec = genuine("qwen3_moe-w8a8")
    assert make(spec, kind, 1) is not None
    made = suggested(upstreams, pair, spec.write(tmp_path))
    assert any(finding.severity is Severity.FAULT for finding in made.before)
    assert made.text and not made.choices and not made.worse
    assert [finding.message for finding in made.left] == []


def test_swapped_gate_and_up_get_no_rename(upstreams: Any, tmp_path: Path) -> None:
    spec = genuine("qwen2_5-w8a8")
    name = "model.layers.0.mlp.gate_proj"
    for tensors in spec.files.values():
        for old in [n for n in tensors if n.startswith(name)]:
            tensors[old.replace("gate_proj", "first_proj_")] = tensors.pop(old)
    made = suggested(upstreams, "0.30", spec.write(tmp_path))
    assert made.before
    assert "up_proj" not in made.text


def test_a_right_checkpoint_gets_no_patch(upstreams: Any) -> None:
    made = suggested(upstreams, "0.30", CHECKPOINTS / "qwen3_moe-w8a8")
    assert made.text == "" and made.choices == [] and made.before == []
