"""What each ModelSlim scheme stores for one weight: dtypes, companion tensors and how their shapes follow.

Facts, from the savers of msModelSlim 26.1.0 (``ascendV1``), from checkpoints of the older (v0) service, and from the
parameters that the schemes of vllm-ascend 0.11 to 0.30 create. Sizes: ``out`` and ``in`` are the weight's output and
input size in elements, unpacked. This module imports nothing of ours.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cache

__all__ = [
    "COMPANIONS",
    "FLOAT",
    "METADATA_LEAVES",
    "PACKED_VERSION",
    "QUANTIZED_DTYPES",
    "SCHEMES",
    "SIDE_SCHEMES",
    "Companion",
    "Scheme",
    "companions_in",
    "elements",
    "is_float",
    "is_scheme",
    "scheme_of",
    "shape_problem",
    "stored_otherwise",
]

FLOAT = "FLOAT"
FLATQUANT = "_FLATQUANT"
FLOATS = frozenset({"F32", "BF16", "F16"})
INT8 = frozenset({"I8"})
UINT8 = frozenset({"U8"})
FP8 = frozenset({"F8_E4M3"})
Kind = tuple[str, tuple[int, ...]]
"""Dtype and shape of a tensor."""
ROW_PARALLEL = frozenset({"down_proj", "o_proj", "w2"})
COLUMN_PARALLEL = frozenset({"gate_proj", "up_proj", "q_proj", "k_proj", "v_proj", "w1", "w3"})
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

UNSERVED = frozenset({"W8A8S", "WFP8AFP8_DYNAMIC"})
"""Schemes of the table that no release of vllm-ascend has: no layer can be meant to have them."""

SIDE_SCHEMES = frozenset({"C8", "FAQuant", "FAKQuant", "INT8_DYNAMIC"})
"""Schemes of tensors that belong to the attention, not to one weight."""


COMPANIONS = frozenset(leaf for scheme in SCHEMES.values() for leaf in scheme.companions) | frozenset(TRANSFORMS)
"""Every leaf that some scheme stores beside a weight."""

PACKED_VERSION = "1.0.0"
"""The ``version`` of a description for which vllm-ascend takes two int4 to be in one stored element."""


def companions_in(leaves: Mapping[str, object]) -> str:
    """Those of *leaves*, the tensors of a module, that belong to its weight, as a finding names them."""
    return ", ".join(sorted(COMPANIONS & leaves.keys()))


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


def elements(shape: tuple[int, ...]) -> int:
    """How many elements a tensor of *shape* has."""
    count = 1
    for extent in shape:
        count *= extent
    return count


def shape_problem(rule: str, shape: tuple[int, ...], out: int, into: int, module: str) -> str | None:
    """Why *shape* does not follow *rule* for a weight of *out* by *into* elements, or None."""
    if rule == "any":
        return None
    if rule == "scalar":
        return None if elements(shape) == 1 else f"{list(shape)}, expected one element"
    if rule == "channel":
        return None if shape in ((out,), (out, 1)) else f"{list(shape)}, expected [{out}]"
    if rule == "block":
        blocks = -(-into // MX_BLOCK)
        return None if shape == (out, blocks) else f"{list(shape)}, expected [{out}, {blocks}]"
    if rule == "bias":
        # one column per slice of 16 where the input is split over ranks; msModelSlim goes by these names
        layer = module.rpartition(".")[2]
        if layer not in ROW_PARALLEL | COLUMN_PARALLEL:
            return None
        columns = 16 if layer in ROW_PARALLEL else 1
        return None if shape == (out, columns) else f"{list(shape)}, expected [{out}, {columns}]"
    grouped = len(shape) == 2 and shape[0] == out and shape[1] > 0 and into % shape[1] == 0
    return None if grouped else f"{list(shape)}, expected [{out}, 1] or [{out}, {into} / group size]"


def stored_otherwise(
    leaves: Mapping[str, Kind], module: str, said: str, *, packed: bool, told: str = "", used: Collection[str] = ()
) -> tuple[str, ...]:
    """The schemes of which *leaves*, the tensors of *module*, are by dtype, companions and shapes; mostly one.

    None where they may be of *said*, the scheme of the description, or of none that is known. *packed*: are two int4 in
    one stored row? Some schemes are stored alike: W8A8_MIX and the W8A8 of older ModelSlim, W8A8_DYNAMIC and W8A16. Then
    it is the one that the description says of the checkpoint (*told*), or that is *used* by other weights.
    """
    scheme = scheme_of(said)
    if scheme is None or not scheme.checked or _is_stored(leaves, module, scheme, packed):
        return ()
    served = {name: scheme for name, scheme in SCHEMES.items() if name not in UNSERVED}
    fitting = [name for name, scheme in served.items() if _is_stored(leaves, module, scheme, packed)]
    if told in fitting:
        return (told,)
    beside = COMPANIONS & leaves.keys()
    named = [name for name in fitting if name in used and all(served[name].companions[one].required for one in beside)]
    return tuple(named if len(named) == 1 else fitting)


def _is_stored(leaves: Mapping[str, Kind], module: str, scheme: Scheme, packed: bool) -> bool:
    """Are *leaves* what *scheme* stores, no more and no less?"""
    dtype, shape = leaves.get("weight", ("", ()))
    if dtype not in scheme.dtypes or not scheme.checked or len(shape) != 2:
        return False
    rows = scheme.rows if packed else 1
    size = shape[0] * rows, shape[1] * scheme.columns
    needed = {leaf for leaf, rule in scheme.companions.items() if rule.required or (leaf == "scale_bias" and rows > 1)}
    beside = COMPANIONS & leaves.keys()
    if not needed <= beside <= scheme.companions.keys():
        return False
    rules = ((leaf, scheme.companions[leaf]) for leaf in beside)
    return all(
        leaves[leaf][0] in rule.dtypes and shape_problem(rule.shape, leaves[leaf][1], *size, module) is None
        for leaf, rule in rules
    )
