"""Run inside an upstream environment."""

from __future__ import annotations

from typing import Any


def kernels() -> dict[str, list[str]]:
    """What of the simulation's kernels is in this process."""
    import sys

    registry = sys.modules.get("ascend_hotfix.sim.kernels.registry")
    return {
        "registered": sorted(registry.registered()) if registry else [],
        "defined": sorted(registry._libraries) if registry else [],
    }


def without_groups(model_dir: str) -> Any:
    """A dry run whose process groups have no backend for an NPU."""
    import torch

    from ascend_hotfix.doctor import rehearse

    torch.distributed.Backend.backend_capability["gloo"].remove("npu")
    return rehearse.check(model_dir)
