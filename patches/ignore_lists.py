"""Lists of layers that are not quantized, in other formats than ModelSlim's, which name them as the checkpoint does."""

from ascend_hotfix.records import Children, Exact, Fix, ModelPatch, Prefix, Segments

PATCHES = (
    ModelPatch(
        name="ignore_experts",
        model_types=("*",),
        fixes=(
            Fix(
                id="children",
                why="the list names single experts, vLLM asks for the experts as one module and builds them quantized",
                refs=("vllm PR #48226", "vllm#23025", "vllm#54547"),
                versions={"vllm": ">=0.11"},
                retire="vLLM 0.30 looks at the children for Quark, for no other format",
                describe=(Children("**.experts"),),
            ),
        ),
    ),
    ModelPatch(
        name="ignore_glm5_next",
        model_types=("glm5_next", "glm5_next_text"),
        fixes=(
            Fix(
                id="wrapper-order",
                why="the list says model.language_model.*, model.visual.* and lm_head; vLLM asks language_model.model.*, visual.* "
                "and language_model.lm_head",
                refs=("vllm#54547",),
                versions={"vllm": ">=0.23"},
                retire="open at 2026-08-31",
                lookup=(
                    Prefix("language_model.model", "model.language_model"),
                    Prefix("visual", "model.visual"),
                    Exact("language_model.lm_head", "lm_head"),
                ),
            ),
        ),
    ),
    ModelPatch(
        name="ignore_minimax_m3",
        model_types=("minimax_m3", "minimax_m3_vl"),
        fixes=(
            Fix(
                id="vision-mlp",
                why="the mapper turns '.mlp.fc1.' into '.fc1.', but names in the list end without a dot: layers.0.mlp.fc1 stays",
                refs=("vllm PR #51910",),
                versions={"vllm": ">=0.26"},
                retire="the AMD model file of 0.30 has the rule without the dot",
                lookup=(Segments("fc1", "mlp.fc1"), Segments("fc2", "mlp.fc2")),
            ),
        ),
    ),
    ModelPatch(
        name="ignore_qwen2_5_vl",
        model_types=("qwen2_5_vl", "qwen2_5_vl_text"),
        fixes=(
            Fix(
                id="lm-head",
                why="the mapper's rule 'lm_head.' does not fit the listed name lm_head, which has no dot",
                refs=("vllm#25124",),
                versions={"vllm": ">=0.10"},
                retire="open",
                lookup=(Exact("language_model.lm_head", "lm_head"),),
            ),
        ),
    ),
)
