"""Stand-ins for shared libraries that are not on this machine: which are missing, with which symbols, and compiled ones.

A stand-in has the symbols that the libraries at hand ask for and no library at hand has, under the versions they ask
for. Its functions do nothing and return one number; its data is zeros.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import struct
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from ascend_hotfix.sim import elf

__all__ = [
    "EXTRA",
    "Closure",
    "NoCompiler",
    "StubError",
    "build",
    "cached_libraries",
    "closure",
    "compiler",
    "finder",
    "missing",
    "source",
]

Find = Callable[[str, Path], Path | None]
"""From a library's SONAME and the file that needs it to the file the loader would take."""

VERSION = 1
"""Of what is compiled; a new one makes old stand-ins be compiled anew."""

EXTRA = "libascend_hotfix_standin.so"
"""Carries the symbols that no library at hand has where no library is missing."""

DATA_BYTES = 4096
"""Of a stand-in for data, whose size is not known where it is only asked for."""


class StubError(RuntimeError):
    """A library could not be stood in for; the message says which and why."""


class NoCompiler(StubError):
    """There is no C compiler."""


@dataclass(frozen=True)
class Closure:
    """``files`` that the loader takes, each after those that it needs, and the names for which it has none."""

    files: tuple[Path, ...]
    absent: tuple[str, ...]


# --- what is missing --------------------------------------------------------------------------------------------------


def closure(roots: Sequence[Path], find: Find) -> Closure:
    """What is loaded with ``roots``. :class:`StubError` where a file cannot be read."""
    done: dict[str, bool] = {}
    order: list[Path] = []

    def visit(path: Path) -> None:
        one = _read(path, elf.read)
        done[one.soname] = done[path.name] = True
        for name in one.needed:
            if name in done:
                continue
            file = find(name, path)
            done[name] = file is not None
            if file is not None:
                visit(file)
        order.append(path)

    for root in roots:
        if root.name not in done:
            visit(root)
    return Closure(tuple(order), tuple(name for name, there in done.items() if not there))


def missing(held: Closure) -> dict[str, dict[str, str]]:
    """The libraries to stand in for, each to its symbols and their versions.

    A symbol that this process has (libc, libpython) is not missing. Where no library is absent, :data:`EXTRA` has what
    no file defines.
    """
    libraries: dict[str, dict[str, str]] = {name: {} for name in held.absent}
    tables = {path: _read(path, elf.symbols) for path in held.files}
    known = {symbol.name for table in tables.values() for symbol in table if symbol.defined}
    process = ctypes.CDLL(None)
    for path, table in tables.items():
        needed = [name for name in _read(path, elf.read).needed if name in libraries]
        for symbol in table:
            if symbol.defined or symbol.weak or symbol.name in known:
                continue
            if symbol.library:  # of a library that is there in another version only the loader can say more
                if symbol.library in libraries:
                    libraries[symbol.library][symbol.name] = symbol.version
            elif not _has(process, symbol.name):
                owner = next(iter([*needed, *held.absent]), EXTRA)
                libraries.setdefault(owner, {}).setdefault(symbol.name, "")
    return libraries


_Read = TypeVar("_Read")


def _read(path: Path, how: Callable[[Path], _Read]) -> _Read:
    try:
        return how(path)
    except (OSError, elf.NotElf) as error:
        raise StubError(f"{path} cannot be read: {error}") from error


def _has(process: ctypes.CDLL, name: str) -> bool:
    try:
        getattr(process, name)
    except AttributeError:
        return False
    return True


def finder(directories: Iterable[Path]) -> Find:
    """Finds a library beside the file that needs it, in ``directories``, in the loader's cache and its own folders."""
    places = [*directories]
    cached = cached_libraries()

    def find(name: str, needed_by: Path) -> Path | None:
        candidates = [directory / name for directory in (needed_by.parent, *places)]
        candidates += [cached[name]] if name in cached else []
        candidates += [folder / name for folder in _SYSTEM]
        return next((path for path in candidates if _fits_machine(path)), None)

    return find


_SYSTEM = tuple(
    Path(root, folder) for folder in ("lib64", f"lib/{os.uname().machine}-linux-gnu", "lib") for root in ("/", "/usr")
)
_CACHE = Path("/etc/ld.so.cache")
_CACHE_MAGIC = b"glibc-ld.so.cache1.1"


def cached_libraries(cache: Path = _CACHE) -> dict[str, Path]:
    """SONAME to file of the loader's cache (what ``ldconfig`` wrote); empty where there is none that can be read."""
    try:
        data = cache.read_bytes()
    except OSError:
        return {}
    start = data.find(_CACHE_MAGIC)
    if start < 0:
        return {}
    found: dict[str, Path] = {}
    (count,) = struct.unpack_from("<I", data, start + len(_CACHE_MAGIC))
    for index in range(count):
        _, key, value, _, _ = struct.unpack_from("<iIIIQ", data, start + 48 + 24 * index)
        name, path = (data[start + at : data.find(b"\0", start + at)].decode() for at in (key, value))
        found.setdefault(name, Path(path))
    return found


def _fits_machine(path: Path) -> bool:
    try:
        machine = elf.read(path).machine
    except (OSError, elf.NotElf):
        return False
    return machine == elf.MACHINES.get(os.uname().machine, machine)


# --- the stand-ins ----------------------------------------------------------------------------------------------------

_MANGLED_DATA = re.compile(r"_ZT[VIST]|_ZGV")
_NESTED_NAME = re.compile(r"_ZN[KVRO]*(.*)")


def _is_data(name: str) -> bool:
    """Whether a name is that of data, as far as the mangling tells: tables, type information, a name without arguments."""
    if _MANGLED_DATA.match(name):
        return True
    nested = _NESTED_NAME.match(name)
    if nested:
        return name.endswith("E") and not re.search(r"E[a-zA-Z]", nested.group(1))
    return re.fullmatch(r"_Z\d+\w+", name) is not None and _ends_with_its_name(name)


def _ends_with_its_name(name: str) -> bool:
    length = re.match(r"_Z(\d+)", name)
    return length is not None and len(name) == length.end() + int(length.group(1))


def source(symbols: Iterable[str], returned: int = 0) -> str:
    """C source in which each function returns ``returned``; the arguments are left to the caller, as the C ABI allows."""
    lines = []
    for index, name in enumerate(sorted(symbols)):
        if _is_data(name):
            lines.append(f'char d{index}[{DATA_BYTES}] __asm__("{name}") __attribute__((aligned(16))) = {{0}};')
        else:
            lines.append(f'long f{index}(void) __asm__("{name}"); long f{index}(void) {{ return {returned}; }}')
    return "\n".join(lines) + "\n"


def _version_script(symbols: Mapping[str, str]) -> str:
    by_version: dict[str, list[str]] = {}
    for name, version in symbols.items():
        by_version.setdefault(version, []).append(name)
    nodes = [
        f"{version} {{ global: {' '.join(f'{name};' for name in sorted(names))} }};"
        for version, names in sorted(by_version.items())
        if version
    ]
    return "\n".join(nodes)


def compiler() -> str:
    """The C compiler: ``$CC``, cc, gcc or clang. :class:`NoCompiler` without one."""
    candidates = [name for name in (os.environ.get("CC"), "cc", "gcc", "clang") if name]
    for name in candidates:
        path = shutil.which(name)
        if path:
            return path
    raise NoCompiler(f"no C compiler found (tried {', '.join(candidates)}); install gcc or clang, or set CC")


def build(directory: Path, libraries: Mapping[str, Mapping[str, str]], returned: int = 0) -> None:
    """Compile a stand-in for each of ``libraries`` (SONAME to symbols and their versions) into ``directory``."""
    program = compiler() if libraries else ""
    for soname, symbols in libraries.items():
        script = _version_script(symbols)
        extra = []
        if script:
            file = directory / f"{soname}.map"
            file.write_text(script + "\n")
            extra = [f"-Wl,--version-script={file}"]
        done = subprocess.run(
            [
                program,
                "-shared",
                "-fPIC",
                "-w",
                *extra,
                f"-Wl,-soname,{soname}",
                "-x",
                "c",
                "-",
                "-o",
                str(directory / soname),
            ],
            input=source(symbols, returned),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise StubError(f"{program} could not build the stand-in for {soname}: {done.stderr.strip()}")
        (directory / f"{soname}.map").unlink(missing_ok=True)
