"""Which parameters of a built model need no tensor of the checkpoint: one rule for the server and the doctor.

Nothing is listed by model or layer. A parameter is spare where the installed release says so:

- it is another one's (tied) by identity, or a head that the config ties;
- in a draft, an embedding or a head, which the proposer takes from the target;
- the class of vllm-ascend, or the quantization method, that adds it starts it with what stands for none: a bias, offset or
  zero point of zero, the scale of a KV cache of -1 or 1;
- vllm-ascend derives it from another parameter after loading;
- a static W8A8 layer has ``deq_scale``, the product of the scales, and its method is the one that reads that;
- vllm-ascend makes it and reads it nowhere. A checkpoint that has the tensor all the same is a different matter.

What a release does is read from its source, for the few parameters that a load leaves unwritten.
"""

from __future__ import annotations

import ast
import functools
import inspect
import re
import sys
import textwrap
from collections.abc import Collection, Container, Iterator, Mapping
from pathlib import Path
from typing import Any

__all__ = ["FACTORS", "PRODUCT", "STATIC", "Spare", "plain", "twins_of"]

STATIC = "AscendW8A8LinearMethod"
"""The scheme class of static W8A8, in every release."""

PRODUCT = "deq_scale"
FACTORS = ("weight_scale", "weight_offset")
NONE_ADDED = ("bias", "offset", "zero_point")
ASCEND = "vllm_ascend"
START = {"zeros": 0.0, "zeros_like": 0.0, "ones": 1.0, "ones_like": 1.0, "empty": None, "empty_like": None}


def plain(name: str) -> str:
    """*name* without ``routed_experts``: load_weights of vLLM 0.30 reports names without it."""
    return name.replace(".routed_experts.", ".")


class Spare:
    """Asks of one built model. *draft*: is it the draft of speculative decoding?

    *twins*: what :func:`twins_of` said when it was built; while vLLM reloads layers, each has a parameter of its own.
    """

    def __init__(self, model: Any, *, draft: bool = False, twins: Mapping[str, list[str]] | None = None) -> None:
        self._model, self._draft = model, draft
        self._modules: dict[str, Any] | None = None
        self._twins = twins_of(model) if twins is None else twins
        self._stored: dict[str, bool] = {}

    def is_spare(self, name: str, written: Container[str], homeless: Collection[str] = ()) -> bool:
        """Does parameter *name* need no tensor, given the :func:`plain` names of those *written*?

        *homeless* are tensors of the checkpoint that reached no parameter: one that is called so was meant for it.
        """
        path, _, leaf = name.rpartition(".")
        module = self._module(path)
        return (
            any(plain(twin) in written for twin in self._twins.get(name, ()))
            or self._is_shared(module)
            or _starts_as_none(module, leaf)
            or self._is_multiplied(name, module, leaf, written)
            or _is_derived(leaf)
            or _is_unread(path, leaf, homeless)
        )

    def _module(self, path: str) -> Any:
        if self._modules is None:
            self._modules = dict(self._model.named_modules(remove_duplicate=False)) if _takes_torch(self._model) else {}
        return self._modules.get(path)

    def _is_shared(self, module: Any) -> bool:
        classes = _class_names(module)
        if self._draft and "VocabParallelEmbedding" in classes:
            return True
        config = getattr(self._model, "config", None)
        holders = (config, getattr(config, "text_config", None))
        return "ParallelLMHead" in classes and any(
            getattr(one, "tie_word_embeddings", False) is True for one in holders
        )

    def _is_multiplied(self, name: str, module: Any, leaf: str, written: Container[str]) -> bool:
        """Is it a factor of a ``deq_scale`` that was written? A checkpoint has its static factors everywhere, or nowhere."""
        if leaf not in FACTORS or plain(f"{name.rpartition('.')[0]}.{PRODUCT}") not in written:
            return False
        if STATIC not in _methods(module):
            return False
        if leaf not in self._stored:
            self._stored[leaf] = any(
                STATIC in _methods(one) and plain(f"{path}.{leaf}") in written
                for path, one in (self._modules or {}).items()
            )
        return not self._stored[leaf]


def twins_of(model: Any) -> dict[str, list[str]]:
    """The names of each parameter that has several."""
    groups: dict[int, list[str]] = {}
    if _takes_torch(model):
        for name, parameter in type(model).named_parameters(model, remove_duplicate=False):
            groups.setdefault(id(parameter), []).append(name)
    return {name: names for names in groups.values() if len(names) > 1 for name in names}


def _takes_torch(model: Any) -> bool:
    return "Module" in _class_names(model)


def _class_names(thing: Any) -> set[str]:
    return {cls.__name__ for cls in type(thing).__mro__}


def _method_objects(module: Any) -> Iterator[Any]:
    method = getattr(module, "quant_method", None)
    for one in (method, getattr(method, "quant_method", None), getattr(method, "scheme", None)):
        if one is not None:
            yield one


def _methods(module: Any) -> set[str]:
    return {type(one).__name__ for one in _method_objects(module)}


# --- what the release's source says --------------------------------------------------------------------------------------


def _starts_as_none(module: Any, leaf: str) -> bool:
    """Does what adds parameter *leaf* to *module* start it with a number that stands for none?

    vLLM's own layers are not asked of a bias: a checkpoint has it where the class does.
    """
    if module is None:
        return False
    methods = [cls for one in _method_objects(module) for cls in type(one).__mro__]
    if leaf.endswith("scale"):
        starts = {start for cls in methods if "KVCache" in cls.__name__ for start in _starts(cls, leaf)}
        return bool(starts) and starts <= {-1.0, 1.0}
    added = [cls for cls in type(module).__mro__ if cls.__module__.startswith(ASCEND)]
    starts = {start for cls in (*added, *methods) for start in _starts(cls, leaf)}
    return leaf.endswith(NONE_ADDED) and starts == {0.0}


@functools.lru_cache(maxsize=512)
def _starts(cls: type, leaf: str) -> frozenset[float | None]:
    """The numbers with which *cls* creates parameter *leaf*; None for whatever memory holds."""
    tree = _tree_of(cls)
    if tree is None:
        return frozenset()
    around = vars(sys.modules.get(cls.__module__, object))
    given = [value for node in ast.walk(tree) for value in _given(node, leaf)]
    return frozenset(number for value in given for number in _numbers(value, around))


def _tree_of(cls: type) -> ast.Module | None:
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(cls)))
    except (OSError, TypeError, SyntaxError):
        return None


def _given(node: ast.AST, leaf: str) -> Iterator[ast.expr]:
    """What *node* gives the parameter *leaf*: an attribute, an entry of a dict, an argument of register_parameter."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            attribute = isinstance(target, ast.Attribute) and target.attr == leaf
            if attribute or (isinstance(target, ast.Subscript) and _is_text(target.slice, leaf)):
                yield node.value
    elif isinstance(node, ast.Dict):
        yield from (value for key, value in zip(node.keys, node.values) if _is_text(key, leaf))
    elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "register_parameter" and node.args:
        yield from node.args[1:2] if _is_text(node.args[0], leaf) else ()


def _is_text(node: ast.AST | None, text: str) -> bool:
    return isinstance(node, ast.Constant) and node.value == text


def _numbers(value: ast.expr, around: Mapping[str, Any]) -> Iterator[float | None]:
    """The number in the first call in *value* that makes a tensor: one of torch, or of a kind of parameter of its own."""
    for node in ast.walk(value):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        kind = around.get(name) if isinstance(node.func, ast.Name) else None
        if name in START:
            yield START[name]
            return
        if name in ("tensor", "full") and node.args:
            yield _number(node.args[-1] if name == "full" else node.args[0])
            return
        if isinstance(kind, type) and "Parameter" in {cls.__name__ for cls in kind.__mro__[1:]}:
            tree = _tree_of(kind)
            for call in ast.walk(tree) if tree is not None else ():
                if isinstance(call, ast.Call):
                    yield from _numbers(call, {})
            return


def _number(node: ast.expr) -> float | None:
    try:
        number = ast.literal_eval(node)
    except ValueError:
        return None
    return float(number) if isinstance(number, int | float) else None


@functools.lru_cache(maxsize=1)
def _ascend_files() -> tuple[tuple[Path, str], ...]:
    """Every source file of the installed vllm-ascend, with its text."""
    package = sys.modules.get(ASCEND)
    folders = [Path(one) for one in getattr(package, "__path__", ())]
    files = [file for folder in folders for file in sorted(folder.rglob("*.py"))]
    return tuple((file, file.read_text(encoding="utf-8", errors="replace")) for file in files)


REGISTER, REPLACE = "register_parameter", "replace_parameter"


@functools.lru_cache(maxsize=256)
def _trees(word: str, *beside: str) -> tuple[ast.Module, ...]:
    """The files of vllm-ascend in which *word* stands, and one of *beside* where there are any."""
    found = []
    for file, text in _ascend_files():
        if word not in text or (beside and not any(one in text for one in beside)):
            continue  # a search for the whole word takes a hundred times as long
        if re.search(rf"\b{re.escape(word)}\b", text):
            try:
                found.append(ast.parse(text, str(file)))
            except SyntaxError:  # of a newer Python
                continue
    return tuple(found)


@functools.lru_cache(maxsize=256)
def _is_derived(leaf: str) -> bool:
    """Does vllm-ascend register parameter *leaf* under a constant, and replace it from another one (``replace_parameter``)?"""
    registered = replaced = False
    for tree in _trees(leaf, REGISTER, REPLACE):
        names = {
            target.id
            for node in tree.body
            if isinstance(node, ast.Assign) and _is_text(node.value, leaf)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                mine = any(isinstance(one, ast.Name) and one.id in names for one in node.args)
                registered = registered or (mine and called == REGISTER)
                replaced = replaced or (mine and called == REPLACE)
    return registered and replaced


def _is_unread(path: str, leaf: str, tensors: Collection[str]) -> bool:
    """Does vllm-ascend create the parameter by a name that it asks for nowhere, and is none of *tensors* called so?

    The name is the last segment, or the one before it, of which vllm-ascend makes a module to hold the parameter.
    """
    holder = path.rpartition(".")[2]
    for attribute, end in ((holder, f".{holder}.{leaf}"), (leaf, f".{leaf}")):
        if _made_and_unread(f"{holder}.{leaf}", attribute):
            return not any(f".{one}".endswith((end, f"{end}.weight")) for one in tensors)
    return False


@functools.lru_cache(maxsize=256)
def _made_and_unread(key: str, attribute: str) -> bool:
    # the key stands in few files, if in any; the attribute may be called as hundreds of others are
    if not any(_is_text(target.slice, key) for tree in _trees(key) for target in _subscripts(tree)):
        return False
    trees = _trees(attribute)
    return not any(
        (isinstance(node, ast.Attribute) and node.attr == attribute)
        or (isinstance(node, ast.Call) and getattr(node.func, "id", "") == "getattr" and _asks(node, attribute))
        for tree in trees
        for node in ast.walk(tree)
    )


def _subscripts(tree: ast.Module) -> Iterator[ast.Subscript]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            yield from (target for target in node.targets if isinstance(target, ast.Subscript))


def _asks(call: ast.Call, attribute: str) -> bool:
    return len(call.args) > 1 and _is_text(call.args[1], attribute)
