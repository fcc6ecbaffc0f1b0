"""Stub CANN libraries: just enough symbols for the real ``libtorch_npu.so`` to be imported.

Every function returns 0 and does nothing; no kernel is ever launched through them. The libraries are compiled once
per user with the system's C compiler and loaded by SONAME before ``torch_npu``, so no ``LD_LIBRARY_PATH`` is needed.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from ascend_hotfix.sim.cache import entry

__all__ = ["FUNCTIONS", "LIBRARIES", "build", "preload", "source"]

# The undefined CANN symbols of torch_npu 2.13.0's libtorch_npu.so: `nm -D --undefined-only`, names that start with
# acl, rt or Msprof.
FUNCTIONS = (
    "MsprofGetHashId",
    "MsprofRegisterCallback",
    "MsprofReportAdditionalInfo",
    "MsprofReportApi",
    "MsprofReportCompactInfo",
    "MsprofSysCycleTime",
    "aclAppLog",
    "aclCreateDataBuffer",
    "aclCreateTensorDesc",
    "aclDestroyDataBuffer",
    "aclDestroyTensorDesc",
    "aclFinalize",
    "aclGetDeviceCapability",
    "aclGetRecentErrMsg",
    "aclGetTensorDescDimV2",
    "aclGetTensorDescFormat",
    "aclGetTensorDescNumDims",
    "aclGetTensorDescType",
    "aclInit",
    "aclSetTensorDescName",
    "aclSetTensorFormat",
    "aclSetTensorPlaceMent",
    "aclSetTensorShape",
    "aclmdlFinalizeDump",
    "aclmdlInitDump",
    "aclmdlSetDump",
    "aclopCompileAndExecute",
    "aclopCreateAttr",
    "aclopDestroyAttr",
    "aclopSetAttrBool",
    "aclopSetAttrDataType",
    "aclopSetAttrFloat",
    "aclopSetAttrInt",
    "aclopSetAttrListBool",
    "aclopSetAttrListFloat",
    "aclopSetAttrListInt",
    "aclopSetAttrListListInt",
    "aclopSetAttrString",
    "aclrtBinaryGetFunction",
    "aclrtBinaryLoadFromData",
    "aclrtCreateEventExWithFlag",
    "aclrtCreateStream",
    "aclrtCreateStreamWithConfig",
    "aclrtDestroyEvent",
    "aclrtDestroyStream",
    "aclrtDeviceCanAccessPeer",
    "aclrtDeviceEnablePeerAccess",
    "aclrtDeviceGetBareTgid",
    "aclrtEventElapsedTime",
    "aclrtFree",
    "aclrtFreeHost",
    "aclrtFreePhysical",
    "aclrtGetCurrentContext",
    "aclrtGetDevice",
    "aclrtGetDeviceCount",
    "aclrtGetFunctionAddr",
    "aclrtGetMemInfo",
    "aclrtGetSocName",
    "aclrtMalloc",
    "aclrtMallocHost",
    "aclrtMallocPhysical",
    "aclrtMapMem",
    "aclrtMemExportToShareableHandle",
    "aclrtMemImportFromShareableHandle",
    "aclrtMemSetPidToShareableHandle",
    "aclrtMemcpy",
    "aclrtMemcpyAsync",
    "aclrtMemset",
    "aclrtProcessReport",
    "aclrtRecordEvent",
    "aclrtReleaseMemAddress",
    "aclrtReserveMemAddress",
    "aclrtResetDevice",
    "aclrtResetEvent",
    "aclrtSetCurrentContext",
    "aclrtSetDevice",
    "aclrtStreamWaitEvent",
    "aclrtSynchronizeEvent",
    "aclrtSynchronizeStream",
    "aclrtUnmapMem",
    "rtDevBinaryRegister",
    "rtFunctionRegister",
    "rtGetC2cCtrlAddr",
    "rtKernelLaunch",
)

# The CANN libraries libtorch_npu.so asks the loader for (its DT_NEEDED entries). The first one carries every symbol.
LIBRARIES = (
    "ascendcl",
    "hccl",
    "acl_op_compiler",
    "ge_runner",
    "graph",
    "acl_tdt_channel",
    "atb",
    "fmk_parser",
    "ascend_protobuf",
)

_loaded: list[ctypes.CDLL] = []


def source(functions: tuple[str, ...]) -> str:
    """C source in which each function returns 0; the arguments are left to the caller, as the C ABI allows."""
    return "\n".join(f"long {name}(void) {{ return 0; }}" for name in functions) + "\n"


def _compiler() -> str:
    candidates = [name for name in (os.environ.get("CC"), "cc", "gcc", "clang") if name]
    for name in candidates:
        path = shutil.which(name)
        if path:
            return path
    raise RuntimeError(
        f"simulated NPU: no C compiler found (tried {', '.join(candidates)}); "
        "install gcc or clang, or set CC, to build the CANN stubs"
    )


def _compile(directory: Path) -> None:
    compiler = _compiler()
    for library in LIBRARIES:
        code = source(FUNCTIONS) if library == LIBRARIES[0] else source((f"stub_{library}",))
        soname = f"lib{library}.so"
        done = subprocess.run(
            [compiler, "-shared", "-fPIC", f"-Wl,-soname,{soname}", "-x", "c", "-", "-o", str(directory / soname)],
            input=code,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(
                f"simulated NPU: {compiler} could not build the CANN stub {soname}: {done.stderr.strip()}"
            )


def build() -> Path:
    """The directory with the stub libraries, compiled on first use."""
    digest = hashlib.sha256(repr((FUNCTIONS, LIBRARIES, os.uname().machine)).encode()).hexdigest()[:12]
    return entry(f"cann-{digest}", _compile)


def preload() -> None:
    """Load the stubs into this process, globally, so that the loader finds them when ``torch_npu`` asks by SONAME."""
    if _loaded:
        return
    directory = build()
    for library in LIBRARIES:
        _loaded.append(ctypes.CDLL(str(directory / f"lib{library}.so"), mode=ctypes.RTLD_GLOBAL))
