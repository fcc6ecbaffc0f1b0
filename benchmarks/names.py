"""Renaming one name: our rules against vLLM's WeightsMapper with the same rules, in one run.

    python benchmarks/names.py [rounds]

Run in an environment of the matrix, which has vLLM. The names are those of DeepSeek-V3 and Qwen3-235B in ModelSlim's form
(``full_size.py``). Each round renames all of them with both, from a rule set made anew and from names that nothing has
seen before; so working out what the rules make of a shape of name is in it. The two take turns at every thousand names,
which is about what one file of a checkpoint holds. What is measured is processor time. Before that it is checked that
both give every name the same new name.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import full_size

from ascend_hotfix.names import Prefix, Rule, Segments
from ascend_hotfix.renamer import Renamer

__all__ = ["main", "measure"]

ROUNDS = 9
FILE = 1000
USED: tuple[Rule, ...] = (
    Prefix("model", "language_model.model"),
    Segments("mlp.shared_experts", "mlp.shared_expert"),
    Segments("self_attn.q_a_layernorm", "self_attn.q_norm"),
    Segments("mlp.gate", "mlp.router"),
)
ONE_NUMBER: tuple[Rule, ...] = (Prefix("model.layers.60", "model.mtp_block"), *USED[1:])


def padded(rules: tuple[Rule, ...], count: int) -> tuple[Rule, ...]:
    """*rules* and as many more as make *count*, of other families: they fit no name of these two."""
    more: list[Rule] = []
    for number in range(count - len(rules)):
        more.append(
            Prefix(f"tower{number}", f"model.tower{number}") if number % 2 else Segments(f"block{number}.attn", "attn")
        )
    return (*rules, *more)


CASES = {
    "10 rules": padded(USED, 10),
    "200 rules": padded(USED, 200),
    "10 rules, one for a single layer": padded(ONE_NUMBER, 10),
    "200 rules, one for a single layer": padded(ONE_NUMBER, 200),
    "10 rules, none of which fits": padded((), 10),
}


def mapper(rules: tuple[Rule, ...]) -> Any:
    """vLLM's own, with the same rules. It knows no segments, so their dots are written out."""
    from vllm.model_executor.models.utils import WeightsMapper

    return WeightsMapper(
        orig_to_new_prefix={f"{one.old}.": f"{one.new}." for one in rules if isinstance(one, Prefix)},
        orig_to_new_substr={f".{one.old}.": f".{one.new}." for one in rules if isinstance(one, Segments)},
    )


def unseen(names: list[str]) -> list[str]:
    """The same names as new strings, whose hash nobody has asked for."""
    return [f"{name[:4]}{name[4:]}" for name in names]


def seconds(rename: Callable[[str], Any], names: list[str]) -> float:
    """Processor time of renaming all *names*."""
    started = time.process_time()
    for name in names:
        rename(name)
    return time.process_time() - started


def once(rules: tuple[Rule, ...], names: list[str]) -> list[float]:
    """Microseconds for a name, of WeightsMapper and of ours."""
    started = time.process_time()
    theirs = mapper(rules)._map_name
    made = time.process_time()
    both = theirs, Renamer(rules).rename
    taken = [made - started, time.process_time() - made]
    for begin in range(0, len(names), FILE):
        for which in (0, 1) if begin // FILE % 2 else (1, 0):
            taken[which] += seconds(both[which], unseen(names[begin : begin + FILE]))
    return [1e6 * one / len(names) for one in taken]


def measure(rules: tuple[Rule, ...], names: list[str], rounds: int) -> tuple[list[float], list[float]]:
    """What :func:`once` gives for each of *rounds*; one before them is not counted."""
    taken = [once(rules, names) for _ in range(rounds + 1)][1:]
    return [theirs for theirs, _ in taken], [ours for _, ours in taken]


def check(rules: tuple[Rule, ...], names: list[str]) -> int:
    """The number of names that are renamed; an error where the two disagree."""
    ours, theirs = Renamer(rules), mapper(rules)
    moved = 0
    for name in names:
        if ours.rename(name) != theirs._map_name(name):
            raise SystemExit(f"{name}: ours gives {ours.rename(name)}, WeightsMapper {theirs._map_name(name)}")
        moved += ours.rename(name) != name
    return moved


def main(arguments: list[str]) -> None:
    """Prints a table for each model."""
    from ascend_hotfix.sim import lab

    lab.prepare()
    rounds = int(arguments[0]) if arguments else ROUNDS
    for model, make in full_size.MODELS.items():
        names = [name for name, *_ in make()[1]]
        print(f"{model}: {len(names):,} names, {rounds} rounds")
        print(f"{'':36} {'times as fast':>13}  {'middle half':>13}  {'ours':>8}  {'WeightsMapper':>13}  {'renamed':>8}")
        for case, rules in CASES.items():
            moved = check(rules, names)
            theirs, ours = measure(rules, names, rounds)
            low, middle, high = statistics.quantiles([a / b for a, b in zip(theirs, ours, strict=True)], n=4)
            print(
                f"{case:36} {middle:13.1f}  {low:5.1f} to {high:5.1f}  {statistics.median(ours):5.2f} us"
                f"  {statistics.median(theirs):10.2f} us  {moved:8,}"
            )


if __name__ == "__main__":
    main(sys.argv[1:])
