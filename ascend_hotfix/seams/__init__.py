"""The seams: the few places in vLLM and vllm-ascend where names of one space meet those of the next.

``build``: prefixes given to layers. ``lookup``: names asked of the quant description. ``weights``: tensor
names on their way into load_weights. ``params``: names by which a loader looks parameters up. ``config``,
``describe`` and ``ignore``: what is read of config.json, of the description's file and of the lists of other
quantization configs. ``layers``: how layers are built. ``tensors``: tensors that need more than a name. ``environment``:
what Ray's workers are told of the toggles. Each module says where its target lives in every release. The finder calls :func:`on_import`.
"""

from __future__ import annotations

from types import ModuleType

from ascend_hotfix import finder, ledgerfiles, log, toggles

__all__ = ["on_import"]

MODEL_PACKAGES = ("vllm.model_executor.models.", "vllm.models.", "vllm_ascend.models.", "vllm_ascend.patch.")
CONFIG_PACKAGES = ("vllm_ascend.quantization.", "vllm_ascend._310p.quantization.")


def on_import(name: str, module: ModuleType) -> None:
    """Arms what the just imported *module* holds. Raises nothing of ours, unless strict.

    Switched off, it arms nothing but what carries the switch to Ray's workers.
    """
    if toggles.switched_off() and name not in finder.RAY:
        return
    try:
        _arm(name, module)
    except Exception as error:
        log.contained(f"arming {name}", error)


def _arm(name: str, module: ModuleType) -> None:
    if name in finder.RAY:
        from ascend_hotfix.seams import environment

        environment.arm(name, module)
        return
    from ascend_hotfix import scope
    from ascend_hotfix.seams import build, config, describe, layers, lookup, models

    if name == "vllm.engine.arg_utils":  # what starts vLLM imports it first of all, and what is logged shows
        if toggles.ledger():
            ledgerfiles.server()  # those that this process starts inherit it
        scope.announce_early()
    elif name == "vllm.model_executor.models.utils":
        build.arm(module)
        layers.arm(module)
    elif name == "vllm.model_executor.model_loader.utils":
        models.arm(module)
    elif name == "vllm.model_executor.model_loader.weight_utils":
        describe.arm_reader(module)
    elif name == "vllm.transformers_utils.config":
        config.arm(module)
    elif name == "vllm_ascend.quantization.utils":
        config.arm_detection(module)
    elif name.startswith(CONFIG_PACKAGES):
        lookup.arm(module)
    elif name.startswith(MODEL_PACKAGES):
        models.arm_module(module)
