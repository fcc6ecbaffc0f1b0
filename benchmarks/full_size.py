"""Writes full-size checkpoints that hold headers only, and measures the doctor's static stage on them.

    python benchmarks/full_size.py write deepseek-v3 DIR     # 140,925 tensors, 649 GiB by its headers
    python benchmarks/full_size.py write qwen3-235b DIR      # 111,393 tensors, 220 GiB by its headers
    python benchmarks/full_size.py measure DIR               # seconds and peak memory of the static stage

Names, shapes and sizes are those of the released models in ModelSlim's W8A8 form (static attention, dynamic
experts, v0 service); the tensor data are holes, so a checkpoint takes some tens of MB on disk.
"""

from __future__ import annotations

import argparse
import json
import resource
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Row = tuple[str, str, list[int], str]  # name, dtype, shape, scheme
BYTES = {"I8": 1, "BF16": 2, "F32": 4, "I32": 4}
FILE_BYTES = 4 << 30


def linear(name: str, out: int, into: int, scheme: str) -> Iterator[Row]:
    """Tensors of one linear layer."""
    if scheme == "FLOAT":
        yield f"{name}.weight", "BF16", [out, into], scheme
        return
    yield f"{name}.weight", "I8", [out, into], scheme
    yield f"{name}.weight_scale", "BF16", [out, 1], scheme
    yield f"{name}.weight_offset", "BF16", [out, 1], scheme
    if scheme == "W8A8":
        yield f"{name}.input_scale", "BF16", [1], scheme
        yield f"{name}.input_offset", "BF16", [1], scheme
        yield f"{name}.quant_bias", "I32", [out], scheme
        yield f"{name}.deq_scale", "F32", [out], scheme


def norm(name: str, size: int) -> Row:
    return f"{name}.weight", "BF16", [size], "FLOAT"


def mlp(name: str, inner: int, hidden: int, scheme: str) -> Iterator[Row]:
    yield from linear(f"{name}.gate_proj", inner, hidden, scheme)
    yield from linear(f"{name}.up_proj", inner, hidden, scheme)
    yield from linear(f"{name}.down_proj", hidden, inner, scheme)


def qwen3_235b() -> tuple[dict[str, Any], Iterator[Row]]:
    """Qwen3-235B-A22B: 94 layers of 128 experts."""
    hidden, layers, heads, kv, dim, experts, inner, words = 4096, 94, 64, 4, 128, 128, 1536, 151936
    config = {
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "head_dim": dim,
        "num_experts": experts,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": inner,
        "intermediate_size": 12288,
        "vocab_size": words,
        "max_position_embeddings": 40960,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1e6,
        "hidden_act": "silu",
        "attention_bias": False,
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
    }

    def rows() -> Iterator[Row]:
        yield from linear("model.embed_tokens", words, hidden, "FLOAT")
        for n in range(layers):
            layer = f"model.layers.{n}"
            yield from linear(f"{layer}.self_attn.q_proj", heads * dim, hidden, "W8A8")
            yield from linear(f"{layer}.self_attn.k_proj", kv * dim, hidden, "W8A8")
            yield from linear(f"{layer}.self_attn.v_proj", kv * dim, hidden, "W8A8")
            yield from linear(f"{layer}.self_attn.o_proj", hidden, heads * dim, "W8A8")
            yield norm(f"{layer}.self_attn.q_norm", dim)
            yield norm(f"{layer}.self_attn.k_norm", dim)
            yield norm(f"{layer}.input_layernorm", hidden)
            yield norm(f"{layer}.post_attention_layernorm", hidden)
            yield from linear(f"{layer}.mlp.gate", experts, hidden, "FLOAT")
            for e in range(experts):
                yield from mlp(f"{layer}.mlp.experts.{e}", inner, hidden, "W8A8_DYNAMIC")
        yield norm("model.norm", hidden)
        yield from linear("lm_head", words, hidden, "FLOAT")

    return config, rows()


def deepseek_v3() -> tuple[dict[str, Any], Iterator[Row]]:
    """DeepSeek-V3: 61 layers, the first of them dense here, 256 experts; without its draft layer."""
    hidden, layers, heads, experts, inner, words = 7168, 61, 128, 256, 2048, 129280
    q_rank, kv_rank, nope, rope, value = 1536, 512, 128, 64, 128
    config = {
        "architectures": ["DeepseekV3ForCausalLM"],
        "model_type": "deepseek_v3",
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        "intermediate_size": 4 * inner,
        "moe_intermediate_size": inner,
        "n_routed_experts": experts,
        "n_shared_experts": 1,
        "num_experts_per_tok": 8,
        "first_k_dense_replace": 1,
        "moe_layer_freq": 1,
        "n_group": 8,
        "topk_group": 4,
        "topk_method": "noaux_tc",
        "scoring_func": "sigmoid",
        "norm_topk_prob": True,
        "routed_scaling_factor": 2.5,
        "q_lora_rank": q_rank,
        "kv_lora_rank": kv_rank,
        "qk_nope_head_dim": nope,
        "qk_rope_head_dim": rope,
        "v_head_dim": value,
        "vocab_size": words,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1e4,
        "max_position_embeddings": 4096,
        "hidden_act": "silu",
        "attention_bias": False,
        "tie_word_embeddings": False,
        "num_nextn_predict_layers": 0,
        "torch_dtype": "bfloat16",
    }

    def rows() -> Iterator[Row]:
        yield from linear("model.embed_tokens", words, hidden, "FLOAT")
        for n in range(layers):
            layer = f"model.layers.{n}"
            yield from linear(f"{layer}.self_attn.q_a_proj", q_rank, hidden, "W8A8")
            yield from linear(f"{layer}.self_attn.kv_a_proj_with_mqa", kv_rank + rope, hidden, "W8A8")
            yield from linear(f"{layer}.self_attn.q_b_proj", heads * (nope + rope), q_rank, "W8A8")
            yield from linear(f"{layer}.self_attn.kv_b_proj", heads * (nope + value), kv_rank, "FLOAT")
            yield from linear(f"{layer}.self_attn.o_proj", hidden, heads * value, "W8A8")
            yield norm(f"{layer}.self_attn.q_a_layernorm", q_rank)
            yield norm(f"{layer}.self_attn.kv_a_layernorm", kv_rank)
            yield norm(f"{layer}.input_layernorm", hidden)
            yield norm(f"{layer}.post_attention_layernorm", hidden)
            if n < 1:
                yield from mlp(f"{layer}.mlp", 4 * inner, hidden, "W8A8_DYNAMIC")
                continue
            yield from linear(f"{layer}.mlp.gate", experts, hidden, "FLOAT")
            yield f"{layer}.mlp.gate.e_score_correction_bias", "F32", [experts], "FLOAT"
            for e in range(experts):
                yield from mlp(f"{layer}.mlp.experts.{e}", inner, hidden, "W8A8_DYNAMIC")
            yield from mlp(f"{layer}.mlp.shared_experts", inner, hidden, "W8A8_DYNAMIC")
        yield norm("model.norm", hidden)
        yield from linear("lm_head", words, hidden, "FLOAT")

    return config, rows()


MODELS = {"deepseek-v3": deepseek_v3, "qwen3-235b": qwen3_235b}


def write_file(path: Path, rows: list[Row]) -> None:
    """One safetensors file: the header, then a hole as long as the data would be."""
    header: dict[str, Any] = {}
    position = 0
    for name, dtype, shape, _ in rows:
        size = BYTES[dtype]
        for extent in shape:
            size *= extent
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [position, position + size]}
        position += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + position)


def split(rows: Iterator[Row]) -> Iterator[list[Row]]:
    """Rows in runs of some 4 GiB, as msModelSlim cuts its files."""
    run: list[Row] = []
    size = 0
    for row in rows:
        weight = BYTES[row[1]]
        for extent in row[2]:
            weight *= extent
        if run and size + weight > FILE_BYTES:
            yield run
            run, size = [], 0
        run.append(row)
        size += weight
    yield run


def write(model: str, root: Path) -> int:
    """Write *model* into *root*; returns the number of tensors."""
    root.mkdir(parents=True, exist_ok=True)
    config, rows = MODELS[model]()
    runs = list(split(rows))
    weight_map: dict[str, str] = {}
    description: dict[str, Any] = {"version": "1.0.0", "model_quant_type": "W8A8_DYNAMIC"}
    for number, run in enumerate(runs, 1):
        file = f"quant_model_weight_w8a8-{number:05d}-of-{len(runs):05d}.safetensors"
        write_file(root / file, run)
        weight_map.update((name, file) for name, *_ in run)
        description.update((name, scheme) for name, _, _, scheme in run)
    (root / "config.json").write_text(json.dumps(config, indent=2))
    (root / "quant_model_description.json").write_text(json.dumps(description, indent=2))
    index = {"metadata": {}, "weight_map": weight_map}
    (root / "quant_model_weight_w8a8.safetensors.index.json").write_text(json.dumps(index, indent=2))
    return len(weight_map)


def measure(root: Path) -> None:
    """Run the static stage once in this process and print what it took."""
    from ascend_hotfix.doctor.checkpoint import read_checkpoint
    from ascend_hotfix.doctor.static import check_static

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    wall, start = time.perf_counter(), time.process_time()
    checkpoint = read_checkpoint(root)
    read = time.process_time()
    findings = check_static(checkpoint)
    done, wall = time.process_time(), time.perf_counter() - wall
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(
        f"{root.name}: {len(checkpoint.tensors)} tensors, {wall:.2f} s "
        f"({read - start:.2f} s of CPU to read, {done - read:.2f} s to check), "
        f"peak {peak / 1024:.0f} MiB ({(peak - before) / 1024:.0f} MiB over the interpreter), "
        f"{len(findings)} findings"
    )
    for finding in findings:
        print(f"  {finding.severity.label} {finding.code}: {finding.message}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    writing = commands.add_parser("write")
    writing.add_argument("model", choices=sorted(MODELS))
    writing.add_argument("directory", type=Path)
    measuring = commands.add_parser("measure")
    measuring.add_argument("directory", type=Path)
    arguments = parser.parse_args()
    if arguments.command == "write":
        print(f"{write(arguments.model, arguments.directory)} tensors in {arguments.directory}")
    else:
        measure(arguments.directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
