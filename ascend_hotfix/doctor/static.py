"""The static stage: everything that the files of a checkpoint give away without vLLM.

Each check adds to one :class:`Collector`; what an earlier check has reported as missing, a later one leaves alone.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ascend_hotfix.doctor.bounds import MOST_ODD
from ascend_hotfix.doctor.checkpoint import DESCRIPTION_FILE, LONGEST, UNREAD, Checkpoint, collector_paused
from ascend_hotfix.doctor.config import check_config
from ascend_hotfix.doctor.findings import Collector, Finding, told_apart
from ascend_hotfix.doctor.releases import check_release, check_schemes
from ascend_hotfix.doctor.schemes import SCHEMES, SIDE_SCHEMES, is_float, is_scheme
from ascend_hotfix.doctor.stored import check_attention, check_stored
from ascend_hotfix.doctor.structure import (
    Filling,
    check_draft,
    check_experts,
    check_fused,
    check_heads,
    check_layers,
    check_router_bias,
    check_shadowed,
)
from ascend_hotfix.doctor.texts import Phrase
from ascend_hotfix.doctor.view import View, view
from ascend_hotfix.versions import fits

__all__ = ["check_static", "foreign_method"]

# Written beside the description by msModelSlim itself, or read by vllm-ascend without an entry.
UNDESCRIBED = re.compile(r"rot\.weight|.*\.(heads_rotation|kronecker_rotation_[mn]|inv_freq|position_ids)")
# Described, but computed or shared in vLLM: no tensor needed.
COMPUTED = re.compile(r".*\.(inv_freq|position_ids)")
# An expert's number. Every release of vllm-ascend asks the description for the first expert of a layer only.
EXPERT_NUMBER = re.compile(r"(\.experts\.)[0-9]+(\.)")
FORMAT_ONLY = frozenset({"quant_method", "model_quant_type"})

NOT_READ = Phrase("not read")
ADVICE = {
    "compressed-tensors": Phrase("read itself", method="compressed-tensors", since="0.13"),
    "fp8": Phrase("before that", now=Phrase("read itself", method="block-wise FP8", since="0.23"), earlier=NOT_READ),
}
# Leaf of a tensor name to the tool that writes it, told apart without a description.
TELLTALES = (
    ("g_idx", "gptq"),
    ("qzeros", "awq"),
    ("qweight", "awq"),
    ("weight_scale_inv", "fp8"),
    ("weight_packed", "compressed-tensors"),
    ("weight_shape", "compressed-tensors"),
    ("absmax", "bitsandbytes"),
    ("SCB", "bitsandbytes"),
)


BLOCKS = ("quantization_config", "compression_config")


def _block(config: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The quantization block of config.json, where vLLM looks for it."""
    outer = [config, config.get("text_config")]
    blocks = [inner.get(key) for inner in outer if isinstance(inner, dict) for key in BLOCKS]
    return next((block for block in blocks if isinstance(block, dict)), None)


def foreign_method(checkpoint: Checkpoint) -> tuple[str, str] | None:
    """(method, evidence) where a tool other than ModelSlim made the checkpoint, or None."""
    block = _block(checkpoint.config) or {}
    method = str(block.get("quant_method") or "").lower()
    if method and method != "ascend":
        return method, Phrase("config says", method=method)
    if checkpoint.description is not None:
        return None
    leaves = {name.rpartition(".")[2]: name for name in checkpoint.tensors}
    for leaf, tool in TELLTALES:
        if leaf in leaves:
            return tool, Phrase("tensors such as", name=leaves[leaf])
    quantized = [name for name, tensor in checkpoint.tensors.items() if tensor.dtype == "F8_E4M3"]
    if quantized:
        return "fp8", Phrase("tensors of dtype", name=quantized[0], dtype="F8_E4M3")
    if "weight_scale" in leaves and not {"weight_offset", "deq_scale"} & leaves.keys():
        return "unknown int8", Phrase("scale alone", name=leaves["weight_scale"])
    return None


def _check_kind(checkpoint: Checkpoint, found: Collector) -> bool:
    """Is there a ModelSlim checkpoint to check? Reports why not."""
    described = checkpoint.description is not None and bool(checkpoint.description.schemes)
    foreign = foreign_method(checkpoint)
    if foreign is not None and not described:
        method, evidence = foreign
        found.add("not-modelslim", method=method, evidence=evidence, advice=ADVICE.get(method, NOT_READ))
        return False
    if described:
        return True
    if checkpoint.description is not None:
        found.add("description-empty", place=checkpoint.description.place)
        return False
    if any(f.code in UNREAD for f in checkpoint.findings):
        return False
    quantized = [name for name, tensor in checkpoint.tensors.items() if tensor.dtype in ("I8", "U8")]
    if quantized:
        found.add("description-absent", quantized[0], place=DESCRIPTION_FILE, count=len(quantized))
    elif checkpoint.tensors:
        found.add("float-checkpoint")
    return False


def _check_block(checkpoint: Checkpoint, found: Collector, release: str | None) -> None:
    """What config.json's quantization block does to a description file beside it."""
    block = _block(checkpoint.config)
    description = checkpoint.description
    if block is None or description is None or description.place == "config.json":
        return
    if "quant_method" in block and not block["quant_method"]:
        found.add("quant-method-empty", place="config.json")
    if not block:
        return
    if set(block) <= FORMAT_ONLY and release is not None and fits(release, ">=0.30"):
        found.add("description-format-only", place="config.json", version=release)
    else:
        found.add("description-shadowed", place="config.json")


def _check_ranks(checkpoint: Checkpoint, found: Collector, parallel: int | None) -> None:
    """A per-rank export is complete and fits the number of ranks asked for."""
    ranks = checkpoint.ranks
    count = max(ranks) + 1
    found.add("sharded-export", ranks=count)
    missing = [f"rank {rank}" for rank in range(count) if rank not in ranks]
    if missing:
        found.add("sharded-rank-absent", count=len(missing), missing=", ".join(missing))
    on_ranks = Counter(name for tensors in ranks.values() for name in tensors)
    for name, times in on_ranks.items():
        if times < len(ranks):
            found.add("sharded-rank-differs", name)
    if parallel is not None and parallel != count:
        found.add("sharded-parallel-size", ranks=count, asked=parallel)


def _check_listing(seen: View) -> None:
    """The index and the files name the same tensors."""
    checkpoint, found = seen.checkpoint, seen.found
    index = checkpoint.index
    if index is None:
        return
    tensors = checkpoint.tensors
    strange = []
    for name, file in index.weight_map.items():
        tensor = tensors.get(name)
        if tensor is None:
            strange.append(name)
        elif tensor.file != file:
            found.add("index-wrong-file", name, place=index.file)
    absent = [name for name in strange if seen.may_miss(name)]
    for name in absent:
        found.add("tensor-absent", name, place=index.file)
    seen.mark_gone(absent)
    if len(index.weight_map) - len(strange) < len(tensors):
        for name in tensors:
            if name not in index.weight_map and name not in index.outside:
                found.add("tensor-unlisted", name, place=index.file)


def _difference(described: str, filed: str) -> tuple[str, str]:
    """What differs between two names once their common beginning and end are cut: ``("", "language_model")``."""
    a, b = described.split("."), filed.split(".")
    while a and b and a[-1] == b[-1]:
        a.pop()
        b.pop()
    while a and b and a[0] == b[0]:
        a.pop(0)
        b.pop(0)
    return ".".join(a), ".".join(b)


def _signature(name: str) -> tuple[str, ...]:
    """What a rename of prefixes or wrappers leaves alone: the numbers and the last two segments."""
    segments = name.split(".")
    return (*(s for s in segments[:-2] if s.isdecimal()), *segments[-2:])


def _pair(described: Iterable[str], filed: Iterable[str]) -> dict[str, str]:
    """Described names that have no tensor to tensors that have no entry, where one is clearly the other renamed."""
    buckets: dict[tuple[str, ...], list[str]] = {}
    for name in filed:
        buckets.setdefault(_signature(name), []).append(name)
    pairs = {}
    for name in described:
        candidates = buckets.get(_signature(name))
        if candidates:
            best = min(candidates[:MOST_ODD], key=lambda c: sum(map(len, _difference(name, c))))
            candidates.remove(best)
            pairs[name] = best
    return pairs


def _unmatched(seen: View) -> tuple[list[str], list[str]]:
    """Entries that have no tensor, and tensors that should have an entry and have none."""
    tensors, description = seen.checkpoint.tensors, seen.checkpoint.description
    absent = description.absent if description is not None else ()
    lonely = [name for name in absent if seen.may_miss(name)]
    if len(seen.schemes) - len(absent) == len(tensors):  # every tensor has its entry
        return lonely, []
    known = {*seen.schemes, *(description.odd if description is not None else ())}
    return lonely, [name for name in tensors if name not in known and not UNDESCRIBED.fullmatch(name)]


def _check_renames(seen: View, place: str, lonely: list[str], unnamed: list[str]) -> tuple[list[str], list[str]]:
    """Entries under another name than their tensor: one finding per difference, and the schemes put right.

    Returns the entries and the tensors that are left.
    """
    pairs = _pair(lonely, unnamed) if lonely and unnamed else {}
    for described, filed in pairs.items():
        old, new = told_apart(*_difference(described, filed))
        seen.found.add("description-renamed", described, place=place, described=old, filed=new)
    if pairs:
        seen.schemes = {pairs.get(name, name): scheme for name, scheme in seen.schemes.items()}
    paired = set(pairs.values())
    return [name for name in lonely if name not in pairs], [name for name in unnamed if name not in paired]


def _check_described(seen: View, place: str, lonely: list[str], unnamed: list[str]) -> None:
    """Every entry has its tensor and every tensor its entry."""
    tensors, found = seen.checkpoint.tensors, seen.found
    tied = seen.checkpoint.config.get("tie_word_embeddings") or seen.text_config.get("tie_word_embeddings")
    absent = []
    for name in lonely:
        scheme = seen.schemes[name]
        if COMPUTED.fullmatch(name):
            continue
        if not is_float(scheme):
            found.add("described-tensor-absent", name, place=place, scheme=scheme)
            absent.append(name)
        elif not (tied and name.endswith("lm_head.weight")) and name not in seen.checkpoint.extras:
            found.add("described-float-absent", name, place=place)
            absent.append(name)
    seen.mark_gone(absent)
    for name in unnamed:
        if seen.draft(name):
            found.add("draft-undescribed", name, place=place)
        elif name.endswith((".weight", ".weight_packed")) and len(tensors[name].shape) == 2:
            unasked = EXPERT_NUMBER.sub(r"\g<1>0\2", name) in seen.schemes
            found.add("expert-undescribed" if unasked else "tensor-undescribed", name, place=place)
        elif not _weight_undescribed(seen, name):
            found.add("extra-undescribed", name, place=place)


def _weight_undescribed(seen: View, name: str) -> bool:
    """Is the weight beside this tensor without an entry too, and reported for both?"""
    weight = f"{name.rpartition('.')[0]}.weight"
    return weight != name and weight in seen.checkpoint.tensors and weight not in seen.schemes


def _quantized(seen: View) -> Iterator[str]:
    """The scheme of each quantized weight."""
    return (scheme for name, scheme in seen.schemes.items() if name.endswith(".weight") and not is_float(scheme))


def _meant(scheme: str, known: Sequence[str]) -> str:
    """What *scheme* was probably meant to be, or nothing."""
    close = difflib.get_close_matches(scheme[:LONGEST].upper(), known, n=1)
    return Phrase("did it mean", scheme=close[0]) if close else ""


def _check_names_of_schemes(seen: View, place: str) -> None:
    """Every scheme is one that ModelSlim writes; model_quant_type may say something else."""
    known = [*SCHEMES, *SIDE_SCHEMES, "FLOAT"]
    counts = Counter(seen.schemes.values())
    unknown = {scheme for scheme in counts if not is_scheme(scheme)}
    if unknown:
        meant = {scheme: _meant(scheme, known) for scheme in sorted(unknown)[:MOST_ODD]}
        for name, scheme in seen.schemes.items():
            if scheme in unknown:
                nearest = meant.get(scheme, "")
                seen.found.add("scheme-unknown", name, place=place, scheme=scheme, nearest=nearest)
    description = seen.checkpoint.description
    said = description.meta("model_quant_type") if description is not None else None
    # A mixed checkpoint is named after one of its schemes, and not by the most frequent; only a stranger is noted.
    if isinstance(said, str) and said not in _quantized(seen):
        for most, _ in Counter(_quantized(seen)).most_common(1):
            seen.found.add("model-quant-type", place=place, said=said, most=most)
    if description is not None:
        prefixed = [key for key in description.metadata if key.endswith((".version", ".model_quant_type"))]
        if prefixed:
            seen.found.add("description-prefixed", prefixed[0], place=place, count=len(prefixed))


def check_static(
    checkpoint: Checkpoint,
    *,
    tensor_parallel_size: int | None = None,
    release: str | None = None,
    fills: Sequence[Filling] = (),
) -> list[Finding]:
    """Every static finding on *checkpoint*, worst first, those made on reading included.

    *release* is the version of vllm-ascend that will serve it, None where it is not known; *fills* what the patches
    that are selected for it fill.
    """
    with collector_paused():
        return _check(checkpoint, tensor_parallel_size, release, fills)


def _check(
    checkpoint: Checkpoint, tensor_parallel_size: int | None, release: str | None, fills: Sequence[Filling]
) -> list[Finding]:
    found = Collector()
    found.extend(checkpoint.findings)
    if "config.json" not in checkpoint.lost:
        check_config(checkpoint.config, found)
    if checkpoint.ranks:
        _check_ranks(checkpoint, found, tensor_parallel_size)
        return found.findings()
    if not _check_kind(checkpoint, found):
        return found.findings()
    assert checkpoint.description is not None
    place = checkpoint.description.place
    check_release(checkpoint, found, release)
    _check_block(checkpoint, found, release)
    seen = view(checkpoint, found)
    _check_listing(seen)
    left = _check_renames(seen, place, *_unmatched(seen))
    _check_described(seen, place, *left)
    _check_names_of_schemes(seen, place)
    check_schemes(seen, release)
    check_layers(seen)
    check_experts(seen)
    check_fused(seen)
    check_shadowed(seen, release)
    check_stored(seen)
    check_attention(seen)
    check_router_bias(seen, fills)
    check_heads(seen)
    check_draft(seen)
    return found.findings()
