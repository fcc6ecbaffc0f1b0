"""Parameters that no checkpoint of the family fills: what upstream leaves in them is what memory held."""

from ascend_hotfix.records import Fill, Fix, ModelPatch

PATCHES = (
    ModelPatch(
        name="unwritten_glm4_moe",
        model_types=("glm4_moe", "glm4_moe_mtp", "glm4v_moe", "glm4v_moe_text"),
        fixes=(
            Fix(
                id="correction-bias",
                why="msModelSlim writes no mlp.gate.e_score_correction_bias, a buffer of the float model; the router adds what "
                "memory held",
                refs=("msmodelslim 26.1.0, GLM-4.x", "vllm glm4_moe.py, Glm4MoE"),
                versions={"vllm-ascend": ">=0.11"},
                retire="an export that has the tensor: it is loaded then",
                fill=(Fill("**.mlp.gate.e_score_correction_bias"),),
            ),
        ),
    ),
    ModelPatch(
        name="unwritten_deepseek_v32",
        model_types=("deepseek_v32", "deepseek_mtp"),
        fixes=(
            Fix(
                id="indexer-bias",
                why="vLLM 0.13 builds indexer.weights_proj with a bias that no checkpoint has, and the attention adds it",
                refs=("vllm 0.13 deepseek_v2.py, Indexer", "vllm-ascend 0.13 sfa_v1.py"),
                versions={"vllm": ">=0.12,<0.14"},
                retire="vLLM 0.14 builds it without",
                fill=(Fill("**.indexer.weights_proj.bias"),),
            ),
        ),
    ),
)
