"""Fresh interpreters: arming and importing run in a process of their own, with small packages standing for vLLM."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
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
