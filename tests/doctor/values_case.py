"""A case for the zygote: what the parameters hold after a load on the CPU, as digests."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping


def digests(model_dir: str, weights_dir: str, renamed: Mapping[str, str]) -> dict[str, str]:
    """Load the tensors of *weights_dir*, under the names that *renamed* gives them, into the model of *model_dir*."""
    import torch

    from ascend_hotfix import scope
    from ascend_hotfix.sim import lab

    scope.reset()
    config = lab.make_config(model_dir)
    model = lab.build(config, device="cpu")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    lab.load(model, config, ((renamed.get(name, name), tensor) for name, tensor in lab.iter_weights(weights_dir)))
    found = {}
    for name, parameter in model.named_parameters():
        data = parameter.detach().contiguous().view(torch.uint8).numpy().tobytes()
        found[name] = hashlib.sha256(data).hexdigest()
    return found
