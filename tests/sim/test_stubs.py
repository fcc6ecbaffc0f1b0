"""Only what is missing is stood in for, with the symbols that are asked for, whatever the release of torch_npu."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ascend_hotfix.sim import elf, stubs

Compile = Callable[..., Path]


@pytest.fixture
def compiled(tmp_path: Path) -> Compile:
    """``compiled(soname, code, *needed, version=...)``: a library in a folder that is removed from sight by name."""

    def make(soname: str, code: str, *needed: Path, version: str = "", folder: str = "libraries") -> Path:
        place = tmp_path / folder
        place.mkdir(exist_ok=True)
        file, options = place / soname, ["-Wl,--no-as-needed", *map(str, needed)]
        if version:
            script = tmp_path / "map"
            script.write_text(f"{version} {{ global: *; }};")
            options.append(f"-Wl,--version-script={script}")
        command = [stubs.compiler(), "-shared", "-fPIC", "-w", f"-Wl,-soname,{soname}", "-x", "c", "-", "-x", "none"]
        subprocess.run([*command, *options, "-o", str(file)], input=code, text=True, check=True)
        return file

    return make


def stand_ins(tmp_path: Path, *roots: Path, returned: int = 0) -> tuple[dict[str, dict[str, str]], Path]:
    libraries = stubs.missing(stubs.closure(roots, stubs.finder([])))
    folder = tmp_path / "stand-ins"
    folder.mkdir()
    stubs.build(folder, libraries, returned)
    return libraries, folder


def loaded(folder: Path, libraries: dict[str, dict[str, str]], root: Path) -> ctypes.CDLL:
    for name in libraries:
        ctypes.CDLL(str(folder / name), mode=ctypes.RTLD_GLOBAL)
    return ctypes.CDLL(str(root), mode=ctypes.RTLD_LOCAL | 2)  # every symbol at once


def test_an_absent_library_has_what_is_asked_of_it_and_a_present_one_is_left_alone(
    compiled: Compile, tmp_path: Path
) -> None:
    absent = compiled(
        "libhotabsent1.so", "int HcclOne(void) { return 7; } int HcclTwo(void) { return 7; }", folder="gone"
    )
    present = compiled("libhotpresent1.so", "int aclOne(void) { return 5; }")
    code = (
        "int HcclOne(); int aclOne(); int malloc(); int ask(void) { return malloc(1) ? 10 * HcclOne() + aclOne() : 0; }"
    )
    root = compiled("libhotroot1.so", code, absent, present)
    libraries, folder = stand_ins(tmp_path, root, returned=3)
    assert libraries == {"libhotabsent1.so": {"HcclOne": ""}}
    assert present in stubs.closure([root], stubs.finder([])).files
    ctypes.CDLL(str(present), mode=ctypes.RTLD_GLOBAL)
    assert loaded(folder, libraries, root).ask() == 35


def test_symbols_have_the_versions_that_are_asked_for(compiled: Compile, tmp_path: Path) -> None:
    absent = compiled(
        "libhotabsent2.so.12", "int cudaOne(void) { return 7; }", version="libhotabsent2.so.12", folder="gone"
    )
    root = compiled("libhotroot2.so", "int cudaOne(); int ask(void) { return cudaOne(); }", absent)
    libraries, folder = stand_ins(tmp_path, root, returned=100)
    assert libraries == {"libhotabsent2.so.12": {"cudaOne": "libhotabsent2.so.12"}}
    assert loaded(folder, libraries, root).ask() == 100


def test_data_is_data(compiled: Compile, tmp_path: Path) -> None:
    names = ("_ZTVN2ge6TensorE", "_ZN2ge5Shape5kNoneE")
    absent = compiled("libhotabsent3.so", "".join(f"long {name}[4] = {{1, 1, 1, 1}};" for name in names), folder="gone")
    code = (
        "".join(f"extern long {name}[4];" for name in names)
        + f"long ask(void) {{ return {names[0]}[2] + {names[1]}[1]; }}"
    )
    root = compiled("libhotroot3.so", code, absent)
    libraries, folder = stand_ins(tmp_path, root)
    assert set(libraries["libhotabsent3.so"]) == set(names)
    assert loaded(folder, libraries, root).ask() == 0


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("_ZTIN3atb9OperationE", True),
        ("_ZN2ge5Shape5kNoneE", True),
        ("aclrtMalloc", False),
        ("_ZN3atb13CreateContextEPPNS_7ContextE", False),
        ("_ZN3atb15CreateOperationINS_5infer9RopeParamEEEiRKT_PPNS_9OperationE", False),
        ("_ZNK2ge6Tensor7GetSizeEv", False),
    ],
)
def test_what_a_mangled_name_stands_for(name: str, data: bool) -> None:
    assert (f'"{name}") __attribute__' in stubs.source([name])) is data


def test_a_library_that_is_older_than_what_needs_it_is_completed(compiled: Compile, tmp_path: Path) -> None:
    newer = compiled("libhotacl4.so", "int old(void) { return 1; } int new(void) { return 1; }", folder="gone")
    root = compiled("libhotroot4.so", "int old(); int new(); int ask(void) { return old() + new(); }", newer)
    older = compiled("libhotacl4.so", "int old(void) { return 1; }")
    libraries, folder = stand_ins(tmp_path, root)
    assert libraries == {stubs.EXTRA: {"new": ""}}
    ctypes.CDLL(str(older), mode=ctypes.RTLD_GLOBAL)
    assert loaded(folder, libraries, root).ask() == 1


def test_a_library_for_another_machine_is_none(compiled: Compile, tmp_path: Path) -> None:
    absent = compiled("libhotabsent5.so", "int one(void) { return 7; }", folder="gone")
    root = compiled("libhotroot5.so", "int one(); int ask(void) { return one(); }", absent)
    there = root.parent / absent.name
    foreign = bytearray(absent.read_bytes())
    foreign[18:20] = (243).to_bytes(2, "little")  # RISC-V
    there.write_bytes(foreign)
    assert stubs.closure([root], stubs.finder([])).absent == (absent.name,)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "libcut.so").write_bytes(b"\x7fELF\x02\x01" + b"\0" * 50)
    with pytest.raises(stubs.StubError, match=r"libcut\.so cannot be read: .*libcut\.so is cut short or damaged"):
        stubs.closure([tmp_path / "libcut.so"], stubs.finder([]))


def test_the_loaders_cache_is_read() -> None:
    libc = stubs.cached_libraries().get("libc.so.6")
    assert libc is None or elf.read(libc).soname == "libc.so.6"
    assert stubs.finder([])("libc.so.6", Path("/nowhere/lib.so")) is not None


def test_no_compiler_is_one_clear_message(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CC", raising=False)
    stubs.build(tmp_path, {})  # nothing is missing, nothing is compiled
    with pytest.raises(stubs.NoCompiler, match=r"found \(tried cc, gcc, clang\); install gcc or clang, or set CC"):
        stubs.build(tmp_path, {"libascendcl.so": {}})
