"""Attributes of parameters that a release forgot, or set wrongly."""

from ascend_hotfix.records import Fix, ModelPatch, ParamAttr

PATCH = ModelPatch(
    model_types=("*",),
    fixes=(
        Fix(
            id="scale-bias-groups",
            why="a conditional takes scale_bias out of the grouped parameters of W4A8 experts, so each rank of tensor parallel "
            "loads the wrong part",
            refs=("vllm-ascend#7088", "vllm-ascend PR #7087"),
            versions={"vllm-ascend": ">=0.15.0rc1,<0.16"},
            retire="0.16 has the list right",
            override="the attribute is there and says channel",
            layers=(
                ParamAttr("**.w13_scale_bias", "quant_method", "group"),
                ParamAttr("**.w2_scale_bias", "quant_method", "group"),
                ParamAttr("**.w13_weight_scale_second", "quant_method", "group"),
                ParamAttr("**.w2_weight_scale_second", "quant_method", "group"),
            ),
        ),
    ),
)
