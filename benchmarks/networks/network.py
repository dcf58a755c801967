"""What a network of the suite is: where it is built, what it reads, what was published of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
CALIBRATION_SEEDS = (1, 2, 3, 4)
"""Of the inputs a runtime may see beforehand; those that are measured have seed 0."""


class Draw(StrEnum):
    """How the values of an input are drawn."""

    NORMAL = "normal"
    TOKENS = "tokens"
    MASK = "mask"


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkInput:
    """One input of a network."""

    name: str  # As in the ONNX file
    shape: tuple[int, ...]  # Static, batch first
    # Standard normal float32; int64 tokens; or an int64 mask whose last quarter is 0.
    draw: Draw = Draw.NORMAL
    below: int = 0  # Number of different tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """One network of the suite."""

    title: str  # As tables call it
    # `module:function` of this package; the function returns a `torch.nn.Module`. For a shipped
    # network `shipped:` and the name of its file.
    builder: str
    inputs: tuple[NetworkInput, ...]  # In the order of `forward`
    parameters: int = 0  # Number of trained values as published; 0 where none was
    source: str  # The publication whose layers, widths and activations it has
    # True if the ONNX file comes with the onnx package and is not exported.
    is_shipped: bool = False


def sample_inputs(network: Network, *, seed: int, batch: int = 1) -> dict[str, Array]:
    """Return seeded values for every input, `batch` times as many along the first dimension."""
    rng = np.random.default_rng(seed)
    return {tensor.name: _drawn(tensor, rng, batch) for tensor in network.inputs}


def _drawn(tensor: NetworkInput, rng: np.random.Generator, batch: int) -> Array:
    shape = (tensor.shape[0] * batch, *tensor.shape[1:])
    match tensor.draw:
        case Draw.NORMAL:
            return rng.standard_normal(shape).astype(np.float32)
        case Draw.TOKENS:
            return rng.integers(0, tensor.below, shape, dtype=np.int64)
        case Draw.MASK:
            mask = np.ones(shape, np.int64)
            mask[..., shape[-1] - shape[-1] // 4 :] = 0
            return mask
