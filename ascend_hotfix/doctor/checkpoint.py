"""Reads what a checkpoint directory says about itself: config, index, safetensors headers, ModelSlim description.

Standard library only, and never a byte of tensor data, so it runs anywhere and in seconds: names, dtypes, shapes and
offsets come from the headers. What cannot be read becomes a finding with file, place and remedy; reading goes on.

The safetensors format (8 bytes little-endian header length, JSON header, data without gaps) is described in the
README of huggingface/safetensors. Which files vLLM reads: every ``*.safetensors`` of the folder, cut down to those
named in ``model.safetensors.index.json`` where a file of exactly this name exists.
"""

from __future__ import annotations

import codecs
import functools
import gc
import itertools
import json
import math
import os
import re
import struct
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from ascend_hotfix.doctor.bounds import (
    LONGEST_NAME,
    MOST,
    MOST_DIMENSIONS,
    MOST_ODD,
    MOST_SEGMENTS,
    fits_in_file,
    overlong,
)
from ascend_hotfix.doctor.findings import Collector, Finding
from ascend_hotfix.doctor.schemes import METADATA_LEAVES, is_scheme
from ascend_hotfix.doctor.texts import Phrase
from ascend_hotfix.seams.headers import MAX_HEADER
from ascend_hotfix.words import printable

__all__ = [
    "LANGUAGE_CONFIGS",
    "LONGEST",
    "UNREAD",
    "Checkpoint",
    "Description",
    "Index",
    "NotACheckpoint",
    "Tensor",
    "collector_paused",
    "kind_of",
    "language_configs",
    "model_types",
    "nested_configs",
    "read_checkpoint",
    "text_config",
]

DESCRIPTION_FILE = "quant_model_description.json"
VLLM_INDEX = "model.safetensors.index.json"
UNREAD = frozenset({"json-corrupt", "json-encoding", "json-kind", "file-unreadable", "lfs-pointer"})
"""Findings after which nothing is known of what a file holds."""
LOST = UNREAD | {"header-corrupt", "shard-file-absent", "file-truncated"}
OF_FILES = frozenset({"lfs-pointer", "shard-file-absent", "file-unread", "file-truncated"})
"""Findings that many files may have for one reason."""
LANGUAGE_CONFIGS = ("thinker_config", "text_config", "llm_config", "language_config")
LONGEST = 60  # characters of a value that are shown
BITS = {
    **dict.fromkeys(("F4",), 4),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("I16", "U16", "F16", "BF16"), 16),
    **dict.fromkeys(("I32", "U32", "F32"), 32),
    **dict.fromkeys(("I64", "U64", "F64", "C64"), 64),
}
_INT = frozenset({int})
_NESTS = frozenset({dict, list})
_NUMBERED = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<total>\d{5})\.safetensors")
_RANK = re.compile(r"model-rank-(?P<rank>\d+)-part-(?P<part>\d+)\.safetensors")
_RANK_FOLDER = re.compile(r"rank_?\d+")

Span = tuple[int, int, str, int | None]  # begin and end of a tensor's data in bytes, its name, bits by its shape
Progress = Callable[[int, int, str], None]


class NotACheckpoint(Exception):
    """The path is no model directory, or nothing of it can be checked. ``finding`` says why."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(f"{finding.message}; {finding.remedy}")
        self.finding = finding


class Tensor(NamedTuple):
    """One entry of a safetensors header. ``dtype`` as safetensors spells it (``I8``, ``BF16``); ``file`` relative."""

    dtype: str
    shape: tuple[int, ...]
    file: str


@dataclass(frozen=True)
class Index:
    """An index file: tensor name to file name. ``wrapped``: under a ``weight_map`` level, as vLLM wants it.

    ``outside``: the entries that do not name a file of the folder itself but a path; they are not in ``weight_map``.
    """

    file: str
    weight_map: Mapping[str, str]
    wrapped: bool
    outside: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def counts(self) -> Mapping[str, int]:
        """File name to the number of tensors that the index puts into it."""
        return Counter(self.weight_map.values())


@dataclass(frozen=True)
class Description:
    """A ModelSlim description. ``schemes``: tensor name to scheme; ``metadata``: all else; ``place``: its file.

    ``absent``: those names of ``schemes`` that no tensor has; ``odd``: names whose entry is no string.
    """

    place: str
    schemes: Mapping[str, str]
    metadata: Mapping[str, Any]
    absent: Sequence[str] = ()
    odd: Sequence[str] = ()

    def meta(self, key: str) -> Any:
        """A metadata value under its plain or its prefixed name (``thinker.version``), or None."""
        if key in self.metadata:
            return self.metadata[key]
        return next((value for name, value in self.metadata.items() if name.endswith("." + key)), None)

    @property
    def raw(self) -> dict[str, Any]:
        """The content as the file holds it."""
        return {**self.metadata, **self.schemes}


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint directory says about itself.

    ``tensors`` are those that vLLM reads (rank 0's for a per-rank export), ``unread`` those in files that it skips,
    ``extras`` those of ``optional/``. ``ranks`` holds the tensors of each rank of a per-rank export. ``index`` is the
    index that belongs to the files, ``indexes`` are all. ``findings`` is what went wrong on reading, ``lost`` the files
    of which not all could be read, or that are not here.
    """

    path: Path
    config: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    unread: Mapping[str, Tensor] = field(default_factory=dict)
    extras: Mapping[str, Tensor] = field(default_factory=dict)
    ranks: Mapping[int, Mapping[str, Tensor]] = field(default_factory=dict)
    index: Index | None = None
    indexes: tuple[Index, ...] = ()
    description: Description | None = None
    findings: tuple[Finding, ...] = ()
    lost: frozenset[str] = frozenset()

    @property
    def text_config(self) -> Mapping[str, Any]:
        return text_config(self.config)


def nested_configs(config: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The config and every config inside it that has a model_type of its own, as (dotted path, config)."""
    queue: list[tuple[str, Mapping[str, Any]]] = [("", config)]
    for path, current in queue:
        if not path or "model_type" in current:
            yield path, current
        for key, value in current.items():
            if isinstance(value, dict) and key.endswith("config") and key != "quantization_config":
                queue.append((f"{path}.{key}" if path else key, value))


def language_configs(config: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """*config* and what is inside it towards the language model's, as (dotted path, config)."""
    path: list[str] = []
    inner: Any = config
    while inner:
        yield ".".join(path), inner
        key = next((key for key in LANGUAGE_CONFIGS if isinstance(inner.get(key), dict) and inner[key]), "")
        path.append(key)
        inner = inner.get(key)


def text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The language model's config: the innermost of ``thinker_config``, ``text_config``, ... inside, or *config*."""
    return [config, *(inner for _, inner in language_configs(config))][-1]


def model_types(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Every model_type in *config*, the outermost first, without repeats."""
    types = (inner.get("model_type") for _, inner in nested_configs(config))
    return tuple(dict.fromkeys(one for one in types if isinstance(one, str) and one))


def kind_of(value: object) -> Phrase:
    """What a value read from JSON is, in JSON's own terms."""
    if isinstance(value, bool | None):
        return Phrase("null" if value is None else "true or false")
    kinds = ((str, "a string"), (list, "a list"), (dict, "an object"))
    return Phrase(next((name for kind, name in kinds if isinstance(value, kind)), "a number"))


def _refuse_special(path: Path) -> None:
    """Raises OSError for what exists and is no file: a folder, or a pipe, which would make its reader wait for ever."""
    if path.exists() and not path.is_file():
        raise OSError("it is a folder" if path.is_dir() else "it is no regular file")


def _keys(content: Any) -> int:
    """How many keys there are in *content* and in all that it holds."""
    own, held = (len(content), content.values()) if isinstance(content, dict) else (0, content)
    return own + sum([_keys(value) for value in held if type(value) in _NESTS])


def _beginning(value: Any) -> str:
    """The first characters of *value* as JSON, made no further than they are shown."""
    if isinstance(value, str):
        return json.dumps(value[:LONGEST])[:LONGEST]
    pieces = itertools.islice(json.JSONEncoder().iterencode(value), LONGEST)
    return "".join(piece[:LONGEST] for piece in pieces)[:LONGEST]


def _repeated(text: str, content: Any) -> list[str]:
    """Keys that an object of JSON *text* has more than once with different values, with these values.

    *content* is what was read from it, without the repeated ones. The first :data:`MOST_ODD` are told. Only where the
    text has more colons than that has keys, it is read again, pair by pair: for every file that would take half as long
    again.
    """
    found: list[str] = []

    def unite(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        first: dict[str, Any] = {}
        for key, value in pairs:
            if len(found) < MOST_ODD and first.setdefault(key, value) != value:
                found.append(f"{key} ({_beginning(first[key])}, then {_beginning(value)})")
        return dict(pairs)

    if isinstance(content, dict) and text.count(":") != _keys(content):
        json.loads(text, object_pairs_hook=unite)
    return found


def _read_json(path: Path, found: Collector) -> dict[str, Any] | None:
    """The object in a JSON file; a finding and None where there is none."""
    place = path.name
    try:
        _refuse_special(path)
        data = path.read_bytes()
    except OSError as error:
        found.add("file-unreadable", place=place, problem=error.strerror or str(error))
        return None
    if data.startswith(b"version https://git-lfs"):
        found.add("lfs-pointer", place, place=place)
        return None
    try:
        # upstream opens these files as UTF-8 text, in which json takes no byte order mark
        text = data.decode()
        content = json.loads(text)
        repeated = _repeated(text, content)
    except UnicodeDecodeError as error:
        found.add("json-encoding", place=place, problem=f"byte {error.start} is no UTF-8")
        return None
    except (ValueError, RecursionError) as error:
        if data.startswith(codecs.BOM_UTF8):
            found.add("json-encoding", place=place, problem="it begins with a byte order mark")
        else:
            found.add("json-corrupt", place=place, problem=str(error) if data.strip() else "the file is empty")
        return None
    for example in repeated:
        found.add("json-repeated", example, place=place)
    if not isinstance(content, dict):
        found.add("json-kind", place=place, kind=kind_of(content))
        return None
    return content


class _Bad(Exception):
    """A header that cannot be used: code and params of the finding."""

    def __init__(self, code: str, **params: Any) -> None:
        self.code, self.params = code, params


def _raw_header(path: Path) -> tuple[dict[str, Any], int, int]:
    """(header object, offset of the data, size of the file), sizes in bytes. Raises _Bad or OSError."""
    _refuse_special(path)
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        start = file.read(8)
        if start == b"version " and size < 1024:
            raise _Bad("lfs-pointer")
        if size == 0:
            raise _Bad("file-truncated", found=0, expected="at least 8")
        if len(start) < 8:
            raise _Bad("file-truncated", found=size, expected="at least 8")
        (length,) = struct.unpack("<Q", start)
        first = file.read(1)
        if not 0 < length <= MAX_HEADER or first not in (b"{", b""):
            raise _Bad(
                "header-corrupt", problem=f"byte 0 to 7 give a header of {length} bytes that does not start with {{"
            )
        if 8 + length > size:
            raise _Bad("file-truncated", found=size, expected=f"at least {8 + length}")
        text = first + file.read(length - 1)
    try:
        header = json.loads(text.decode())
    except (ValueError, RecursionError) as error:
        raise _Bad("header-corrupt", problem=f"bytes 8 to {8 + length}: {error}") from None
    if not isinstance(header, dict):
        raise _Bad("header-corrupt", problem=f"bytes 8 to {8 + length}: an object expected")
    about = header.pop("__metadata__", {})
    if not isinstance(about, dict) or not all(isinstance(value, str) for value in about.values()):
        raise _Bad("header-corrupt", problem="__metadata__ needs to be an object of strings")
    return header, 8 + length, size


def _bits(dtype: str, shape: tuple[int, ...]) -> int | None:
    """Bits that a tensor takes, None where *dtype* is unknown. Raises ValueError for a shape that no tensor can have."""
    if len(shape) > MOST_DIMENSIONS or not all(map(fits_in_file, shape)):
        raise ValueError(shape)
    bits = BITS.get(dtype)
    return bits and bits * math.prod(shape)


def _read_entries(header: Mapping[str, Any], place: str, tensors: dict[str, Tensor]) -> list[Span]:
    """Put the entries of a header into *tensors*; returns where their data are. Raises _Bad at the first bad one.

    The checks stand in one loop and what is stored alike shares one Tensor: there may be 140,000 entries.
    """
    spans: list[Span] = []
    kinds: dict[tuple[str, tuple[int, ...]], tuple[Tensor, int | None]] = {}
    name = ""
    try:
        for name, entry in header.items():
            dtype, shape, (begin, end) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
            # bool is an int, so compare types: a JSON true is no size
            if not (type(begin) is type(end) is int and fits_in_file(begin) and fits_in_file(end)):
                raise ValueError(entry)
            if not _INT.issuperset(map(type, shape)) or overlong(name):
                raise ValueError(entry)
            kind = kinds.get((dtype, shape))
            if kind is None:
                kind = kinds[dtype, shape] = Tensor(dtype, shape, place), _bits(dtype, shape)
            tensors[name], bits = kind
            spans.append((begin, end, name, bits))
    except (KeyError, TypeError, ValueError):
        problem = (
            f"the entry {printable(name, LONGEST)} needs dtype, shape (at most {MOST_DIMENSIONS} dimensions) and two "
            f"data_offsets, numbers below 2**63, and a name of at most {LONGEST_NAME} characters and {MOST_SEGMENTS} segments"
        )
        raise _Bad("header-corrupt", problem=problem) from None
    return spans


def _check_spans(spans: list[Span], tensors: Mapping[str, Tensor], place: str, found: Collector) -> int:
    """Each tensor has as many bytes as its dtype and shape take, without gaps between them; returns where data end."""
    position = 0
    for begin, end, name, bits in sorted(spans):
        if bits is None:
            found.add("dtype-unknown", name, place=place, dtype=tensors[name].dtype)
        elif bits != 8 * (end - begin):
            found.add("tensor-size", name, place=place)
        if begin != position:
            found.add("tensor-offsets", name, place=place)
        position = max(position, end)
    return position


def _read_safetensors(path: Path, place: str, found: Collector) -> dict[str, Tensor]:
    """Name to tensor of one file; what is wrong with it goes to *found*."""
    tensors: dict[str, Tensor] = {}
    try:
        header, data, size = _raw_header(path)
        position = _check_spans(_read_entries(header, place, tensors), tensors, place, found)
    except _Bad as bad:
        found.add(bad.code, place, place=place, **bad.params)
        return tensors
    except OSError as error:
        found.add("file-unreadable", place=place, problem=error.strerror or str(error))
        return tensors
    if data + position > size:
        found.add("file-truncated", place, place=place, found=size, expected=data + position)
    elif data + position < size:
        found.add("file-too-long", place=place, found=size, expected=data + position)
    return tensors


def _texts(entries: Mapping[str, Any]) -> dict[str, str]:
    """The entries that are strings; equal ones share one object, as 140,000 entries hold few different ones."""
    return {name: sys.intern(value) for name, value in entries.items() if isinstance(value, str)}


def _read_index(path: Path, found: Collector) -> Index | None:
    """One index file in either form; findings for what cannot be used."""
    content = _read_json(path, found)
    if content is None:
        return None
    wrapped = isinstance(content.get("weight_map"), dict)
    entries = content["weight_map"] if wrapped else {k: v for k, v in content.items() if k != "metadata"}
    weight_map = _texts(entries)
    for name in filter(overlong, entries):
        weight_map.pop(name, None)
    files = set(weight_map.values())
    if len(weight_map) < len(entries) or "" in files:
        for name in entries:
            if not weight_map.get(name):
                found.add("index-entry", name, place=path.name)
                weight_map.pop(name, None)
    # the files that vLLM reads are found by a glob of the folder, so no other name can be one of them
    paths = {file for file in files if file and Path(file).parts != (file,)}
    outside = {name: weight_map.pop(name) for name in list(weight_map) if weight_map[name] in paths} if paths else {}
    if not wrapped:
        found.add(
            "index-unusable" if path.name == VLLM_INDEX or not weight_map else "index-no-weight-map", place=path.name
        )
    elif not entries and path.name == VLLM_INDEX:
        found.add("index-empty", place=path.name)
    return Index(path.name, weight_map, wrapped, outside)


def _read_optional(root: Path, description: Description | None, found: Collector) -> dict[str, Tensor]:
    """Tensors of ``optional/`` and of the files that the description's ``optional`` block names."""
    files = {f"optional/{path.name}" for path in root.glob("optional/*.safetensors")}
    block = description.meta("optional") if description is not None else None
    for scope in block.values() if isinstance(block, dict) else ():
        named = scope.get("rotation_map") if isinstance(scope, dict) else None
        files.update(str(file) for file in (named.values() if isinstance(named, dict) else ()))
    tensors: dict[str, Tensor] = {}
    for file in sorted(files):
        if ".." in Path(file).parts or Path(file).is_absolute():
            found.add("optional-file-outside", place=file)
        elif (root / file).exists():
            tensors.update(_read_safetensors(root / file, file, found))
        else:
            found.add("optional-file-absent", place=file)
    return tensors


def _is_metadata(key: str, value: object) -> bool:
    """Is this entry, which no tensor has the name of, about the checkpoint rather than about one tensor?"""
    if key.rpartition(".")[2] in METADATA_LEAVES:
        return True
    return "." not in key and not (isinstance(value, str) and is_scheme(value))


def _describe(place: str, raw: Mapping[str, Any], tensors: Mapping[str, Tensor], found: Collector) -> Description:
    """Split the content of a description into schemes and metadata."""
    strange = [key for key in raw if key not in tensors]
    metadata = {key: raw[key] for key in strange if _is_metadata(key, raw[key])}
    schemes = _texts(raw)
    for key in (*metadata, *filter(overlong, raw)):
        schemes.pop(key, None)
    odd: list[str] = []
    if len(schemes) + len(metadata) < len(raw):
        odd = [key for key in raw if key not in schemes and key not in metadata]
        kinds = sorted({kind_of(raw[key]) for key in odd})
        told = functools.reduce(lambda one, other: Phrase("and", one=one, other=other), kinds) if kinds else ""
        for key in odd:
            found.add("description-entry", key, place=place, kind=told)
    return Description(place, schemes, metadata, [key for key in strange if key in schemes], odd)


def _read_description(
    root: Path, config: Mapping[str, Any], tensors: Mapping[str, Tensor], found: Collector
) -> Description | None:
    """The description that vllm-ascend would use: per-tensor entries in config.json come first, then the file."""
    block = config.get("quantization_config")
    if isinstance(block, dict) and any("." in key and isinstance(value, str) for key, value in block.items()):
        found.add("description-in-config", place="config.json")
        return _describe("config.json", block, tensors, found)
    path = root / DESCRIPTION_FILE
    # Names as quant_model_description_w8a8_dynamic.json, written by older ModelSlim releases.
    variants = sorted(p for p in root.glob("*.json") if "quant_model_description" in p.name and p != path)
    if not os.path.lexists(path):
        if not variants:
            return None
        path = variants.pop(0)
        found.add("description-name", place=path.name)
    for other in variants:
        found.add("description-unread", place=other.name, read=path.name)
    content = _read_json(path, found)
    return None if content is None else _describe(path.name, content, tensors, found)


def _needed(index: Index, files: Mapping[str, Mapping[str, Tensor]]) -> Collection[str]:
    """The files that *index* names, less those whose tensors are all in other files that are here: vLLM misses none."""
    if index.counts.keys() <= files.keys():
        return index.counts
    held = {name for tensors in files.values() for name in tensors}
    return {file for name, file in index.weight_map.items() if file in files or name not in held}


def _check_numbering(files: Mapping[str, Mapping[str, Tensor]], owner: Index | None, found: Collector) -> None:
    """Report files that the index names, or the ``-00001-of-00004`` numbering implies, and that are not here."""
    named: Collection[str] = owner.counts if owner is not None else ()
    needed = _needed(owner, files) if owner is not None else ()
    absent = {
        name: (Phrase("named in", file=owner.file), 1) for name in needed if owner is not None and name not in files
    }
    counted: set[tuple[str, str]] = set()
    for name in files:
        match = _NUMBERED.fullmatch(name)
        if match is None or (match["stem"], match["total"]) in counted:
            continue
        counted.add((match["stem"], match["total"]))
        total, why = int(match["total"]), Phrase("numbered up to", total=match["total"])
        # nobody has made thousands of files: of those the first that is absent stands for all
        each, many = (total, 1) if total <= MOST else (min(total, len(files) + 1), total - len(files))
        siblings = (f"{match['stem']}-{number:05d}-of-{match['total']}.safetensors" for number in range(1, each + 1))
        for sibling in siblings:
            if sibling not in files and sibling not in named:
                absent.setdefault(sibling, (why, max(many, 1)))
                if total > MOST:
                    break
    for name, (why, many) in absent.items():
        found.add("shard-file-absent", name, place=name, count=many, source=why)


def _owner(indexes: tuple[Index, ...], files: Mapping[str, object]) -> Index | None:
    """The index that belongs to the files: the one that names most of those that are here, if it names any."""
    named = [(len(index.counts.keys() & files.keys()), len(index.weight_map), index) for index in indexes]
    here, _, index = max(named, key=lambda item: item[:2], default=(0, 0, None))
    empty = index is not None and len(indexes) == 1 and index.wrapped and not {**index.weight_map, **index.outside}
    return index if here or (empty and index is not None and index.file != VLLM_INDEX) else None


def _check_indexes(
    indexes: tuple[Index, ...], owner: Index | None, files: Mapping[str, Mapping[str, Tensor]], found: Collector
) -> frozenset[str]:
    """Compare the indexes with the files; returns the files that vLLM reads."""
    read = frozenset(files)
    _check_numbering(files, owner, found)
    for index in indexes:
        names = index.counts.keys()
        for name, file in index.outside.items():
            harmless = index.file != VLLM_INDEX and any(name in tensors for tensors in files.values())
            found.add("index-path" if harmless else "index-outside", file, place=index.file)
        absent = names - files.keys()
        if index is not owner and absent and index.file == VLLM_INDEX:
            found.add("index-stale", min(absent), place=index.file, count=len(absent))
        elif index.file == VLLM_INDEX and index.wrapped and names & files.keys():
            read = frozenset(names & files.keys())
    for file in sorted(files.keys() - read):
        found.add("file-unread", file, place=file)
    return read


def _read_ranks(files: Mapping[str, Mapping[str, Tensor]]) -> dict[int, dict[str, Tensor]]:
    """Tensors of each rank of a per-rank export; empty where the files are not named as one."""
    ranks: dict[int, dict[str, Tensor]] = {}
    for name, tensors in files.items():
        match = _RANK.fullmatch(name)
        if match:
            ranks.setdefault(int(match["rank"]), {}).update(tensors)
    return ranks


def _merge(files: Mapping[str, Mapping[str, Tensor]], read: frozenset[str], found: Collector) -> dict[str, Tensor]:
    """All tensors of the files that vLLM reads; a name in two of them is reported."""
    merged: dict[str, Tensor] = {}
    for file in sorted(read):
        for name in filter(merged.__contains__, files[file]):
            found.add("tensor-duplicate", name, files=Phrase("two files", one=merged[name].file, other=file))
        merged.update(files[file])
    return merged


def _weight_files(root: Path) -> list[Path]:
    """Files that vLLM would look at. Raises NotACheckpoint where there is none."""
    paths = sorted(p for p in root.glob("*.safetensors") if not p.name.startswith("."))
    if paths:
        return paths
    folders = sorted(p.name for p in root.iterdir() if _RANK_FOLDER.fullmatch(p.name) and any(p.glob("*.safetensors")))
    if folders:
        raise NotACheckpoint(Finding("rank-folders", str(root), len(folders), params={"found": ", ".join(folders[:4])}))
    others = sorted(p.name for p in root.iterdir())
    shown = ", ".join(others[:4]) or Phrase("nothing")
    if len(others) > 4:
        shown = Phrase("and more", names=shown, count=len(others) - 4)
    raise NotACheckpoint(Finding("no-safetensors", str(root), params={"found": shown}))


def read_checkpoint(path: str | os.PathLike[str], progress: Progress | None = None) -> Checkpoint:
    """Read a checkpoint directory; headers only.

    *progress* is called with (files done, files in all, file name). Raises :class:`NotACheckpoint` where the path is no
    model directory; everything else that is wrong is in ``findings`` of the result.
    """
    with collector_paused():
        return _read(Path(path), progress)


@contextmanager
def collector_paused() -> Iterator[None]:
    """Without the cyclic garbage collector: 140,000 headers are no garbage, and walking them takes a third of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _united(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """*findings*, where what is the matter with many files alike is one, without a place."""
    alike: dict[object, list[Finding]] = {}
    for finding in findings:
        place = "" if finding.code in OF_FILES else finding.place
        alike.setdefault((finding.code, place, *finding.params.items()), []).append(finding)
    return tuple(
        one
        if not others
        else replace(
            one,
            place="",
            count=one.count + sum(other.count for other in others),
            examples=(*one.examples, *others[0].examples),
        )
        for one, *others in alike.values()
    )


def _read(root: Path, progress: Progress | None) -> Checkpoint:
    if not root.is_dir():
        raise NotACheckpoint(Finding("not-a-directory", str(root)))
    try:
        if "config.json" not in os.listdir(root):
            raise NotACheckpoint(Finding("no-config", str(root)))
        paths = _weight_files(root)
    except OSError as error:
        problem = error.strerror or str(error)
        raise NotACheckpoint(Finding("file-unreadable", str(root), params={"problem": problem})) from None
    found = Collector()
    config = _read_json(root / "config.json", found) or {}
    files: dict[str, dict[str, Tensor]] = {}
    for done, file in enumerate(paths):
        if progress is not None:
            progress(done, len(paths), file.name)
        files[file.name] = _read_safetensors(file, file.name, found)
    if progress is not None:
        progress(len(paths), len(paths), "")
    listed = (_read_index(p, found) for p in sorted(root.glob("*.safetensors.index.json")))
    indexes = tuple(index for index in listed if index is not None)
    ranks = _read_ranks(files)
    owner = None if ranks else _owner(indexes, files)
    read = frozenset(files) if ranks else _check_indexes(indexes, owner, files, found)
    tensors = ranks[min(ranks)] if ranks else _merge(files, read, found)
    unread = {name: tensor for file in files.keys() - read for name, tensor in files[file].items()}
    description = _read_description(root, config, tensors, found)
    extras = _read_optional(root, description, found)
    findings = found.findings()
    return Checkpoint(
        path=root,
        config=config,
        tensors=tensors,
        unread=unread,
        extras=extras,
        ranks=ranks,
        index=owner,
        indexes=indexes,
        description=description,
        findings=_united(findings),
        lost=frozenset(finding.place for finding in findings if finding.code in LOST),
    )
