"""A case for the zygote: what the parameters of target and draft hold after a load on the CPU, as digests."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any


def digests(model_dir: str, weights_dir: str, renamed: Mapping[str, str]) -> dict[str, str]:
    """Load the tensors of *weights_dir*, under the names that *renamed* gives them, into the models of *model_dir*.

    Parameters of the draft have ``draft:`` in front. A draft that does not load is one entry, with the error's type.
    """
    from ascend_hotfix import scope
    from ascend_hotfix.doctor.checkpoint import read_checkpoint
    from ascend_hotfix.doctor.drafts import draft_tensors
    from ascend_hotfix.sim import lab

    scope.reset()
    checkpoint = read_checkpoint(model_dir)
    drafting = None
    if draft_tensors(checkpoint.tensors, checkpoint.config):
        try:
            drafting = lab.draft_config(model_dir)
        except Exception:
            drafting = None  # no draft in this release
    config = drafting or lab.make_config(model_dir)
    target = lab.build(config, device="cpu")
    found = loaded(target, config, weights_dir, renamed)
    if drafting is not None:
        try:
            draft, own = lab.build_draft(config, device="cpu")
            held = loaded(draft, own, weights_dir, renamed)
        except Exception as error:
            held = {"": type(error).__name__}
        found.update((f"draft:{name}", digest) for name, digest in held.items())
    return found


def loaded(model: Any, config: Any, weights_dir: str, renamed: Mapping[str, str]) -> dict[str, str]:
    """The digest of each parameter of *model* once it is loaded; what is not written is zero."""
    import torch

    from ascend_hotfix.sim import lab

    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    lab.load(model, config, ((renamed.get(name, name), tensor) for name, tensor in lab.iter_weights(weights_dir)))
    found = {}
    for name, parameter in model.named_parameters():
        data = parameter.detach().contiguous().view(torch.uint8).numpy().tobytes()
        found[name] = hashlib.sha256(data).hexdigest()
    return found
