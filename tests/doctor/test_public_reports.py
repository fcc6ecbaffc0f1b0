"""Public reports that no rename can help, one test each: the doctor names the cause before anything is loaded.

The reports of the catalogue whose remedy is "take another checkpoint", "pass the flag" or "upgrade". Those that need the
model to be built (tensors that a loader drops, messages of a failed look-up) are with the dry run and the seams.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from writer import Spec, genuine, tiny

from ascend_hotfix.doctor.findings import Finding
from ascend_hotfix.doctor.report import Options, to_text
from ascend_hotfix.doctor.run import diagnose

ATTENTION = "model.layers.0.self_attn"


def doctor(spec: Spec, root: Path, release: str) -> tuple[list[Finding], str]:
    """Findings and text of the static stage, for an installed release of vllm-ascend."""
    report = diagnose(str(spec.write(root)), Options(static_only=True), {"vllm-ascend": release})
    return report.findings, to_text(report, 1000)


def original(model_type: str, block: dict[str, Any] | None = None, **leaves: str) -> Spec:
    """A checkpoint as another tool or the publisher wrote it: no ModelSlim description."""
    spec = tiny("FLOAT", "FLOAT")
    spec.description = None
    spec.config["model_type"] = model_type
    if block is not None:
        spec.config["quantization_config"] = block
    for leaf, dtype in leaves.items():
        spec.add(f"{ATTENTION}.q_proj.{leaf}", dtype, [128, 1])
    return spec


FP8 = {"quant_method": "fp8", "weight_block_size": [128, 128]}


@pytest.mark.parametrize(
    ("report", "spec", "release", "method"),
    [
        (
            "#3534 DeepSeek-V3-0324 as released",
            original("deepseek_v3", FP8, weight_scale_inv="F32"),
            "0.11.0rc1",
            "fp8",
        ),
        ("#4835 DeepSeek-V3.2 as released", original("deepseek_v32", FP8, weight_scale_inv="F32"), "0.11.0rc3", "fp8"),
        ("#3464 GLM-4.5-Air-FP8", original("glm4_moe", None, weight_scale_inv="F32"), "0.11.0rc1", "fp8"),
        (
            "#4313 olmOCR-2-7B FP8",
            original("qwen2_5_vl", {"quant_method": "compressed-tensors", "format": "float-quantized"}),
            "0.11.0rc1",
            "compressed-tensors",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and value.startswith("#") else "",
)
def test_checkpoint_of_another_tool(report: str, spec: Spec, release: str, method: str, tmp_path: Path) -> None:
    findings, text = doctor(spec, tmp_path, release)
    named = [f for f in findings if f.code == "not-modelslim"]
    assert len(named) == 1 and f"this checkpoint is of the kind {method}, not ModelSlim" in text


@pytest.mark.parametrize("report", ["#3520 GLM-4.6-INT8 of a third party", "llm-compressor#959 config not saved"])
def test_int8_without_a_word_on_its_tool(report: str, tmp_path: Path) -> None:
    spec = original("glm4_moe" if "GLM" in report else "qwen2", None, weight_scale="F32")
    spec.change(f"{ATTENTION}.q_proj.weight", dtype="I8")
    findings, text = doctor(spec, tmp_path, "0.11.0rc3")
    assert "not-modelslim" in {f.code for f in findings}
    assert "without the weight_offset or deq_scale of ModelSlim" in text


@pytest.mark.parametrize("report", ["#986 DeepSeek-R1 W8A8", "#856 qwen2.5-72b w8a8", "#8476 any W8A8"])
def test_flag_that_is_forgotten_is_in_the_command(report: str, tmp_path: Path) -> None:
    findings, text = doctor(genuine("qwen2_5-w8a8" if "qwen" in report else "deepseek_v3_2-w8a8"), tmp_path, "0.18.0")
    assert findings == []
    assert f"vllm serve {tmp_path} --quantization ascend" in text


def test_release_without_a_quantizer(tmp_path: Path) -> None:
    """vllm-ascend#3177: llama-2-7b-w8a8 on 0.7.3.post1, KeyError for layers.0.mlp.gate_up_proj.deq_scale."""
    findings, _ = doctor(genuine("qwen2_5-w8a8"), tmp_path, "0.7.3.post1")
    assert [f.code for f in findings] == ["release-too-old"]


def test_scales_that_the_index_lists_and_no_file_has(tmp_path: Path) -> None:
    """vllm#57108: attn.wo_a.scale of 43 layers is listed in the index, and the shards do not have it."""
    spec = genuine("deepseek_v4-w8a8")
    scales = [n for n in spec.main if n.endswith("attn.wq_a.weight_scale")]
    for name in scales:
        spec.drop(name, described=False, listed=False)
    findings, _ = doctor(spec, tmp_path, "0.23.0")
    finding = next(f for f in findings if f.code == "tensor-absent")
    assert finding.count == len(scales) and finding.place.endswith("index.json")


def test_packed_weights_that_a_loader_drops(tmp_path: Path) -> None:
    """sglang#33245: wq_a and wkv are stored as .qweight, and the loader, which takes .weight, leaves them out."""
    spec = genuine("deepseek_v4-w8a8")
    weights = [name for name in spec.main if name.endswith(("attn.wq_a.weight", "attn.wkv.weight"))]
    for name in weights:
        spec.drop(name, described=False)
        spec.add(name.replace(".weight", ".qweight"), "I32", [8, 64])
    findings, text = doctor(spec, tmp_path, "0.23.0")
    absent = next(f for f in findings if f.code == "described-tensor-absent")
    assert absent.severity.label == "fault" and absent.count == len(weights) > 0
    assert "layers.0.attn.wq_a.weight" in text and "layers.0.attn.wkv.qweight" in text


def test_neighbour_whose_name_starts_alike(tmp_path: Path) -> None:
    """is_layer_skipped's scan without a dot boundary, 0.16.0rc1 to main of 2026-08-22."""
    spec = tiny(attention="W8A8_DYNAMIC")
    spec.add(f"{ATTENTION}.o_proj2.weight", "BF16", [64, 64], "FLOAT")
    findings, text = doctor(spec, tmp_path, "0.18.0")
    assert [f.code for f in findings if f.severity.label == "fault"] == ["skipped-by-prefix"]
    assert "o_proj2" in text


def test_model_that_the_release_has_no_code_for(tmp_path: Path) -> None:
    """vllm-ascend#15086: the documentation of 0.23.0 names Kimi-K3, the release has no code for it."""
    spec = tiny()
    spec.config["model_type"] = "kimi_k3"
    findings, text = doctor(spec, tmp_path, "0.23.0")
    assert "model-type-new" in {f.code for f in findings}
    assert "pip install 'vllm-ascend>=0.26.0'" in text


def test_shards_that_the_automatic_fallback_left_float(tmp_path: Path) -> None:
    """vllm-ascend#2588: Llama-3.1 W8A8, some shards FLOAT inside a fused group."""
    spec = genuine("qwen2_5-w8a8")
    for leaf in ("deq_scale", "quant_bias", "input_scale", "input_offset", "weight_scale", "weight_offset"):
        spec.drop(f"{ATTENTION}.v_proj.{leaf}")
    spec.change(f"{ATTENTION}.v_proj.weight", dtype="BF16")
    assert spec.description is not None
    spec.description[f"{ATTENTION}.v_proj.weight"] = "FLOAT"
    findings, text = doctor(spec, tmp_path, "0.18.0")
    assert [f.code for f in findings] == ["shards-mixed"]
    assert "q_proj W8A8, k_proj W8A8, v_proj FLOAT" in text


def test_description_that_lost_its_name(tmp_path: Path) -> None:
    """vllm-ascend#2290, #2296: the quantizer wrote quant_model_description_w8a8_dynamic.json."""
    spec = tiny()
    spec.extra["quant_model_description_w8a8_dynamic.json"] = spec.description
    spec.description = None
    findings, text = doctor(spec, tmp_path, "0.11.0")
    assert [f.code for f in findings] == ["description-name"]
    assert f"ln -s quant_model_description_w8a8_dynamic.json {tmp_path}/quant_model_description.json" in text
