"""Tensors that need more than a name: values compared with what the checkpoint holds."""

from __future__ import annotations

from typing import Any

import pytest

from ascend_hotfix.sim.pool import CaseError

STOCK = "none"


@pytest.mark.parametrize("pair", ["0.11.0", "0.18.0"])
def test_projections_that_are_fused_already_are_loaded_whole(upstream: Any, pair: str) -> None:
    """vllm-ascend#11368 (gate_gate_up_proj) and vllm#48449 (qkqkv_proj)."""
    with pytest.raises(CaseError, match=r"gate_gate_up_proj|qkqkv_proj"):
        upstream(pair, "fused_already", models=STOCK)
    fixed = upstream(pair, "fused_already")
    assert fixed["wrong"] == [] and fixed["hits"]["fused.projections"] == 12


@pytest.mark.parametrize("pair", ["0.30.0rc2"])
def test_projections_of_either_form_need_nothing_where_upstream_reads_both(upstream: Any, pair: str) -> None:
    stock = upstream(pair, "fused_already", models=STOCK)
    assert stock["wrong"] == [] and upstream(pair, "fused_already") == {"wrong": [], "hits": {}}


@pytest.mark.parametrize("pair", ["0.18.0", "0.23.0"])
def test_experts_in_one_tensor_are_taken_apart(upstream: Any, pair: str) -> None:
    """ms-swift PR #9468."""
    try:
        stock = upstream(pair, "experts_in_one_tensor", models=STOCK)
    except CaseError as error:
        assert "experts" in str(error)
    else:
        assert stock["unwritten"] != [], "dropped in silence"
    fixed = upstream(pair, "experts_in_one_tensor")
    assert fixed["wrong"] == [] and fixed["unwritten"] == []
    assert fixed["hits"] == {"fused.experts": 4}


@pytest.mark.parametrize(
    ("pair", "name"), [("0.11.0", "kimi_k2-w8a8"), ("0.13.0", "minimax_m2-w8a8"), ("0.18.0", "kimi_k2-w8a8")]
)
def test_an_fp8_checkpoint_is_loaded_as_bf16_where_there_is_no_fp8(upstream: Any, pair: str, name: str) -> None:
    """vllm-ascend#183 and patch_minimax_m2."""
    with pytest.raises(CaseError, match="fp8 quantization is currently not supported in npu"):
        upstream(pair, "block_fp8", models=STOCK, name=name)
    with pytest.raises(CaseError, match="weight_scale_inv"):
        upstream(pair, "block_fp8", models=STOCK, name=name, config_says_so=False)
    fixed = upstream(pair, "block_fp8", name=name)
    assert fixed["compared"] >= 3 and fixed["worst"] < 0.003
    assert fixed["dtypes"] == ["torch.bfloat16"] or fixed["dtypes"] == ["torch.bfloat16", "torch.float32"]


@pytest.mark.parametrize("pair", ["0.23.0"])
@pytest.mark.parametrize("draft", [False, True])
def test_an_fp8_wo_a_of_deepseek_v4_is_dequantized(upstream: Any, pair: str, draft: bool) -> None:
    """vllm-ascend PR #15387."""
    with pytest.raises(CaseError, match="wo_a"):
        upstream(pair, "fp8_wo_a", models=STOCK, draft=draft)
    fixed = upstream(pair, "fp8_wo_a", draft=draft)
    assert fixed["worst"] < 0.003 and fixed["hits"]["fp8.deepseek-v4-wo-a"] >= fixed["layers"]


@pytest.mark.longer
@pytest.mark.parametrize("pair", ["0.20.2rc1"])
def test_gemma4_experts_are_renamed_once(upstream: Any, pair: str) -> None:
    """vllm PR #41206: names that have .moe get it again."""
    with pytest.raises(CaseError, match=r"moe\.moe\.experts"):
        upstream(pair, "gemma_experts", models=STOCK)
    fixed = upstream(pair, "gemma_experts")
    assert fixed["right"] and fixed["hits"] == {"gemma4.moe-twice": 24}
