"""CPU reference kernels of the NPU ops, one module per topic.

Each docstring gives the formula, the shapes, the rounding and the public definition it follows: the op's page in the custom API
reference of Ascend Extension for PyTorch (named ``torch_npu.<op>``) and, where that defers to it, the ``aclnn`` operator of
CANN's operator reference. Integer products are accumulated exactly (in float64, well below 2**53); rounding is half to even; an
int8 result saturates to [-128, 127]. They are references for wiring and layout, not for an NPU's last bits or its speed.
"""

from __future__ import annotations

from ascend_hotfix.sim.kernels import activation, attention, int4, matmul, memory, moe, mx, norm, quantize, rope
from ascend_hotfix.sim.kernels.registry import HITS, missing, name_what_is_missing, register, registered

__all__ = [
    "HITS",
    "activation",
    "attention",
    "int4",
    "matmul",
    "memory",
    "missing",
    "moe",
    "mx",
    "name_what_is_missing",
    "norm",
    "quantize",
    "register",
    "registered",
    "rope",
]
