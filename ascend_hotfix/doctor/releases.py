"""Which release of vllm-ascend lists a model_type, so that "too old" is said before anything is loaded.

Facts read from the tags of vllm-ascend, 0.11.0 to 0.26.0rc. ``LISTED``: first release whose packed or prefix tables
name the model_type. ``NEEDS_CODE``: model types for which the releases before have no model class or config either, so
that no rename can help.
"""

from __future__ import annotations

from ascend_hotfix.doctor.checkpoint import Checkpoint, model_types
from ascend_hotfix.doctor.findings import Collector
from ascend_hotfix.versions import fits

__all__ = ["LISTED", "NEEDS_CODE", "check_release"]

LISTED = {
    "bailing_hybrid": "0.19.1rc1",
    "deepseek_mtp": "0.11.0",
    "deepseek_v2": "0.11.0",
    "deepseek_v3": "0.11.0",
    "deepseek_v32": "0.11.0",
    "deepseek_v4": "0.20.2rc1",
    "gemma4": "0.24.0rc1",
    "gemma4_text": "0.24.0rc1",
    "glm4_moe": "0.11.0",
    "glm4_moe_lite": "0.15.0rc1",
    "glm4v_moe": "0.16.0rc1",
    "glm_moe_dsa": "0.15.0rc1",
    "kimi_k2": "0.11.0",
    "kimi_k25": "0.15.0rc1",
    "longcat_flash": "0.13.0rc2",
    "minimax_m2": "0.13.0rc2",
    "minimax_m3": "0.24.0rc1",
    "minimax_m3_vl": "0.24.0rc1",
    "pangu_ultra_moe": "0.13.0rc1",
    "qwen2_5_omni": "0.16.0rc1",
    "qwen2_5_vl": "0.11.0",
    "qwen3_5": "0.16.0rc1",
    "qwen3_5_moe": "0.16.0rc1",
    "qwen3_moe": "0.11.0",
    "qwen3_next": "0.11.0",
    "qwen3_omni_moe": "0.16.0rc1",
    "qwen3_vl": "0.13.0rc2",
    "qwen3_vl_moe": "0.13.0rc1",
    "step3p5": "0.23.0rc1",
}
NEEDS_CODE = frozenset(
    {"deepseek_v4", "gemma4", "glm_moe_dsa", "kimi_k25", "minimax_m2", "minimax_m3", "minimax_m3_vl", "qwen3_5"}
    | {"qwen3_5_moe", "step3p5"}
)


def check_release(checkpoint: Checkpoint, found: Collector, release: str | None) -> None:
    """Report a model_type that *release* of vllm-ascend does not list, and the first that does."""
    model_type = next((t for t in model_types(checkpoint.config) if t in LISTED), None)
    if release is None or model_type is None or fits(release, f">={LISTED[model_type]}"):
        return
    code = "model-type-new" if model_type in NEEDS_CODE else "model-type-unlisted"
    found.add(code, installed=release, model_type=model_type, first=LISTED[model_type])
