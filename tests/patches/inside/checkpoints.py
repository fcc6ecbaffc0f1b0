"""Checkpoints of the cases: a genuine one as it is, a genuine one with the report's difference, or a made-up one.

A checkpoint is a dict: ``base`` names a folder of tests/data/checkpoints, or ``made`` a function of
:mod:`inside.specs` with ``args``. Then, in this order:

* ``float``: patterns of modules whose weights become bfloat16 and lose their scales;
* ``drop``: patterns of tensors that are left out; ``forget``: patterns of description entries that are left out;
* ``rename``: pairs of a regular expression and its replacement, for tensors and description alike;
* ``rename_described``: the same for the description alone; ``describe``: further entries;
* ``only_text``: the text model alone, with this architecture;
* ``wrapper``: the text model is put below a wrapper: its config becomes ``text_config`` of the config in
  tests/patches/shapes of that name, whose tensors are added in float;
* ``config``: values of config.json to set, None takes one out; ``text_config`` below it.

All patterns are regular expressions that are searched for.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

__all__ = ["make"]

DATA = Path(__file__).resolve().parents[2] / "data" / "checkpoints"
DESCRIPTION = "quant_model_description.json"
SCALES = ("weight_scale", "weight_offset", "input_scale", "input_offset", "quant_bias", "deq_scale", "scale_bias")


def make(recipe: dict[str, Any] | str, scratch: Path) -> Path:
    """The folder of the checkpoint; below *scratch* where it is not a genuine one as it is."""
    if isinstance(recipe, str):
        return DATA / recipe if "/" not in recipe else Path(recipe)
    if set(recipe) == {"base"}:
        return DATA / recipe["base"]
    folder = scratch / "checkpoint"
    folder.mkdir()
    if "base" in recipe:
        config, tensors, described = _read(DATA / recipe["base"], folder)
    else:
        from inside import specs

        config, tensors, described = getattr(specs, recipe["made"])(**recipe.get("args", {}))
    for pattern in recipe.get("float", ()):
        _to_float(pattern, tensors, described)
    tensors = {n: t for n, t in tensors.items() if not _any(recipe.get("drop", ()), n)}
    described = {n: t for n, t in described.items() if not _any(recipe.get("forget", ()), n)}
    for old, new in recipe.get("rename", ()):
        tensors = {re.sub(old, new, name): tensor for name, tensor in tensors.items()}
        described = {re.sub(old, new, name): scheme for name, scheme in described.items()}
    for old, new in recipe.get("rename_described", ()):
        described = {re.sub(old, new, name): scheme for name, scheme in described.items()}
    described.update(recipe.get("describe", {}))
    if "only_text" in recipe:
        config = {**config["text_config"], "architectures": [recipe["only_text"]]}
    if "wrapper" in recipe:
        from inside import specs

        outer, added, schemes = specs.shaped(recipe["wrapper"], [])
        config, tensors, described = {**outer, "text_config": config}, {**added, **tensors}, {**schemes, **described}
    _set(config, recipe.get("config", {}))
    if "text_config" in recipe:
        _set(config["text_config"], recipe["text_config"])
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / DESCRIPTION).write_text(json.dumps(described), encoding="utf-8")
    if not (folder / "generation_config.json").exists():
        (folder / "generation_config.json").write_text("{}", encoding="utf-8")
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, str(folder / "model.safetensors"))
    return folder


def _read(source: Path, folder: Path) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    tensors: dict[str, Any] = {}
    for file in sorted(source.iterdir()):
        if file.suffix == ".safetensors":
            tensors.update(load_file(str(file)))
        elif file.is_file() and not file.name.endswith(".index.json"):
            shutil.copyfile(file, folder / file.name)
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    return config, tensors, json.loads((source / DESCRIPTION).read_text(encoding="utf-8"))


def _any(patterns: Any, name: str) -> bool:
    return any(re.search(pattern, name) for pattern in patterns)


def _to_float(pattern: str, tensors: dict[str, Any], described: dict[str, Any]) -> None:
    """Turns the weights of the modules that match into bfloat16. Their values are not kept: no test asks for them."""
    for name in [name for name in tensors if re.search(pattern, name)]:
        leaf = name.rpartition(".")[2]
        if leaf in SCALES:
            del tensors[name]
            described.pop(name, None)
        elif leaf == "weight" and not tensors[name].is_floating_point():
            tensors[name] = tensors[name].to(torch.bfloat16) / 128
            described[name] = "FLOAT"


def _set(config: dict[str, Any], values: dict[str, Any]) -> None:
    for name, value in values.items():
        if value is None:
            config.pop(name, None)
        else:
            config[name] = value
