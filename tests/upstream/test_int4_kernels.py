"""Reference kernels of W4A8, W4A4, W8A16 and W4A16 on torch_npu's own op schemas."""

from __future__ import annotations

from ascend_hotfix.sim.pool import Zygote


def test_eight_values_make_a_word_the_first_in_the_low_bits(zygote: Zygote) -> None:
    assert zygote.call("int4_cases:packing") == {"word": 0x87654321, "same": True, "shape": [1, 6]}


def test_both_layouts_of_a_packed_weight_give_the_product(zygote: Zygote) -> None:
    assert zygote.call("int4_cases:int4_product") < 1e-3


def test_w4a8_gives_the_product_only_with_the_bias_of_the_quantizer(zygote: Zygote) -> None:
    found = zygote.call("int4_cases:w4a8_experts")
    assert found["right"] < 1e-5 * found["size"]
    assert found["without"] < 1e-5 * found["size"]


def test_weight_only_products(zygote: Zygote) -> None:
    found = zygote.call("int4_cases:weight_only")
    assert found["w8a16"] < 1e-3
    assert found["w4a16"] < 1e-3


def test_an_unknown_argument_is_named_with_its_op(zygote: Zygote) -> None:
    said = zygote.call("int4_cases:unknown_argument")
    assert "npu::npu_weight_quant_batchmatmul" in said
    assert "quant_scale" in said
