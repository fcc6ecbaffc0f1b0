"""Writes the patch module of a suggestion, as a person would write a shipped one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from ascend_hotfix.records import Config, Dequantize, Drop, Fill, Fix, Packed, PatchError, Scheme, Unnamed

__all__ = ["FIELDS", "WRITTEN_BY", "field_text", "patch_text"]

WRITTEN_BY = "by ascend-hotfix doctor"
"""How the first line of a suggested patch ends; ``--suggest`` writes over no other file."""

FIELDS = ("config", "lookup", "packed", "describe", "weights", "params", "types", "drop", "fill", "tensors")
"""Fields of a fix that a suggestion fills, in the order of a written patch."""
OVERRIDE = {
    "weights": "the name alone does not show that it is another parameter's, or none's; the dry run does",
    "types": "the description says another scheme than the tensors beside the weights show",
}
"""Why a rule must act on names that look right, or that no parameter is called like, or against the description."""
NO_TITLE = re.compile(r"[^\w .-]")
Fields = Mapping[str, tuple[Any, ...]]


def field_text(name: str, records: Iterable[Any], override: bool = False) -> str:
    """Field *name* of a fix with *records*, as Python in one line; with the reason where it is to *override*."""
    text = f"{name}=({', '.join(map(record_text, records))},)"
    return f'{text}, override="{OVERRIDE[name]}"' if override else text


def record_text(record: Any) -> str:
    """*record* as Python."""
    kind = type(record).__name__
    if isinstance(record, Packed):
        shards = ", ".join(f'"{shard}"' for shard in record.shards)
        return f'{kind}("{record.fused}", ({shards}{"," if len(record.shards) == 1 else ""}))'
    if isinstance(record, Scheme):
        return f'{kind}("{record.pattern}", "{record.scheme}")'
    if isinstance(record, Drop | Dequantize):
        return f'{kind}("{record.pattern}")'
    if isinstance(record, Fill):
        return f'{kind}("{record.pattern}", {record.value!r})'
    if isinstance(record, Unnamed):
        return f'{kind}("{record.cls}", "{record.name}")'
    if isinstance(record, Config):
        return f"{kind}(put={dict(record.put)!r})".replace("'", '"')
    return f'{kind}("{record.old}", "{record.new}")'


def _why(fields: Fields, override: str) -> str:
    told = []
    if "config" in fields:
        told.append(f"config.json says otherwise of {', '.join(fields['config'][0].put)} than the files are")
    if "lookup" in fields:
        rule = fields["lookup"][0]
        told.append(
            f"vLLM asks the description for {rule.old or 'an empty prefix'}, which has {rule.new or 'no such segment'}"
        )
    if "packed" in fields:
        told.append(f"fused {', '.join(row.fused for row in fields['packed'])} has no row in this release")
    if "describe" in fields:
        told.append(f"layers of class {', '.join(one.cls for one in fields['describe'])} are built without a prefix")
    if "weights" in fields:
        rule = fields["weights"][0]
        told.append(f"the checkpoint writes {rule.old or 'no prefix'} where load_weights takes {rule.new or 'none'}")
    if "params" in fields:
        told.append(f"the loader asks for {fields['params'][0].new}, the parameters are {fields['params'][0].old}")
    if "drop" in fields:
        told.append("the checkpoint has tensors that no parameter takes")
    if "fill" in fields:
        told.append("no tensor of the checkpoint fills parameters that are neutral at this value")
    if "tensors" in fields:
        told.append("the checkpoint has quantized layers that vLLM builds as float whatever the description says")
    if "types" in fields and override:
        told.append("the description says another scheme than the tensors are of")
    elif "types" in fields:
        told.append("the description lacks layers whose tensors tell their scheme")
    return "; ".join(told)


def _grouped(fields: Fields) -> list[Fields]:
    """The fields of each fix: one fix, unless its rules would move each other's results."""
    try:
        Fix("names", "checked only", ("doctor",), **fields)  # type: ignore[arg-type]
        return [fields]
    except PatchError:
        return [{name: (record,)} for name, records in fields.items() for record in records]


def patch_text(
    fields: Fields,
    model_types: Iterable[str],
    versions: Mapping[str, str],
    title: str,
    override: Fields = MappingProxyType({}),
) -> str:
    """The patch module with *fields*, and a fix of its own for each field of *override*: what a hit is replaced by.

    Rules that turn misses into hits are for the release tried and later ones; what overrides is for that release alone.
    """
    groups = [(group, "") for group in _grouped(fields)] if fields else []
    groups += [({name: records}, OVERRIDE[name]) for name, records in override.items()]
    kinds = {type(record).__name__ for group, _ in groups for records in group.values() for record in records}

    def ranges(relation: str) -> str:
        held = [name for name in ("vllm", "vllm-ascend") if name in versions]
        return ", ".join(f'"{name}": "{relation}{versions[name]}"' for name in held)

    types = ", ".join(f'"{one}"' for one in model_types)
    lines = [
        f'"""{NO_TITLE.sub("_", title)}: names that the installed release does not find, {WRITTEN_BY}."""',
        "",
        f"from ascend_hotfix.records import {', '.join(sorted({*kinds, 'Fix', 'ModelPatch'}))}",
        "",
        "PATCH = ModelPatch(",
        f"    model_types=({types},),",
        "    fixes=(",
    ]
    for number, (group, reason) in enumerate(groups, 1):
        lines += [
            "        Fix(",
            f'            id="names{"" if len(groups) == 1 else f"-{number}"}",',
            f'            why="{_why(group, reason)}",',
            '            refs=("doctor",),',
            f"            versions={{{ranges('==' if reason else '>=')}}},",
            '            retire="a release in which the dry run is clean without it",',
        ]
        for name, records in group.items():
            lines.append(f"            {name}=(")
            lines += [f"                {record_text(record)}," for record in records]
            lines.append("            ),")
        if reason:
            lines.append(f'            override="{reason}",')
        lines.append("        ),")
    return "\n".join([*lines, "    ),", ")", ""])
