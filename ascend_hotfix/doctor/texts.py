"""Every sentence that a finding can say, one entry per code, so that another language is another table.

Placeholders in braces are the ``params`` of the finding; ``{count}``, ``{place}`` and ``{example}`` are always there.
``{count:tensor|tensors}`` is the number with the noun that agrees with it, ``{count:~is|are}`` the word alone.
The codes are stable: machines match on them. This module imports nothing of ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from string import Formatter

__all__ = ["LANGUAGES", "PHRASES", "TEXTS", "Phrase", "Text", "label_of", "phrase", "said_in", "text_of"]

LANGUAGES = ("en", "zh")
ALWAYS = frozenset({"count", "place", "example"})


class _Value(str):
    """What a placeholder stands for; a format spec with ``|`` chooses by whether it is one."""

    def __format__(self, spec: str) -> str:
        one, several, many = spec.removeprefix("~").partition("|")
        word = one if self == "1" else many
        if not several:
            return super().__format__(spec)
        return word if spec.startswith("~") else f"{self} {word}"


@dataclass(frozen=True)
class Text:
    """Severity and sentences of one code: what is wrong, what ``vllm serve`` shows if nothing is done, what to do."""

    severity: str
    message: str
    consequence: str
    remedy: str

    @property
    def params(self) -> frozenset[str]:
        """Names of the values that a finding of this code must carry."""
        sentences = (self.message, self.consequence, self.remedy)
        names = {name for text in sentences for _, name, _, _ in Formatter().parse(text) if name}
        return frozenset(names) - ALWAYS

    def filled(self, values: Mapping[str, str]) -> tuple[str, str, str]:
        """Message, consequence and remedy with *values* in place."""
        said = {name: _Value(value) for name, value in values.items()}
        return self.message.format_map(said), self.consequence.format_map(said), self.remedy.format_map(said)


FAULT, WARNING, NOTE = "fault", "warning", "note"
REDOWNLOAD = "download {place} again and compare its size or checksum with the publisher's"
REQUANTIZE = "take a complete copy of the checkpoint, or quantize again with msModelSlim"

TEXTS: dict[str, Text] = {
    # -- files ----------------------------------------------------------------------------------------------------
    "not-a-directory": Text(
        FAULT,
        "{place} is no directory",
        "vLLM takes the argument for a repository name and tries to download it",
        "give the folder that holds config.json and the *.safetensors files",
    ),
    "no-config": Text(
        FAULT,
        "{place} holds no config.json, so it is no model directory",
        "vllm serve stops: no config.json found",
        "give the folder that holds config.json; copy config.json from the float model if the quantizer left it out",
    ),
    "no-safetensors": Text(
        FAULT,
        "{place} holds no *.safetensors file; found: {found}",
        "vllm serve stops: cannot find any model weights",
        "download the weights; for *.bin weights convert them to safetensors first",
    ),
    "json-corrupt": Text(
        FAULT,
        "{place} is not readable as JSON: {problem}",
        "vllm serve stops with a JSONDecodeError",
        REDOWNLOAD,
    ),
    "json-encoding": Text(
        FAULT,
        "{place} is not UTF-8 text: {problem}",
        "vllm serve stops with a UnicodeDecodeError or a JSONDecodeError",
        "save {place} as UTF-8 without a byte order mark, or download it again",
    ),
    "json-kind": Text(
        FAULT,
        "{place} holds {kind} at its top, an object is expected",
        "vllm serve stops with a TypeError or an AttributeError",
        REDOWNLOAD,
    ),
    "json-repeated": Text(
        WARNING,
        "{place} gives {count:key|keys} twice with different values, such as {example}",
        "vLLM takes the value that stands last, without a word",
        "keep the right one of the two in {place}",
    ),
    "config-value": Text(
        FAULT,
        "{place}: {key} is {found}, expected {expected}",
        "vllm serve stops while it reads the config or builds the model",
        "correct {key} in {place}, or take config.json from the float model",
    ),
    "file-unreadable": Text(
        FAULT,
        "{place} cannot be read: {problem}",
        "vllm serve stops with an OSError",
        "check that the file (or the target of the link) exists and that this user may read it",
    ),
    "lfs-pointer": Text(
        FAULT,
        "{count:file is a Git LFS pointer|files are Git LFS pointers}, not the content itself ({count:~|such as }{example})",
        "vllm serve stops while reading the safetensors header",
        "git -C DIR lfs pull",
    ),
    "file-truncated": Text(
        FAULT,
        "{count:file is|files are} cut ({count:~|such as }{example}): {found:byte|bytes}, by the header {expected}",
        "vllm serve stops: safetensors reports an incomplete metadata buffer",
        "download {count:~it|them} again and compare the size or the checksum with the publisher's",
    ),
    "file-too-long": Text(
        FAULT,
        "{place} has {found:byte|bytes}, its header accounts for {expected}",
        "vllm serve stops: safetensors refuses bytes that no tensor owns",
        REDOWNLOAD,
    ),
    "header-corrupt": Text(
        FAULT,
        "{place} has no valid safetensors header: {problem}",
        "vllm serve stops while reading the safetensors header",
        REDOWNLOAD,
    ),
    "tensor-offsets": Text(
        FAULT,
        "{place}: {count:tensor whose data overlaps others or leaves|tensors whose data overlap or leave} a gap",
        "vllm serve stops: safetensors reports invalid offsets",
        REDOWNLOAD,
    ),
    "tensor-size": Text(
        FAULT,
        "{place}: {count:tensor|tensors} whose number of bytes does not fit dtype and shape",
        "vllm serve stops: safetensors reports invalid tensor info",
        REDOWNLOAD,
    ),
    "dtype-unknown": Text(
        FAULT,
        "{place}: {count:tensor|tensors} of dtype {dtype}, which safetensors does not know",
        "vllm serve stops while reading the safetensors header",
        REDOWNLOAD,
    ),
    "tensor-duplicate": Text(
        FAULT,
        "{count:tensor is|tensors are} in two files that vLLM both reads: {files}",
        "no error: the file that is read last wins, and which one that is depends on the order",
        "move the files that do not belong to this checkpoint out of the folder (float weights beside quantized ones?)",
    ),
    # -- index ----------------------------------------------------------------------------------------------------
    "shard-file-absent": Text(
        FAULT,
        "{count:file is|files are} missing{count:~:|, such as} {example} ({source})",
        "vllm serve stops with FileNotFoundError or KeyError, or serves with parameters that were never written",
        "download what is missing; the files of one export are numbered without a gap",
    ),
    "index-stale": Text(
        FAULT,
        "{place} names {count:file that is|files that are} not here, while other safetensors files are: it belongs to another model",
        "vllm serve stops with FileNotFoundError: vLLM reads the index of exactly this name",
        "delete {place} (it is the float model's) or replace it by the index of the quantized weights",
    ),
    "index-no-weight-map": Text(
        NOTE,
        "{place} maps names to files directly, without a weight_map level (msModelSlim writes it so for Omni models)",
        "nothing: vLLM does not read an index of this name",
        "nothing to do",
    ),
    "index-unusable": Text(
        FAULT,
        "{place} has no weight_map",
        "vllm serve stops with KeyError: 'weight_map'",
        'wrap its content as {{"weight_map": ...}}, or delete the file: vLLM then reads every *.safetensors',
    ),
    "index-entry": Text(
        FAULT,
        "{place}: {count:entry does|entries do} not give a file name",
        "vllm serve stops with a TypeError",
        REDOWNLOAD,
    ),
    "index-empty": Text(
        FAULT,
        "{place} lists no tensor",
        "vllm serve stops: cannot find any model weights",
        "delete {place}: vLLM then reads every *.safetensors",
    ),
    "index-outside": Text(
        FAULT,
        "{place} looks for {count:tensor|tensors} by a path such as {example}, not by the name of a file in the folder",
        "vLLM reads files of the folder itself only: the parameters stay as allocated, or it finds no weights",
        "put the files into the folder and write their plain names into {place}",
    ),
    "index-path": Text(
        WARNING,
        "{place} looks for {count:tensor|tensors} by a path such as {example}; {count:~it is|they are} in the folder itself",
        "nothing in vLLM, which goes by the files of the folder; tools that go by the index fail or read another file",
        "write the index again",
    ),
    "index-wrong-file": Text(
        WARNING,
        "{place}: {count:tensor is|tensors are} in another file than it says",
        "nothing in vLLM, which reads whole files; tools that go by the index fail",
        "write the index again",
    ),
    "tensor-absent": Text(
        FAULT,
        "{count:tensor is|tensors are} listed in {place} and in no file",
        "the parameters stay as allocated: wrong answers without an error, or a KeyError",
        REQUANTIZE,
    ),
    "tensor-unlisted": Text(
        WARNING,
        "{count:tensor is|tensors are} in the files and not listed in {place}",
        "vLLM loads them all the same; a rest of an older export would be loaded too",
        "make sure that the index and the files come from one export",
    ),
    "file-unread": Text(
        FAULT,
        "{count:file is|files are} not named in model.safetensors.index.json, so vLLM does not read {count:~it|them} "
        "({count:~|such as }{example})",
        "parameters are never written: wrong answers without an error, or a KeyError",
        "delete model.safetensors.index.json if it is the float model's, or write it again from the files that are here",
    ),
    "optional-file-absent": Text(
        WARNING,
        "{place} is missing; the description names it under optional",
        "an error where the file is used (rotation of the draft model's inputs), nothing elsewhere",
        "download {place}",
    ),
    "optional-file-outside": Text(
        WARNING,
        "{place}, which the description names under optional, is outside the folder",
        "the file is not looked at here; the checkpoint works on the machine where that path exists, if at all",
        "put the file into the folder optional/ and name it so in the description",
    ),
    "sharded-export": Text(
        WARNING,
        "the weights are a per-rank export for {ranks:rank|ranks} (model-rank-*-part-*.safetensors)",
        "a plain vllm serve stops with a KeyError on a fused name such as gate_up_proj",
        "vllm serve DIR --load-format sharded_state --tensor-parallel-size {ranks}",
    ),
    "sharded-rank-absent": Text(
        FAULT,
        "the per-rank export lacks {missing}",
        "vllm serve --load-format sharded_state stops: the rank finds no file, or misses keys",
        "copy the missing files from where the export was made",
    ),
    "sharded-rank-differs": Text(
        FAULT,
        "{count:tensor|tensors} of the per-rank export {count:~is|are} not on every rank",
        "vllm serve --load-format sharded_state stops: missing keys",
        "export the ranks again in one run",
    ),
    "sharded-parallel-size": Text(
        FAULT,
        "the per-rank export is for {ranks:rank|ranks}, the server would use {asked}",
        "vllm serve --load-format sharded_state stops or loads slices of the wrong size",
        "vllm serve DIR --load-format sharded_state --tensor-parallel-size {ranks}",
    ),
    "rank-folders": Text(
        FAULT,
        "the weights of {place} are in folders per rank ({found}) and not merged",
        "vllm serve stops: cannot find any model weights",
        "quantize again with the distributed saver of msModelSlim (it merges the ranks), or on one device",
    ),
    # -- description ----------------------------------------------------------------------------------------------
    "description-absent": Text(
        FAULT,
        "{count:tensor is|tensors are} quantized (such as {example}) and there is no quant_model_description.json",
        "vllm serve --quantization ascend stops: ModelSlim quantization config not found",
        "copy quant_model_description.json from the publisher or from the output folder of msModelSlim",
    ),
    "description-name": Text(
        FAULT,
        "the description is called {place}; vllm-ascend opens only quant_model_description.json",
        "vllm serve --quantization ascend stops: ModelSlim quantization config not found",
        "ln -s {place} DIR/quant_model_description.json",
    ),
    "description-unread": Text(
        NOTE,
        "{place} is a second description; only {read} is looked at",
        "nothing, if {read} is the one that belongs to the weights",
        "move {place} out of the folder if it belongs to another export",
    ),
    "description-in-config": Text(
        NOTE,
        "the description is inside config.json (quantization_config); vllm-ascend reads it from there",
        "nothing",
        "nothing to do",
    ),
    "description-shadowed": Text(
        FAULT,
        "config.json has a quantization_config without per-tensor entries; it hides quant_model_description.json",
        "KeyError for the first layer (up to vllm-ascend 0.29, and later unless the block holds only the method)",
        "remove quantization_config from config.json and serve with --quantization ascend",
    ),
    "description-format-only": Text(
        NOTE,
        "config.json has a quantization_config that names only the method; vllm-ascend {version} reads the file too",
        "nothing in this release; releases before 0.30 stop with a KeyError",
        "nothing to do",
    ),
    "description-empty": Text(
        FAULT,
        "{place} describes no tensor",
        "vllm serve --quantization ascend stops with a KeyError, or serves every layer as float",
        "copy quant_model_description.json from the output folder of msModelSlim",
    ),
    "description-entry": Text(
        FAULT,
        "{place}: {count:entry is|entries are} not a scheme name but {kind}",
        "vllm serve stops: the scheme is not supported",
        "copy quant_model_description.json from the output folder of msModelSlim",
    ),
    "description-prefixed": Text(
        NOTE,
        "the description's metadata keys are prefixed ({example})",
        "vllm-ascend does not find them under their plain names and takes its defaults",
        "nothing to do for schemes that need no group_size",
    ),
    "quant-method-empty": Text(
        WARNING,
        "quantization_config in config.json has an empty quant_method",
        "vllm serve --quantization ascend stops in older releases: the method of the config does not match",
        "remove quantization_config from config.json",
    ),
    "not-modelslim": Text(
        FAULT,
        "this checkpoint is of the kind {method}, not ModelSlim ({evidence})",
        "vllm serve --quantization ascend stops: KeyError for model.embed_tokens.weight, or no description found",
        "{advice}",
    ),
    "float-checkpoint": Text(
        FAULT,
        "this is a float checkpoint: no tensor is quantized and there is no description",
        "vllm serve --quantization ascend stops: ModelSlim quantization config not found",
        "vllm serve DIR without --quantization, or quantize it with msModelSlim first",
    ),
    "described-tensor-absent": Text(
        FAULT,
        "{count:tensor is|tensors are} described as {scheme} and in no file",
        "KeyError at load, or the parameters stay as allocated: wrong answers without an error",
        REQUANTIZE,
    ),
    "described-float-absent": Text(
        WARNING,
        "{count:tensor is|tensors are} described as FLOAT and in no file",
        "if the model has the parameter, it stays as allocated: wrong answers without an error",
        "take the tensors from the float model, or drop the entries if the model has no such parameter",
    ),
    "tensor-undescribed": Text(
        FAULT,
        "{count:weight is|weights are} in the files and not in the description",
        "KeyError for the layer up to vllm-ascend 0.29; from 0.30 the layer is taken for float without a word",
        "add the entries to {place} (FLOAT for bf16 weights): ascend-hotfix doctor DIR --suggest FILE writes a patch",
    ),
    "expert-undescribed": Text(
        WARNING,
        "{count:weight|weights} of experts {count:~is|are} in the files and not in the description",
        "nothing: vllm-ascend asks for a layer's first expert only; the description and the files are not from one export",
        "compare the description with the publisher's",
    ),
    "draft-undescribed": Text(
        WARNING,
        "{count:tensor|tensors} of the draft (MTP) layers {count:~is|are} in the files and not in the description",
        "the model loads; with speculative decoding switched on: KeyError for the first draft layer",
        "add the entries to {place} (FLOAT for bf16 weights): ascend-hotfix doctor DIR --suggest FILE writes a patch",
    ),
    "extra-undescribed": Text(
        WARNING,
        "{count:tensor|tensors} other than the weights of linear layers {count:~is|are} in the files and not in the description",
        "vllm-ascend does not ask for them, so it loads; the description and the files are not from one export",
        "compare the description with the publisher's",
    ),
    "description-renamed": Text(
        FAULT,
        "the description says {described} where the files say {filed}, {count:time|times}",
        "KeyError for the first layer, or (from 0.30) quantized layers taken for float",
        "ascend-hotfix doctor DIR --suggest FILE   (writes the rename as a patch)",
    ),
    "scheme-unknown": Text(
        FAULT,
        "{count:entry|entries} of the description {count:~has|have} the scheme {scheme}, which ModelSlim does not write",
        "vllm serve stops: the scheme is not supported",
        "correct the entries in {place}{nearest}",
    ),
    "model-quant-type": Text(
        NOTE,
        "model_quant_type says {said}, no weight is; most are {most}",
        "nothing: the scheme of a layer comes from its own entry",
        "nothing to do",
    ),
    # -- scheme against tensors -----------------------------------------------------------------------------------
    "float-but-quantized": Text(
        FAULT,
        "{count:weight is|weights are} described as FLOAT and stored as {dtype}",
        "no error: the integers are cast into a float parameter, the answers are wrong",
        "correct the entries in the description, or take the float tensors",
    ),
    "quantized-but-float": Text(
        FAULT,
        "{count:weight is|weights are} described as {scheme} and stored as {dtype}",
        "no error: the values are cast to integers, the answers are wrong",
        "set the entries to FLOAT in the description, or quantize again with msModelSlim",
    ),
    "weight-dtype": Text(
        FAULT,
        "{count:weight|weights} of scheme {scheme} {count:~is|are} stored as {dtype}, expected {expected}",
        "no error: the values are cast, the answers are wrong",
        REQUANTIZE,
    ),
    "weight-shape": Text(
        FAULT,
        "{count:weight|weights} of scheme {scheme} {count:~has|have} the shape {shape}, expected {expected}",
        "vllm serve stops in the weight loader",
        REQUANTIZE,
    ),
    "scheme-stored": Text(
        FAULT,
        "{count:weight is|weights are} described as {scheme}, such as {example}, and {count:~looks|look} like {stored}: "
        "beside {count:~it is|them are} {beside}",
        "vllm serve stops at tensors that {scheme} has no parameter for, or leaves them aside, and the answers are wrong",
        "ascend-hotfix doctor DIR --suggest FILE corrects what the description says; or take the publisher's description",
    ),
    "scheme-inconsistent": Text(
        FAULT,
        "{count:entry disagrees with its|entries disagree with their} own layer: {leaf} is {scheme}, weight is {other}",
        "vllm-ascend goes by the weight's entry alone",
        "make the entries of the layer agree",
    ),
    "companion-absent": Text(
        FAULT,
        "{count:layer|layers} of scheme {scheme} {count:~lacks|lack} {leaf}",
        "no error: the parameter stays as allocated, the answers are wrong",
        REQUANTIZE,
    ),
    "companion-unread": Text(
        WARNING,
        "{count:layer|layers} of scheme {scheme} {count:~lacks|lack} {leaf}",
        "nothing in vllm-ascend 0.11 to 0.30, which does not compute with it; msModelSlim writes it all the same",
        "make sure that the checkpoint is complete",
    ),
    "companion-unexpected": Text(
        WARNING,
        "{count:layer|layers} of scheme {scheme} {count:~has|have} {leaf}, which that scheme does not use",
        "KeyError for the tensor at load, or it is dropped without a word; the scheme in the description may be wrong",
        "check the entries of the description against the publisher's",
    ),
    "companion-dtype": Text(
        FAULT,
        "{count:layer|layers} of scheme {scheme} {count:~has|have} {leaf} as {dtype}, expected {expected}",
        "no error: the values are cast, the answers are wrong",
        REQUANTIZE,
    ),
    "companion-shape": Text(
        FAULT,
        "{count:layer|layers} of scheme {scheme} {count:~has|have} {leaf} of a shape that does not fit the weight: {problem}",
        "vllm serve stops in the weight loader, or copies a part of it without a word",
        REQUANTIZE,
    ),
    "companion-foreign": Text(
        FAULT,
        "{count:float layer has|float layers have} {leaf}, which belongs to a quantized weight",
        "KeyError for the tensor at load, or it is dropped without a word",
        "set the layer's entries in the description to its scheme",
    ),
    "shards-mixed": Text(
        FAULT,
        "{count:fused layer mixes|fused layers mix} schemes: {mix}",
        "vllm serve stops: all shards of a fused layer must have the same precision; or only the first shard's counts",
        "quantize again so that {group} agree (msModelSlim: put the group on one scheme)",
    ),
    "experts-mixed": Text(
        FAULT,
        "{count:expert layer mixes|expert layers mix} schemes: {mix}",
        "vllm-ascend takes one scheme for all experts of a layer: wrong answers, or it stops in the weight loader",
        "quantize again with one scheme for the experts of a layer",
    ),
    "kv-scale-incomplete": Text(
        FAULT,
        "{count:attention layer has|attention layers have} KV cache scales (C8) without {leaf}",
        "no error: the scale stays as allocated, the answers are wrong",
        REQUANTIZE,
    ),
    "kv-scale-shape": Text(
        FAULT,
        "{count:KV cache scale (C8) does|KV cache scales (C8) do} not fit {count:~its|their} projection: {problem}",
        "vllm serve stops in the weight loader, or copies a part of it without a word",
        REQUANTIZE,
    ),
    "kv-scale-layers": Text(
        WARNING,
        "the description says kv_cache_type C8 and {count:attention layer has|attention layers have} no KV cache scales",
        "vllm-ascend 0.18 takes every layer for C8 and uses scales that were never written; later ones go by layer",
        "quantize again with KV scales for every layer",
    ),
    "fa-scale-incomplete": Text(
        FAULT,
        "{count:attention layer has|attention layers have} FAQuant tensors without {leaf}",
        "no error: the scale stays as allocated, the answers are wrong",
        REQUANTIZE,
    ),
    # -- structure ------------------------------------------------------------------------------------------------
    "expert-absent": Text(
        FAULT,
        "{count:expert is|experts are} missing ({where})",
        "no error: the expert's weights stay as allocated, the answers are wrong",
        REQUANTIZE,
    ),
    "expert-surplus": Text(
        FAULT,
        "{count:expert|experts} beyond the {expected} that config.json says",
        "vllm serve stops in the weight loader, or ignores them",
        "correct the number of experts in config.json, or take the matching checkpoint",
    ),
    "expert-part-absent": Text(
        FAULT,
        "{count:expert lacks|experts lack} {leaf}, which the others of {count:~its|their} layer have",
        "no error: that part of the expert stays as allocated, the answers are wrong",
        REQUANTIZE,
    ),
    "expert-shape": Text(
        FAULT,
        "{count:expert tensor differs|expert tensors differ} in {what} from the others of {count:~its|their} layer",
        "vllm serve stops in the weight loader, or copies a part of it without a word",
        REQUANTIZE,
    ),
    "layer-absent": Text(
        FAULT,
        "{count} of {expected:layer|layers} {count:~has|have} no tensor ({where})",
        "no error: the layers stay as allocated, the answers are wrong",
        REQUANTIZE,
    ),
    "module-absent": Text(
        FAULT,
        "{count:layer lacks|layers lack} {module}, which {others} have",
        "no error: the parameter stays as allocated, the answers are wrong",
        REQUANTIZE,
    ),
    "module-odd": Text(
        WARNING,
        "{count:layer lacks|layers lack} {module}, which {others:layer|layers} otherwise like {count:~it have|them have}",
        "if the model has the parameter, it stays as allocated: wrong answers without an error",
        REQUANTIZE,
    ),
    "router-bias-absent": Text(
        FAULT,
        "{count:router has|routers have} no {leaf}; this model routes with it",
        "no error: vLLM routes with a bias that was never written, the answers are wrong",
        "copy the tensors from the float model into the checkpoint; a quantizer that drops buffers lost them",
    ),
    "router-bias-filled": Text(
        WARNING,
        "{count:router has|routers have} no {leaf}; {patch} fills it with {value}",
        "the model loads; its routing is right only if the float model's bias is {value} too",
        "compare with the float model, and copy the tensors from it if they differ",
    ),
    "patch-problem": Text(
        WARNING,
        "{problem}",
        "that patch or entry is not used; the others are, and the server runs without it",
        "put it right, or take it out of ASCEND_HOTFIX_PATH or ASCEND_HOTFIX_MODELS",
    ),
    "draft-absent": Text(
        NOTE,
        "config.json announces {expected:draft (MTP) layer|draft (MTP) layers}, the files have none",
        "the model loads; speculative decoding with its own draft is not possible",
        "serve without --speculative-config, or quantize the draft layers too",
    ),
    # -- dry run --------------------------------------------------------------------------------------------------
    "build-failed": Text(
        FAULT,
        "the {place} model cannot be built: {error} ({where})",
        "vllm serve stops with this error before it reads a weight",
        "see whether a newer vllm-ascend serves this model, or report the place named here",
    ),
    "model-refused": Text(
        FAULT,
        "this release refuses the model or its config ({example}): {error}",
        "vllm serve stops with this error before it builds the model",
        "put right what the error names, or use a release that has the model; ascend-hotfix cannot add a model class",
    ),
    "draft-unsupported": Text(
        WARNING,
        "this release has no draft model for the {count:draft (MTP) tensor|draft (MTP) tensors}: {error}",
        "the model loads; vllm serve with --speculative-config stops with this error",
        "serve without --speculative-config, or use a release that has the draft",
    ),
    "load-failed": Text(
        FAULT,
        "load_weights of the {place} model fails at its end: {error} ({where})",
        "vllm serve stops with this error after reading all weights",
        "report the place named here",
    ),
    "lookup-missing": Text(
        FAULT,
        "{count:layer asks|layers ask} the description for {asked} ({example}), which has {known} ({place})",
        "vllm serve stops with KeyError for the first of them",
        "ascend-hotfix doctor DIR --suggest FILE writes the rule",
    ),
    "lookup-silent": Text(
        FAULT,
        "{count:layer asks|layers ask} the description for {asked} ({example}), which has {known}; "
        "upstream takes {count:~it|them} for float",
        "no KeyError in this release: quantized tensors are loaded into float layers, or refused",
        "ascend-hotfix doctor DIR --suggest FILE writes the rule",
    ),
    "row-missing": Text(
        FAULT,
        "{count:fused layer|fused layers} {fused} ({example}) {count:~has|have} no row of shards; the description has {shards} ({place})",
        "vllm serve stops with KeyError for the first of them",
        "ascend-hotfix doctor DIR --suggest FILE writes the row",
    ),
    "lookup-refused": Text(
        FAULT,
        "{count:layer gets|layers get} no scheme ({example}): {error} ({place})",
        "vllm serve stops with this error",
        "correct the description: all shards of a fused layer need one scheme",
    ),
    "scheme-unsupported": Text(
        FAULT,
        "this vllm-ascend has no {scheme} for {kind} layers ({count}, such as {example})",
        "vllm serve stops with NotImplementedError",
        "use a vllm-ascend release that has it, or quantize with another scheme",
    ),
    "tensor-refused": Text(
        FAULT,
        "the {place} model's load_weights refuses {count:tensor|tensors} such as {example}: asked {asked} ({where})",
        "vllm serve stops with this error at the first of them",
        "ascend-hotfix doctor DIR --suggest FILE looks for the rule",
    ),
    "draft-refused": Text(
        FAULT,
        "the {place} model's load_weights refuses {count:tensor|tensors} of the draft layers {part}, such as {example}: "
        "it does not know that {count:~it is|they are} the draft's",
        "vllm serve stops at the first of them, with or without --speculative-config",
        "ascend-hotfix doctor DIR --suggest FILE looks for the rule",
    ),
    "tensor-failed": Text(
        FAULT,
        "load_weights of the {place} model fails at {count:tensor|tensors} such as {example}: {error} ({where})",
        "vllm serve stops with this error at the first of them",
        "see the other findings: a layer may have another scheme than its tensors; or report the place named here",
    ),
    "tensor-shape-refused": Text(
        FAULT,
        "{count:tensor|tensors} of shape {shape} such as {example} {count:~does not fit its|do not fit their} parameter: "
        "{error} ({where})",
        "vllm serve stops with this error at the first of them",
        "take the checkpoint that belongs to this config.json, or put the sizes in config.json right",
    ),
    "tensor-unused": Text(
        FAULT,
        "no parameter of the {place} model takes {count} {leaf} {count:~tensor|tensors} such as {example}",
        "no error: the tensors are left aside, and what they fill or correct is lost",
        "see explain for one of the names; ascend-hotfix doctor DIR --suggest FILE looks for a rule",
    ),
    "parameter-unwritten": Text(
        FAULT,
        "no tensor fills {count} {leaf} {count:~parameter|parameters} of the {place} model, such as {example}",
        "no error: they stay as memory was, the answers are wrong",
        "take a complete checkpoint; where the publisher left them out, a patch can fill them",
    ),
    "parameter-filled": Text(
        WARNING,
        "no tensor fills {count} {leaf} {count:~parameter|parameters} of the {place} model, such as {example}; "
        "{patch} fills {count:~it|them} with {value}",
        "the model loads; its answers are right only if these tensors of the float model are {value} too",
        "compare with the float model, and copy the tensors from it if they differ",
    ),
    "parameter-partial": Text(
        FAULT,
        "{count:part|parts} of {leaf} parameters such as {example} {count:~stays|stay} unwritten: {where}",
        "no error: these parts stay as memory was, the answers are wrong",
        "take a complete checkpoint",
    ),
    "tensor-cut": Text(
        FAULT,
        "{count:tensor|tensors} {shape} such as {example} {count:~is larger than its|are larger than their} parameter; {what} is cut off",
        "no error: the rest of the tensor is left out without a word",
        "take the checkpoint that belongs to this config.json",
    ),
    "tensor-spread": Text(
        FAULT,
        "{count:tensor|tensors} {source} such as {example} {count:~is|are} spread over {target}",
        "no error: one value is copied over a whole row or column",
        "take a complete checkpoint",
    ),
    "quantized-into-float": Text(
        FAULT,
        "{count} {source} {count:~tensor|tensors} such as {example} {count:~is|are} loaded into {target} parameters",
        "no error: integers are taken for weights, the answers are wrong",
        "correct the scheme in the description, or patch the name by which the layer asks",
    ),
    "float-into-quantized": Text(
        FAULT,
        "{count} {source} {count:~tensor|tensors} such as {example} {count:~is|are} loaded into {target} parameters",
        "no error: the weights are cut to whole numbers, the answers are wrong",
        "correct the scheme in the description: it says quantized, the tensor is float",
    ),
    "suggest-nothing": Text(
        NOTE,
        "no patch is suggested: no rule about names would mend what was found",
        "{place} is not written",
        "follow the remedies of the findings",
    ),
    "suggest-choice": Text(
        NOTE,
        "choice {number}: {what}",
        "{place} is not written: the names do not tell which is right, and a wrong one loads wrong weights in silence",
        "decide with the float model beside it; ascend-hotfix doctor DIR --suggest {file} --choose {first} takes the first",
    ),
    "suggest-option": Text(
        NOTE,
        "choice {number}: {what}",
        "without an answer this stays as it is found above",
        "compare with the float model; ascend-hotfix doctor DIR --suggest {file} --choose {first} takes the first",
    ),
    "suggest-no-name": Text(
        NOTE,
        "no rule about names mends this: {what}",
        "the finding stays: each of them asks for the same name, whatever layer it is in",
        "a patch can say where the part is: Inside(class, class around it, name), see docs/records.md",
    ),
    "suggest-unknown": Text(
        NOTE,
        "no choice {choice} was left open",
        "{place} is not written",
        "leave out --choose to see the choices that there are",
    ),
    "suggest-worse": Text(
        NOTE,
        "no patch is written: the rules found leave the dry run with {left}",
        "{place} is not written",
        "follow the remedies of the findings",
    ),
    "suggest-left": Text(
        NOTE,
        "with the suggested patch this remains: {what}",
        "{place} is written, and does not mend this",
        "follow the remedy of this finding above",
    ),
    "suggest-failed": Text(
        WARNING,
        "looking for a patch broke off: {error}",
        "{place} is not written; the findings above are complete",
        "report it with the headers of the checkpoint: a suggestion must not fail; ASCEND_HOTFIX_STRICT=1 shows where it did",
    ),
    "dtype-cast": Text(
        FAULT,
        "{count} {source} {count:~tensor|tensors} such as {example} {count:~is|are} loaded into {target} parameters",
        "no error: the values are converted without a word",
        "take the checkpoint as the quantizer wrote it",
    ),
    # -- releases -------------------------------------------------------------------------------------------------
    "skipped-by-prefix": Text(
        FAULT,
        "{count:quantized layer|quantized layers} {module} {count:~has|have} a FLOAT neighbour {neighbour}, whose name starts alike",
        "vllm-ascend 0.16 to 0.29 takes the layer for float: it compares names by their beginning, without the dot",
        "pip install 'vllm-ascend>=0.30', or take a checkpoint in which both have one scheme",
    ),
    "release-too-old": Text(
        FAULT,
        "vllm-ascend {installed} is older than {oldest}, the first release with quantization tables for ModelSlim",
        "vllm serve stops with a KeyError for the first scale: no quantizer is active, or the layer's name is unknown",
        "pip install 'vllm-ascend>={oldest}' with the vLLM release it names",
    ),
    "scheme-not-in-release": Text(
        FAULT,
        "vllm-ascend {installed} has no {scheme} for {kind}; {count:weight is|weights are} stored so ({where})",
        "vllm serve stops with NotImplementedError: the scheme is not supported for this kind of layer",
        "install a release of vllm-ascend that has it, or quantize again with a scheme that {installed} has",
    ),
    "model-type-new": Text(
        FAULT,
        "vllm-ascend {installed} does not know {model_type}; {first} is the first release that does",
        "vllm serve stops: the architecture or model_type is not supported, or a KeyError for the first fused layer",
        "pip install 'vllm-ascend>={first}' with the vLLM release it names",
    ),
    "model-type-unlisted": Text(
        NOTE,
        "vllm-ascend {installed} has no quantization table for {model_type}; {first} is the first release that has",
        "a KeyError for the first fused layer or the first wrapped name, unless a patch of ascend-hotfix supplies it",
        "run the dry run (leave out --static-only); ascend-hotfix list --all shows the patches",
    ),
}


PHRASES = {
    "no entry": "no entry of this name",
    "refused": "by the {role}: {error} ({place})",
    "nowhere": "none: the loader leaves it aside without a word",
    "more": "... and {count:tensor|tensors} more",
    "not built": "(not in the built model)",
    "no prefix": "(an empty prefix)",
    "no method": "none",
    "float": "{method} (float)",
    "only described": "{name}: in the description only; no tensor, module, prefix or parameter has this name",
    "unknown": "{name}: no tensor, module, prefix or parameter has this name",
    "null": "null",
    "true or false": "true or false",
    "a string": "a string",
    "a list": "a list",
    "an object": "an object",
    "a number": "a number",
    "and": "{one}, {other}",
    "and more": "{names} and {count} more",
    "nothing": "nothing",
    "two files": "{one} and {other}",
    "named in": "named in {file}",
    "numbered up to": "the others are numbered up to {total}",
    "did it mean": " (did it mean {scheme}?)",
    "config says": "quant_method in config.json is {method}",
    "tensors such as": "tensors such as {name}",
    "tensors of dtype": "tensors such as {name} of dtype {dtype}",
    "scale alone": "{name} without the weight_offset or deq_scale of ModelSlim",
    "read itself": "vllm serve DIR without --quantization ascend (vllm-ascend reads {method} itself from {since})",
    "before that": "{now}; before that {earlier}",
    "not read": "take a ModelSlim checkpoint of the model, or quantize the float model with msModelSlim",
    "no model type": "no model_type",
    "no architecture": "no architecture",
    "settled then": "nothing on this release with the patches that are armed: the dry run finds all that is asked for",
    "settled do": "nothing to do; another release, or one without these patches, may not find it",
    "size": "{tensors:tensor|tensors} in {files:file|files}",
    "known from": "to vllm-ascend from {release}",
    "seconds": "{seconds} s",
    "static": "static",
    "dry run": "dry run",
    "skipped": "skipped: {reason}",
    "failed": "failed: {reason}",
    "mend first": "mend {codes} first",
    "no dry run": "this build of ascend-hotfix has no {module}",
    "internal error": "internal error: {error}; ASCEND_HOTFIX_STRICT=1 shows where",
    "not installed": "{missing} not installed; --static-only leaves it out",
    "cannot import": "vllm and vllm-ascend cannot be imported here: {error}; --static-only checks the files alone",
    "broke off": "the dry run broke off: {error}; --static-only checks the files alone",
    "too large": (
        "the dry run needed more than {size} GB, which no model seen does; look for a size in config.json that is too large. "
        "--static-only checks the files alone"
    ),
    "no stand-in": (
        "{part} could not be stood in for, which says nothing about the checkpoint: {error}; "
        "--static-only checks the files alone"
    ),
    "clean with it": "{file}: the dry run is clean with it; {environment} vllm serve ... uses it",
    "remain with it": "{file}: {count:finding remains|findings remain} with it; {environment} vllm serve ... uses it",
    "not written": "{file} is not written; {stage} {why}",
    "counts": "{faults:fault|faults}, {warnings:warning|warnings}, {notes:note|notes}: {verdict}",
    "wrong": "as it is, this checkpoint does not load right",
    "unchecked": "could not be checked to the end",
    "files right": "the files are in order; whether this vLLM loads them right is for the dry run",
    "right patched": "this checkpoint loads right with the fixes above; names, shapes and schemes fit, values are not read",
    "right": "this checkpoint loads right",
}
"""What the report and ``explain`` say beside findings, names and labels."""


def phrase(key: str, language: str = "en", **values: object) -> str:
    """The phrase of :data:`PHRASES` in *language*, filled with *values*."""
    return _filled(key, language, values)


def _filled(key: str, language: str, values: Mapping[str, object]) -> str:
    table = PHRASES
    if language == "zh":
        from ascend_hotfix.doctor.texts_zh import PHRASES_ZH as table
    return table[key].format_map({name: _Value(said_in(language, value)) for name, value in values.items()})


class Phrase(str):
    """A phrase in English, as machines read it, that a person can have in another language: :func:`said_in`."""

    _said: tuple[str, dict[str, object]]

    def __new__(cls, key: str, **values: object) -> Phrase:
        self = super().__new__(cls, _filled(key, "en", values))
        self._said = key, values
        return self

    def __reduce__(self) -> tuple[object, ...]:
        key, values = self._said
        return partial(Phrase, key, **values), ()

    def in_language(self, language: str) -> str:
        key, values = self._said
        return _filled(key, language, values)


def said_in(language: str, text: object) -> str:
    """*text* in *language*, where it is a :class:`Phrase`."""
    return text.in_language(language) if isinstance(text, Phrase) else str(text)


def text_of(code: str, language: str = "en") -> Text:
    """The sentences of *code* in *language*; English where the translation lacks the code."""
    english = TEXTS[code]
    if language == "zh":
        from ascend_hotfix.doctor.texts_zh import TEXTS_ZH

        return Text(english.severity, *TEXTS_ZH[code]) if code in TEXTS_ZH else english
    return english


def label_of(label: str, language: str = "en") -> str:
    """A label of the report (``fault``, ``do``) or of ``explain`` (``asks as``) in *language*."""
    if language == "zh":
        from ascend_hotfix.doctor.texts_zh import LABELS_ZH

        return LABELS_ZH[label]
    return label
