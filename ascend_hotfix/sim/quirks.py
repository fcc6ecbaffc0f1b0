"""What differs between upstream releases for the lab, as one table: each row has a range of vllm-ascend versions and
a reason.

Where the installed code can simply be asked (does a function exist, does it take this parameter),
:mod:`ascend_hotfix.sim.lab` asks; a row is for what cannot be seen before it fails.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ascend_hotfix.versions import fits

__all__ = ["QUIRKS", "Quirk", "apply", "engine_args"]


@dataclass(frozen=True)
class Quirk:
    """Something the lab does for some releases. ``stage``: ``imported`` (vLLM is, vllm-ascend's patches are not
    applied yet), ``patched`` (they are) or ``built`` (a VllmConfig exists and is given).
    """

    id: str
    versions: str
    stage: str
    why: str
    apply: Callable[..., None]


def _triton_placeholder_functions() -> None:
    language: Any = importlib.import_module("vllm.triton_utils").tl
    for name in ("exp", "log", "log2"):
        if not hasattr(language, name):
            setattr(language, name, None)


def _soc_version_a2() -> None:
    utils: Any = importlib.import_module("vllm_ascend.utils")
    utils._ascend_soc_version = utils.AscendSocVersion.A2


def _remember_nz(vllm_config: Any) -> None:
    importlib.import_module("vllm_ascend.utils").is_enable_nz(vllm_config=vllm_config)


def _weight_prefetch(vllm_config: Any) -> None:
    set_method = getattr(importlib.import_module("vllm_ascend.utils"), "set_weight_prefetch_method", None)
    if set_method is None:  # gone again in 0.30
        return
    ascend_config = importlib.import_module("vllm_ascend.ascend_config").get_ascend_config()
    with importlib.import_module("vllm.config").set_current_vllm_config(vllm_config):
        set_method(ascend_config.weight_prefetch_config)


def _tiny_indexer(vllm_config: Any) -> None:
    """Give the sizes that 0.11's Indexer hard-codes from the config, when a config has them."""
    if vllm_config.model_config.hf_config.model_type != "deepseek_v32":
        return  # importing that module changes the DeepSeek classes of vLLM
    indexer = importlib.import_module("vllm_ascend.models.deepseek_v3_2").Indexer
    build = indexer.__init__

    @functools.wraps(build)
    def __init__(self: Any, config: Any, *args: Any, **kwargs: Any) -> None:
        for argument, field in _INDEXER_SIZES.items():
            if hasattr(config, field):
                kwargs[argument] = getattr(config, field)
        build(self, config, *args, **kwargs)

    indexer.__init__ = __init__


_INDEXER_SIZES = {
    "n_heads": "index_n_heads",
    "head_dim": "index_head_dim",
    "index_topk": "index_topk",
    "q_lora_rank": "q_lora_rank",
    "rope_head_dim": "qk_rope_head_dim",
}


def _unaligned_pages() -> None:
    """A tiny hybrid model cannot align its attention and state pages; nothing is served from them in the lab."""
    config = importlib.import_module("vllm.model_executor.models.config").HybridAttentionMambaModelConfig
    verify = config.__dict__["verify_and_update_config"].__func__

    def verify_and_update_config(cls: Any, vllm_config: Any) -> None:
        try:
            verify(cls, vllm_config)
        except AssertionError as error:
            if "align" not in str(error):
                raise

    config.verify_and_update_config = classmethod(verify_and_update_config)


QUIRKS = (
    Quirk(
        "triton-placeholder",
        "<0.12",
        "imported",
        "vLLM 0.11's stand-in for triton.language lacks names that vllm-ascend's qwen3_next imports at module level",
        _triton_placeholder_functions,
    ),
    Quirk("soc-version", "<0.12", "patched", "0.11 asks the driver for the chip at run time", _soc_version_a2),
    Quirk(
        "indexer-sizes", "<0.12", "built", "0.11 hard-codes the indexer of the full-size DeepSeek-V3.2", _tiny_indexer
    ),
    Quirk("unaligned-pages", ">=0.18,<0.30", "patched", "an assertion on real page sizes", _unaligned_pages),
    Quirk(
        "nz", "<0.12", "built", "0.11's model runner asks this once with the config and caches the answer", _remember_nz
    ),
    Quirk(
        "weight-prefetch",
        ">=0.12",
        "built",
        "the model runner sets this before a MoE layer runs",
        _weight_prefetch,
    ),
)


def apply(stage: str, version: str, *args: Any) -> None:
    """Run the rows of ``stage`` that fit the vllm-ascend release ``version``."""
    for quirk in QUIRKS:
        if quirk.stage == stage and fits(version, quirk.versions):
            quirk.apply(*args)


def engine_args(model_type: str, version: str) -> dict[str, Any]:
    """Engine arguments that a model type needs beyond the lab's own."""
    if model_type == "internvl_chat" and fits(version, ">=0.30"):
        return {"skip_tokenizer_init": False}  # its config check asks the processor
    return {}
