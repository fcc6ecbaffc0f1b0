"""Reads what a shared object asks the loader for: libraries, and symbols with their versions. 64-bit ELF, no tools needed."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

__all__ = ["MACHINES", "NotElf", "SharedObject", "Symbol", "read", "symbols"]

MACHINES = {"x86_64": 62, "aarch64": 183}
"""What ``uname -m`` prints, to the number that a file for it has."""

_T = TypeVar("_T")

_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_NEED = struct.Struct("<HHIII")
_NEED_VERSION = struct.Struct("<IHHII")
_DYNSYM, _DYNAMIC, _VERSION_NEEDS, _VERSIONS = 11, 6, 0x6FFFFFFE, 0x6FFFFFFF
_NEEDED, _SONAME = 1, 14
_WEAK, _GLOBAL = 2, 1
_UNIQUE = 10


class NotElf(ValueError):
    """The file is no 64-bit little-endian ELF shared object; the message names it."""


@dataclass(frozen=True)
class Symbol:
    """A dynamic symbol: ``version`` and ``library`` are what the version table asks for, empty without one.

    A weak one that is not defined may stay without.
    """

    name: str
    defined: bool
    weak: bool = False
    version: str = ""
    library: str = ""


@dataclass(frozen=True)
class SharedObject:
    """What is of interest of one file: its SONAME, the libraries it needs, the machine it is for."""

    path: Path
    soname: str
    needed: tuple[str, ...]
    machine: int


@dataclass(frozen=True)
class _Section:
    kind: int
    offset: int
    size: int
    link: int
    info: int


def read(path: Path) -> SharedObject:
    """The dynamic section of ``path``. :class:`NotElf` where it is something else, OSError where it cannot be read."""
    return _parse(path, _dynamic)


def symbols(path: Path) -> list[Symbol]:
    """The dynamic symbols of ``path``; raises as :func:`read`."""
    return _parse(path, lambda _, data: list(_symbols(data, _sections(data))))


def _parse(path: Path, parse: Callable[[Path, mmap.mmap], _T]) -> _T:
    with open(path, "rb") as file:
        try:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError:  # an empty file
            raise NotElf(f"{path} is empty") from None
        with data:
            if data[:6] != b"\x7fELF\x02\x01":
                raise NotElf(f"{path} is not a 64-bit little-endian ELF file")
            try:
                return parse(path, data)
            except (struct.error, IndexError) as error:
                raise NotElf(f"{path} is cut short or damaged: {error}") from error


def _dynamic(path: Path, data: mmap.mmap) -> SharedObject:
    sections = _sections(data)
    dynamic = next((section for section in sections if section.kind == _DYNAMIC), None)
    tags: list[tuple[int, str]] = []
    if dynamic is not None:
        names = sections[dynamic.link]
        raw = data[dynamic.offset : dynamic.offset + dynamic.size]
        for tag, value in struct.iter_unpack("<qQ", raw[: len(raw) // 16 * 16]):
            if tag in (_NEEDED, _SONAME):
                tags.append((tag, _text(data, names, value)))
    soname = next((text for tag, text in tags if tag == _SONAME), path.name)
    (machine,) = struct.unpack_from("<H", data, 0x12)
    return SharedObject(path, soname, tuple(text for tag, text in tags if tag == _NEEDED), machine)


def _sections(data: mmap.mmap) -> list[_Section]:
    offset, size, count = (
        struct.unpack_from("<Q", data, 0x28)[0],
        *struct.unpack_from("<HH", data, 0x3A),
    )
    found = []
    for index in range(count):
        _, kind, _, _, at, length, link, info, _, _ = _SECTION.unpack_from(data, offset + index * size)
        found.append(_Section(kind, at, length, link, info))
    return found


def _text(data: mmap.mmap, strings: _Section, at: int) -> str:
    start = strings.offset + at
    return data[start : data.find(b"\0", start)].decode("utf-8", "replace")


def _symbols(data: mmap.mmap, sections: list[_Section]) -> Iterator[Symbol]:
    table = next((section for section in sections if section.kind == _DYNSYM), None)
    if table is None:
        return
    names = sections[table.link]
    text = data[names.offset : names.offset + names.size]
    asked = _version_needs(data, sections)
    versions = next((one for one in sections if one.kind == _VERSIONS), None)
    numbers: tuple[int, ...] = ()
    if versions is not None:
        numbers = struct.unpack_from(f"<{versions.size // 2}H", data, versions.offset)
    raw = data[table.offset : table.offset + table.size // _SYMBOL.size * _SYMBOL.size]
    for index, (name, info, _, section, _, _) in enumerate(_SYMBOL.iter_unpack(raw)):
        binding = info >> 4
        if not name or binding not in (_GLOBAL, _WEAK, _UNIQUE):
            continue
        library, version = asked.get(numbers[index] & 0x7FFF, ("", "")) if numbers else ("", "")
        yield Symbol(
            name=text[name : text.find(b"\0", name)].decode("utf-8", "replace"),
            defined=section != 0,
            weak=binding == _WEAK,
            version=version,
            library=library,
        )


def _version_needs(data: mmap.mmap, sections: list[_Section]) -> dict[int, tuple[str, str]]:
    """The number of each version asked for, to its library and name."""
    section = next((one for one in sections if one.kind == _VERSION_NEEDS), None)
    found: dict[int, tuple[str, str]] = {}
    if section is None:
        return found
    names, at = sections[section.link], section.offset
    for _ in range(section.info):
        _, count, library, first, following = _NEED.unpack_from(data, at)
        inner = at + first
        for _ in range(count):
            _, _, number, name, step = _NEED_VERSION.unpack_from(data, inner)
            found[number] = (_text(data, names, library), _text(data, names, name))
            inner += step
        at += following
    return found
