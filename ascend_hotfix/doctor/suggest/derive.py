"""From what a dry run missed to rules: as few as explain all misses, each general and anchored; the rest are questions.

Rules come from names that are asked and names that are there (:mod:`ascend_hotfix.doctor.suggest.words`); rows of fused modules
from the shards that the description has; schemes for names the description lacks from the dtype of the tensors; other
names of parameters from those that a loader asks in vain. What this leaves open is a :class:`Question`: the records of
which one may be right, for the user to choose. Nothing is guessed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

from ascend_hotfix.doctor.findings import pattern, starred
from ascend_hotfix.doctor.judge import Evidence, examine, row_for
from ascend_hotfix.doctor.rehearsal import Part, fused_rows
from ascend_hotfix.doctor.suggest.places import (
    EXPERT_NAMES,
    Whereabouts,
    any_expert,
    expert_rules,
    of_tensors,
    wanted,
    whereabouts,
)
from ascend_hotfix.doctor.suggest.proposal import Answer, Proposal, Question
from ascend_hotfix.doctor.suggest.rules import renames
from ascend_hotfix.doctor.suggest.structure import Aligned, Way, align_trees
from ascend_hotfix.doctor.suggest.words import Alignment, Choice, align, likeness
from ascend_hotfix.names import Exact, Prefix, Rule, Segments, Suffix
from ascend_hotfix.records import Config, Dequantize, Drop, Fill, Packed, Scheme, Unnamed
from ascend_hotfix.renamer import Renamer
from ascend_hotfix.words import counted

if TYPE_CHECKING:
    from ascend_hotfix.doctor.rehearse import Rehearsal

__all__ = ["derive"]

FUSED_OF = {
    **dict.fromkeys(("q_proj", "k_proj", "v_proj"), ("qkv_proj", "qkv", "query_key_value")),
    **dict.fromkeys(("q", "k", "v"), ("qkv", "qkv_proj")),
    **dict.fromkeys(("gate_proj", "up_proj"), ("gate_up_proj",)),
}
"""One description entry that stands for several shards."""
FLOAT_DTYPES = ("BF16", "F16", "F32")
MOVED_EXPERTS = (
    Segments("experts.routed_experts", "experts"),
    Segments("experts", "experts.routed_experts"),
)
"""Where vLLM keeps the parameters of fused experts, up to 0.23 and from 0.24 on: a loader may ask the other name."""
MOST_ANSWERS = 4
MOST_WAYS = 6
"""Of what is told apart by nothing: the ways of three modules are six."""


def derive(rehearsal: Rehearsal, before: Proposal | None = None) -> Proposal:
    """The rules that explain what the parts of *rehearsal* missed, which had the rules of *before* armed."""
    tensors, drafted = rehearsal.checkpoint.tensors, rehearsal.drafted
    if len(rehearsal.parts) == 1:  # no draft takes what the target refuses
        drafted = drafted - {one.tensor for part in rehearsal.parts for one in part.refused}
    result, unfilled, misdescribed = Proposal(), list[str](), dict[str, tuple[str, ...]]()
    landed = {part.role: set(part.landed) for part in rehearsal.parts}
    seen_by = []
    for part in rehearsal.parts:
        others = {t for role, held in landed.items() if role != part.role for t in held}
        seen_by.append((part, others, examine(part, tensors, drafted, others)[1]))
    homeless = dict.fromkeys(t for _, others, seen in seen_by for t in seen.homeless if t not in others)
    trees = _Trees(rehearsal.parts, tensors, homeless, [*before.weights, *before.override] if before else [])
    result.merge(trees.proposal())
    for part, others, seen in seen_by:
        misdescribed |= seen.misdescribed
        result.merge(_description_rules(part, seen, tensors, trees))
        # What a rule of the target's moves is looked at again in the dry run with the patch.
        moved = {t for t in seen.homeless if any(rule.apply(t) != t for rule in result.weights)}
        whole = _for_every_tensor(before, seen.homeless, tensors)
        result.override += [rule for rule in whole if rule not in result.override]
        moved |= {t for t in seen.homeless if any(rule.apply(t) != t for rule in whole)}
        moved |= {t for t in seen.homeless if trees.tells(t)}
        result.merge(_weight_rules(part, seen, tensors, {*others, *moved}, _taken(part, before)))
        result.merge(Proposal(tensors=_dequantized(part, tensors)))
        unfilled += [] if seen.homeless else _biases(part, seen)  # a tensor without a place may be it
    result.questions += _fill_questions(unfilled)
    for part, _, seen in seen_by:
        if not seen.homeless:  # a tensor without a place may be the head
            result.questions += _tied_head(part, rehearsal.checkpoint.config)
    described = [name.removesuffix(".weight") for part in rehearsal.parts[:1] for name in part.description]
    result.merge(_corrections(misdescribed, described))
    return result


class _Trees:
    """What the structure of both trees tells, as records and questions; and what it leaves to the words."""

    def __init__(
        self, parts: list[Part], tensors: Mapping[str, Any], homeless: Collection[str], renamed: Collection[Rule]
    ) -> None:
        built = [part for part in parts if part.model_class]
        self.aligned: Aligned = align_trees(built, tensors, homeless, fused_rows(), renamed)
        decided = self.aligned.decided
        self.lookup = renames(decided.lookup, whole=True)
        self.override, rest = _at_home(decided.weights)
        if not any(part.experts for part in parts):  # which convention the loader takes is not known
            self.override = []
        passed = _passed_over(rest, renamed)
        rows = [self.aligned.rows[rest[old]] for old in passed if rest[old] in self.aligned.rows]
        self.packed = [Packed(*row) for row in dict.fromkeys(rows)]
        unseen = self.aligned.veiled | {old for old in passed if rest[old] not in self.aligned.rows}
        veiled = {old: rest.pop(old) for old in unseen if old in rest}
        self.override += _veiled(veiled, decided.weights, parts)
        self.leaves: list[Rule] = [Suffix(old, new) for old, new in self.aligned.leaves.items()]
        self._there = {starred(name.rpartition(".")[0]) for name in homeless}
        # of a draft's loader: tried alone, where all rules together lead to the target's
        shared = [Prefix(old, new) for old, new in self.aligned.shared.items() if decided.weights.get(old) != new]
        self.weights = [*renames(rest, self._there - decided.weights.keys()), *self.leaves, *shared]
        self._modules = {*decided.weights, *(t for ways in self.aligned.open for way in ways for t in way.weights)}
        self._asked = {*decided.lookup, *(a for ways in self.aligned.open for way in ways for a in way.lookup)}

    def proposal(self) -> Proposal:
        """The rules that are decided, and a question for each group that is not."""
        questions = [one for ways in self.aligned.open for one in self._questions(ways)]
        held = list(self.override)
        lookup, weights, packed = list(self.lookup), list(self.weights), list(self.packed)
        return Proposal(lookup=lookup, weights=weights, packed=packed, override=held, questions=questions)

    def tells(self, tensor: str) -> bool:
        """Is something decided or asked about the module of *tensor*?"""
        module, _, leaf = tensor.rpartition(".")
        return starred(module) in self._modules or leaf in self.aligned.leaves

    def tells_asked(self, name: str) -> bool:
        """Is something decided or asked about the description name *name*?"""
        return starred(name) in self._asked

    def _questions(self, ways: tuple[Way, ...]) -> list[Question]:
        """Modules of one form: which is which? One question, whatever number of layers it is about; of many, one for each."""
        names = list(dict.fromkeys(old for way in ways for old in way.weights))
        untold = "neither structure nor a naming convention tells"
        if len(ways) <= MOST_WAYS:
            asked = sorted({new for way in ways for new in way.weights.values()})
            what = f"{', '.join(names)} have the form that {', '.join(asked)} ask for, and {untold} which is which"
            return [Question(what, tuple(map(_answer, ways)))]
        questions = []
        for old in names:
            each = {way.weights[old]: _alone(way, old) for way in ways if old in way.weights}
            answers = tuple(_answer(way) for _, way in sorted(each.items()))
            questions.append(Question(f"{old} has the form that several ask for, and {untold} which it is", answers))
        return questions


def _alone(way: Way, old: str) -> Way:
    """What *way* says of *old*."""
    new = way.weights[old]
    end = "." + new.rpartition(".")[2]
    return Way({old: new}, {a: t for a, t in way.lookup.items() if a.endswith(end)})


def _answer(way: Way) -> Answer:
    override, rest = _at_home(way.weights)
    fields: list[tuple[str, tuple[Any, ...]]] = [
        ("weights", tuple(renames(rest))),
        ("override", tuple(override)),
        ("lookup", tuple(renames(way.lookup, whole=True))),
    ]
    note = ", ".join(f"{_shortened(old)} is {_shortened(new)}" for old, new in sorted(way.weights.items()))
    return Answer(tuple((name, records) for name, records in fields if records), note)


def _at_home(pairs: Mapping[str, str]) -> tuple[list[Rule], dict[str, str]]:
    """Rules for experts whose names look right to the seam, as either convention would do; and the pairs without them."""
    both, rules, rest = {name for names in EXPERT_NAMES for name in names}, list[Rule](), {}
    for old, new in pairs.items():
        (one, _, last), (other, _, to) = old.rpartition("."), new.rpartition(".")
        if one == other and one.endswith(".experts.*") and last != to and {last, to} <= both:
            rule = Segments(f"experts.*.{last}", f"experts.*.{to}")
            rules += [] if rule in rules else [rule]
        else:
            rest[old] = new
    return rules, rest


def _passed_over(pairs: Mapping[str, str], armed: Collection[Rule]) -> list[str]:
    """Those of *pairs* that the rules *armed* give already, and that moved no tensor: the new name looked no closer."""
    renamer = Renamer(tuple(armed))
    return [old for old, new in pairs.items() if renamer.look(old.replace("*", "7")).new == new.replace("*", "7")]


def _veiled(pairs: Mapping[str, str], decided: Mapping[str, str], parts: Iterable[Part]) -> list[Rule]:
    """Rules that act whatever a name looks like: few where they do no harm to any other name, else one for each pair."""
    rules = renames(pairs)
    renamer = Renamer(tuple(rules))
    names = {starred(name.rpartition(".")[0]) for part in parts for name in part.landed}
    others = {**{name: name for name in names}, **decided}
    numbered = {old.replace("*", "7"): new.replace("*", "7") for old, new in others.items()}
    if all(renamer.look(old).new in (old, new) for old, new in numbered.items()):
        return rules
    return [Prefix(old, new) for old, new in sorted(pairs.items())]


def _shortened(name: str) -> str:
    return ".".join(name.split(".")[-2:])


def _taken(part: Part, before: Proposal | None) -> set[str]:
    """The names under which tensors have landed that the rules of *before* rename."""
    rules = [*before.weights, *before.override] if before else []
    return {new for name in part.landed for rule in rules if (new := rule.apply(name)) != name}


def _for_every_tensor(before: Proposal | None, homeless: Iterable[str], tensors: Iterable[str]) -> list[Rule]:
    """Rules of *before* that a tensor still waits for: what every name begins with is a wrapper, whatever is in it.

    A rule acts where it brings a name closer to a parameter. A loader may take a name that is none (QuaRot's ``rot``).
    """
    rules = [rule for rule in (before.weights if before else ()) if isinstance(rule, Prefix) and not rule.new]
    rules = [rule for rule in rules if any(rule.apply(name) != name for name in homeless)]
    return [rule for rule in rules if all(rule.apply(name) != name for name in tensors)]


# --- the description --------------------------------------------------------------------------------------------------


def _corrections(misdescribed: Mapping[str, tuple[str, ...]], described: Iterable[str]) -> Proposal:
    """Schemes in place of those that the tensors contradict; where they may be of several, a question for all of them."""
    alike: dict[str, set[str]] = {}
    for name in described:
        alike.setdefault(starred(name), set()).add(any_expert(name))
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, schemes in misdescribed.items():
        groups.setdefault(schemes, []).append(name)
    result = Proposal()
    for schemes, names in groups.items():
        # a pattern for all layers only where all of them are wrong
        shapes = dict.fromkeys(starred(name) if alike.get(starred(name), set()) <= {*names} else name for name in names)
        records = [tuple(Scheme(shape, scheme) for shape in shapes) for scheme in schemes]
        if len(schemes) == 1:
            result.retyped += records[0]
            continue
        what = (
            f"{counted(len(names), 'layer')} such as {names[0]} may be of {' or '.join(schemes)}, which store the same"
        )
        answers = [Answer.of("retyped", held, f"{names[0]} is {held[0].scheme}") for held in records[:MOST_ANSWERS]]
        result.questions.append(Question(what, tuple(answers)))
    return result


def _of_choice(choice: Choice, field: str, what: str) -> Question:
    """Several rules explain the same names with as much evidence."""
    first, count = choice.names[0], len(choice.names)
    answers = tuple(
        Answer.of(field, (rule,), f"{first} -> {rule.apply(first)}") for rule in choice.rules[:MOST_ANSWERS]
    )
    return Question(f"{count} {what}, such as {first}, fit more than one name", answers)


def _description_rules(part: Part, seen: Evidence, tensors: Mapping[str, Any], trees: _Trees) -> Proposal:
    left = _by_words(part, seen, trees)
    result = Proposal(lookup=list(left.rules))
    result.questions = [_of_choice(one, "lookup", "names asked of the description") for one in left.choices]
    result.packed = [Packed(fused, shards) for fused, shards in seen.rows.items()]
    rows, modules = fused_rows(), {name.removesuffix(".weight") for name in part.description}
    for name in list(left.unexplained):
        parent, _, leaf = name.rpartition(".")
        if row := row_for(leaf, [rule.apply(parent) for rule in trees.lookup], rows, modules):
            result.packed += [Packed(leaf, row)] if Packed(leaf, row) not in result.packed else []
            left.unexplained.remove(name)
    known = {
        name.removesuffix(".weight"): scheme for name, scheme in part.description.items() if name.endswith(".weight")
    }
    untold: dict[str, list[str]] = {}
    result.describe = _unnamed_classes(part, known)
    experts = expert_rules(left.unexplained, known)
    result.lookup += experts
    for name in left.unexplained:
        if any(rule.apply(name) in known for rule in experts) or (not name and result.describe):
            continue
        rule = _fused_alias(name, known, result.lookup) or _unnamed(name, part, known)
        if rule is not None:
            if rule not in result.lookup:
                result.lookup.append(rule)
            continue
        scheme = _scheme_for(name, seen, part, tensors, known)
        if scheme is None and not seen.homeless and f"{seen.missing[name].module}.weight" in part.unwritten:
            continue  # nothing of the layer is there, so that no scheme would mend it
        if scheme is None:
            shape = "." if name.startswith(".") else starred(name)
            untold.setdefault(shape, []).append(name)
        elif scheme not in result.types:
            result.types.append(scheme)
    result.questions += [_of_scheme(shape, names, part, known) for shape, names in untold.items()]
    return result


def _by_words(part: Part, seen: Evidence, trees: _Trees) -> Alignment:
    """What the words tell of the names that structure leaves."""
    told = [name for name in seen.missing if trees.tells_asked(name)]
    if not told:
        return seen.alignment
    known = {name.removesuffix(".weight"): scheme for name, scheme in part.description.items()}
    rows = {name for names in seen.row_frames.values() for name in names}
    rest = [name for name in seen.missing if not trees.tells_asked(name) and name not in rows]
    result, moved = Alignment(), []
    for name in rest:  # a rule that is found already may do
        if any(rule.apply(name) in known and rule.apply(name) != name for rule in trees.lookup):
            moved.append(name)
    result = align([name for name in rest if name not in moved], known, same=lambda a, b: known.get(a) == known.get(b))
    return result


def _of_scheme(shape: str, names: list[str], part: Part, known: Mapping[str, str]) -> Question:
    """Names that the description lacks, where neither their tensors nor their siblings tell the scheme."""
    if shape in ("", "."):
        return _of_empty_prefix(names, part, known)
    siblings = Counter(scheme for one, scheme in known.items() if one.rpartition(".")[2] == shape.rpartition(".")[2])
    schemes = dict.fromkeys(
        [*(s for s, _ in siblings.most_common()), *(s for s, _ in Counter(known.values()).most_common())]
    )
    answers = [
        Answer.of("types", (Scheme(shape, one),), f"{names[0]} is {one}") for one in list(schemes)[:MOST_ANSWERS]
    ]
    return Question(
        f"the description lacks {len(names)} layers {shape}, and their tensors do not tell the scheme", tuple(answers)
    )


def _of_empty_prefix(names: list[str], part: Part, known: Mapping[str, str]) -> Question:
    """Layers that were built without a prefix, or in a part that was: on every layer they ask for one name."""
    modules = [] if names[0] else _without_prefix(part)
    found = list(dict.fromkeys(one for module in modules for one in _called(module, known)))
    answers = [Answer.of("lookup", (Exact("", one),), f"'' -> {one}") for one in found[:MOST_ANSWERS]]
    asked = ", ".join(name or "an empty name" for name in names[:3])
    who = "layers whose part is built without its prefix"
    if modules:
        who = f"layers that are built without a prefix ({', '.join(modules[:3])})"
    return Question(f"{who} ask the description for {asked}", tuple(answers), blocks=bool(answers))


def _fused_alias(name: str, known: Mapping[str, str], rules: Iterable[Rule]) -> Rule | None:
    """The description has one entry for the fused module where its shards are asked for."""
    parent, _, leaf = name.rpartition(".")
    for one in (
        parent,
        *(rule.apply(parent) for rule in rules),
        *(rule.apply(name).rpartition(".")[0] for rule in rules),
    ):
        for fused in FUSED_OF.get(leaf, ()):
            if f"{one}.{fused}" not in known:
                continue
            if one == parent:
                last = parent.rpartition(".")[2]
                return Suffix(f"{last}.{leaf}", f"{last}.{fused}")
            return Exact(starred(name), starred(f"{one}.{fused}"))
    return None


def _without_prefix(part: Part) -> list[str]:
    """Modules that were built without a prefix, so that they ask for an empty name."""
    return list(dict.fromkeys(frame.module for frame in part.frames if ".weight" in frame.missing and frame.module))


def _called(module: str, known: Iterable[str]) -> list[str]:
    """The description names that end as *module* does."""
    leaf = module.rpartition(".")[2]
    return [one for one in known if one.rpartition(".")[2] == leaf]


def _unnamed(name: str, part: Part, known: Mapping[str, str]) -> Rule | None:
    """A layer that was built without a prefix: the one description name that ends as the module does."""
    modules = _without_prefix(part)
    if name or len(modules) != 1:
        return None
    found = _called(modules[0], known)
    return Exact("", found[0]) if len(found) == 1 else None


def _unnamed_classes(part: Part, known: Mapping[str, str]) -> list[Unnamed]:
    """Several layers without a prefix ask for the same empty name: their classes tell them apart, or nothing does."""
    modules = _without_prefix(part)
    classes = [part.modules.get(module, "") for module in modules]
    names = [_called(module, known) for module in modules]
    if len(modules) < 2 or len(set(classes)) < len(classes) or any(len(found) != 1 for found in names):
        return []
    return [Unnamed(cls, found[0]) for cls, found in zip(classes, names, strict=True)]


def _scheme_for(
    name: str, seen: Evidence, part: Part, tensors: Mapping[str, Any], known: Mapping[str, str]
) -> Scheme | None:
    """The scheme of a name that the description lacks, told by the tensors of its layer."""
    if not name or name.startswith("."):
        return None
    module = seen.missing[name].module
    parameters = {p for p in part.parameters if p.rpartition(".")[0] == module}
    leaf = name.rpartition(".")[2]
    weights = [t for t, to in part.landed.items() if parameters & set(to) and t.endswith(".weight")]
    own = [t for t in weights if t.rpartition(".")[0].rpartition(".")[2] == leaf] or weights
    dtypes = {tensors[t].dtype for t in own if t in tensors}
    shape = starred(name)
    if dtypes and dtypes <= set(FLOAT_DTYPES):
        return Scheme(shape, "FLOAT")
    siblings = {scheme for other, scheme in known.items() if starred(other) == shape}
    quantized = {scheme for scheme in siblings if scheme != "FLOAT"}
    if dtypes and not dtypes & set(FLOAT_DTYPES) and len(quantized) == 1 == len(siblings):
        return Scheme(name, quantized.pop())
    return None


# --- the tensors ------------------------------------------------------------------------------------------------------


def _weight_rules(
    part: Part, seen: Evidence, tensors: Mapping[str, Any], others: Collection[str], taken: Collection[str] = ()
) -> Proposal:
    """Rules for tensors that reached no parameter, towards the names that would fill one and are not *taken*."""
    result = Proposal()
    if not part.model_class:
        return result
    names = {one: shape for one, shape in wanted(seen.ways, part.landed).items() if one not in taken}
    homeless = [tensor for tensor in dict.fromkeys(seen.homeless) if tensor not in others]
    found = whereabouts(homeless, names, part.landed, tensors)
    result.override = found.experts
    result.weights += [*map(of_tensors, found.modules.rules), *found.tensors.rules]
    choices = [replace(choice, rules=tuple(map(of_tensors, choice.rules))) for choice in found.modules.choices]
    result.questions += [_of_choice(choice, "weights", "modules of tensors") for choice in choices]
    result.questions += [_of_choice(choice, "weights", "tensors") for choice in found.tensors.choices]
    rest = found.tensors.unexplained
    result.params = _params_rules(part, {*found.right, *rest}, found.right)
    if not result.params:
        result.questions += _of_rest(rest, part, found)
    return result


def _of_rest(names: Iterable[str], part: Part, found: Whereabouts) -> Iterator[Question]:
    """Tensors that no evidence gives a parameter: the siblings whose place is empty, or to leave out what is refused.

    What is not known of a name begins where it leaves the names that are in place, or wait for a tensor.
    """
    known = {one for name in (*part.landed, *found.waiting) for one in _heads(name)}
    refused, sizes = {one.tensor for one in part.refused}, found.sizes
    empty = {prod(part.parameters[name][0]) for name in (*part.unwritten, *part.partial) if name in part.parameters}
    groups: dict[str, list[str]] = {}
    for name in names:
        strange = next((head for head in _heads(name) if head not in known), name)
        groups.setdefault(starred(strange) + ("" if strange == name else ".**"), []).append(name)
    for shape, group in groups.items():
        modules = list(dict.fromkeys(name.rpartition(".")[0] for name in group))
        first, told = group[0], counted(len(group), "tensor")
        answers = [
            Answer.of("weights", (rule,), f"{first} -> {rule.apply(first)}; {told} renamed")
            for rule in _siblings(modules, found)
        ]
        # the others are left aside as it is; nor is dropped what may be what a parameter waits for
        if refused.intersection(group) and not any(prod(sizes[name].shape) in empty for name in group if name in sizes):
            note = f"leaves out {told} such as {first}; right only if nothing needs them"
            answers.append(Answer.of("drop", (Drop(shape),), note))
        if answers:
            renamed = any(name == "weights" for answer in answers for name, _ in answer.fields)
            what = f"no parameter takes {told} {shape}, such as {first}"
            yield Question(what, tuple(answers), blocks=renamed)


def _heads(name: str) -> Iterator[str]:
    """What *name* begins with, segment by segment."""
    segments = name.split(".")
    return (".".join(segments[:end]) for end in range(1, len(segments) + 1))


def _siblings(modules: list[str], places: Whereabouts) -> list[Rule]:
    """Rules that take each of *modules* to one in the same place that waits for its tensors, the likest first."""
    parent, _, last = modules[0].rpartition(".")
    found = []
    for name in places.waiting:
        above, _, other = name.rpartition(".")
        if above != parent or other == last or not places.fits(modules[0], name):
            continue
        context = [] if parent.rpartition(".")[2].isdigit() else [parent.rpartition(".")[2]]
        rule = Segments(".".join([*context, last]), ".".join([*context, other]))
        moved = [rule.apply(module) for module in modules]
        if all(new in places.waiting and places.fits(old, new) for old, new in zip(modules, moved, strict=True)):
            found.append((rule, name))
    found.sort(key=lambda one: likeness(modules[0], one[1]), reverse=True)
    return [rule for rule, _ in found[:MOST_ANSWERS]]


def _params_rules(part: Part, held: Collection[str], right: Iterable[str]) -> list[Rule]:
    """Other names for parameters that are there, and that a loader asks for by a name of another release.

    *held*: tensors that no renaming helps; those of them in *right* are called as they should be. A loader that stops says
    which name it asks for. One that passes over what it does not find does not: of such only the move of the fused
    experts is known.
    """
    empty = [*part.unwritten, *part.filled, *part.partial]
    asked = {one.asked for one in part.refused if one.tensor in held and one.error == "KeyError" and one.asked}
    asked -= {one for one in asked if any(tensor.endswith(one) for tensor in held)}  # a name that is the tensor's own
    rules = align(_inner_names(empty, asked), list(asked)).rules
    if not rules and any(".experts." in name for name in right):
        moved = [name for name in empty if ".experts." in name]
        rules = [next(rule for rule in MOVED_EXPERTS if rule.apply(name) != name) for name in moved[:1]]
    return rules


def _inner_names(parameters: Iterable[str], asked: Iterable[str]) -> list[str]:
    """*parameters* as the model inside calls them that asks for *asked*: it does not know what is around it."""
    fronts = {name.partition(".")[0] for name in asked}
    found = []
    for name in parameters:
        segments = name.split(".")
        at = next((index for index, segment in enumerate(segments) if segment in fronts), 0)
        found.append(".".join(segments[at:]))
    return list(dict.fromkeys(found))


def _biases(part: Part, seen: Evidence) -> list[str]:
    """Biases of float layers that no tensor fills on any layer. Where one layer has it, the others have lost it."""
    written = {pattern(name) for names in part.landed.values() for name in names}
    return [
        name
        for name in seen.unwritten
        if name.endswith((".bias", "_correction_bias"))
        and "float" in part.parameters[name][1]
        and pattern(name) not in written
        and f"{name.rpartition('.')[0]}.weight" not in part.unwritten  # nothing of the layer is there
    ]


def _fill_questions(names: Iterable[str]) -> Iterator[Question]:
    """Zero is the neutral value of a bias, but whether the float model has zeros there only the float model tells."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(f"**.{'.'.join(starred(name).split('.')[-3:])}", []).append(name)
    for shape, held in groups.items():
        note = "right only if the float model has zeros there: compare with it"
        what = f"no tensor fills {counted(len(held), 'parameter')} {shape}, such as {held[0]}"
        yield Question(what, (Answer.of("fill", (Fill(shape),), note),), blocks=False)


def _dequantized(part: Part, tensors: Mapping[str, Any]) -> list[Dequantize]:
    """Quantized modules with a scale of each row whose layer never asks the description, so that vLLM builds it as float."""
    asking = {frame.module for frame in part.frames}
    found = {}
    for tensor, source, parameter, target in part.cast:
        module, home = tensor.removesuffix(".weight"), parameter.rpartition(".")[0]
        scale = tensors.get(f"{module}.weight_scale")
        rows = tensors[tensor].shape[0] if tensor in tensors and tensors[tensor].shape else 0
        if (
            source == "int8"
            and "float" in target
            and tensor != module
            and home not in asking
            and f"{home}.weight_scale" not in part.parameters
            and scale is not None
            and prod(scale.shape) == rows == part.parameters[parameter][0][0]
        ):
            found[starred(module)] = Dequantize(starred(module))
    return list(found.values())


def _tied_head(part: Part, config: Mapping[str, Any]) -> Iterator[Question]:
    """A head that no tensor fills, of the size of the embedding, where config.json says that they are two."""
    key = "tie_word_embeddings"
    heads = [
        name for name in part.unwritten if part.modules.get(name.rpartition(".")[0], "").endswith("ParallelLMHead")
    ]
    filled = {name for names in part.landed.values() for name in names}
    shapes = {
        part.parameters[name][0] for name in filled if "Embedding" in part.modules.get(name.rpartition(".")[0], "")
    }
    nested = [one for one in config.values() if isinstance(one, Mapping) and key in one]
    if len(heads) != 1 or part.parameters[heads[0]][0] not in shapes or config.get(key) is True or nested:
        return
    note = "right only if the float model's head is its embedding: compare with its config.json"
    answer = Answer.of("config", (Config(put={key: True}),), note)
    yield Question(f"no tensor fills {heads[0]}, which is as large as the embedding", (answer,), blocks=False)
