"""The command ``ascend-hotfix``: doctor, explain, list, probe, status and verify.

Each command imports what it needs when it runs, so that ``--help`` and the static stage need no vLLM. Commands
return an exit code; a mistake on the command line ends with one line and code 2.
"""

from __future__ import annotations

import argparse
import errno
import importlib
import io
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from ascend_hotfix import __version__

__all__ = ["build_parser", "main"]

COULD_NOT = 2
Command = Callable[[argparse.Namespace], int]


class UsageError(Exception):
    """Something the user can put right; the text says how."""


def _positive(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return number


def _choices(text: str) -> tuple[tuple[int, int], ...]:
    """``1.2,2.1`` as ((1, 2), (2, 1))."""
    found = [re.fullmatch(r"([1-9]\d*)\.(\d+)", part.strip()) for part in text.split(",")]
    chosen = [(int(one[1]), int(one[2])) for one in found if one is not None]
    if len(chosen) < len(found) or len(dict(chosen)) < len(chosen):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of choices such as 1.2,2.1, each answered once")
    return tuple(chosen)


def _locale_language() -> str:
    """``zh`` where the locale is Chinese, else ``en``."""
    locale = next((os.environ[name] for name in ("LC_ALL", "LC_MESSAGES", "LANG") if os.environ.get(name)), "")
    return "zh" if locale.lower().startswith("zh") else "en"


def _check_writable(target: Path) -> None:
    """Raises UsageError where the patch could not be written: better now than after the dry run."""
    folder = target.absolute().parent
    if not folder.is_dir():
        raise UsageError(f"--suggest {target}: the folder {folder} does not exist")
    if target.is_dir():
        raise UsageError(f"--suggest {target}: this is a folder; name a file in it, such as {target / 'patch.py'}")
    if not os.access(target if target.exists() else folder, os.W_OK):
        raise UsageError(f"--suggest {target}: no permission to write there; name a file elsewhere")
    if target.exists() and not _is_suggestion(target):
        raise UsageError(f"--suggest {target}: this file is there and was not written by the doctor; name another one")


def _is_suggestion(file: Path) -> bool:
    """Is *file* a patch that an earlier ``--suggest`` wrote, or empty? Anything else is somebody's work."""
    from ascend_hotfix.doctor.suggest.writer import WRITTEN_BY

    with file.open("rb") as opened:
        first = opened.readline(4096)
    return not first or f"{WRITTEN_BY}.".encode() in first


def _doctor(arguments: argparse.Namespace) -> int:
    from ascend_hotfix.catalog import installed_versions
    from ascend_hotfix.doctor.report import Options, ProgressBar, to_json_text, to_text
    from ascend_hotfix.doctor.run import diagnose

    if not arguments.model:
        raise UsageError("MODEL_DIR is empty; name the folder with config.json")
    suggest: Path | None = arguments.suggest
    if suggest is not None and arguments.static_only:
        raise UsageError("--suggest needs the dry run; leave out --static-only")
    if suggest is not None:
        _check_writable(suggest)
    if arguments.choose and suggest is None:
        raise UsageError("--choose says which rule --suggest FILE writes; give both")
    options = Options(
        arguments.static_only, arguments.tensor_parallel_size, arguments.enable_expert_parallel, arguments.choose
    )
    bar = ProgressBar(sys.stderr)
    try:
        report = diagnose(arguments.model, options, installed_versions(), suggest=suggest, progress=bar)
    finally:
        bar.close()
    if arguments.json:
        print(to_json_text(report))
    else:
        colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        print(to_text(report, colour=colour, language=arguments.language))
    return report.exit_code


def _delegate(module: str) -> Command:
    """A command that lives in a module of its own, as its ``command(arguments) -> exit code``."""

    def run(arguments: argparse.Namespace) -> int:
        try:
            found = importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name != module:
                raise
            raise UsageError(f"this build of ascend-hotfix has no {module}") from None
        return int(found.command(arguments))

    return run


def _add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL_DIR", help="folder with config.json and the *.safetensors files")
    parser.add_argument(
        "--tensor-parallel-size", "-tp", type=_positive, default=1, metavar="N", help="as vllm serve would be given it"
    )
    parser.add_argument("--enable-expert-parallel", action="store_true", help="as vllm serve would be given it")


def _add_language(parser: argparse.ArgumentParser) -> None:
    from ascend_hotfix.doctor.texts import LANGUAGES

    parser.add_argument(
        "--language",
        choices=LANGUAGES,
        default=_locale_language(),
        help="language of what is told of the checkpoint or server (default: zh in a Chinese locale, else en)",
    )


def build_parser() -> argparse.ArgumentParser:
    """The parser of the whole command."""
    from ascend_hotfix.probe.options import add_arguments as add_probe_arguments

    parser = argparse.ArgumentParser(
        prog="ascend-hotfix",
        description="Serve ModelSlim-quantized models right on the installed vLLM and vllm-ascend.",
    )
    parser.add_argument("--version", action="version", version=f"ascend-hotfix {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    doctor = commands.add_parser(
        "doctor",
        help="will the installed vLLM load this checkpoint right, and if not, what fixes it",
        description="Checks a checkpoint without an NPU and without reading weights: first the files, then a dry run "
        "on the meta device with the installed vLLM. Exit code: 0 right, 1 faults, 2 could not check.",
    )
    _add_model(doctor)
    doctor.add_argument("--static-only", action="store_true", help="the files only; needs no vLLM")
    doctor.add_argument("--json", action="store_true", help="print one JSON object (docs/doctor-json.md)")
    _add_language(doctor)
    doctor.add_argument("--suggest", type=Path, metavar="FILE", help="write a patch module that removes the findings")
    doctor.add_argument(
        "--choose",
        type=_choices,
        default=(),
        metavar="N.M,...",
        help="the alternatives to take where --suggest leaves a choice, as it numbers them: 1.2,2.1 (1.0: none)",
    )
    doctor.set_defaults(command=_doctor)

    explain = commands.add_parser(
        "explain",
        help="one name's way through checkpoint, description, modules and parameters",
        description="Shows where a tensor, module or parameter name goes, and which rule of which patch moved it.",
    )
    explain.add_argument("name", metavar="NAME", help="a tensor, module or parameter name")
    _add_model(explain)
    _add_language(explain)
    explain.set_defaults(command=_delegate("ascend_hotfix.doctor.explain"))

    listing = commands.add_parser(
        "list",
        help="the fixes that fit a model on the installed versions",
        description="One line for each fix that fits: its name, as ASCEND_HOTFIX_MODELS takes it, and what it mends.",
    )
    listing.add_argument(
        "model",
        nargs="?",
        metavar="MODEL_TYPE_OR_DIR",
        help="a model_type, a folder with config.json, or the name of a patch or fix; without it: any model",
    )
    listing.add_argument("--all", action="store_true", help="the other fixes too, and why each does not fit")
    listing.add_argument("--json", action="store_true", help="print one JSON object (docs/list-json.md)")
    listing.set_defaults(command=_delegate("ascend_hotfix.listing"))

    probe = commands.add_parser(
        "probe",
        help="is a running OpenAI-compatible server right",
        description="Asks a server for perplexities, greedy completions and a batch, and says whether its answers are right. "
        "Nothing is sent but requests to the named URL. Exit code: 0 right, 1 wrong, 2 something could not be checked.",
    )
    add_probe_arguments(probe)
    _add_language(probe)
    probe.set_defaults(command=_delegate("ascend_hotfix.probe.command"))

    status = commands.add_parser(
        "status",
        help="what would be armed here, or with --ledger, what is patched in each process of a server",
        description="What would be armed here: versions, toggles, patches. Exit code: 0, or 1 where there is a problem. "
        "With --ledger: 1 also where some processes of one server are patched and others are not, 2 without any ledger.",
    )
    status.add_argument("--ledger", metavar="DIR", help="the folder that ASCEND_HOTFIX_LEDGER names for a server")
    status.set_defaults(command=_delegate("ascend_hotfix.status"))

    verify = commands.add_parser("verify", help="check that every patch still finds its targets in the installed vLLM")
    verify.set_defaults(command=_delegate("ascend_hotfix.verify"))
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code (argparse itself exits with 2 on a wrong command line)."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a file name or Chinese text that the locale cannot show is no error
            stream.reconfigure(errors="backslashreplace")
    arguments = build_parser().parse_args(argv)
    command: Command = arguments.command
    try:
        code = command(arguments)
        sys.stdout.flush()
        return code
    except UsageError as error:
        print(f"ascend-hotfix: {error}", file=sys.stderr)
        return COULD_NOT
    except BrokenPipeError:
        # the reader (head, less) has gone; keep the interpreter from complaining when it flushes at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return COULD_NOT
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        print(f"ascend-hotfix: the output cannot be written: {error.strerror}", file=sys.stderr)
        return COULD_NOT
    except KeyboardInterrupt:
        print("ascend-hotfix: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
