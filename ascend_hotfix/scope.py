"""Which fixes are for the model that is being built or loaded, compiled for use at the seams.

A scope belongs to one config: two models of a type that differ in depth have two.

vLLM builds several models in one process: a wrapper, the language model inside, a draft. A scope is made
from the config that is current at the seam, or from the model instance itself, and holds what the
catalog selects for every name under which that model may be known.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ascend_hotfix.catalog import (
    ENV_MODELS,
    ENV_PATH,
    Catalog,
    Selection,
    covers,
    installed_versions,
    load_catalog,
    of_class,
    out_of_range,
    version_notes,
)
from ascend_hotfix.ledger import LEDGER
from ascend_hotfix.log import finding, info
from ascend_hotfix.records import RENAMING_FIELDS, RULE_FIELDS, Fix
from ascend_hotfix.renamer import Renamer
from ascend_hotfix.toggles import TOLD, strict

__all__ = [
    "Scope",
    "announce",
    "announce_early",
    "catalog",
    "keys_of",
    "model_types",
    "of_config",
    "of_model",
    "of_types",
    "reset",
]

OUTCOME = "\n  The server runs without it (ASCEND_HOTFIX_STRICT=1 makes this an error)"
NESTED = ("text_config", "thinker_config", "llm_config", "language_config", "talker_config", "hf_text_config")


@dataclass
class Scope:
    """The fixes for one model. ``renamers`` are shared by every seam that asks, so that hits add up."""

    types: tuple[str, ...]
    selected: list[Selection] = field(default_factory=list)
    config: Any = None
    model: str = ""
    """Folder or id of the checkpoint; empty where it is not known."""

    def __post_init__(self) -> None:
        self._renamers = {
            (id(one), seam): Renamer(getattr(one.fix, seam)) for one in self.selected for seam in RENAMING_FIELDS
        }

    def renamers(self, seam: str) -> Iterator[tuple[Selection, Renamer]]:
        """Each selected fix that has rules for *seam*, with the renamer of those rules."""
        for one in self.selected:
            if getattr(one.fix, seam):
                yield one, self._renamers[id(one), seam]

    def records(self, name: str) -> Iterator[tuple[Selection, Any]]:
        """Each record of field *name* with the fix it belongs to."""
        for one in self.selected:
            for record in getattr(one.fix, name):
                yield one, record

    def __bool__(self) -> bool:
        return bool(self.selected)


class _State(threading.local):
    pinned: Scope | None = None


_STATE = _State()
_LOCK = threading.RLock()
_CATALOG: tuple[tuple[str, ...], Catalog] | None = None
_VERSIONS: dict[str, str] = {}
_SCOPES: dict[tuple[tuple[str, ...], tuple[str, ...], int, str], Scope] = {}
_MOST_SCOPES = 64


def reset() -> None:
    """Forgets catalog, versions and scopes: the doctor and the tests change the environment in one process."""
    global _CATALOG
    with _LOCK:
        _CATALOG = None
        _VERSIONS.clear()
        _SCOPES.clear()


def catalog() -> Catalog:
    """The catalog of this process, read once for each setting of the toggles.

    A Ray worker imports vLLM first and is told the driver's environment afterwards.
    """
    global _CATALOG
    toggles = (os.environ.get(ENV_MODELS, ""), os.environ.get(ENV_PATH, ""))
    with _LOCK:
        if _CATALOG is None or _CATALOG[0] != toggles:
            _SCOPES.clear()
            _CATALOG = (toggles, load_catalog())
        return _CATALOG[1]


def versions() -> dict[str, str]:
    """The installed versions, read once."""
    with _LOCK:
        if not _VERSIONS:
            _VERSIONS.update(installed_versions())
        return _VERSIONS


def announce() -> None:
    """Says what is wrong with patches and toggle, once for a process and those that it starts."""
    found = catalog()
    if found.off:
        return
    problems = [*found.problems, *found.unknown_terms()]
    if problems and strict():
        finding("\n".join(problems))
    told = hashlib.sha256("\n".join(problems).encode()).hexdigest()[:10]
    for problem in problems:
        if os.environ.get(TOLD) == told:
            LEDGER.find(problem)
        else:
            finding(problem, OUTCOME)
    if problems:
        os.environ[TOLD] = told
    for note in [*found.notes, *version_notes(versions())]:
        info(note, once=note)


def announce_early() -> None:
    """As :func:`announce`, before there is a model: where patches or a choice of them are the user's.

    Without these nothing of the user's can be wrong, and the catalog is read where a model is built.
    """
    if any(os.environ.get(name, "").strip() for name in (ENV_MODELS, ENV_PATH)):
        announce()


def model_types(hf_config: Any) -> tuple[str, ...]:
    """Every model_type under which a transformers config and the configs inside it are known."""
    seen: list[str] = []
    todo = [hf_config]
    while todo:
        config = todo.pop(0)
        if config is None or isinstance(config, str | int):
            continue
        name = _get(config, "model_type")
        if isinstance(name, str) and name and name not in seen:
            seen.append(name)
        todo += [_get(config, key) for key in NESTED]
    return tuple(seen)


def _get(config: Any, key: str) -> Any:
    if isinstance(config, dict):
        return config.get(key)
    with contextlib.suppress(Exception):
        return getattr(config, key, None)
    return None


def architectures(hf_config: Any) -> tuple[str, ...]:
    """The model class names of a transformers config."""
    names = _get(hf_config, "architectures")
    return tuple(one for one in names if isinstance(one, str)) if isinstance(names, list | tuple) else ()


def of_types(types: Iterable[str], classes: Iterable[str] = (), config: Any = None, model: str = "") -> Scope:
    """The scope of a model that is known as any of *types*, with model classes *classes*; one for each *config* object.

    A scope holds its config, so that no other can have its id while the scope is kept.
    """
    key = (tuple(types), tuple(classes), 0 if config is None else id(config), model)
    with _LOCK:
        catalog()
        scope = _SCOPES.pop(key, None)
        if scope is None:
            scope = _make(key[0], key[1], config, model)
            if len(_SCOPES) >= _MOST_SCOPES:  # the one that has not been asked for the longest
                del _SCOPES[next(iter(_SCOPES))]
        _SCOPES[key] = scope
        return scope


def keys_of(scope: Scope) -> list[tuple[str, str, str]]:
    """Patch, fix and seam of everything that *scope* selects, as the ledger has them."""
    return [(one.patch, one.fix.id, seam) for one in scope.selected for seam in seams_of(one.fix)]


def _make(types: tuple[str, ...], classes: tuple[str, ...], config: Any, model: str) -> Scope:
    found = catalog()
    if found.off:
        return Scope(types)
    selected = [one for one in found.select(types, versions()) if of_class(one.fix, classes)]
    scope = Scope(types, selected, config, model)
    for key in keys_of(scope):
        LEDGER.entry(*key)
    for one, reason in found.out_of_range(types, versions()):
        for seam in seams_of(one.fix):
            LEDGER.mark(one.patch, one.fix.id, seam, "out of range", reason)
    names = ", ".join(sorted({one.patch for one in selected})) or "none"
    have = ", ".join(f"{name} {versions().get(name, 'not installed')}" for name in ("vllm", "vllm-ascend"))
    about = f"model {'/'.join(types) or '?'}: patches armed: {names} ({have}); {ENV_MODELS}=none switches this off"
    info(about, once=f"scope {types}")
    if types and (idle := list(_idle(found, types, classes))):
        info(f"model {'/'.join(types) or '?'}: not used of {ENV_PATH}: {', '.join(idle)}", once=", ".join(idle))
    return scope


def _idle(found: Catalog, types: tuple[str, ...], classes: tuple[str, ...]) -> Iterator[str]:
    """The user's patches of which nothing is for this model, or for one around it, each with the reason."""
    armed = {entry.patch for entry in LEDGER if entry.state != "out of range"}
    for name, source in found.sources.items():
        if source.kind != "user" or name in armed:
            continue
        fixes = source.patch.fixes
        of_type = [fix for fix in fixes if covers(fix, types)]
        fitting = [fix for fix in of_type if of_class(fix, classes)]
        if not of_type:
            yield f"{name} (for {_listed(one for fix in fixes for one in fix.model_types)})"
        elif not fitting:
            yield f"{name} (for {_listed(one for fix in of_type for one in fix.architectures)})"
        else:
            reasons = filter(None, (out_of_range(fix, versions()) for fix in fitting))
            yield f"{name} ({next(reasons, f'not in {ENV_MODELS}')})"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(names))


def seams_of(fix: Fix) -> list[str]:
    """The fields in which *fix* has something; they name its entries in the ledger."""
    return [name for name in RULE_FIELDS if getattr(fix, name)]


def from_path(patch: str) -> bool:
    """Was the patch named by the user in ASCEND_HOTFIX_PATH? Then it is a finding when it does nothing."""
    source = catalog().sources.get(patch)
    return source is not None and source.kind == "user"


def of_config(vllm_config: Any, model_config: Any = None) -> Scope:
    """The scope of the model that *vllm_config* builds; *model_config* is the draft's where it is given."""
    model_config = model_config or getattr(vllm_config, "model_config", None)
    hf_config = getattr(model_config, "hf_config", None)
    types = list(model_types(hf_config))
    types += [one for one in model_types(getattr(model_config, "hf_text_config", None)) if one not in types]
    return of_types(types, architectures(hf_config), hf_config, str(getattr(model_config, "model", None) or ""))


def of_model(model: Any) -> Scope:
    """The scope of a built model, from the config that it holds."""
    for holder in (model, getattr(model, "model", None)):
        config = getattr(holder, "config", None)
        if config is not None and model_types(config):
            return of_types(
                model_types(config), architectures(config), config, str(_get(config, "_name_or_path") or "")
            )
    return of_types(())


def current() -> Scope:
    """The scope of the config that is current in vLLM, or the one that a caller pinned; nothing's where there is none."""
    if _STATE.pinned is not None:
        return _STATE.pinned
    if not _has_current():
        return of_types(())
    from vllm.config import get_current_vllm_config

    return of_config(get_current_vllm_config())


def _has_current() -> bool:
    """Has vLLM a current config? Older releases answer the question itself with a default config, which sets up the platform."""
    for home in ("vllm.config.vllm", "vllm.config"):
        module = sys.modules.get(home)
        if module is not None and hasattr(module, "_current_vllm_config"):
            return module._current_vllm_config is not None
    return True


def enclosing() -> Scope | None:
    """The scope that a model under construction around us has pinned."""
    return _STATE.pinned


@contextlib.contextmanager
def pinned(scope: Scope) -> Iterator[None]:
    """Makes *scope* the current one: vLLM shows the target's config while it builds a draft."""
    before, _STATE.pinned = _STATE.pinned, scope
    try:
        yield
    finally:
        _STATE.pinned = before
