"""Run the real vLLM and vllm-ascend on a machine without an NPU.

What is simulated is the NPU alone: the CANN libraries are stubs, the NPU's kernels are CPU reference kernels
registered on the op schemas of the real ``torch_npu``, and the device half of vllm-ascend's platform answers for the
CPU. Every other line that runs is upstream's. Nothing that runs here says anything about an NPU's numbers or speed.

The simulation is on in a process when ``ASCEND_HOTFIX_SIM=1`` is set and the environment has the ``.pth`` line that
imports :mod:`ascend_hotfix.sim.boot` (``ascend_hotfix.sim.envs`` writes it), or when
:func:`ascend_hotfix.sim.lab.prepare` is called.
"""

from __future__ import annotations

__all__: list[str] = []
