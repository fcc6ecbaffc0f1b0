"""How a server would split a model, as both processes of a dry run say it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Split"]


@dataclass(frozen=True)
class Split:
    """How the server would split the model, and the rank that is looked at."""

    tensor_parallel_size: int = 1
    expert_parallel: bool = False
    rank: int = 0

    @property
    def ranks(self) -> tuple[Split, ...]:
        """The first and the last rank: what a split cuts off shows at one of the two."""
        size = self.tensor_parallel_size
        return tuple(Split(size, self.expert_parallel, rank) for rank in sorted({0, size - 1}))
