"""Derives a patch module from what a dry run missed: as few rules as explain all misses, each general and anchored.

Rules come from names that are asked and names that are there (:mod:`ascend_hotfix.doctor.align`); rows of fused modules
from the shards that the description has; schemes for names the description lacks from the dtype of the tensors. The
patch is loaded and dry-run before it is written. What the names leave open is offered as a choice and never guessed.
"""

from __future__ import annotations

import os
import runpy
import tempfile
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ascend_hotfix import toggles
from ascend_hotfix.catalog import ENV_MODELS, ENV_PATH, load_catalog
from ascend_hotfix.doctor.align import Choice, align, alike
from ascend_hotfix.doctor.dryrun import Rehearsal, Split, call, finding_of, rehearse, run_split, toggle_env
from ascend_hotfix.doctor.findings import Collector, Finding, Severity, pattern
from ascend_hotfix.doctor.judge import Evidence, examine
from ascend_hotfix.doctor.rehearsal import Part, fused_rows
from ascend_hotfix.names import Exact, Rule, Suffix
from ascend_hotfix.records import Fix, ModelPatch, Packed, PatchError, Scheme

if TYPE_CHECKING:
    from ascend_hotfix.doctor.report import Report
    from ascend_hotfix.sim.pool import Zygote

__all__ = ["Proposal", "derive", "propose", "suggestion", "write_suggestion"]

FUSED_OF = {
    **dict.fromkeys(("q_proj", "k_proj", "v_proj"), ("qkv_proj", "qkv", "query_key_value")),
    **dict.fromkeys(("q", "k", "v"), ("qkv", "qkv_proj")),
    **dict.fromkeys(("gate_proj", "up_proj"), ("gate_up_proj",)),
}
"""One description entry that stands for several shards."""
FLOAT_DTYPES = ("BF16", "F16", "F32")
EXPERT_NAMES = (("gate_proj", "up_proj", "down_proj"), ("w1", "w3", "w2"))
FIELDS = ("lookup", "packed", "weights", "types")
"""Fields of a fix that a suggestion fills, in the order of a written patch."""
ROUNDS = 4
"""How often a dry run with the rules so far may show more. A draft whose tensors moved and whose lookups moved takes three."""
NAME_CODES = frozenset(
    {
        "lookup-missing",
        "lookup-silent",
        "row-missing",
        "tensor-refused",
        "tensor-unused",
        "parameter-unwritten",
        "parameter-partial",
        "build-failed",
        "quantized-into-float",
        "float-into-quantized",
    }
)
"""Findings that a rule may remove."""


@dataclass
class Proposal:
    """Rules by field of a fix, and what stays open."""

    lookup: list[Rule] = field(default_factory=list)
    weights: list[Rule] = field(default_factory=list)
    packed: list[Packed] = field(default_factory=list)
    types: list[Scheme] = field(default_factory=list)
    choices: list[str] = field(default_factory=list)

    @classmethod
    def of_patch(cls, patch: ModelPatch) -> Proposal:
        """The rules that *patch*, a suggested one, has."""
        result = cls()
        for fix in patch.fixes:
            for name in FIELDS:
                getattr(result, name).extend(getattr(fix, name))
        return result

    def __bool__(self) -> bool:
        return any(getattr(self, name) for name in FIELDS)

    def fields(self) -> dict[str, tuple[Any, ...]]:
        """The non-empty fields of a fix."""
        held = {name: tuple(getattr(self, name)) for name in FIELDS}
        return {name: records for name, records in held.items() if records}

    def merge(self, other: Proposal) -> None:
        """Adds what *other* has and this one lacks."""
        for name in (*FIELDS, "choices"):
            mine = getattr(self, name)
            mine += [one for one in getattr(other, name) if one not in mine]


# --- from evidence to rules -------------------------------------------------------------------------------------------


def derive(rehearsal: Rehearsal) -> Proposal:
    """The rules that explain what the parts of *rehearsal* missed."""
    tensors, config = rehearsal.checkpoint.tensors, rehearsal.checkpoint.config
    result = Proposal()
    for part in rehearsal.parts:
        others = {t for other in rehearsal.parts if other is not part for t in other.landed}
        _, seen = examine(part, tensors, config, others)
        result.merge(_description_rules(part, seen, tensors))
        # What a rule of the target's moves is looked at again in the dry run with the patch.
        moved = {t for t in seen.homeless if any(rule.apply(t) != t for rule in result.weights)}
        result.merge(_weight_rules(part, seen, tensors, {*others, *moved}))
    return result


def _describe_choice(choice: Choice, what: str) -> str:
    rules = " or ".join(repr(rule) for rule in choice.rules[:4])
    return f"{what} {choice.names[0]!r} ({len(choice.names)} names): {rules}"


def _description_rules(part: Part, seen: Evidence, tensors: Mapping[str, Any]) -> Proposal:
    result = Proposal(lookup=list(seen.alignment.rules))
    result.choices = [_describe_choice(choice, "the description name of") for choice in seen.alignment.choices]
    result.packed = [Packed(fused, shards) for fused, shards in seen.rows.items()]
    known = {
        name.removesuffix(".weight"): scheme for name, scheme in part.description.items() if name.endswith(".weight")
    }
    for name in seen.alignment.unexplained:
        rule = _fused_alias(name, known, result.lookup) or _unnamed(name, part, known)
        if rule is not None:
            if rule not in result.lookup:
                result.lookup.append(rule)
            continue
        scheme = _scheme_for(name, seen, part, tensors, known)
        if scheme is None:
            result.choices.append(f"the scheme of {name or '(a layer without a prefix)'!r}: nothing says it")
        elif scheme not in result.types:
            result.types.append(scheme)
    return result


def _fused_alias(name: str, known: Mapping[str, str], rules: Iterable[Rule]) -> Rule | None:
    """The description has one entry for the fused module where its shards are asked for."""
    parent, _, leaf = name.rpartition(".")
    for one in (
        parent,
        *(rule.apply(parent) for rule in rules),
        *(rule.apply(name).rpartition(".")[0] for rule in rules),
    ):
        for fused in FUSED_OF.get(leaf, ()):
            if f"{one}.{fused}" not in known:
                continue
            if one == parent:
                last = parent.rpartition(".")[2]
                return Suffix(f"{last}.{leaf}", f"{last}.{fused}")
            return _between(name, f"{one}.{fused}")
    return None


def _between(asked: str, known: str) -> Rule:
    """One rule from *asked* to *known* that holds for every layer."""
    stars = [".".join("*" if part.isdigit() else part for part in one.split(".")) for one in (asked, known)]
    return Exact(*stars)


def _unnamed(name: str, part: Part, known: Mapping[str, str]) -> Rule | None:
    """A layer that was built without a prefix: the one description name that ends as the module does."""
    frames = [f for f in part.frames if f"{name}.weight" in f.missing]
    if name or len({f.module for f in frames}) != 1:
        return None
    leaf = frames[0].module.rpartition(".")[2]
    found = [one for one in known if one.rpartition(".")[2] == leaf]
    return Exact("", found[0]) if len(found) == 1 and leaf else None


def _scheme_for(
    name: str, seen: Evidence, part: Part, tensors: Mapping[str, Any], known: Mapping[str, str]
) -> Scheme | None:
    """The scheme of a name that the description lacks, told by the tensors of its layer."""
    if not name:
        return None
    module = seen.missing[name].module
    parameters = {p for p in part.parameters if p.rpartition(".")[0] == module}
    leaf = name.rpartition(".")[2]
    weights = [t for t, to in part.landed.items() if parameters & set(to) and t.endswith(".weight")]
    own = [t for t in weights if t.rpartition(".")[0].rpartition(".")[2] == leaf] or weights
    dtypes = {tensors[t].dtype for t in own if t in tensors}
    shape = pattern(f".{name}.")[1:-1]
    if dtypes and dtypes <= set(FLOAT_DTYPES):
        return Scheme(shape, "FLOAT")
    siblings = {scheme for other, scheme in known.items() if pattern(f".{other}.")[1:-1] == shape}
    quantized = {scheme for scheme in siblings if scheme != "FLOAT"}
    if dtypes and not dtypes & set(FLOAT_DTYPES) and len(quantized) == 1 == len(siblings):
        return Scheme(name, quantized.pop())
    return None


def _weight_rules(part: Part, seen: Evidence, tensors: Mapping[str, Any], others: Collection[str]) -> Proposal:
    """Rules for tensors that reached no parameter, towards the names that would fill one."""
    result = Proposal()
    if not part.model_class:
        return result
    homeless = [t for t in dict.fromkeys(seen.homeless) if t not in others]
    if not homeless:
        return result
    wanted = _wanted(part)
    by_module: dict[str, set[str]] = {}
    for name in wanted:
        module, _, leaf = name.rpartition(".")
        by_module.setdefault(module, set()).add(leaf)
    asked: dict[str, set[str]] = {}
    for name in homeless:
        module, _, leaf = name.rpartition(".")
        asked.setdefault(module, set()).add(leaf)
    landed = {name.rpartition(".")[0] for name in part.landed}

    def fits(one: str, other: str) -> bool:
        common = asked[one] & by_module.get(other, set())
        return bool(common) and all(
            _same_size(tensors.get(f"{one}.{leaf}"), wanted[f"{other}.{leaf}"]) for leaf in common
        )

    found = align(list(asked), list(by_module), taken=landed - set(by_module), fits=fits)
    result.weights += found.rules
    result.choices += [_describe_choice(choice, "the tensors of") for choice in found.choices]
    rest = [name for name in homeless if name.rpartition(".")[0] in found.unexplained]
    whole = align(rest, list(wanted), fits=lambda a, b: _same_size(tensors.get(a), wanted[b]) and _same_words(a, b))
    result.weights += whole.rules
    result.choices += [_describe_choice(choice, "the tensor") for choice in whole.choices]
    shapes: dict[str, list[str]] = {}
    for name in whole.unexplained:
        shapes.setdefault(pattern(name), []).append(name)
    for shape, names in shapes.items():
        pattern_text = ".".join("*" if p.isdigit() else p for p in shape.split("."))
        result.choices.append(
            f"{len(names)} tensors {shape} have no parameter: Drop({pattern_text!r}) leaves them out, if nothing needs them"
        )
    return result


def _same_words(one: str, other: str) -> bool:
    return alike(one.split("."), other.split("."))


def _wanted(part: Part) -> dict[str, tuple[tuple[int, ...] | None, str]]:
    """Checkpoint names that would fill what is unwritten, with the shape where it can be told and the dtype."""
    rows = fused_rows()
    fronts = _fronts(part)
    wanted: dict[str, tuple[tuple[int, ...] | None, str]] = {}
    siblings: dict[str, list[tuple[str, str]]] = {}
    for tensor, parameters in part.landed.items():
        for parameter in parameters:
            siblings.setdefault(pattern(parameter), []).append((tensor, parameter))
    for name in (*part.unwritten, *part.partial):
        shape, dtype = part.parameters[name]
        for tensor, parameter in siblings.get(pattern(name), [])[:64]:
            moved = _renumbered(tensor, parameter, name)
            if moved:
                wanted.setdefault(moved, (None, dtype))
        name = _in_front(name, fronts)
        module, _, leaf = name.rpartition(".")
        base = module.removesuffix(".routed_experts").replace(".mtp_block.", ".")
        if base.rpartition(".")[2] == "experts" and leaf.startswith(("w13_", "w2_")):
            first, rest = leaf.split("_", 1)
            for gate, up, down in EXPERT_NAMES:
                for expert in range(shape[0]):
                    for projection in (gate, up) if first == "w13" else (down,):
                        wanted.setdefault(f"{base}.{expert}.{projection}.{rest}", (None, dtype))
            continue
        # vLLM's draft models put mtp_block into the names themselves
        name, module = (one.replace(".mtp_block.", ".") for one in (name, module))
        wanted.setdefault(name, (shape, dtype))
        parent, _, last = module.rpartition(".")
        for shards in (part.packed.get(last), *rows.get(last, [])):
            for shard in shards or ():
                wanted.setdefault(f"{parent}.{shard}.{leaf}", (None, dtype))
    return wanted


def _fronts(part: Part) -> dict[str, str]:
    """How the model's own mapper begins names: what parameters begin with, to what their tensors begin with."""
    fronts: dict[str, str] = {}
    for tensor, parameters in part.landed.items():
        if len(parameters) > 1 or tensor == parameters[0]:
            continue
        one, other, last = tensor.split("."), parameters[0].split("."), ""
        while one and other and one[-1] == other[-1]:
            last = one.pop()
            other.pop()
        if not one or not other:  # anchored by one segment more
            one, other = [*one, last], [last]
        if not any(segment.isdigit() for segment in (*one, *other)):
            fronts.setdefault(".".join(other), ".".join(one))
    return fronts


def _in_front(name: str, fronts: Mapping[str, str]) -> str:
    """The checkpoint's name of parameter *name*, as far as *fronts* tell."""
    held = [front for front in fronts if name.startswith(f"{front}.")]
    if not held:
        return name
    front = max(held, key=len)
    return f"{fronts[front]}{name[len(front) :]}".lstrip(".")


def _renumbered(tensor: str, parameter: str, name: str) -> str:
    """The name that the sibling *tensor* of *parameter* has where the parameter is *name*."""
    old = [p for p in parameter.split(".") if p.isdigit()]
    new = [p for p in name.split(".") if p.isdigit()]
    segments, position = tensor.split("."), 0
    for index, segment in enumerate(segments):
        if segment.isdigit() and position < len(old) and segment == old[position]:
            segments[index] = new[position]
            position += 1
    return ".".join(segments) if position == len(old) else ""


def _same_size(tensor: Any, wanted: tuple[tuple[int, ...] | None, str]) -> bool:
    """May *tensor* fill what is wanted, as far as its shape is known?"""
    shape, _ = wanted
    return tensor is not None and (shape is None or tuple(tensor.shape) == shape)


# --- the file ---------------------------------------------------------------------------------------------------------


def _rule_text(record: Any) -> str:
    if isinstance(record, Packed):
        shards = ", ".join(repr(s).replace("'", '"') for s in record.shards)
        return f'Packed("{record.fused}", ({shards}{"," if len(record.shards) == 1 else ""}))'
    if isinstance(record, Scheme):
        return f'Scheme("{record.pattern}", "{record.scheme}")'
    return f'{type(record).__name__}("{record.old}", "{record.new}")'


def _why(fields: Mapping[str, tuple[Any, ...]]) -> str:
    told = []
    if "lookup" in fields:
        rule = fields["lookup"][0]
        told.append(
            f"vLLM asks the description for {rule.old or 'an empty prefix'}, which has {rule.new or 'no such segment'}"
        )
    if "packed" in fields:
        told.append(f"fused {', '.join(row.fused for row in fields['packed'])} has no row in this release")
    if "weights" in fields:
        rule = fields["weights"][0]
        told.append(f"the checkpoint writes {rule.old or 'no prefix'} where load_weights takes {rule.new or 'none'}")
    if "types" in fields:
        told.append("the description lacks layers whose tensors tell their scheme")
    return "; ".join(told)


def _grouped(proposal: Proposal) -> list[dict[str, tuple[Any, ...]]]:
    """The fields of each fix: one fix, unless its rules would move each other's results."""
    fields = proposal.fields()
    try:
        Fix("names", "checked only", ("doctor",), **fields)  # type: ignore[arg-type]
        return [fields]
    except PatchError:
        singles = [{name: (record,)} for name, records in fields.items() for record in records]
        return singles


def patch_text(proposal: Proposal, model_types: Iterable[str], versions: Mapping[str, str], title: str) -> str:
    """The patch module, as a shipped one reads."""
    groups = _grouped(proposal)
    kinds = {type(record).__name__ for fields in groups for records in fields.values() for record in records}
    ranges = ", ".join(f'"{name}": "=={versions[name]}"' for name in ("vllm", "vllm-ascend") if name in versions)
    types = ", ".join(f'"{one}"' for one in model_types)
    lines = [
        f'"""{title}: names that the installed release does not find, by ascend-hotfix doctor."""',
        "",
        f"from ascend_hotfix.records import {', '.join(sorted({*kinds, 'Fix', 'ModelPatch'}))}",
        "",
        "PATCH = ModelPatch(",
        f"    model_types=({types},),",
        "    fixes=(",
    ]
    for number, fields in enumerate(groups, 1):
        lines += [
            "        Fix(",
            f'            id="names{"" if len(groups) == 1 else f"-{number}"}",',
            f'            why="{_why(fields)}",',
            '            refs=("doctor",),',
            f"            versions={{{ranges}}},",
            '            retire="a release in which the dry run is clean without it",',
        ]
        for name, records in fields.items():
            lines.append(f"            {name}=(")
            lines += [f"                {_rule_text(record)}," for record in records]
            lines.append("            ),")
        lines.append("        ),")
    return "\n".join([*lines, "    ),", ")", ""])


# --- the two processes ------------------------------------------------------------------------------------------------


def propose(model_dir: str, versions: Mapping[str, str], base: str = "", **split: Any) -> dict[str, Any]:
    """A case for the zygote: the findings of a dry run, the text of a patch (empty: none) and the choices.

    *base* is the file of what was suggested before and is armed in this run; the new text has its rules too.
    """
    from ascend_hotfix.doctor.checkpoint import read_checkpoint
    from ascend_hotfix.doctor.dryrun import finding_data

    found = rehearse(read_checkpoint(model_dir), Split(**split))
    before = Proposal.of_patch(runpy.run_path(base)["PATCH"]) if base else Proposal()
    proposal = Proposal()
    proposal.merge(before)
    proposal.merge(derive(found))
    text = patch_text(proposal, found.types, versions, Path(model_dir).name) if proposal else ""
    return {
        "findings": [finding_data(f) for f in found.findings],
        "text": text,
        "choices": proposal.choices,
        "more": proposal.fields() != before.fields(),
        "types": list(found.types),
    }


@dataclass
class Suggestion:
    """A patch that was tried: its *text*, empty where there is none, what it leaves, and why there is none."""

    text: str
    before: list[Finding]
    left: list[Finding] = field(default_factory=list)
    choices: list[str] = field(default_factory=list)
    worse: bool = False
    types: list[str] = field(default_factory=list)


def suggestion(
    zygote: Zygote,
    model_dir: str,
    split: Split,
    versions: Mapping[str, str],
    env: Mapping[str, str],
    name: str = "suggested",
) -> Suggestion:
    """Proposes a patch and dry-runs the checkpoint with it, until that shows nothing more to add.

    *env* is what the user's environment says; the trials differ from it in what selects the patch that is tried, which
    is called *name*.
    """

    def run(base: str, trial: Mapping[str, str]) -> dict[str, Any]:
        case = "ascend_hotfix.doctor.suggest:propose"
        return call(zygote, case, trial, model_dir=model_dir, versions=dict(versions), base=base)

    answer = run("", env)
    before = [finding_of(one) for one in answer["findings"]]
    result = Suggestion(answer["text"], before, choices=list(answer["choices"]), types=list(answer["types"]))
    if not result.text:
        return result
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"{name}.py"
        trial = trial_env(env, file, answer["types"])
        for _ in range(ROUNDS):
            file.write_text(result.text, encoding="utf-8")
            answer = run(str(file), trial)
            result.left = [finding_of(one) for one in answer["findings"]]
            result.choices = list(answer["choices"])
            if not answer["more"]:
                break
            result.text = answer["text"]
        if split != Split() and not result.choices:
            result.left = run_split(zygote, model_dir, split, trial)
    result.worse = _worse(before, result.left)
    return result


def trial_env(env: Mapping[str, str], file: Path, types: Iterable[str]) -> dict[str, str]:
    """*env* with the patch in *file*, which is for models of *types*, selected beside what the toggle selects."""
    paths = os.pathsep.join(filter(None, (str(file), env.get(ENV_PATH, os.environ.get(ENV_PATH, "")))))
    toggle = env.get(ENV_MODELS, os.environ.get(ENV_MODELS, ""))
    return {**env, ENV_PATH: paths, ENV_MODELS: _with_selected(toggle, file.stem.lower(), set(types))}


def _with_selected(toggle: str, name: str, types: Collection[str]) -> str:
    """*toggle* with patch *name*, for models of *types*, selected as well."""
    if toggle.strip().lower() in toggles.OFF:
        return name
    terms = [term.strip() for term in toggle.split(",") if term.strip()]
    barred = {term[1:].strip() for term in terms if term.startswith("-")} & set(types)
    if barred:  # a model type that is taken out would take out the patch too: take the other patches out by name
        terms = [term for term in terms if term[1:].strip() not in barred or not term.startswith("-")]
        sources = load_catalog({ENV_PATH: os.environ.get(ENV_PATH, "")}).sources
        terms += [f"-{one}" for one, source in sources.items() if barred.intersection(source.patch.model_types)]
    if any(not term.startswith("-") and term.lower() != "all" for term in terms):
        terms.append(name)
    return ",".join(terms)


def _weight(findings: Iterable[Finding]) -> int:
    return sum(f.count for f in findings if f.severity is Severity.FAULT)


def _worse(before: Iterable[Finding], after: Iterable[Finding]) -> bool:
    """Does the patch bring a fault that was not there, or mend nothing?"""
    codes = {finding.code for finding in before}
    new = [f for f in after if f.severity is Severity.FAULT and f.code not in codes]
    return bool(new) or _weight(after) >= _weight(before)


def write_suggestion(
    zygote: Zygote,
    report: Report,
    target: Path,
    split: Split,
    findings: list[Finding],
    progress: Callable[..., None] | None = None,
) -> list[Finding]:
    """Write a patch to *target* and name it in the report; the findings that say why there is none."""
    found = Collector(stage="dry-run")
    if not any(finding.code in NAME_CODES for finding in findings):
        found.add("suggest-nothing", place=target.name)
        return found.findings()
    env = toggle_env()
    made = suggestion(zygote, str(report.path), split, report.installed, env, target.stem)
    if made.choices:
        for choice in made.choices:
            found.add("suggest-choice", place=target.name, choice=choice)
    elif not made.text:
        found.add("suggest-nothing", place=target.name)
    elif made.worse:
        found.add("suggest-worse", place=target.name, left=", ".join(sorted({f.code for f in made.left})))
    else:
        target.write_text(made.text, encoding="utf-8")
        left = [f for f in made.left if f.severity is Severity.FAULT]
        told = "the dry run is clean with it" if not left else f"{len(left)} findings remain with it"
        chosen = trial_env(env, target, made.types)
        wanted = [
            f"{ENV_PATH}={chosen[ENV_PATH]}",
            *([f"{ENV_MODELS}={chosen[ENV_MODELS]}"] if chosen[ENV_MODELS] else []),
        ]
        report.suggested = f"{target}: {told}; {' '.join(wanted)} vllm serve ... uses it"
    return found.findings()
