"""The environments that people have: upstream installed editable, user site, inherited and read-only site-packages, another
release put in place.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import COUNT, FAKES, Environment, run

VERSION = "0.18.0+empty"
SETUP = """
from setuptools import find_packages, setup
setup(name="{name}", version="{version}", packages=find_packages(include=["{package}*"]))
"""
ASCEND = {
    "vllm_ascend/__init__.py": "",
    "vllm_ascend/quantization/__init__.py": "",
    "vllm_ascend/quantization/modelslim_config.py": "",
}
# What the seams are told of, without what they do: the small packages stand for upstream here.
TOLD = """
import sys
from ascend_hotfix import seams
told = []
seams.on_import = lambda name, module: told.append(name)
import vllm.model_executor.models.llama, vllm_ascend.quantization.modelslim_config
print(*told, vllm.__file__, vllm_ascend.__file__)
"""
MODULES = [
    "vllm.model_executor.models.utils",
    "vllm.model_executor.models.llama",
    "vllm_ascend.quantization.modelslim_config",
]


def sources(folder: Path) -> dict[str, Path]:
    """Source folders of vllm and vllm-ascend, as the vendor's containers have them."""
    trees = {"vllm": FAKES, "vllm-ascend": ASCEND}
    for name, files in trees.items():
        package = name.replace("-", "_")
        setup = SETUP.format(name=name.replace("-", "_"), package=package, version=VERSION)
        backend = '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
        for file, text in {**files, "setup.py": setup, "pyproject.toml": backend}.items():
            (folder / name / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / name / file).write_text(text)
    return {name: folder / name for name in trees}


def empty(folder: Path, house: Path) -> Environment:
    """An environment without upstream."""
    environment = Environment(folder, house)
    for name in ("vllm", "vllm_ascend"):
        shutil.rmtree(next(environment.site.glob(f"{name}-*.dist-info")))
    return environment


EDITABLE = {
    "finder": [],
    "strict": ["--config-settings", "editable_mode=strict"],
    "compat": ["--config-settings", "editable_mode=compat"],
    "develop": None,
}


@pytest.mark.parametrize("way", EDITABLE)
def test_upstream_that_is_installed_editable_is_armed(way: str, built: Path, house: Path, tmp_path: Path) -> None:
    environment = empty(tmp_path / "venv", house)
    environment.installer("pip", "install", "setuptools", "wheel")
    options = EDITABLE[way]
    found = sources(tmp_path / "src")
    for source in found.values():
        if options is None:
            command = [str(environment.python), "setup.py", "-q", "develop", "--no-deps"]
            subprocess.run(command, cwd=source, check=True, capture_output=True)
        else:
            environment.installer("pip", "install", "--no-build-isolation", "--no-deps", *options, "-e", source)
    environment.installer("pip", "install", next(built.glob("*.whl")))
    finders = environment.code("import sys; print(*[getattr(f, '__module__', '') for f in sys.meta_path])")
    assert ("__editable__" in finders) is (way == "finder"), finders
    *told, vllm, ascend = environment.code(TOLD).split()
    assert told == MODULES
    if way != "strict":  # which links file by file from elsewhere
        assert [Path(vllm).parents[1], Path(ascend).parents[1]] == [found["vllm"], found["vllm-ascend"]]
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("ASCEND_HOTFIX", "PYTHON"))}
    done = subprocess.run(
        [environment.python, "-m", "ascend_hotfix.cli", "status"], capture_output=True, text=True, env=environ, cwd="/"
    )
    assert f"installed: vllm {VERSION}, vllm-ascend {VERSION}," in done.stdout and done.returncode == 0
    assert not re.search(r" 0 of these for the installed versions|unknown base", done.stdout), done.stdout


BASE = Path(getattr(sys, "_base_executable", sys.executable))


@pytest.fixture(scope="module")
def user_site(built: Path, house: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Variables with which the interpreter that environments are made from has our package in its user site."""
    variables = {"PYTHONUSERBASE": str(tmp_path_factory.mktemp("user"))}
    offline = (
        "--no-index",
        "--find-links",
        house,
        "--break-system-packages",
        "--ignore-installed",
        "--no-warn-script-location",
    )
    run(
        sys.executable,
        "-m",
        "pip",
        "--python",
        BASE,
        "install",
        "--user",
        *offline,
        next(built.glob("*.whl")),
        **variables,
    )
    return variables


def test_the_user_site_arms_once(user_site: dict[str, str]) -> None:
    assert run(BASE, "-c", COUNT, **user_site) == "1\n"
    assert run(BASE, "-s", "-c", COUNT, **user_site) == "0\n"  # which is told to leave it alone


def test_an_environment_that_sees_the_site_packages_around_it_is_armed_once(
    user_site: dict[str, str], built: Path, house: Path, tmp_path: Path
) -> None:
    run(BASE, "-m", "venv", "--without-pip", "--system-site-packages", tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    for name, text in {**FAKES, **ASCEND}.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text)
    assert run(python, "-c", TOLD, **user_site).split()[:3] == MODULES
    # and with a copy in each
    options = ("--no-index", "--find-links", house, "--ignore-installed", next(built.glob("*.whl")))
    run(sys.executable, "-m", "pip", "--python", python, "install", *options, **user_site)
    assert run(python, "-c", COUNT, **user_site) == "1\n"
    assert run(python, "-c", TOLD, **user_site).split()[:3] == MODULES


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user can reach, which pytest's are not."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    run("chmod", "-R", "u+w", folder)
    shutil.rmtree(folder)


def test_read_only_site_packages_arm_and_stay_as_they_are(built: Path, house: Path, open_folder: Path) -> None:
    environment = Environment(open_folder / "venv", house)
    for name, text in {**FAKES, **ASCEND}.items():
        (environment.site / name).parent.mkdir(parents=True, exist_ok=True)
        (environment.site / name).write_text(text)
    environment.installer("pip", "install", "--no-compile", next(built.glob("*.whl")))
    for cache in list(environment.site.rglob("__pycache__")):
        shutil.rmtree(cache)
    run("chmod", "-R", "a-w,a+rX", open_folder)
    before = environment.files(compiled=True)
    base = environment.code("import sys; print(sys.base_prefix)").strip()
    others = {"user": 65534, "group": 65534, "extra_groups": ()} if _reaches(base) else {}
    done = subprocess.run(
        [environment.python, "-c", TOLD],
        capture_output=True,
        text=True,
        cwd="/",
        env={"HOME": "/nonexistent"},
        **others,
    )
    assert (done.stderr, done.stdout.split()[:3]) == ("", MODULES)
    if others or os.geteuid():  # root may write where nobody may
        assert environment.files(compiled=True) == before


def _reaches(prefix: str) -> bool:
    """Are we root, and can another user run the interpreter?"""
    steps = [Path(prefix), *Path(prefix).parents]
    return os.geteuid() == 0 and all(step.stat().st_mode & 0o001 for step in steps)


def as_version(wheel: Path, version: str, folder: Path, *more: str) -> Path:
    """A copy of our wheel that says to be another release, with the modules *more* in it."""
    old = wheel.name.split("-")[1]
    target = folder / wheel.name.replace(old, version)
    with zipfile.ZipFile(wheel) as bundle, zipfile.ZipFile(target, "w") as made:
        names = []
        for name in bundle.namelist():
            text = bundle.read(name)
            if name.endswith((".dist-info/METADATA", "ascend_hotfix/__init__.py")):
                text = text.replace(old.encode(), version.encode())
            if not name.endswith("/RECORD"):
                names.append(name.replace(f"-{old}.dist-info", f"-{version}.dist-info"))
                made.writestr(names[-1], text)
        for name in more:
            names.append(f"ascend_hotfix/{name}")
            made.writestr(names[-1], "")
        record = f"ascend_hotfix-{version}.dist-info/RECORD"
        made.writestr(record, "".join(f"{name},,\n" for name in [*names, record]))
    return target


def test_another_release_in_place_arms_once_and_leaves_nothing_of_the_one_before(
    built: Path, house: Path, tmp_path: Path
) -> None:
    environment = Environment(tmp_path / "venv", house)
    before = environment.files()
    wheel = next(built.glob("*.whl"))
    newer = as_version(wheel, "99.0", tmp_path, "only_in_newer.py", "patches/only_in_newer.py")
    older = as_version(wheel, "0.0.1", tmp_path)
    ask = "import ascend_hotfix; print(ascend_hotfix.__version__)"
    for one, version, has_more in ((older, "0.0.1", False), (newer, "99.0", True), (older, "0.0.1", False)):
        environment.installer("pip", "install", "--upgrade", one)
        assert environment.code(COUNT) == "1\n" and environment.code(ask) == f"{version}\n"
        assert bool(list(environment.site.rglob("only_in_newer.py"))) is has_more
        assert len(list(environment.site.glob("ascend_hotfix-*.dist-info"))) == 1
    environment.installer("pip", "uninstall", "ascend-hotfix")
    assert environment.files() == before
