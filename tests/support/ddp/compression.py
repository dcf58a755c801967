"""Cases in which gradients may be summed in 16 bits."""

from __future__ import annotations

import warnings
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from tuned import QUICK, net, stepper

from aoe.errors import LeftAloneError
from aoe.gradients.compression import Compression
from aoe.torch import apply_gradient_strategy, tune_gradients
from aoe.torch.ddp.compressed import CompressedDdpTraining
from aoe.torch.ddp.ranks import Ranks
from aoe.torch.ddp.training import DdpTraining
from support.engine.fakes import RecordingProgress

COMM_HOOKS = attrgetter("_comm_hooks")
"""PyTorch has no public name for it."""


def _hooks(ddp: Any) -> list[str]:
    return [hook.__name__ for hook, _ in COMM_HOOKS(ddp)]


def _tuned(
    folder: Path, ddp: Any, compression: Compression | None
) -> tuple[Any, RecordingProgress]:
    told = RecordingProgress()
    settings = replace(QUICK, least_speedup=0.0, compression=compression)
    done = tune_gradients(
        ddp, stepper(ddp), bank=folder, output=folder, progress=told, settings=settings
    )
    return done, told


def _gradient(ddp: Any) -> list[float]:
    """Return one gradient of a step whose data differ from rank to rank."""
    torch.manual_seed(50 + dist.get_rank())
    ddp.zero_grad()
    ddp(torch.randn(4, ddp.module[0].in_features)).square().mean().backward()
    return list(ddp.module[0].weight.grad[0].tolist())


def allowed(folder: Path) -> dict[str, Any]:
    """Tune with bfloat16 allowed, again, and without; group new models with and without it."""
    ddp = DistributedDataParallel(net())
    first, told = _tuned(folder, ddp, Compression.BFLOAT16)
    again = DistributedDataParallel(net())
    second, _ = _tuned(folder, again, Compression.BFLOAT16)
    plain = DistributedDataParallel(net())
    third, _ = _tuned(folder, plain, None)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fresh = apply_gradient_strategy(net(), bank=folder, allow_compression="bf16")
        other = apply_gradient_strategy(net(), bank=folder, allow_compression="fp16")
        full = apply_gradient_strategy(net(), bank=folder)
    exact = DistributedDataParallel(net())
    return {
        "outcomes": [
            (one.result.outcome.value, one.result.compressed and one.result.compressed.outcome)
            for one in (first, second, third)
        ],
        "hashes": [
            first.result.report.modelhash,
            first.result.report.compression.tuning.modelhash,
        ],
        "deviation": first.result.report.compression.deviation,
        "told": told.texts("step"),
        "hooks": [_hooks(one) for one in (ddp, again, plain, fresh, other, full)],
        "warnings": [str(one.message) for one in caught],
        "gradients": [_gradient(one) for one in (fresh, full, exact)],
        "result": first.result_file.name,
    }


def too_inexact(folder: Path) -> dict[str, Any]:
    """Gradients that float16 cannot hold: the full sums stay, and a word says why."""
    ddp = DistributedDataParallel(net(20))

    def step() -> None:
        ddp.zero_grad()
        loss = ddp(torch.ones(4, 20)).square().mean()
        (loss * 1e-9).backward()  # float16 ends at 6e-8

    told = RecordingProgress()
    settings = replace(QUICK, least_speedup=0.0, compression=Compression.FLOAT16)
    done = tune_gradients(ddp, step, bank=folder, output=folder, progress=told, settings=settings)
    return {
        "problem": done.result.report.compression.problem,
        "compressed": done.result.is_compressed,
        "hooks": _hooks(ddp),
    }


def left_alone(folder: Path) -> dict[str, Any]:
    """A script whose inputs end while 16 bits are measured trains on with all bits."""
    ddp = DistributedDataParallel(net(18))
    run = stepper(ddp)
    training = DdpTraining(
        ddp, run, Ranks(None, ddp.device, timeout_s=None), compress=CompressedDdpTraining
    )
    training.record(4)
    compressed = training.compressed(Compression.BFLOAT16, training.default)
    compressed.sample_us(training.default, 1)
    before = _hooks(ddp)
    try:
        raise LeftAloneError("step", "inputs are over")
    except LeftAloneError:
        compressed.leave_alone()
    run()
    return {"before": before, "after": _hooks(ddp)}
