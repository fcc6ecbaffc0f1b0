"""vLLM and vllm-ascend as the vendor's images have them: built for no device, installed editable from source folders.

Made from the installed wheels: their Python files in a folder each, without the compiled ones, installed by pip and
setuptools with a ``pyproject.toml`` of ours and the version that such a build has. Not the images' own build.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import venv
from pathlib import Path

__all__ = ["build"]

WHERE = """
import importlib.metadata, importlib.util, json, sys
found = {name: importlib.util.find_spec(name).submodule_search_locations[0] for name in ("vllm", "vllm_ascend")}
points = [[e.group, e.name, e.value] for e in importlib.metadata.distribution("vllm-ascend").entry_points]
print(json.dumps([found, points, [path for path in sys.path if path.endswith("site-packages")]]))
"""
PROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "{name}"
version = "{version}"
[tool.setuptools.packages.find]
include = ["{package}*"]
"""


def build(python: Path, release: str, folder: Path) -> Path:
    """The interpreter of such an environment below ``folder``, from the one of ``python`` with vllm-ascend ``release``."""
    found, points, site = json.loads(
        subprocess.run([python, "-c", WHERE], capture_output=True, text=True, check=True).stdout
    )
    environment = folder / "environment"
    venv.create(environment, with_pip=False, symlinks=True)
    own = next((environment / "lib").glob("python*/site-packages"))
    overlay = str(Path(found["vllm"]).parent)
    paths = [path for path in site if path != overlay and not path.startswith(str(python.parents[1]))]
    view = next((python.parents[1] / "lib").glob("python*/site-packages"))
    for name in ("_checkout.pth", "ascend-hotfix.pth"):
        shutil.copy(view / name, own / name)
    (own / "zz_others.pth").write_text("".join(f"{path}\n" for path in paths))
    for name, package, version in (("vllm", "vllm", f"{release}+empty"), ("vllm-ascend", "vllm_ascend", release)):
        source = folder / "workspace" / name
        unwanted = shutil.ignore_patterns("_C*.so", "*.so", "__pycache__", "_build_info.py" if name == "vllm" else "")
        shutil.copytree(found[package], source / package, ignore=unwanted)
        text = PROJECT.format(name=name, package=package, version=version)
        for group in {group for group, _, _ in points} if name == "vllm-ascend" else ():
            text += f'[project.entry-points."{group}"]\n'
            text += "".join(f'{entry} = "{value}"\n' for held, entry, value in points if held == group)
        (source / "pyproject.toml").write_text(text)
        pip = [environment / "bin" / "python", "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
        subprocess.run([*pip, "--no-warn-script-location", "--editable", source], check=True, capture_output=True)
    command = environment / "bin" / "ascend-hotfix"
    command.write_text(
        f"#!{environment / 'bin' / 'python'}\nimport sys\nfrom ascend_hotfix.cli import main\n"
        "if __name__ == '__main__':\n    sys.exit(main())\n"
    )
    command.chmod(0o755)
    return environment / "bin" / "python"
