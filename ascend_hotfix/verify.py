"""``ascend-hotfix verify``: which patches the installed upstream needs, has made needless, or has moved away from.

It reads upstream's source files and imports neither vLLM nor vllm-ascend, so it runs in a second and on any machine.
Exit code 0: every needed fix finds its place; 1: one does not, or a patch cannot be read; 2: no upstream here.
"""

from __future__ import annotations

import argparse
import ast
import functools
import importlib.util
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ascend_hotfix.catalog import Catalog, installed_versions, load_catalog, out_of_range
from ascend_hotfix.records import Fix
from ascend_hotfix.versions import fits, parse

__all__ = ["RELEASES", "Verdict", "command", "needless", "verdicts"]

RELEASES = (
    ("0.11.0", "0.11.0"),
    ("0.12.0rc1", "0.12.0"),
    ("0.13.0rc1", "0.13.0"),
    ("0.13.0", "0.13.0"),
    ("0.14.0rc1", "0.14.1"),
    ("0.15.0rc1", "0.15.0"),
    ("0.16.0rc1", "0.16.0"),
    ("0.17.0rc1", "0.17.0"),
    ("0.18.0rc1", "0.18.0"),
    ("0.18.0", "0.18.0"),
    ("0.19.1rc1", "0.19.1"),
    ("0.20.2rc1", "0.20.2"),
    ("0.21.0rc1", "0.21.0"),
    ("0.22.1rc1", "0.22.1"),
    ("0.23.0", "0.23.0"),
    ("0.24.0rc1", "0.24.0"),
    ("0.25.1rc1", "0.25.1"),
    ("0.26.0rc1", "0.26.0"),
    ("0.30.0rc2", "0.30.0"),
)
"""Supported releases of vllm-ascend, each with the vLLM it belongs to."""

BUILDER = ("vllm", "model_executor/model_loader/utils.py", ("initialize_model",))
CONFIG_FILES = (
    "quantization/configs/modelslim_config.py",
    "quantization/modelslim_config.py",
    "quantization/quant_config.py",
)
CONFIG_CLASSES = ("AscendModelSlimConfig", "AscendQuantConfig")
TABLES = ("packed_modules_model_mapping", "UPDATED_PACKED_MODULES_MAPPING")
LOOKUP_FIELDS = ("lookup", "packed", "types")


@dataclass(frozen=True)
class Verdict:
    """What the installed upstream means for one fix: *state* is ``needed``, ``already fixed``, ``not yet``, ``other
    release`` or ``drifted``.
    """

    name: str
    state: str
    note: str = ""


def verdicts(catalog: Catalog, versions: Mapping[str, str], roots: Mapping[str, Path]) -> Iterator[Verdict]:
    """One verdict for each fix. *roots*: the folders of the packages ``vllm`` and ``vllm_ascend`` that are there."""
    for name, source in sorted(catalog.sources.items()):
        for fix in source.patch.fixes:
            yield _verdict(f"{name}.{fix.id}", fix, versions, roots)


def _verdict(name: str, fix: Fix, versions: Mapping[str, str], roots: Mapping[str, Path]) -> Verdict:
    reason = out_of_range(fix, versions)
    if reason:
        return Verdict(name, _side(fix, versions), f"{reason}. {fix.retire}" if fix.retire else reason)
    missing = _missing(fix, roots)
    if missing:
        return Verdict(name, "drifted", f"{missing} is not where it was; report it")
    if _has_rows(fix, roots):
        return Verdict(name, "already fixed", "upstream's packed rows have every entry of it")
    return Verdict(name, "needed", fix.why)


def _side(fix: Fix, versions: Mapping[str, str]) -> str:
    """On which side of the fix's range the installed versions are."""
    for name, spec in fix.versions.items():
        have = parse(versions.get(name, ""))
        if have is None or fits(versions[name], spec):
            continue
        lower = [parse(part.strip()[2:]) for part in spec.split(",") if part.strip().startswith(">=")]
        if any(bound is not None and have < bound for bound in lower):
            return "not yet"
        return "already fixed"
    return "other release"


def _missing(fix: Fix, roots: Mapping[str, Path]) -> str:
    """The place that *fix* needs and that is not there, or an empty string."""
    package, file, names = BUILDER
    if package in roots and not _defines(roots[package] / file, names):
        return f"{package}/{file}: {names[0]}"
    if (
        fix.build
        and "vllm" in roots
        and not _defines(roots["vllm"] / "model_executor/models/utils.py", ("maybe_prefix",))
    ):
        return "vllm/model_executor/models/utils.py: maybe_prefix"
    asks = any(getattr(fix, field) for field in LOOKUP_FIELDS)
    if asks and "vllm_ascend" in roots:
        files = [roots["vllm_ascend"] / one for one in CONFIG_FILES]
        if not any(_defines(one, CONFIG_CLASSES) for one in files):
            return f"vllm_ascend/quantization: {CONFIG_CLASSES[0]}"
    return ""


def _has_rows(fix: Fix, roots: Mapping[str, Path]) -> bool:
    """Has upstream's packed table all that *fix* adds, where the fix adds nothing but rows?"""
    others = [name for name in ("lookup", "types", "weights", "params", "build", "drop", "fill") if getattr(fix, name)]
    if not fix.packed or others or "vllm_ascend" not in roots or "*" in fix.model_types:
        return False
    rows = _rows(roots["vllm_ascend"])
    wanted = {record.fused for record in fix.packed}
    return all(wanted <= set(rows.get(kind, ())) for kind in fix.model_types)


@functools.cache
def _tree(file: Path) -> ast.Module | None:
    try:
        return ast.parse(file.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return None


def _defines(file: Path, names: Iterable[str]) -> bool:
    """Does *file* define a function or class of one of *names* at its top level?"""
    tree = _tree(file)
    kinds = (ast.FunctionDef, ast.ClassDef)
    return tree is not None and any(isinstance(node, kinds) and node.name in names for node in tree.body)


def _rows(root: Path) -> dict[str, tuple[str, ...]]:
    """model_type -> fused names of its row, as far as upstream's table is a literal."""
    rows: dict[str, tuple[str, ...]] = {}
    for tree in filter(None, (_tree(root / file) for file in CONFIG_FILES)):
        for node in tree.body:
            target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
            if isinstance(node, ast.Assign | ast.AnnAssign) and getattr(target, "id", "") in TABLES:
                table = node.value
                for key, row in zip(table.keys, table.values, strict=True) if isinstance(table, ast.Dict) else ():
                    if isinstance(key, ast.Constant) and isinstance(row, ast.Dict):
                        names = [one.value for one in row.keys if isinstance(one, ast.Constant)]
                        rows[str(key.value)] = tuple(str(one) for one in names)
    return rows


def needless(catalog: Catalog) -> list[str]:
    """The fixes that no release of :data:`RELEASES` needs."""
    found = []
    for name, source in sorted(catalog.sources.items()):
        for fix in source.patch.fixes:
            asked = {package: spec for package, spec in fix.versions.items() if package in ("vllm", "vllm-ascend")}
            wanted = any(
                all(fits({"vllm-ascend": ascend, "vllm": vllm}[package], spec) for package, spec in asked.items())
                for ascend, vllm in RELEASES
            )
            found += [] if wanted else [f"{name}.{fix.id}"]
    return found


def _roots() -> dict[str, Path]:
    found = {}
    for package in ("vllm", "vllm_ascend"):
        spec = importlib.util.find_spec(package)
        if spec is not None and spec.submodule_search_locations:
            found[package] = Path(next(iter(spec.submodule_search_locations)))
    return found


def command(arguments: argparse.Namespace) -> int:
    """The command. Its exit codes are in the module's first lines."""
    catalog = load_catalog({})
    versions, roots = installed_versions(), _roots()
    for problem in catalog.problems:
        print(f"problem: {problem}", file=sys.stderr)
    idle = needless(catalog)
    if not roots:
        print(
            "ascend-hotfix: neither vllm nor vllm_ascend is installed here; run verify where vllm runs", file=sys.stderr
        )
        _print_needless(idle)
        return 2
    print(
        "installed: " + ", ".join(f"{name} {versions.get(name, 'not installed')}" for name in ("vllm", "vllm-ascend"))
    )
    every = list(verdicts(catalog, versions, roots))
    for state in ("drifted", "needed", "already fixed", "not yet", "other release"):
        of_state = [one for one in every if one.state == state]
        print(f"{state}: {len(of_state)}")
        for one in of_state:
            print(f"  {one.name}: {one.note}")
    _print_needless(idle)
    return 1 if catalog.problems or any(one.state == "drifted" for one in every) else 0


def _print_needless(names: list[str]) -> None:
    print(f"needed by no supported release: {len(names)}")
    for name in names:
        print(f"  {name}")
