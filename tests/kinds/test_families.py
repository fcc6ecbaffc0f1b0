"""Cases that the patches of the model families mend."""

from __future__ import annotations

from typing import Any

import pytest

from ascend_hotfix.sim.pool import CaseError

STOCK = "none"


@pytest.mark.parametrize("pair", ["0.18.0"])
def test_per_channel_kv_scales_of_qwen2_are_whole_on_0_18(upstream: Any, pair: str) -> None:
    stock = upstream(pair, "kv_scales", models=STOCK, name="qwen2_5-w8a8c8_pdmix")
    assert stock["right"] == 0 and len(stock["wrong"]) == 8
    fixed = upstream(pair, "kv_scales", name="qwen2_5-w8a8c8_pdmix")
    assert fixed["right"] == 8 and not fixed["wrong"]


@pytest.mark.parametrize("pair", ["0.23.0"])
def test_kv_scales_of_qwen2_find_their_parameter_on_0_23(upstream: Any, pair: str) -> None:
    with pytest.raises(CaseError, match=r"qkv_proj\.kv_cache_"):
        upstream(pair, "kv_scales", models=STOCK, name="qwen2_5-w8a8c8_pdmix")
    fixed = upstream(pair, "kv_scales", name="qwen2_5-w8a8c8_pdmix")
    assert fixed["right"] == 8 and not fixed["wrong"]


@pytest.mark.parametrize("pair", ["0.11.0", "0.13.0"])
def test_glm4_6v_loads_under_either_model_type(upstream: Any, pair: str) -> None:
    """vllm-ascend reads hf_config in 0.11 and hf_text_config in 0.13: one patch serves both names."""
    with pytest.raises(CaseError, match="KeyError"):
        upstream(pair, "whole", models=STOCK, name="glm4_6v-w8a8")
    assert "glm4.wrapper-order" in upstream(pair, "whole", name="glm4_6v-w8a8")["hits"]
