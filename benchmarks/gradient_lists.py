"""Gradient lists of well-known networks, made from their published layer shapes.

A list is in the order of backward. Each gradient has its size in float32 and the work of its
layer's backward pass: twice the forward multiply-adds, for the inputs and for the weights.

Source: K. He et al., Deep Residual Learning (2015), table 1; K. Simonyan, A. Zisserman, Very Deep
Convolutional Networks (2014), table 1, column D; J. Devlin et al., BERT (2018), BASE.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from aoe.gradients.trace import GradientTrace

FLOAT_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One parameter: its elements, and the floating-point operations of its backward pass."""

    name: str
    elements: int
    flops: float


def gradient_trace(network: str, *, batch: int, tflops: float) -> GradientTrace:
    """Return the trace of a network on a device that keeps up so many TFLOP/s."""
    parameters = [*NETWORKS[network]()][::-1]
    ready, now_us = [], 0.0
    for parameter in parameters:
        now_us += parameter.flops * batch / (tflops * 1e6)
        ready.append(now_us)
    return GradientTrace(
        sizes_bytes=tuple(parameter.elements * FLOAT_BYTES for parameter in parameters),
        dtypes=("float32",) * len(parameters),
        names=tuple(parameter.name for parameter in parameters),
        ready_us=tuple(ready),
        loops=0,
    )


def resnet50() -> Iterator[Parameter]:
    """Yield the parameters of ResNet-50 in the order of forward, for one image of 224x224."""
    yield from _convolution("stem", 3, 64, 7, 112)
    yield from _normalization("stem.norm", 64, 112)
    channels = 64
    for stage, (blocks, width, side) in enumerate(
        ((3, 64, 56), (4, 128, 28), (6, 256, 14), (3, 512, 7))
    ):
        for block in range(blocks):
            name = f"stage{stage}.{block}"
            before = side * 2 if block == 0 and stage else side
            yield from _convolution(f"{name}.a", channels, width, 1, before)
            yield from _normalization(f"{name}.a.norm", width, before)
            yield from _convolution(f"{name}.b", width, width, 3, side)
            yield from _normalization(f"{name}.b.norm", width, side)
            yield from _convolution(f"{name}.c", width, 4 * width, 1, side)
            yield from _normalization(f"{name}.c.norm", 4 * width, side)
            if block == 0:
                yield from _convolution(f"{name}.skip", channels, 4 * width, 1, side)
                yield from _normalization(f"{name}.skip.norm", 4 * width, side)
            channels = 4 * width
    yield from _dense("classes", channels, 1000, 1)


def vgg16() -> Iterator[Parameter]:
    """Yield the parameters of VGG-16 in the order of forward, for one image of 224x224."""
    channels, side = 3, 224
    for stage, (layers, width) in enumerate(((2, 64), (2, 128), (3, 256), (3, 512), (3, 512))):
        for layer in range(layers):
            name = f"stage{stage}.{layer}"
            yield from _convolution(name, channels, width, 3, side)
            yield Parameter(name=f"{name}.bias", elements=width, flops=width * side**2)
            channels = width
        side //= 2
    for name, inputs, outputs in (
        ("dense0", channels * side**2, 4096),
        ("dense1", 4096, 4096),
        ("classes", 4096, 1000),
    ):
        yield from _dense(name, inputs, outputs, 1)


def bert_base(tokens: int = 128) -> Iterator[Parameter]:
    """Yield the parameters of BERT-base in the order of forward, for one sequence."""
    width = 768
    for name, elements in (("words", 30522), ("positions", 512), ("segments", 2)):
        yield Parameter(name=f"embed.{name}", elements=elements * width, flops=2 * tokens * width)
    yield from _layer_norm("embed.norm", width, tokens)
    for layer in range(12):
        for name in ("query", "key", "value", "merge"):
            yield from _dense(f"layer{layer}.{name}", width, width, tokens)
        yield from _layer_norm(f"layer{layer}.norm0", width, tokens)
        yield from _dense(f"layer{layer}.grow", width, 4 * width, tokens)
        yield from _dense(f"layer{layer}.shrink", 4 * width, width, tokens)
        yield from _layer_norm(f"layer{layer}.norm1", width, tokens)
    yield from _dense("pooler", width, width, 1)


NETWORKS = {"resnet50": resnet50, "bert_base": bert_base, "vgg16": vgg16}


def _convolution(
    name: str, inputs: int, outputs: int, kernel: int, side: int
) -> Iterator[Parameter]:
    elements = inputs * outputs * kernel**2
    yield Parameter(name=name, elements=elements, flops=4.0 * elements * side**2)


def _normalization(name: str, channels: int, side: int) -> Iterator[Parameter]:
    for part in ("weight", "bias"):
        yield Parameter(name=f"{name}.{part}", elements=channels, flops=5.0 * channels * side**2)


def _layer_norm(name: str, width: int, tokens: int) -> Iterator[Parameter]:
    for part in ("weight", "bias"):
        yield Parameter(name=f"{name}.{part}", elements=width, flops=5.0 * width * tokens)


def _dense(name: str, inputs: int, outputs: int, tokens: int) -> Iterator[Parameter]:
    elements = inputs * outputs
    yield Parameter(name=f"{name}.weight", elements=elements, flops=4.0 * elements * tokens)
    yield Parameter(name=f"{name}.bias", elements=outputs, flops=float(outputs * tokens))
