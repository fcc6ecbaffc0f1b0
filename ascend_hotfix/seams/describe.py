"""Where the quant description comes from: the file it is read from, and its keys that describe no layer.

``maybe_update_config`` of the ModelSlim config class reads the file from 0.14 on; up to 0.13 vLLM's
``get_quant_config`` does, by the names that ``get_config_filenames`` gives. Both exist in every release.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from fnmatch import fnmatch
from pathlib import Path
from types import ModuleType
from typing import Any

from ascend_hotfix import log, scope
from ascend_hotfix.records import DescriptionFile, DescriptionSet
from ascend_hotfix.scope import Scope
from ascend_hotfix.seams import hooking
from ascend_hotfix.words import counted

__all__ = ["arm_class", "arm_reader"]

SEAM = "describe"
DEFAULT = "quant_model_description.json"
READER = "vllm.model_executor.model_loader.weight_utils.get_quant_config"


class _Reading(threading.local):
    directory = ""


_READING = _Reading()


def arm_class(cls: type) -> None:
    """Wraps the two places of a ModelSlim config class that say where its description comes from."""
    for name, wrapper in (("maybe_update_config", _maybe_update_config), ("get_config_filenames", _filenames)):
        if hasattr(cls, name):
            hooking.wrap(cls, name, wrapper)


def arm_reader(module: ModuleType) -> None:
    """Wraps vLLM's reader of quantization configs, which knows the directory that the class is not told."""
    if not hasattr(module, "get_quant_config"):
        hooking.drifted(SEAM, READER, "vllm/model_executor/model_loader/weight_utils.py")
        return
    original = module.get_quant_config
    if hooking.wrap(module, "get_quant_config", _get_quant_config):
        hooking.replace_everywhere(original, module.get_quant_config, "get_quant_config")


def _get_quant_config(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    model_config = args[0] if args else kwargs.get("model_config")
    before, _READING.directory = _READING.directory, str(getattr(model_config, "model", "") or "")
    try:
        return wrapped(*args, **kwargs)
    finally:
        _READING.directory = before


def _filenames(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    names = wrapped(*args, **kwargs)
    try:
        folder = Path(_READING.directory)
        # vLLM takes every file whose name ends so
        if names and _READING.directory and not any(path.name.endswith(tuple(names)) for path in folder.glob("*.json")):
            found = _file(folder, _scope_of(folder))
            if found is not None:
                one, path, content = found
                hooking.applied(
                    one, SEAM, f"{path.name}: {counted(len(content), 'entry', 'entries')}, read for {names[0]}"
                )
                return [path.name]
    except Exception as error:
        log.contained("looking for the quant description", error)
    return names


def _maybe_update_config(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    folder = Path(str(args[0] if args else kwargs.get("model_name", "")))
    try:
        if not (folder / DEFAULT).is_file():  # upstream would stop here; what it reads itself it reads itself
            _complete(instance, folder)
    except Exception as error:
        log.contained("reading the quant description", error)
    result = wrapped(*args, **kwargs)
    try:
        _complete(instance, folder)
        _set_keys(instance, _scope_of(folder))
    except Exception as error:
        log.contained("completing the quant description", error)
    return result


def _scope_of(folder: Path) -> Scope:
    """The scope of the checkpoint in *folder*, from its config.json: no model is current yet."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return scope.of_types(())
    return scope.of_types(scope.model_types(config), scope.architectures(config))


def _describes_layers(description: Any) -> bool:
    return isinstance(description, dict) and any(str(key).endswith(".weight") for key in description)


def _file(folder: Path, current: Scope) -> tuple[Any, Path, dict[str, Any]] | None:
    """The fix, file and content by which the description of *folder* may be completed."""
    if not folder.is_dir():
        return None
    for one, record in current.records(SEAM):
        if not isinstance(record, DescriptionFile):
            continue
        for path in _candidates(folder, record.name):
            content = json.loads(path.read_text(encoding="utf-8"))
            if _describes_layers(content):
                return one, path, content
    return None


def _candidates(folder: Path, pattern: str) -> Iterable[Path]:
    """The default name first, then the others that match, by name."""
    found = sorted(path for path in folder.iterdir() if path.is_file() and fnmatch(path.name, pattern))
    return sorted(found, key=lambda path: path.name != DEFAULT)


def _complete(config: Any, folder: Path) -> None:
    """Reads the file where the description of *config* says nothing of any layer."""
    held = getattr(config, "quant_description", None)
    if _describes_layers(held):
        return
    found = _file(folder, _scope_of(folder))
    if found is None:
        return
    one, path, content = found
    if not held and path.name == DEFAULT:
        return  # upstream has just failed to read it, and has said why
    # the constructor makes of a description what this release makes of it
    config.__dict__.update(type(config)({**content, **(held or {})}).__dict__)
    hooking.applied(one, SEAM, f"{path.name}: {counted(len(content), 'entry', 'entries')} over {len(held or {})}")


def _set_keys(config: Any, current: Scope) -> None:
    description = getattr(config, "quant_description", None)
    if not isinstance(description, dict):
        return
    for one, record in current.records(SEAM):
        if not isinstance(record, DescriptionSet) or record.key in description:
            continue
        if not record.schemes or any(value in record.schemes for value in description.values()):
            description[record.key] = record.value
            hooking.applied(one, SEAM, f"{record.key} = {record.value!r}")
