"""Shows the main job from nothing: ``vllm serve`` fails on a checkpoint, and serves it with a patch. No NPU is needed.

``python -m ascend_hotfix.sim.demo``. What is real: vLLM, vllm-ascend, a checkpoint by the vendor's quantizer, HTTP. What is
simulated: the NPU's kernels. The checkpoint is a copy in which every name has another prefix, as wrapper models have it.
"""

from __future__ import annotations

import json
import re
import shutil
import struct
import sys
import tempfile
import time
from pathlib import Path

from ascend_hotfix.sim import envs
from ascend_hotfix.sim.server import PAIR, Server, ServerDied, ServerError, why_it_failed

__all__ = ["PATCH", "main", "move_names"]

CHECKPOINT = Path(__file__).resolve().parents[2] / "tests" / "data" / "checkpoints" / "qwen3_moe-w8a8"

OPTIONS = ("--quantization", "ascend", "--max-model-len", "128", "--served-model-name", "demo")

PATCH = '''\
"""Qwen3-MoE checkpoints whose names begin with language_model."""

from ascend_hotfix.records import Fix, ModelPatch, Prefix

PATCH = ModelPatch(
    model_types=("qwen3_moe",),
    name="moved_names",
    fixes=(
        Fix(
            id="moved-names",
            why="the checkpoint writes language_model.model.*; vLLM asks and loads model.*",
            refs=("the demo of ascend-hotfix",),
            retire="with the checkpoint",
            lookup=(Prefix("model", "language_model.model"),),
            weights=(Prefix("language_model.model", "model"),),
        ),
    ),
)
'''


def move_names(source: Path, target: Path) -> int:
    """Copy a checkpoint with ``model.`` in front of its names made ``language_model.model.``; how many tensors moved.

    Tensors, index and description change alike; no value does.
    """
    shutil.copytree(source, target)
    moved = sum(_move_header(path) for path in target.glob("*.safetensors"))
    for path in (*target.glob("*.index.json"), *target.glob("quant_model_description*.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        holder = content.get("weight_map", content)
        renamed = {_moved(name): value for name, value in holder.items()}
        holder.clear()
        holder.update(renamed)
        path.write_text(json.dumps(content, indent=2), encoding="utf-8")
    return moved


def _moved(name: str) -> str:
    return re.sub(r"^model\.", "language_model.model.", name)


def _move_header(path: Path) -> int:
    """A safetensors file is the length of its header, the header (JSON), and the data, to which the header has offsets."""
    content = path.read_bytes()
    (length,) = struct.unpack_from("<Q", content)
    header = json.loads(content[8 : 8 + length])
    renamed = json.dumps({_moved(name): entry for name, entry in header.items()}).encode()
    renamed += b" " * (-len(renamed) % 8)
    path.write_bytes(struct.pack("<Q", len(renamed)) + renamed + content[8 + length :])
    return sum(_moved(name) != name for name in header)


def _say(text: str) -> None:
    print(f"\n== {text}", flush=True)


def _run(directory: Path) -> int:
    started = time.monotonic()
    _say(f"1. The environment: vLLM and vllm-ascend {PAIR}, torch-npu on stub CANN libraries")
    try:
        vllm = [envs.build(PAIR) / "bin" / "vllm"]
    except envs.BuildError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"   {vllm[0]} ({time.monotonic() - started:.0f} s)")

    model = directory / "moved-qwen3_moe-w8a8"
    count = move_names(CHECKPOINT, model)
    patches = directory / "patches"
    patches.mkdir()
    (patches / "moved_names.py").write_text(PATCH, encoding="utf-8")
    _say(f"2. A W8A8 checkpoint by msModelSlim; a copy in which {count} tensors begin with language_model.model.")
    print(f"   {model}")

    _say("3. vllm serve as released (ascend-hotfix switched off)")
    shown = f"vllm serve {model.name} {' '.join(OPTIONS)}"
    print(f"   $ ASCEND_HOTFIX_MODELS=none {shown}")
    log = directory / "stock.log"
    with Server(vllm, model, *OPTIONS, log=log, env={"ASCEND_HOTFIX_MODELS": "none"}) as stock:
        try:
            stock.wait_ready()
        except ServerDied:
            print(f"   {why_it_failed(log)}")
        else:
            print(
                "   it serves: the release has caught up with this demo, which has nothing to show here",
                file=sys.stderr,
            )
            return 1

    _say("4. The same command with a patch")
    print(f"   $ ASCEND_HOTFIX_PATH=patches {shown}\n")
    print("".join(f"   | {line}\n" for line in PATCH.splitlines()[4:]))
    log = directory / "patched.log"
    with Server(vllm, model, *OPTIONS, log=log, env={"ASCEND_HOTFIX_PATH": str(patches)}) as patched:
        try:
            print(f"   ready in {patched.wait_ready():.0f} s")
        except ServerError as error:
            print(f"   {error}\n   {log.read_text(errors='replace')[-3000:]}", file=sys.stderr)
            return 1
        for line in log.read_text(errors="replace").splitlines():
            if "ascend-hotfix" in line or "ascend_hotfix" in line:
                print(f"   log: {line.strip()[:200]}")
        body = {"model": "demo", "prompt": "hello", "max_tokens": 8, "temperature": 0, "ignore_eos": True}
        answer = patched.post("/v1/completions", body)
        print(
            f"   POST /v1/completions -> {answer['choices'][0]['text']!r}, {answer['usage']['completion_tokens']} tokens"
        )
        print("   (the model has random weights: what it says means nothing, that it answers does)")
        print(f"   stopped with exit code {patched.stop()}")
    _say(f"Done in {time.monotonic() - started:.0f} s.")
    return 0


def main() -> int:
    """0 when the stock server failed and the patched one answered, else 1."""
    if not CHECKPOINT.is_dir():
        print(f"{CHECKPOINT}: not found; the demo needs a clone of the repository", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="ascend-hotfix-demo-") as directory:
        return _run(Path(directory))


if __name__ == "__main__":
    sys.exit(main())
