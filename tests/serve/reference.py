"""Fake-quant reference: a transformers model in float32 with the checkpoint's own tensors and its quantization emulated.

Independent of vLLM, vllm-ascend and the reference kernels. Each linear layer takes the checkpoint's integer weight and
quantizes its input as the description says; nothing is dequantized first. Run in an environment with torch and
transformers::

    python reference.py JOBS.json       # [{"checkpoint": DIR, "out": FILE, "float_source": null, ...}, ...]
"""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
import transformers
from prompts import CHAT, NEW_TOKENS, picture, prompts
from safetensors.torch import load_file
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS


class Checkpoint:
    """The tensors of a checkpoint directory and what its description says of each."""

    def __init__(self, directory: Path, drop_linear_bias: bool = False) -> None:
        self.tensors: dict[str, torch.Tensor] = {}
        for path in sorted(directory.glob("*.safetensors")):
            self.tensors |= load_file(path)
        self.description: dict[str, Any] = json.loads((directory / "quant_model_description.json").read_text())
        if any(".block_sparse_moe." in name for name in self.tensors):
            self.tensors = {_minimax(name): tensor for name, tensor in self.tensors.items()}
            self.description = {_minimax(name): value for name, value in self.description.items()}
        self.drop_linear_bias = drop_linear_bias

    def float(self, name: str) -> torch.Tensor:
        return self.tensors[name].float()

    def has(self, name: str) -> bool:
        return name in self.tensors

    def linear(self, x: torch.Tensor, name: str) -> torch.Tensor:
        """The layer ``name`` applied to ``x`` under its scheme."""
        scheme = self.description[f"{name}.weight"]
        y = SCHEMES[scheme](self, x, name)
        with_bias = self.has(f"{name}.bias") and (scheme == "FLOAT" or not self.drop_linear_bias)
        return y + self.float(f"{name}.bias") if with_bias and scheme != "W8A8" else y


def _minimax(name: str) -> str:
    """MiniMax's names of the experts as transformers has them."""
    name = name.replace(".block_sparse_moe.", ".mlp.")
    for old, new in ((".w1.", ".gate_proj."), (".w2.", ".down_proj."), (".w3.", ".up_proj.")):
        name = name.replace(old, new)
    return name


def _float(c: Checkpoint, x: torch.Tensor, name: str) -> torch.Tensor:
    return x @ c.float(f"{name}.weight").T


def _static(c: Checkpoint, x: torch.Tensor, name: str) -> torch.Tensor:
    """W8A8: one scale and offset for the input, everything else folded into quant_bias and deq_scale."""
    q = (x / c.float(f"{name}.input_scale") + c.float(f"{name}.input_offset")).round().clamp(-128, 127)
    return (q @ c.float(f"{name}.weight").T + c.float(f"{name}.quant_bias")) * c.float(f"{name}.deq_scale")


def _per_token(x: torch.Tensor, largest: int) -> tuple[torch.Tensor, torch.Tensor]:
    scale = x.abs().amax(-1, keepdim=True) / largest
    return (x / scale.clamp_min(1e-12)).round().clamp(-largest - 1, largest), scale


def _dynamic(c: Checkpoint, x: torch.Tensor, name: str, weight: torch.Tensor | None = None, largest: int = 127) -> Any:
    q, scale = _per_token(x, largest)
    weight = c.float(f"{name}.weight") if weight is None else weight
    return q @ weight.T * c.float(f"{name}.weight_scale").flatten() * scale


def _w4a8(c: Checkpoint, x: torch.Tensor, name: str) -> torch.Tensor:
    """Two output rows in each byte, the even one in the low nibble. scale_bias is the NPU's business: the sum is exact here."""
    packed = c.tensors[f"{name}.weight"].to(torch.int16)
    nibbles = torch.stack([packed & 15, (packed >> 4) & 15], 1).flatten(0, 1)
    return _dynamic(c, x, name, torch.where(nibbles > 7, nibbles - 16, nibbles).float())


def _mxfp8(c: Checkpoint, x: torch.Tensor, name: str) -> torch.Tensor:
    """W8A8_MXFP8: E4M3 in blocks of 32 along the input, each with a power of two (OCP MX 1.0; the largest one is 2**8)."""
    shared = torch.exp2(c.float(f"{name}.weight_scale") - 127)
    weight = (c.float(f"{name}.weight").unflatten(1, (-1, 32)) * shared[..., None]).flatten(1)
    blocks = x.unflatten(-1, (-1, 32))
    scale = torch.exp2(blocks.abs().amax(-1, keepdim=True).clamp_min(1e-30).log2().floor() - 8)
    q = (blocks / scale).clamp(-448, 448).to(torch.float8_e4m3fn).float() * scale
    return q.flatten(-2) @ weight.T


SCHEMES = {
    "FLOAT": _float,
    "W8A8": _static,
    "W8A8_DYNAMIC": _dynamic,
    "W8A8_MIX": _dynamic,  # the prefill half of it; the decode half needs a disaggregated server
    "W4A8_DYNAMIC": _w4a8,
    "W8A8_MXFP8": _mxfp8,
    "W4A4_DYNAMIC": lambda c, x, name: _dynamic(c, x, name, largest=7),
}


def _config(directory: Path) -> Any:
    """The checkpoint's config; Kimi-K2's, which is remote code, is DeepSeek-V3's."""
    raw = json.loads((directory / "config.json").read_text())
    if raw["model_type"] == "kimi_k2":
        raw.pop("auto_map", None)
        return transformers.DeepseekV3Config.from_dict({**raw, "model_type": "deepseek_v3"})
    return transformers.AutoConfig.from_pretrained(directory)


def build(checkpoint: Checkpoint, directory: Path) -> Any:
    """The transformers model of the checkpoint's config with every weight and every quantization taken from it."""
    config = _config(directory)
    vision = hasattr(config, "vision_config")
    auto = transformers.AutoModelForImageTextToText if vision else transformers.AutoModelForCausalLM
    model = auto.from_config(config, dtype=torch.float32, attn_implementation="eager").eval()
    missing = [name for name, module in model.named_modules() if not _take(checkpoint, name, module)]
    if missing:
        raise LookupError(f"{directory}: the reference found no tensors for {', '.join(missing)}")
    return model


def _take(c: Checkpoint, name: str, module: torch.nn.Module) -> bool:
    """Give ``module`` its tensors; whether all of its own parameters have got theirs."""
    own = dict(module.named_parameters(recurse=False))
    if name.endswith(".experts"):
        _replace_experts(c, name, module)
        return c.has(f"{name}.0.gate_proj.weight")
    if isinstance(module, torch.nn.Linear):
        if c.has(f"{name}.weight"):
            module.forward = lambda x: c.linear(x, name)  # type: ignore[method-assign]
            return True
        return name == "lm_head"  # tied
    for parameter in own:
        if not c.has(f"{name}.{parameter}"):
            return False
        value = c.float(f"{name}.{parameter}")
        getattr(module, parameter).data = value.reshape(own[parameter].shape)
    for buffer in ("e_score_correction_bias",):
        if hasattr(module, buffer):
            getattr(module, buffer).data = (
                c.float(f"{name}.{buffer}") if c.has(f"{name}.{buffer}") else torch.zeros_like(getattr(module, buffer))
            )
    if "norm" in type(module).__name__.lower() and "bias" not in own and c.has(f"{name}.bias"):
        _add_after(module, c.float(f"{name}.bias"))  # left by smoothing
    return True


def _add_after(module: torch.nn.Module, bias: torch.Tensor) -> None:
    plain = module.forward
    module.forward = lambda x: plain(x) + bias  # type: ignore[method-assign]


def _replace_experts(c: Checkpoint, name: str, module: torch.nn.Module) -> None:
    def forward(hidden: torch.Tensor, index: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        out = torch.zeros_like(hidden)
        for expert in index.unique().tolist():
            token, slot = (index == expert).nonzero(as_tuple=True)
            prefix = f"{name}.{expert}"
            x = hidden[token]
            gated = F.silu(c.linear(x, f"{prefix}.gate_proj")) * c.linear(x, f"{prefix}.up_proj")
            out.index_add_(0, token, c.linear(gated, f"{prefix}.down_proj") * weights[token, slot, None])
        return out

    module.forward = forward  # type: ignore[method-assign]


class Int8Cache:
    """C8: keys and values that later steps read from an int8 cache; a prompt attends to its own float ones."""

    def __init__(self, checkpoint: Checkpoint, prefix: str) -> None:
        self.checkpoint, self.prefix, self.prompt = checkpoint, prefix, 0

    def __call__(
        self, module: Any, query: Any, key: Any, value: Any, mask: Any, scaling: float = 1.0, **kwargs: Any
    ) -> tuple[torch.Tensor, None]:
        layer = f"{self.prefix}{module.layer_idx}.self_attn"
        cached = [self._rounded(part, f"{layer}.{kind}_proj") for part, kind in ((key, "k"), (value, "v"))]
        groups = query.shape[1] // key.shape[1]
        rows = []
        for k, v in ((key, value), cached):
            k, v = (part.repeat_interleave(groups, 1) for part in (k, v))
            scores = query @ k.transpose(2, 3) * scaling
            causal = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
            rows.append(scores.masked_fill(~causal, float("-inf")).softmax(-1) @ v)
        fresh, later = rows
        out = torch.cat([fresh[:, :, : self.prompt], later[:, :, self.prompt :]], 2)
        return out.transpose(1, 2).contiguous(), None

    def _rounded(self, x: torch.Tensor, name: str) -> torch.Tensor:
        scale, offset = (
            self.checkpoint.float(f"{name}.kv_cache_{part}").reshape(1, x.shape[1], 1, x.shape[3])
            for part in ("scale", "offset")
        )
        return (x / scale + offset).round().clamp(-128, 127) * scale


def run(
    directory: Path, float_source: Path | None = None, drop_linear_bias: bool = False, with_image: bool = False
) -> dict[str, Any]:
    """Log-probabilities of the prompts and of what greedy decoding adds, and of a chat message with an image if asked."""
    cache = None
    if float_source is None:
        checkpoint = Checkpoint(directory, drop_linear_bias)
        model = build(checkpoint, directory)
        if any(name.endswith("kv_cache_scale") for name in checkpoint.tensors):
            cache = Int8Cache(checkpoint, "model.layers.")
            ALL_ATTENTION_FUNCTIONS["int8_cache"] = cache
            model.config._attn_implementation = "int8_cache"
    else:
        config = _config(float_source)
        vision = hasattr(config, "vision_config")
        auto = transformers.AutoModelForImageTextToText if vision else transformers.AutoModelForCausalLM
        model = auto.from_pretrained(
            float_source, config=config, dtype=torch.float32, attn_implementation="eager"
        ).eval()
    text = []
    with torch.no_grad():
        for ids in prompts():
            if cache is not None:
                cache.prompt = len(ids)
            text.append(_greedy(model, ids, {}))
        result: dict[str, Any] = {"text": text}
        if with_image:
            inputs = _image_inputs(directory)
            ids = inputs.pop("input_ids")[0].tolist()
            result["image"] = [_greedy(model, ids, inputs)]
    return result


def _image_inputs(directory: Path) -> dict[str, torch.Tensor]:
    from PIL import Image

    processor = transformers.AutoProcessor.from_pretrained(directory)
    message = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": CHAT}]}]
    prompt = processor.apply_chat_template(message, add_generation_prompt=True, tokenize=False)
    inputs = processor(text=[prompt], images=[Image.open(io.BytesIO(picture())).convert("RGB")], return_tensors="pt")
    return {name: value for name, value in inputs.items() if name not in ("attention_mask", "token_type_ids")}


def _greedy(model: Any, ids: list[int], inputs: dict[str, torch.Tensor]) -> dict[str, Any]:
    ids, start = list(ids), len(ids)
    steps: list[list[float]] = []
    first: list[Any] = []
    for _ in range(NEW_TOKENS):
        extra = dict(inputs)
        if "mm_token_type_ids" in extra:
            extra["mm_token_type_ids"] = F.pad(extra["mm_token_type_ids"], (0, len(ids) - start))
        logprobs = model(input_ids=torch.tensor([ids]), use_cache=False, **extra).logits[0].float().log_softmax(-1)
        first = first or [None, *logprobs[:-1].tolist()]
        steps.append(logprobs[-1].tolist())
        ids.append(int(logprobs[-1].argmax()))
    return {"prompt": first, "steps": steps, "tokens": ids[start:], "prompt_tokens": ids[:start]}


def main() -> None:
    torch.set_num_threads(1)
    for job in json.loads(Path(sys.argv[1]).read_text()):
        out, keep_going = Path(job.pop("out")), job.pop("keep_going", False)
        arguments = {
            name: Path(value) if name in ("directory", "float_source") else value for name, value in job.items()
        }
        try:
            result = run(**arguments)
        except Exception as error:
            if not keep_going:
                raise
            result = {"error": f"{type(error).__name__}: {error}"}
        out.write_text(json.dumps(result))
        print("done", out.name, flush=True)


if __name__ == "__main__":
    main()
