"""``python -m ascend_hotfix.sim serve MODEL [options of vllm serve]``: the real server on the simulated NPU."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from ascend_hotfix.sim import envs, server, supervise

__all__ = ["arguments_of", "main"]

USAGE = """\
usage: python -m ascend_hotfix.sim serve MODEL [options of vllm serve]

Starts vllm serve with the real vLLM and vllm-ascend ({pair}) where the NPU is simulated: CPU reference kernels, no NPU's
numbers or speed. Builds the environment when it is missing. --quantization ascend is added for a ModelSlim checkpoint.
Stop it with Ctrl-C or SIGTERM."""


def arguments_of(model: str, options: Sequence[str]) -> list[str]:
    """The arguments for ``vllm``: ``--quantization ascend`` is added where the model has a description and none is given."""
    described = any(Path(model).glob("quant_model_description*.json"))
    asked = any(option.partition("=")[0] in ("--quantization", "-q") for option in options)
    return ["serve", model, *options, *(["--quantization", "ascend"] if described and not asked else [])]


def main(arguments: Sequence[str] | None = None) -> int:
    """The server's exit code; 2 for wrong use, 1 when its environment cannot be built. A signal ends all of it."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given in (["-h"], ["--help"]):
        print(USAGE.format(pair=server.PAIR))
        return 0
    if len(given) < 2 or given[0] != "serve" or given[1].startswith("-"):
        print(USAGE.format(pair=server.PAIR), file=sys.stderr)
        return 2
    if given[1].startswith(("/", ".", "~")) and not Path(given[1]).expanduser().is_dir():
        print(f"{given[1]}: no such folder; name one with config.json and *.safetensors files", file=sys.stderr)
        return 2
    try:
        vllm = envs.build(server.PAIR) / "bin" / "vllm"
    except envs.BuildError as error:
        print(error, file=sys.stderr)
        return 1
    command = [str(vllm), *arguments_of(given[1], given[2:])]
    print(f"ascend-hotfix: the NPU is SIMULATED; {' '.join(command)}", flush=True)
    return supervise.run(command, {**os.environ, **server.environment()})


if __name__ == "__main__":
    sys.exit(main())
