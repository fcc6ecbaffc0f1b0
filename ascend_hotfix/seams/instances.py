"""What is known of each built model for as long as it lives: what was written, what we filled, when a load is complete.

vLLM's own loader gives a new model all tensors in one call of ``load_weights``. A live model is written again:
trainers push buckets, ``reload_weights`` comes with layers restored (``model_loader/reload``), sleep at level 2 throws the
memory away. So nothing is concluded from a call alone:

- A ``Fill`` is what a parameter starts with: it is set when the model is built, before its first load, and where upstream has
  overwritten memory that no tensor fills (dummy weights, a layerwise reload, waking up). A tensor that comes later simply
  overwrites it, and it is never filled again.
- What is incomplete is told once, when a load is complete: before ``process_weights_after_loading`` or the
  end of a layerwise reload. Until then it is kept in the ledger as what holds so far.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from weakref import WeakKeyDictionary, WeakSet, ref

from ascend_hotfix import log
from ascend_hotfix.catalog import Selection
from ascend_hotfix.ledger import LEDGER, Build
from ascend_hotfix.names import matches
from ascend_hotfix.scope import Scope, from_path
from ascend_hotfix.seams import hooking
from ascend_hotfix.seams.spare import plain, twins_of
from ascend_hotfix.seams.watch import Watch

__all__ = ["Instance", "arm", "known", "remember"]

LOADER = "vllm.model_executor.model_loader."
LAYERWISE = f"{LOADER}reload.layerwise"
WORKERS = ("vllm_ascend.worker.worker", "vllm_ascend.worker.worker_v1", "vllm.v1.worker.gpu_worker")

_INSTANCES: WeakKeyDictionary[Any, Instance] = WeakKeyDictionary()
_LIVE: WeakSet[Any] = WeakSet()


class Instance:
    """One built model.

    ``live``: it has been processed into what the kernels take, so its parameters are no longer those that a loader fills.
    ``reloading``: between the two ends of a layerwise reload, when they are again. ``filled``: parameters that hold the value of
    a ``Fill`` and that nothing has written since.
    """

    def __init__(self, model: Any, scope: Scope, build: Build, *, draft: bool = False, whole: bool = True) -> None:
        self._model = ref(model)
        self._name = type(model).__name__
        self.scope, self.build = scope, build
        self.watch: Watch | None = None
        """Holds the model, so it is there while that is being loaded only."""
        self.written: set[str] = set()
        self.filled: dict[str, tuple[Selection, Any]] = {}
        self.live = self.reloading = self.loaded = self.judged = False
        self.places: Any = None
        self._draft, self._whole, self._twins = draft, whole, twins_of(model)
        self._counted: set[str] = set()
        self._direct = True
        self._reported = True
        self._told: list[str] = []

    @property
    def changed(self) -> bool:
        """Does the model have other parameters than those that a loader fills?"""
        return self.live and not self.reloading

    # --- fills ----------------------------------------------------------------------------------------------------

    def fill(self) -> None:
        """Gives every parameter of which a ``Fill`` speaks its value, as if it had been built so."""
        model, fills = self._model(), list(self.scope.records("fill"))
        if model is None or not fills:
            return
        for name, parameter in type(model).named_parameters(model):
            found = next((held for held in fills if matches(held[1].pattern, name)), None)
            if found is not None and not self._is_written(name):
                parameter.data.fill_(found[1].value)
                self.filled[name] = found[0], found[1].value

    def _is_written(self, name: str) -> bool:
        return any(plain(one) in self.written for one in self._twins.get(name, (name,)))

    def refill(self) -> None:
        """Gives the parameters that hold our value that value again: upstream has overwritten or discarded their memory."""
        model = self._model()
        if model is None or not self.filled:
            return
        for name, parameter in type(model).named_parameters(model):
            if name in self.filled:
                parameter.data.fill_(self.filled[name][1])

    def begin_load(self) -> None:
        """Before a call of ``load_weights``."""
        if not self.loaded and not self.live:
            self.fill()
        if self.watch is None and not self.changed:
            self.watch = Watch(self._model(), draft=self._draft, twins=self._twins)
        self.loaded = True

    def landed(self, names: Iterable[str], *, reported: bool = True) -> None:
        """One call of ``load_weights`` has written parameters *names*. Not *reported*: these are what we saw, there may be more."""
        self._reported = self._reported and reported
        self.written.update(map(plain, names))
        for name in [name for name in self.filled if self._is_written(name)]:
            one, value = self.filled.pop(name)
            if name in self._counted:
                self._counted.discard(name)
                LEDGER.take_back(one.patch, one.fix.id, "fill", _said(name, value))
        for name in self.filled.keys() - self._counted:
            one, value = self.filled[name]
            self._counted.add(name)
            LEDGER.hit(one.patch, one.fix.id, "fill", _said(name, value))

    # --- what is told -----------------------------------------------------------------------------------------------

    def so_far(self) -> None:
        """Keeps in the ledger what is incomplete by now; it may yet come."""
        if self.judged or self.live:
            return
        self._withdraw()
        self._told = [message for message in self._findings() if LEDGER.find(message)]

    def _withdraw(self) -> None:
        for message in self._told:
            if message in LEDGER.findings:
                LEDGER.findings.remove(message)
        self._told = []

    def _findings(self) -> Iterator[str]:
        if self.watch is None:
            return
        yield from self.watch.misfits()
        if not self.judged:
            yield from self.watch.gaps(self.written.union(map(plain, self.filled)) if self._reported else None)

    def complete(self) -> None:
        """A load is complete: says what was done and what is wrong. What was never written is said once."""
        if not self.loaded or self.changed or (self.judged and not self.reloading):
            return
        self._withdraw()
        found = list(self._findings())
        unused = [] if self.judged else LEDGER.settle(self.build)
        self.judged = True
        log.info(f"{self._name} loaded: {LEDGER.summary(self.build)}")
        log.write_ledger()
        found += [
            f"{entry.patch}.{entry.fix}: its {entry.seam} rules matched nothing in {self._name}; "
            f"'ascend-hotfix doctor MODEL_DIR' shows which names there are"
            for entry in unused
            if self._whole and from_path(entry.patch)
        ]
        try:
            for message in found:
                log.finding(message)
        finally:
            log.write_ledger()

    # --- ends -----------------------------------------------------------------------------------------------------

    def dummy(self) -> None:
        """vLLM has put random numbers into the model, as ``--load-format dummy`` asks."""
        self._direct = False
        self.refill()

    def processed(self) -> None:
        """The weights are in the form that the kernels take."""
        if not self.live and not self.loaded and self._direct:
            self.filled.clear()  # a loader of another kind has written the parameters; it alone knows which
        self.live, self.places, self.watch = True, None, None

    def start_reload(self) -> None:
        """The layers are as they were built again, on the meta device."""
        self.reloading, self.places = True, None

    def complete_reload(self) -> None:
        """vLLM 0.23 and later call this end for a first load too, where layers are quantized as they are loaded."""
        if self.reloading:
            self.complete()

    def end_reload(self) -> None:
        """What the layers hold has been copied to where it was before; what no tensor has filled is what memory held."""
        if self.reloading:
            self.reloading, self.places, self.watch = False, None, None
        self.refill()


def _said(name: str, value: Any) -> str:
    return f"{name} = {value}"


def remember(model: Any, instance: Instance) -> None:
    """Keeps *instance* for as long as *model* lives. A part of a live model, asked for itself, is live."""
    instance.live = any(model is one for whole in list(_LIVE) for one in _modules(whole))
    _INSTANCES[model] = instance


def known(model: Any) -> Instance | None:
    """What is known of *model*."""
    return _INSTANCES.get(model)


# --- where upstream says that something has come to its end --------------------------------------------------------------


def arm() -> None:
    """Wraps the functions at whose end a load is complete or memory is lost, where the release has them.

    Done whenever a model is built: vllm-ascend 0.23 puts a ``process_weights_after_loading`` of its own in the place of vLLM's.
    """
    for name, attribute, wrapper in (
        (f"{LOADER}utils", "process_weights_after_loading", _processing),
        (f"{LOADER}weight_utils", "initialize_dummy_weights", _dummy),
        (LAYERWISE, "initialize_layerwise_reload", _reload_starts),
        (LAYERWISE, "finalize_layerwise_reload", _reload_ends),
        (LAYERWISE, "finalize_layerwise_processing", _reload_ends),
    ):
        module = sys.modules.get(name)
        original = getattr(module, attribute, None)
        if original is not None and hooking.wrap(module, attribute, wrapper):
            hooking.replace_everywhere(original, getattr(module, attribute), attribute)
    for name in WORKERS:
        for value in list(vars(sys.modules.get(name, object)).values()):
            if isinstance(value, type) and value.__module__ == name and {"sleep", "wake_up"} <= vars(value).keys():
                hooking.wrap(value, "sleep", _sleeping)
                hooking.wrap(value, "wake_up", _waking)


def _modules(model: Any) -> Iterable[Any]:
    modules = getattr(model, "modules", None)
    return modules() if callable(modules) else (model,)


def _each(what: str, act: Callable[[Instance], None], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Lets *act* see the instances of the model that a function was given, and of the models inside it."""
    try:
        for module in _modules(args[0] if args else kwargs.get("model")):
            instance = _INSTANCES.get(module)
            if instance is not None:
                with LEDGER.counting(instance.build):
                    act(instance)
    except Exception as error:
        log.contained(what, error)


def _processing(wrapped: Any, _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    _each("judging a load", Instance.complete, args, kwargs)
    result = wrapped(*args, **kwargs)
    _each("noting the end of a load", Instance.processed, args, kwargs)
    with contextlib.suppress(TypeError):  # no model is given, or one of another kind
        _LIVE.add(args[0] if args else kwargs.get("model"))
    return result


def _dummy(wrapped: Any, _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    result = wrapped(*args, **kwargs)
    _each("filling after dummy weights", Instance.dummy, args, kwargs)
    return result


def _reload_starts(wrapped: Any, _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    result = wrapped(*args, **kwargs)
    _each("preparing for a reload", Instance.start_reload, args, kwargs)
    return result


def _reload_ends(wrapped: Any, _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    _each("judging a reload", Instance.complete_reload, args, kwargs)
    result = wrapped(*args, **kwargs)
    _each("filling after a reload", Instance.end_reload, args, kwargs)
    return result


class _Sleep:
    """Has a worker of this process thrown the weights away?"""

    lost = False


def _sleeping(wrapped: Any, _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    result = wrapped(*args, **kwargs)
    level = args[0] if args else kwargs.get("level", 1)
    _Sleep.lost = _Sleep.lost or level != 1  # level 1 keeps a copy of the weights
    return result


def _waking(wrapped: Any, _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    result = wrapped(*args, **kwargs)
    tags = args[0] if args else kwargs.get("tags")
    if _Sleep.lost and (tags is None or "weights" in tags):  # what is asleep must not be written
        _Sleep.lost = False
        for model in list(_INSTANCES):
            _each("filling after sleep", Instance.refill, (model,), {})
    return result
