"""Values that upstream loses or leaves unset, on genuine checkpoints: red without the patch, right with it."""

from __future__ import annotations

from typing import Any

import pytest

from ascend_hotfix.sim.pool import CaseError

STOCK = "none"


def longer(value: str) -> Any:
    """A case of the longer run: what it shows is shown on another release or checkpoint as well."""
    return pytest.param(value, marks=pytest.mark.longer)


@pytest.mark.parametrize("pair", ["0.11.0", *map(longer, ("0.13.0", "0.18.0", "0.23.0")), "0.30.0rc2"])
def test_glm4_router_bias_is_zero_and_not_what_memory_held(upstream: Any, pair: str) -> None:
    arguments = {"name": "glm4_moe-w8a8", "pattern": "e_score_correction_bias"}
    stock = upstream(pair, "unwritten", models=STOCK, **arguments)
    assert stock["left"] == stock["names"] != []
    fixed = upstream(pair, "unwritten", **arguments)
    assert fixed["left"] == [] and fixed["sum"] == 0 and fixed["hits"]["glm4.correction-bias"] == 1


@pytest.mark.parametrize("pair", ["0.13.0", "0.30.0rc2"])
def test_glm4_mtp_router_bias_is_zero(upstream: Any, pair: str) -> None:
    arguments = {"name": "glm4_moe-w8a8", "pattern": "e_score_correction_bias", "draft": True}
    assert upstream(pair, "unwritten", models=STOCK, **arguments)["left"] != []
    fixed = upstream(pair, "unwritten", **arguments)
    assert fixed["left"] == [] and fixed["sum"] == 0


@pytest.mark.parametrize("pair", ["0.13.0"])
@pytest.mark.parametrize(
    "name", ["deepseek_v3_2-w8a8", longer("deepseek_v3_2-w4a8"), longer("deepseek_v3_2-w8a8_quarot")]
)
def test_indexer_bias_that_no_checkpoint_has_is_zero_on_0_13(upstream: Any, pair: str, name: str) -> None:
    arguments = {"name": name, "pattern": "indexer.weights_proj.bias"}
    stock = upstream(pair, "unwritten", models=STOCK, **arguments)
    assert stock["left"] == stock["names"] and len(stock["names"]) == 2
    fixed = upstream(pair, "unwritten", **arguments)
    assert fixed["left"] == [] and fixed["sum"] == 0 and fixed["hits"]["deepseek.indexer-bias"] == 2


@pytest.mark.parametrize("pair", ["0.18.0"])
def test_no_indexer_bias_is_filled_where_upstream_builds_none(upstream: Any, pair: str) -> None:
    found = upstream(pair, "unwritten", name="deepseek_v3_2-w8a8", pattern="indexer.weights_proj.bias")
    assert found == {"names": [], "left": [], "sum": 0, "hits": {}}


@pytest.mark.parametrize("pair", ["0.13.0", *map(longer, ("0.18.0", "0.23.0")), "0.30.0rc2"])
def test_smoothing_biases_of_w8a8_mix_reach_the_dynamic_path(upstream: Any, pair: str) -> None:
    stock = upstream(pair, "smoothing_bias", models=STOCK)
    assert not any(stock["in place"].values())
    assert min(stock["error"].values()) > 0.05, "the stock answer is wrong without the biases"
    fixed = upstream(pair, "smoothing_bias")
    assert all(fixed["in place"].values())
    assert max(fixed["error"].values()) < 0.02
    assert max(fixed["static"].values()) < 0.03, (
        "the static path has the biases in quant_bias; they must not count twice"
    )
    assert fixed["static"] == stock["static"]
    assert fixed["hits"] == {"w8a8_mix.smoothing-bias": 4}


@pytest.mark.parametrize(
    ("pair", "asked"),
    [
        ("0.11.0", r"'\.weight'"),
        ("0.13.0", r"'\.weight'"),
        ("0.18.0", r"experts\.weight"),
        ("0.23.0", r"experts\.weight"),
    ],
)
def test_hunyuan_loads_with_its_router_dequantized(upstream: Any, pair: str, asked: str) -> None:
    with pytest.raises(CaseError, match=asked):
        upstream(pair, "hunyuan", models=STOCK)
    fixed = upstream(pair, "hunyuan")
    assert fixed["router"] < 0.003, "bf16 of the dequantized value"
    assert fixed["shared"] < 0.03
    assert fixed["unwritten"] == []
    at = "model.layers.1.mlp.shared_mlp."
    assert fixed["prefixes"] == [f"{at}gate_up_proj", f"{at}down_proj"]
    assert fixed["hits"]["hunyuan_v1_moe.router"] == 2


@pytest.mark.parametrize("pair", ["0.30.0rc2"])
def test_hunyuan_needs_nothing_of_it_on_0_30(upstream: Any, pair: str) -> None:
    assert not [one for one in upstream(pair, "whole", name="hunyuan_v1_moe-w8a8_default")["hits"] if "hunyuan" in one]


@pytest.mark.parametrize("pair", ["0.23.0", "0.30.0rc2"])
def test_longcat_builds_both_attention_modules_of_a_layer(upstream: Any, pair: str) -> None:
    with pytest.raises(CaseError, match="one integer"):
        upstream(pair, "whole", models=STOCK, name="longcat_flash-w4a4_mxfp4")
    fixed = upstream(pair, "whole", name="longcat_flash-w4a4_mxfp4")
    assert fixed["unwritten"] == []
    assert fixed["hits"]["longcat_flash.layer-index"] == 4
    assert fixed["hits"]["longcat_flash.mtp-tensors"] > 0


@pytest.mark.parametrize("pair", ["0.11.0"])
def test_qwen3_next_with_a_half_quantized_in_proj_loads_on_0_11(upstream: Any, pair: str) -> None:
    with pytest.raises(CaseError, match="some but not all shards"):
        upstream(pair, "mixed_shards", models=STOCK)
    fixed = upstream(pair, "mixed_shards")
    assert fixed["errors"] and max(fixed["errors"].values()) < 0.003
