"""The cases of plain vLLM: the public report, the release that shows it, how stock fails and which fix mends it.

No import of torch or vLLM: pytest reads this file, and ``cases_*`` are imported by ``runner.py`` in each release's environment.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ascend_hotfix.sim import envs, matrix

__all__ = ["CASES", "Case", "interpreter", "job_name"]

WAYS = ("stock", "fixed", "right", "quiet")


@dataclass(frozen=True)
class Case:
    """One failure. *right* gives the arguments of an input that stock loads right, on *right_release*.

    ``stock`` and ``fixed`` run *function* with *arguments*, without and with our package; ``right`` and ``quiet``
    do the same with the right input. *error* and *message* are what stock raises; without *error* stock goes on and
    its result differs from the right one.
    """

    name: str
    reports: tuple[str, ...]
    release: str
    function: str
    hit: str
    error: str = ""
    message: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)
    right: dict[str, Any] | None = None
    right_release: str = ""
    environ: dict[str, str] = field(default_factory=dict)

    def jobs(self, release: str) -> dict[str, dict[str, Any]]:
        """The jobs of ``runner.py`` for this case on *release*."""
        module, _, function = self.function.partition(".")
        jobs = {}
        for way in WAYS if release == self.release else ("right",) if release == self.right_release else ():
            arguments = self.right if way in ("right", "quiet") and not self.right_release else self.arguments
            if arguments is not None and (way in ("stock", "fixed", "right") or self.right is not None):
                armed = way in ("fixed", "quiet")
                filled = {key: _filled(value) for key, value in arguments.items()}
                jobs[job_name(self, way)] = {
                    "module": module,
                    "function": function,
                    "armed": armed,
                    "arguments": filled,
                }
        return jobs


def site_packages(python: Path) -> Path:
    """Where vLLM lies for *python*: an environment of the matrix sees it from another folder."""
    code = "import importlib.util as u; print(u.find_spec('vllm').submodule_search_locations[0])"
    done = subprocess.run([str(python), "-c", code], check=True, capture_output=True, text=True, timeout=300)
    return Path(done.stdout.strip().splitlines()[-1]).parent


def job_name(case: Case, way: str) -> str:
    """The name of a job in the files that ``runner.py`` reads and writes."""
    return f"{case.name}:{way}"


def _filled(value: Any) -> Any:
    """An argument ``site-packages:RELEASE`` is that folder of the release's environment."""
    if isinstance(value, str) and value.startswith("site-packages:"):
        find = "import importlib.util as u; print(u.find_spec('vllm').submodule_search_locations[0])"
        python = interpreter(value.partition(":")[2])
        package = subprocess.run([python, "-c", find], check=True, capture_output=True, text=True).stdout.strip()
        return str(Path(package).parent)
    return value


def interpreter(release: str) -> Path:
    """The Python of the environment of *release*, made where it is missing. ``PLAIN_ENVS`` names others for a session."""
    for entry in os.environ.get("PLAIN_ENVS", "").split(os.pathsep):
        name, _, folder = entry.partition("=")
        if name == release:
            return Path(folder, "bin", "python")
    return envs.python(matrix.of_vllm(release).pair)


VISION = "re:.*(visual|q_proj|k_proj|v_proj|o_proj|gate_proj|up_proj|lm_head|layers.1).*"
OLD_NAME, NEW_NAME = "moe_params.asked-by-old-name.params", "moe_params.asked-by-new-name.params"


def _moved(module: str, reports: tuple[str, ...], asked: str) -> list[Case]:
    """The model module of 0.23 (or its loader) on 0.24, and the reverse."""
    function = f"cases_moe.{module}"
    error = "KeyError" if asked else ""
    return [
        Case(
            f"{module}-of-0.23-on-0.24",
            reports,
            "0.24.0",
            function,
            OLD_NAME,
            error,
            asked,
            {"loader": "site-packages:0.23.0"},
            {},
        ),
        Case(
            f"{module}-of-0.24-on-0.23",
            reports,
            "0.23.0",
            function,
            NEW_NAME,
            error,
            asked.replace(".experts.", ".experts.routed_experts."),
            {"loader": "site-packages:0.24.0"},
            {},
        ),
    ]


CASES: list[Case] = [
    Case(
        "dbrx",
        ("vllm-project/vllm#49004 / PR #49362",),
        "0.24.0",
        "cases_moe.dbrx",
        OLD_NAME,
        "KeyError",
        "blocks.0.ffn.experts.w13_weight",
        right_release="0.23.0",
    ),
    Case(
        "gpt-oss-bf16",
        ("vllm-project/vllm PR #45818 (#45830)",),
        "0.24.0",
        "cases_moe.gpt_oss",
        OLD_NAME,
        "KeyError",
        "layers.0.mlp.experts.w2_weight",
        right_release="0.23.0",
    ),
    *_moved("step3_text", ("vllm-project/vllm PR #45054",), "layers.1.moe.experts.w2_weight"),
    *_moved("step3p5", ("vllm-project/vllm PR #45054",), ""),
    *_moved("qwen3_vl_moe", ("vllm-project/vllm PR #45054",), "layers.0.mlp.experts.w2_weight"),
    *_moved("aria", ("vllm-project/vllm PR #45054",), "layers.0.mlp.experts.w13_weight"),
    *[
        Case(
            f"kv-scales-{family}-{layout}",
            (report,),
            release,
            "cases_weights.kv_scales",
            "kv_cache.attention-scales.weights",
            arguments={"family": family, "layout": layout},
            right={"family": family, "layout": "vllm"},
        )
        for family, layout, release, report in (
            ("qwen3_moe", "plain", "0.11.0", "vllm-project/vllm#25047"),
            ("qwen3_moe", "modelopt", "0.11.0", "vllm-project/vllm#25047"),
            ("qwen3_next", "modelopt", "0.13.0", "vllm-project/vllm#31872"),
        )
    ],
    *[
        Case(
            f"suffixes-{model_type}-{release}",
            (report,),
            release,
            "cases_weights.suffixes",
            "fp8.mistral-scales.weights",
            "KeyError",
            "activation_scale",
            {"model_type": model_type, "exporter": "mistral"},
            {"model_type": model_type, "exporter": "vllm"},
        )
        for model_type, release, report in (
            ("llama", "0.18.0", "vllm-project/vllm PR #41982"),
            ("mistral", "0.13.0", "vllm-project/vllm PR #32859/#32673"),
        )
    ],
    Case(
        "mamba-codestral",
        ("vllm-project/vllm#31108 / PR #31281, #31309",),
        "0.13.0",
        "cases_weights.mamba2",
        "mamba2.backbone.weights",
        "ValueError",
        "no module or parameter named 'model' in Mamba2ForCausalLM",
        {"prefix": "model."},
        {"prefix": "backbone."},
    ),
    Case(
        "qwen3-embedding",
        ("vllm-project/vllm#21614, #21823",),
        "0.11.0",
        "cases_weights.embedding",
        "qwen.embedding-names.weights",
        "ValueError",
        "no module or parameter named",
        {"prefix": ""},
        {"prefix": "model."},
    ),
    Case(
        "gate-g-idx",
        ("vllm-project/vllm#25029 / PR #28663",),
        "0.11.0",
        "cases_weights.extra_tensors",
        "gptq.gate-g-idx.drop",
        "KeyError",
        "layers.1.mlp.gate.g_idx",
        {"family": "qwen3_moe", "extra": ["model.layers.1.mlp.gate.g_idx"]},
        {"family": "qwen3_moe", "extra": []},
    ),
    Case(
        "qwen3_5-of-0.23-on-0.24-ep",
        ("vllm-project/vllm PR #44953",),
        "0.24.0",
        "cases_weights.qwen3_5_loader",
        OLD_NAME,
        "KeyError",
        "layers.0.mlp.experts.w2_weight",
        {"loader": "site-packages:0.23.0"},
        {},
    ),
    Case(
        "qwen2_5_vl-saved-by-4.52",
        ("verl#1710, LlamaFactory#8254, GPTQModel#1788",),
        "0.11.0",
        "cases_weights.qwen2_5_vl",
        "qwen2_5_vl.wrapper-tensors.weights",
        "KeyError",
        "language_model.embed_tokens.weight",
        {"saved_by": "4.52"},
        {"saved_by": "4.51"},
    ),
    Case(
        "linear-attention-listed",
        ("vllm-project/vllm#40252 (#34697, #35413)", "sgl-project/sglang PR #32266"),
        "0.13.0",
        "cases_quantized.qwen3_next",
        "layer_lists.linear-attention.packed",
        arguments={
            "ignore": [
                "re:.*(q_proj|k_proj|v_proj|o_proj|gate|up|down|out|experts?|lm_head).*",
                *(f"model.layers.0.linear_attn.in_proj_{part}" for part in ("qkv", "z", "b", "a")),
            ]
        },
        right={"ignore": ["re:.*"]},
    ),
    Case(
        "inner-without-prefix",
        ("vllm-project/vllm PR #9772",),
        "0.11.0",
        "cases_quantized.inner_without_prefix",
        "qwen2_5_vl.inner-without-prefix.build",
        arguments={"ignore": [VISION, "language_model.model.layers.0.mlp.down_proj"]},
        right={"ignore": ["re:.*"]},
    ),
    Case(
        "unmapped-list",
        ("vllm-project/vllm PR #20046", "vllm-project/vllm#24244"),
        "0.11.0",
        "cases_quantized.unmapped_list",
        "qwen2_5_vl.listed-wrapper-order.lookup",
        arguments={"wrapper": "model."},
        right={"wrapper": "language_model.model."},
    ),
    Case(
        "doubled-prefix",
        ("vllm-project/vllm#11790 / PR #11795",),
        "0.11.0",
        "cases_quantized.doubled_prefix",
        "qwen.layer-number-twice.lookup",
        arguments={
            "ignore": [
                "re:.*(q_proj|k_proj|v_proj|o_proj|gate_proj|up_proj|lm_head).*",
                "model.layers.0.mlp.down_proj",
                "model.layers.1.mlp.down_proj",
            ]
        },
        right={"ignore": ["re:.*"]},
    ),
    Case(
        "eagle3-first-layer",
        ("vllm-project/vllm PR #48068",),
        "0.24.0",
        "cases_quantized.draft",
        "layer_lists.eagle3-first-layer.lookup",
        arguments={
            "kind": "eagle3",
            "arguments": [
                "re:.*(o_proj|gate_proj|up_proj|down_proj|fc|lm_head).*",
                "model.layers.2.self_attn.qkv_proj",
            ],
        },
        right={"kind": "eagle3", "arguments": ["re:.*"]},
    ),
    Case(
        "float-mtp",
        (
            "vllm-project/vllm PR #39475 (#36954)",
            "vllm-project/vllm PR #49539 / #49141",
        ),
        "0.24.0",
        "cases_quantized.draft",
        "float_layers.draft-in-float.types",
        "KeyError",
        "",
        {"kind": "mtp", "arguments": [".*language_model.*", ".*visual.*", ".*lm_head.*"]},
        {"kind": "mtp", "arguments": None},
    ),
    Case(
        "float-experts",
        ("vllm-project/vllm PR #7086 comment",),
        "0.24.0",
        "cases_quantized.gptq",
        "float_layers.experts-in-float.types",
        "KeyError",
        "mlp.experts.routed_experts.w2_weight",
        {"but": [".*self_attn.*", ".*mlp.gate$", ".*lm_head.*"]},
        {"but": None},
    ),
    Case(
        "gpt-oss-quark-of-0.23-on-0.24",
        ("vllm-project/vllm PR #45067",),
        "0.24.0",
        "cases_moe.gpt_oss_quark",
        OLD_NAME,
        "KeyError",
        "layers.0.mlp.experts.w13_bias",
        {"loader": "site-packages:0.23.0"},
        {},
    ),
    Case(
        "llama4-scales-of-0.23-on-0.24",
        ("vllm-project/vllm PR #45047",),
        "0.24.0",
        "cases_moe.llama4_scales",
        OLD_NAME,
        "KeyError",
        "layers.0.feed_forward.experts.w2_input_scale",
        {"loader": "site-packages:0.23.0"},
        {},
    ),
    Case(
        "kv-scales-qwen3_5",
        ("vllm-project/vllm#54623",),
        "0.30.0",
        "cases_weights.kv_scales",
        "kv_cache.attention-scales.weights",
        arguments={"family": "qwen3_5", "layout": "plain"},
        right={"family": "qwen3_5", "layout": "vllm"},
    ),
    Case(
        "expert-number-last",
        ("intel/auto-round#1464",),
        "0.24.0",
        "cases_weights.auto_round_experts",
        "autoround.number-last.weights",
        "KeyError",
        "layers.0.mlp.experts.routed_experts.w2_weight.0.weight",
        {"expert_first": False},
        {"expert_first": True},
    ),
    Case(
        "scale-on-float-layer",
        ("vllm-project/vllm#53107 / PR #53118",),
        "0.30.0",
        "cases_quantized.scale_on_float_layer",
        "float_layers.scale-without-parameter.tensors",
        "AttributeError",
        "'MergedColumnParallelLinear' object has no attribute 'data'",
        {"stored": "int8"},
        {"stored": "float"},
    ),
    Case(
        "short-conv-listed",
        ("vllm-project/vllm PR #51495",),
        "0.30.0",
        "cases_quantized.lfm2",
        "lfm2.listed-short-conv.lookup",
        arguments={
            "ignore": [
                "re:.*(q_proj|k_proj|v_proj|o_proj|out_proj|w1|w2|w3|w13|lm_head).*",
                "model.layers.0.conv.in_proj",
            ]
        },
        right={"ignore": ["re:.*"]},
    ),
    Case(
        "float-vision",
        ("vllm-project/vllm#27138",),
        "0.11.0",
        "cases_quantized.float_vision",
        "glm4.vision-qkv-in-float.types",
        "KeyError",
        "blocks.0.attn.qkv.weight",
        {"quantized": True},
        {"quantized": False},
    ),
]
