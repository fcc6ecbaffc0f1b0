"""Drafts, pipelines, shared indexers, layers without a prefix."""

from __future__ import annotations

from typing import Any

import pytest

from ascend_hotfix.sim.pool import CaseError

STOCK = "none"


@pytest.mark.parametrize("pair", ["0.30.0rc2"])
def test_the_draft_of_a_detected_checkpoint_is_quantized(upstream: Any, pair: str) -> None:
    """vllm-ascend PR #15425: upstream's own helper then finds the draft's description."""
    stock = upstream(pair, "detected_draft", models=STOCK, name="glm_5-w8a8")
    assert (stock["target"], stock["draft"], stock["described"]) == ("ascend", None, 0)
    fixed = upstream(pair, "detected_draft", name="glm_5-w8a8")
    assert (fixed["target"], fixed["draft"]) == ("ascend", "ascend") and fixed["described"] > 100
    assert fixed["hits"]["drafts.detected-quantization"] == 1


@pytest.mark.parametrize("pair", ["0.18.0"])
def test_an_eagle3_draft_is_numbered_from_all_layers_of_the_target(upstream: Any, pair: str) -> None:
    """vllm-ascend patch_eagle3_pp_aux."""
    with pytest.raises(CaseError, match=r"Duplicate layer name: model\.layers\.2\."):
        upstream(pair, "eagle_layers", models=STOCK)
    fixed = upstream(pair, "eagle_layers")
    assert fixed["prefix"] == "model.layers.4.self_attn.attn"
    assert fixed["counted"] == 2, "the target's own count is as before"


@pytest.mark.parametrize("pair", ["0.18.0"])
@pytest.mark.parametrize("rank", [0, 1])
def test_kv_scales_of_another_rank_are_left_out(upstream: Any, pair: str, rank: int) -> None:
    """vllm-ascend PR #7385: Qwen3-MoE with an INT8 KV cache and pipeline parallelism."""
    with pytest.raises(CaseError, match=r"KeyError.*attn\.k_cache_scale"):
        upstream(pair, "pipeline_kv_scales", models=STOCK, rank=rank)
    fixed = upstream(pair, "pipeline_kv_scales", rank=rank)
    assert fixed["scale"] == [0.5] and fixed["offset"] == [rank]
    assert fixed["hits"]["pipeline.kv-scales"] == 4


@pytest.mark.parametrize("pair", ["0.18.0"])
def test_layers_with_a_shared_indexer_choose_what_the_layer_before_chose(upstream: Any, pair: str) -> None:
    """vllm-ascend#10610, #11208, #12901, PR #12660."""
    with pytest.raises(CaseError, match=r"model\.layers\.1\.self_attn\.indexer\.wq_b\.weight"):
        upstream(pair, "shared_indexer", models=STOCK)
    fixed = upstream(pair, "shared_indexer")
    assert fixed["chosen"] == [[[1], [1]], [[2], [2]]]
    assert fixed["left"] == []
    assert fixed["hits"]["glm5.shared-indexer"] > 0


@pytest.mark.parametrize("pair", ["0.18.0"])
def test_an_indexer_in_every_layer_is_left_alone(upstream: Any, pair: str) -> None:
    assert upstream(pair, "whole", name="glm_5-w8a8")["hits"] == {}


@pytest.mark.parametrize("pair", ["0.11.0"])
def test_a_head_built_without_a_prefix_is_found_by_its_class(upstream: Any, pair: str) -> None:
    """vllm PR #24862: ParallelLMHead asks for '.weight'."""
    without_head = "all,-unprefixed"
    with pytest.raises(CaseError, match="KeyError"):
        upstream(pair, "whole", models=STOCK, name="qwen3_vl_moe-w8a8")
    fixed = upstream(pair, "whole", name="qwen3_vl_moe-w8a8")
    assert "lm_head" not in " ".join(fixed["unwritten"]) and fixed["hits"]["unprefixed.lm-head"] == 1
    with pytest.raises(CaseError, match=r"KeyError: '\.weight'"):
        upstream(pair, "whole", models=without_head, name="qwen3_vl_moe-w8a8")


@pytest.mark.parametrize("part", ["ViTMLP", "ImageProjectorMLP"])
@pytest.mark.parametrize("pair", ["0.13.0"])
def test_a_layer_without_any_prefix_is_asked_for_by_its_path(upstream: Any, pair: str, part: str) -> None:
    """vllm PR #32385 (vision layers) and PR #22716 (a merger), on Molmo, which 0.13 builds the same way."""
    stock = upstream(pair, "vision_layer", models=STOCK, part=part)
    assert "weight_scale" in stock["names"] and stock["dtypes"] == ["torch.int8"]
    fixed = upstream(pair, "vision_layer", part=part)
    assert "weight_scale" not in fixed["names"] and fixed["dtypes"] == ["torch.bfloat16"]
    assert fixed["hits"] == {"molmo.vision-prefix": 2}


@pytest.mark.longer
@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("pair", ["0.15.0rc1"])
def test_each_rank_has_its_part_of_the_experts_scale_bias(upstream: Any, pair: str, rank: int) -> None:
    """vllm-ascend#7088: W4A8 experts under tensor parallelism."""
    try:
        assert not upstream(pair, "expert_scales_of_rank", models=STOCK, rank=rank)["right"]
    except CaseError as error:
        assert "size" in str(error)
    fixed = upstream(pair, "expert_scales_of_rank", rank=rank)
    assert fixed["right"] and fixed["width"] == 8


@pytest.mark.longer
@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("pair", ["0.20.2rc1"])
def test_attention_sinks_of_another_rank_are_left_out(upstream: Any, pair: str, rank: int) -> None:
    """vllm-ascend PR #9473: DeepSeek-V4 with pipeline parallelism."""
    with pytest.raises(CaseError, match="attn_sink"):
        upstream(pair, "pipeline_sinks", models=STOCK, rank=rank)
    fixed = upstream(pair, "pipeline_sinks", rank=rank)
    assert len(fixed["sinks"]) > 0 and fixed["hits"]["pipeline.attention-sinks"] > 0


@pytest.mark.parametrize("prefix", ["model.", "language_model.model."])
@pytest.mark.parametrize("pair", ["0.18.0"])
def test_the_draft_of_step_3_5_finds_its_layers(upstream: Any, pair: str, prefix: str) -> None:
    """vllm-ascend PR #10697: mtp_block, and a wrapper's names."""
    with pytest.raises(CaseError, match=r"KeyError.*layers\.2\.mtp_block\.self_attn"):
        upstream(pair, "step_draft", models=STOCK, prefix=prefix)
    fixed = upstream(pair, "step_draft", prefix=prefix)
    assert "torch.int8" in fixed["dtypes"] and fixed["hits"]["step3p5.mtp-names"] > 0
