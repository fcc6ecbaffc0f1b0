"""What each ModelSlim scheme stores for one weight: dtypes, companion tensors and how their shapes follow.

Facts, from the savers of msModelSlim 26.1.0 (``ascendV1``), from checkpoints of the older (v0) service, and from the
parameters that the schemes of vllm-ascend 0.11 to 0.30 create. Sizes: ``out`` and ``in`` are the weight's output and
input size in elements, unpacked. This module imports nothing of ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache

__all__ = [
    "COMPANIONS",
    "FLOAT",
    "METADATA_LEAVES",
    "QUANTIZED_DTYPES",
    "SCHEMES",
    "SIDE_SCHEMES",
    "Companion",
    "Scheme",
    "is_float",
    "is_scheme",
    "scheme_of",
]

FLOAT = "FLOAT"
FLATQUANT = "_FLATQUANT"
FLOATS = frozenset({"F32", "BF16", "F16"})
INT8 = frozenset({"I8"})
UINT8 = frozenset({"U8"})
FP8 = frozenset({"F8_E4M3"})
MX_SCALE = frozenset({"U8", "F8_E8M0"})
MX_BLOCK = 32
QUANTIZED_DTYPES = frozenset({"I8", "U8", "F8_E4M3", "F8_E5M2", "F4"})

METADATA_LEAVES = frozenset(
    {"version", "model_quant_type", "metadata", "group_size", "optional", "is_rot_used", "quant_method", "quant_type"}
    | {"kv_cache_type", "kv_quant_type", "fa_quant_type", "indexer_quant_type", "reduce_quant_type"}
)
"""Last segments of description keys that are about the checkpoint or a module, not about a tensor."""


@dataclass(frozen=True)
class Companion:
    """A tensor beside a weight. ``shape`` is the rule its shape follows:

    ``channel`` (out,) or (out, 1); ``column`` (out, 1) or, with groups, (out, in / group); ``scalar`` one element;
    ``block`` (out, ceil(in / 32)); ``group`` (out, in / group); ``bias`` (out, 1) or (out, 16); ``any`` not checked.

    ``read``: does vllm-ascend compute with it? It makes a parameter of some that it never reads.
    """

    dtypes: frozenset[str]
    shape: str
    required: bool = True
    read: bool = True


@dataclass(frozen=True)
class Scheme:
    """One scheme. ``rows``: output rows per stored row; ``columns``: input elements per stored element."""

    dtypes: frozenset[str]
    companions: Mapping[str, Companion] = field(default_factory=dict)
    rows: int = 1
    columns: int = 1
    checked: bool = True


COLUMN = Companion(FLOATS, "column")
OPTIONAL_COLUMN = Companion(FLOATS, "column", required=False)
BLOCK = Companion(MX_SCALE, "block")
PER_CHANNEL = {"weight_scale": COLUMN, "weight_offset": COLUMN}
# the offset is zero and left out of the computation where the activation is quantized per token
PER_TOKEN = {"weight_scale": COLUMN, "weight_offset": Companion(FLOATS, "column", read=False)}
STATIC = {
    # int64 where the model's own dtype is float16: the bits of the float32, widened
    "deq_scale": Companion(frozenset({"F32", "I64"}), "channel"),
    "quant_bias": Companion(frozenset({"I32"}), "channel"),
    "input_scale": Companion(FLOATS, "scalar"),
    "input_offset": Companion(FLOATS | INT8, "scalar"),
}
# v1 writes the four of STATIC, v0 two more, which apply() does not read
V0 = {"weight_scale": OPTIONAL_COLUMN, "weight_offset": OPTIONAL_COLUMN}
TRANSFORMS = {
    "left_trans": Companion(FLOATS, "any"),
    "right_trans": Companion(FLOATS, "any"),
    "clip_ratio": Companion(FLOATS, "scalar"),
}
INT4_SECOND = {
    "weight_scale_second": Companion(FLOATS, "group", required=False),
    "weight_offset_second": Companion(FLOATS, "group", required=False),
}

SCHEMES: dict[str, Scheme] = {
    "W8A8": Scheme(INT8, {**STATIC, **V0}),
    "W8A8_MIX": Scheme(INT8, {**STATIC, **PER_TOKEN}),
    "W8A8_DYNAMIC": Scheme(INT8, PER_TOKEN),
    "W8A16": Scheme(INT8, PER_CHANNEL),
    "W8A8S": Scheme(INT8, {**STATIC, **V0}),
    # two int4 in one int8: row 2i in the low nibble of stored row i; older files store one row each
    "W4A8_DYNAMIC": Scheme(
        INT8, {**PER_TOKEN, "scale_bias": Companion(FLOATS, "bias", required=False), **INT4_SECOND}, rows=2
    ),
    "W4A4_DYNAMIC": Scheme(INT8, PER_CHANNEL),
    "W8A8_MXFP8": Scheme(FP8, {"weight_scale": BLOCK}),
    "W4A4_MXFP4": Scheme(UINT8, {"weight_scale": BLOCK}, columns=2),
    "W4A8_MXFP": Scheme(UINT8, {"weight_scale": BLOCK}, columns=2),
    "W4A16_MXFP4": Scheme(UINT8, {"weight_scale": BLOCK}, columns=2),
    "W4A4_MXFP4_DUALSCALE": Scheme(
        UINT8, {"weight_scale": BLOCK, "weight_dual_scale": Companion(FLOATS, "any")}, columns=2
    ),
    "WFP8AFP8_DYNAMIC": Scheme(FP8, PER_TOKEN),
    "W8A8FP8_DYNAMIC": Scheme(FP8, PER_TOKEN),
    # stored in ways that the header does not tell (sparse, compressed, packed by choice): not checked further
    "W4A16": Scheme(INT8 | {"I32"}, checked=False),
    "W8A8SC": Scheme(INT8, checked=False),
    "W16A16S": Scheme(FLOATS, checked=False),
    "W16A16SC": Scheme(FLOATS, checked=False),
    "W4A4_MXFP4_SVD": Scheme(UINT8, checked=False),
}
"""Schemes of a weight, by the name the description uses."""

SIDE_SCHEMES = frozenset({"C8", "FAQuant", "FAKQuant", "INT8_DYNAMIC"})
"""Schemes of tensors that belong to the attention, not to one weight."""


COMPANIONS = frozenset(leaf for scheme in SCHEMES.values() for leaf in scheme.companions) | frozenset(TRANSFORMS)
"""Every leaf that some scheme stores beside a weight."""


@cache
def scheme_of(value: str) -> Scheme | None:
    """The storage rules of a weight scheme, or None where *value* names none.

    FlatQuant recipes put ``_FLATQUANT`` into the name of the scheme they wrap and store three transforms beside it.
    """
    known = SCHEMES.get(value)
    if known is None and FLATQUANT in value:
        wrapped = SCHEMES.get(value.replace(FLATQUANT, "", 1))
        return None if wrapped is None else replace(wrapped, companions={**wrapped.companions, **TRANSFORMS})
    return known


def is_float(value: str) -> bool:
    """Does *value* say that the tensor is stored as the model's own dtype? FlatQuant writes its biases so."""
    return value in (FLOAT, FLOAT + FLATQUANT)


def is_scheme(value: str) -> bool:
    """Is *value* a scheme that a description may name?"""
    return is_float(value) or value in SIDE_SCHEMES or scheme_of(value) is not None
