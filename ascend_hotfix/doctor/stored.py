"""Compares what the description says of each tensor with how the tensor is stored: dtype, shape, companions.

The rules are the table :data:`ascend_hotfix.doctor.schemes.SCHEMES`; this module applies them module by module.
"""

from __future__ import annotations

from collections.abc import Mapping

from ascend_hotfix.doctor.checkpoint import Tensor
from ascend_hotfix.doctor.schemes import (
    COMPANIONS,
    PACKED_VERSION,
    QUANTIZED_DTYPES,
    Companion,
    Scheme,
    companions_in,
    elements,
    is_float,
    scheme_of,
    shape_problem,
    stored_otherwise,
)
from ascend_hotfix.doctor.view import TOWERS, WEIGHTS, View

__all__ = ["check_attention", "check_stored"]

CACHE = ("kv_cache_scale", "kv_cache_offset")
FA_PARTS = ("fa_q", "fa_k", "fa_v")


def _listed(values: frozenset[str]) -> str:
    return " or ".join(sorted(values))


def _is_packed(view: View) -> bool:
    """Are two int4 in one stored element?"""
    description = view.checkpoint.description
    return description is not None and description.meta("version") == PACKED_VERSION


def _rows(view: View, scheme: Scheme | None) -> int:
    """Output rows in one stored row."""
    return scheme.rows if scheme is not None and _is_packed(view) else 1


def _check_companion(
    view: View, module: str, leaf: str, tensor: Tensor, name: str, rule: Companion, size: tuple[int, int]
) -> None:
    if tensor.dtype not in rule.dtypes:
        view.found.add(
            "companion-dtype", module, scheme=name, leaf=leaf, dtype=tensor.dtype, expected=_listed(rule.dtypes)
        )
    problem = shape_problem(rule.shape, tensor.shape, *size, module)
    if problem is not None:
        view.found.add("companion-shape", module, scheme=name, leaf=leaf, problem=problem)


def _stored_otherwise(view: View, module: str, leaves: Mapping[str, Tensor], name: str) -> tuple[str, ...]:
    """The schemes of which the tensors of *module* are, where *name*, which the description says, is none of them."""
    description = view.checkpoint.description
    if description is None:
        return ()
    told = str(description.meta("model_quant_type") or "")
    kinds = {leaf: (tensor.dtype, tensor.shape) for leaf, tensor in leaves.items()}
    return stored_otherwise(kinds, module, name, packed=_is_packed(view), told=told, used=view.used)


def _check_quantized(
    view: View, module: str, leaves: Mapping[str, Tensor], weight: Tensor, name: str, scheme: Scheme
) -> None:
    """One module whose weight has a quantized scheme, of which its tensors are."""
    found = view.found
    if weight.dtype not in scheme.dtypes:
        if weight.dtype in QUANTIZED_DTYPES or weight.dtype.startswith("I"):
            expected = _listed(scheme.dtypes)
            found.add("weight-dtype", f"{module}.weight", scheme=name, dtype=weight.dtype, expected=expected)
        else:
            found.add("quantized-but-float", f"{module}.weight", scheme=name, dtype=weight.dtype)
        return
    if not scheme.checked:
        return
    if len(weight.shape) != 2:
        found.add("weight-shape", f"{module}.weight", scheme=name, shape=list(weight.shape), expected="two dimensions")
        return
    packed = _rows(view, scheme)
    size = weight.shape[0] * packed, weight.shape[1] * scheme.columns
    for leaf, rule in scheme.companions.items():
        if leaf in leaves:
            _check_companion(view, module, leaf, leaves[leaf], name, rule, size)
        elif (rule.required or (leaf == "scale_bias" and packed > 1)) and view.may_miss(f"{module}.{leaf}"):
            code = "companion-absent" if rule.read else "companion-unread"
            found.add(code, module, scheme=name, leaf=leaf)
    for leaf in leaves:
        if leaf in COMPANIONS and leaf not in scheme.companions:
            found.add("companion-unexpected", module, scheme=name, leaf=leaf)


def _check_bias(view: View, module: str, weight: Tensor, bias: Tensor, packed: int, name: str) -> None:
    """A bias is as long as the weight has output rows."""
    if len(weight.shape) in (1, 2) and bias.shape != (weight.shape[0] * packed,):
        problem = f"{list(bias.shape)}, expected [{weight.shape[0] * packed}]"
        view.found.add("companion-shape", module, scheme=name, leaf="bias", problem=problem)


def _expected_scheme(module: str, leaf: str, weight_scheme: str | None) -> str | None:
    """The scheme that the entry of *leaf* must have; None where any will do."""
    if leaf in CACHE:
        return "C8"
    if module.rpartition(".")[2] in FA_PARTS and leaf in ("scale", "offset"):
        return "FAQuant"
    if leaf in COMPANIONS:
        return weight_scheme
    return "FLOAT"


def _check_entries(view: View, module: str, leaves: Mapping[str, Tensor], weight_scheme: str | None) -> None:
    """The entries of one module agree with the weight's."""
    for leaf in leaves:
        if leaf in WEIGHTS:
            continue
        said = view.schemes.get(f"{module}.{leaf}")
        wanted = _expected_scheme(module, leaf, weight_scheme)
        if said is None or wanted is None or said == wanted or (wanted == "FLOAT" and is_float(said)):
            continue
        # the saver of dual-scale MXFP4 describes the bias by the weight's scheme
        if leaf == "bias" and said == weight_scheme and said.endswith("_DUALSCALE"):
            continue
        view.found.add("scheme-inconsistent", f"{module}.{leaf}", leaf=leaf, scheme=said, other=wanted)


def check_stored(view: View) -> None:
    """Check every module of the checkpoint against the schemes of its tensors.

    Thousands of experts are stored alike: what was found right once is not looked at again, except where tensors are
    known to be missing and a finding may have been held back for that.
    """
    remember = not view.gone and not view.blind
    right = set()
    for module, form in view.forms.items():
        alike = module.rpartition(".")[2], form
        if alike in right:
            continue
        before = view.found.added
        _check_module(view, module, view.modules[module])
        if remember and view.found.added == before:
            right.add(alike)


def _check_module(view: View, module: str, leaves: Mapping[str, Tensor]) -> None:
    leaf = next((leaf for leaf in WEIGHTS if leaf in leaves), None)
    name = view.schemes.get(f"{module}.{leaf}") if leaf else None
    scheme = None if name is None or is_float(name) else scheme_of(name)
    if name and scheme is not None and (stored := _stored_otherwise(view, module, leaves, name)):
        beside, looks = companions_in(leaves), " or ".join(stored)
        view.found.add("scheme-stored", f"{module}.weight", scheme=name, beside=beside, stored=looks)
        return
    _check_entries(view, module, leaves, name)
    if leaf is None:
        _check_orphans(view, module, leaves)
        return
    if name is None:
        return
    weight = leaves[leaf]
    if is_float(name):
        _check_float(view, module, leaves, weight)
    elif scheme is not None:
        _check_quantized(view, module, leaves, weight, name, scheme)
    if "bias" in leaves and (scheme is None or scheme.checked):
        _check_bias(view, module, weight, leaves["bias"], _rows(view, scheme), name)


def _check_float(view: View, module: str, leaves: Mapping[str, Tensor], weight: Tensor) -> None:
    """One module whose weight is described as FLOAT."""
    if weight.dtype in QUANTIZED_DTYPES and len(weight.shape) > 1:
        view.found.add("float-but-quantized", f"{module}.weight", dtype=weight.dtype)
        return
    for leaf in leaves:
        if leaf in COMPANIONS:
            view.found.add("companion-foreign", module, leaf=leaf)


def _check_orphans(view: View, module: str, leaves: Mapping[str, Tensor]) -> None:
    """Companions whose weight is in no file."""
    orphans = sorted(COMPANIONS & leaves.keys())
    if orphans and view.may_miss(f"{module}.weight"):
        scheme = view.schemes.get(f"{module}.{orphans[0]}", "unknown")
        view.found.add("companion-absent", module, scheme=scheme, leaf="weight")


def _check_cache_scales(view: View, attention: str, parts: list[str]) -> bool:
    """C8: scale and offset for both k and v. Returns whether the layer has any."""
    wanted = {f"{part}.{leaf}" for part in parts for leaf in CACHE}
    present = {w for w in wanted if w.rpartition(".")[2] in view.modules[f"{attention}.{w.rpartition('.')[0]}"]}
    if not present:
        return False
    for leaf in sorted(wanted - present):
        if view.may_miss(f"{attention}.{leaf}"):
            view.found.add("kv-scale-incomplete", attention, leaf=leaf)
    for leaf in sorted(present):
        part, _, kind = leaf.rpartition(".")
        leaves = view.modules[f"{attention}.{part}"]
        rows = leaves["weight"].shape[0] if "weight" in leaves and leaves["weight"].shape else 0
        if rows and elements(leaves[kind].shape) not in (1, rows):
            problem = f"{list(leaves[kind].shape)}, expected [{rows}]"
            view.found.add("kv-scale-shape", f"{attention}.{leaf}", problem=problem)
    return True


def _check_fa(view: View, attention: str, declared: object) -> None:
    """FAQuant: scale and offset for each part that the layer's ``quant_type`` asks for."""
    parts = [part for part in FA_PARTS if f"{attention}.{part}" in view.modules]
    # with a dynamic query (Q_FP8_DYNAMIC_KV_FP8) msModelSlim writes none for q
    needed = FA_PARTS if declared == "INT8" or "fa_q" in parts else FA_PARTS[1:]
    for part in needed:
        for leaf in ("scale", "offset"):
            name = f"{attention}.{part}.{leaf}"
            if leaf not in view.modules.get(f"{attention}.{part}", {}) and view.may_miss(name):
                view.found.add("fa-scale-incomplete", attention, leaf=f"{part}.{leaf}")


def check_attention(view: View) -> None:
    """Check the tensors of a quantized KV cache: C8 scales of k and v, FAQuant scales of MLA layers."""
    description = view.checkpoint.description
    if description is None:
        return
    without = []
    for module in view.outside:
        attention, _, part = module.rpartition(".")
        if part == "k_proj" and f"{attention}.v_proj" in view.modules:
            has_scales = _check_cache_scales(view, attention, ["k_proj", "v_proj"])
            if not has_scales and TOWERS.isdisjoint(attention.split(".")) and not view.draft(module):
                without.append(attention)
    if description.meta("kv_cache_type") == "C8":
        for attention in without:
            if view.may_miss(f"{attention}.k_proj.kv_cache_scale"):
                view.found.add("kv-scale-layers", attention)
    layers = {m.rpartition(".")[0]: None for m in view.outside if m.rpartition(".")[2] in FA_PARTS}
    declared = {
        key.removesuffix(".quant_type"): value
        for key, value in description.metadata.items()
        if key.endswith("self_attn.quant_type")
    }
    for attention in {**layers, **dict.fromkeys(declared)}:
        _check_fa(view, attention, declared.get(attention))
