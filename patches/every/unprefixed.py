"""Output heads and embeddings that vLLM builds without a prefix."""

from ascend_hotfix.records import Fix, ModelPatch, Unnamed

UNTIL = {"vllm-ascend": ">=0.11,<0.16"}
RETIRE = "from 0.16 on a name that begins nothing is taken for float"

PATCH = ModelPatch(
    model_types=("*",),
    fixes=(
        Fix(
            id="lm-head",
            why="the model file builds ParallelLMHead without a prefix, so the description is asked for '.weight'",
            refs=("vllm PR #24862", "vllm 0.11 qwen3_vl_moe.py"),
            versions=UNTIL,
            retire=RETIRE,
            describe=(Unnamed("ParallelLMHead", "lm_head"),),
        ),
        Fix(
            id="embedding",  # after the head, which is an embedding too
            why="the model file builds VocabParallelEmbedding without a prefix, so the description is asked for '.weight'",
            refs=("vllm 0.11 and 0.13 llama.py, exaone4.py, mixtral.py, olmoe.py, hunyuan_v1.py", "vllm PR #24862"),
            versions=UNTIL,
            retire=RETIRE,
            describe=(Unnamed("VocabParallelEmbedding", "model.embed_tokens"),),
        ),
    ),
)
