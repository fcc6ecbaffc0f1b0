"""The params seam: the names by which a loader looks parameters up, in ``dict(self.named_parameters())``.

vLLM moved the parameters of fused experts below ``routed_experts`` (PR #41184 and #45054, between 0.23 and
0.24); a loader that still asks ``experts.w13_weight`` finds nothing. While ``load_weights`` runs, the model
lists its parameters under the old name as well; what load_weights reports is mapped back.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Any

from ascend_hotfix.catalog import Selection
from ascend_hotfix.ledger import LEDGER
from ascend_hotfix.scope import Scope

__all__ = ["Aliases"]


class _AlsoKnownAs(str):
    """An alias as a dict key: it notices when it is the key that a lookup meant.

    A plain string says nothing when ``params_dict[name]`` finds it. Equal strings have equal hashes, so a
    dict compares with us exactly when somebody asks for our name.
    """

    __slots__ = ("asked",)
    asked: bool

    def __eq__(self, other: object) -> bool:
        same = str.__eq__(self, other)
        if same is True and other is not self:
            self.asked = True
        return same

    __hash__ = str.__hash__


class Aliases:
    """Lists *model*'s parameters under their other names while it is entered."""

    def __init__(self, model: Any, current: Scope) -> None:
        self._model = model
        self._rules = list(current.renamers("params"))
        self._aliases: dict[str, tuple[_AlsoKnownAs, str, Selection]] = {}

    def __enter__(self) -> Aliases:
        if self._rules:
            self._aliases = self._collect()
        if self._aliases:
            self._model.named_parameters = self._named_parameters
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._model.__dict__.pop("named_parameters", None)
        for alias, name, one in self._aliases.values():
            if alias.asked:
                LEDGER.hit(one.patch, one.fix.id, "params", f"{alias!s} -> {name}")

    def _collect(self) -> dict[str, tuple[_AlsoKnownAs, str, Selection]]:
        """Every other name that the rules give and that no parameter has."""
        names = [name for name, _ in self._model.named_parameters()]
        taken, found = set(names), {}
        for one, renamer in self._rules:
            for name in names:
                for candidate in renamer.candidates(name):
                    if candidate.new not in taken:
                        alias = _AlsoKnownAs(candidate.new)
                        alias.asked = False
                        taken.add(candidate.new)
                        found[candidate.new] = (alias, name, one)
        return found

    def _named_parameters(self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True) -> Iterator[Any]:
        """As torch.nn.Module.named_parameters, the aliases after the parameters."""
        own = type(self._model).named_parameters
        parameters = dict(own(self._model, prefix, recurse, remove_duplicate))
        yield from parameters.items()
        head = prefix + "." if prefix else ""
        for alias, name, _ in self._aliases.values():
            if head + name in parameters and not prefix:
                yield alias, parameters[name]

    def map_back(self, loaded: Any) -> Any:
        """What load_weights reports, in the names that the parameters have."""
        if not self._aliases or not isinstance(loaded, set):
            return loaded
        return {self._aliases[name][1] if name in self._aliases else name for name in loaded}
