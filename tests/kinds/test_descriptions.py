"""Where the description comes from, and what it says of the KV cache."""

from __future__ import annotations

from typing import Any

import pytest

from ascend_hotfix.sim.pool import CaseError

STOCK = "none"
INT8 = ["torch.int8"]


@pytest.mark.parametrize("pair", ["0.11.0", "0.18.0"])
@pytest.mark.parametrize("name", ["quant_model_description_w8a8_dynamic.json", "w8a8_quant_model_description.json"])
def test_a_description_of_another_name_is_read(upstream: Any, pair: str, name: str) -> None:
    """vllm-ascend#2290, #2296. Up to 0.13 vLLM matches the end of a name, so the second needs no help there."""
    needed = not (pair == "0.11.0" and name.startswith("w8a8"))
    if needed:
        with pytest.raises(
            CaseError, match=r"Cannot find the config file for ascend|ModelSlim Quantization Config Not Found"
        ):
            upstream(pair, "description_file", models=STOCK, name=name)
    fixed = upstream(pair, "description_file", name=name)
    assert fixed["dtypes"] == INT8 and fixed["unwritten"] == []
    assert ("description_files.file-name" in fixed["hits"]) == needed


@pytest.mark.parametrize("pair", ["0.11.0", "0.18.0"])
def test_an_empty_description_is_completed_from_the_file_beside(upstream: Any, pair: str) -> None:
    """vllm-ascend#569 and #876: KeyError model.layers.0.self_attn.q_proj.weight."""
    arguments = {"name": "quant_model_description_w8a8.json", "beside": {"model_quant_type": "W8A8_DYNAMIC"}}
    with pytest.raises(CaseError, match=r"self_attn\.q_proj\.weight|embed_tokens\.weight"):
        upstream(pair, "description_file", models=STOCK, **arguments)
    fixed = upstream(pair, "description_file", **arguments)
    assert fixed["dtypes"] == INT8 and fixed["hits"]["description_files.file-name"] == 1


@pytest.mark.parametrize("pair", ["0.11.0", "0.18.0", pytest.param("0.23.0", marks=pytest.mark.longer), "0.30.0rc2"])
def test_the_description_is_read_beside_a_quantization_config(upstream: Any, pair: str) -> None:
    """vllm-ascend PR #9734: every layer float in silence, or a KeyError, by release."""
    try:
        stock = upstream(pair, "description_in_config", models=STOCK)
    except CaseError as error:
        assert "weight" in str(error)
    else:
        assert stock["dtypes"] != INT8
    fixed = upstream(pair, "description_in_config")
    assert fixed["dtypes"] == INT8 and fixed["unwritten"] == []
    assert fixed["own"] == 1, "what config.json says stays"


@pytest.mark.parametrize("pair", ["0.11.0", pytest.param("0.18.0", marks=pytest.mark.longer), "0.30.0rc2"])
def test_deepseek_r1_w4a8_is_served_without_editing_the_checkpoint(upstream: Any, pair: str) -> None:
    """vllm-ascend#2296: model_type deepseekv2, file name, quantization_config."""
    with pytest.raises(CaseError, match="deepseekv2"):
        upstream(pair, "r1_w4a8", models=STOCK)
    fixed = upstream(pair, "r1_w4a8")
    assert fixed["model_type"] == "deepseek_v3" and fixed["int8"] == "torch.int8" and fixed["unwritten"] == []
    assert fixed["hits"]["deepseek.w4a8-model-type"] > 0


@pytest.mark.parametrize("pair", ["0.30.0rc2"])
def test_group_size_is_set_for_w4a8_only(upstream: Any, pair: str) -> None:
    assert upstream(pair, "group_size", models=STOCK, schemes="W4A8_DYNAMIC") is None
    assert upstream(pair, "group_size", schemes="W4A8_DYNAMIC") == 256
    assert upstream(pair, "group_size", schemes="W8A8_DYNAMIC") is None


@pytest.mark.parametrize("pair", ["0.18.0"])
def test_a_layer_without_kv_scales_keeps_its_cache_in_the_models_dtype(upstream: Any, pair: str) -> None:
    """vllm-ascend 0.18 tests kv_cache_type only."""
    stock = upstream(pair, "kv_layer_without_scales", models=STOCK)
    layers = ["model.layers.0.self_attn.attn", "model.layers.1.self_attn.attn"]
    assert sorted(name for name, kind in stock["methods"].items() if "KVCache" in kind) == layers
    fixed = upstream(pair, "kv_layer_without_scales")
    assert [name for name, kind in fixed["methods"].items() if "KVCache" in kind] == layers[:1]
    assert fixed["hits"]["kv_cache.layers-without-scales"] > 0


@pytest.mark.parametrize("pair", ["0.30.0rc2"])
def test_an_mtp_layer_is_not_taken_for_the_targets_layer_of_its_number(upstream: Any, pair: str) -> None:
    """vllm-ascend commit bf009c91cb: Qwen3.5 with an INT8 KV cache and MTP."""
    stock = upstream(pair, "kv_of_a_draft", models=STOCK)
    assert [kind for kind in stock["methods"].values() if "KVCache" in kind]
    fixed = upstream(pair, "kv_of_a_draft")
    assert not [kind for kind in fixed["methods"].values() if "KVCache" in kind]
    assert fixed["hits"]["kv_cache.layers-without-scales"] > 0
