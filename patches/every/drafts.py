"""Drafts: quantization of a checkpoint's own MTP layers, layer numbers of Eagle3 with pipeline parallelism."""

from ascend_hotfix.records import DraftQuantization, Fix, ModelPatch, TargetLayers

PATCH = ModelPatch(
    model_types=("*",),
    fixes=(
        Fix(
            id="detected-quantization",
            why="a ModelSlim checkpoint served without --quantization is detected after the draft's config has been made, so "
            "its MTP layers are built as float",
            refs=("vllm-ascend PR #15425",),
            versions={"vllm-ascend": ">=0.24"},
            retire="open at 2026-08-31; nothing happens with --quantization ascend. Before 0.24 vLLM reads no config for such a "
            "draft, which is built with the target's",
            config=(DraftQuantization(),),
        ),
        Fix(
            id="eagle3-layers",
            why="the draft numbers its layers from those of this pipeline rank, which are the names of layers of the target",
            refs=("vllm-ascend patch_eagle3_pp_aux.py", "vllm-ascend patch_eagle3_init.py"),
            versions={"vllm-ascend": ">=0.11,<0.23"},
            retire="0.23 has patch_eagle3_init",
            layers=(TargetLayers("Eagle3LlamaForCausalLM"),),
        ),
    ),
)
