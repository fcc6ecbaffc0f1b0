"""CANN for a process without an NPU: the libraries that are on this machine, and stand-ins for those that are not.

The real ``torch_npu`` needs CANN's libraries to be imported. Those that the loader finds are left to it, those below
``ASCEND_HOME_PATH`` and the like are loaded from there, and what is then still missing is compiled with the system's C
compiler, once for each torch_npu: functions that return 0 and do nothing. No kernel is ever launched through them.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ascend_hotfix.sim import stubs
from ascend_hotfix.sim.cache import entry
from ascend_hotfix.sim.stubs import StubError

__all__ = ["Plan", "StubError", "plan", "preload"]

HOMES = ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME", "ATB_HOME_PATH")
"""Variables that CANN's ``set_env.sh`` sets, each to a folder with libraries below it."""

_BELOW = (
    "lib64",
    "lib64/plugin/opskernel",
    "lib64/plugin/nnengine",
    "runtime/lib64",
    "compiler/lib64",
    "fwkacllib/lib64",
    "lib",
)

_TRIES = 8
_PLAN = "plan.json"
_TRIED = "ASCEND_HOTFIX_CANN_TRIED"
_loaded: list[ctypes.CDLL] = []


@dataclass(frozen=True)
class Plan:
    """What is loaded into a process before ``torch_npu``, in this order; ``stood_in`` are the stand-ins among it."""

    load: tuple[Path, ...]
    stood_in: tuple[str, ...]


def preload(package: Path, torch: Path) -> None:
    """Load what the torch_npu in ``package`` misses, globally, so that the loader finds it by name.

    ``torch`` is the package of torch. :class:`StubError` where something cannot be stood in for.
    """
    if _loaded:
        return
    trial = os.environ.get(_TRIED)
    held = _read_plan(Path(trial)) if trial else plan(package, torch)
    for path in held.load:
        try:
            _loaded.append(ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL))
        except OSError as error:
            raise StubError(f"CANN's library {path} cannot be loaded: {error}") from error
    _settle_variables()


def _settle_variables() -> None:
    """torch_npu refuses ``ASCEND_HOME_PATH`` without an ``ASCEND_OPP_PATH`` that exists; ``set_env.sh`` sets both.

    Where the folder of operators is not there the first is taken out of this process; the libraries have been found.
    """
    home, operators = os.environ.get(HOMES[0]), os.environ.get("ASCEND_OPP_PATH")
    if home is None or (operators and os.path.isdir(operators) and os.path.isdir(home)):
        return
    if not operators and os.path.isdir(os.path.join(home, "opp")):
        os.environ["ASCEND_OPP_PATH"] = os.path.join(home, "opp")
    else:
        del os.environ[HOMES[0]]


def plan(package: Path, torch: Path) -> Plan:
    """The :class:`Plan` for the torch_npu in ``package``; its stand-ins are compiled when they are first needed."""
    search = _Search(package, torch)
    held = stubs.closure(search.roots, search.find)
    state = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in held.files]
    digest = hashlib.sha256(repr((state, held.absent, search.key)).encode()).hexdigest()[:12]
    try:
        directory = entry(f"cann-{digest}", lambda target: _fill(target, search, held))
    except OSError as error:
        raise StubError(
            f"the stand-ins for CANN cannot be kept: {error}; set XDG_CACHE_HOME to a folder to write to"
        ) from error
    return _read_plan(directory)


class _Search:
    """Where the libraries of one installation are looked for."""

    def __init__(self, package: Path, torch: Path) -> None:
        self.package, self.torch = package, torch
        self.roots = [*sorted((package / "lib").glob("*.so")), *sorted(package.glob("_C*.so"))]
        named = [Path(text) for text in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep) if text]
        self.homes = [Path(os.environ[name], below) for name in HOMES if os.environ.get(name) for below in _BELOW]
        self.find = stubs.finder([torch / "lib", package / "lib", package, *named, *self.homes])
        self.key = (
            stubs.VERSION,
            os.uname().machine,
            sys.version_info[:2],
            [str(path) for path in [*named, *self.homes]],
        )

    def by_hand(self, files: Iterable[Path]) -> list[Path]:
        """Of ``files``, those that the loader does not find by itself."""
        return [path for path in files if path.parent in self.homes]


def _fill(target: Path, search: _Search, held: stubs.Closure) -> None:
    """Compile what is missing, and try; the loader knows what is opened by name while torch_npu is imported."""
    libraries = stubs.missing(held)
    opened: list[Path] = []
    for _ in range(_TRIES):
        stubs.build(target, libraries)
        _write_plan(target, libraries, search.by_hand([*held.files, *opened]))
        failure = _try(target)
        if not failure:
            return
        name = _OPENED.search(failure)
        symbol = _UNDEFINED.search(failure)
        if name and name[1] not in libraries:
            found = search.find(name[1], search.roots[0])
            if found is None:
                libraries[name[1]] = {}
            else:
                more = stubs.closure([found], search.find)
                opened += more.files
                libraries |= {one: {} for one in more.absent if one not in libraries}
        elif symbol and not any(symbol[1] in symbols for symbols in libraries.values()):
            libraries.setdefault(next(iter(libraries), stubs.EXTRA), {})[symbol[1]] = ""
        else:
            break
    raise StubError(f"torch_npu cannot be imported with stand-ins for what is missing of CANN: {failure}")


_OPENED = re.compile(r"(lib[\w.+-]+\.so[\w.]*): cannot open shared object file")
_UNDEFINED = re.compile(r"undefined symbol: (\w+)")


def _try(target: Path) -> str:
    """Import torch_npu in a process of its own; what it says when it fails."""
    root = str(Path(__file__).resolve().parents[3])
    code = f"import sys; sys.path.append({root!r}); from ascend_hotfix.sim import cann; cann.trial()"
    command = [sys.executable, "-c", code]
    environment = {**os.environ, _TRIED: str(target), "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "ASCEND_HOTFIX_SIM": "0"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode == 0:
        return ""
    return _said(done.stdout) or f"the process ended with {done.returncode}: {_last_words(done.stderr)}"


def _last_words(text: str) -> str:
    """What C++ says before it ends a process, or the end of it all."""
    lines = text.strip().splitlines()
    return next((line.strip() for line in lines if "what():" in line), " ".join(lines[-3:]))[:400]


_SAYS = "ascend-hotfix trial: "


def _said(output: str) -> str:
    return next((line.removeprefix(_SAYS) for line in output.splitlines() if line.startswith(_SAYS)), "")


def trial() -> None:
    """In a process of its own: import torch_npu after the libraries of the plan, and say what fails."""
    import importlib

    preload(Path(), Path())
    try:
        importlib.import_module("torch")
        importlib.import_module("torch_npu")
    except BaseException as error:
        print(f"\n{_SAYS}{type(error).__name__}: {' '.join(str(error).split())}", flush=True)
        os._exit(1)
    os._exit(0)  # nothing of torch_npu runs when the process ends


def _write_plan(target: Path, libraries: Iterable[str], found: Sequence[Path]) -> None:
    names = sorted(libraries)
    load = [*names, *map(str, dict.fromkeys(found))]
    (target / _PLAN).write_text(json.dumps({"load": load, "stood_in": names}), encoding="utf-8")


def _read_plan(directory: Path) -> Plan:
    held = json.loads((directory / _PLAN).read_text(encoding="utf-8"))
    return Plan(tuple(directory / path for path in held["load"]), tuple(held["stood_in"]))
