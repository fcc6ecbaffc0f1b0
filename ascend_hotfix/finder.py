"""A small meta-path finder that tells the seams when a module they watch has been executed.

It is installed in every interpreter, so it imports only the toggles. ``ascend_hotfix.seams`` (and wrapt with it) is
imported when the first watched module has been executed, not earlier. The module keeps its own loader: ours stands
in for it from ``find_spec`` to the execution and then gives the place back.
"""

import sys
from _thread import get_ident

from ascend_hotfix import toggles

TYPE_CHECKING = False  # typing is not imported at interpreter start
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

__all__ = ["WATCHED", "WATCHED_PACKAGES", "Finder", "install", "watched"]

# Where a seam may live, in every release since 0.11. A module that a release lacks is never asked for.
WATCHED = frozenset(
    {
        "vllm.engine.arg_utils",
        "vllm.envs",
        "vllm.model_executor.model_loader.utils",
        "vllm.model_executor.model_loader.weight_utils",
        "vllm.model_executor.models.utils",
        "vllm.transformers_utils.config",
        "vllm_ascend._310p.quantization.modelslim_config",
        "vllm_ascend.quantization.configs.modelslim_config",
        "vllm_ascend.quantization.modelslim_config",
        "vllm_ascend.quantization.quant_config",
        "vllm_ascend.quantization.utils",
    }
)
# Everything below these packages.
WATCHED_PACKAGES = ("vllm.model_executor.models.", "vllm.models.", "vllm_ascend.models.", "vllm_ascend.patch.")


def watched(name: str) -> bool:
    """Is *name* a module whose execution the seams want to hear of?"""
    return name in WATCHED or name.startswith(WATCHED_PACKAGES)


class _Loader:
    """Stands in for the loader of a watched module until that module is executed.

    Every attribute is the real loader's, so a spec that is only looked at (``importlib.util.find_spec``, ``runpy``,
    ``pkgutil``) reads, compares by ``isinstance`` and pickles as if we were not there. It has ``exec_module`` where
    the real one has it, and ``load_module`` (loaders of before PEP 451) likewise.
    """

    def __init__(self, spec: "ModuleSpec") -> None:
        self._name = spec.name
        self._spec = spec
        self._loader: Any = spec.loader

    @property  # type: ignore[misc]
    def __class__(self) -> "type[Any]":
        return type(self._loader)

    def __reduce_ex__(self, protocol: "Any") -> "Any":
        return _itself, (self._loader,)

    def __getattr__(self, attribute: str) -> "Any":
        value = getattr(self._loader, attribute)
        if attribute == "exec_module":
            return lambda module: self._exec_module(value, module)
        if attribute == "load_module":
            return lambda *name: self._load_module(value, name)
        return value

    def _exec_module(self, exec_module: "Callable[[ModuleType], object]", module: "ModuleType") -> None:
        self._give_back(module)
        registered = sys.modules.get(self._name) is module
        exec_module(module)
        # A module may put another object in its place while it runs.
        _tell(self._name, sys.modules.get(self._name, module) if registered else module)

    def _load_module(self, load_module: "Callable[..., ModuleType]", name: tuple[str, ...]) -> "ModuleType":
        module = load_module(*name)
        self._give_back(module)
        _tell(self._name, module)
        return module

    def _give_back(self, module: "ModuleType") -> None:
        for spec in (self._spec, getattr(module, "__spec__", None)):
            if spec is not None and spec.loader is self:
                spec.loader = self._loader
        if getattr(module, "__loader__", None) is self:
            module.__loader__ = self._loader


def _itself(loader: "Any") -> "Any":
    return loader


class Finder:
    """Asks the other finders for a watched module and puts our loader before theirs. Finds nothing itself."""

    def __init__(self) -> None:
        # A finder behind us may ask the whole meta path again (wrapt's does); then we must not answer twice.
        self._asking: set[tuple[int, str]] = set()

    def find_spec(
        self, name: str, path: "Sequence[str] | None" = None, target: "ModuleType | None" = None
    ) -> "ModuleSpec | None":
        """The spec that the other finders give, with our loader in it; None for a module that nobody watches."""
        key = get_ident(), name
        if not watched(name) or key in self._asking or toggles.switched_off():
            return None
        self._asking.add(key)
        try:
            spec = self._ask(name, path, target)
        finally:
            self._asking.discard(key)
        if spec is None or spec.loader is None:
            return spec
        if target is None and getattr(sys.modules.get(name), "__spec__", None) is spec:
            return spec  # a finder has imported the module already, and we have been told
        spec.loader = _Loader(spec)  # type: ignore[assignment]
        return spec

    def _ask(self, name: str, path: "Sequence[str] | None", target: "ModuleType | None") -> "ModuleSpec | None":
        for finder in list(sys.meta_path):
            find_spec = getattr(finder, "find_spec", None)
            if finder is not self and find_spec is not None:
                spec: ModuleSpec | None = find_spec(name, path, target)
                if spec is not None:
                    return spec
        return None


def install() -> None:
    """Puts one :class:`Finder` in front of the meta path and tells the seams of what was imported before.

    Where a finder of ours is there already (of another copy of this package too), nothing happens.
    """
    if any(type(finder).__name__ == "Finder" and type(finder).__module__ == __name__ for finder in sys.meta_path):
        return
    sys.meta_path.insert(0, Finder())
    _late.extend(name for name in list(sys.modules) if watched(name))
    _tell_late()


# Watched modules that were imported, or on their way, before the finder was there.
_late: "list[str]" = []
_said: "set[str]" = set()


def _tell_late() -> None:
    for name in list(_late):
        module = sys.modules.get(name)
        if getattr(getattr(module, "__spec__", None), "_initializing", False):
            continue  # half executed; its turn comes after the next watched import
        try:
            _late.remove(name)
        except ValueError:
            continue  # another thread was faster
        if module is not None:
            _on_import(name, module)


def _tell(name: str, module: "ModuleType") -> None:
    _on_import(name, module)
    if _late:
        _tell_late()


def _on_import(name: str, module: "ModuleType") -> None:
    """Calls the seams; a failure of ours never fails the user's import unless strict."""
    try:
        from ascend_hotfix import seams

        seams.on_import(name, module)
    except Exception as error:
        if toggles.strict():
            raise
        _warn(name, error)


def _warn(name: str, error: Exception) -> None:
    import logging

    reason = f"{type(error).__name__}: {error}"
    if reason not in _said:
        _said.add(reason)
        logging.getLogger("vllm.ascend_hotfix").warning(
            "ascend-hotfix could not hook %s (%s); it works as upstream wrote it. "
            "%s=1 turns this into an error with its traceback.",
            name,
            reason,
            toggles.STRICT,
        )
