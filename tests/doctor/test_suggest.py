"""Suggested patches: they mend names, are tried before they are written, and leave open what names cannot tell."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from mutations import make
from pairs import CHECKPOINTS, EACH_PAIR
from writer import genuine

from ascend_hotfix.catalog import ENV_MODELS, ENV_PATH, load_catalog
from ascend_hotfix.doctor.dryrun import Split
from ascend_hotfix.doctor.findings import Severity
from ascend_hotfix.doctor.suggest import Proposal, patch_text, suggestion, trial_env
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


def suggested(upstreams: Any, pair: str, model_dir: Path, toggle: str = "all") -> Any:
    versions = {"vllm-ascend": "0.30.0rc2" if pair == "0.30" else f"{pair}.0"}
    return suggestion(upstreams.zygote(pair), str(model_dir), Split(), versions, {"ASCEND_HOTFIX_MODELS": toggle})


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


# Of the target the draft's layers are not known by another name, so the draft shows what it needs only with a first patch.
@pytest.mark.parametrize("pair", EACH_PAIR)
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("deepseek_v3-w4a8", "draft_nested_both"),
        ("deepseek_v3-w4a8", "prefix_added_both"),
        ("deepseek_v3_2-w8a8", "segment_renamed_both"),
    ],
)
def test_moved_draft_layers_are_clean_with_the_suggested_patch(
    upstreams: Any, pair: str, name: str, kind: str, tmp_path: Path
) -> None:
    known = {finding.message for finding in suggested(upstreams, pair, genuine(name).write(tmp_path / "right")).before}
    spec = genuine(name)
    assert make(spec, kind, 1) is not None
    made = suggested(upstreams, pair, spec.write(tmp_path / "moved"))
    assert any(finding.severity is Severity.FAULT for finding in made.before)
    assert made.text and not made.choices and not made.worse
    assert {finding.message for finding in made.left} <= known


def test_names_behind_the_models_own_mapper_are_renamed_as_the_checkpoint_writes_them(
    upstreams: Any, tmp_path: Path
) -> None:
    spec = genuine("qwen3_vl-w8a8")
    assert make(spec, "segment_renamed_both", 1) is not None
    made = suggested(upstreams, "0.30", spec.write(tmp_path))
    assert made.text and not made.choices and not made.worse
    assert [finding.message for finding in made.left] == []


@pytest.mark.parametrize("toggle", ["none", "-qwen3_moe", "qwen2"])
def test_a_suggestion_is_tried_where_the_toggle_takes_the_model_out(
    upstreams: Any, toggle: str, tmp_path: Path
) -> None:
    spec = genuine("qwen3_moe-w8a8")
    assert make(spec, "segment_renamed_described", 1) is not None
    made = suggested(upstreams, "0.30", spec.write(tmp_path), toggle)
    assert any(finding.severity is Severity.FAULT for finding in made.before)
    assert made.text and [finding.message for finding in made.left] == []


def test_what_is_found_before_a_suggestion_is_what_the_toggle_gives(upstreams: Any) -> None:
    stock, patched = (
        suggested(upstreams, "0.11", CHECKPOINTS / "qwen3_vl_moe-w8a8", toggle) for toggle in ("none", "all")
    )
    assert stock.before and stock.text and stock.left == []
    assert patched.before == [] and patched.text == ""


@pytest.mark.parametrize(
    ("toggle", "tried"),
    [
        ("", ""),
        ("all", "all"),
        ("none", "mine"),
        ("Off", "mine"),
        ("qwen2", "qwen2,mine"),
        ("-qwen2", "-qwen2"),
        ("all,-qwen3_moe.fused", "all,-qwen3_moe.fused"),
    ],
)
def test_the_toggle_of_a_trial_selects_the_patch(toggle: str, tried: str) -> None:
    env = trial_env({ENV_MODELS: toggle, ENV_PATH: ""}, Path("at") / "Mine.py", ["qwen3_moe"])
    assert env == {ENV_MODELS: tried, ENV_PATH: str(Path("at") / "Mine.py")}


def test_a_model_type_that_is_taken_out_keeps_its_other_patches_out() -> None:
    toggle = "-qwen3_vl_moe,-glm4_moe"
    tried = trial_env({ENV_MODELS: toggle, ENV_PATH: ""}, Path("mine.py"), ["qwen3_vl_moe"])[ENV_MODELS]
    assert "-qwen3_vl_moe" not in tried.split(",")
    catalogs = [load_catalog({ENV_PATH: "", ENV_MODELS: one}) for one in (toggle, tried)]
    before, after = (
        [one.name for one in catalog.select(["qwen3_vl_moe", "glm4_moe"], {"vllm": "0.11.0", "vllm-ascend": "0.11.0"})]
        for catalog in catalogs
    )
    assert before == after


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
