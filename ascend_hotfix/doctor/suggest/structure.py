"""Aligns what a model asks with what a checkpoint has, as a whole: tensors first, and the description by them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ascend_hotfix.doctor.findings import starred
from ascend_hotfix.doctor.rehearsal import Part
from ascend_hotfix.doctor.schemes import QUANTIZED_DTYPES, is_float
from ascend_hotfix.doctor.suggest.assign import Assignment, Template, assign, templates
from ascend_hotfix.doctor.suggest.lexicon import LEAVES
from ascend_hotfix.doctor.suggest.trees import Asked, Rows, Stored, Tree, asked_modules, may_be, stored_modules
from ascend_hotfix.names import Rule

__all__ = ["Aligned", "Way", "align_trees"]


@dataclass(frozen=True)
class Way:
    """Name templates that belong together: those of tensors to the model's, those asked to the description's."""

    weights: Mapping[str, str]
    lookup: Mapping[str, str]


@dataclass
class Aligned:
    """What is decided, and for each open group the ways to decide it; *leaves* are called otherwise, whatever the module.

    *veiled*: names of tensors whose rule must override, as no name looks closer; *shared*: modules of tensors that fill a module
    of the draft beside the target's, to that; *rows*: names of the model that are shards, to the fused layer and its shards.
    """

    decided: Way
    open: list[tuple[Way, ...]] = field(default_factory=list)
    leaves: dict[str, str] = field(default_factory=dict)
    veiled: set[str] = field(default_factory=set)
    shared: dict[str, str] = field(default_factory=dict)
    rows: dict[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)


def align_trees(
    parts: list[Part],
    tensors: Mapping[str, Any],
    names: Iterable[str],
    rows: Rows,
    renamed: Collection[Rule] = (),
) -> Aligned:
    """*names* are the tensors without a place; *renamed* the rules under which *parts* were seen."""
    tree = asked_modules(parts, rows, renamed)
    stored = stored_modules(tensors, names)
    there = templates({name: form for name, form in stored.items() if name not in tree.forms})
    found = _assigned(tree, stored, there)
    lookups = _Lookups(parts, tree, tensors)
    decided = _turned(found.pairs)
    result = Aligned(Way(decided, lookups.of(decided)))
    for group in found.open:
        ways = []
        for side in map(_turned, group.ways):
            told = lookups.of({**decided, **side})
            ways.append(Way(side, {a: t for a, t in told.items() if a not in result.decided.lookup}))
        result.open.append(tuple(ways))
    result.rows = {starred(name): row for name, row in tree.rows.items()}
    veiled = {starred(name) for name in tree.veiled}
    result.veiled = {t for t, a in decided.items() if a in veiled}
    for module, last in tree.shared.items():
        same = [t for t, a in decided.items() if a.rpartition(".")[2] == last and "*" not in a]
        if len(same) == 1:
            result.shared[same[0]] = module
    result.leaves = _leaves(tree, stored, decided)
    return result


def _leaves(tree: Tree, stored: Mapping[str, Stored], decided: Mapping[str, str]) -> dict[str, str]:
    """Leaves of another name, where their module is known and lacks just one of that meaning."""
    lacking: dict[str, set[str]] = {}
    for module, leaves in tree.lacking.items():
        lacking.setdefault(starred(module), set()).update(leaves)
    found: dict[str, set[str]] = {}
    for module, form in stored.items():
        shape = starred(module)
        wanted = lacking.get(decided.get(shape, shape), set())
        held = {leaf for leaf, _, _ in form.leaves}
        for leaf in held - wanted:
            same = next((one for one in LEAVES if leaf in one), frozenset())
            if len(same & held) == 1 and len(meant := same & wanted) == 1:
                found.setdefault(leaf, set()).update(meant)
    return {leaf: next(iter(meant)) for leaf, meant in sorted(found.items()) if len(meant) == 1}


def _turned(pairs: Mapping[str, str]) -> dict[str, str]:
    return {there: asked for asked, there in pairs.items()}


def _assigned(tree: Tree, stored: Mapping[str, Stored], there: Mapping[str, Template]) -> Assignment:
    """The assignment with fused layers as their shards, or as one where more then has a place."""

    def attempt(forms: Mapping[str, Asked]) -> tuple[tuple[int, int], Assignment]:
        asked = templates({name: form for name, form in forms.items() if name not in stored})
        found = assign(asked, there, may_be)
        _keep_called_alike(found, {starred(name) for name in tree.whole})
        placed = {t for group in found.open for way in group.ways for t in way.values()} | {*found.pairs.values()}
        filled = {a for group in found.open for way in group.ways for a in way} | {*found.pairs}
        return (len(there.keys() - placed) + len(asked.keys() - filled), len(found.open)), found

    forms = dict(tree.forms)
    for name, (_, shards) in tree.whole.items():
        if name in stored:
            for one in shards:
                forms.pop(one, None)
    best = attempt(forms)
    for shape in dict.fromkeys(starred(name) for name in tree.whole if name not in stored):
        if not best[0][0]:
            break
        changed = dict(forms)
        for name, (form, shards) in tree.whole.items():
            if starred(name) == shape:
                changed[name] = form
                for one in shards:
                    changed.pop(one, None)
        other = attempt(changed)
        if other[0] < best[0]:
            best, forms = other, changed
    return best[1]


def _keep_called_alike(found: Assignment, fused: Collection[str]) -> None:
    """Takes out fused layers that are called otherwise: in which order another code base fuses is not in the names."""
    for asked in [a for a, t in found.pairs.items() if a in fused and a.rpartition(".")[2] != t.rpartition(".")[2]]:
        del found.pairs[asked]
    found.open = [group for group in found.open if not any(a in fused for way in group.ways for a in way)]


# --- the description --------------------------------------------------------------------------------------------------


class _Lookups:
    """Which description name is meant by one that was asked in vain, where tensors are known."""

    def __init__(self, parts: Iterable[Part], tree: Tree, tensors: Mapping[str, Any]) -> None:
        self.tree = tree
        self.tensors = {name.rpartition(".")[0] for name in tensors}
        self.leaves: dict[str, set[str]] = {}
        for name in tensors:
            module, _, leaf = name.rpartition(".")
            self.leaves.setdefault(module, set()).add(leaf)
        self.weights = {m: tensors[f"{m}.weight"].dtype for m in self.leaves if f"{m}.weight" in tensors}
        self.described: dict[str, set[str]] = {}
        self.schemes: dict[str, str] = {}
        self.mapped: dict[str, list[str]] = {}
        for part in parts:
            for module, name in part.mapped.items():
                self.mapped.setdefault(module, []).append(name)
            for name, scheme in part.description.items():
                module, _, leaf = name.rpartition(".")
                if module:
                    self.described.setdefault(module, set()).add(leaf)
                    if leaf == "weight":
                        self.schemes[module] = scheme

    def of(self, pairs: Mapping[str, str]) -> dict[str, str]:
        """Asked name template -> that of the description, where *pairs* say which tensors are whose."""
        back = {new: old for old, new in pairs.items()}
        found: dict[str, str] = {}
        asked: dict[str, Any] = {}
        for module, name in self.tree.lookups.items():
            if name in self.schemes:
                continue
            tensor = self._tensor(module, back)
            if name in self.tree.silent and self.weights.get(tensor, "I8") not in QUANTIZED_DTYPES:
                continue
            for key in dict.fromkeys((*self.mapped.get(tensor, ()), tensor)):
                if key and key in self.schemes:
                    found.setdefault(starred(name), starred(key))
                    break
            else:
                asked[name] = self._form(tensor)
        asked = {name: form for name, form in asked.items() if starred(name) not in found}
        found.update(self._by_themselves(asked, set(found.values())))
        return found

    def _tensor(self, module: str, back: Mapping[str, str]) -> str:
        """The checkpoint's module for *module* of the model; empty where that is not known."""
        old = back.get(starred(module))
        if old is None:
            return module if module in self.tensors else ""
        numbers = iter(part for part in module.split(".") if part.isdigit())
        return ".".join(next(numbers, "*") if part == "*" else part for part in old.split("."))

    def _form(self, tensor: str) -> Any:
        """What the description must say of it, as far as its tensors tell."""
        if tensor not in self.weights:
            return None
        return frozenset(self.leaves[tensor]), self.weights[tensor] in QUANTIZED_DTYPES

    def _by_themselves(self, asked: Mapping[str, Any], taken: Collection[str]) -> dict[str, str]:
        """Names that the description has otherwise than the tensors: by leaves, schemes and what the names say."""
        if not asked:
            return {}
        tensors = {name for module in self.tensors for name in (module, *self.mapped.get(module, ()))}
        there = {
            name: (frozenset(self.described[name]), not is_float(scheme))
            for name, scheme in self.schemes.items()
            if starred(name) not in taken and name not in tensors
        }

        def fits(one: Any, other: Any, exactly: bool) -> bool:
            return one is None or (one[1] == other[1] and (not exactly or one[0] == other[0]))

        return assign(templates(asked), templates(there), fits).pairs
