"""Hides what the environment holds for the NPU from a server of plain vLLM, in each of its processes."""

import sys

for name in ("torch_npu", "torchvision"):  # torchvision is a CUDA build, which does not load on this torch
    sys.modules[name] = None  # type: ignore[assignment]
