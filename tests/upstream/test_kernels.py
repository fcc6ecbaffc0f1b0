"""The reference kernels compute what their op is documented to, and refuse what they do not know. Expected values by
hand.
"""

from __future__ import annotations

import pytest

from ascend_hotfix.sim.pool import Zygote


def test_quantize_rounds_half_to_even_and_saturates(zygote: Zygote) -> None:
    result = zygote.call("kernel_cases:quantize")
    expected = [[-1, 4, 4, 127]]  # -4 + 3, 1 + 3, round(1.5 + 3) = 4, saturated
    assert result["divided"] == expected
    assert result["multiplied"] == expected
    assert result["per token"] == [[-127, 64, 32], [0, 0, 0]]  # 63.5 and 31.75
    assert result["scales"] == pytest.approx([2 / 127, 0.0])


def test_quantized_matmul_adds_an_int_bias_before_the_scale_and_a_float_bias_after(zygote: Zygote) -> None:
    result = zygote.call("kernel_cases:quant_matmul")
    # sums: [[3 - 10, 127 - 254], [800, 25400]]
    assert result["static"] == [[(-7 + 10) * 0.5, (-127 - 20) * 0.25], [(800 + 10) * 0.5, (25400 - 20) * 0.25]]
    assert result["dynamic"] == [[-7 * 0.5 * 2 + 1, -127 * 0.25 * 2], [800 * 0.5 + 1, 25400 * 0.25]]


def test_tokens_are_sorted_by_expert_and_come_back_weighted(zygote: Zygote) -> None:
    result = zygote.call("kernel_cases:routing")
    assert result["rows"] == [
        [1, 2],
        [3, 4],
        [3, 4],
        [1, 2],
    ]  # expert 0: tokens 0 and 1, expert 1: token 1, expert 2: token 0
    assert result["index"] == [3, 0, 1, 2]
    assert result["counts"] == [2, 1, 1]
    assert result["back"] == [[1, 2], [3, 4]]


def test_what_no_kernel_defines_is_refused_by_name(zygote: Zygote) -> None:
    messages = zygote.call("kernel_cases:refusals")
    assert "npu::npu_dynamic_quant" in messages["unknown argument"]
    assert "dst_type_max=7.0" in messages["unknown argument"]
    assert "quant_mode='pertensor'" in messages["unknown value"]
    assert "npu_anchor_response_flags" in messages["no kernel"]
