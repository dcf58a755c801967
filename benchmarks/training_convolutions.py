"""Convolutions of a training step beside PyTorch's own: each part by each way.

    python benchmarks/training_convolutions.py

One thread, float32, CPU time, medians of pairs, each in the other order than the one before; the
table is for docs/pytorch.md.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from pathlib import Path
from statistics import median

import torch

from aoe.device.registry import resolve_target
from aoe.device.toolchain import find_toolchain
from aoe.torch.modules.training import choice
from aoe.torch.modules.training.convolution_ways import (
    WAYS,
    Attributes,
    Compute,
    Convolution,
    Part,
    load_library,
)
from aoe.torch.modules.training.loops import LoopCompiler
from aoe.torch.modules.training.region_settings import RegionSettings
from aoe.torch.options import engine_settings

SHAPES = (  # images, channels read, channels written, extent, filter, stride, groups, channels last
    *((4, 64, 64, 56, 3, 1, 1, False), (8, 64, 64, 28, 3, 1, 1, False)),
    *((4, 64, 64, 16, 3, 1, 1, False), (4, 128, 128, 28, 3, 1, 1, False)),
    *((8, 128, 128, 14, 3, 1, 1, False), (4, 256, 256, 14, 3, 1, 1, False)),
    *((4, 256, 256, 4, 3, 1, 1, False), (4, 512, 512, 7, 3, 1, 1, False)),
    *((4, 512, 512, 2, 3, 1, 1, False), (4, 256, 512, 4, 3, 2, 1, False)),
    *((4, 64, 256, 28, 1, 1, 1, False), (4, 256, 64, 28, 1, 1, 1, False)),
    *((4, 96, 96, 56, 7, 1, 96, False), (4, 96, 96, 56, 7, 1, 96, True)),
    *((4, 384, 384, 14, 7, 1, 384, False), (4, 384, 384, 14, 7, 1, 384, True)),
    *((4, 144, 144, 56, 3, 1, 144, False), (4, 128, 128, 28, 3, 1, 32, False)),
)
PAIRS = 15
LEAST_S = 0.003


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=PAIRS)
    pairs = parser.parse_args().pairs
    torch.set_num_threads(1)
    torch.manual_seed(0)
    _, target = resolve_target(None, 1)
    settings = RegionSettings(
        tune=engine_settings(Path("net.onnx"), {"output": Path()}, os.environ),
        env=os.environ,
        name="convolutions",
        direction="forward",
        limit_s=math.inf,
    )
    library = load_library(LoopCompiler(settings), find_toolchain(os.environ), target.l2_bytes)
    print("| convolution | part | PyTorch us | ways |\n|---|---|---|---|")
    for images, read, written, extent, side, stride, groups, is_last in SHAPES:
        attributes = Attributes(
            strides=(stride, stride), pads=(side // 2,) * 2, dilations=(1, 1), groups=groups
        )
        convolution = Convolution(
            attributes=attributes,
            image=(images, read, extent, extent),
            weights=(written, read // groups, side, side),
            is_last=is_last,
        )
        name = f"{images} x {read} x {extent}x{extent} to {written}, {side}x{side}"
        name += f", stride {stride}" if stride > 1 else ""
        name += f", {groups} groups" if groups > 1 else ""
        name += ", channels last" if is_last else ""
        for part in Part:
            arguments = _arguments(convolution, part)
            eager = convolution.eager(part)
            found = []
            for way, make in WAYS.items():
                compute = make(convolution, part, library)
                if compute is not None:
                    found.append(_compared(way, eager, compute, arguments, pairs))
            if found:
                eager_us = median(us for us, _ in found)
                texts = "; ".join(text for _, text in found)
                print(f"| {name} | {part} | {eager_us:.0f} | {texts} |", flush=True)


def _arguments(convolution: Convolution, part: Part) -> list[torch.Tensor]:
    layout = torch.channels_last if convolution.is_last else torch.contiguous_format
    image, gradient = (
        torch.randn(shape).contiguous(memory_format=layout)
        for shape in (convolution.image, convolution.result)
    )
    weights = torch.randn(convolution.weights)
    return {
        Part.RESULT: [image, weights],
        Part.IMAGE: [gradient, weights],
        Part.WEIGHTS: [image, gradient],
    }[part]


def _compared(
    way: str, eager: Compute, compute: Compute, arguments: list[torch.Tensor], pairs: int
) -> tuple[float, str]:
    """Return the time of PyTorch, and how many times as fast a way is, with its interval."""
    if reason := choice.disagreement(eager, compute, arguments, spreads=True):
        return _time_us(eager, arguments), f"{way}: {reason}"
    times = [_pair_us(eager, compute, arguments, is_turned=at % 2 == 1) for at in range(pairs)]
    ratios = sorted(one / other for one, other in times)
    low, high = ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]
    text = f"{way} {median(ratios):.2f} ({low:.2f} to {high:.2f})"
    return median(one for one, _ in times), text


def _pair_us(
    eager: Compute, compute: Compute, arguments: list[torch.Tensor], *, is_turned: bool
) -> tuple[float, float]:
    """Return the times of PyTorch and of a way; who comes second finds the tensors in caches."""
    calls = (compute, eager) if is_turned else (eager, compute)
    first_us, second_us = (_time_us(call, arguments) for call in calls)
    return (second_us, first_us) if is_turned else (first_us, second_us)


def _time_us(call: Compute, arguments: list[torch.Tensor]) -> float:
    count, began_s = 0, time.thread_time()
    while time.thread_time() - began_s < LEAST_S:
        call(*arguments)
        count += 1
    return (time.thread_time() - began_s) / count * 1e6


if __name__ == "__main__":
    main()
