"""What is told while a server loads, in words that fit the count."""

from __future__ import annotations

import pytest

from ascend_hotfix.ledger import Ledger
from ascend_hotfix.seams.watch import Watch
from ascend_hotfix.words import counted


class Type(str):
    """Stands for a torch.dtype."""

    @property
    def is_floating_point(self) -> bool:
        return "float" in self


class Tensor:
    def __init__(self, dtype: str, *shape: int) -> None:
        self.dtype, self.shape = Type(f"torch.{dtype}"), shape


class Model:
    """Has the parameters that it is given."""

    def __init__(self, *names: str) -> None:
        self._names = names

    def named_parameters(self) -> list[tuple[str, None]]:
        return [(name, None) for name in self._names]


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("a.weight",), "Model: 1 quantized tensor cast into float, "),
        (("a.weight", "b.weight"), "Model: 2 quantized tensors cast into float, "),
    ],
)
def test_a_finding_counts_its_tensors(names: tuple[str, ...], said: str) -> None:
    watch = Watch(Model())
    for name in names:
        watch.passing(name, Tensor("int8", 4, 4), name, Tensor("bfloat16", 4, 4))
    [message] = watch.findings(None)
    assert message.startswith(said) and "a.weight (int8 into bfloat16)" in message


@pytest.mark.parametrize(("count", "said"), [(1, "1 parameter never"), (3, "3 parameters never")])
def test_a_finding_counts_its_parameters(count: int, said: str) -> None:
    [message] = Watch(Model(*(f"layer.{number}.weight" for number in range(count)))).findings(set())
    assert f"Model: {said} written" in message


def test_a_missing_expert_is_counted_as_a_place() -> None:
    watch = Watch(Model())
    for name in ("m.experts.0.up", "m.experts.1.up", "m.experts.0.down"):
        watch.passing(name, Tensor("int8", 1), None, None)
    [message] = watch.findings(None)
    assert "experts are missing in 1 place: m.experts.{1}.down" in message


def test_the_summary_counts_hits() -> None:
    ledger = Ledger()
    ledger.hit("patch", "once", "lookup")
    ledger.hit("patch", "twice", "lookup", times=2)
    assert ledger.summary() == "applied patch.once (1 hit), patch.twice (2 hits)"


@pytest.mark.parametrize(("number", "said"), [(0, "0 entries"), (1, "1 entry"), (2, "2 entries")])
def test_a_plural_of_its_own(number: int, said: str) -> None:
    assert counted(number, "entry", "entries") == said
