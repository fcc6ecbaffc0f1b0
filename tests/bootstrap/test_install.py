"""Every way to install arms every interpreter of the environment the same way, and uninstalling leaves nothing behind.

The packages are built once; pip and uv then install from a folder of wheels into environments made for each way.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
from conftest import COUNT, ROOT, Environment, run

OURS = ["ascend_hotfix", "ascend_hotfix.finder", "ascend_hotfix.gate", "ascend_hotfix.toggles"]


@pytest.fixture(scope="session")
def rebuilt(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that the sdist gives."""
    folder = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(next(built.glob("*.tar.gz"))) as archive:
        archive.extractall(folder)
    [tree] = folder.iterdir()
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)], cwd=tree, check=True)
    return next(folder.glob("*.whl"))


WAYS = {
    "pip wheel": ("pip", lambda built: [next(built.glob("*.whl"))]),
    "pip sdist": ("pip", lambda built: [next(built.glob("*.tar.gz"))]),
    "pip editable": ("pip", lambda built: ["-e", ROOT]),
    "uv wheel": ("uv", lambda built: [next(built.glob("*.whl"))]),
    "uv editable": ("uv", lambda built: ["-e", ROOT]),
}


@pytest.fixture(scope="module", params=WAYS)
def installed(request, built: Path, house: Path, tmp_path_factory: pytest.TempPathFactory):
    """An environment with the package, and what it was before."""
    tool, arguments = WAYS[request.param]
    environment = Environment(tmp_path_factory.mktemp("env") / "venv", house)
    before = environment.files(), environment.modules(), environment.code(META_PATH)
    environment.installer(tool, "install", *arguments(built))
    return environment, before, tool


META_PATH = "import sys; print([getattr(finder, '__name__', type(finder).__name__) for finder in sys.meta_path])"


@pytest.mark.parametrize("options", [(), ("-I",), ("-E",)])
def test_every_interpreter_is_armed_once(installed, options):
    environment, _, _ = installed
    assert environment.code(COUNT, *options) == "1\n"


def test_an_interpreter_that_reads_no_pth_file_is_left_alone(installed):
    environment, _, _ = installed
    assert environment.code(COUNT, "-S") == "0\n"


def test_a_bare_start_imports_two_modules_and_their_package(installed):
    environment, (_, modules, _), _ = installed
    assert sorted(set(environment.modules()) - set(modules)) == OURS


def test_switched_off_a_bare_start_imports_no_more(installed):
    environment, (_, modules, _), _ = installed
    assert sorted(set(environment.modules(ASCEND_HOTFIX_MODELS="none")) - set(modules)) == OURS


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_child_processes_are_armed_once(installed, method, tmp_path):
    environment, _, _ = installed
    script = tmp_path / "parent.py"
    script.write_text(
        f"""
import multiprocessing, sys
def child(queue):
    queue.put(sum(type(finder).__name__ == "Finder" for finder in sys.meta_path))
if __name__ == "__main__":
    context = multiprocessing.get_context({method!r})
    queue = context.Queue()
    process = context.Process(target=child, args=(queue,))
    process.start()
    print(queue.get(timeout=60))
    process.join()
"""
    )
    assert run(environment.python, script) == "1\n"


def test_the_plugin_entry_point_arms_no_second_time(installed):
    environment, _, _ = installed
    load = (
        "import importlib.metadata as m; [p] = [p for p in m.entry_points(group='vllm.general_plugins') "
        "if p.name == 'ascend_hotfix']; p.load()(); "
    )
    assert environment.code(load + COUNT) == "1\n"
    assert environment.code("import sys; sys.meta_path.pop(0); " + load + COUNT) == "1\n"


def test_patches_and_types_are_installed(installed):
    environment, _, _ = installed
    names = environment.code(
        "import pkgutil, ascend_hotfix.patches, importlib.resources; "
        "print(importlib.resources.files(ascend_hotfix).joinpath('py.typed').is_file(), "
        "*[module.name for module in pkgutil.walk_packages(ascend_hotfix.patches.__path__, 'ascend_hotfix.patches.')])"
    ).split()
    files = sorted((ROOT / "patches").glob("*/*.py"))
    dotted = [".".join(("ascend_hotfix", *file.relative_to(ROOT).with_suffix("").parts)) for file in files]
    assert names[0] == "True" and len(files) > 40
    assert sorted(names[1:]) == sorted(name.removesuffix(".__init__") for name in dotted)


def test_upstream_is_left_alone_and_uninstalling_leaves_nothing_behind(installed):
    """Runs last in each environment: it takes the package out."""
    environment, (files, modules, meta_path), tool = installed
    changed = {name for name, digest in files.items() if environment.files().get(name) != digest}
    assert changed == set()
    added = {name.split("/")[-1] for name in environment.files() if name.endswith(".dist-info") and name not in files}
    assert added == {f"ascend_hotfix-{version()}.dist-info"}
    environment.installer(tool, "uninstall", "ascend-hotfix")
    assert environment.files() == files
    assert (environment.modules(), environment.code(META_PATH)) == (modules, meta_path)


def version() -> str:
    import ascend_hotfix

    return ascend_hotfix.__version__


# What is in the packages


def digests(wheel: Path) -> dict[str, str]:
    with zipfile.ZipFile(wheel) as bundle:
        return {name: hashlib.sha256(bundle.read(name)).hexdigest() for name in bundle.namelist()}


def test_the_sdist_gives_the_same_wheel(built, rebuilt):
    assert digests(rebuilt) == digests(next(built.glob("*.whl")))


def test_the_wheel_holds_every_file_of_the_package_and_nothing_else(built):
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "ascend_hotfix", "patches"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    expected = {
        name.removeprefix("ascend_hotfix/bootstrap/") if name.startswith("ascend_hotfix/bootstrap/") else name
        for name in (f"ascend_hotfix/{name}" if name.startswith("patches/") else name for name in listed)
        if name != "ascend_hotfix/patches" and (ROOT / name.replace("ascend_hotfix/patches", "patches")).is_file()
    }
    have = {name for name in digests(next(built.glob("*.whl"))) if ".dist-info/" not in name}
    assert have == expected


def test_wrapt_is_the_only_dependency(built):
    with zipfile.ZipFile(next(built.glob("*.whl"))) as bundle:
        [name] = [name for name in bundle.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = Parser().parsestr(bundle.read(name).decode())
    needed = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]
    assert [line.replace(" ", "") for line in needed] in (["wrapt<3,>=1.16"], ["wrapt>=1.16,<3"])
