"""What a suggestion consists of: records by field of a fix, and the questions that stay open."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from ascend_hotfix.doctor.suggest.writer import FIELDS, field_text
from ascend_hotfix.names import Rule
from ascend_hotfix.records import Config, Dequantize, Drop, Fill, ModelPatch, Packed, Scheme, Unnamed

__all__ = ["Answer", "Proposal", "Question"]

OVERRIDING = {"override": "weights", "retyped": "types"}
"""Lists of a proposal that stand for a field of a fix that overrides."""


@dataclass(frozen=True)
class Answer:
    """One way to mend what a question is about: records by *fields* of a fix; *note* says what it does to one name.

    Fields of a fix that overrides are called as in :data:`OVERRIDING`.
    """

    fields: tuple[tuple[str, tuple[Any, ...]], ...]
    note: str

    @classmethod
    def of(cls, field: str, records: tuple[Any, ...], note: str) -> Answer:
        """*records* in one *field*."""
        return cls(((field, records),), note)

    @property
    def records(self) -> tuple[Any, ...]:
        """The records of all fields."""
        return tuple(record for _, records in self.fields for record in records)

    @property
    def text(self) -> str:
        """The fields of a fix, as Python."""
        told = [(OVERRIDING.get(name, name), records, name in OVERRIDING) for name, records in self.fields]
        return ", ".join(field_text(name, records, override=override) for name, records, override in told)


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

    config: list[Config] = field(default_factory=list)
    lookup: list[Rule] = field(default_factory=list)
    weights: list[Rule] = field(default_factory=list)
    params: list[Rule] = field(default_factory=list)
    packed: list[Packed] = field(default_factory=list)
    describe: list[Unnamed] = field(default_factory=list)
    types: list[Scheme] = field(default_factory=list)
    drop: list[Drop] = field(default_factory=list)
    fill: list[Fill] = field(default_factory=list)
    tensors: list[Dequantize] = field(default_factory=list)
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
                for name, records in answer.fields:
                    held = getattr(self, name)
                    held += [record for record in records if record not in held]
            if taken:
                self.questions.remove(question)
