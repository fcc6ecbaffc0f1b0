"""Writes checkpoints for the doctor's tests in pure Python: safetensors, index, description and config.

Two sources: a made-up tiny ModelSlim model (:func:`tiny`), and the headers of genuine msModelSlim output
(:func:`genuine`, from ``tests/data/headers``). Both give a :class:`Spec`, which a test changes and writes.
"""

from __future__ import annotations

import copy
import gzip
import json
import random
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HEADERS = Path(__file__).parent.parent / "data" / "headers"
BYTES = {"I8": 1, "U8": 1, "F8_E4M3": 1, "BF16": 2, "F16": 2, "F32": 4, "I32": 4, "I64": 8, "BOOL": 1}
MAIN = "quant_model_weights-00001-of-00001.safetensors"
INDEX = "quant_model_weights.safetensors.index.json"
DESCRIPTION = "quant_model_description.json"

Entry = tuple[str, list[int]]


def nbytes(dtype: str, shape: list[int]) -> int:
    size = BYTES[dtype]
    for extent in shape:
        size *= extent
    return size


def write_safetensors(path: Path, tensors: dict[str, Entry], seed: int | None = None) -> None:
    """A valid file; data from *seed*, or sparse zeros where there is none."""
    header: dict[str, Any] = {}
    position = 0
    for name, (dtype, shape) in tensors.items():
        size = nbytes(dtype, shape)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [position, position + size]}
        position += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        if seed is None:
            file.truncate(8 + len(text) + position)
        else:
            file.write(random.Random(seed).randbytes(position))


@dataclass
class Spec:
    """A checkpoint before it is written. ``files``: file name to {tensor: (dtype, shape)}; ``indexes`` and ``extra``
    (further JSON files): file name to content. ``description`` None: no such file."""

    config: dict[str, Any]
    files: dict[str, dict[str, Entry]]
    description: dict[str, Any] | None
    indexes: dict[str, dict[str, Any]] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)

    def copy(self) -> Spec:
        return copy.deepcopy(self)

    @property
    def main(self) -> dict[str, Entry]:
        """Tensors of the largest file."""
        return max(self.files.values(), key=len)

    def weight_maps(self) -> list[dict[str, Any]]:
        return [content.get("weight_map", content) for content in self.indexes.values()]

    def drop(self, name: str, *, described: bool = True, listed: bool = True) -> None:
        """Take a tensor out of its file, and out of description and index where asked."""
        for tensors in self.files.values():
            tensors.pop(name, None)
        if described and self.description is not None:
            self.description.pop(name, None)
        for weight_map in self.weight_maps() if listed else ():
            weight_map.pop(name, None)

    def add(self, name: str, dtype: str, shape: list[int], scheme: str | None = None) -> None:
        """Put a tensor into the largest file, the index and, with *scheme*, the description."""
        self.main[name] = (dtype, shape)
        file = next(f for f, tensors in self.files.items() if tensors is self.main)
        for weight_map in self.weight_maps():
            weight_map[name] = file
        if scheme is not None and self.description is not None:
            self.description[name] = scheme

    def change(self, name: str, *, dtype: str | None = None, shape: list[int] | None = None) -> None:
        """Give a tensor another dtype or shape."""
        for tensors in self.files.values():
            if name in tensors:
                tensors[name] = (dtype or tensors[name][0], shape if shape is not None else tensors[name][1])

    def write(self, root: Path, seed: int | None = None) -> Path:
        root.mkdir(parents=True, exist_ok=True)
        for file, tensors in self.files.items():
            write_safetensors(root / file, tensors, seed)
        jsons = {"config.json": self.config, **self.indexes, **self.extra}
        if self.description is not None:
            jsons[DESCRIPTION] = self.description
        for file, content in jsons.items():
            (root / file).parent.mkdir(parents=True, exist_ok=True)
            (root / file).write_text(json.dumps(content))
        return root


def _linear(name: str, out: int, into: int, scheme: str) -> dict[str, tuple[str, list[int], str]]:
    """Tensors of one linear layer as msModelSlim's v1 service writes them."""
    if scheme == "FLOAT":
        return {f"{name}.weight": ("BF16", [out, into], "FLOAT")}
    leaves: dict[str, Entry] = {"weight": ("I8", [out, into])}
    if scheme in ("W8A8", "W8A8_MIX"):
        leaves.update(input_scale=("F32", [1]), input_offset=("F32", [1]))
        leaves.update(deq_scale=("F32", [out]), quant_bias=("I32", [out]))
    if scheme not in ("W8A8", "W8A8_MXFP8", "W4A4_MXFP4"):
        leaves.update(weight_scale=("F32", [out, 1]), weight_offset=("F32", [out, 1]))
    if scheme == "W4A8_DYNAMIC":
        leaves["weight"] = ("I8", [out // 2, into])
        leaves["scale_bias"] = ("F32", [out, 16 if name.endswith(("down_proj", "o_proj")) else 1])
    if scheme == "W8A8_MXFP8":
        leaves.update(weight=("F8_E4M3", [out, into]), weight_scale=("U8", [out, -(-into // 32)]))
    if scheme == "W4A4_MXFP4":
        leaves.update(weight=("U8", [out, into // 2]), weight_scale=("U8", [out, -(-into // 32)]))
    return {f"{name}.{leaf}": (dtype, shape, scheme) for leaf, (dtype, shape) in leaves.items()}


def tiny(attention: str = "W8A8", experts: str = "W8A8_DYNAMIC", layers: int = 3, number: int = 4) -> Spec:
    """A Qwen3-MoE shaped checkpoint: *layers* layers of *number* experts, hidden size 64."""
    hidden, heads, kv, dim, inner, vocabulary = 64, 4, 2, 32, 32, 128
    rows: dict[str, tuple[str, list[int], str]] = _linear("model.embed_tokens", vocabulary, hidden, "FLOAT")
    for n in range(layers):
        layer = f"model.layers.{n}"
        for name, out, into in (
            ("q_proj", heads * dim, hidden),
            ("k_proj", kv * dim, hidden),
            ("v_proj", kv * dim, hidden),
            ("o_proj", hidden, heads * dim),
        ):
            rows.update(_linear(f"{layer}.self_attn.{name}", out, into, attention))
        for norm, size in (("self_attn.q_norm", dim), ("self_attn.k_norm", dim), ("input_layernorm", hidden)):
            rows[f"{layer}.{norm}.weight"] = ("BF16", [size], "FLOAT")
        rows[f"{layer}.post_attention_layernorm.weight"] = ("BF16", [hidden], "FLOAT")
        rows.update(_linear(f"{layer}.mlp.gate", number, hidden, "FLOAT"))
        for e in range(number):
            for name, out, into in (
                ("gate_proj", inner, hidden),
                ("up_proj", inner, hidden),
                ("down_proj", hidden, inner),
            ):
                rows.update(_linear(f"{layer}.mlp.experts.{e}.{name}", out, into, experts))
    rows["model.norm.weight"] = ("BF16", [hidden], "FLOAT")
    rows.update(_linear("lm_head", vocabulary, hidden, "FLOAT"))
    config = {
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_experts": number,
        "vocab_size": vocabulary,
        "tie_word_embeddings": False,
    }
    description: dict[str, Any] = {name: scheme for name, (_, _, scheme) in rows.items()}
    description.update(version="1.0.0", model_quant_type=attention, metadata={}, group_size=0, optional={})
    weight_map = dict.fromkeys(rows, MAIN)
    return Spec(
        config,
        {MAIN: {name: (dtype, shape) for name, (dtype, shape, _) in rows.items()}},
        description,
        {INDEX: {"metadata": {"total_size": 0}, "weight_map": weight_map}},
    )


def genuine_names() -> list[str]:
    """Checkpoints whose headers are in ``tests/data/headers``."""
    return sorted(path.name.removesuffix(".json.gz") for path in HEADERS.glob("*.json.gz"))


def genuine(name: str) -> Spec:
    """One genuine checkpoint: everything but the tensor data."""
    content = json.loads(gzip.decompress((HEADERS / f"{name}.json.gz").read_bytes()))
    files = {file: {n: (d, s) for n, (d, s) in tensors.items()} for file, tensors in content["files"].items()}
    return Spec(content["config"], files, content["description"], content["indexes"])


def dump(root: Path, target: Path) -> None:
    """Write the headers of a checkpoint into *target*, as :func:`genuine` reads them."""
    files = {}
    for path in sorted(root.rglob("*.safetensors")):
        data = path.read_bytes()
        header = json.loads(data[8 : 8 + struct.unpack("<Q", data[:8])[0]])
        header.pop("__metadata__", None)
        files[path.relative_to(root).as_posix()] = {n: (e["dtype"], e["shape"]) for n, e in header.items()}
    content = {
        "config": json.loads((root / "config.json").read_text()),
        "description": json.loads((root / DESCRIPTION).read_text()),
        "indexes": {p.name: json.loads(p.read_text()) for p in sorted(root.glob("*.safetensors.index.json"))},
        "files": files,
    }
    text = json.dumps(content, separators=(",", ":")).encode()
    target.write_bytes(gzip.compress(text, mtime=0))
