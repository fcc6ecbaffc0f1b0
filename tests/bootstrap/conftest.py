"""Fresh interpreters: arming and importing run in a process of their own, with small packages standing for vLLM."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]

FAKES = {
    "vllm/__init__.py": "",
    "vllm/engine/__init__.py": "",
    "vllm/engine/arg_utils.py": "LATE = 1\n",
    "vllm/other.py": "",
    "vllm/ray/__init__.py": "",
    "vllm/ray/ray_env.py": "",
    "vllm/model_executor/__init__.py": "",
    "vllm/model_executor/models/__init__.py": "",
    "vllm/model_executor/models/utils.py": "def maybe_prefix(prefix, name):\n    return f'{prefix}.{name}'\n",
    "vllm/model_executor/models/llama.py": "from .utils import maybe_prefix\n",
    "vllm/model_executor/models/deep/__init__.py": "",
    "vllm/model_executor/models/deep/inner.py": "",
    "vllm/model_executor/models/broken.py": "raise RuntimeError('upstream is broken')\n",
}

# ``told`` records what the seams would have been told of; the real seams need the real vLLM.
RECORDER = """
import sys, types
told = []
class Recorder(types.ModuleType):
    def on_import(self, name, module):
        told.append(name)
seams = sys.modules["ascend_hotfix.seams"] = Recorder("ascend_hotfix.seams")
def ours():
    return [finder for finder in sys.meta_path if type(finder).__name__ == "Finder"]
"""


class Fresh:
    """Runs code in a new interpreter that reads no ``.pth`` file and gives what the code left in ``result``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stderr = ""
        self.write(FAKES)

    def write(self, files: Mapping[str, str]) -> None:
        for name, text in files.items():
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_text(text)

    def __call__(self, code: str, *, recorder: bool = True, path: tuple[str, ...] = (), **env: str) -> Any:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("ASCEND_HOTFIX", "PYTHON"))}
        script = (RECORDER if recorder else "") + dedent(code) + "\nimport json as _json\nprint(_json.dumps(result))\n"
        done = subprocess.run(
            [sys.executable, "-S", "-c", script],
            env={**kept, "PYTHONPATH": os.pathsep.join([str(ROOT), str(self.folder), *path]), **env},
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=60,
        )
        self.stderr = done.stderr
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture
def fresh(tmp_path: Path) -> Fresh:
    return Fresh(tmp_path)


# Installed environments: the packages are built once; pip and uv then install from a folder of wheels.

WHEELS = ("hatchling>=1.27", "editables", "wrapt>=1.16,<3", "setuptools==77.0.3", "wheel")
COUNT = "import sys; print(sum(type(finder).__name__ == 'Finder' for finder in sys.meta_path))"


def run(*command: str | Path, **env: str) -> str:
    """Output of *command*, without what the surrounding tests put into the environment."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("ASCEND_HOTFIX", "PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run(
        [str(part) for part in command], env={**kept, **env}, capture_output=True, text=True, timeout=300, cwd="/"
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="session")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of wheels with what an installation needs; the only step that asks a registry."""
    folder = tmp_path_factory.mktemp("house")
    run(sys.executable, "-m", "pip", "download", "-q", "-d", folder, *WHEELS)
    return folder


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Our wheel and our sdist."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-d", str(folder)], cwd=ROOT, check=True)
    return folder


class Environment:
    """A virtual environment with wrapt and with distributions standing for an installed upstream."""

    def __init__(self, folder: Path, house: Path) -> None:
        self.python = folder / "bin" / "python"
        self.offline = ("--no-index", "--find-links", house)
        run(sys.executable, "-m", "venv", "--without-pip", folder)
        self.site = Path(self.code("import sysconfig; print(sysconfig.get_path('purelib'))").strip())
        self.installer("pip", "install", "wrapt")
        # Python 3.13 imports a codec for the first .pth file, whoever's it is.
        (self.site / "another.pth").write_text("# of some other package\n")
        for name, version in (("torch", "2.8.0"), ("vllm", "0.11.0"), ("vllm_ascend", "0.11.0")):
            info = self.site / f"{name}-{version}.dist-info"
            info.mkdir()
            (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
            (info / "INSTALLER").write_text("pip\n")
            (info / "RECORD").write_text("")

    def code(self, code: str, *options: str, **env: str) -> str:
        return run(self.python, *options, "-c", code, **env)

    def installer(self, tool: str, verb: str, *arguments: str | Path) -> str:
        if tool == "uv":
            head: Iterable[str | Path] = (sys.executable, "-m", "uv", "pip", verb, "--python", self.python)
        else:
            head = (sys.executable, "-m", "pip", "--python", self.python, verb)
        options = self.offline if verb == "install" else ("-y",) if tool == "pip" else ()
        return run(*head, *options, *arguments)

    def files(self, compiled: bool = False) -> dict[str, str]:
        """Every file and folder, with the digest of a file; without others' *compiled* code, and the lock that uv leaves."""
        root = self.python.parents[1]
        names = [path.relative_to(root) for path in root.rglob("*") if path.name != ".lock"]
        return {
            str(name): hashlib.sha256((root / name).read_bytes()).hexdigest() if (root / name).is_file() else ""
            for name in names
            if compiled or "__pycache__" not in name.parts or "ascend_hotfix" in name.parts
        }

    def modules(self, **env: str) -> list[str]:
        return json.loads(self.code("import sys, json; print(json.dumps(sorted(sys.modules)))", **env))
