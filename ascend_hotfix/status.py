"""``ascend-hotfix status``: would a server that starts here be armed, with what, and what is wrong?

With ``--ledger DIR``: what is patched in the servers whose processes have written their ledgers there.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Iterator, Mapping

from ascend_hotfix import __version__, servers, toggles
from ascend_hotfix.catalog import (
    ENV_MODELS,
    Catalog,
    installed_versions,
    load_catalog,
    out_of_range,
    version_notes,
)
from ascend_hotfix.words import counted

__all__ = ["command", "lines"]

SHOWN = ("vllm", "vllm-ascend", "transformers", "torch")


def is_armed() -> bool:
    """Has the ``.pth`` line of this environment put our finder in place?"""
    return any(type(finder).__module__ == "ascend_hotfix.finder" for finder in sys.meta_path)


def lines(catalog: Catalog, versions: Mapping[str, str], *, armed: bool) -> Iterator[str]:
    """The report; problems come last and start with ``problem:``, each of their mistakes on a line of its own."""
    yield f"ascend-hotfix {__version__} on Python {sys.version.split()[0]}"
    yield "installed: " + ", ".join(f"{name} {versions.get(name, 'not installed')}" for name in SHOWN)
    for name in toggles.ALL:
        if name in os.environ:
            yield f"{name}={os.environ[name]}"
    if catalog.off:
        yield f"switched off by {ENV_MODELS}={catalog.toggle}: vLLM runs as upstream wrote it"
        return
    yield "armed: this environment arms every interpreter" if armed else "armed: NO, see the problem below"
    wanted = catalog.wanted()
    fitting = [one for one in wanted if not out_of_range(one.fix, versions)]
    fixes = sum(len(source.patch.fixes) for source in catalog.sources.values())
    yield (
        f"{counted(len(catalog.sources), 'patch', 'patches')} with {counted(fixes, 'fix', 'fixes')}: "
        f"{len(wanted)} wanted, {len(fitting)} of these for the installed versions"
    )
    for one in fitting:
        yield f"  {one.name}  ({', '.join(one.fix.model_types)})"
    yield from (f"note: {note}" for note in [*catalog.notes, *version_notes(versions)])
    yield from (f"problem: {problem}" for problem in [*catalog.problems, *catalog.unknown_terms()])
    if not armed:
        yield (
            "problem: the .pth file of ascend-hotfix did not run in this interpreter: it is not read under -S, nor from "
            "PYTHONPATH or --target folders; install with pip into the environment that runs vllm"
        )


def command(arguments: argparse.Namespace) -> int:
    """Prints the report. Exit code 1 where there is a problem, 2 for a folder of ledgers that holds none."""
    folder: str | None = getattr(arguments, "ledger", None)
    if folder is not None:
        return _of_servers(folder)
    return _print(lines(load_catalog(), installed_versions(), armed=is_armed()))


def _of_servers(folder: str) -> int:
    try:
        processes, problems = servers.read(folder)
    except OSError as error:
        print(
            f"ascend-hotfix: --ledger {folder}: {error.strerror or error}; expected a folder of ledgers",
            file=sys.stderr,
        )
        return 2
    if not processes and not problems:
        print(
            f"ascend-hotfix: --ledger {folder}: no ledger is there. A process writes one when it has loaded a model, if "
            f"{toggles.LEDGER} names this folder",
            file=sys.stderr,
        )
        return 2
    return _print(servers.lines(processes, problems))


def _print(report: Iterable[str]) -> int:
    """Prints each line, what cannot be printed escaped; 1 where one of them is a problem."""
    wrong = False
    for line in report:
        wrong = wrong or line.startswith("problem:")
        print("".join(one if one.isprintable() or one == "\n" else repr(one)[1:-1] for one in line))
    return int(wrong)
