"""Runtime hotfixes for ModelSlim-quantized models on vLLM and vllm-ascend.

Importing this package imports nothing else: it is what the ``.pth`` line imports at interpreter start.
"""

__version__ = "0.1.0"
