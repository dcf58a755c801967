"""Cases in which a process, its bank or its step fails."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from tuned import QUICK, net, stepper

from aoe.tasks.gradients.bench import GdatSettings
from aoe.torch import tune_gradients
from aoe.torch.ddp.ranks import timeout_of


def _in_own_group() -> Any:
    """Return a model in a group of its own, which may break."""
    return DistributedDataParallel(net(), process_group=dist.new_group())


def failing_step(folder: Path) -> dict[str, Any]:
    """Rank 1 raises in a step; every rank hears of it."""
    ddp = _in_own_group()
    run = stepper(ddp)
    count = 0

    def step() -> None:
        nonlocal count
        count += 1
        if count == 6 and dist.get_rank() == 1:
            raise ValueError("no more data")
        run()

    tune_gradients(ddp, step, bank=folder, output=folder, settings=QUICK, timeout_s=2)
    return {}


def hanging_step(folder: Path) -> dict[str, Any]:
    """Rank 1 stops answering until the time-out is over."""
    ddp = _in_own_group()
    run = stepper(ddp)
    gave_up = folder / "rank_0_gave_up"
    count = 0

    def step() -> None:
        nonlocal count
        count += 1
        if count == 6 and dist.get_rank() == 1:
            while not gave_up.exists():
                time.sleep(0.02)
        run()

    try:
        tune_gradients(ddp, step, bank=folder, output=folder, settings=QUICK, timeout_s=2)
    finally:
        gave_up.touch()
    return {}


def dying_step(folder: Path) -> dict[str, Any]:
    """Rank 1 is gone without a word."""
    ddp = DistributedDataParallel(net())
    run = stepper(ddp)

    def step() -> None:
        if dist.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        run()

    tune_gradients(ddp, step, bank=folder, output=folder, settings=QUICK, timeout_s=20)
    return {}


def missing_bank(folder: Path) -> dict[str, Any]:
    """The first rank cannot make the bank; nobody goes on without it."""
    (folder / "file").touch()
    ddp = DistributedDataParallel(net())
    tune_gradients(ddp, stepper(ddp), bank=folder / "file", output=folder, settings=QUICK)
    return {}


def no_backward(folder: Path) -> dict[str, Any]:
    """A step that trains nothing."""
    ddp = DistributedDataParallel(net())
    tune_gradients(ddp, lambda: None, bank=folder, output=folder, settings=QUICK)
    return {}


def time_out_restored(folder: Path) -> dict[str, Any]:
    """After tuning the group has the time-out it had before."""
    ddp = DistributedDataParallel(net())
    before = timeout_of(ddp.process_group, ddp.device)
    during = []
    run = stepper(ddp)

    def step() -> None:
        during.append(timeout_of(ddp.process_group, ddp.device))
        run()

    settings = GdatSettings(loops=4, tuning_time_limit_s=0.0, least_speedup=1e9)
    tune_gradients(ddp, step, bank=folder, output=folder, settings=settings, timeout_s=17)
    after = timeout_of(ddp.process_group, ddp.device)
    return {"before": str(before), "during": str(during[0]), "after": str(after)}
