"""Runs inside an upstream environment: the reference kernels for four-bit and weight-only quantization, through torch's ops."""

from __future__ import annotations

from typing import Any

import torch


def packing() -> dict[str, Any]:
    """The word of eight values, and whether every value survives packing."""
    import torch_npu  # noqa: F401

    from ascend_hotfix.sim.kernels.int4 import unpack_int4

    values = torch.arange(-8, 8, dtype=torch.int32).repeat(3)[None]
    packed = torch.ops.npu.npu_convert_weight_to_int4pack(values)
    word = torch.ops.npu.npu_convert_weight_to_int4pack(torch.tensor([[1, 2, 3, 4, 5, 6, 7, -8]], dtype=torch.int32))
    return {
        "word": int(word) & 0xFFFFFFFF,
        "same": bool((unpack_int4(packed) == values).all()),
        "shape": list(packed.shape),
    }


def _random(seed: int, low: int, high: int, *shape: int) -> torch.Tensor:
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(seed))


def int4_product() -> float:
    """Largest difference of the packed product from the plain one, for both layouts of the weight."""
    import torch_npu  # noqa: F401

    from ascend_hotfix.sim.kernels.int4 import pack_int4

    x, weight = _random(0, -8, 8, 3, 16), _random(1, -8, 8, 16, 24)
    scale, token = torch.rand(24), torch.rand(3)
    expected = (x @ weight).float() * scale * token[:, None]
    along_n, along_k = pack_int4(weight), pack_int4(weight.T).T
    found = [
        torch.ops.npu.npu_quant_matmul(pack_int4(x), packed, scale, pertoken_scale=token, output_dtype=6)
        for packed in (along_n, along_k)
    ]
    return max(float((value - expected).abs().max()) for value in found)


def w4a8_experts() -> dict[str, float]:
    """Largest difference of grouped W4A8 from int8 times int4, with the quantizer's scale_bias and with zeros."""
    import torch_npu  # noqa: F401

    from ascend_hotfix.sim.kernels.int4 import pack_int4

    x, weight = _random(2, -128, 128, 5, 8).to(torch.int8), _random(3, -8, 8, 2, 8, 16)
    scale, token = torch.rand(2, 16), torch.rand(5)
    bias = 8 * (weight * scale[:, None]).sum(1)
    counts, rows = torch.tensor([2, 3]), torch.tensor([0, 0, 1, 1, 1])
    expected = torch.einsum("mk,mkn->mn", x.double(), weight.double()[rows]) * scale[rows] * token[:, None]

    def run(bias: torch.Tensor) -> torch.Tensor:
        return torch.ops.npu.npu_grouped_matmul(
            [x],
            [pack_int4(weight)],
            scale=[scale.view(torch.int32).long()[:, None]],
            bias=[bias],
            per_token_scale=[token],
            group_list=counts,
            group_list_type=1,
            group_type=0,
            split_item=2,
            output_dtype=6,
        )[0]

    without = expected - (bias[rows] * token[:, None])
    return {
        "right": float((run(bias) - expected).abs().max()),
        "without": float((run(torch.zeros_like(bias)) - without).abs().max()),
        "size": float(expected.abs().max()),
    }


def weight_only() -> dict[str, float]:
    """Largest difference of W8A16 and of grouped W4A16 from the dequantized product."""
    import torch_npu  # noqa: F401

    from ascend_hotfix.sim.kernels.int4 import pack_int4

    x = torch.randn(3, 16, generator=torch.Generator().manual_seed(4))
    eight, four = _random(5, -128, 128, 16, 24).to(torch.int8), _random(6, -8, 8, 16, 24)
    scale, offset = torch.rand(24), torch.rand(24)
    groups, group_offsets = torch.rand(2, 24), torch.rand(2, 24)
    op = torch.ops.npu.npu_weight_quant_batchmatmul
    expected = x @ ((eight + offset) * scale)
    in_groups = x @ ((four + group_offsets.repeat_interleave(8, 0)) * groups.repeat_interleave(8, 0))
    return {
        "w8a16": float((op(x, eight, scale, offset) - expected).abs().max()),
        "w4a16": float((op(x, pack_int4(four), groups, group_offsets, antiquant_group_size=8) - in_groups).abs().max()),
    }


def unknown_argument() -> str:
    """What a kernel says of an argument that it has no definition for."""
    import torch_npu  # noqa: F401

    try:
        torch.ops.npu.npu_weight_quant_batchmatmul(
            torch.ones(1, 8), torch.ones(8, 8, dtype=torch.int8), torch.ones(8), quant_scale=torch.ones(8)
        )
    except NotImplementedError as error:
        return str(error)
    return ""
