"""From a line of the registry to a module with seeded weights, activations around one.

A network whose activations vanish or explode would hide a wrong result, or make a right one look
wrong; one whose channels are all alike would hide channels that are mixed up.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterator

import torch
from networks.network import sample_inputs
from networks.registry import NETWORKS
from torch import nn

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
_EMBEDDING_STD = 0.05
_FREE_STD = 0.02
_CALIBRATION_BATCH = 4
_SEED = 0


def build_module(name: str, *, seed: int = _SEED) -> nn.Module:
    """Return a network of the registry, ready for inference, the same at every call."""
    network = NETWORKS[name]
    file, function = network.builder.split(":")
    home = importlib.import_module(f"networks.{file}")
    if network.is_shipped:
        module: nn.Module = home.shipped(function).eval()
    else:
        module = getattr(home, function)().eval()
        draw_weights(module, seed=seed)
        inputs = sample_inputs(network, seed=seed + 1, batch=_CALIBRATION_BATCH)
        calibrate_statistics(module, tuple(map(torch.from_numpy, inputs.values())))
    return module.requires_grad_(False)


def draw_weights(module: nn.Module, *, seed: int) -> None:
    """Give every parameter of a module a seeded value by the role of the layer that holds it.

    A convolution or normalization with an attribute `gain` gets weights so many times as large:
    branches that are added many times over need a small one.

    Source: K. He et al., "Delving deep into rectifiers", 2015, for the scale of filters; matrices
    have no rectifier in front of them and get half of that variance.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter, owner in _owned(module):
            if name == "weight" and isinstance(owner, _WEIGHT_STD_OWNERS):
                parameter.normal_(0, _weight_std(owner), generator=generator)
            elif isinstance(owner, nn.LSTM):
                bound = 1 / math.sqrt(owner.hidden_size)
                parameter.uniform_(-bound, bound, generator=generator)
            elif isinstance(owner, nn.PReLU):
                parameter.uniform_(0.1, 0.4, generator=generator)
            elif name == "bias":
                parameter.normal_(0, 0.1, generator=generator)
            elif parameter.dim() == 1:  # the scale of a normalization, or of a whole layer
                gain = float(getattr(owner, "gain", 1.0))
                parameter.uniform_(0.5 * gain, 1.5 * gain, generator=generator)
            else:  # positions, class tokens
                parameter.normal_(0, _FREE_STD, generator=generator)


_WEIGHT_STD_OWNERS = (*_CONVOLUTIONS, *_TRANSPOSED, nn.Linear, nn.Embedding)


def calibrate_statistics(module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
    """Set the statistics of every BatchNorm to those of what reaches it, as training would."""
    norms = [layer for layer in module.modules() if isinstance(layer, _BATCH_NORMS)]
    if not norms:
        return
    momenta = [layer.momentum for layer in norms]
    for layer in norms:
        layer.train()
        layer.momentum = 1.0
    with torch.no_grad():
        module(*inputs)
    for layer, momentum in zip(norms, momenta, strict=True):
        layer.momentum = momentum
        layer.eval()


def _owned(module: nn.Module) -> Iterator[tuple[str, nn.Parameter, nn.Module]]:
    """Yield each parameter once with the layer that holds it, in the order of registration."""
    seen: set[int] = set()
    for owner in module.modules():
        for name, parameter in owner.named_parameters(recurse=False):
            if id(parameter) not in seen:
                seen.add(id(parameter))
                yield name, parameter, owner


def _weight_std(layer: nn.Module) -> float:
    if isinstance(layer, nn.Embedding):
        return _EMBEDDING_STD
    if isinstance(layer, nn.Linear):
        return math.sqrt(1 / layer.in_features)
    assert isinstance(layer, (*_CONVOLUTIONS, *_TRANSPOSED))
    taps = math.prod(layer.kernel_size)
    if isinstance(layer, _TRANSPOSED):
        taps /= math.prod(layer.stride)
    gain = float(getattr(layer, "gain", 1.0))
    return gain * math.sqrt(2 / (layer.in_channels // layer.groups * taps))
