"""Checks that a checkpoint is whole: layers, experts, the parts of a fused layer, the router's bias.

Works on names and schemes alone. What a model must have is known here only where the names say so themselves
(``q_proj`` comes with ``k_proj``) or config.json does (number of layers and experts); the rest is the dry run's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ascend_hotfix.doctor.bounds import MOST, MOST_ODD
from ascend_hotfix.doctor.checkpoint import model_types
from ascend_hotfix.doctor.config import DRAFT_COUNTS, EXPERT_COUNTS, SIZE
from ascend_hotfix.doctor.findings import pattern
from ascend_hotfix.doctor.schemes import is_float, scheme_of
from ascend_hotfix.doctor.view import TOWERS, WEIGHTS, Experts, View, layer_count
from ascend_hotfix.names import matches, number_of
from ascend_hotfix.versions import fits
from ascend_hotfix.words import counted

__all__ = [
    "Filling",
    "check_draft",
    "check_experts",
    "check_fused",
    "check_heads",
    "check_layers",
    "check_router_bias",
    "check_shadowed",
]

FUSED: tuple[tuple[str, ...], ...] = (
    ("q_proj", "k_proj", "v_proj"),
    ("gate_proj", "up_proj"),
    ("q_a_proj", "kv_a_proj_with_mqa"),
    ("in_proj_qkv", "in_proj_z"),
    ("in_proj_b", "in_proj_a"),
    ("w1", "w3"),
    ("wq_a", "wkv"),
)
"""Layers that vLLM fuses into one parameter, which has one scheme."""

TOGETHER: tuple[tuple[str, ...], ...] = (
    ("q_proj", "k_proj", "v_proj"),
    ("gate_proj", "up_proj", "down_proj"),
    ("w1", "w2", "w3"),
    ("q_a_proj", "q_b_proj"),
    ("kv_a_proj_with_mqa", "kv_b_proj", "o_proj"),
    ("in_proj_qkv", "in_proj_z", "in_proj_a", "in_proj_b"),
)
"""Layers that come with each other: where one is missing and other layers have it, it was lost."""

# Gemma 4 shares k and v in its global layers, so v_proj is missing there on purpose.
SHARED_KV = frozenset({"gemma4", "gemma4_text"})
ROUTER_BIAS = ("gate.e_score_correction_bias", "e_score_correction_bias", "router.e_score_correction_bias", "gate.bias")
# Routers with a score correction bias although the config does not say noaux_tc: vLLM builds one for these.
BIASED_ROUTERS = frozenset({"glm4_moe", "glm4_moe_lite", "glm4v_moe", "glm4v_moe_text"})
LISTS = frozenset({"layers", "blocks", "mtp", "mlps"})
# What comes before "layers" in the language model's names; other stacks have other numbers of layers.
LANGUAGE = frozenset({"model", "language_model", "decoder", "transformer", "llm"})
MOST_SHOWN = 4


def _spans(numbers: list[int]) -> str:
    """A short text for a list of numbers: ``3, 7 to 9``."""
    spans: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if spans and number == spans[-1][1] + 1:
            spans[-1] = spans[-1][0], number
        else:
            spans.append((number, number))
    shown = [str(a) if a == b else f"{a} to {b}" for a, b in spans[:MOST_SHOWN]]
    return ", ".join(shown) + (", ..." if len(spans) > MOST_SHOWN else "")


# -- experts ----------------------------------------------------------------------------------------------------------


class Filling(NamedTuple):
    """A selected patch gives parameters that match *pattern* this *value* where no tensor does."""

    pattern: str
    value: float
    patch: str


def _expected_experts(view: View) -> int | None:
    counts = (view.text_config.get(key) for key in EXPERT_COUNTS)
    return next((count for count in counts if type(count) is int and 0 < count <= MOST), None)


def _check_expert_numbers(view: View, layers: Mapping[str, Experts], expected: int | None) -> None:
    """The experts of each layer are as many as config.json says, or at least without a gap."""
    missing: dict[str, list[int]] = {}
    for container, experts in layers.items():
        here = expected
        if here is None or not TOWERS.isdisjoint(container.split(".")):
            here = max(experts.numbers) + 1
        absent = view.absent(container, experts.numbers, here)
        if absent:
            missing[container] = absent
        for number in sorted(n for n in experts.numbers if n >= min(here, MOST)):
            view.found.add("expert-surplus", f"{container}.{number}", expected=here)
    spans = {_spans(numbers) for numbers in missing.values()}
    where = spans.pop() if len(spans) == 1 else f"other ones in each of {counted(len(missing), 'layer')}"
    names = [f"{container}.{number}" for container, numbers in missing.items() for number in numbers]
    for name in names:
        view.found.add("expert-absent", name, where=where)
    view.mark_gone(f"{name}.weight" for name in names)


def _check_expert_parts(view: View, container: str, experts: Experts) -> None:
    """Every expert of a layer has the same parts, stored alike."""
    tensors = view.checkpoint.tensors
    for part, kinds in experts.kinds.items():
        leaf = part.rpartition(".")[2]
        unread = any(
            (s := scheme_of(name)) and leaf in s.companions and not s.companions[leaf].read for name in experts.schemes
        )
        if sum(kinds.values()) < len(experts.numbers) and not unread:
            for number in sorted(experts.numbers):
                name = f"{container}.{number}.{part}"
                if name not in tensors and view.may_miss(name):
                    view.found.add("expert-part-absent", name, leaf=part)
                    view.mark_gone([name])
        if len(kinds) > 1:
            usual = max(kinds, key=lambda kind: kinds[kind])
            for number in sorted(experts.numbers):
                tensor = tensors.get(f"{container}.{number}.{part}")
                if tensor is not None and (tensor.dtype, tensor.shape) != usual:
                    what = "shape" if tensor.dtype == usual[0] else "dtype"
                    view.found.add("expert-shape", f"{container}.{number}.{part}", what=what)


def _mix(schemes: Mapping[str, int]) -> str:
    return " and ".join(scheme for scheme, _ in sorted(schemes.items(), key=lambda item: (-item[1], item[0])))


def check_experts(view: View) -> None:
    """Numbers, parts and schemes of the experts of each layer. Runs before the checks of single modules."""
    expected = _expected_experts(view)
    unset = [key for key in EXPERT_COUNTS if key in view.text_config and view.text_config[key] is None]
    if unset and expected is None and view.experts:
        view.found.add("config-value", unset[0], place="config.json", key=unset[0], found="null", expected=SIZE[1])
    _check_expert_numbers(view, view.experts, expected)
    for container, experts in view.experts.items():
        _check_expert_parts(view, container, experts)
        if len(experts.schemes) > 1:
            view.found.add("experts-mixed", container, mix=_mix(experts.schemes))


def check_router_bias(view: View, fills: Sequence[Filling] = ()) -> None:
    """Routers that score with a correction bias have one, or a patch (*fills*) gives them one.

    From the config (``topk_method`` is ``noaux_tc``, ``use_routing_bias``), from the model types whose vLLM class
    builds it always, or because another router of the checkpoint has one. Hash layers (DeepSeek-V4) route by a table.
    """
    parents = {container.rpartition(".")[0]: None for container in view.experts}
    tensors = view.checkpoint.tensors
    present = {parent: leaf for parent in parents for leaf in ROUTER_BIAS if f"{parent}.{leaf}" in tensors}
    config = view.text_config
    needed = (
        bool(present)
        or config.get("topk_method") == "noaux_tc"
        or config.get("use_routing_bias") is True
        or not BIASED_ROUTERS.isdisjoint(model_types(view.checkpoint.config))
    )
    if not needed:
        return
    usual = Counter(present.values()).most_common(1)
    leaf = usual[0][0] if usual else ROUTER_BIAS[0]
    for parent in parents:
        if parent in present or f"{parent}.gate.tid2eid" in tensors:
            continue
        name = f"{parent}.{leaf}"
        filling = next((filling for filling in fills if matches(filling.pattern, name)), None)
        if filling is not None:
            view.found.add("router-bias-filled", name, leaf=leaf, patch=filling.patch, value=filling.value)
        elif view.may_miss(name):
            view.found.add("router-bias-absent", name, leaf=leaf)


# -- fused layers -----------------------------------------------------------------------------------------------------


def _children(view: View) -> dict[str, set[str]]:
    """Parent module to the names of its children that have a weight; experts are left out."""
    children: dict[str, set[str]] = {}
    for module in view.outside:
        if "weight" in view.modules[module] and ".experts." not in module:
            parent, _, child = module.rpartition(".")
            children.setdefault(parent, set()).add(child)
    return children


def check_fused(view: View) -> None:
    """Shards of one fused layer have one scheme, and none of them is missing."""
    patterns = {pattern(module) for module in view.outside}
    shared_kv = not SHARED_KV.isdisjoint(model_types(view.checkpoint.config))
    for parent, children in _children(view).items():
        for group in FUSED:
            said = ((shard, view.schemes.get(f"{parent}.{shard}.weight")) for shard in group if shard in children)
            schemes = {shard: scheme for shard, scheme in said if scheme is not None}
            if len(set(schemes.values())) > 1:
                mix = ", ".join(f"{shard} {scheme}" for shard, scheme in schemes.items())
                view.found.add("shards-mixed", f"{parent}.{group[0]}", mix=mix, group=", ".join(group))
        for group in TOGETHER:
            here = children.intersection(group)
            # one alone may mean something else: q_proj of MLA without a query rank, down_proj of another kind of MLP
            if len(here) < min(2, len(group) - 1) or (shared_kv and "v_proj" in group):
                continue
            for absent in sorted(set(group) - here):
                # an MLP without a gate is a kind of its own; only where other layers have one was it lost
                if pattern(f"{parent}.{absent}") in patterns and view.may_miss(f"{parent}.{absent}"):
                    others = f"layers with {' and '.join(sorted(here))}"
                    view.found.add("module-absent", f"{parent}.{absent}", module=absent, others=others)
                    view.mark_gone([f"{parent}.{absent}.weight"])


def check_shadowed(view: View, release: str | None) -> None:
    """Quantized layers that vllm-ascend 0.16 to 0.29 takes for float because a FLOAT neighbour's name starts alike.

    Its test for float compares names by ``startswith`` without a dot (removed by vllm-ascend#16051). A layer that is
    part of a fused one is looked up by its full name and not concerned.
    """
    if release is None or not fits(release, ">=0.16,<0.30"):
        return
    fused = {shard for group in FUSED for shard in group}
    for parent, children in _children(view).items():
        schemes = {child: view.schemes.get(f"{parent}.{child}.weight", "FLOAT") for child in sorted(children)}
        names = list(schemes)
        for at, child in enumerate(names):
            if is_float(schemes[child]) or child in fused:
                continue
            # what begins with a name follows it in order
            begins = [name for name in names[at + 1 : at + 1 + MOST_ODD] if name.startswith(child)]
            for other in begins:
                if is_float(schemes[other]):
                    view.found.add("skipped-by-prefix", f"{parent}.{child}", module=child, neighbour=other)


# -- layers -----------------------------------------------------------------------------------------------------------


def _stacks(view: View) -> dict[str, set[int]]:
    """Every numbered list of layers: ``model.layers`` to the numbers that have a tensor."""
    stacks: dict[str, set[int]] = {}
    for module in (*view.outside, *(f"{container}.x" for container in view.experts)):
        segments = module.split(".")
        for at, segment in enumerate(segments[:-1]):
            if segment in LISTS and (number := number_of(segments[at + 1])) is not None:
                stacks.setdefault(".".join(segments[: at + 1]), set()).add(number)
    return stacks


def _is_language(stack: str) -> bool:
    segments = stack.split(".")
    return segments[-1] == "layers" and TOWERS.isdisjoint(segments) and (len(segments) == 1 or segments[-2] in LANGUAGE)


def check_layers(view: View) -> None:
    """No list of layers has a gap, and the language model has as many as config.json says."""
    count = layer_count(view.text_config)
    for stack, numbers in _stacks(view).items():
        language = _is_language(stack) and "mtp" not in stack.split(".")
        expected = max(count, max(numbers) + 1) if language else max(numbers) + 1
        missing = view.absent(stack, numbers, expected)
        where = f"{stack}: {_spans(missing)}"
        for number in missing:
            view.found.add("layer-absent", f"{stack}.{number}", expected=expected, where=where)
        view.mark_gone(f"{stack}.{number}.weight" for number in missing)
    _check_odd_layers(view)


def _layer_modules(view: View) -> Iterator[tuple[str, int, str]]:
    """(stack, layer, module within the layer) for each module with a weight outside the experts."""
    for module in view.outside:
        segments = module.split(".")
        leaves = view.modules[module].keys()
        if "layers" not in segments or "experts" in segments or leaves.isdisjoint(WEIGHTS):
            continue
        at = segments.index("layers")
        stack = ".".join(segments[: at + 1])
        number = number_of(segments[at + 1]) if at + 2 < len(segments) else None
        if number is not None and _is_language(stack):
            yield stack, number, ".".join(segments[at + 2 :])


def _check_odd_layers(view: View) -> None:
    """One layer that lacks one module which all layers otherwise like it have, three or more of them."""
    layers: dict[tuple[str, int], set[str]] = {}
    for stack, number, module in _layer_modules(view):
        if not view.draft(f"{stack}.{number}.x"):
            layers.setdefault((stack, number), set()).add(module)
    kinds: Counter[frozenset[str]] = Counter(frozenset(modules) for modules in layers.values())
    usual: dict[int, list[tuple[frozenset[str], int]]] = {}
    for kind, count in kinds.most_common(MOST_ODD):
        if count >= 3:
            usual.setdefault(len(kind), []).append((kind, count))
    for (stack, number), modules in layers.items():
        if kinds[frozenset(modules)] > 1:
            continue
        for kind, count in usual.get(len(modules) + 1, ()):
            if modules < kind:
                (module,) = kind - modules
                name = f"{stack}.{number}.{module}"
                if view.may_miss(name):
                    view.found.add("module-odd", name, module=module, others=count)


def check_heads(view: View) -> None:
    """The embedding is there, and the head too where config.json says that they are not tied."""
    tied = [config.get("tie_word_embeddings") for config in (view.checkpoint.config, view.text_config)]
    outer = (module for module in view.outside if ".layers." not in f".{module}")
    names = {module.rpartition(".")[2] for module in outer if TOWERS.isdisjoint(module.split("."))}
    if (
        not view.blind
        and not any("emb" in name or name == "wte" for name in names)
        and view.may_miss("model.embed_tokens")
    ):
        view.found.add("module-absent", "embed_tokens.weight", module="embed_tokens", others="every language model")
    # only where config.json says false: what a missing key means depends on the model
    headless = not any("head" in name or "out" in name for name in names)
    if False in tied and True not in tied and headless and view.may_miss("lm_head"):
        view.found.add("module-absent", "lm_head.weight", module="lm_head", others="a model without tied embeddings")


def check_draft(view: View) -> None:
    """Note where config.json announces draft layers and the files have none."""
    counts = (view.text_config.get(key) for key in DRAFT_COUNTS)
    expected = next((count for count in counts if isinstance(count, int) and count > 0), 0)
    if expected and not any(view.draft(name) for name in view.checkpoint.tensors):
        view.found.add("draft-absent", expected=expected)
