"""What a patch is made of: frozen records, validated when made.

A patch module holds one ``PATCH = ModelPatch(...)`` and no code. Every mistake in a record is reported
at once, as one :class:`PatchError` in the author's terms; so is every mistake in a patch file. What a field
can say is documented here, with the public report that asked for it; what no field can say needs a new record
kind with its own tests.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any

from ascend_hotfix.names import Exact, Layers, Prefix, Regex, Renamer, Rule, Segments, Suffix, refuse

__all__ = [
    "Drop",
    "Exact",
    "Fill",
    "Fix",
    "Layers",
    "ModelPatch",
    "Packed",
    "PatchError",
    "Prefix",
    "Regex",
    "Scheme",
    "Segments",
    "Suffix",
    "per_expert",
]

DISTRIBUTIONS = ("vllm", "vllm-ascend", "transformers", "torch")
IDENTIFIER = re.compile(r"[a-z0-9][a-z0-9_.-]*")
FIX_ID = re.compile(r"[a-z0-9][a-z0-9-]*")


class PatchError(ValueError):
    """A patch that cannot be used. ``problems`` holds every mistake, one line each."""

    def __init__(self, what: str, problems: list[str]) -> None:
        self.what, self.problems = what, problems
        super().__init__(f"{what}: " + "; ".join(problems))

    def __reduce__(self) -> tuple[type[PatchError], tuple[str, list[str]]]:
        return type(self), (self.what, self.problems)


def per_expert(gate: str = "gate_proj", up: str = "up_proj", down: str = "down_proj") -> tuple[str, ...]:
    """The shards by which vllm-ascend finds the scheme of fused experts: those of expert 0."""
    return tuple(f"experts.0.{name}" for name in (gate, up, down))


@dataclass(frozen=True)
class Packed:
    """A fused module and the checkpoint's shards of it, for ``packed_modules_mapping``.

    Added where upstream's row lacks *fused*; an entry of upstream's is never replaced. A shard in
    *optional* may be absent from the description (Gemma4's ``v_proj`` on layers that share K and V).
    """

    fused: str
    shards: tuple[str, ...]
    optional: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check(
            f"Packed({self.fused!r})",
            [
                *_segments("fused", self.fused, one=True),
                *(["shards is empty"] if not self.shards else []),
                *_strings_only("shards", self.shards),
                *_strings_only("optional", self.optional),
                *(line for shard in _strings(self.shards) for line in _segments("shards", shard)),
                *(
                    f"optional names {s!r}, which is no shard"
                    for s in _strings(self.optional)
                    if s not in _strings(self.shards)
                ),
            ],
        )


@dataclass(frozen=True)
class Scheme:
    """The scheme of the modules that match *pattern* (module names as vLLM asks; ``*`` and ``**``).

    A default: it is taken only where the description says nothing. With ``Fix.override`` it replaces what
    the description says. ``mtp_only`` bounds it to layers numbered from ``num_hidden_layers`` on
    (the note on DeepSeek MTP in vllm-ascend's packed table).
    """

    pattern: str
    scheme: str = "FLOAT"
    mtp_only: bool = False

    def __post_init__(self) -> None:
        _check(
            f"Scheme({self.pattern!r})",
            [
                *_pattern(self.pattern),
                *(
                    []
                    if isinstance(self.scheme, str) and self.scheme.isupper()
                    else ["scheme must be upper case, such as 'FLOAT' or 'W8A8_DYNAMIC'"]
                ),
            ],
        )


@dataclass(frozen=True)
class Drop:
    """Checkpoint tensors that no parameter takes and upstream's loader refuses (``rot.weight``, vllm-ascend#10317)."""

    pattern: str

    def __post_init__(self) -> None:
        _check(f"Drop({self.pattern!r})", _pattern(self.pattern))


@dataclass(frozen=True)
class Fill:
    """A parameter that no checkpoint tensor fills gets *value* instead of what memory held.

    GLM-4.x exports lack ``e_score_correction_bias``; vLLM 0.13 builds DeepSeek-V3.2's
    ``indexer.weights_proj`` with a bias that no checkpoint has.
    """

    pattern: str
    value: float = 0.0

    def __post_init__(self) -> None:
        number = isinstance(self.value, int | float) and not isinstance(self.value, bool)
        _check(
            f"Fill({self.pattern!r})",
            [*_pattern(self.pattern), *([] if number else [f"value must be a number, not {self.value!r}"])],
        )


@dataclass(frozen=True)
class Fix:
    """One failure and what mends it.

    ``versions`` maps a distribution to a version range in which the fix is wanted; outside of it the
    fix is *out of range*. A rule turns a miss into a hit and nothing else, unless ``override`` gives
    the reason for which a hit must be replaced; an override needs a version range.

    Which way the rules of a field read:

    * ``build``: prefix that vLLM gives to a part of the model -> prefix it should have;
    * ``lookup``: module name asked of the description -> module name in the description, without a leaf
      such as ``.weight``; ``""`` is a layer that was built without a prefix;
    * ``weights``: tensor name in the checkpoint -> name that the model's ``load_weights`` understands;
    * ``params``: parameter that exists -> name by which a loader asks for it. Both names work then.
    """

    id: str
    why: str
    refs: tuple[str, ...]
    versions: Mapping[str, str] = field(default_factory=dict)
    retire: str = ""
    build: tuple[Rule, ...] = ()
    lookup: tuple[Rule, ...] = ()
    weights: tuple[Rule, ...] = ()
    params: tuple[Rule, ...] = ()
    packed: tuple[Packed, ...] = ()
    types: tuple[Scheme, ...] = ()
    drop: tuple[Drop, ...] = ()
    fill: tuple[Fill, ...] = ()
    override: str = ""

    def __post_init__(self) -> None:
        problems = []
        if not isinstance(self.id, str) or not FIX_ID.fullmatch(self.id):
            problems.append(f"id {self.id!r} must be lower-case words joined by '-'")
        if not isinstance(self.why, str):
            problems.append(f"why must be a string, not {self.why!r}")
        elif not self.why:
            problems.append("why is empty; say in one sentence what fails")
        if not self.refs:
            problems.append("refs is empty; name the public report or the upstream file that shows it")
        problems += _strings_only("refs", self.refs)
        problems += _versions(self.versions)
        if not isinstance(self.retire, str):
            problems.append(f"retire must be a string, not {self.retire!r}")
        if not isinstance(self.override, str):
            problems.append(f"override must be a string: the reason for which a hit is replaced, not {self.override!r}")
        elif self.override and not self.versions:
            problems.append("override needs versions: an override does not retire itself")
        for name, kind in RULE_FIELDS.items():
            problems += _tuple_of(name, getattr(self, name), kind)
        if not problems and self.override:
            for name in RENAMING_FIELDS:
                problems += _unstable(name, getattr(self, name))
        if not any(getattr(self, name) for name in RULE_FIELDS):
            problems.append(f"has no rule; give at least one of {', '.join(RULE_FIELDS)}")
        _check(f"Fix({self.id!r})", problems)
        if isinstance(self.versions, Mapping):
            object.__setattr__(self, "versions", MappingProxyType(dict(self.versions)))


RENAMING_FIELDS = ("build", "lookup", "weights", "params")
RULE_FIELDS: Mapping[str, tuple[type, ...]] = MappingProxyType(
    {
        **dict.fromkeys(RENAMING_FIELDS, (Exact, Prefix, Segments, Suffix, Layers, Regex)),
        "packed": (Packed,),
        "types": (Scheme,),
        "drop": (Drop,),
        "fill": (Fill,),
    }
)


@dataclass(frozen=True)
class ModelPatch:
    """All fixes of one model family.

    ``model_types`` lists every name upstream may ask under: wrapper, text, thinker and draft
    (vllm-ascend 0.13.0rc2 to rc3 reads ``hf_text_config``, others ``hf_config``); ``("*",)`` is every model.
    ``architectures`` narrows it to checkpoints whose config.json names one of these model classes.
    ``name`` is the module's file name where it is not given.
    """

    model_types: tuple[str, ...]
    fixes: tuple[Fix, ...]
    name: str = ""
    architectures: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        problems = [
            *_tuple_of("fixes", self.fixes, (Fix,)),
            *_strings_only("model_types", self.model_types),
            *_strings_only("architectures", self.architectures),
        ]
        if not self.model_types:
            problems.append("model_types is empty; name at least one, or '*' for every model")
        if self.name and not IDENTIFIER.fullmatch(self.name):
            problems.append(f"name {self.name!r} must be lower case: letters, digits, '_', '-', '.'")
        if not problems:
            ids = [fix.id for fix in self.fixes]
            problems += [
                f"fix id {one!r} is used {ids.count(one)} times" for one in sorted({i for i in ids if ids.count(i) > 1})
            ]
            problems += [] if self.fixes else ["fixes is empty"]
        _check(f"ModelPatch({self.name or ', '.join(map(str, self.model_types))!r})", problems)


def _check(what: str, problems: list[str]) -> None:
    if problems:
        refuse(PatchError(what, problems))


def _tuple_of(name: str, value: Any, kinds: tuple[type, ...]) -> list[str]:
    expected = " or ".join(kind.__name__ for kind in kinds)
    if not isinstance(value, tuple):
        return [f"{name} must be a tuple of {expected}, not {type(value).__name__} (a one-element tuple needs a comma)"]
    return [
        f"{name}[{i}] must be {expected}, not {item!r}" for i, item in enumerate(value) if not isinstance(item, kinds)
    ]


def _strings(value: Any) -> tuple[str, ...]:
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, tuple) else ()


def _strings_only(name: str, value: Any) -> list[str]:
    if isinstance(value, str) or not isinstance(value, tuple):
        return [f"{name} must be a tuple of strings, not {value!r} (a one-element tuple needs a comma)"]
    return [f"{name}[{i}] must be a string, not {item!r}" for i, item in enumerate(value) if not isinstance(item, str)]


def _segments(label: str, value: Any, *, one: bool = False) -> list[str]:
    if not isinstance(value, str) or not value or any(not part for part in value.split(".")):
        return [f"{label}: {value!r} must be whole dotted segments"]
    return [f"{label}: {value!r} must be one segment"] if one and "." in value else []


def _pattern(value: Any) -> list[str]:
    problems = _segments("pattern", value)
    if not problems:
        odd = [part for part in value.split(".") if "*" in part and part not in ("*", "**")]
        problems = [f"pattern {value!r}: '*' stands for a whole segment, not part of one ({odd[0]!r})"] if odd else []
        if set(value.split(".")) <= {"*", "**"}:
            problems.append(f"pattern {value!r} matches everything")
    return problems


def _versions(value: Any) -> list[str]:
    if not isinstance(value, Mapping):
        return [f"versions must map a distribution to a range, not {value!r}"]
    from ascend_hotfix.versions import range_problem

    problems = [
        f"versions names {name!r}; known are {', '.join(DISTRIBUTIONS)}" for name in value if name not in DISTRIBUTIONS
    ]
    return problems + [f"versions[{name!r}]: {p}" for name, spec in value.items() if (p := range_problem(spec))]


def _unstable(name: str, rules: tuple[Rule, ...]) -> list[str]:
    """Rules whose literal result the same rules would move again, so that they would never fire."""
    renamer, problems = Renamer(rules), []
    for rule in () if any(rule.refused for rule in rules) else rules:
        literal = getattr(rule, "new", None)
        if isinstance(rule, Exact | Prefix) and isinstance(literal, str) and "*" not in literal and literal:
            again = renamer._pass(literal)[0]
            if again != literal:
                problems.append(
                    f"{name}: {rule!r} gives {literal!r}, which the same rules turn into {again!r}; "
                    "a rename must be stable"
                )
    return problems


def field_names(record: type) -> tuple[str, ...]:
    """Names of a record's fields, for messages and documents."""
    return tuple(item.name for item in fields(record))
