"""Pairs of what a record of a training computes with, and of PyTorch's operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from aoe.device.registry import resolve_target
from aoe.device.toolchain import find_toolchain
from aoe.errors import AoeError, BuildError
from aoe.measurement import Measurement, Outcome
from aoe.settings import environment
from aoe.torch.modules.training import choice
from aoe.torch.modules.training.convolution_ways import WAYS, Convolution, Part, load_library
from aoe.torch.modules.training.convolutions import convolution_of
from aoe.torch.modules.training.loops import LoopCompiler
from aoe.torch.modules.training.records import draw_places, drawn, region_of_workload
from aoe.torch.modules.training.region_settings import RegionSettings
from aoe.torch.modules.training.regions import Laid
from aoe.torch.modules.training.row_loops import loop_source
from aoe.tuner.mode import TuneSettings
from aoe.workload import TRAINING_LOOP, Workload

Compared = tuple[Callable[..., Any], Callable[..., Any], Sequence[Any]]
"""PyTorch's operators, what is held against them, and the arguments of both."""


@torch.no_grad()  # type: ignore[untyped-decorator]
def measured_again(
    workload: Workload, way: str, *, threads: int, seed: int, least_quiet: float | None = None
) -> Measurement:
    """Return fresh pairs of a record's answer and PyTorch's operators, or why there are none.

    Args:
        workload: Of the record.
        way: Its answer.
        threads: Of PyTorch.
        seed: Of the tensors.
        least_quiet: See `choice.region_measurement`.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        generator = torch.Generator().manual_seed(seed)
        if workload.op_type == TRAINING_LOOP:
            eager, call, arguments = _loop(workload, generator)
        else:
            eager, call, arguments = _way(workload, way, generator)
        reason = choice.disagreement(
            eager, call, arguments, spreads=workload.op_type != TRAINING_LOOP
        )
        if reason:
            return Measurement(outcome=Outcome.CORRECTNESS, detail=reason)
        return choice.region_measurement(eager, call, arguments, least_quiet=least_quiet)
    except BuildError as error:
        return Measurement(outcome=Outcome.COMPILE, detail=str(error))
    except (AoeError, ValueError) as error:
        return Measurement(outcome=Outcome.CONSTRAINTS, detail=str(error))
    except RuntimeError as error:  # of an operator of PyTorch
        return Measurement(outcome=Outcome.RUNTIME, detail=str(error))
    finally:
        torch.set_num_threads(before)


def _loop(workload: Workload, generator: torch.Generator) -> Compared:
    module, form = region_of_workload(workload)
    source = loop_source(module, form)
    if isinstance(source, str):
        raise ValueError(f"there is no loop for it any more: {source}")
    call = LoopCompiler(_settings()).compile({form: source})[form]
    arguments = [drawn(laid, generator) for laid in form.tensors]
    draw_places(module, arguments, generator)
    return module, call, arguments


def _settings() -> RegionSettings:
    """Return settings that find the compiler and what is kept of it."""
    return RegionSettings(
        tune=TuneSettings(model=Path()),
        env=environment(),
        name="",
        direction="forward",
        limit_s=0.0,
    )


def _way(workload: Workload, way: str, generator: torch.Generator) -> Compared:
    convolution, part = convolution_of(workload)
    _, target = resolve_target(None, 1)
    settings = _settings()
    library = load_library(LoopCompiler(settings), find_toolchain(settings.env), target.l2_bytes)
    make = WAYS.get(way)
    call = None if make is None else make(convolution, part, library)
    if call is None:
        raise ValueError(f"there is no such way for it any more: {way}")
    arguments = [
        drawn(_laid(spec.shape, convolution, part, number), generator)
        for number, spec in enumerate(workload.inputs)
    ]
    return convolution.eager(part), call, arguments


def _laid(shape: tuple[int, ...], convolution: Convolution, part: Part, number: int) -> Laid:
    """Return how an argument lies: images with channels innermost where the record says so."""
    is_image = number == 0 or part is Part.WEIGHTS
    is_last = convolution.is_last and is_image
    layout = torch.channels_last if is_last else torch.contiguous_format
    strides = torch.empty(shape, device="meta").to(memory_format=layout).stride()
    return Laid(shape=shape, strides=tuple(strides), dtype=torch.float32)
