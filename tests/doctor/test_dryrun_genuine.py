"""Genuine checkpoints on stock upstream: what the dry run says agrees with what was measured by loading them.

``baseline.json`` holds the measured outcome of every checkpoint on every pair, for the target and, where the file has
draft layers, for the draft: ``ok``, or what was wrong.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pairs import CHECKPOINTS, EACH_PAIR, PAIRS
from writer import genuine

from ascend_hotfix.doctor.checkpoint import read_checkpoint
from ascend_hotfix.doctor.dryrun import call
from ascend_hotfix.doctor.findings import Finding
from ascend_hotfix.doctor.static import check_static

BASELINE: dict[str, dict[str, str]] = json.loads((Path(__file__).parent / "baseline.json").read_text())
SOME = ("deepseek_v3-w4a8", "deepseek_v3_2-w8a8", "glm4_moe-w8a8", "qwen3-w8a8", "qwen3_moe-w8a8", "qwen3_vl_moe-w8a8")
"""Of the default lane: target and draft, prefix and row, silent and right."""


def parts(findings: list[Finding], role: str) -> list[Finding]:
    return [finding for finding in findings if finding.place in (role, "config.json")]


def outcomes(upstreams: Any, pair: str, names: tuple[str, ...]) -> dict[str, str]:
    """Where the dry run says right and the baseline wrong, or the reverse."""
    differ = {}
    for name in names:
        findings = upstreams.check(pair, CHECKPOINTS / name)
        for role, measured in zip(("target", "draft"), BASELINE[name][pair].split(" / ")):
            said = [finding.message for finding in parts(findings, role)]
            if bool(said) == (measured == "ok"):
                differ[f"{name} {role}"] = f"measured {measured}, said {said}"
    return differ


@pytest.mark.parametrize("pair", EACH_PAIR)
def test_the_dry_run_agrees_with_what_was_measured(upstreams: Any, pair: str) -> None:
    assert outcomes(upstreams, pair, SOME) == {}


@pytest.mark.longer
@pytest.mark.parametrize("pair", PAIRS)
def test_the_dry_run_agrees_on_every_checkpoint(upstreams: Any, pair: str) -> None:
    assert outcomes(upstreams, pair, tuple(name for name in BASELINE if name not in SOME)) == {}


@pytest.mark.parametrize("pair", EACH_PAIR)
@pytest.mark.parametrize(("expert", "asked"), [(0, True), (3, False)])
def test_only_a_layers_first_expert_is_asked_for(
    upstreams: Any, pair: str, expert: int, asked: bool, tmp_path: Path
) -> None:
    """The reason for which the static stage takes the first expert's missing entry for a fault, and no other's."""
    spec = genuine("qwen3_moe-w8a8")
    for name in [one for one in spec.description if f".experts.{expert}." in one]:
        del spec.description[name]
    said = [finding.code for finding in upstreams.check(pair, spec.write(tmp_path / "model"))]
    assert bool(said) == asked, said
    codes = {finding.code for finding in check_static(read_checkpoint(tmp_path / "model"))}
    assert codes & {"tensor-undescribed", "expert-undescribed"} == {
        "tensor-undescribed" if asked else "expert-undescribed"
    }


def test_explain_knows_what_only_the_description_has(upstreams: Any, tmp_path: Path) -> None:
    spec, attention = genuine("qwen3_moe-w8a8"), "model.layers.0.self_attn"
    assert spec.description is not None
    spec.description["model.layers.0.attn.q_proj.weight"] = "W8A8"
    spec.drop(f"{attention}.q_proj.weight")
    model = str(spec.write(tmp_path / "model"))

    def told(name: str) -> dict[str, Any]:
        return call(upstreams.zygote("0.30"), "ascend_hotfix.doctor.explain:explain", name=name, model_dir=model)

    nowhere = told("model.layers.0.attn.q_proj")
    assert nowhere["described"] == [["model.layers.0.attn.q_proj.weight", "W8A8"]] and nowhere["parts"] == []
    missed = told(f"{attention}.q_proj.weight")
    assert [part["prefix"] for part in missed["parts"]] == [f"{attention}.qkv_proj"] and missed["tensors"] == []


def named(findings: list[Finding], code: str, text: str) -> list[Finding]:
    return [finding for finding in findings if finding.code == code and text in " ".join(finding.examples)]


def test_a_bias_that_glm_routes_with_and_the_file_lacks_is_named(upstreams: Any) -> None:
    assert named(
        upstreams.check("0.30", CHECKPOINTS / "glm4_moe-w8a8"), "parameter-unwritten", "e_score_correction_bias"
    )


def test_a_bias_that_a_patch_fills_is_a_warning(upstreams: Any) -> None:
    found = upstreams.check("0.30", CHECKPOINTS / "glm4_moe-w8a8", models="all")
    assert {finding.code for finding in found} == {"parameter-filled"}
    assert all("glm4.correction-bias fills it with 0.0" in finding.message for finding in found)


def test_biases_that_no_parameter_of_w8a8_mix_takes_are_named(upstreams: Any) -> None:
    found = named(upstreams.check("0.30", CHECKPOINTS / "qwen3-w8a8"), "tensor-unused", "proj.bias")
    assert [finding.count for finding in found] == [10]


@pytest.mark.longer
def test_one_of_64_kv_scales_loaded_is_a_cut_tensor(upstreams: Any) -> None:
    found = named(upstreams.check("0.18", CHECKPOINTS / "qwen2_5-w8a8c8_pdmix"), "tensor-cut", "kv_cache")
    assert [finding.count for finding in found] == [8]


@pytest.mark.longer
def test_a_bias_of_the_indexer_that_no_checkpoint_fills_is_named(upstreams: Any) -> None:
    found = upstreams.check("0.13", CHECKPOINTS / "deepseek_v3_2-w8a8")
    assert named(found, "parameter-unwritten", "indexer.weights_proj.bias")


@pytest.mark.parametrize("pair", EACH_PAIR)
@pytest.mark.parametrize(
    "arguments", [{"tensor_parallel_size": 2}, {"tensor_parallel_size": 2, "expert_parallel": True}]
)
def test_each_rank_of_a_split_server_loads_right(upstreams: Any, pair: str, arguments: dict[str, Any]) -> None:
    for rank in (0, 1):
        assert upstreams.check(pair, CHECKPOINTS / "qwen3_moe-w8a8", rank=rank, **arguments) == []


@pytest.mark.parametrize("rank", [0, 1])
def test_experts_of_w4a8_are_split_as_the_server_splits_them(upstreams: Any, rank: int) -> None:
    # 0.11 takes a dimension of w2_scale_bias from the group of expert parallelism, which spans the ranks in any case.
    folder = CHECKPOINTS / "deepseek_v3-w4a8"
    whole = upstreams.check("0.11", folder, models="all")
    assert upstreams.check("0.11", folder, models="all", tensor_parallel_size=2, rank=rank) == whole


@pytest.mark.parametrize("pair", EACH_PAIR)
def test_a_split_that_does_not_divide_the_heads_is_a_finding(upstreams: Any, pair: str) -> None:
    found = upstreams.check(pair, CHECKPOINTS / "qwen3_moe-w8a8", tensor_parallel_size=3)
    assert [finding.code for finding in found] in (["build-failed"], ["model-refused"])
