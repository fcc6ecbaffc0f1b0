"""Which release of vllm-ascend knows a model_type or a scheme, so that "too old" is said before anything is loaded.

Facts read from the tags of vllm-ascend, 0.11.0 to 0.26.0rc. ``LISTED``: first release whose packed or prefix tables
name the model_type. ``NEEDS_CODE``: model types for which the releases before have no model class or config either, so
that no rename can help. ``SCHEMES_OF``: schemes registered for linear layers and for experts, in five releases; what
lies between two of them is taken for known only where both agree.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from ascend_hotfix.doctor.checkpoint import Checkpoint, model_types
from ascend_hotfix.doctor.findings import Collector
from ascend_hotfix.doctor.view import View
from ascend_hotfix.versions import fits

__all__ = ["LISTED", "NEEDS_CODE", "OLDEST", "SCHEMES_OF", "check_release", "check_schemes", "listed_from"]

OLDEST = "0.11.0"

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
    "kimi_k3": "0.26.0",
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
    {
        "deepseek_v4",
        "gemma4",
        "glm_moe_dsa",
        "kimi_k25",
        "kimi_k3",
        "minimax_m2",
        "minimax_m3",
        "minimax_m3_vl",
        "qwen3_5",
    }
    | {"qwen3_5_moe", "step3p5"}
)


_OLD = {"W4A8_DYNAMIC", "W4A4_FLATQUANT_DYNAMIC", "W8A8", "W8A8_DYNAMIC"}
_MIX = {"W8A8_MIX", "W8A16", "W8A8_MXFP8"}
_MX4 = {"W4A4_MXFP4", "W4A4_MXFP4_FLATQUANT", "W4A8_MXFP", "W8A8FP8_DYNAMIC"}
_EXPERTS = {"W4A8_DYNAMIC", "W8A8_DYNAMIC"}
_MX4_EXPERTS = {"W4A16_MXFP4", "W4A4_MXFP4", "W4A8_MXFP", "W8A8FP8_DYNAMIC"}
LINEAR, EXPERTS = "linear layers", "experts"
SCHEMES_OF: dict[str, dict[str, set[str]]] = {
    "0.11.0": {LINEAR: _OLD, EXPERTS: {*_EXPERTS, "W8A8"}},
    "0.13.0": {LINEAR: _OLD | _MIX, EXPERTS: {*_EXPERTS, "W4A16", "W8A8_MIX"}},
    "0.18.0": {LINEAR: {*_OLD, *_MIX, "W4A4_DYNAMIC"}, EXPERTS: {*_EXPERTS, "W4A16", "W8A8_MIX", "W8A8_MXFP8"}},
    "0.23.0": {
        LINEAR: {*_OLD, *_MIX, *_MX4, "W4A4_DYNAMIC"},
        EXPERTS: {*_EXPERTS, *_MX4_EXPERTS, "W4A16", "W8A8_MIX", "W8A8_MXFP8"},
    },
    "0.30.0rc2": {
        LINEAR: {*_OLD, *_MIX, *_MX4, "W4A4_DYNAMIC"} - {"W4A8_DYNAMIC"},
        EXPERTS: {*_EXPERTS, *_MX4_EXPERTS, "W4A16", "W8A8_MXFP8"},
    },
}
_KNOWN = {scheme for kinds in SCHEMES_OF.values() for schemes in kinds.values() for scheme in schemes}


@cache
def _lacks(release: str, kind: str, scheme: str) -> bool:
    """Is it certain that *release* has no *scheme* for *kind*: do the neighbours that were looked at both lack it?"""
    older = [version for version in SCHEMES_OF if fits(release, f">={version}")]
    newer = [version for version in SCHEMES_OF if fits(release, f"<={version}")]
    if not older or not newer:
        return False
    return all(scheme not in SCHEMES_OF[version][kind] for version in (older[-1], newer[0]))


def check_schemes(view: View, release: str | None) -> None:
    """Report schemes that *release* has not registered for the kind of layer that uses them."""
    if release is None:
        return
    for name, scheme in view.schemes.items():
        if scheme not in _KNOWN or not name.endswith((".weight", ".weight_packed")):
            continue
        kind = EXPERTS if ".experts." in name else LINEAR
        if _lacks(release, kind, scheme):
            having = [version for version in SCHEMES_OF if scheme in SCHEMES_OF[version][kind]]
            where = f"{having[0]} to {having[-1]} have it" if having else f"no release up to {[*SCHEMES_OF][-1]} has it"
            view.found.add("scheme-not-in-release", name, installed=release, scheme=scheme, kind=kind, where=where)


def listed_from(types: Iterable[str]) -> str | None:
    """The first release of vllm-ascend that lists one of *types*, or None."""
    return next((LISTED[one] for one in types if one in LISTED), None)


def check_release(checkpoint: Checkpoint, found: Collector, release: str | None) -> None:
    """Report a model_type that *release* of vllm-ascend does not list, and the first that does."""
    model_type = next((t for t in model_types(checkpoint.config) if t in LISTED), None)
    if release is not None and not fits(release, f">={OLDEST}"):
        found.add("release-too-old", installed=release, oldest=OLDEST)
        return
    if release is None or model_type is None or fits(release, f">={LISTED[model_type]}"):
        return
    code = "model-type-new" if model_type in NEEDS_CODE else "model-type-unlisted"
    found.add(code, installed=release, model_type=model_type, first=LISTED[model_type])
