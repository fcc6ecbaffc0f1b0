"""Wrapping an attribute once, and saying so when it is not there.

A wrapper never changes what upstream raises: our own failures are contained (see ``log.contained``),
upstream's exceptions pass through unchanged in type with a hint added.
"""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable
from typing import Any

import wrapt

from ascend_hotfix import log, scope
from ascend_hotfix.catalog import ENV_MODELS, Selection
from ascend_hotfix.ledger import LEDGER

__all__ = ["LOCK", "Wrapped", "add_hint", "applied", "drifted", "is_wrapped", "replace_everywhere", "wrap"]

LOCK = threading.RLock()
"""Held while a seam changes what layers are asked of: two threads may build at once."""

Wrapper = Callable[[Any, Any, tuple[Any, ...], dict[str, Any]], Any]


class Wrapped(wrapt.FunctionWrapper):  # type: ignore[misc,type-arg,unused-ignore]
    """A FunctionWrapper that we recognise as ours."""


def is_wrapped(target: Any) -> bool:
    """Is *target* one of our wrappers?"""
    return isinstance(target, Wrapped)


def wrap(owner: Any, name: str, wrapper: Wrapper) -> bool:
    """Wraps ``owner.name`` (a class's attribute, its own or inherited, or a module's), once.

    False where it is wrapped already, be it in a class that *owner* inherits it from. Raises AttributeError where there
    is no such attribute.
    """
    target = inspect.getattr_static(owner, name, None)  # what a class gives out is bound to it, and no longer ours
    if target is None:
        target = getattr(owner, name)
    if is_wrapped(target):
        return False
    setattr(owner, name, Wrapped(target, wrapper))
    return True


def replace_everywhere(old: Any, new: Any, attribute: str) -> int:
    """Rebinds *attribute* in every imported module where ``from ... import`` has bound it to *old*; how many.

    By identity: 144 to 285 of vLLM's model files bind ``maybe_prefix`` by name.
    """
    count = 0
    for module in list(sys.modules.values()):
        held = getattr(module, "__dict__", None)
        if isinstance(held, dict) and held.get(attribute) is old:
            held[attribute] = new
            count += 1
    return count


def drifted(seam: str, target: str, reference: str) -> None:
    """A place that should be there and is not: one warning, and every fix of that seam marked."""
    names = []
    for selection in scope.catalog().wanted():
        if getattr(selection.fix, seam, ()):
            names.append(selection.name)
            LEDGER.mark(selection.patch, selection.fix.id, seam, "drifted", target)
    if not names:
        return
    shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    versions = ", ".join(f"{name} {version}" for name, version in scope.versions().items() if name.startswith("vllm"))
    log.finding(
        f"{target} is not where it was in the releases we know ({versions}), so fixes at the {seam} seam cannot act: "
        f"{shown}. Reference: {reference}. Report it, or set {ENV_MODELS}=none to run without fixes"
    )


def applied(one: Selection, seam: str, text: str) -> None:
    """A hit on what vLLM reads before there is a model, often in a process that loads none: logged here, once."""
    LEDGER.hit(one.patch, one.fix.id, seam, text)
    log.info(f"{one.name}: {text}", once=f"{one.name}: {text}")


def add_hint(error: BaseException, hint: str) -> None:
    """Adds *hint* to an exception of upstream's (a note from Python 3.11 on) and logs it once."""
    hint = log.safe(hint)
    if getattr(error, "_ascend_hotfix_hinted", False):
        return
    try:
        error._ascend_hotfix_hinted = True  # type: ignore[attr-defined]
    except AttributeError:
        return
    if hasattr(error, "add_note"):
        error.add_note(f"ascend-hotfix: {hint}")
    log.error(hint)
