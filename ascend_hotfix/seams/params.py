"""The params seam: the names by which a loader looks parameters up, in ``dict(self.named_parameters())``.

vLLM moved the parameters of fused experts below ``routed_experts`` (PR #41184 and #45054, between 0.23 and
0.24); a loader that still asks ``experts.w13_weight`` finds nothing. While ``load_weights`` runs, the model
lists its parameters under the old name as well; what load_weights reports is mapped back. Some loaders compare
the names they wrote with all names they were given (``step3p5_mtp``, Inkling's MTP): when the weights are used
up, each parameter keeps only the name under which it was asked for.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from types import FrameType, TracebackType
from typing import Any

from ascend_hotfix.catalog import Selection
from ascend_hotfix.ledger import LEDGER
from ascend_hotfix.scope import Scope

__all__ = ["Aliases", "own_parameters"]


class _Name(str):
    """A parameter's name as a dict key: it notices when it is the key that a lookup meant.

    A plain string says nothing when ``params_dict[name]`` finds it. Equal strings have equal hashes, so a
    dict compares with us exactly when somebody asks for our name.
    """

    __slots__ = ("asked",)
    asked: bool

    def __new__(cls, text: str) -> _Name:
        name = super().__new__(cls, text)
        name.asked = False
        return name

    def __eq__(self, other: object) -> bool:
        same = str.__eq__(self, other)
        if same is True and other is not self:
            self.asked = True
        return same

    __hash__ = str.__hash__


def own_parameters(model: Any) -> dict[str, Any]:
    """*model*'s parameters under their own names. Aliases are for upstream: a lookup of ours must not count as its."""
    return dict(type(model).named_parameters(model, remove_duplicate=False))


class Aliases:
    """Lists *model*'s parameters under their other names while it is entered."""

    def __init__(self, model: Any, current: Scope) -> None:
        self._model = model
        self._rules = list(current.renamers("params"))
        self._aliases: dict[str, tuple[_Name, _Name, Selection]] = {}

    def __enter__(self) -> Aliases:
        # a loader that calls the one of its base class is aliased already
        if self._rules and "named_parameters" not in vars(self._model):
            self._aliases = self._collect()
        if self._aliases:
            self._model.named_parameters = self._named_parameters
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._aliases:
            self._model.__dict__.pop("named_parameters", None)
        for alias, name, one in self._aliases.values():
            if alias.asked:
                LEDGER.hit(one.patch, one.fix.id, "params", f"{alias!s} -> {name!s}")

    def __bool__(self) -> bool:
        return bool(self._aliases)

    def _collect(self) -> dict[str, tuple[_Name, _Name, Selection]]:
        """Every other name that the rules give and that no parameter has."""
        names = {name: _Name(name) for name, _ in self._model.named_parameters()}
        found: dict[str, tuple[_Name, _Name, Selection]] = {}
        for one, renamer in self._rules:
            for name, own in names.items():
                for candidate in renamer.candidates(name):
                    if candidate.new not in names and candidate.new not in found:
                        found[candidate.new] = (_Name(candidate.new), own, one)
        return found

    def _named_parameters(self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True) -> Iterator[Any]:
        """As torch.nn.Module.named_parameters, the aliases after the parameters."""
        parameters = dict(type(self._model).named_parameters(self._model, prefix, recurse, remove_duplicate))
        if prefix:
            yield from parameters.items()
            return
        names = {str(name): name for _, name, _ in self._aliases.values()}
        for name, parameter in parameters.items():
            yield names.get(name, name), parameter
        for alias, name, _ in self._aliases.values():
            if str(name) in parameters:
                yield alias, parameters[str(name)]

    def until_used_up(self, weights: Iterable[Any]) -> Iterator[Any]:
        """*weights*; after the last one each parameter has one name again in the dicts of the waiting loader."""
        yield from weights
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and not (frame.f_code is Aliases.guard.__code__ and frame.f_locals.get("self") is self):
            for value in list(frame.f_locals.values()):
                if type(value) is dict:
                    self._settle(value)
            frame = frame.f_back

    def guard(self, call: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Calls ``load_weights`` with its weights watched; the walk of :meth:`until_used_up` ends here."""
        if self._aliases and "weights" in kwargs:
            kwargs = {**kwargs, "weights": self.until_used_up(_pairs(kwargs["weights"]))}
        elif self._aliases and args:
            args = (self.until_used_up(_pairs(args[0])), *args[1:])
        return call(*args, **kwargs)

    def _settle(self, parameters: dict[Any, Any]) -> None:
        """Takes from *parameters* the name under which nobody asked."""
        if not any(type(key) is _Name for key in parameters):
            return
        asked = {str(name) for alias, name, _ in self._aliases.values() if alias.asked}
        for alias, name, _ in self._aliases.values():
            if not alias.asked:
                parameters.pop(alias, None)
            if str(name) in asked and not name.asked:
                parameters.pop(name, None)

    def map_back(self, loaded: Any) -> Any:
        """What load_weights reports, in the names that the parameters have."""
        if not self._aliases or not isinstance(loaded, set):
            return loaded
        return {str(self._aliases[name][1]) if name in self._aliases else str(name) for name in loaded}


def _pairs(weights: Any) -> Iterable[Any]:
    return weights.items() if isinstance(weights, Mapping) else weights
