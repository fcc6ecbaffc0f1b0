"""Copies of a checkpoint with one thing wrong (or one thing added), for negative controls. Run where safetensors and torch are::

python variants.py JOBS.json        # [{"source": DIR, "target": DIR, "change": NAME}, ...]
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

Tensors = dict[str, torch.Tensor]


def zero_quant_bias(tensors: Tensors) -> Tensors:
    return {name: torch.zeros_like(t) if name.endswith(".quant_bias") else t for name, t in tensors.items()}


def double_deq_scale(tensors: Tensors) -> Tensors:
    return {name: t * 2 if name.endswith("o_proj.deq_scale") else t for name, t in tensors.items()}


def double_weight_scale(tensors: Tensors) -> Tensors:
    return {name: t * 2 if re.search(r"(o_proj|down_proj)\.weight_scale$", name) else t for name, t in tensors.items()}


def zero_scale_bias(tensors: Tensors) -> Tensors:
    return {name: torch.zeros_like(t) if name.endswith(".scale_bias") else t for name, t in tensors.items()}


def swap_gate_up(tensors: Tensors) -> Tensors:
    other = {"gate_proj": "up_proj", "up_proj": "gate_proj"}
    return {re.sub(r"\b(gate_proj|up_proj)\b", lambda m: other[m[1]], name): t for name, t in tensors.items()}


def permute_experts(tensors: Tensors) -> Tensors:
    count = 1 + max(int(m[1]) for name in tensors if (m := re.search(r"\.experts\.(\d+)\.", name)))
    return {
        re.sub(r"\.experts\.(\d+)\.", lambda m: f".experts.{(int(m[1]) + 1) % count}.", name): t
        for name, t in tensors.items()
    }


def zero_correction_bias(tensors: Tensors) -> Tensors:
    """Adds the ``e_score_correction_bias`` of zeros that the quantizer lost, so that upstream does not take what is in memory."""
    gates = [name for name in tensors if name.endswith(".mlp.gate.weight")]
    return tensors | {
        f"{name.removesuffix('weight')}e_score_correction_bias": torch.zeros(len(tensors[name])) for name in gates
    }


CHANGES: dict[str, Callable[[Tensors], Tensors]] = {
    change.__name__: change
    for change in (
        zero_quant_bias,
        double_deq_scale,
        double_weight_scale,
        zero_scale_bias,
        swap_gate_up,
        permute_experts,
        zero_correction_bias,
    )
}


def make(source: Path, target: Path, change: str) -> None:
    shutil.copytree(source, target, dirs_exist_ok=True)
    index = next(target.glob("*.index.json"))
    listing = json.loads(index.read_text())
    for path in target.glob("*.safetensors"):
        before = load_file(path)
        after = CHANGES[change](before)
        if set(after) == set(before) and all(torch.equal(after[name], before[name]) for name in before):
            raise SystemExit(f"{source.name}: {change} changes nothing")
        save_file({name: tensor.contiguous() for name, tensor in after.items()}, path)
        listing.setdefault("weight_map", {}).update(dict.fromkeys(after, path.name))
    index.write_text(json.dumps(listing))


def main() -> None:
    for job in json.loads(Path(sys.argv[1]).read_text()):
        make(Path(job["source"]), Path(job["target"]), job["change"])


if __name__ == "__main__":
    main()
