"""Step-3.5 and 3.7: rows, and the names of the MTP draft."""

from ascend_hotfix.records import Fix, ModelPatch, Packed, Prefix, Segments, per_expert

PATCH = ModelPatch(
    model_types=("step3p5", "step3p5_mtp", "step3p7"),
    fixes=(
        Fix(
            id="mtp-names",
            why="no packed row for step3p5; the draft asks model.layers.N.mtp_block.*, the description says model.layers.N.*, below "
            "a wrapper language_model.model.layers.N.*",
            refs=("vllm-ascend PR #10697",),
            versions={"vllm-ascend": ">=0.16,<0.23"},
            retire="0.23.0rc1 has the rows, the rename and the retry",
            lookup=(Segments("mtp_block", ""), Prefix("model.layers", "language_model.model.layers")),
            packed=(
                Packed("qkv_proj", ("q_proj", "k_proj", "v_proj")),
                Packed("gate_up_proj", ("gate_proj", "up_proj")),
                Packed("experts", per_expert()),
            ),
        ),
    ),
)
