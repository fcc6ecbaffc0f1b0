"""Shows one name's way through the four name spaces, and which rule of which patch moved it.

A name may be that of a tensor, of a module (in the checkpoint or as built), or of a parameter. The dry run says where it
goes on the installed release; the rules of the selected patches are asked what they make of it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from ascend_hotfix.doctor.checkpoint import UNREAD, NotACheckpoint, read_checkpoint
from ascend_hotfix.doctor.dryrun import Split, call, start
from ascend_hotfix.doctor.rehearse import Rehearsal, rehearse
from ascend_hotfix.doctor.report import CouldNotRun, padded
from ascend_hotfix.doctor.suggest.words import nearest
from ascend_hotfix.doctor.texts import label_of, phrase
from ascend_hotfix.words import printable

__all__ = ["command", "explain", "lines"]

LABEL = 13  # columns of the left column
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


def explain(name: str, model_dir: str, language: str = "en", **split: Any) -> dict[str, Any]:
    """A case for the zygote: what is known of *name*, by name space; ``near`` where nothing is."""
    found = rehearse(read_checkpoint(model_dir), Split(**split))
    tensors = found.checkpoint.tensors
    chosen = _tensors_of(name, found)
    description = found.checkpoint.description
    schemes: Mapping[str, str] = description.schemes if description is not None else {}
    result: dict[str, Any] = {"name": name, "tensors": [], "parts": [], "described": [], "near": []}
    result["total"], stem = len(chosen), name.removesuffix(".weight")
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
            asked = (*frame.asked, *frame.missing)
            if frame.prefix == stem or frame.module in modules or f"{stem}.weight" in asked:
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
                        "method": frame.method,
                        "float": frame.float_method,
                        "error": frame.error,
                        "rules": list(dict.fromkeys(rules)),
                    }
                )
    if not result["tensors"] and not result["parts"]:
        known = [*tensors, *(p for part in found.parts for p in part.parameters)]
        result["described"] = [[one, schemes[one]] for one in _below(name, schemes)[:MOST]]
        result["near"] = nearest(name, known)
        refused = (finding for finding in found.findings if finding.code == "model-refused")
        result["failure"] = [finding.sentences(language)[0] for finding in refused]
    return result


def _row(label: str, text: str, language: str, indent: str = "") -> str:
    return padded(indent + label_of(label, language), LABEL) + text


def _tensor_lines(one: Mapping[str, Any], language: str) -> list[str]:
    shape = "x".join(map(str, one["shape"])) or "scalar"
    text = [
        _row("checkpoint", f"{one['name']}  {one['dtype']} {shape}  ({one['file']})", language),
        _row("description", one["scheme"] or phrase("no entry", language), language),
        *(_row("rule", rule, language, "  ") for rule in one["rules"]),
    ]
    for role, *parameters in one["lands"]:
        text += [_row("parameter", f"{parameter}  ({role})", language) for parameter in parameters]
    for role, error, place in one["refused"]:
        text.append(_row("refused", phrase("refused", language, role=role, error=error, place=place), language))
    if not one["lands"] and not one["refused"]:
        text.append(_row("parameter", phrase("nowhere", language), language))
    return [*text, ""]


def _module_lines(one: Mapping[str, Any], language: str) -> list[str]:
    method = one["method"] or phrase("no method", language)
    below = [
        ("asks as", one["prefix"] or phrase("no prefix", language)),
        *(("finds", f"{key}: {scheme}") for key, scheme in one["answers"].items()),
        *(("misses", key) for key in one["missing"]),
        *(("rule", rule) for rule in one["rules"]),
        ("gets", phrase("float", language, method=method) if one["float"] else method),
        *((("error", one["error"]),) if one["error"] else ()),
    ]
    head = _row("module", f"{one['module'] or phrase('not built', language)}  ({one['role']})", language)
    return [head, *(_row(label, text, language, "  ") for label, text in below)]


def lines(told: Mapping[str, Any], language: str = "en") -> list[str]:
    """What :func:`explain` found, to read."""
    text = [line for one in told["tensors"] for line in _tensor_lines(one, language)]
    more = told["total"] - len(told["tensors"])
    if more:
        text += [phrase("more", language, count=more), ""]
    text += [line for one in told["parts"] for line in _module_lines(one, language)]
    if not told["tensors"] and not told["parts"]:
        described = told["described"]
        text += [_row("description", f"{one}  {scheme}", language) for one, scheme in described]
        text.append(phrase("only described" if described else "unknown", language, name=told["name"]))
        text += [_row("like it", near, language, "  ") for near in told["near"]]
        text += told.get("failure", [])
    return text


def command(arguments: argparse.Namespace) -> int:
    """``ascend-hotfix explain NAME MODEL_DIR``: 0 where the name is known, 1 where not, 2 where it cannot be checked."""
    try:
        unread = [f for f in read_checkpoint(arguments.model).findings if f.code in UNREAD]
        if unread:
            raise NotACheckpoint(unread[0])
        with start() as zygote:
            told = call(
                zygote,
                "ascend_hotfix.doctor.explain:explain",
                name=arguments.name,
                model_dir=str(arguments.model),
                language=arguments.language,
                tensor_parallel_size=arguments.tensor_parallel_size,
                expert_parallel=arguments.enable_expert_parallel,
            )
    except (CouldNotRun, NotACheckpoint) as error:
        print(f"ascend-hotfix: {printable(error)}", file=sys.stderr)
        return 2
    print("\n".join(printable(line, sys.maxsize) for line in lines(told, arguments.language)).rstrip())
    return 0 if told["tensors"] or told["parts"] or told["described"] else 1
