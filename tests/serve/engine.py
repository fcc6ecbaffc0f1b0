"""Runs checkpoints through vLLM's engine inside one process: imports once, forks for each job.

Run in a simulated environment::

    python engine.py JOBS.json      # [{"directory": DIR, "out": FILE, "quantization": "ascend", ...}, ...]

Writes per job what :mod:`reference` writes, or ``{"error": ...}``. ``"stock": true`` in the first job leaves vllm-ascend out of
the whole run: vLLM's own CPU platform and float weights.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from prompts import NEW_TOKENS, prompts

TIMEOUT = 240.0


def run(directory: str, quantization: str | None, float32: bool = False, **arguments: Any) -> dict[str, Any]:
    import vllm.model_executor.models.registry as registry
    from vllm import LLM, SamplingParams

    if float32:
        _allow_float32()

    registry._run_in_subprocess = lambda function: function()  # type: ignore[attr-defined]
    llm = LLM(
        _readable(directory) if quantization else directory,
        quantization=quantization,
        enforce_eager=True,
        max_model_len=128,
        max_logprobs=-1,
        gpu_memory_utilization=0.3,
        dtype="float32" if float32 else "bfloat16",
        enable_prefix_caching=False,
        **arguments,
    )
    size = llm.llm_engine.model_config.get_vocab_size()
    sampling = SamplingParams(
        max_tokens=NEW_TOKENS, temperature=0, logprobs=size, prompt_logprobs=size, ignore_eos=True, detokenize=False
    )
    asked = [{"prompt_token_ids": ids} for ids in prompts()]
    answers = llm.generate(asked, sampling, use_tqdm=False)  # type: ignore[arg-type]

    def row(entry: Any) -> list[float] | None:
        return None if entry is None else [entry[token].logprob for token in range(size)]

    text = [
        {
            "prompt": [row(entry) for entry in answer.prompt_logprobs],
            "steps": [row(entry) for entry in answer.outputs[0].logprobs],
            "tokens": list(answer.outputs[0].token_ids),
        }
        for answer in answers
    ]
    return {"text": text}


def _allow_float32() -> None:
    """vllm-ascend serves in bfloat16 and float16. In float32, what a run differs by is a formula, not its rounding."""
    import torch
    from vllm_ascend.quantization.configs.modelslim_config import AscendModelSlimConfig

    AscendModelSlimConfig.get_supported_act_dtypes = classmethod(lambda cls: [torch.float32])


def _readable(directory: str) -> str:
    """The checkpoint, with a stand-in where its config class is remote code or has fields that vLLM misses."""
    from ascend_hotfix.sim import lab, standins

    standins.register()
    return str(standins.stage(Path(directory), lab.installed_pair().vllm_ascend))


def _child(job: dict[str, Any], out: Path) -> None:
    """Never returns."""
    log = os.open(out.with_suffix(".log"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    code = 0
    try:
        result = run(**job)
    except BaseException as error:
        traceback.print_exc()
        result, code = {"error": f"{type(error).__name__}: {error}"}, 1
    out.write_text(json.dumps(result))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def main() -> None:
    jobs = json.loads(Path(sys.argv[1]).read_text())
    stock = bool(jobs and jobs[0].get("stock"))
    os.environ.update(VLLM_ENABLE_V1_MULTIPROCESSING="0", HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1", DO_NOT_TRACK="1")
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    if stock:
        # torch_npu is imported here all the same, and makes torch compile for an NPU.
        os.environ.update(VLLM_PLUGINS="", TORCH_COMPILE_DISABLE="1")
    import vllm.v1.worker.gpu_model_runner  # noqa: F401
    from vllm import LLM  # noqa: F401
    from vllm.platforms import current_platform  # noqa: F401

    if not stock:
        import vllm_ascend.utils  # noqa: F401

    for job in jobs:
        out = Path(job.pop("out"))
        job.pop("stock", None)
        started = time.monotonic()
        child = os.fork()
        if child == 0:
            _child(job, out)
        while os.waitpid(child, os.WNOHANG)[0] == 0:
            if time.monotonic() - started > TIMEOUT:
                os.kill(child, 9)
                os.waitpid(child, 0)
                out.write_text(json.dumps({"error": f"no answer in {TIMEOUT:g} s"}))
                break
            time.sleep(0.05)
        print(f"done {out.name} {time.monotonic() - started:.1f}", flush=True)


if __name__ == "__main__":
    main()
