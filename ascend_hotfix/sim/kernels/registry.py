"""Collects the reference kernels and registers them on upstream's op schemas, so that no argument is ever ignored.

A kernel is a function whose parameters are the schema arguments it understands, under their schema names. An argument
of the schema that the function does not have may only hold its default; anything else raises
:class:`NotImplementedError` with the name of the op and of the argument.
"""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

__all__ = ["HITS", "kernel", "missing", "name_what_is_missing", "register", "registered", "unsupported"]

HITS: Counter[str] = Counter()
"""How often each kernel has run in this process."""

Kernel = TypeVar("Kernel", bound=Callable[..., Any])


@dataclass(frozen=True)
class _Entry:
    op: str
    function: Callable[..., Any]
    schema: str | None

    @property
    def namespace(self) -> str:
        return self.op.partition("::")[0]

    @property
    def name(self) -> str:
        return self.op.partition("::")[2]


_entries: dict[str, _Entry] = {}
_libraries: dict[str, Any] = {}
_registered: set[str] = set()
_named: set[str] = set()


def kernel(op: str, schema: str | None = None) -> Callable[[Kernel], Kernel]:
    """Make the decorated function the reference kernel of ``op`` (``"npu::npu_swiglu"``, with ``.overload`` where it
    has one).

    ``schema``: the arguments and results, ``"(Tensor x, ...) -> Tensor"``, for an op whose definition lives in a
    binary that is not loaded here; it is defined when nobody else has.
    """

    def keep(function: Kernel) -> Kernel:
        if op in _entries:
            raise ValueError(f"{op} has two reference kernels")
        _entries[op] = _Entry(op, function, schema)
        return function

    return keep


def unsupported(op: str, argument: str, value: object) -> NotImplementedError:
    """The error of a kernel that is given a value it has no definition for."""
    shown = f"Tensor{tuple(value.shape)} {value.dtype}" if isinstance(value, torch.Tensor) else repr(value)
    return NotImplementedError(f"simulated NPU: the reference kernel of {op} does not implement {argument}={shown}")


_TOPICS = (
    ("mx", r"(^|_)(dynamic_)?(\w+_)?mx(_|$)"),
    ("moe", "moe|expert|routing|grouped_topk"),
    ("attention", "attention|attn|indexer|infer|paged|mla|fused_causal"),
    ("rope", "rope|rotary|mrope"),
    ("activation", "swiglu|silu|gelu|geglu|situ"),
    ("matmul", "matmul|batchmatmul|linear|_mm(_|$)|bmm"),
    ("norm", "norm"),
    ("int4", "int4"),
    ("quantize", "quant"),
    ("memory", "format|prefetch|cache|copy|scatter|gather|cast"),
)
"""Module of :mod:`ascend_hotfix.sim.kernels` and the names of the ops that belong there, the first that fits."""


def missing(op: str) -> str:
    """What is said of an op that has no reference kernel: its name, and the file that one belongs to."""
    name = op.rpartition("::")[2]
    topic = next((topic for topic, names in _TOPICS if re.search(names, name)), None)
    place = f"ascend_hotfix/sim/kernels/{topic}.py" if topic else "a new module in ascend_hotfix/sim/kernels/"
    return (
        f"simulated NPU: {op} has no CPU reference kernel, and nothing is made up in its place; "
        f'add one to {place} with @kernel("{op}")'
    )


def name_what_is_missing(namespace: str) -> None:
    """Make every op of ``namespace`` that cannot run on CPU tensors raise :func:`missing` instead of torch's dispatcher.

    An op that is not even defined here, because its binary is not loaded, is an AttributeError with the same words, so
    that ``hasattr`` still answers no. Idempotent; run after :func:`register`.
    """
    library = _libraries[namespace]
    for op in torch._C._dispatch_get_all_op_names():
        if op.startswith(f"{namespace}::") and op not in _registered | _named and not _runs_on_cpu(op):
            library.impl(op.partition("::")[2], _refusal(op), "CPU")
            _named.add(op)
    getattr(torch.ops, namespace).__class__ = _Namespace


def _runs_on_cpu(op: str) -> bool:
    keys = ("CPU", "BackendSelect", "CompositeImplicitAutograd", "CompositeExplicitAutograd")
    return any(torch._C._dispatch_has_kernel_for_dispatch_key(op, key) for key in keys)


def _refusal(op: str) -> Callable[..., Any]:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(missing(op))

    return refuse


class _Namespace(type(torch.ops.aten)):  # type: ignore[misc]
    """``torch.ops.<namespace>``, whose missing ops are told apart from misspelt Python."""

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name.startswith("_"):
                raise
            raise AttributeError(missing(f"{self.name}::{name}")) from None


def registered() -> frozenset[str]:
    """The ops that run on the CPU in this process."""
    return frozenset(_registered)


def register(namespace: str) -> None:
    """Register every collected kernel of ``namespace``; idempotent. Ops that this torch_npu does not have are left
    out.
    """
    library = _libraries.get(namespace)
    if library is None:
        library = _libraries[namespace] = torch.library.Library(namespace, "FRAGMENT")
    for entry in _entries.values():
        if entry.namespace != namespace or entry.op in _registered:
            continue
        overload = _overload(entry)
        if overload is None:
            if entry.schema is None:
                continue
            library.define(entry.name + entry.schema)
            overload = _overload(entry)
        library.impl(entry.name, _guarded(entry, overload._schema), "CPU")
        _registered.add(entry.op)


def _overload(entry: _Entry) -> Any:
    name, _, overload = entry.name.partition(".")
    packet = getattr(getattr(torch.ops, entry.namespace), name, None)
    return None if packet is None else getattr(packet, overload or "default")


def _guarded(entry: _Entry, schema: Any) -> Callable[..., Any]:
    names = [argument.name for argument in schema.arguments]
    defaults = {argument.name: argument.default_value for argument in schema.arguments if argument.has_default_value()}
    understood = set(inspect.signature(entry.function).parameters)
    unknown = understood - set(names)
    if unknown:
        raise TypeError(f"reference kernel of {entry.op}: {sorted(unknown)} are not arguments of {schema}")

    def run(*args: Any, **kwargs: Any) -> Any:
        given = dict(zip(names, args, strict=False)) | kwargs
        HITS[entry.op] += 1
        return entry.function(**_checked(entry.op, given, understood, defaults))

    return run


def _checked(op: str, given: Mapping[str, Any], understood: set[str], defaults: Mapping[str, Any]) -> dict[str, Any]:
    for name, value in given.items():
        if name not in understood and not _is_default(value, defaults.get(name)):
            raise unsupported(op, name, value)
    return {name: value for name, value in given.items() if name in understood}


def _is_default(value: Any, default: Any) -> bool:
    if value is None or default is None or isinstance(value, torch.Tensor):
        return value is default
    if isinstance(value, (list, tuple)):
        return list(value) == list(default)
    return bool(value == default)
