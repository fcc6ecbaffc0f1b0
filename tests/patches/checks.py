"""What makes a loaded model right, judged from the report of :func:`inside.runner.run`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["SPARE", "faults", "hits"]

SPARE = {
    # parameters that no tensor need fill
    "unwritten": (
        r"(norm\w*|ln_q)\.bias$",  # vllm-ascend adds them, zero from the start
        r"ascend_conv1d_weight$",  # derived after loading
        r"indexer\.[qk]_rot$",  # sfa_v1 has a Hadamard matrix of its own
        r"\.fa_q\.(scale|offset)$",  # the query is quantized dynamically
    ),
    # tensors that may go nowhere
    "unused": (
        r"^rot\.weight$",  # the draft's
        r"rotary_emb\.inv_freq$",
    ),
}
# the proposer gives the draft the target's
SHARED = (r"^lm_head\.weight$", r"^model\.embed_tokens\.weight$")
# upstream's class is not called as the scheme is
OTHER_NAMES = {
    "W8A8_MIX": "W8A8PDMIX",
    "W4A4_DYNAMIC": "W4A4LAOSDYNAMIC",
    "W8A8_MXFP8": "W8A8MXFP8DYNAMIC",
    "W4A4_MXFP4": "W4A4MXFP4DYNAMIC",
}
# left out on purpose where a fix drops them: releases without an INT8 KV cache
DROPPED = (r"kv_cache_(scale|offset)$", r"^model\.mtp\.")
STATIC = ("W8A8", "W8A8PDMIX", "W8A8MIX")


def hits(report: Mapping[str, Any]) -> set[str]:
    """The fixes that did something, as ``patch.fix-id``."""
    return {f"{entry['patch']}.{entry['fix']}" for entry in report["ledger"] if entry["hits"]}


def faults(report: Mapping[str, Any], unused: Iterable[str] = (), unwritten: Iterable[str] = ()) -> list[str]:
    """Everything that is wrong with what was loaded, one line each; empty where all is right."""
    if "error" in report:
        return [f"{report['stage']}: {report['error']}: {report['message']}"]
    lines = [f"{e['patch']}.{e['fix']} {e['state']}: {e['note']}" for e in report["ledger"] if e["state"] != "applied"]
    dropped = any(entry["seam"] == "drop" and entry["hits"] for entry in report["ledger"])
    unused = (*unused, *(DROPPED if dropped else ()))
    for role, part in report["parts"].items():
        spare = (*unwritten, *(SHARED if role == "draft" else ()))
        lines += [f"{role}: unwritten {name}" for name in _unwritten(part, spare)]
        lines += [f"{role}: unused {name}" for name in _unused(role, part, unused)]
        lines += [f"{role}: {name} holds another kind of number" for name in part["cast"]]
        lines += [f"{role}: {name} takes a part of its tensors only" for name in part["cut"]]
        lines += [f"{role}: {line}" for line in (*part["other"], *_schemes(part))]
    return lines


def _matches(patterns: Iterable[str], name: str) -> bool:
    return any(re.search(pattern, name) for pattern in patterns)


def scheme(part: Mapping[str, Any], parameter: str) -> str:
    """``W8A8DYNAMIC`` for a parameter of a layer with AscendW8A8DynamicLinearMethod, empty for a float layer."""
    held = part["schemes"].get(parameter.rpartition(".")[0], "")
    return "" if "Unquantized" in held else re.sub(r"^Ascend|(Linear|FusedMoE|Attention)?Method\d*$", "", held).upper()


def _unwritten(part: Mapping[str, Any], spare: Iterable[str]) -> Iterable[str]:
    for name in part["unwritten"]:
        # the newer writer of static W8A8 gives deq_scale and no weight_scale; nothing reads it
        static = name.endswith((".weight_scale", ".weight_offset")) and scheme(part, name) in STATIC
        if not static and not _matches((*SPARE["unwritten"], *spare), name):
            yield name


def _unused(role: str, part: Mapping[str, Any], spare: Iterable[str]) -> Iterable[str]:
    # the static path of W8A8 has the bias in quant_bias; W8A8_MIX goes by the dynamic path, which has not
    static = (names for name, names in part["landed"].items() if scheme(part, name) == "W8A8")
    quantized = {one for names in static for one in names if one.endswith(".quant_bias")}
    for name in part["unused"]:
        folded = name.endswith(".bias") and name.replace(".bias", ".quant_bias") in quantized
        if (
            not folded
            and not _of_another_part(role, name, part["layers"])
            and not _matches([*SPARE["unused"], *spare], name)
        ):
            yield name


def _of_another_part(role: str, name: str, layers: int) -> bool:
    """Does the tensor belong to the draft while the target is loaded, or the other way round?"""
    found = re.search(r"(?:^|\.)layers\.(\d+)\.", name)
    drafts = bool(re.search(r"(^|\.)mtp\.", name)) or (found is not None and int(found[1]) >= layers)
    return drafts if role == "target" else not drafts


def _schemes(part: Mapping[str, Any]) -> Iterable[str]:
    """Every layer that holds a tensor with a scheme in the description has the method of that scheme."""
    for parameter, tensors in part["landed"].items():
        wanted = {part["described"].get(one) for one in tensors if one.endswith(".weight")} - {None}
        dequantized = any(one.endswith("weight_scale") for one in tensors)
        if not wanted or not parameter.endswith("weight") or dequantized:
            continue
        have = scheme(part, parameter)
        if len(wanted) > 1:
            yield f"{parameter} holds tensors of the schemes {sorted(wanted)}"
        elif (one := str(next(iter(wanted)))) == "FLOAT":
            if have:
                yield f"{parameter} is FLOAT in the description and {have} here"
        elif have not in (one.replace("_", ""), OTHER_NAMES.get(one)):
            yield f"{parameter} is {one} in the description and {have or 'float'} here"
