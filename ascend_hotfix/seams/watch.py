"""What upstream takes in silence while a server loads: checks that need no pass of their own.

A quantized tensor cast into a float parameter and the reverse, a tensor cut to the parameter's shape, an
expert that is missing, a parameter that nothing has written. Each kind is one finding with a count and two
examples. Parameters that need no tensor (:mod:`ascend_hotfix.seams.spare`) are left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterator, Mapping
from functools import lru_cache
from math import prod
from typing import Any

from ascend_hotfix.seams.spare import Spare, plain
from ascend_hotfix.words import counted

__all__ = ["Watch", "is_quantized", "plain"]

DRAFTS = ("mtp", "eagle", "medusa", "nextn", "draft")
DOCTOR = "'ascend-hotfix doctor MODEL_DIR' tells more"


class Watch:
    """Sees the tensors of one load pass by. *draft*: the model is known to be a draft; else its class may say so.

    *twins*: as for :class:`Spare`.
    """

    def __init__(self, model: Any, *, draft: bool = False, twins: Mapping[str, list[str]] | None = None) -> None:
        self._model = model
        self._name = type(model).__name__
        self._draft = draft or any(word in self._name.lower() for word in DRAFTS)
        self._twins = twins
        self._homeless: set[str] = set()
        self._quantized_into_float: list[str] = []
        self._float_into_quantized: list[str] = []
        self._cut: list[str] = []
        self._experts: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))

    def passing(self, name: str, tensor: Any, home: str | None, parameter: Any) -> set[str] | None:
        """One tensor, and the parameter *home* in which it lands, if that can be told.

        Of an expert's with which nothing is wrong, gives the experts, by number, that have come with a tensor called so.
        """
        module, number, kind = _expert(name)
        numbers = self._experts[module][kind] if number else None
        if numbers is not None:
            numbers.add(number)
        dtype = getattr(tensor, "dtype", None)
        if home is None:
            self._homeless.add(name)
        if home is None or parameter is None or dtype is None or not home.endswith("weight"):
            return numbers
        into = f"{name} ({_short(dtype)} into {_short(parameter.dtype)})"
        if is_quantized(dtype) and parameter.dtype.is_floating_point and not is_quantized(parameter.dtype):
            self._quantized_into_float.append(into)
        elif not is_quantized(dtype) and is_quantized(parameter.dtype):
            self._float_into_quantized.append(into)
        elif name == home and _is_cut(tuple(tensor.shape), tuple(parameter.shape), _tensor_parallel_size()):
            self._cut.append(f"{name} ({list(tensor.shape)} into {list(parameter.shape)})")
        else:
            return numbers
        return None

    def findings(self, written: Container[str] | None) -> Iterator[str]:
        """One message for each kind of fault; see :meth:`misfits` and :meth:`gaps`."""
        yield from self.misfits()
        yield from self.gaps(written)

    def misfits(self) -> Iterator[str]:
        """What is wrong with tensors that have come."""
        yield from _found(
            self._quantized_into_float,
            "quantized tensor",
            f"{self._name}: %s cast into float, where the layer was taken for a float one at the lookup; "
            f"such a layer answers wrongly: %s. {DOCTOR}",
        )
        yield from _found(
            self._float_into_quantized,
            "float tensor",
            f"{self._name}: %s cast into a quantized type, where the description has a scheme that the tensors do not have; "
            f"such a layer answers wrongly: %s. {DOCTOR}",
        )
        yield from _found(
            self._cut, "tensor", f"{self._name}: %s cut to a smaller parameter: %s; the config does not fit. {DOCTOR}"
        )

    def gaps(self, written: Container[str] | None) -> Iterator[str]:
        """What has not come, when all is said to be there. *written*: :func:`plain` names of all parameters that were."""
        yield from _found(
            list(self._missing_experts()),
            "place",
            f"{self._name}: experts are missing in %s: %s; the checkpoint is incomplete, download it again. {DOCTOR}",
        )
        yield from _found(
            list(self._unwritten(written)),
            "parameter",
            f"{self._name}: %s never written, with whatever memory held: %s. {DOCTOR}",
        )

    def _missing_experts(self) -> Iterator[str]:
        for module, kinds in self._experts.items():
            every = set().union(*kinds.values())
            for kind, held in kinds.items():
                if held != every:
                    lacking = sorted(every - held, key=int)
                    yield f"{module}.{{{','.join(lacking[:4])}{',...' if len(lacking) > 4 else ''}}}.{kind}"

    def _unwritten(self, written: Container[str] | None) -> Iterator[str]:
        if written is None:
            return
        spare = Spare(self._model, draft=self._draft, twins=self._twins)
        for name, _ in self._model.named_parameters():
            if plain(name) not in written and not spare.is_spare(name, written, self._homeless):
                yield name


def _expert(name: str) -> tuple[str, str, str]:
    """(``...experts``, the number, the rest) of an expert's tensor *name*; no number where it is none."""
    head, experts, tail = f".{name}".partition(".experts.")
    number, _, kind = tail.partition(".")
    return f"{head}.experts".lstrip("."), number if experts and number.isdigit() else "", kind


@lru_cache(maxsize=64)
def is_quantized(dtype: Any) -> bool:
    """Is it a dtype of quantized weights: integers or floats of a byte or less?"""
    text = str(dtype)
    return "int8" in text or "float8" in text or "int4" in text or "float4" in text


def _short(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def _is_cut(tensor: tuple[int, ...], parameter: tuple[int, ...], ranks: int) -> bool:
    """Is a dimension of the tensor larger than what all ranks together hold of it?

    A tensor that the loader transposes (gpt-oss in bf16, Qwen3-VL-MoE) has larger dimensions and as many values.
    """
    larger = any(t > p * ranks for t, p in zip(tensor, parameter))
    return len(tensor) == len(parameter) and larger and prod(tensor) > prod(parameter) * ranks


def _tensor_parallel_size() -> int:
    from vllm.distributed import get_tensor_model_parallel_world_size

    return int(get_tensor_model_parallel_world_size())


def _found(places: list[str], what: str, message: str) -> Iterator[str]:
    if places:
        yield message % (counted(len(places), what), ", ".join(places[:2]) + (", ..." if len(places) > 2 else ""))
