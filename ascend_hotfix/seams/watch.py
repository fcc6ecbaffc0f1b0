"""What upstream takes in silence while a server loads: checks that need no pass of their own.

A quantized tensor cast into a float parameter and the reverse, a tensor cut to the parameter's shape, an
expert that is missing, a parameter that nothing has written. Each kind is one finding with a count and two
examples. Names that no checkpoint of the vendor's tool fills, and that upstream does not read, are left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterator
from functools import lru_cache
from math import prod
from typing import Any

from ascend_hotfix.names import matches
from ascend_hotfix.words import counted

__all__ = ["Watch", "is_leftover", "is_quantized"]

# Parameters that stay unwritten in a right load. Sources: the schemes of vllm-ascend 0.11 to 0.30 and what
# msModelSlim 26.1.0 writes.
LEFTOVERS = (
    "**.ascend_conv1d_weight",  # derived from conv1d.weight after loading
    "**.fa_q.*",  # q is quantized dynamically; only fa_k is read
    "**.q_rot",  # sparse attention makes its own Hadamard matrix
    "**.k_rot",
    "**.q_scale",  # scales of vLLM's quantized KV cache start as -1, which stands for none
    "**.k_scale",
    "**.v_scale",
    "**.prob_scale",
    "**.q_zero_point",
    "**.k_zero_point",
    "**.v_zero_point",
)
# A draft shares these with the target.
SHARED = ("embed_tokens.weight", "lm_head.weight", "shared_head.head.weight", "head.weight")
DRAFTS = ("mtp", "eagle", "medusa", "nextn", "draft")
# A static W8A8 layer of the tool's v1 service has deq_scale alone; these are not read then.
STATIC_UNREAD = ("weight_scale", "weight_offset")
DOCTOR = "'ascend-hotfix doctor MODEL_DIR' tells more"


class Watch:
    """Sees the tensors of one load pass by."""

    def __init__(self, model: Any) -> None:
        self._model = model
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

    def findings(self, loaded: Any) -> Iterator[str]:
        """One message for each kind of fault; *loaded* is what load_weights reports."""
        model = type(self._model).__name__
        yield from _found(
            self._quantized_into_float,
            "quantized tensor",
            f"{model}: %s cast into float, where the layer was taken for a float one at the lookup; "
            f"such a layer answers wrongly: %s. {DOCTOR}",
        )
        yield from _found(
            self._float_into_quantized,
            "float tensor",
            f"{model}: %s cast into a quantized type, where the description has a scheme that the tensors do not have; "
            f"such a layer answers wrongly: %s. {DOCTOR}",
        )
        yield from _found(
            self._cut, "tensor", f"{model}: %s cut to a smaller parameter: %s; the config does not fit. {DOCTOR}"
        )
        yield from _found(
            list(self._missing_experts()),
            "place",
            f"{model}: experts are missing in %s: %s; the checkpoint is incomplete, download it again. {DOCTOR}",
        )
        yield from _found(
            list(self._unwritten(loaded)),
            "parameter",
            f"{model}: %s never written, with whatever memory held: %s. {DOCTOR}",
        )

    def _missing_experts(self) -> Iterator[str]:
        for module, kinds in self._experts.items():
            every = set().union(*kinds.values())
            for kind, held in kinds.items():
                if held != every:
                    lacking = sorted(every - held, key=int)
                    yield f"{module}.{{{','.join(lacking[:4])}{',...' if len(lacking) > 4 else ''}}}.{kind}"

    def _unwritten(self, loaded: Any) -> Iterator[str]:
        if not isinstance(loaded, set):
            return
        written = {_plain(name) for name in loaded}
        is_draft = any(word in type(self._model).__name__.lower() for word in DRAFTS)
        tied = bool(getattr(getattr(self._model, "config", None), "tie_word_embeddings", False))
        for name, _ in self._model.named_parameters():
            if _plain(name) not in written and not is_leftover(name, written):
                shared = name.endswith(SHARED)
                if not (shared and (is_draft or tied)):
                    yield name


def is_leftover(name: str, written: Container[str] = ()) -> bool:
    """Does parameter *name* stay unwritten in a right load, given the *written* ones?"""
    module, _, leaf = name.rpartition(".")
    if leaf == "bias" and "norm" in module.rpartition(".")[2]:
        return True  # vllm-ascend adds them, initialized to zero
    if leaf in STATIC_UNREAD and f"{_plain(module)}.deq_scale" in written:
        return True
    return any(matches(pattern, name) for pattern in LEFTOVERS)


def _expert(name: str) -> tuple[str, str, str]:
    """(``...experts``, the number, the rest) of an expert's tensor *name*; no number where it is none."""
    head, experts, tail = f".{name}".partition(".experts.")
    number, _, kind = tail.partition(".")
    return f"{head}.experts".lstrip("."), number if experts and number.isdigit() else "", kind


def _plain(name: str) -> str:
    """*name* without ``routed_experts``: load_weights of vLLM 0.30 reports names without it."""
    return name.replace(".routed_experts.", ".")


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
