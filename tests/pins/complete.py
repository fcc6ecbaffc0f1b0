"""A complete stand-in for CANN in a folder, as an installed one lies there: every library and symbol that torch_npu asks for.

It says that there are eight NPUs, unless none is visible, and notes each call that would open one, take its memory or
start work on it.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from ascend_hotfix.sim import stubs

__all__ = ["NOTED", "NPUS", "build", "calls"]

NPUS = 8
NOTED = (
    "aclrtSetDevice",
    "aclrtCreateContext",
    "aclrtCreateStream",
    "aclrtCreateStreamWithConfig",
    "aclrtMalloc",
    "aclrtMallocAlign32",
    "aclrtMallocPhysical",
    "aclrtReserveMemAddress",
    "aclopCompileAndExecute",
    "HcclCommInitAll",
    "HcclCommInitRootInfo",
    "rtSetDevice",
    "rtKernelLaunch",
)
OPENED_BY_NAME = ("libopapi.so",)
"""torch_npu opens it while it is imported; no library needs it."""

SPECIAL = """
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static long note(const char *name) {
    const char *file = getenv("CANN_CALLS");
    int out = file ? open(file, O_WRONLY | O_APPEND | O_CREAT, 0600) : -1;
    if (out >= 0) { write(out, name, strlen(name)); write(out, "\\n", 1); close(out); }
    return 0;
}
int aclrtGetDeviceCount(unsigned *count) {
    const char *visible = getenv("ASCEND_RT_VISIBLE_DEVICES");
    *count = visible && !*visible ? 0 : NPUS;
    return 0;
}
""".replace("NPUS", str(NPUS))


def build(package: Path, torch: Path, target: Path) -> None:
    """Compile it for the torch_npu in ``package``, whose torch is the package ``torch``, into the folder ``target``."""
    roots = [*sorted((package / "lib").glob("*.so")), *sorted(package.glob("_C*.so"))]
    libraries = stubs.missing(stubs.closure(roots, stubs.finder([torch / "lib", package / "lib", package])))
    libraries |= {name: {} for name in OPENED_BY_NAME}
    carrier = "libascendcl.so"
    special = {name for symbols in libraries.values() for name in symbols if name in (*NOTED, "aclrtGetDeviceCount")}
    stubs.build(target, {name: {s: v for s, v in held.items() if s not in special} for name, held in libraries.items()})
    noted = "".join(f'long {name}(void) {{ return note("{name}"); }}\n' for name in sorted(special & set(NOTED)))
    code = SPECIAL + noted + stubs.source(set(libraries[carrier]) - special)
    command = [stubs.compiler(), "-shared", "-fPIC", "-w", f"-Wl,-soname,{carrier}", "-x", "c", "-"]
    subprocess.run([*command, "-o", str(target / carrier)], input=code, text=True, check=True)


def calls(file: Path) -> list[str]:
    """What was noted in ``file``, which ``CANN_CALLS`` named."""
    return file.read_text().split() if file.exists() else []
