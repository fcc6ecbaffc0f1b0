"""Shows one name's way through the four name spaces, and which rule of which patch moved it.

A name may be that of a tensor, of a module (in the checkpoint or as built), or of a parameter. The dry run says where it
goes on the installed release; the rules of the selected patches are asked what they make of it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from ascend_hotfix.doctor.align import nearest
from ascend_hotfix.doctor.checkpoint import NotACheckpoint, read_checkpoint
from ascend_hotfix.doctor.dryrun import Rehearsal, Split, call, rehearse, start
from ascend_hotfix.doctor.report import CouldNotRun

__all__ = ["command", "explain", "lines"]

MOST = 12
"""Tensors or parameters shown of one name."""


def _below(name: str, names: Iterable[str]) -> list[str]:
    return [one for one in names if one == name or one.startswith(f"{name}.")]


def _tensors_of(name: str, found: Rehearsal) -> list[str]:
    """The checkpoint tensors that *name* speaks of: its own, those below it, or those that fill it."""
    tensors = found.checkpoint.tensors
    if own := _below(name, tensors):
        return own
    for part in found.parts:
        parameters = set(_below(name, part.parameters))
        if filled := [tensor for tensor, to in part.landed.items() if parameters & set(to)]:
            return filled
        for frame in part.frames:
            if frame.prefix == name and frame.module:
                parameters = set(_below(frame.module, part.parameters))
                return [tensor for tensor, to in part.landed.items() if parameters & set(to)]
    return []


def _moved(name: str, field: str, config: Any) -> list[str]:
    """What the rules of the selected fixes in *field* make of *name*."""
    from ascend_hotfix import scope

    told = []
    for one, renamer in scope.of_config(config).renamers(field):
        for renaming in renamer.candidates(name):
            rules = ", ".join(repr(renamer.rules[index]) for index in renaming.rules)
            told.append(f"{one.name}: {rules} -> {renaming.new}")
    return told


def explain(name: str, model_dir: str, **split: Any) -> dict[str, Any]:
    """A case for the zygote: what is known of *name*, by name space; ``near`` where nothing is."""
    found = rehearse(read_checkpoint(model_dir), Split(**split))
    tensors = found.checkpoint.tensors
    chosen = _tensors_of(name, found)
    description = found.checkpoint.description
    schemes: Mapping[str, str] = description.schemes if description is not None else {}
    result: dict[str, Any] = {"name": name, "tensors": [], "parts": [], "near": []}
    result["total"] = len(chosen)
    for tensor in chosen[:MOST]:
        entry = tensors[tensor]
        held = {"name": tensor, "dtype": entry.dtype, "shape": list(entry.shape), "file": entry.file}
        held["scheme"] = schemes.get(tensor, "")
        held["rules"] = _moved(tensor, "weights", found.config) if found.config is not None else []
        held["lands"] = [[part.role, *part.landed[tensor]] for part in found.parts if tensor in part.landed]
        held["refused"] = [
            [part.role, f"{one.error} {one.text}", one.place]
            for part in found.parts
            for one in part.refused
            if one.tensor == tensor
        ]
        result["tensors"].append(held)
    for part in found.parts:
        modules = {p.rpartition(".")[0] for tensor in chosen for p in part.landed.get(tensor, ())}
        for frame in part.frames:
            if frame.prefix == name or frame.module in modules or f"{name}.weight" in (*frame.asked, *frame.missing):
                rules = [
                    one for key in frame.missing for one in _moved(key.removesuffix(".weight"), "lookup", found.config)
                ]
                rules += _moved(frame.prefix, "lookup", found.config)
                result["parts"].append(
                    {
                        "role": part.role,
                        "prefix": frame.prefix,
                        "module": frame.module,
                        "answers": frame.answers,
                        "missing": frame.missing,
                        "method": frame.method or "none",
                        "float": frame.float_method,
                        "error": frame.error,
                        "rules": list(dict.fromkeys(rules)),
                    }
                )
    if not result["tensors"] and not result["parts"]:
        known = [*tensors, *(p for part in found.parts for p in part.parameters)]
        result["near"] = nearest(name, known)
        result["failure"] = [finding.message for finding in found.findings if finding.code == "model-refused"]
    return result


def lines(told: Mapping[str, Any]) -> list[str]:
    """What :func:`explain` found, to read."""
    text: list[str] = []
    for one in told["tensors"]:
        shape = "x".join(map(str, one["shape"])) or "scalar"
        text.append(f"checkpoint   {one['name']}  {one['dtype']} {shape}  ({one['file']})")
        text.append(f"description  {one['scheme'] or 'no entry of this name'}")
        text += [f"  rule       {rule}" for rule in one["rules"]]
        for role, *parameters in one["lands"]:
            text += [f"parameter    {parameter}  ({role})" for parameter in parameters]
        text += [f"refused      by the {role}: {error} ({place})" for role, error, place in one["refused"]]
        if not one["lands"] and not one["refused"]:
            text.append("parameter    none: the loader leaves it aside without a word")
        text.append("")
    if told["total"] > len(told["tensors"]):
        text += [f"... and {told['total'] - len(told['tensors'])} tensors more", ""]
    for one in told["parts"]:
        text.append(f"module       {one['module'] or '(not in the built model)'}  ({one['role']})")
        text.append(f"  asks as    {one['prefix'] or '(an empty prefix)'}")
        text += [f"  finds      {key}: {scheme}" for key, scheme in one["answers"].items()]
        text += [f"  misses     {key}" for key in one["missing"]]
        text += [f"  rule       {rule}" for rule in one["rules"]]
        text.append(f"  gets       {one['method']}{' (float)' if one['float'] else ''}")
        text += [f"  error      {one['error']}"] if one["error"] else []
    if not told["tensors"] and not told["parts"]:
        text.append(f"{told['name']}: no tensor, module, prefix or parameter has this name")
        text += [f"  like it    {near}" for near in told["near"]]
        text += told.get("failure", [])
    return text


def command(arguments: argparse.Namespace) -> int:
    """``ascend-hotfix explain NAME MODEL_DIR``: 0 where the name is known, 1 where not, 2 where it cannot be checked."""
    try:
        read_checkpoint(arguments.model)
        with start() as zygote:
            told = call(
                zygote,
                "ascend_hotfix.doctor.explain:explain",
                name=arguments.name,
                model_dir=str(arguments.model),
                tensor_parallel_size=arguments.tensor_parallel_size,
                expert_parallel=arguments.enable_expert_parallel,
            )
    except (CouldNotRun, NotACheckpoint) as error:
        print(f"ascend-hotfix: {error}", file=sys.stderr)
        return 2
    print("\n".join(lines(told)).rstrip())
    return 0 if told["tensors"] or told["parts"] else 1
