"""What a patch is made of: frozen records, validated when made.

A patch module holds one ``PATCH = ModelPatch(...)`` and no code. Every mistake in a record is reported
at once, as one :class:`PatchError` in the author's terms; so is every mistake in a patch file. What a field
can say is documented here, with the public report that asked for it; what no field can say needs a new record
kind with its own tests.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any

from ascend_hotfix.names import (
    Exact,
    Layers,
    Prefix,
    Rule,
    Segments,
    Suffix,
    locate,
    odd_characters,
    refuse,
)
from ascend_hotfix.renamer import Renamer

__all__ = [
    "Absent",
    "Bias",
    "ByPath",
    "Children",
    "ClassAlias",
    "Config",
    "Dequantize",
    "DescriptionFile",
    "DescriptionSet",
    "DraftQuantization",
    "Drop",
    "Exact",
    "Fill",
    "Fix",
    "Inside",
    "KVCache",
    "LayerIndex",
    "Layers",
    "ModelPatch",
    "Packed",
    "ParamAttr",
    "PatchError",
    "Prefix",
    "Reuse",
    "Scheme",
    "Segments",
    "Stack",
    "Suffix",
    "TargetLayers",
    "Unfuse",
    "Unnamed",
    "per_expert",
]

DISTRIBUTIONS = ("vllm", "vllm-ascend", "transformers", "torch")
IDENTIFIER = re.compile(r"[a-z0-9][a-z0-9_.-]*")
FIX_ID = re.compile(r"[a-z0-9][a-z0-9-]*")
LARGEST = 3.4e38  # of float32 and bfloat16
MOST_STEPS = 200  # of a walk from rule to rule
MODEL_TYPE = re.compile(r"\w[\w./-]*")


class PatchError(ValueError):
    """A patch that cannot be used. ``problems`` holds every mistake, one line each; so does the text."""

    def __init__(self, what: str, problems: list[str]) -> None:
        self.what, self.problems = what, problems
        super().__init__(f"{what}: {problems[0]}" if len(problems) == 1 else "\n  ".join([f"{what}:", *problems]))

    def __reduce__(self) -> tuple[type[PatchError], tuple[str, list[str]]]:
        return type(self), (self.what, self.problems)


def per_expert(gate: str = "gate_proj", up: str = "up_proj", down: str = "down_proj") -> tuple[str, ...]:
    """The shards by which vllm-ascend finds the scheme of fused experts: those of expert 0."""
    return tuple(f"experts.0.{name}" for name in (gate, up, down))


@dataclass(frozen=True)
class Packed:
    """A fused module and the checkpoint's shards of it, for ``packed_modules_mapping``.

    Added where upstream's row lacks *fused*; an entry of upstream's is never replaced. A shard in
    *optional* may be absent from the description (Gemma4's ``v_proj`` on layers that share K and V).
    """

    fused: str
    shards: tuple[str, ...]
    optional: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check(
            self,
            f"Packed({self.fused!r})",
            [
                *_segments("fused", self.fused, one=True),
                *(["shards is empty"] if not self.shards else []),
                *_strings_only("shards", self.shards),
                *_strings_only("optional", self.optional),
                *(line for shard in _strings(self.shards) for line in _segments("shards", shard)),
                *(
                    f"optional names {s!r}, which is no shard"
                    for s in _strings(self.optional)
                    if s not in _strings(self.shards)
                ),
            ],
        )


@dataclass(frozen=True)
class Scheme:
    """The scheme of the modules that match *pattern* (module names as vLLM asks; ``*`` and ``**``).

    A default: it is taken only where the description says nothing. With ``Fix.override`` it replaces what
    the description says. ``mtp_only`` bounds it to layers numbered from ``num_hidden_layers`` on
    (the note on DeepSeek MTP in vllm-ascend's packed table).

    *when* bounds it to checkpoints that have one of these tensors; each ``*`` in them is, in order, what the
    pattern's ``*`` stand for. A quantization config that is not ModelSlim's quantizes every layer that it does not
    list, so there ``FLOAT`` needs *when* (or ``Fix.override``): float MTP layers in a GPTQ checkpoint
    (vllm PR #39475) have ``mtp.layers.*.mlp.experts.0.down_proj.weight`` where quantized ones have ``qweight``.
    For ``FLOAT`` nothing but a bias may be beside that tensor: FP8 and int8 layers have a ``weight`` too, and scales.
    """

    pattern: str
    scheme: str = "FLOAT"
    mtp_only: bool = False
    when: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check(
            self,
            f"Scheme({self.pattern!r})",
            [
                *_pattern(self.pattern),
                *_scheme(self.scheme),
                *_plain("mtp_only", self.mtp_only, bool),
                *_strings_only("when", self.when),
                *(line for tensor in _strings(self.when) for line in _segments("when", tensor, stars=True)),
                *(["when: the pattern's '**' cannot be filled in"] if self.when and "**" in str(self.pattern) else []),
                *(
                    f"when: {tensor!r} has more '*' than the pattern"
                    for tensor in _strings(self.when)
                    if tensor.split(".").count("*") > str(self.pattern).split(".").count("*")
                ),
            ],
        )


@dataclass(frozen=True)
class Drop:
    """Checkpoint tensors that no parameter takes and upstream's loader refuses (``rot.weight``, vllm-ascend#10317)."""

    pattern: str

    def __post_init__(self) -> None:
        _check(self, f"Drop({self.pattern!r})", _pattern(self.pattern))


@dataclass(frozen=True)
class Fill:
    """A parameter that no checkpoint tensor fills gets *value* instead of what memory held.

    It starts with *value*; a tensor that comes, in the first load or in a later one, overwrites it for good.
    GLM-4.x exports lack ``e_score_correction_bias``; vLLM 0.13 builds DeepSeek-V3.2's
    ``indexer.weights_proj`` with a bias that no checkpoint has.
    """

    pattern: str
    value: float = 0.0

    def __post_init__(self) -> None:
        problems = _plain("value", self.value, int, float)
        if not problems and not abs(self.value) <= LARGEST:
            problems = [f"value must be a finite number that a parameter can hold, not {self.value!r}"]
        _check(self, f"Fill({self.pattern!r})", [*_pattern(self.pattern), *problems])


@dataclass(frozen=True)
class Config:
    """A change of config.json as transformers and vLLM read it: *remove* keys, then *put* keys.

    It is made only where each key of *where* has that value. DeepSeek-R1-W4A8 exports say
    ``model_type: deepseekv2`` (vllm-ascend#2296); FP8 checkpoints whose weights are dequantized on the way
    in must not say ``quantization_config`` (vllm-ascend#183). The patch's ``model_types`` are those of the
    file as it is. Nothing is written to the disk.
    """

    put: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    remove: tuple[str, ...] = ()
    where: Mapping[str, str | int | float | bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        problems = _strings_only("remove", self.remove)
        for name in ("put", "where"):
            value = getattr(self, name)
            if not isinstance(value, Mapping) or not all(isinstance(key, str) and key for key in value):
                problems.append(f"{name} must map keys of config.json to values, not {value!r}")
            else:
                for key, one in value.items():
                    problems += _plain(f"{name}[{key!r}]", one, str, int, float, bool)
        if not problems and not self.put and not self.remove:
            problems.append("changes nothing; give put or remove")
        _check(self, "Config(...)", problems)
        for name in ("put", "where"):
            if isinstance(getattr(self, name), Mapping):
                object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))

    def __hash__(self) -> int:
        return hash((tuple(self.put.items()), self.remove, tuple(self.where.items())))


@dataclass(frozen=True)
class DraftQuantization:
    """The draft layers of a checkpoint are quantized as the target is.

    vllm-ascend detects a ModelSlim checkpoint only after the draft's ModelConfig has been made, so an MTP
    draft from the same checkpoint stays unquantized (vllm-ascend PR #15425).
    """


@dataclass(frozen=True)
class DescriptionFile:
    """Another file name for the quant description; ``*`` stands for any run of characters.

    It is read where the description has no entry of any layer: ModelSlim variants name the file after the
    scheme (vllm-ascend#2290, #2296), and a ``quantization_config`` in config.json keeps
    vllm-ascend from reading the file at all (PR #9734). What the description says already stays.
    """

    name: str = "quant_model_description*.json"

    def __post_init__(self) -> None:
        ok = isinstance(self.name, str) and self.name.endswith(".json") and "/" not in self.name
        _check(self, f"DescriptionFile({self.name!r})", [] if ok else ["name must be a file name that ends in .json"])


@dataclass(frozen=True)
class DescriptionSet:
    """A key of the description that describes no layer (``group_size``) and the value it has where it is absent.

    mindie exports of DeepSeek-R1-W4A8 lack ``group_size`` (vllm-ascend#2296). *schemes* bounds it to
    descriptions in which one of these schemes occurs.
    """

    key: str
    value: str | int | float | bool
    schemes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check(
            self,
            f"DescriptionSet({self.key!r})",
            [
                *_segments("key", self.key),
                *_plain("value", self.value, str, int, float, bool),
                *_strings_only("schemes", self.schemes),
            ],
        )


@dataclass(frozen=True)
class Children:
    """A module that matches *pattern* and has no entry has the scheme of the modules below it, if all agree.

    Fused experts are asked as one module while the description, or the list of layers that are not
    quantized, names each expert (vllm PR #48226, vllm#54547, vllm#23025).
    """

    pattern: str = "**.experts"

    def __post_init__(self) -> None:
        _check(self, f"Children({self.pattern!r})", _pattern(self.pattern))


@dataclass(frozen=True)
class KVCache:
    """The KV cache of an attention layer that matches *pattern* is not quantized where the layer has no scales.

    vllm-ascend 0.18 takes ``kv_cache_type: C8`` for every attention layer, later releases match layer numbers
    only, so that ``mtp.layers.0`` counts as layer 0 (the v0.18.0 gap; commit bf009c91cb for Qwen3.5's MTP). *leaf* is
    what a layer with a quantized cache has, beside its ``attn``.
    """

    pattern: str
    leaf: str = "k_proj.kv_cache_scale"

    def __post_init__(self) -> None:
        _check(self, f"KVCache({self.pattern!r})", [*_pattern(self.pattern), *_segments("leaf", self.leaf)])


@dataclass(frozen=True)
class Unnamed:
    """A layer of class *cls* that was built with an empty prefix is called *name*.

    ``ParallelLMHead`` in many models of vLLM 0.10 and 0.11 (vllm PR #24862), Hunyuan's ``embed_tokens``. The first
    record whose class the layer has (bases count) is taken, so the special class comes first.
    """

    cls: str
    name: str

    def __post_init__(self) -> None:
        _check(self, f"Unnamed({self.cls!r})", [*_class("cls", self.cls), *_segments("name", self.name)])


@dataclass(frozen=True)
class Inside:
    """A part of class *cls* built while an *inside* is built has the prefix of that *inside* plus *name*.

    For constructors that forget to hand on a prefix: Hunyuan's shared expert (vllm PR #48682). Classes are those of
    vLLM's model files. A prefix that is right already is left alone.
    """

    cls: str
    inside: str
    name: str

    def __post_init__(self) -> None:
        _check(
            self,
            f"Inside({self.cls!r})",
            [*_class("cls", self.cls), *_class("inside", self.inside), *_segments("name", self.name)],
        )


@dataclass(frozen=True)
class ByPath:
    """A linear layer that matches *pattern* is asked for again under the name it has in the built model.

    For parts whose constructors take no prefix at all: Molmo's vision layers (vllm PR #32385), GLM-4.1V's merger
    (PR #22716). Their layers ask the quantization config under an empty or cut name, and are built quantized although
    the checkpoint lists them as float. The weights are made anew where the answer differs.
    """

    pattern: str

    def __post_init__(self) -> None:
        _check(self, f"ByPath({self.pattern!r})", _pattern(self.pattern))


@dataclass(frozen=True)
class Bias:
    """A linear layer of *scheme* that the checkpoint has a bias for gets that parameter where upstream builds none.

    Outlier smoothing leaves biases on q, k, v, gate and up projections. ModelSlim folds them into the
    ``quant_bias`` of the static path, which ignores the parameter; the dynamic path of W8A8_MIX needs it, or answers wrongly
    (qwen3-w8a8, 0.13 to 0.30). The layer is one whose description has a ``bias`` for any of its shards; the rest of the
    parameter is zero.
    """

    pattern: str
    scheme: str = "W8A8_MIX"

    def __post_init__(self) -> None:
        _check(self, f"Bias({self.pattern!r})", [*_pattern(self.pattern), *_scheme(self.scheme)])


@dataclass(frozen=True)
class ParamAttr:
    """An attribute that parameters matching *pattern* lack, or have wrong (with ``Fix.override``), after construction.

    *value* is a plain value; ``weight_loader`` takes the word ``"layer"`` for the layer's own loader or
    ``"default"`` for vLLM's (vllm-ascend PR #3426: per-tensor parameters without one; vllm-ascend#7088: the
    ``scale_bias`` of W4A8 experts).
    """

    pattern: str
    attribute: str
    value: str | int | float | bool | None

    def __post_init__(self) -> None:
        problems = [
            *_pattern(self.pattern),
            *_class("attribute", self.attribute),
            *_plain("value", self.value, str, int, float, bool, type(None)),
        ]
        if self.attribute == "weight_loader" and self.value not in ("layer", "default"):
            problems.append("weight_loader takes 'layer' or 'default'")
        _check(self, f"ParamAttr({self.pattern!r})", problems)


@dataclass(frozen=True)
class Reuse:
    """On some layers *method* of *cls* is not computed: its result is that of the last layer where it was.

    The layers are those for which the list *layers* of config.json says *value*. GLM-5.2 shares one indexer among
    several layers: the checkpoint has its tensors once, and the layers beside take its choice of tokens
    (vllm-ascend#10610, #11208, #12901, PR #12660).
    """

    cls: str
    method: str
    layers: str
    value: str = "shared"

    def __post_init__(self) -> None:
        _check(
            self,
            f"Reuse({self.cls!r})",
            [
                *_class("cls", self.cls),
                *_class("method", self.method),
                *_class("layers", self.layers),
                *_plain("value", self.value, str),
            ],
        )


@dataclass(frozen=True)
class LayerIndex:
    """A layer has *modules* attention modules, so that ``layers.3.self_attn.1`` is attention module ``3 * modules + 1``.

    vllm-ascend 0.23 and 0.30 ask LongCat-Flash's prefixes for one number and stop at the second.
    """

    modules: int

    def __post_init__(self) -> None:
        ok = isinstance(self.modules, int) and self.modules > 1
        _check(self, f"LayerIndex({self.modules!r})", [] if ok else ["modules must be a number above 1"])


@dataclass(frozen=True)
class TargetLayers:
    """The draft of class *cls* numbers its layers from all layers of the target, not from those of one pipeline rank.

    Eagle3 with pipeline parallelism: 31 to 34 instead of 61 to 64 (vllm-ascend ``patch_eagle3_pp_aux``).
    """

    cls: str

    def __post_init__(self) -> None:
        _check(self, f"TargetLayers({self.cls!r})", _class("cls", self.cls))


@dataclass(frozen=True)
class ClassAlias:
    """A layer of class *cls* is what a quantization config means by *target*.

    vLLM split the experts' class (PR #41184); configs of compressed-tensors name ``Linear``
    (vllm-ascend PR #12665).
    """

    cls: str
    target: str

    def __post_init__(self) -> None:
        _check(self, f"ClassAlias({self.cls!r})", [*_class("cls", self.cls), *_class("target", self.target)])


@dataclass(frozen=True)
class Dequantize:
    """A quantized module of the checkpoint that matches *pattern* is loaded as float.

    ``weight`` and *scale* (and ``weight_offset`` where there is one) become one float ``weight``. A scale with fewer
    rows or columns than the weight is one of blocks. FP8 on a release without it (vllm-ascend#183,
    ``patch_minimax_m2``), DeepSeek-V4's ``wo_a`` (vllm-ascend PR #15387), Hunyuan's quantized router, a fused
    layer of which only some shards are quantized (Qwen3-Next on 0.11).
    Only where the model has no parameter for the scale, the checkpoint has one, and its config.json is one of which the
    ``Config`` records beside it speak, where there are such with a *where*.
    """

    pattern: str
    scale: str = "weight_scale"
    block: int = 128

    def __post_init__(self) -> None:
        ok = type(self.block) is int and self.block > 0
        _check(
            self,
            f"Dequantize({self.pattern!r})",
            [
                *_pattern(self.pattern),
                *_segments("scale", self.scale, one=True),
                *([] if ok else ["block must be a number above 0"]),
            ],
        )


@dataclass(frozen=True)
class Unfuse:
    """One tensor of all experts becomes one for each: *fused* ``[experts, rows, columns]`` -> ``N.<part>.weight``.

    *parts* share the rows equally, in order. *transposed* for ``[experts, columns, rows]``. Reinforcement learning hands
    over Hugging Face's fused ``experts.gate_up_proj`` (ms-swift PR #9468).
    """

    fused: str
    parts: tuple[str, ...]
    transposed: bool = False

    def __post_init__(self) -> None:
        _check(
            self,
            f"Unfuse({self.fused!r})",
            [
                *_segments("fused", self.fused),
                *(["parts is empty"] if not self.parts else []),
                *_strings_only("parts", self.parts),
                *_plain("transposed", self.transposed, bool),
                *(line for part in _strings(self.parts) for line in _segments("parts", part)),
            ],
        )


@dataclass(frozen=True)
class Stack:
    """Tensors of a fused parameter that the model's own loader would misname are given to the parameter itself.

    *shards* are pairs of a checkpoint segment and the shard id that the layer's weight loader knows. Without
    shards the checkpoint is fused already: ``gate_up_proj`` becomes ``gate_gate_up_proj`` where ``up_proj`` is
    replaced inside of it (vllm-ascend#11368), ``qkv_proj`` becomes ``qkqkv_proj`` (vllm#48449).
    """

    fused: str
    shards: tuple[tuple[str, str | int], ...] = ()

    def __post_init__(self) -> None:
        problems = _segments("fused", self.fused, one=True)
        if not isinstance(self.shards, tuple) or not all(isinstance(s, tuple) and len(s) == 2 for s in self.shards):
            problems.append('shards must be pairs such as (("q_proj", "q"), ("k_proj", "k"), ("v_proj", "v"))')
        else:
            problems += [line for shard, _ in self.shards for line in _segments("shards", shard, one=True)]
            problems += [line for shard, to in self.shards for line in _plain(f"shards[{shard!r}]", to, str, int)]
        _check(self, f"Stack({self.fused!r})", problems)


@dataclass(frozen=True)
class Absent:
    """Tensors of layers that are on another pipeline rank, which the model's loader asks for all the same.

    DeepSeek-V4's ``attn_sink`` (vllm-ascend PR #9473), KV scales of Qwen3-MoE C8 (PR #7385). A tensor is left
    out only where this rank does not hold its layer.
    """

    pattern: str

    def __post_init__(self) -> None:
        _check(self, f"Absent({self.pattern!r})", _pattern(self.pattern))


@dataclass(frozen=True)
class Fix:
    """One failure and what mends it.

    ``versions`` maps a distribution to a version range in which the fix is wanted, such as
    ``{"vllm-ascend": ">=0.18,<0.20"}``; outside of it the fix is *out of range*. Pre-releases count as the release: rc1 of
    0.18 fits ``>=0.18`` (see :mod:`ascend_hotfix.versions`). A rule turns a miss into a hit and nothing else, unless ``override`` gives
    the reason for which a hit must be replaced; an override needs a version range.

    ``model_types`` and ``architectures`` narrow a fix to some of those of its patch; a fix that names none is for
    all of them.

    Which way the rules of a field read:

    * ``build``: prefix that vLLM gives to a part of the model -> prefix it should have;
    * ``lookup``: module name asked of the description -> module name in the description, without a leaf
      such as ``.weight`` unless the rule is about it; ``""`` is a layer that was built without a prefix;
    * ``weights``: tensor name in the checkpoint -> name that the model's ``load_weights`` understands;
    * ``params``: parameter that exists -> name by which a loader asks for it. Both names work then.

    The rules of one field are alternatives: all together are tried first, then each alone, and of those that hold on to
    the start of a name only the first that fits moves it, so ``a -> b`` and ``b -> c`` do not make ``a -> c``. Rules
    that lead back to where they began are refused: where either way may be needed, each is a fix of its own. That two
    names trade places cannot be said, since both are known, and a hit stays a hit.

    The other fields hold records by the place where they act: ``config`` on config.json, ``describe`` on the
    quant description (and on the lists of other quantization configs), ``layers`` on how layers are
    built, ``tensors`` on what is given to ``load_weights``.
    """

    id: str
    why: str
    refs: tuple[str, ...]
    versions: Mapping[str, str] = field(default_factory=dict)
    retire: str = ""
    model_types: tuple[str, ...] = ()
    architectures: tuple[str, ...] = ()
    build: tuple[Rule, ...] = ()
    lookup: tuple[Rule, ...] = ()
    weights: tuple[Rule, ...] = ()
    params: tuple[Rule, ...] = ()
    packed: tuple[Packed, ...] = ()
    types: tuple[Scheme, ...] = ()
    drop: tuple[Drop, ...] = ()
    fill: tuple[Fill, ...] = ()
    config: tuple[Config | DraftQuantization, ...] = ()
    describe: tuple[DescriptionFile | DescriptionSet | Children | KVCache | Unnamed | ClassAlias, ...] = ()
    layers: tuple[Inside | ByPath | Bias | ParamAttr | Reuse | LayerIndex | TargetLayers, ...] = ()
    tensors: tuple[Dequantize | Unfuse | Stack | Absent, ...] = ()
    override: str = ""

    def __post_init__(self) -> None:
        problems = []
        if not isinstance(self.id, str) or not FIX_ID.fullmatch(self.id):
            problems.append(f"id {self.id!r} must be lower-case words joined by '-'")
        if not isinstance(self.why, str):
            problems.append(f"why must be a string, not {self.why!r}")
        elif not self.why.strip():
            problems.append("why is empty; say in one sentence what fails")
        elif len(self.why.splitlines()) > 1:
            problems.append("why has a line break; say in one sentence what fails")
        if not self.refs:
            problems.append("refs is empty; name the public report or the upstream file that shows it")
        problems += _strings_only("refs", self.refs)
        problems += _audience(self)
        problems += _versions(self.versions)
        if not isinstance(self.retire, str):
            problems.append(f"retire must be a string, not {self.retire!r}")
        if not isinstance(self.override, str):
            problems.append(f"override must be a string: the reason for which a hit is replaced, not {self.override!r}")
        elif self.override and not self.versions:
            problems.append("override needs versions: an override does not retire itself")
        for name, kind in RULE_FIELDS.items():
            value = getattr(self, name)
            problems += _tuple_of(name, value, kind)
            for index, item in enumerate(value if isinstance(value, tuple) else ()):
                locate(item, f"fix {self.id!r}, {name}[{index}]")
        if not problems:
            for name in RENAMING_FIELDS:
                problems += _circular(name, getattr(self, name))
        if not problems and self.override:
            for name in RENAMING_FIELDS:
                problems += _unstable(name, getattr(self, name))
        if not any(getattr(self, name) for name in RULE_FIELDS):
            problems.append(f"has no rule; give at least one of {', '.join(RULE_FIELDS)}")
        _check(self, f"Fix({self.id!r})", problems)
        if isinstance(self.versions, Mapping):
            object.__setattr__(self, "versions", MappingProxyType(dict(self.versions)))


RENAMING_FIELDS = ("build", "lookup", "weights", "params")
RULE_FIELDS: Mapping[str, tuple[type, ...]] = MappingProxyType(
    {
        **dict.fromkeys(RENAMING_FIELDS, (Exact, Prefix, Segments, Suffix, Layers)),
        "packed": (Packed,),
        "types": (Scheme,),
        "drop": (Drop,),
        "fill": (Fill,),
        "config": (Config, DraftQuantization),
        "describe": (DescriptionFile, DescriptionSet, Children, KVCache, Unnamed, ClassAlias),
        "layers": (Inside, ByPath, Bias, ParamAttr, Reuse, LayerIndex, TargetLayers),
        "tensors": (Dequantize, Unfuse, Stack, Absent),
    }
)


@dataclass(frozen=True)
class ModelPatch:
    """All fixes of one model family.

    ``model_types`` lists every name upstream may ask under: wrapper, text, thinker and draft
    (vllm-ascend 0.13.0rc2 to rc3 reads ``hf_text_config``, others ``hf_config``); ``("*",)`` is every model.
    ``architectures`` narrows it to checkpoints whose config.json names one of these model classes.
    A fix for some of them names these itself; where every fix does, ``model_types`` may be ``()``.
    ``name`` is the module's file name where it is not given.
    """

    model_types: tuple[str, ...]
    fixes: tuple[Fix, ...]
    name: str = ""
    architectures: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        problems = [
            *_tuple_of("fixes", self.fixes, (Fix,)),
            *_audience(self),
        ]
        if not self.model_types and not _each_names_models(self.fixes):
            problems.append(
                "model_types is empty; name at least one, or '*' for every model, or name some in every fix"
            )
        if not isinstance(self.name, str) or (self.name and not IDENTIFIER.fullmatch(self.name)):
            problems.append(f"name {self.name!r} must be lower case: letters, digits, '_', '-', '.'")
        if not problems:
            ids = [fix.id for fix in self.fixes]
            problems += [
                f"fix id {one!r} is used {ids.count(one)} times" for one in sorted({i for i in ids if ids.count(i) > 1})
            ]
            problems += [] if self.fixes else ["fixes is empty"]
            problems += [line for fix in self.fixes for line in _beyond(fix, self)]
        _check(self, f"ModelPatch({self.name or ', '.join(_strings(self.model_types))!r})", problems)


def _audience(record: Fix | ModelPatch) -> list[str]:
    """What is wrong with the models that *record* is for."""
    return [
        *_strings_only("model_types", record.model_types),
        *_strings_only("architectures", record.architectures),
        *(line for one in _strings(record.model_types) for line in _model_type(one)),
        *(line for one in _strings(record.architectures) for line in _class("architectures", one)),
    ]


def _each_names_models(fixes: Any) -> bool:
    return isinstance(fixes, tuple) and bool(fixes) and all(getattr(fix, "model_types", ()) for fix in fixes)


def _beyond(fix: Fix, patch: ModelPatch) -> list[str]:
    """What *fix* is for that its patch is not for; ``*`` is everything, and so is an empty field."""
    pairs = {
        name: set(_strings(getattr(fix, name))).difference(held)
        for name in ("model_types", "architectures")
        if (held := getattr(patch, name)) and "*" not in held
    }
    return [
        f"fix {fix.id!r} is for {one!r}, which is not among the {name} of its patch; add it there, or take it out here"
        for name, beyond in pairs.items()
        for one in sorted(beyond)
    ]


def spelled_out(patch: ModelPatch) -> ModelPatch:
    """*patch* with each fix naming the models that it is for: its own, or those of the patch."""

    def named(fix: Fix) -> Fix:
        whole = copy.copy(fix)  # it has been checked
        for name in ("model_types", "architectures"):
            object.__setattr__(whole, name, getattr(fix, name) or getattr(patch, name))
        return whole

    return replace(patch, fixes=tuple(map(named, patch.fixes)))


def _check(record: object, what: str, problems: list[str]) -> None:
    if problems:
        refuse(PatchError(what, problems), record)


def _tuple_of(name: str, value: Any, kinds: tuple[type, ...]) -> list[str]:
    expected = " or ".join(kind.__name__ for kind in kinds)
    if not isinstance(value, tuple):
        return [f"{name} must be a tuple of {expected}, not {type(value).__name__} (a one-element tuple needs a comma)"]
    return [
        f"{name}[{i}] must be {expected}, not {item!r}" for i, item in enumerate(value) if not isinstance(item, kinds)
    ]


def _plain(label: str, value: Any, *kinds: type) -> list[str]:
    """The value must be of exactly one of *kinds*: True is no number."""
    names = {str: "a string", int: "a number", float: "a number", bool: "True or False", type(None): "None"}
    expected = " or ".join(dict.fromkeys(names[kind] for kind in kinds))
    return [] if type(value) in kinds else [f"{label} must be {expected}, not {value!r}"]


def _strings(value: Any) -> tuple[str, ...]:
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, tuple) else ()


def _strings_only(name: str, value: Any) -> list[str]:
    if isinstance(value, str) or not isinstance(value, tuple):
        return [f"{name} must be a tuple of strings, not {value!r} (a one-element tuple needs a comma)"]
    problems = [
        f"{name}[{i}] must be a string, not {item!r}" for i, item in enumerate(value) if not isinstance(item, str)
    ]
    return problems + [f"{name}[{i}] is empty" for i, item in enumerate(value) if item == ""]


def _model_type(value: str) -> list[str]:
    if value == "*" or MODEL_TYPE.fullmatch(value):
        return []
    hint = "'*' stands for every model, not for part of a name" if "*" in value else "write it as config.json does"
    return [f"model_types: {value!r} is no model_type; {hint}"]


def _segments(label: str, value: Any, *, one: bool = False, stars: bool = False) -> list[str]:
    if not isinstance(value, str) or not value or any(not part for part in value.split(".")):
        return [f"{label}: {value!r} must be whole dotted segments"]
    if odd := odd_characters(value):
        return [f"{label}: {value!r} has {odd[0]!r} in it, which no name has"]
    if "*" in value and not stars:
        return [f"{label}: {value!r} must be a name, it takes no '*'"]
    return [f"{label}: {value!r} must be one segment"] if one and "." in value else []


def _class(label: str, value: Any) -> list[str]:
    ok = isinstance(value, str) and value.isidentifier()
    return [] if ok else [f"{label}: {value!r} must be one name, such as 'ParallelLMHead'"]


def _scheme(value: Any) -> list[str]:
    ok = isinstance(value, str) and value.isupper()
    return [] if ok else [f"scheme must be upper case, such as 'FLOAT' or 'W8A8_DYNAMIC', not {value!r}"]


def _pattern(value: Any) -> list[str]:
    problems = _segments("pattern", value, stars=True)
    if not problems:
        odd = [part for part in value.split(".") if "*" in part and part not in ("*", "**")]
        problems = [f"pattern {value!r}: '*' stands for a whole segment, not part of one ({odd[0]!r})"] if odd else []
        if set(value.split(".")) <= {"*", "**"}:
            problems.append(f"pattern {value!r} matches everything")
    return problems


def _versions(value: Any) -> list[str]:
    if not isinstance(value, Mapping):
        return [f"versions must map a distribution to a range, not {value!r}"]
    from ascend_hotfix.versions import range_problem

    problems = [
        f"versions names {name!r}; known are {', '.join(DISTRIBUTIONS)}" for name in value if name not in DISTRIBUTIONS
    ]
    return problems + [f"versions[{name!r}]: {p}" for name, spec in value.items() if (p := range_problem(spec))]


def _example(rule: Rule) -> str | None:
    """A name that *rule* gives, where one can be told without a name to start from."""
    return rule.apply(f"{rule.prefix}.{rule.start}" if isinstance(rule, Layers) else rule.old.replace("*", "0"))


def _circular(name: str, rules: tuple[Rule, ...]) -> list[str]:
    """The first rules that lead from a name back to it."""
    if any(rule.refused for rule in rules):
        return []
    for begin in filter(None, map(_example, rules)):
        ways: dict[str, tuple[Rule, ...]] = {begin: ()}
        todo = [begin]
        for at in todo:  # it grows while it is walked
            for rule in rules:
                moved = rule.apply(at)
                if moved == begin != at:
                    circle = " and ".join(map(repr, (rule, *ways[at])))
                    return [
                        f"{name}: {circle} lead back to where they began, so they undo each other. "
                        "Where either may be needed, make each a fix of its own; two names cannot trade places"
                    ]
                if moved not in ways and len(ways) < MOST_STEPS:
                    ways[moved] = (*ways[at], rule)
                    todo.append(moved)
    return []


def _unstable(name: str, rules: tuple[Rule, ...]) -> list[str]:
    """Rules whose literal result the same rules would move again, so that they would never fire."""
    if any(rule.refused for rule in rules):
        return []
    renamer, problems = Renamer(rules), []
    for rule in rules:
        literal = getattr(rule, "new", None)
        if isinstance(rule, Exact | Prefix) and isinstance(literal, str) and "*" not in literal and literal:
            again = renamer.applied(literal)[0]
            if again != literal:
                problems.append(
                    f"{name}: {rule!r} gives {literal!r}, which the same rules turn into {again!r}; "
                    "a rename must be stable"
                )
    return problems


DROPPED = {
    "Regex": "there is no Regex; write Exact, Prefix, Segments or Suffix, in which '*' is any segment and '*2' in new is "
    "what the second '*' of old stands for"
}
"""What is said of a record that once was, in place of Python's own words."""


def __getattr__(name: str) -> Any:
    if name in DROPPED:
        raise ImportError(DROPPED[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def field_names(record: type) -> tuple[str, ...]:
    """Names of a record's fields, for messages and documents."""
    return tuple(item.name for item in fields(record))
