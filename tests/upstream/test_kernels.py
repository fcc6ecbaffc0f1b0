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


def test_a_microscaling_block_shares_the_power_of_two_of_its_largest_value(zygote: Zygote) -> None:
    """OCP MX 1.0: 6.5 has the exponent 2, E4M3 reaches 2**8 and E2M1 2**2; a byte b stands for 2**(b - 127)."""
    result = zygote.call("kernel_cases:microscaling")
    assert result["scales"] == [[[2 - 8 + 127, -20 - 8 + 127]]]
    assert result["e4m3"] == [64, -416, 20, -320, 256]  # times 2**6; 0.3 * 64 = 19.2, between 18 and 20
    assert result["four scales"] == [[[2 - 2 + 127, -20 - 2 + 127]]]
    # (1, -6), (0.5, 0.25: a tie) and (-5: a tie, 0.75: a tie); the first value in the low half, 8 is the sign
    assert result["even"] == [0x2 + 16 * 0xF, 0x1 + 16 * 0x0, 0xE + 16 * 0x2]
    assert result["away"] == [0x2 + 16 * 0xF, 0x1 + 16 * 0x1, 0xF + 16 * 0x2]
    total = 1 - 6.5 + 20 / 64 + 0.25 - 5 + 0.75 + 2.0**-20
    assert result["product"] == [pytest.approx([total, 2 * total])]
    fours = 1 - 6 + 0.5 + 0.5 - 6 + 1 + 2.0**-20
    assert result["product of fours"] == [pytest.approx([fours, 2 * fours])]


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


def test_an_op_without_a_kernel_says_so_and_where_one_belongs(zygote: Zygote) -> None:
    messages = zygote.call("kernel_cases:refusals")
    words = "simulated NPU: {} has no CPU reference kernel"
    for case, kind, op, place in (
        ("no kernel", "NotImplementedError", "npu::npu_anchor_response_flags", "a new module in "),
        ("no kernel, a topic", "NotImplementedError", "npu::npu_layer_norm_eval", "ascend_hotfix/sim/kernels/norm.py"),
        ("not defined", "AttributeError", "_C_ascend::no_such_rope", "ascend_hotfix/sim/kernels/rope.py"),
    ):
        assert messages[case].startswith(f"{kind}: {words.format(op)}"), messages[case]
        assert place in messages[case]
