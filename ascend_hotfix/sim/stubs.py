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
from dataclasses import dataclass, field
from pathlib import Path

from ascend_hotfix.sim import elf

__all__ = ["Missing", "NoCompiler", "StubError", "build", "cached_libraries", "finder", "missing", "source"]

Find = Callable[[str, Path], Path | None]
"""From a library's SONAME and the file that needs it to the file the loader would take."""

EXTRA = "libascend_hotfix_standin.so"
"""Carries the symbols that no library at hand has where no library is missing."""

DATA_BYTES = 4096
"""Of a stand-in for data, whose size is not known where it is only asked for."""


class StubError(RuntimeError):
    """A library could not be stood in for; the message says which and why."""


class NoCompiler(StubError):
    """There is no C compiler."""


@dataclass
class Missing:
    """Libraries to stand in for, each to its symbols and their versions, and what is ``found``, in loading order."""

    libraries: dict[str, dict[str, str]] = field(default_factory=dict)
    found: list[Path] = field(default_factory=list)


# --- what is missing --------------------------------------------------------------------------------------------------


def missing(roots: Sequence[Path], find: Find, *, expected: Iterable[str] = ()) -> Missing:
    """What the loader would miss when it loads ``roots`` and all that they need, and ``expected`` by name.

    Symbols that this process has (libc, libpython) are not missing. :class:`StubError` where a file cannot be read.
    """
    objects, absent = _closure(roots, find)
    result = Missing(dict.fromkeys(absent), [one.path for one in objects])  # type: ignore[arg-type]
    for name in expected:
        if name not in absent and find(name, roots[0]) is None:
            result.libraries[name] = {}
    result.libraries = {name: {} for name in result.libraries}
    known = {symbol.name for one in objects for symbol in one.symbols if symbol.defined}
    process = ctypes.CDLL(None)
    for one in objects:
        for symbol in one.undefined:
            if symbol.name in known or (not symbol.library and _has(process, symbol.name)):
                continue
            if symbol.library and symbol.library not in result.libraries:
                continue  # of a library that is there, in a version it lacks: only the loader can say more
            owner = symbol.library or _owner(one, result.libraries)
            result.libraries.setdefault(owner, {}).setdefault(symbol.name, symbol.version)
    return result


def _owner(one: elf.SharedObject, libraries: Mapping[str, object]) -> str:
    needed = [name for name in one.needed if name in libraries]
    return next(iter([*needed, *libraries]), EXTRA)


def _has(process: ctypes.CDLL, name: str) -> bool:
    try:
        getattr(process, name)
    except AttributeError:
        return False
    return True


def _closure(roots: Sequence[Path], find: Find) -> tuple[list[elf.SharedObject], list[str]]:
    """The files that are loaded, those that are needed first, and the names for which there is no file."""
    done: dict[str, elf.SharedObject | None] = {}
    order: list[elf.SharedObject] = []

    def visit(path: Path) -> None:
        try:
            one = elf.read(path)
        except (OSError, elf.NotElf) as error:
            raise StubError(f"{path} cannot be read: {error}") from error
        done[one.soname] = done[path.name] = one
        for name in one.needed:
            if name in done:
                continue
            file = find(name, path)
            if file is None:
                done[name] = None
            else:
                visit(file)
        order.append(one)

    for root in roots:
        if root.name not in done:
            visit(root)
    return order, [name for name, one in done.items() if one is None]


def finder(directories: Iterable[Path]) -> Find:
    """Finds a library beside the file that needs it, in ``directories``, in the loader's cache and its own folders."""
    places = [*directories]
    cached = cached_libraries()

    def find(name: str, needed_by: Path) -> Path | None:
        for directory in (needed_by.parent, *places):
            if (directory / name).is_file():
                return directory / name
        if name in cached:
            return cached[name]
        return next((folder / name for folder in _SYSTEM if (folder / name).is_file()), None)

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
        if _fits_machine(Path(path)):
            found.setdefault(name, Path(path))
    return found


def _fits_machine(path: Path) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(6) == b"\x7fELF\x02\x01"
    except OSError:
        return False


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
    program = compiler()
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
