"""Turns what a dry run saw into findings: one per cause, with what follows from the cause left out.

A layer that asked the description in vain, or whose scheme the release lacks, explains every dtype, shape and
missing tensor below it; those are not reported again. What needs no tensor on the installed release says
:mod:`ascend_hotfix.seams.spare`, to the server as well; tensors that may go nowhere are in :func:`_harmless_unused`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

from ascend_hotfix.doctor.drafts import draft_part
from ascend_hotfix.doctor.findings import Collector, Finding, pattern, starred
from ascend_hotfix.doctor.observe import Box, Frame
from ascend_hotfix.doctor.rehearsal import Part, Refused, fused_rows
from ascend_hotfix.doctor.schemes import PACKED_VERSION, Kind, companions_in, stored_otherwise
from ascend_hotfix.doctor.suggest.places import Way, any_expert, claimed, wanted, ways
from ascend_hotfix.doctor.suggest.words import Alignment, align, nearest
from ascend_hotfix.seams.spare import FACTORS, PRODUCT, STATIC

__all__ = ["Evidence", "evidence", "examine", "judge", "row_for"]

QUANTIZED = ("int8", "uint8", "float8", "float4", "int4")

_NOT_THERE = re.compile(r"no module or parameter named '([^']+)'")
"""What vLLM's own loader asks for; the rest of its message lists what there is, and differs from layer to layer."""


class Contradiction(NamedTuple):
    """Checkpoint *module* has the tensors *beside* its weight, which are of a scheme of *stored* and not of *said*."""

    module: str
    said: str
    stored: tuple[str, ...]
    beside: str


@dataclass
class Evidence:
    """What stays unexplained by harmless reasons, sorted for findings and suggestions.

    ``missing``: description names (without leaf) to the frame that asked; ``alignment``: the rules that explain them;
    ``rows``: shards of fused modules without a row, by what the description has; ``roots``: modules whose scheme is in
    question; ``homeless``: tensors that reached no parameter and are no draft's; ``unwritten``: parameters that need one;
    ``homes``: checkpoint module to the built module that its tensors reach; ``contradictions``: modules whose tensors
    are not of the scheme that the description says, and ``misdescribed``: their names there, an expert's number as ``*``,
    to the schemes they may be of; ``ways``: what would fill the parameters that lack something, where there are homeless ones.
    """

    missing: dict[str, Frame] = field(default_factory=dict)
    alignment: Alignment = field(default_factory=Alignment)
    rows: dict[str, tuple[str, ...]] = field(default_factory=dict)
    row_frames: dict[str, list[str]] = field(default_factory=dict)
    unsupported: list[Frame] = field(default_factory=list)
    failed: list[Frame] = field(default_factory=list)
    roots: set[str] = field(default_factory=set)
    homeless: list[str] = field(default_factory=list)
    unwritten: list[str] = field(default_factory=list)
    homes: dict[str, str] = field(default_factory=dict)
    misdescribed: dict[str, tuple[str, ...]] = field(default_factory=dict)
    contradictions: list[Contradiction] = field(default_factory=list)
    ways: dict[str, list[Way]] = field(default_factory=dict)


def _stem(name: str) -> str:
    return name.removesuffix(".weight")


def _module(name: str) -> str:
    return name.rpartition(".")[0]


def _description_modules(description: Mapping[str, Any]) -> dict[str, str]:
    return {_stem(name): scheme for name, scheme in description.items() if name.endswith(".weight")}


def _homes(part: Part) -> dict[str, str]:
    """Checkpoint module to the built module that its tensors reach."""
    homes: dict[str, str] = {}
    for tensor, parameters in part.landed.items():
        module = _module(tensor)
        if module not in homes:
            homes[module] = _module(parameters[0])
    return homes


def _quantized_dtype(name: str) -> bool:
    return name.startswith(QUANTIZED)


def evidence(part: Part, tensors: Mapping[str, Any]) -> Evidence:
    """Sort what *part* saw by cause."""
    found = Evidence(homes=_homes(part))
    known, homes = _description_modules(part.description), found.homes
    float_but_quantized = {
        _module(p)
        for _, source, p, target in part.cast
        if _quantized_dtype(source) and target in ("bfloat16", "float16", "float32")
    }
    leftovers = {
        homes.get(_module(t), "")
        for t in [*part.unused, *(r.tensor for r in part.refused)]
        if t.endswith(("scale", "offset", "scale_bias", "quant_bias"))
    }
    for frame in part.frames:
        if frame.float_method and (frame.module in float_but_quantized or frame.module in leftovers):
            # A patch took the layer for float, and its tensors say that it is not: the name was not found.
            for name in frame.defaulted:
                found.missing.setdefault(_stem(name), frame)
                found.roots.add(frame.module)
        silent = frame.missing and not frame.standin and not frame.error
        if silent:
            if frame.kind in ("attention", "other") or not frame.float_method:
                continue
            if frame.module not in float_but_quantized and frame.module not in leftovers:
                continue
        if frame.missing:
            for name in frame.missing:
                found.missing.setdefault(_stem(name), frame)
            found.roots.add(frame.module)
        if frame.error and frame.error.startswith("NotImplementedError"):
            found.unsupported.append(frame)
            found.roots.add(frame.module)
        elif frame.error and "set()" in frame.error:
            found.missing.setdefault(frame.prefix, frame)
            found.roots.add(frame.module)
        elif frame.error:
            found.failed.append(frame)
            found.roots.add(frame.module)
    _contradicted(found, part, tensors)
    found.roots.discard("")
    _explain_missing(found, known, part)
    return found


def _contradicted(found: Evidence, part: Part, tensors: Mapping[str, Any]) -> None:
    """Layers with tensors that went wrong, where what is stored is of another scheme than the description says."""
    homes, description = found.homes, part.description
    wrong = {homes.get(_module(one), "") for one in (*part.unused, *(r.tensor for r in part.refused), *part.cut)}
    wrong |= {_module(one) for one in (*part.unwritten, *part.partial)}
    wrong |= {_module(parameter) for _, _, parameter, _ in (*part.cast, *part.spread)}
    frames = {frame.module: frame for frame in part.frames if frame.module in wrong}
    modules: dict[str, dict[str, Kind]] = {}
    for name, tensor in tensors.items() if frames else ():
        module, _, leaf = name.rpartition(".")
        if homes.get(module) in frames:
            modules.setdefault(module, {})[leaf] = tensor.dtype, tuple(tensor.shape)
    packed, told = description.get("version") == PACKED_VERSION, description.get("model_quant_type", "")
    used = frozenset(_description_modules(description).values())

    @cache
    def stored(kinds: tuple[tuple[str, Kind], ...], shard: str, said: str) -> tuple[str, ...]:
        return stored_otherwise(dict(kinds), shard, said, packed=packed, told=told, used=used)

    for module, leaves in modules.items():
        frame = frames[homes[module]]
        name = next((one for one in _names_in_description(module, frame) if f"{one}.weight" in description), "")
        said = description.get(f"{name}.weight", "")
        if schemes := stored(tuple(leaves.items()), _leaf(module), said):
            found.contradictions.append(Contradiction(module, said, schemes, companions_in(leaves)))
            found.misdescribed[any_expert(name)] = schemes
            found.roots.add(frame.module)


def _names_in_description(module: str, frame: Frame) -> Iterator[str]:
    """What the description may call checkpoint *module*: as it is, or as upstream has mapped it for the layer of *frame*."""
    yield module
    _, experts, expert = module.rpartition(".experts.")
    yield f"{frame.prefix}.{expert}" if experts else f"{_module(frame.prefix)}.{_leaf(module)}"


def _explain_missing(found: Evidence, known: Mapping[str, str], part: Part) -> None:
    """Rules for the missing names; what remains may be a fused module without a row."""
    rows = fused_rows()
    modules = set(known)
    names = []
    for name in found.missing:
        parent, _, leaf = name.rpartition(".")
        row = row_for(leaf, [parent], rows, modules)
        if row:
            found.rows.setdefault(leaf, row)
            found.row_frames.setdefault(leaf, []).append(name)
        else:
            names.append(name)
    found.alignment = align(names, known, same=lambda a, b: known.get(a) == known.get(b))
    for name in list(found.alignment.unexplained):
        parent, _, leaf = name.rpartition(".")
        parents = [parent, *(rule.apply(parent) for rule in found.alignment.rules)]
        parents += [rule.apply(name).rpartition(".")[0] for rule in found.alignment.rules]
        row = row_for(leaf, parents, rows, modules)
        if row:
            found.rows.setdefault(leaf, row)
            found.row_frames.setdefault(leaf, []).append(name)
            found.alignment.unexplained.remove(name)


def row_for(
    leaf: str, parents: Iterable[str], rows: Mapping[str, list[tuple[str, ...]]], modules: Collection[str]
) -> tuple[str, ...]:
    """The shards of fused module *leaf* that the description has below one of *parents*."""
    for parent in parents:
        dot = f"{parent}." if parent else ""
        for row in rows.get(leaf, []):
            if all(f"{dot}{shard}" in modules for shard in row):
                return row
        if leaf == "experts":
            for shards in (("gate_proj", "up_proj", "down_proj"), ("w1", "w2", "w3")):
                row = tuple(f"experts.0.{shard}" for shard in shards)
                if all(f"{dot}{shard}" in modules for shard in row):
                    return row
    return ()


# --- findings ---------------------------------------------------------------------------------------------------------


def judge(
    part: Part, tensors: Mapping[str, Any], drafted: Collection[str], consumed_elsewhere: Collection[str] = ()
) -> list[Finding]:
    """The findings of one part. *drafted*: the draft's tensors; *consumed_elsewhere*: those that another part takes."""
    return examine(part, tensors, drafted, consumed_elsewhere)[0]


def examine(
    part: Part, tensors: Mapping[str, Any], drafted: Collection[str], consumed_elsewhere: Collection[str] = ()
) -> tuple[list[Finding], Evidence]:
    """:func:`judge`, and the evidence from which a patch can be suggested."""
    found = Collector(stage="dry-run")
    place = part.role
    if part.failure and not part.model_class:
        _build_failure(part, found, place)
    seen = evidence(part, tensors)
    _lookup_findings(part, seen, found, place)
    if part.model_class:
        if part.failure:
            found.add("load-failed", place=place, error=part.failure, where=part.failure_place)
        _load_findings(part, seen, tensors, drafted, consumed_elsewhere, found, place)
    return found.findings(), seen


def _build_failure(part: Part, found: Collector, place: str) -> None:
    known = next((f for f in part.frames if f.error), None)
    if known is not None and known is part.frames[-1]:
        return  # reported as what the layer asked
    found.add("build-failed", place=place, error=part.failure, where=part.failure_place)


def _lookup_findings(part: Part, seen: Evidence, found: Collector, place: str) -> None:
    for rule, names in seen.alignment.explained.items():
        old, new = getattr(rule, "old", ""), getattr(rule, "new", "")
        for name in names:
            code = _code(names, seen)
            found.add(code, name, place=place, asked=old or "an empty prefix", known=new or "no such segment")
    for choice in seen.alignment.choices:
        news = " or ".join(str(getattr(rule, "new", "")) for rule in choice.rules)
        for name in choice.names:
            code = _code(choice.names, seen)
            found.add(code, name, place=place, asked=str(getattr(choice.rules[0], "old", "")), known=news)
    for fused, names in seen.row_frames.items():
        for name in names:
            found.add("row-missing", name, place=place, fused=fused, shards=", ".join(seen.rows[fused]))
    known = list(_description_modules(part.description))
    groups: dict[str, list[str]] = {}
    for name in seen.alignment.unexplained:
        groups.setdefault(starred(name), []).append(name)
    for shape, names in groups.items():
        near = nearest(names[0], known) if names[0] else []
        like = pattern(near[0]) if near else "nothing like it"
        for name in names:
            code = _code(names, seen)
            found.add(
                code,
                name or ".weight",
                place=place,
                asked=shape or "an empty prefix",
                known=f"{like} of another number" if like == shape else like,
            )
    for frame in seen.unsupported:
        scheme = _wanted(frame, part)
        found.add("scheme-unsupported", frame.prefix, place=place, scheme=scheme, kind=frame.kind)
    contradicted = {seen.homes[one.module] for one in seen.contradictions}
    for one in seen.contradictions:
        stored = " or ".join(one.stored)
        found.add("scheme-stored", f"{one.module}.weight", scheme=one.said, beside=one.beside, stored=stored)
    for frame in seen.failed:
        if frame.module in contradicted:
            continue
        found.add(
            "lookup-refused", frame.prefix, place=place, error=pattern(frame.error.replace(frame.prefix, "the layer"))
        )


def _code(names: Iterable[str], seen: Evidence) -> str:
    """One cause, one code: upstream raises for some of *names*, or takes all of them for float in silence."""
    return "lookup-silent" if all(_silent(seen.missing[name]) for name in names) else "lookup-missing"


def _silent(frame: Frame) -> bool:
    return not frame.standin and not frame.error


def _wanted(frame: Frame, part: Part) -> str:
    """The scheme that was refused."""
    quantized = [s for s in frame.answers.values() if s != "FLOAT"]
    if quantized:
        return quantized[0]
    if frame.kind == "attention":
        for key in ("fa_quant_type", "kv_quant_type", "kv_cache_type", "indexer_quant_type"):
            if part.description.get(key):
                return str(part.description[key])
    return frame.guess or "its scheme"


def _load_findings(
    part: Part,
    seen: Evidence,
    tensors: Mapping[str, Any],
    drafted: Collection[str],
    elsewhere: Collection[str],
    found: Collector,
    place: str,
) -> None:
    homes, roots = seen.homes, seen.roots
    own_draft: Collection[str] = drafted if part.role == "target" else ()

    attention = {_module(f.prefix) for f in (*seen.unsupported, *seen.failed) if f.kind == "attention"} - {""}

    def rooted(module: str) -> bool:
        return module in roots or any(module.startswith(f"{root}.") for root in roots)

    def consequence(tensor: str) -> bool:
        """Does this tensor belong to a layer whose scheme is already in question?"""
        module = _module(tensor)
        home = homes.get(module, "")
        if home and rooted(home):
            return True
        if not home and any(f".{module}.".find(f".{parent}.") >= 0 for parent in attention):
            return True
        return not home and bool(roots) and _rooted_by_name(module, roots, homes)

    doubtful = {_module(parameter) for _, source, parameter, _ in part.cast if _quantized_dtype(source)}

    def homeless(tensor: str) -> bool:
        """Is it the name that is wrong? Where the rest of the module landed, it is the scheme."""
        home = homes.get(_module(tensor), "")
        return tensor not in own_draft and not (home and (rooted(home) or home in doubtful))

    misfits = _tails_of_misfits(part)
    for refused in part.refused:
        if homeless(refused.tensor):
            seen.homeless.append(refused.tensor)
        if refused.tensor in own_draft:
            found.add("draft-refused", refused.tensor, place=place, part=starred(draft_part(refused.tensor)))
        elif not consequence(refused.tensor):
            _refused(refused, tensors.get(refused.tensor), found, place)
    for tensor in part.unused:
        if (part.role != "target" and tensor not in drafted) or tensor in elsewhere or tensor in own_draft:
            continue
        if _harmless_unused(tensor, part, homes):
            continue
        if homeless(tensor):
            seen.homeless.append(tensor)
        if consequence(tensor):
            continue
        found.add("tensor-unused", tensor, place=place, leaf=_leaf(tensor))
    seen.ways = ways(part, tensors) if seen.homeless else {}
    claims = _claims(seen.ways, part, [name for name in seen.homeless if name not in elsewhere], tensors)
    for name in part.unwritten:
        if rooted(_module(name)) or _tail(_module(name)) in misfits:
            continue
        if _harmless_unwritten(name, part, claims):
            continue
        seen.unwritten.append(name)
        if name in claims:
            continue
        found.add("parameter-unwritten", name, place=place, leaf=_leaf(name))
    for name, (patch, value) in part.filled.items():
        if patch:
            found.add("parameter-filled", name, place=place, leaf=_leaf(name), patch=patch, value=value)
    for name, boxes in part.partial.items():
        if rooted(_module(name)) or name in claims:
            continue
        found.add(
            "parameter-partial", name, place=place, leaf=_leaf(name), where=_where(name, boxes, part), count=len(boxes)
        )
    for tensor, boxes in part.cut.items():
        if not consequence(tensor):
            found.add("tensor-cut", tensor, place=place, what=_rest(boxes), shape=str(list(tensors[tensor].shape)))
    for tensor, source, parameter, target in part.cast:
        if rooted(_module(parameter)) or (_leaf(tensor) == "input_offset" and target == "int8"):
            continue  # input_offset: written as a float by ModelSlim, small whole numbers
        if _quantized_dtype(source) and not _quantized_dtype(target):
            code = "quantized-into-float"
        elif _quantized_dtype(target) and not _quantized_dtype(source):
            code = "float-into-quantized"
        else:
            code = "dtype-cast"
        found.add(code, tensor, place=place, source=source, target=target)
    for tensor, source, parameter, target in part.spread:
        if not rooted(_module(parameter)):
            found.add("tensor-spread", tensor, place=place, source=source, target=target)


def _claims(
    found: Mapping[str, list[Way]], part: Part, homeless: Collection[str], tensors: Mapping[str, Any]
) -> set[str]:
    """Parameters that stay unwritten because *homeless* tensors, which are told of, would fill all that is missing."""
    if not homeless or not (part.unwritten or part.partial):
        return set()
    names = claimed(homeless, wanted(found, part.landed), part.landed, tensors)
    there = names | part.landed.keys()
    return {
        parameter
        for parameter, held in found.items()
        if any(way.keys() <= there and not names.isdisjoint(way) for way in held)
    }


def _misfit(refused: Refused) -> bool:
    """Was it refused for its shape?"""
    shape_error = refused.error in ("AssertionError", "RuntimeError", "IndexError") or "size" in refused.text
    return shape_error and not refused.asked


def _tail(module: str) -> tuple[str, ...]:
    """The end of a built module's name, which no mapper changes."""
    return tuple(module.removesuffix(".routed_experts").split(".")[-4:])


def _tails_of_misfits(part: Part) -> set[tuple[str, ...]]:
    """Where tensors of a shape that does not fit belong: what stays unwritten there follows from it."""
    modules = {_module(refused.tensor).partition(".experts.") for refused in part.refused if _misfit(refused)}
    rows = fused_rows() if modules else {}
    return {
        tuple(path[-4:])
        for head, experts, _ in modules
        for path in _fused_paths([*head.split("."), *(["experts"] if experts else [])], rows)
    }


def _fused_paths(parts: list[str], rows: Mapping[str, list[tuple[str, ...]]]) -> list[list[str]]:
    """The path of a checkpoint's module, and those of the fused modules of which it may be a shard."""
    fused = {name for name, held in rows.items() for row in held if parts[-1] in row}
    return [[*parts[:-1], end] for end in {parts[-1], *fused}]


def _rooted_by_name(module: str, roots: Collection[str], homes: Mapping[str, str]) -> bool:
    """A tensor that nothing of its module landed: does the path of a doubtful layer end like its own?"""
    parts = module.split(".")
    if "experts" in parts:
        parts = parts[: parts.index("experts") + 1]
    tails = _fused_paths(parts, fused_rows())
    for root in roots:
        other = root.removesuffix(".routed_experts").split(".")
        for tail in tails:
            size = min(4, len(tail), len(other))
            if size > 1 and tail[-size:] == other[-size:]:
                return True
    return False


def _leaf(name: str) -> str:
    return name.rpartition(".")[2]


def _refused(refused: Refused, tensor: Any, found: Collector, place: str) -> None:
    named = _NOT_THERE.search(refused.text)
    asked = refused.asked or (named[1] if named else "")
    error = f"{refused.error}: {refused.text}" if refused.text else refused.error
    if _misfit(refused) and not asked:
        shape = "x".join(map(str, getattr(tensor, "shape", ()))) or "scalar"
        found.add("tensor-shape-refused", refused.tensor, place=place, shape=shape, error=error, where=refused.place)
    elif asked:
        found.add("tensor-refused", refused.tensor, place=place, asked=starred(asked), where=refused.place)
    else:
        found.add("tensor-failed", refused.tensor, place=place, error=starred(error), where=refused.place)


def _rest(boxes: list[Box]) -> str:
    if not boxes:
        return "all but a part"
    box = boxes[0]
    return "[" + ", ".join(f"{a}:{b}" for a, b in box) + "]"


def _where(name: str, boxes: list[Box], part: Part) -> str:
    """Which experts or rows: the first dimension tells, bounded."""
    firsts = sorted({a for box in boxes for a in range(box[0][0], box[0][1])}) if boxes and boxes[0] else []
    if "experts" in name:
        shown = ", ".join(map(str, firsts[:8])) + (" ..." if len(firsts) > 8 else "")
        return f"experts {shown}"
    return f"region {_rest(boxes)}"


def _harmless_unused(tensor: str, part: Part, homes: Mapping[str, str]) -> bool:
    """Tensors that upstream leaves aside and that change nothing."""
    module, leaf = _module(tensor), _leaf(tensor)
    home = homes.get(module, "")
    if leaf == "bias" and f"{home}.quant_bias" in part.parameters:
        # ModelSlim folds the bias that smoothing adds into quant_bias of static W8A8. W8A8_MIX has a dynamic path
        # that does not read quant_bias, so there it is lost.
        return _scheme_of(home, part) == "W8A8"
    if tensor.endswith("lm_head.weight"):  # of a tied head, whose parameter is the embedding's
        return not any(name.endswith("lm_head.weight") for name in part.unwritten)
    return _leaf(module) == "rot"  # QuaRot's global rotation: for the draft only


def _scheme_of(module: str, part: Part) -> str:
    for frame in part.frames:
        if frame.module == module:
            named = "W8A8" if frame.method == STATIC else frame.standin
            return next(iter(frame.answers.values()), named)
    return ""


def _harmless_unwritten(name: str, part: Part, claims: Collection[str]) -> bool:
    """Parameters that no tensor needs to fill. *claims*: those that a tensor would fill if it had another name."""
    if name in part.spare:
        return True
    # what deq_scale is made of goes with it: a tensor that would fill the one is told of, and the other follows from it
    return (
        _leaf(name) in FACTORS
        and _scheme_of(_module(name), part) == "W8A8"
        and (f"{_module(name)}.{PRODUCT}" in claims and not _v0(part))
    )


def _v0(part: Part) -> bool:
    """Does this checkpoint's static W8A8 carry weight scales (written by ModelSlim's older service)?"""
    static = {f.module for f in part.frames if _scheme_of(f.module, part) == "W8A8"}
    written = {_module(p) for targets in part.landed.values() for p in targets if p.endswith(".weight_scale")}
    return bool(static & written)
