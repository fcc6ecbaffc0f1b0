"""From what a dry run missed to rules: as few as explain all misses, each general and anchored; the rest are questions.

Rules come from names that are asked and names that are there (:mod:`ascend_hotfix.doctor.align`); rows of fused modules
from the shards that the description has; schemes for names the description lacks from the dtype of the tensors; other
names of parameters from those that a loader asks in vain. What this leaves open is a :class:`Question`: the records of
which one may be right, for the user to choose. Nothing is guessed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ascend_hotfix.doctor.align import Choice, align, likeness
from ascend_hotfix.doctor.dryrun import Rehearsal
from ascend_hotfix.doctor.findings import pattern, starred
from ascend_hotfix.doctor.judge import Evidence, examine
from ascend_hotfix.doctor.patchfile import FIELDS, field_text
from ascend_hotfix.doctor.places import Whereabouts, any_expert, expert_rules, of_tensors, wanted, whereabouts
from ascend_hotfix.doctor.rehearsal import Part
from ascend_hotfix.names import Exact, Prefix, Rule, Segments, Suffix
from ascend_hotfix.records import Drop, Fill, ModelPatch, Packed, Scheme, Unnamed
from ascend_hotfix.words import counted

__all__ = ["Answer", "Proposal", "Question", "derive"]

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


@dataclass(frozen=True)
class Answer:
    """One way to mend what a question is about: *records* in *field* of a fix; *note* says what it does to one name.

    *field* is ``retyped`` for ``types`` of a fix that overrides.
    """

    field: str
    records: tuple[Any, ...]
    note: str

    @property
    def text(self) -> str:
        """The field of a fix, as Python."""
        retyped = self.field == "retyped"
        return field_text("types" if retyped else self.field, self.records, override=retyped)


@dataclass(frozen=True)
class Question:
    """What the names leave open, and the answers of which one may be right; none where it is no matter of names.

    A patch is not written before the question is answered, unless *blocks* is False: then no rule depends on it.
    """

    what: str
    answers: tuple[Answer, ...]
    blocks: bool = True


@dataclass
class Proposal:
    """Records by field of a fix, and what stays open.

    ``override`` are rules that must act on tensors whose names look right, or like those of no parameter; ``retyped`` are
    schemes in place of what the description says.
    """

    lookup: list[Rule] = field(default_factory=list)
    weights: list[Rule] = field(default_factory=list)
    params: list[Rule] = field(default_factory=list)
    packed: list[Packed] = field(default_factory=list)
    describe: list[Unnamed] = field(default_factory=list)
    types: list[Scheme] = field(default_factory=list)
    drop: list[Drop] = field(default_factory=list)
    fill: list[Fill] = field(default_factory=list)
    override: list[Rule] = field(default_factory=list)
    retyped: list[Scheme] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)

    @classmethod
    def of_patch(cls, patch: ModelPatch) -> Proposal:
        """The records that *patch*, a suggested one, has."""
        result = cls()
        for fix in patch.fixes:
            if fix.override:
                result.override.extend(fix.weights)
                result.retyped.extend(fix.types)
                continue
            for name in FIELDS:
                getattr(result, name).extend(getattr(fix, name))
        return result

    def __bool__(self) -> bool:
        return bool(self.fields() or self.overriding())

    def fields(self) -> dict[str, tuple[Any, ...]]:
        """The non-empty fields of a fix."""
        held = {name: tuple(getattr(self, name)) for name in FIELDS}
        held["weights"] = tuple(rule for rule in self.weights if rule not in self.override)
        return {name: records for name, records in held.items() if records}

    def overriding(self) -> dict[str, tuple[Any, ...]]:
        """The non-empty fields of fixes that override."""
        held = {"weights": tuple(self.override), "types": tuple(self.retyped)}
        return {name: records for name, records in held.items() if records}

    def records(self) -> tuple[Any, ...]:
        """Everything that a patch of it says."""
        return self.fields(), self.overriding()

    def merge(self, other: Proposal) -> None:
        """Adds what *other* has and this one lacks."""
        for name in (*FIELDS, "override", "retyped", "questions"):
            mine = getattr(self, name)
            mine += [one for one in getattr(other, name) if one not in mine]

    def answer(self, chosen: Collection[str]) -> None:
        """Takes over the answers whose text is in *chosen*, and with them their questions."""
        for question in list(self.questions):
            taken = [answer for answer in question.answers if answer.text in chosen]
            for answer in taken:
                held = getattr(self, answer.field)
                held += [record for record in answer.records if record not in held]
            if taken:
                self.questions.remove(question)


def derive(rehearsal: Rehearsal, before: Proposal | None = None) -> Proposal:
    """The rules that explain what the parts of *rehearsal* missed, which had the rules of *before* armed."""
    tensors, drafted = rehearsal.checkpoint.tensors, rehearsal.drafted
    if len(rehearsal.parts) == 1:  # no draft takes what the target refuses
        drafted = drafted - {one.tensor for part in rehearsal.parts for one in part.refused}
    result, unfilled, misdescribed = Proposal(), list[str](), dict[str, tuple[str, ...]]()
    for part in rehearsal.parts:
        others = {t for other in rehearsal.parts if other is not part for t in other.landed}
        _, seen = examine(part, tensors, drafted, others)
        misdescribed |= seen.misdescribed
        result.merge(_description_rules(part, seen, tensors))
        # What a rule of the target's moves is looked at again in the dry run with the patch.
        moved = {t for t in seen.homeless if any(rule.apply(t) != t for rule in result.weights)}
        whole = _for_every_tensor(before, seen.homeless, tensors)
        result.override += [rule for rule in whole if rule not in result.override]
        moved |= {t for t in seen.homeless if any(rule.apply(t) != t for rule in whole)}
        result.merge(_weight_rules(part, seen, tensors, {*others, *moved}, _taken(part, before)))
        unfilled += [] if seen.homeless else _biases(part, seen)  # a tensor without a place may be it
    result.questions += _fill_questions(unfilled)
    described = [name.removesuffix(".weight") for part in rehearsal.parts[:1] for name in part.description]
    result.merge(_corrections(misdescribed, described))
    return result


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
        answers = [Answer("retyped", held, f"{names[0]} is {held[0].scheme}") for held in records[:MOST_ANSWERS]]
        result.questions.append(Question(what, tuple(answers)))
    return result


def _of_choice(choice: Choice, field: str, what: str) -> Question:
    """Several rules explain the same names with as much evidence."""
    first, count = choice.names[0], len(choice.names)
    answers = tuple(Answer(field, (rule,), f"{first} -> {rule.apply(first)}") for rule in choice.rules[:MOST_ANSWERS])
    return Question(f"{count} {what}, such as {first}, fit more than one name", answers)


def _description_rules(part: Part, seen: Evidence, tensors: Mapping[str, Any]) -> Proposal:
    result = Proposal(lookup=list(seen.alignment.rules))
    result.questions = [_of_choice(one, "lookup", "names asked of the description") for one in seen.alignment.choices]
    result.packed = [Packed(fused, shards) for fused, shards in seen.rows.items()]
    known = {
        name.removesuffix(".weight"): scheme for name, scheme in part.description.items() if name.endswith(".weight")
    }
    untold: dict[str, list[str]] = {}
    result.describe = _unnamed_classes(part, known)
    experts = expert_rules(seen.alignment.unexplained, known)
    result.lookup += experts
    for name in seen.alignment.unexplained:
        if any(rule.apply(name) in known for rule in experts) or (not name and result.describe):
            continue
        rule = _fused_alias(name, known, result.lookup) or _unnamed(name, part, known)
        if rule is not None:
            if rule not in result.lookup:
                result.lookup.append(rule)
            continue
        scheme = _scheme_for(name, seen, part, tensors, known)
        if scheme is None:
            shape = "." if name.startswith(".") else starred(name)
            untold.setdefault(shape, []).append(name)
        elif scheme not in result.types:
            result.types.append(scheme)
    result.questions += [_of_scheme(shape, names, part, known) for shape, names in untold.items()]
    return result


def _of_scheme(shape: str, names: list[str], part: Part, known: Mapping[str, str]) -> Question:
    """Names that the description lacks, where neither their tensors nor their siblings tell the scheme."""
    if shape in ("", "."):
        return _of_empty_prefix(names, part, known)
    siblings = Counter(scheme for one, scheme in known.items() if one.rpartition(".")[2] == shape.rpartition(".")[2])
    schemes = dict.fromkeys(
        [*(s for s, _ in siblings.most_common()), *(s for s, _ in Counter(known.values()).most_common())]
    )
    answers = [Answer("types", (Scheme(shape, one),), f"{names[0]} is {one}") for one in list(schemes)[:MOST_ANSWERS]]
    return Question(
        f"the description lacks {len(names)} layers {shape}, and their tensors do not tell the scheme", tuple(answers)
    )


def _of_empty_prefix(names: list[str], part: Part, known: Mapping[str, str]) -> Question:
    """Layers that were built without a prefix, or in a part that was: on every layer they ask for one name."""
    modules = [] if names[0] else _without_prefix(part)
    found = list(dict.fromkeys(one for module in modules for one in _called(module, known)))
    answers = [Answer("lookup", (Exact("", one),), f"'' -> {one}") for one in found[:MOST_ANSWERS]]
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
    refused = {one.tensor for one in part.refused}
    groups: dict[str, list[str]] = {}
    for name in names:
        strange = next((head for head in _heads(name) if head not in known), name)
        groups.setdefault(starred(strange) + ("" if strange == name else ".**"), []).append(name)
    for shape, group in groups.items():
        modules = list(dict.fromkeys(name.rpartition(".")[0] for name in group))
        first, told = group[0], counted(len(group), "tensor")
        answers = [
            Answer("weights", (rule,), f"{first} -> {rule.apply(first)}; {told} renamed")
            for rule in _siblings(modules, found)
        ]
        if refused.intersection(group):  # the others are left aside as it is
            note = f"leaves out {told} such as {first}; right only if nothing needs them"
            answers.append(Answer("drop", (Drop(shape),), note))
        if answers:
            yield Question(f"no parameter takes {told} {shape}, such as {first}", tuple(answers))


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
    ]


def _fill_questions(names: Iterable[str]) -> Iterator[Question]:
    """Zero is the neutral value of a bias, but whether the float model has zeros there only the float model tells."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(f"**.{'.'.join(starred(name).split('.')[-3:])}", []).append(name)
    for shape, held in groups.items():
        note = "right only if the float model has zeros there: compare with it"
        what = f"no tensor fills {counted(len(held), 'parameter')} {shape}, such as {held[0]}"
        yield Question(what, (Answer("fill", (Fill(shape),), note),), blocks=False)
