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

__all__ = ["RAY", "WATCHED", "WATCHED_PACKAGES", "Finder", "check", "install", "watched"]

# Where vLLM decides which variables Ray's workers get. Watched when switched off, too: the workers must be told of that.
RAY = frozenset({"vllm.ray.ray_env", "vllm.v1.executor.ray_executor_v2"})

# Where a seam may live, in every release since 0.11. A module that a release lacks is never asked for.
WATCHED = frozenset(
    {
        "vllm.engine.arg_utils",
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
    return name in WATCHED or name.startswith(WATCHED_PACKAGES) or name in RAY


def _wanted(name: str) -> bool:
    """Is *name* watched, as the toggles are now?"""
    return watched(name) and (name in RAY or not toggles.switched_off())


class _Loader:
    """Stands in for the loader of a watched module until that module is executed.

    Every attribute is the real loader's, so a spec that is only looked at (``importlib.util.find_spec``, ``runpy``,
    ``pkgutil``) reads, compares by ``isinstance`` and pickles as if we were not there. It has ``exec_module`` where
    the real one has it, and ``load_module`` (loaders of before PEP 451) likewise.
    """

    def __init__(self, spec: "ModuleSpec", finder: "Finder") -> None:
        self._finder = finder
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
        self._finder.tell(self._name, sys.modules.get(self._name, module) if registered else module)

    def _load_module(self, load_module: "Callable[..., ModuleType]", name: tuple[str, ...]) -> "ModuleType":
        module = load_module(*name)
        self._give_back(module)
        self._finder.tell(self._name, module)
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
        self._asked: set[str] = set()
        self._told: dict[str, ModuleType] = {}
        # Watched modules that were imported, or on their way, before the finder was there.
        self._late: list[str] = []

    def find_spec(
        self, name: str, path: "Sequence[str] | None" = None, target: "ModuleType | None" = None
    ) -> "ModuleSpec | None":
        """The spec that the other finders give, with our loader in it; None for a module that nobody watches."""
        key = get_ident(), name
        if not watched(name) or key in self._asking:
            return None
        self._asked.add(name)
        if not _wanted(name):
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
        spec.loader = _Loader(spec, self)  # type: ignore[assignment]
        return spec

    def _ask(self, name: str, path: "Sequence[str] | None", target: "ModuleType | None") -> "ModuleSpec | None":
        for finder in list(sys.meta_path):
            find_spec = getattr(finder, "find_spec", None)
            if finder is not self and find_spec is not None:
                spec: ModuleSpec | None = find_spec(name, path, target)
                if spec is not None:
                    return spec
        return None

    def tell(self, name: str, module: "ModuleType") -> None:
        """Tells the seams of an executed module, and of those whose turn has come since."""
        if sys.modules.get(name) is module:  # not a private copy
            self._told[name] = module
        _on_import(name, module)
        if self._late:
            self._tell_late()

    def catch_up(self) -> None:
        """Tells the seams of the watched modules that they have not heard of, as far as these are complete."""
        self._late = [name for name in list(sys.modules) if _wanted(name) and self._unheard(name)]
        self._asked.update(self._late)
        self._tell_late()

    def _unheard(self, name: str) -> bool:
        module = sys.modules.get(name)
        return module is not None and self._told.get(name) is not module

    def _tell_late(self) -> None:
        for name in list(self._late):
            module = sys.modules.get(name)
            if getattr(getattr(module, "__spec__", None), "_initializing", False):
                continue  # half executed; its turn comes after the next watched import
            try:
                self._late.remove(name)
            except ValueError:
                continue  # another thread was faster
            if module is not None and self._unheard(name):
                self._told[name] = module
                _on_import(name, module)

    def come_first(self) -> None:
        """Back in front of the finders that were put there since; says so where modules were imported past us.

        Items are moved one by one: another thread that walks the list meets a finder twice rather than not at all.
        """
        place = sys.meta_path.index(self)
        before = [_named(one) for one in sys.meta_path[:place]]
        for index in range(place, 0, -1):
            sys.meta_path[index] = sys.meta_path[index - 1]
        sys.meta_path[0] = self
        passed = [name for name in list(sys.modules) if _wanted(name) and self._unheard(name)]
        passed = sorted(name for name in passed if name not in self._asked)
        if passed:
            _say_passed(passed, before)


def install() -> None:
    """Puts one :class:`Finder` in front of the meta path and tells the seams of what was imported before.

    Where a finder of ours is there already (of another copy of this package too), see :func:`check`.
    """
    if not check():
        sys.meta_path.insert(0, finder := Finder())
        finder.catch_up()


def check() -> bool:
    """Brings our finder to the front and tells the seams of what was imported past it. False where there is none."""
    ours: list[Any] = [finder for finder in sys.meta_path if _is_ours(finder)]
    if ours and hasattr(ours[0], "come_first"):  # an older copy of this package has none
        ours[0].come_first()
        ours[0].catch_up()
    return bool(ours)


def _is_ours(finder: object) -> bool:
    return type(finder).__name__ == "Finder" and type(finder).__module__ == __name__


def _named(finder: object) -> str:
    kind = finder if isinstance(finder, type) else type(finder)
    return f"{kind.__module__}.{kind.__qualname__}"


def _say_passed(passed: "list[str]", before: "list[str]") -> None:
    from ascend_hotfix.ledger import LEDGER

    more = f" and {len(passed) - 3} more" if len(passed) > 3 else ""
    text = (
        f"{', '.join(passed[:3])}{more} {'was' if len(passed) == 1 else 'were'} imported past our finder, which "
        f"{', '.join(before) or 'another finder'} had been put in front of in sys.meta_path. Armed now, and ours is in front again"
    )
    LEDGER.find(text)
    _warn(f"ascend-hotfix: {text}")


def _on_import(name: str, module: "ModuleType") -> None:
    """Calls the seams; a failure of ours never fails the user's import unless strict."""
    try:
        from ascend_hotfix import seams

        seams.on_import(name, module)
    except Exception as error:
        if toggles.strict():
            raise
        reason = f"{type(error).__name__}: {error}"
        _warn(
            f"ascend-hotfix could not hook {name} ({reason}); it works as upstream wrote it. "
            f"{toggles.STRICT}=1 turns this into an error with its traceback.",
            once=reason,
        )


_said: "set[str]" = set()


def _warn(text: str, *, once: str = "") -> None:
    import logging

    if (once or text) not in _said:
        _said.add(once or text)
        logging.getLogger("vllm.ascend_hotfix").warning(text)
