"""``ascend-hotfix list``: which fixes fit a model on the installed versions, and why the others do not."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ascend_hotfix import __version__
from ascend_hotfix.catalog import (
    ENV_MODELS,
    Catalog,
    Source,
    covers,
    installed_versions,
    load_catalog,
    of_class,
    out_of_range,
)
from ascend_hotfix.doctor.checkpoint import model_types
from ascend_hotfix.records import Fix
from ascend_hotfix.words import counted

__all__ = ["Asked", "Row", "command", "lines", "rows", "what_is_asked"]

SCHEMA = "ascend-hotfix-list"
SCHEMA_VERSION = 1
SHOWN = ("vllm", "vllm-ascend")
LONGEST = 300  # characters of what the user or a file says
NARROWEST = 30  # of what a fix mends, where the terminal is narrow


class NoModel(Exception):
    """What was given is no model of which anything can be said; the text says why and what to give."""


@dataclass(frozen=True)
class Asked:
    """What the user wants to know of: a model, or a patch or fix by its name.

    *types* and *classes* are a model's, as config.json has them. *name* is that of a patch or ``patch.fix``, of which
    alone is told then. With neither, it is every model.
    """

    label: str = "every model"
    types: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    name: str = ""


@dataclass(frozen=True)
class Row:
    """A fix, and why it does not fit; an empty *reason* where it does."""

    source: Source
    fix: Fix
    reason: str

    @property
    def name(self) -> str:
        """``patch.fix-id``, as ASCEND_HOTFIX_MODELS takes it."""
        return f"{self.source.patch.name}.{self.fix.id}"


def what_is_asked(given: str | None, catalog: Catalog) -> Asked:
    """What *given*, from the command line, names: a model_type, a folder with config.json, a patch or a fix.

    Raises NoModel for a folder that cannot be read. A model_type that no patch knows is one all the same.
    """
    if not given:
        return Asked()
    if given in catalog.model_types():
        return Asked(given, (given,))
    if given in catalog.known_names():
        return Asked(given, name=given)
    if os.path.isdir(given) or os.sep in given:
        config = _config(Path(given))
        classes = config.get("architectures")
        types = model_types(config)
        if not types:
            raise NoModel(f"{_shown(Path(given) / 'config.json')}: has no model_type; give the model_type itself")
        named = tuple(one for one in classes if isinstance(one, str)) if isinstance(classes, list) else ()
        return Asked(_shown(f"{given} ({', '.join(types)})"), types, named)
    return Asked(_shown(given), (given,))


def _shown(text: object) -> str:
    """A path, or what a file says, as it can be printed: with control characters in quotes, and no longer than a line."""
    plain = textwrap.shorten(str(text), LONGEST, placeholder=" ...") if len(str(text)) > LONGEST else str(text)
    return plain if plain.isprintable() else repr(plain)


def _config(folder: Path) -> Mapping[str, Any]:
    file = folder / "config.json"
    try:
        if not folder.is_dir():
            raise NoModel(
                f"{_shown(folder)}: is not a directory; give a folder with config.json, a model_type or a patch"
            )
        if file.exists() and not file.is_file():
            raise NoModel(f"{_shown(file)}: is not a file; give a folder with config.json, or a model_type")
        content = json.loads(file.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise NoModel(
            f"{_shown(file)}: cannot be read: {error.strerror or error}; give a folder with config.json, or a model_type"
        ) from None
    except (ValueError, RecursionError) as error:
        raise NoModel(f"{_shown(file)}: is not JSON: {error}; give the model_type itself") from None
    if not isinstance(content, dict):
        raise NoModel(f"{_shown(file)}: must hold an object, not {type(content).__name__}; give the model_type itself")
    return content


def rows(catalog: Catalog, asked: Asked, versions: Mapping[str, str]) -> list[Row]:
    """All fixes, or those of the patch or fix that is asked for, in the order in which they are used."""
    wanted = {selection.name for selection in catalog.wanted()}
    found = []
    for patch, source in catalog.sources.items():
        for fix in source.patch.fixes:
            name = f"{patch}.{fix.id}"
            if asked.name in ("", patch, name):
                off = "" if name in wanted else f"switched off by {ENV_MODELS}"
                found.append(Row(source, fix, _other_model(fix, asked) or out_of_range(fix, versions) or off))
    return found


def _other_model(fix: Fix, asked: Asked) -> str:
    """For which models *fix* is, where the one that is asked for is not among them."""
    if asked.types and not covers(fix, asked.types):
        return f"is for {', '.join(fix.model_types)}"
    return "" if of_class(fix, asked.classes) else f"is for the class {', '.join(fix.architectures)}"


def lines(
    found: list[Row], asked: Asked, versions: Mapping[str, str], *, everything: bool, width: int
) -> Iterator[str]:
    """The report. Without *everything*: a line for each fix that fits, at most *width* columns."""
    fitting = [row for row in found if not row.reason]
    others = sorted((row for row in found if row.reason), key=lambda row: bool(_other_model(row.fix, asked)))
    have = ", ".join(f"{name} {versions.get(name, 'not installed')}" for name in SHOWN)
    yield f"{asked.label} with {have}: {len(fitting)} of {counted(len(found), 'fix', 'fixes')} fit"
    if missing := [name for name in SHOWN if name not in versions]:
        yield f"without {' and '.join(missing)} no fix that names its versions fits; run this in the environment that serves"
    column = max((len(row.name) for row in (found if everything else fitting)), default=0)
    for row in fitting:
        room = max(width - column - 4, NARROWEST)
        what = row.fix.why if everything else textwrap.shorten(row.fix.why, room, placeholder=" ...")
        yield f"  {row.name:{column}}  {what}"
    if others and everything:
        yield "not used here:"
        yield from (f"  {row.name:{column}}  {row.reason}" for row in others)
    elif others:
        yield f"{counted(len(others), 'fix does', 'fixes do')} not fit; --all says why"


def to_json(found: list[Row], asked: Asked, versions: Mapping[str, str], problems: list[str]) -> dict[str, Any]:
    """What ``--json`` prints, see docs/list-json.md."""
    return {
        "schema": SCHEMA,
        "version": SCHEMA_VERSION,
        "tool_version": __version__,
        "model_types": list(asked.types),
        "architectures": list(asked.classes),
        "installed": dict(versions),
        "fixes": [
            {
                "name": row.name,
                "patch": row.source.patch.name,
                "fix": row.fix.id,
                "fits": not row.reason,
                "reason": row.reason,
                "why": row.fix.why,
                "model_types": list(row.fix.model_types),
                "architectures": list(row.fix.architectures),
                "versions": dict(row.fix.versions),
                "refs": list(row.fix.refs),
                "retire": row.fix.retire,
                "from": row.source.kind,
                "file": row.source.origin,
            }
            for row in found
        ],
        "problems": problems,
    }


def command(arguments: argparse.Namespace) -> int:
    """``ascend-hotfix list``: 0, or 1 where a patch cannot be read, or 2 where the folder cannot."""
    catalog, versions = load_catalog(), installed_versions()
    try:
        asked = what_is_asked(arguments.model, catalog)
    except NoModel as error:
        print(f"ascend-hotfix: {error}", file=sys.stderr)
        return 2
    found = rows(catalog, asked, versions)
    problems = [*catalog.problems, *catalog.unknown_terms()]
    if arguments.json:
        told = found if arguments.all else [row for row in found if not row.reason]
        print(json.dumps(to_json(told, asked, versions, problems), indent=2, ensure_ascii=False))
    else:
        width = shutil.get_terminal_size((120, 24)).columns
        print("\n".join(lines(found, asked, versions, everything=arguments.all, width=width)))
    if asked.types and not catalog.model_types().intersection(asked.types):
        given = asked.types[0]
        print(f"no patch is for {_shown(given)!r} alone{catalog.meant(given[:LONGEST])}", file=sys.stderr)
    for note in catalog.notes:
        print(f"note: {note}", file=sys.stderr)
    for problem in problems:
        print(f"problem: {problem}", file=sys.stderr)
    return 1 if catalog.problems else 0
