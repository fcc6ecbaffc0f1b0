"""The static stage: each defect of the files is found, and genuine checkpoints give no false alarm."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from writer import INDEX, MAIN, Spec, genuine, genuine_names, tiny

from ascend_hotfix.doctor.checkpoint import read_checkpoint
from ascend_hotfix.doctor.findings import Finding, Severity, exit_code
from ascend_hotfix.doctor.static import check_static
from ascend_hotfix.doctor.structure import Filling

LAYER = "model.layers.1"
ATTENTION = f"{LAYER}.self_attn"
EXPERT = f"{LAYER}.mlp.experts.2"

Change = Callable[[Spec], None]


def diagnose(spec: Spec, root: Path, **options: Any) -> list[Finding]:
    return check_static(read_checkpoint(spec.write(root)), **options)


def serious(findings: list[Finding]) -> dict[str, Finding]:
    return {f.code: f for f in findings if f.severity > Severity.NOTE}


def description(spec: Spec) -> dict[str, Any]:
    assert spec.description is not None
    return spec.description


# What is truly wrong in genuine checkpoints, found by loading them with the real packages.
TRULY_WRONG = {"glm4_moe-w8a8": {"router-bias-absent"}}

# Releases that have no model class or config for the model: loading stopped there with the real packages.
NO_MODEL_CLASS = {
    "deepseek_v4": ("0.11.0", "0.13.0", "0.18.0"),
    "glm_5": ("0.11.0", "0.13.0"),
    "glm_5_1": ("0.11.0", "0.13.0"),
    "minimax_m2": ("0.11.0",),
    "qwen3_5": ("0.11.0", "0.13.0"),
    "qwen3_5_moe": ("0.11.0", "0.13.0"),
    "qwen3_6_27b": ("0.11.0", "0.13.0"),
}

# Releases that have not registered a scheme of the checkpoint, for linear layers or for experts.
NO_SCHEME = {
    "deepseek_v3-w8a8c8_mxfp8": ("0.11.0", "0.13.0"),
    "hunyuan_v1_moe-w8a16_default": ("0.11.0", "0.13.0", "0.18.0", "0.23.0", "0.30.0rc2"),
    "longcat_flash-w4a4_mxfp4": ("0.11.0", "0.13.0", "0.18.0"),
    "qwen2_5-w8a8c8_pdmix": ("0.11.0",),
    "qwen3-w4a4": ("0.11.0", "0.13.0"),
    "qwen3-w8a8": ("0.11.0",),
    "qwen3-w8a8c8": ("0.11.0",),
    "qwen3_vl_moe-w8a8_mxfp8": ("0.11.0", "0.13.0"),
}


@pytest.mark.parametrize("name", genuine_names())
def test_genuine_checkpoint_gives_no_false_alarm(name: str, tmp_path: Path) -> None:
    assert set(serious(diagnose(genuine(name), tmp_path))) == TRULY_WRONG.get(name, set())


@pytest.mark.parametrize("attention", ["W8A8", "W8A8_DYNAMIC", "W8A8_MIX", "W8A16", "W4A4_DYNAMIC", "FLOAT"])
@pytest.mark.parametrize("experts", ["W8A8_DYNAMIC", "W4A8_DYNAMIC", "W8A16", "W8A8_MXFP8", "W4A4_MXFP4"])
def test_right_checkpoint_gives_no_finding(attention: str, experts: str, tmp_path: Path) -> None:
    spec = tiny(attention, experts)
    description(spec)["model_quant_type"] = experts
    assert diagnose(spec, tmp_path) == []


def test_glm_router_without_its_bias_is_found_in_target_and_draft(tmp_path: Path) -> None:
    finding = serious(diagnose(genuine("glm4_moe-w8a8"), tmp_path))["router-bias-absent"]
    assert finding.count == 2
    assert finding.patterns == ("model.layers.*.mlp.gate.e_score_correction_bias",)
    assert "never written" in finding.consequence


def test_hash_layers_route_without_a_bias(tmp_path: Path) -> None:
    spec = genuine("deepseek_v4-w8a8")
    assert any(name.endswith("gate.tid2eid") for name in spec.main)
    assert "router-bias-absent" not in serious(diagnose(spec, tmp_path))


@pytest.mark.parametrize("name", ["deepseek_v3-w4a8", "minimax_m2-w8a8", "longcat_flash-w4a4_mxfp4", "glm4_6v-w8a8"])
def test_lost_router_bias_is_found_in_every_family_that_has_one(name: str, tmp_path: Path) -> None:
    spec = genuine(name)
    for tensor in [n for n in spec.main if n.endswith("e_score_correction_bias")]:
        spec.drop(tensor)
    codes = serious(diagnose(spec, tmp_path))
    assert ("router-bias-absent" in codes) is (name != "longcat_flash-w4a4_mxfp4")


def _retype(name: str, scheme: str) -> Change:
    return lambda spec: description(spec).update({name: scheme})


def _retype_layer(module: str, scheme: str) -> Change:
    def change(spec: Spec) -> None:
        for name in description(spec):
            if name.startswith(module + "."):
                description(spec)[name] = scheme

    return change


def _drop(name: str, *, described: bool = True, listed: bool = True) -> Change:
    return lambda spec: spec.drop(name, described=described, listed=listed)


def _drop_module(module: str) -> Change:
    def change(spec: Spec) -> None:
        for name in [n for n in spec.main if n.startswith(module + ".")]:
            spec.drop(name)

    return change


def _undescribe(name: str) -> Change:
    return lambda spec: description(spec).pop(name) and None


def _shape(name: str, *shape: int) -> Change:
    return lambda spec: spec.change(name, shape=list(shape))


def _dtype(name: str, dtype: str) -> Change:
    return lambda spec: spec.change(name, dtype=dtype)


def _as_bf16(module: str) -> Change:
    return lambda spec: spec.change(f"{module}.weight", dtype="BF16")


def _point_elsewhere(spec: Spec) -> None:
    spec.files["other.safetensors"] = {"model.norm.weight": spec.main.pop("model.norm.weight")}


DEFECTS: list[tuple[str, Change, str]] = [
    ("listed, in no file", _drop(f"{ATTENTION}.q_proj.weight", listed=False), "tensor-absent"),
    ("in the file, not listed", lambda s: s.indexes[INDEX]["weight_map"].pop("lm_head.weight"), "tensor-unlisted"),
    ("listed in another file", _point_elsewhere, "index-wrong-file"),
    ("described, in no file", _drop(f"{ATTENTION}.q_proj.weight", described=False), "described-tensor-absent"),
    ("float, described, in no file", _drop("model.norm.weight", described=False), "described-float-absent"),
    ("weight without entry", _undescribe(f"{ATTENTION}.q_proj.weight"), "tensor-undescribed"),
    ("scale without entry", _undescribe(f"{ATTENTION}.q_proj.deq_scale"), "extra-undescribed"),
    ("misspelt scheme", _retype(f"{ATTENTION}.q_proj.weight", "W8A8_DYNAMC"), "scheme-unknown"),
    ("quantized, described as float", _retype_layer(f"{ATTENTION}.o_proj", "FLOAT"), "float-but-quantized"),
    ("float, described as quantized", _retype("lm_head.weight", "W8A8"), "quantized-but-float"),
    ("int8 weight supplied as bf16", _as_bf16(f"{ATTENTION}.o_proj"), "quantized-but-float"),
    ("int8 weight supplied as fp8", _dtype(f"{ATTENTION}.o_proj.weight", "F8_E4M3"), "weight-dtype"),
    ("weight of one dimension", _shape(f"{ATTENTION}.o_proj.weight", 64 * 128), "weight-shape"),
    ("scale described otherwise", _retype(f"{ATTENTION}.o_proj.deq_scale", "W8A8_DYNAMIC"), "scheme-inconsistent"),
    ("norm described as quantized", _retype("model.norm.weight", "W8A8"), "quantized-but-float"),
    ("static without deq_scale", _drop(f"{ATTENTION}.o_proj.deq_scale"), "companion-absent"),
    ("static without quant_bias", _drop(f"{ATTENTION}.o_proj.quant_bias"), "companion-absent"),
    ("static without input_scale", _drop(f"{ATTENTION}.o_proj.input_scale"), "companion-absent"),
    ("dynamic without weight_offset", _drop(f"{EXPERT}.up_proj.weight_offset"), "companion-unread"),
    ("scales without weight", _drop(f"{ATTENTION}.o_proj.weight"), "companion-absent"),
    ("static, described as dynamic", _retype_layer(f"{ATTENTION}.o_proj", "W8A8_DYNAMIC"), "scheme-stored"),
    (
        "static with a leftover",
        lambda s: s.add(f"{ATTENTION}.o_proj.scale_bias", "F32", [64, 1]),
        "companion-unexpected",
    ),
    ("quant_bias as float", _dtype(f"{ATTENTION}.o_proj.quant_bias", "F32"), "companion-dtype"),
    ("deq_scale too short", _shape(f"{ATTENTION}.o_proj.deq_scale", 63), "companion-shape"),
    ("input_scale per channel", _shape(f"{ATTENTION}.o_proj.input_scale", 64), "companion-shape"),
    ("expert scale of one element", _shape(f"{EXPERT}.up_proj.weight_scale", 1, 1), "companion-shape"),
    ("expert scale of one dimension", _shape(f"{EXPERT}.up_proj.weight_scale", 32), "companion-shape"),
    ("mixed q and k", _retype_layer(f"{ATTENTION}.k_proj", "FLOAT"), "shards-mixed"),
    ("mixed experts", _retype_layer(EXPERT, "W8A16"), "experts-mixed"),
    ("one expert missing", _drop_module(EXPERT), "expert-absent"),
    ("last expert missing", _drop_module(f"{LAYER}.mlp.experts.3"), "expert-absent"),
    ("gate of an expert missing", _drop_module(f"{EXPERT}.gate_proj"), "expert-part-absent"),
    ("scale of an expert missing", _drop(f"{EXPERT}.gate_proj.weight_scale"), "expert-part-absent"),
    ("expert of another shape", _shape(f"{EXPERT}.gate_proj.weight", 40, 64), "expert-shape"),
    ("expert of another dtype", _as_bf16(f"{EXPERT}.gate_proj"), "expert-shape"),
    ("one expert too many", lambda s: s.config.update(num_experts=3), "expert-surplus"),
    ("layer missing", _drop_module(LAYER), "layer-absent"),
    ("last layer missing", _drop_module("model.layers.2"), "layer-absent"),
    ("v_proj missing", _drop_module(f"{ATTENTION}.v_proj"), "module-absent"),
    ("lm_head missing", _drop("lm_head.weight"), "module-absent"),
    ("embedding missing", _drop("model.embed_tokens.weight"), "module-absent"),
]


@pytest.mark.parametrize(("change", "code"), [d[1:] for d in DEFECTS], ids=[d[0] for d in DEFECTS])
def test_static_defect_is_found(change: Change, code: str, tmp_path: Path) -> None:
    spec = tiny()
    assert code not in serious(diagnose(spec, tmp_path / "right"))
    change(spec)
    found = serious(diagnose(spec, tmp_path / "wrong"))
    assert code in found
    assert found[code].count == 1 or code in ("companion-absent", "expert-surplus")


@pytest.mark.parametrize(
    ("stored", "said", "told", "looks"),
    [
        ("W8A8_MIX", "W8A8_DYNAMIC", "W8A8_MIX", "W8A8_MIX"),
        ("W8A8_MIX", "W8A8_DYNAMIC", "W8A8_DYNAMIC", "W8A8 or W8A8_MIX"),  # older ModelSlim stores W8A8 so
        ("W8A8", "W8A8_DYNAMIC", "W8A8_DYNAMIC", "W8A8"),
        ("W8A8", "W8A8_MIX", "W8A8_MIX", "W8A8"),
        ("W4A8_DYNAMIC", "W8A8_DYNAMIC", "W8A8_DYNAMIC", "W4A8_DYNAMIC"),
        ("W8A8_DYNAMIC", "W4A8_DYNAMIC", "W4A8_DYNAMIC", "W8A8_DYNAMIC"),  # the experts are
        ("W8A8_MIX", "W8A8", "W8A8", ""),  # tensors of W8A8 as well
    ],
)
def test_a_scheme_that_the_tensors_contradict_is_one_finding(
    stored: str, said: str, told: str, looks: str, tmp_path: Path
) -> None:
    spec = tiny(stored)
    description(spec)["model_quant_type"] = told
    for name in [name for name in description(spec) if ".self_attn." in name and "norm" not in name]:
        description(spec)[name] = said
    found = serious(diagnose(spec, tmp_path))
    assert {code: (f.count, f.params["scheme"], f.params["stored"]) for code, f in found.items()} == (
        {"scheme-stored": (12, said, looks)} if looks else {}
    )


def test_a_lost_companion_is_no_other_scheme(tmp_path: Path) -> None:
    spec = tiny("W8A8_MIX")
    spec.drop(f"{ATTENTION}.o_proj.deq_scale")
    assert [*serious(diagnose(spec, tmp_path))] == ["companion-absent"]


@pytest.mark.parametrize("version", ["v0", "v1"])
def test_static_scheme_in_both_forms(version: str, tmp_path: Path) -> None:
    """The v0 service writes weight_scale and weight_offset beside the four tensors of v1."""
    spec = genuine("qwen2_5-w8a8" if version == "v0" else "internvl3_5-w8a8")
    scale = next(n for n in spec.main if n.endswith(".deq_scale"))
    assert (scale.replace("deq_scale", "weight_scale") in spec.main) is (version == "v0")
    assert serious(diagnose(spec, tmp_path / "right")) == {}
    spec.drop(scale)
    finding = serious(diagnose(spec, tmp_path / "wrong"))["companion-absent"]
    assert (finding.params["leaf"], finding.count) == ("deq_scale", 1)


@pytest.mark.parametrize(
    ("leaf", "shape", "code"),
    [
        ("gate_proj.weight", [64, 64], "companion-shape"),
        ("down_proj.scale_bias", [64, 1], "companion-shape"),
        ("up_proj.scale_bias", [64, 16], "companion-shape"),
        ("gate_proj.weight_scale", [32, 1], "companion-shape"),
    ],
)
def test_packed_int4_experts(leaf: str, shape: list[int], code: str, tmp_path: Path) -> None:
    spec = genuine("qwen3_moe-w4a8")
    packed = next(n.rpartition(".experts.")[0] for n, s in description(spec).items() if s == "W4A8_DYNAMIC")
    spec.change(f"{packed}.experts.0.{leaf}", shape=shape)
    assert {code, "expert-shape"} <= set(serious(diagnose(spec, tmp_path)))


def test_packed_int4_without_scale_bias(tmp_path: Path) -> None:
    spec = tiny(experts="W4A8_DYNAMIC")
    for name in [n for n in spec.main if n.endswith("scale_bias")]:
        spec.drop(name)
    finding = serious(diagnose(spec, tmp_path))["companion-absent"]
    assert (finding.params["leaf"], finding.count) == ("scale_bias", 3 * 4 * 3)


@pytest.mark.parametrize("name", ["qwen3_vl_moe-w8a8_mxfp8", "longcat_flash-w4a4_mxfp4"])
def test_mx_block_scale_of_a_wrong_shape(name: str, tmp_path: Path) -> None:
    spec = genuine(name)
    scale = next(n for n, (dtype, _) in spec.main.items() if n.endswith("weight_scale") and dtype == "U8")
    rows, blocks = spec.main[scale][1]
    spec.change(scale, shape=[rows, blocks + 1])
    assert "companion-shape" in serious(diagnose(spec, tmp_path))


@pytest.mark.parametrize("name", ["qwen2_5-w8a8c8_pdmix", "qwen3-w8a8c8"])
def test_kv_cache_scales(name: str, tmp_path: Path) -> None:
    scale = "model.layers.0.self_attn.v_proj.kv_cache_scale"
    one = genuine(name)
    one.drop(scale)
    assert serious(diagnose(one, tmp_path / "one"))["kv-scale-incomplete"].params["leaf"] == "v_proj.kv_cache_scale"
    short = genuine(name)
    short.change(scale, shape=[3])
    assert "kv-scale-shape" in serious(diagnose(short, tmp_path / "short"))
    layer = genuine(name)
    for tensor in [n for n in layer.main if ".layers.0." in n and ".kv_cache_" in n]:
        layer.drop(tensor)
    assert serious(diagnose(layer, tmp_path / "layer"))["kv-scale-layers"].count == 1


@pytest.mark.parametrize("leaf", ["fa_k.scale", "fa_v.offset"])
@pytest.mark.parametrize("name", ["deepseek_v3-w4a8c8", "deepseek_v3-w8a8c8_mxfp8"])
def test_fa_quant_scales(name: str, leaf: str, tmp_path: Path) -> None:
    spec = genuine(name)
    spec.drop(next(n for n in spec.main if n.endswith(leaf)))
    assert serious(diagnose(spec, tmp_path))["fa-scale-incomplete"].params["leaf"] == leaf


def test_fa_quant_layer_that_lost_all_its_scales(tmp_path: Path) -> None:
    spec = genuine("deepseek_v3-w4a8c8")
    for tensor in [n for n in spec.main if ".fa_" in n]:
        spec.drop(tensor)
    leaves = {f.params["leaf"] for f in diagnose(spec, tmp_path) if f.code == "fa-scale-incomplete"}
    assert leaves == {f"fa_{p}.{leaf}" for p in "qkv" for leaf in ("scale", "offset")}


@pytest.mark.parametrize(
    ("name", "shard", "group"),
    [
        ("kimi_k2-w8a8", "q_a_proj", "kv_a_proj_with_mqa"),
        ("qwen3_6_27b-w8a8", "in_proj_qkv", "in_proj_z"),
        ("minimax_m2-w8a8", "k_proj", "q_proj"),
        ("deepseek_v3-w4a8", "shared_experts.up_proj", "gate_proj"),
    ],
)
def test_one_shard_of_a_fused_layer_left_float(name: str, shard: str, group: str, tmp_path: Path) -> None:
    """ModelSlim's automatic fallback left some shards FLOAT inside a fused group (vllm-ascend#2588)."""
    spec = genuine(name)
    module = next(
        n.removesuffix(".weight")
        for n, s in description(spec).items()
        if isinstance(s, str) and n.endswith(f"{shard}.weight") and s != "FLOAT"
    )
    for tensor in [n for n in spec.main if n.startswith(module + ".") and not n.endswith(".weight")]:
        spec.drop(tensor)
    spec.change(f"{module}.weight", dtype="BF16")
    description(spec)[f"{module}.weight"] = "FLOAT"
    finding = serious(diagnose(spec, tmp_path))["shards-mixed"]
    assert finding.count == 1 and "FLOAT" in finding.params["mix"] and group in finding.params["group"]


@pytest.mark.parametrize(
    ("old", "new"),
    [("model.", "language_model.model."), ("model.layers.", "model.language_model.layers."), (".self_attn.", ".attn.")],
)
def test_wrong_prefix_in_the_description_is_one_finding(old: str, new: str, tmp_path: Path) -> None:
    spec = tiny()
    renamed = {name.replace(old, new): scheme for name, scheme in description(spec).items()}
    count = sum(old in name for name in description(spec))
    spec.description = renamed
    found = serious(diagnose(spec, tmp_path))
    assert set(found) == {"description-renamed"}
    assert found["description-renamed"].count == count and len(found["description-renamed"].examples) == 2


def test_draft_layers_without_description_are_a_warning(tmp_path: Path) -> None:
    """The description of a checkpoint with MTP often lacks the draft layer (vllm-ascend#3021)."""
    spec = genuine("deepseek_v3_2-w8a8")
    for name in [n for n in description(spec) if n.startswith("model.layers.2.")]:
        del description(spec)[name]
    found = serious(diagnose(spec, tmp_path))
    assert set(found) == {"draft-undescribed"}
    assert found["draft-undescribed"].severity is Severity.WARNING


def test_announced_draft_layers_that_are_absent_are_a_note(tmp_path: Path) -> None:
    assert [f.code for f in diagnose(genuine("minimax_m2-w8a8"), tmp_path)] == ["draft-absent"]


def test_misleading_model_quant_type_is_no_fault(tmp_path: Path) -> None:
    spec = genuine("deepseek_v3-w4a8")
    description(spec)["model_quant_type"] = "W8A16"
    findings = diagnose(spec, tmp_path)
    assert [f.code for f in findings] == ["model-quant-type"] and exit_code(findings) == 0


# -- not ModelSlim ----------------------------------------------------------------------------------------------------


def _float_spec() -> Spec:
    spec = tiny("FLOAT", "FLOAT")
    spec.description = None
    return spec


@pytest.mark.parametrize(
    ("method", "leaf", "dtype", "remedy"),
    [
        ("awq", "qweight", "I32", "ModelSlim checkpoint"),
        ("gptq", "g_idx", "I32", "ModelSlim checkpoint"),
        ("fp8", "weight_scale_inv", "F32", "without --quantization ascend"),
        ("compressed-tensors", "weight_packed", "I32", "without --quantization ascend"),
        ("bitsandbytes", "absmax", "U8", "ModelSlim checkpoint"),
    ],
)
@pytest.mark.parametrize("said", [True, False], ids=["said in config.json", "seen in the names"])
def test_checkpoint_of_another_tool_is_named(
    method: str, leaf: str, dtype: str, remedy: str, said: bool, tmp_path: Path
) -> None:
    """Given to --quantization ascend these end in a KeyError for the first layer (vllm-ascend#3534, #3464, #4313)."""
    spec = _float_spec()
    if said:
        spec.config["quantization_config"] = {"quant_method": method}
    else:
        spec.add(f"{ATTENTION}.q_proj.{leaf}", dtype, [128])
    findings = diagnose(spec, tmp_path)
    assert [f.code for f in findings] == ["not-modelslim"]
    assert findings[0].params["method"] == method and remedy in findings[0].remedy
    assert exit_code(findings) == 1


def test_int8_of_an_unknown_tool_is_not_taken_for_modelslim(tmp_path: Path) -> None:
    """GLM-4.6-INT8 of a third party (vllm-ascend#3520)."""
    spec = _float_spec()
    spec.change(f"{ATTENTION}.q_proj.weight", dtype="I8")
    spec.add(f"{ATTENTION}.q_proj.weight_scale", "F32", [128, 1])
    assert [f.code for f in diagnose(spec, tmp_path)] == ["not-modelslim"]


def test_fp8_weights_without_any_word_on_it(tmp_path: Path) -> None:
    spec = _float_spec()
    spec.change(f"{ATTENTION}.q_proj.weight", dtype="F8_E4M3")
    assert diagnose(spec, tmp_path)[0].params["method"] == "fp8"


def test_original_float_checkpoint(tmp_path: Path) -> None:
    """DeepSeek-V3.2 as released, with --quantization ascend (vllm-ascend#4835)."""
    assert [f.code for f in diagnose(_float_spec(), tmp_path)] == ["float-checkpoint"]


def test_quantized_weights_whose_description_is_missing(tmp_path: Path) -> None:
    spec = tiny()
    spec.description = None
    findings = diagnose(spec, tmp_path)
    assert [f.code for f in findings] == ["description-absent"]
    assert findings[0].count == sum(dtype == "I8" for dtype, _ in spec.main.values())


def test_description_that_describes_nothing(tmp_path: Path) -> None:
    spec = tiny()
    spec.description = {"version": "1.0.0", "model_quant_type": "W8A8"}
    assert [f.code for f in diagnose(spec, tmp_path)] == ["description-empty"]


# -- config.json's block ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("block", "release", "codes"),
    [
        ({"quant_method": "ascend", "group_size": 0}, "0.30.0rc2", {"description-shadowed"}),
        ({"quant_method": "ascend"}, "0.23.0", {"description-shadowed"}),
        ({"quant_method": "ascend"}, None, {"description-shadowed"}),
        ({"quant_method": "ascend"}, "0.30.0rc2", set()),
        ({"quant_method": ""}, "0.18.0", {"description-shadowed", "quant-method-empty"}),
        ({}, "0.18.0", set()),
    ],
)
def test_quantization_block_that_hides_the_description(
    block: dict[str, Any], release: str | None, codes: set[str], tmp_path: Path
) -> None:
    """MiniMax-M2.5-w8a8-quarot (vllm-ascend#9734), a checkpoint with an empty quant_method (#4831)."""
    spec = tiny()
    spec.config["quantization_config"] = block
    assert set(serious(diagnose(spec, tmp_path, release=release))) == codes


def test_description_inside_config_json_is_checked_like_a_file(tmp_path: Path) -> None:
    spec = tiny()
    spec.config["quantization_config"] = {"quant_method": "ascend", **description(spec)}
    spec.description = None
    assert serious(diagnose(spec, tmp_path / "right")) == {}
    spec.config["quantization_config"].pop(f"{ATTENTION}.q_proj.weight")
    finding = serious(diagnose(spec, tmp_path / "wrong"))["tensor-undescribed"]
    assert finding.place == "config.json"


# -- files that are missing or damaged --------------------------------------------------------------------------------


def test_tensors_of_a_damaged_file_are_one_finding_not_hundreds(tmp_path: Path) -> None:
    spec = tiny()
    half = {n: t for n, t in spec.main.items() if ".layers.2." in n}
    for name in half:
        del spec.main[name]
    spec.files["second.safetensors"] = half
    spec.indexes[INDEX]["weight_map"].update(dict.fromkeys(half, "second.safetensors"))
    root = spec.write(tmp_path)
    (root / "second.safetensors").write_bytes(b"\x00" * 64)
    assert set(serious(check_static(read_checkpoint(root)))) == {"header-corrupt"}
    (root / "second.safetensors").unlink()
    assert set(serious(check_static(read_checkpoint(root)))) == {"shard-file-absent"}


def test_damaged_only_file_without_index_says_no_more_than_that(tmp_path: Path) -> None:
    spec = tiny()
    spec.indexes.clear()
    root = spec.write(tmp_path)
    (root / MAIN).write_bytes((root / MAIN).read_bytes()[:500])
    assert set(serious(check_static(read_checkpoint(root)))) == {"file-truncated"}


# -- per-rank exports -------------------------------------------------------------------------------------------------


def _sharded(ranks: list[int]) -> Spec:
    spec = tiny()
    content = spec.files.pop(MAIN)
    spec.indexes.clear()
    for rank in ranks:
        spec.files[f"model-rank-{rank}-part-0.safetensors"] = dict(content)
    return spec


def test_per_rank_export_names_the_flag_it_needs(tmp_path: Path) -> None:
    """W8A8SC exports for 310P end in a KeyError on gate_gate_up_proj without it (vllm-ascend#11368)."""
    findings = diagnose(_sharded([0, 1]), tmp_path)
    assert [f.code for f in findings] == ["sharded-export"]
    assert "--load-format sharded_state --tensor-parallel-size 2" in findings[0].remedy


def test_per_rank_export_with_a_rank_missing(tmp_path: Path) -> None:
    assert "rank 1" in serious(diagnose(_sharded([0, 2]), tmp_path))["sharded-rank-absent"].message


def test_per_rank_export_whose_ranks_differ(tmp_path: Path) -> None:
    spec = _sharded([0, 1])
    del spec.files["model-rank-1-part-0.safetensors"]["lm_head.weight"]
    assert serious(diagnose(spec, tmp_path))["sharded-rank-differs"].examples == ("lm_head.weight",)


def test_per_rank_export_for_another_number_of_ranks(tmp_path: Path) -> None:
    found = serious(diagnose(_sharded([0, 1]), tmp_path, tensor_parallel_size=4))
    assert found["sharded-parallel-size"].params == {"ranks": "2", "asked": "4"}


# -- releases ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "release", "code"),
    [
        ("glm_5-w8a8", "0.13.0", "model-type-new"),
        ("glm_5-w8a8", "0.18.0", None),
        ("deepseek_v4-w8a8", "0.18.0", "model-type-new"),
        ("minimax_m2-w8a8", "0.11.0", "model-type-new"),
        ("qwen3_5-w8a8", "0.13.0", "model-type-new"),
        ("qwen3_vl_moe-w8a8", "0.11.0", "model-type-unlisted"),
        ("qwen3_vl_moe-w8a8", "0.13.0", None),
        ("qwen2_5-w8a8", "0.11.0", None),
        ("glm_5-w8a8", None, None),
    ],
)
def test_release_that_does_not_know_the_model(name: str, release: str | None, code: str | None, tmp_path: Path) -> None:
    found = {f.code: f for f in diagnose(genuine(name), tmp_path, release=release)}
    said = {c for c in found if c.startswith("model-type")}
    assert said == ({code} if code else set())
    assert code is None or found[code].params["first"] in found[code].message


def test_router_bias_that_a_selected_patch_fills_is_a_warning(tmp_path: Path) -> None:
    fills = [Filling("**.gate.e_score_correction_bias", 0.0, "glm4_moe.router-bias")]
    found = serious(diagnose(genuine("glm4_moe-w8a8"), tmp_path, fills=fills))
    assert set(found) == {"router-bias-filled"}
    assert "glm4_moe.router-bias fills it with 0.0" in found["router-bias-filled"].message


@pytest.mark.parametrize(
    ("release", "found"), [("0.13.0", False), ("0.18.0", True), ("0.30.0rc2", False), (None, False)]
)
def test_layer_taken_for_float_because_of_a_longer_neighbour(release: str | None, found: bool, tmp_path: Path) -> None:
    """is_layer_skipped_ascend compares by startswith without a dot from 0.16 on (removed by vllm-ascend#16051)."""
    spec = tiny()
    spec.add(f"{ATTENTION}.o_proj_gate.weight", "BF16", [4, 64], "FLOAT")
    findings = serious(diagnose(spec, tmp_path, release=release))
    assert ("skipped-by-prefix" in findings) is found


@pytest.mark.parametrize("name", genuine_names())
def test_no_release_makes_a_false_alarm(name: str, tmp_path: Path) -> None:
    checkpoint = read_checkpoint(genuine(name).write(tmp_path))
    for release in ("0.11.0", "0.13.0", "0.18.0", "0.23.0", "0.30.0rc2"):
        found = set(serious(check_static(checkpoint, release=release)))
        assert found - {"model-type-new", "scheme-not-in-release"} == TRULY_WRONG.get(name, set())
        assert ("scheme-not-in-release" in found) is (release in NO_SCHEME.get(name, ()))
        assert ("model-type-new" in found) is (release in NO_MODEL_CLASS.get(name.split("-")[0], ()))


def test_mlp_without_a_gate_is_a_kind_of_its_own(tmp_path: Path) -> None:
    """Only where other layers have a gate_proj was it lost."""
    spec = tiny()
    for n in range(3):
        for name in ("up_proj", "down_proj"):
            spec.add(f"model.layers.{n}.mlp.shared_expert.{name}.weight", "BF16", [64, 64], "FLOAT")
    assert serious(diagnose(spec, tmp_path / "without")) == {}
    for n in range(2):
        spec.add(f"model.layers.{n}.mlp.shared_expert.gate_proj.weight", "BF16", [64, 64], "FLOAT")
    found = serious(diagnose(spec, tmp_path / "lost"))
    assert found["module-absent"].examples == ("model.layers.2.mlp.shared_expert.gate_proj",)


def test_stack_of_another_model_in_the_checkpoint_has_its_own_number_of_layers(tmp_path: Path) -> None:
    spec = tiny()
    for stack in ("talker.model.layers", "code2wav.pre_transformer.layers", "audio_tower.layers"):
        for n in range(2):
            spec.add(f"{stack}.{n}.norm.weight", "BF16", [8], "FLOAT")
    for e in range(2):
        spec.add(f"talker.model.layers.0.mlp.experts.{e}.up_proj.weight", "BF16", [64, 64], "FLOAT")
    assert serious(diagnose(spec, tmp_path)) == {}


def test_module_that_one_of_many_layers_lacks_is_a_warning(tmp_path: Path) -> None:
    spec = tiny(layers=5)
    for name in [n for n in spec.main if n.startswith("model.layers.3.self_attn.o_proj.")]:
        spec.drop(name)
    found = serious(diagnose(spec, tmp_path))
    assert {code: f.examples for code, f in found.items()} == {"module-odd": ("model.layers.3.self_attn.o_proj",)}


@pytest.mark.parametrize(
    ("release", "found"),
    [("0.13.0", True), ("0.12.0rc1", True), ("0.15.0rc1", False), ("0.18.0", False), ("0.31.0", False)],
)
def test_scheme_between_two_known_releases_is_judged_only_where_both_agree(
    release: str, found: bool, tmp_path: Path
) -> None:
    findings = serious(diagnose(genuine("qwen3-w4a4"), tmp_path, release=release))
    assert ("scheme-not-in-release" in findings) is found


def test_entries_of_computed_buffers_need_no_tensor_and_their_tensors_no_entry(tmp_path: Path) -> None:
    spec = tiny()
    description(spec)["model.layers.0.self_attn.rotary_emb.inv_freq"] = "FLOAT"
    description(spec)["visual.rotary_pos_emb.inv_freq"] = "FLOAT"
    spec.add("model.layers.1.self_attn.rotary_emb.inv_freq", "F32", [16])
    spec.add("rot.weight", "F32", [64, 64])
    assert serious(diagnose(spec, tmp_path)) == {}


@pytest.mark.parametrize("lost", ["q_b_proj", "q_a_proj", "kv_b_proj", "o_proj"])
def test_part_of_an_mla_layer_that_is_gone_from_every_file(lost: str, tmp_path: Path) -> None:
    spec = genuine("kimi_k2-w8a8")
    for name in [n for n in spec.main if n.startswith(f"model.layers.1.self_attn.{lost}.")]:
        spec.drop(name)
    assert serious(diagnose(spec, tmp_path))["module-absent"].params["module"] == lost


def test_numbers_beyond_reason_take_neither_time_nor_memory(tmp_path: Path) -> None:
    spec = tiny()
    spec.config["num_experts"] = spec.config["num_hidden_layers"] = 10**12
    spec.add("model.layers.1.mlp.experts.999999999999.up_proj.weight", "I8", [32, 64], "W8A8_DYNAMIC")
    spec.add("visual.blocks.999999999999.norm.weight", "BF16", [8], "FLOAT")
    said = [finding.message for finding in diagnose(spec, tmp_path) if finding.code == "config-value"]
    assert sorted(said) == [
        f"config.json: {key} is {10**12}, expected a whole number above 0, at most {most}"
        for key, most in (("num_experts", 10000), ("num_hidden_layers", 4096))
    ]


def test_weight_without_an_entry_is_not_also_a_disagreement(tmp_path: Path) -> None:
    spec = tiny()
    for name in [n for n in description(spec) if "_proj.weight" in n]:
        del description(spec)[name]
    assert set(serious(diagnose(spec, tmp_path))) == {"tensor-undescribed"}


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("num_hidden_layers", "61", "a whole number above 0"),
        ("num_hidden_layers", 3.0, "a whole number above 0"),
        ("num_hidden_layers", True, "a whole number above 0"),
        ("num_hidden_layers", 0, "a whole number above 0"),
        ("num_hidden_layers", None, "a whole number above 0"),
        ("hidden_size", "64", "a whole number above 0"),
        ("num_experts", "4", "a whole number"),
        ("num_experts", None, "a whole number above 0"),
        ("num_nextn_predict_layers", "1", "a whole number"),
        ("architectures", "X", "a list of strings"),
        ("architectures", [1], "a list of strings"),
        ("model_type", ["qwen3_moe"], "a string"),
        ("model_type", None, "a string"),
        ("text_config", "x", "an object"),
        ("quantization_config", "ascend", "an object"),
        ("tie_word_embeddings", "false", "true or false"),
        ("torch_dtype", 5, "a string"),
        ("rms_norm_eps", float("nan"), "a number"),
    ],
)
def test_config_value_of_a_wrong_type_is_one_finding(key: str, value: object, expected: str, tmp_path: Path) -> None:
    spec = tiny()
    spec.config[key] = value
    (finding,) = diagnose(spec, tmp_path)
    assert (finding.code, finding.place) == ("config-value", "config.json")
    assert (finding.params["key"], finding.params["expected"]) == (key, expected)
    assert finding.params["found"] == json.dumps(value)


def test_config_value_inside_text_config_is_named_with_its_path(tmp_path: Path) -> None:
    spec = genuine("qwen3_vl-w8a8")
    spec.config["text_config"]["vocab_size"] = "151936"
    (finding,) = [f for f in diagnose(spec, tmp_path) if f.code == "config-value"]
    assert finding.params["key"] == "text_config.vocab_size"


@pytest.mark.parametrize(("key", "value"), [("n_routed_experts", None), ("architectures", None), ("text_config", None)])
def test_null_that_means_the_default_is_no_finding(key: str, value: object, tmp_path: Path) -> None:
    spec = genuine("qwen3-w8a8")
    spec.config[key] = value
    assert "config-value" not in {f.code for f in diagnose(spec, tmp_path)}


def test_config_without_a_model_type(tmp_path: Path) -> None:
    spec = tiny()
    spec.config.clear()
    (finding,) = diagnose(spec, tmp_path)
    assert (finding.code, finding.params["found"]) == ("config-value", "missing")


def test_entry_that_is_no_scheme_is_not_called_missing_too(tmp_path: Path) -> None:
    spec = tiny()
    assert spec.description is not None
    spec.description["lm_head.weight"] = 1
    assert [f.code for f in diagnose(spec, tmp_path)] == ["description-entry"]


def test_tensor_that_the_index_looks_for_elsewhere_is_reported_once(tmp_path: Path) -> None:
    spec = tiny()
    spec.drop("lm_head.weight", described=False, listed=False)
    for weight_map in spec.weight_maps():
        weight_map["lm_head.weight"] = "../head.safetensors"
    assert [f.code for f in diagnose(spec, tmp_path)] == ["index-outside"]


@pytest.mark.parametrize("where", ["model.layers.{}.mlp.up_proj", "model.layers.0.mlp.experts.{}.up_proj"])
def test_number_of_thousands_of_digits_in_a_name(where: str, tmp_path: Path) -> None:
    spec = tiny()
    spec.add(f"{where.format('9' * 5000)}.weight", "BF16", [4, 4], "FLOAT")
    assert {f.severity for f in diagnose(spec, tmp_path)} <= {Severity.WARNING}


def test_tensors_of_a_file_that_is_not_read_are_not_called_missing_too(tmp_path: Path) -> None:
    spec = tiny()
    spec.files["more.safetensors"] = {"model.norm.weight": spec.main["model.norm.weight"]}
    del spec.main["model.norm.weight"]
    spec.indexes["model.safetensors.index.json"] = spec.indexes.pop(INDEX)
    assert [f.code for f in diagnose(spec, tmp_path)] == ["file-unread"]


def test_experts_lost_at_random_are_one_finding(tmp_path: Path) -> None:
    spec = tiny(number=8)
    for layer, expert in enumerate((2, 5, 6)):
        _drop_module(f"model.layers.{layer}.mlp.experts.{expert}")(spec)
    (finding,) = diagnose(spec, tmp_path)
    assert (finding.code, finding.count) == ("expert-absent", 3)
    assert finding.params["where"] == "other ones in each of 3 layers"


@pytest.mark.parametrize(
    ("change", "described", "filed"),
    [
        (r"layers.\1.block\1.", "block*", "(nothing)"),
        (r"stack\1.layers.\1.", "stack*", "(nothing)"),
    ],
)
def test_rename_that_holds_the_number_of_its_layer_is_one_finding(
    change: str, described: str, filed: str, tmp_path: Path
) -> None:
    spec = tiny()
    spec.description = {re.sub(r"layers\.(\d+)\.", change, name): value for name, value in description(spec).items()}
    (finding,) = diagnose(spec, tmp_path)
    assert finding.code == "description-renamed" and finding.count > 60
    assert (finding.params["described"], finding.params["filed"]) == (described, filed)


def test_rename_of_a_number_alone_does_not_name_the_same_on_both_sides(tmp_path: Path) -> None:
    spec = tiny()
    spec.description = {
        name.replace("model.layers.", "model1.layers."): value for name, value in description(spec).items()
    }
    spec.files = {
        f: {n.replace("model.layers.", "model2.layers."): e for n, e in held.items()} for f, held in spec.files.items()
    }
    spec.indexes.clear()
    (finding,) = [f for f in diagnose(spec, tmp_path) if f.code == "description-renamed"]
    assert (finding.params["described"], finding.params["filed"]) == ("model*", "model* of another number")


def test_a_scheme_in_other_letters_is_told_with_the_one_that_is_meant(tmp_path: Path) -> None:
    spec = tiny()
    _retype(f"{ATTENTION}.q_proj.weight", "w8a8_mix")(spec)
    assert "did it mean W8A8_MIX?" in serious(diagnose(spec, tmp_path))["scheme-unknown"].remedy
