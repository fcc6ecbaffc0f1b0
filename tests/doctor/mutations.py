"""Random faults in genuine checkpoints, for the mutation study of the dry run; each is made from a seed.

A name fault is a renaming of description names, or of these and the tensors together: a patch can undo it. The other
faults are in what is stored; they are to be found, and no rule about names may pretend to mend them.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass

from writer import Spec

Rename = Callable[[str], str]
WORDS = ("backbone", "decoder", "transformer", "base", "core")


@dataclass
class Fault:
    """What was done: ``kind``, a sentence, and for renamed tensors the old name to the new one."""

    kind: str
    what: str
    tensors: dict[str, str] | None = None


def tensor_names(spec: Spec) -> list[str]:
    return [name for tensors in spec.files.values() for name in tensors]


def rename(spec: Spec, change: Rename, *, described: bool, tensors: bool) -> dict[str, str]:
    """Rename the description's tensor entries, the tensors themselves, or both; old name to new of the tensors."""
    assert spec.description is not None
    names = tensor_names(spec)
    moved = {
        name: change(name) for name in {*names, *(k for k in spec.description if "." in k)} if change(name) != name
    }
    if described:
        spec.description = {moved.get(name, name): scheme for name, scheme in spec.description.items()}
    if tensors:
        spec.files = {f: {moved.get(n, n): e for n, e in held.items()} for f, held in spec.files.items()}
        for index in spec.indexes.values():
            for content in (index.get("weight_map", index),):
                for name in [n for n in content if n in moved]:
                    content[moved[name]] = content.pop(name)
    return {old: new for old, new in moved.items() if tensors and old in names}


def top(spec: Spec) -> str:
    """The first segments of the decoder layers: ``model`` or ``model.language_model``."""
    for name in tensor_names(spec):
        found = re.match(r"(.*?)\.?layers\.\d+\.", name)
        if found and "vis" not in name and "mtp" not in name:
            return found[1]
    return ""


def prefix_added(spec: Spec, rng: random.Random) -> tuple[str, Rename]:
    word = rng.choice(WORDS)
    return f"{word}. in front", lambda name: f"{word}.{name}"


def prefix_dropped(spec: Spec, rng: random.Random) -> tuple[str, Rename] | None:
    head = top(spec).partition(".")[0]
    return (f"{head}. dropped", lambda name: name.removeprefix(f"{head}.")) if head else None


def wrapper_swapped(spec: Spec, rng: random.Random) -> tuple[str, Rename] | None:
    parts = top(spec).split(".")
    if len(parts) < 2:
        return None
    old, new = f"{parts[0]}.{parts[1]}.", f"{parts[1]}.{parts[0]}."
    return f"{old} written as {new}", lambda name: new + name[len(old) :] if name.startswith(old) else name


def segment_inserted(spec: Spec, rng: random.Random) -> tuple[str, Rename]:
    word = rng.choice(WORDS)
    where = rng.choice((r"(\.layers\.\d+\.)", r"(\.mlp\.)", r"(\.self_attn\.)"))
    return f"{word} after {where}", lambda name: re.sub(where, rf"\1{word}.", f".{name}", count=1)[1:]


def segment_renamed(spec: Spec, rng: random.Random) -> tuple[str, Rename]:
    old, new = rng.choice((("self_attn", "attention"), ("mlp", "feed_forward"), ("layers", "blocks")))
    return f"{old} -> {new}", lambda name: f".{name}.".replace(f".{old}.", f".{new}.", 1)[1:-1]


def draft_nested(spec: Spec, rng: random.Random) -> tuple[str, Rename] | None:
    layers = spec.config.get("num_hidden_layers")
    head = f"{top(spec)}.layers.{layers}."
    if not isinstance(layers, int) or not any(n.startswith(head) for n in tensor_names(spec)):
        return None
    inner = (f"{head}self_attn.", f"{head}mlp.", f"{head}input_layernorm.", f"{head}post_attention_layernorm.")
    word = rng.choice(("block", "draft_block"))
    return f"draft layer below {word}", lambda n: f"{head}{word}.{n[len(head) :]}" if n.startswith(inner) else n


def draft_moved(spec: Spec, rng: random.Random) -> tuple[str, Rename] | None:
    """The draft layer in a list of its own, not numbered on from the target's."""
    layers, head = spec.config.get("num_hidden_layers"), top(spec)
    old = f"{head}.layers.{layers}."
    if not isinstance(layers, int) or not any(n.startswith(old) for n in tensor_names(spec)):
        return None
    new = f"{head}.{rng.choice(('mtp_layers', 'nextn_layers'))}.0."
    return f"{old} written as {new}", lambda name: new + name[len(old) :] if name.startswith(old) else name


def trainer_left(spec: Spec, rng: random.Random) -> tuple[str, Rename]:
    """What a training framework puts around a model or a layer, left in the names."""
    if rng.random() < 0.5:
        word = rng.choice(("module", "_orig_mod", "base_model.model"))
        return f"{word}. in front", lambda name: f"{word}.{name}"
    where = rng.choice((r"(_proj)\.(?=\w+$)", r"(\.layers\.\d+)\."))
    word = "base_layer" if "proj" in where else "_orig_mod"
    return f"{word} after {where}", lambda name: re.sub(where, rf"\1.{word}.", name, count=1)


EXPERT_NAMES = (("gate_proj", "w1"), ("up_proj", "w3"), ("down_proj", "w2"))


def experts_renamed(spec: Spec, rng: random.Random) -> tuple[str, Rename] | None:
    """The other of the two conventions for the projections of an expert."""
    names = [name for name in tensor_names(spec) if ".experts.0." in name]
    if not names:
        return None
    pairs = EXPERT_NAMES if any(".gate_proj." in name for name in names) else [(b, a) for a, b in EXPERT_NAMES]

    def change(name: str) -> str:
        return re.sub(r"(\.experts\.\d+\.)(\w+)", lambda m: m[1] + dict(pairs).get(m[2], m[2]), name)

    return f"projections of experts called {', '.join(b for _, b in pairs)}", change


def nested_renamed(spec: Spec, rng: random.Random) -> tuple[str, Rename] | None:
    """The frame, a block and what is in it, all under other names."""
    old, new = top(spec), rng.choice(("backbone", "transformer", "decoder"))
    pairs = [("self_attn", rng.choice(("attn", "attention"))), ("o_proj", "dense"), ("mlp", "feed_forward")]
    head = old.split(".")[0]
    if not head:
        return None

    def change(name: str) -> str:
        segments = name.split(".")
        segments[0] = new if segments[0] == head else segments[0]
        return ".".join(dict(pairs).get(segment, segment) for segment in segments)

    return f"{head} -> {new}, {', '.join(f'{a} -> {b}' for a, b in pairs)}", change


def leaf_renamed(spec: Spec, rng: random.Random) -> tuple[str, Rename]:
    """What a scheme stores beside the weight, under another name."""
    old, new = rng.choice((("weight_scale", "scale"), ("weight_offset", "zero_point"), ("deq_scale", "dequant_scale")))
    return f"leaf {old} -> {new}", lambda name: re.sub(rf"\.{old}$", f".{new}", name)


def head_renamed(spec: Spec, rng: random.Random) -> tuple[str, Rename]:
    """Head and embedding, which have one shape."""
    pairs = rng.choice(
        (
            (("lm_head", "output"),),
            (("embed_tokens", "wte"),),
            (("lm_head", "output"), ("embed_tokens", "tok_embeddings")),
        )
    )
    told = dict(pairs)
    return f"{', '.join(f'{a} -> {b}' for a, b in pairs)}", lambda name: ".".join(
        told.get(s, s) for s in name.split(".")
    )


def two_renamed(spec: Spec, rng: random.Random) -> tuple[str, Rename] | None:
    """Two of the faults above at once."""
    one, other = rng.sample((prefix_added, segment_renamed, trainer_left, head_renamed, experts_renamed), 2)
    first, second = one(spec, rng), other(spec, rng)
    if first is None or second is None:
        return None
    return f"{first[0]}; {second[0]}", lambda name: first[1](second[1](name))


NAME_FAULTS = {
    f.__name__: f
    for f in (
        prefix_added,
        prefix_dropped,
        wrapper_swapped,
        segment_inserted,
        segment_renamed,
        trainer_left,
        experts_renamed,
        draft_nested,
        draft_moved,
        nested_renamed,
        leaf_renamed,
        head_renamed,
        two_renamed,
    )
}
DRAFTS = ("draft_nested", "draft_moved")
STORED = ("prefix_added", "wrapper_swapped", "trainer_left")
"""Faults that are tried in the names of the tensors alone as well."""


def shards_fused(spec: Spec, rng: random.Random) -> Fault | None:
    """One description entry in place of those of q, k and v."""
    assert spec.description is not None
    if not any(n.endswith("self_attn.q_proj.weight") for n in spec.description):
        return None
    spec.description = {
        re.sub(r"\b[qkv]_proj\.", "qkv_proj.", name) if ".self_attn." in name else name: scheme
        for name, scheme in spec.description.items()
    }
    return Fault("shards_fused", "q, k and v are one entry of the description", {})


def weights_of(spec: Spec) -> list[str]:
    assert spec.description is not None
    keys = [n for n in tensor_names(spec) if n.endswith("_proj.weight") and n in spec.description and "layers.0." in n]
    return sorted(keys)


def entry_dropped(spec: Spec, rng: random.Random) -> Fault | None:
    name = rng.choice(weights_of(spec) or [""])
    if not name or spec.description is None:
        return None
    spec.description.pop(name)
    return Fault("entry_dropped", name)


def entry_retyped(spec: Spec, rng: random.Random) -> Fault | None:
    name = rng.choice(weights_of(spec) or [""])
    if not name or spec.description is None:
        return None
    module, old = name.removesuffix(".weight"), spec.description[name]
    new = "W8A8_DYNAMIC" if old == "FLOAT" else "FLOAT"
    for key in [k for k in spec.description if k.startswith(f"{module}.")]:
        spec.description[key] = new
    return Fault("entry_retyped", f"{module}: {old} -> {new}")


def keys_spoilt(spec: Spec, rng: random.Random) -> Fault:
    """The keys of the description end with a dot, or are written in another case."""
    assert spec.description is not None
    what = rng.choice(("a dot at the end", "Weight for weight"))
    spec.description = {
        (f"{name}." if what.startswith("a dot") else name.replace(".weight", ".Weight"))
        if "." in name
        else name: scheme
        for name, scheme in spec.description.items()
    }
    return Fault("keys_spoilt", f"keys of the description with {what}")


def schemes_lowered(spec: Spec, rng: random.Random) -> Fault:
    assert spec.description is not None
    spec.description = {
        name: scheme.lower() if "." in name and scheme != "FLOAT" else scheme
        for name, scheme in spec.description.items()
    }
    return Fault("schemes_lowered", "schemes in lower case")


def experts_packed(spec: Spec, rng: random.Random) -> Fault | None:
    """The gate and up projections of each expert are one tensor, and all experts of a layer are one."""
    shapes: dict[str, list[tuple[str, list[int]]]] = {}
    for tensors in spec.files.values():
        for name, (dtype, shape) in tensors.items():
            if found := re.match(r"(.*\.experts\.)\d+\.(\w+?)_proj\.weight$", name):
                part = "down_proj" if found[2] == "down" else "gate_up_proj"
                shapes.setdefault(f"{found[1]}{part}", []).append((dtype, shape))
    if not shapes:
        return None
    for name in [name for name in tensor_names(spec) if re.search(r"\.experts\.\d+\.\w+_proj\.weight$", name)]:
        spec.drop(name, described=False)
    for name, held in shapes.items():
        (dtype, (rows, columns)), double = held[0], name.endswith("gate_up_proj")
        spec.add(name, dtype, [len(held) // (1 + double), rows * (1 + double), columns])
    return Fault("experts_packed", "gate_up_proj and down_proj of all experts in one tensor")


def tensor_cut(spec: Spec, rng: random.Random) -> Fault | None:
    names = [n for n in weights_of(spec) if "experts" not in n]
    if not names:
        return None
    name = rng.choice(names)
    _dtype, shape = next(t[name] for t in spec.files.values() if name in t)
    spec.change(name, shape=[shape[0] + rng.choice((-2, 2, 8)), *shape[1:]])
    return Fault("tensor_cut", name)


def tensor_lost(spec: Spec, rng: random.Random) -> Fault | None:
    name = rng.choice(weights_of(spec) or [""])
    if not name:
        return None
    spec.drop(name, described=False, listed=False)
    return Fault("tensor_lost", name)


def tensor_retyped(spec: Spec, rng: random.Random) -> Fault | None:
    name = rng.choice(weights_of(spec) or [""])
    if not name:
        return None
    dtype, _ = next(t[name] for t in spec.files.values() if name in t)
    spec.change(name, dtype="BF16" if dtype not in ("BF16", "F32", "F16") else "I8")
    return Fault("tensor_retyped", name)


OTHER_FAULTS = {
    f.__name__: f
    for f in (
        shards_fused,
        keys_spoilt,
        schemes_lowered,
        experts_packed,
        entry_dropped,
        entry_retyped,
        tensor_cut,
        tensor_lost,
        tensor_retyped,
    )
}


def make(spec: Spec, kind: str, seed: int) -> Fault | None:
    """Do one fault to *spec*; None where it has no place for it."""
    rng = random.Random(f"{kind} {seed}")
    if kind in OTHER_FAULTS:
        return OTHER_FAULTS[kind](spec, rng)
    name, _, where = kind.rpartition("_")
    made = NAME_FAULTS[name](spec, rng)
    if made is None:
        return None
    before = dict(spec.description or {}), tensor_names(spec)
    moved = rename(spec, made[1], described=where != "stored", tensors=where != "described")
    if before == (spec.description, tensor_names(spec)):
        return None
    return Fault(kind, made[0], moved)


KINDS = (
    *(f"{name}_described" for name in NAME_FAULTS if name not in DRAFTS),
    *(f"{name}_stored" for name in STORED),
    *(f"{name}_both" for name in NAME_FAULTS),
    *OTHER_FAULTS,
)
"""A renaming of the description, of the tensors, or of both; and the other faults."""
NAME_KINDS = tuple(k for k in KINDS if k.endswith(("_described", "_stored", "_both")) or k == "shards_fused")
