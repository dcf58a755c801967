"""One training process of `benchmarks/gdat_independent.py`: tunes, or runs steps when it is told.

With `--arm tune` it tunes with `aoe.torch.tune_gradients` and ends. With another arm it wraps the
model as that arm does and then, for every number of steps that comes in a line on its standard
input, runs two steps and then so many timed ones, and the first process answers with the mean
time of a timed step, of the slowest process, in us. Nothing of the tuner runs in those arms.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from gdat_models import MODELS, make_step
from torch import nn
from torch.nn.parallel import DistributedDataParallel

ARMS = ("tune", "plain", "plain again", "bucket_cap_mb=1", "from the bank")
_UNTIMED = 2


def main() -> None:
    """Join the group, and be the arm asked for."""
    arguments = _arguments()
    ddp = _wrapped(_joined(arguments), arguments.arm, arguments.folder)
    step = make_step(ddp, arguments.model)
    for _ in range(3):
        step()
    if arguments.arm == "tune":
        _tune(ddp, step, arguments)
    else:
        _serve(step, arguments.rank)
    dist.destroy_process_group()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=MODELS, required=True)
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--world", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True, help="of the bank and the results")
    parser.add_argument("--rendezvous", default="rendezvous", help="file in the folder")
    parser.add_argument("--seconds", type=float, default=60.0, help="limit of the tuning")
    parser.add_argument("--arm", choices=ARMS, required=True)
    return parser.parse_args()


def _joined(arguments: argparse.Namespace) -> nn.Module:
    """Join the group of a process; return its model, the same in all of them."""
    dist.init_process_group(
        "gloo",
        init_method=f"file://{arguments.folder / arguments.rendezvous}",
        rank=arguments.rank,
        world_size=arguments.world,
        timeout=timedelta(seconds=120),
    )
    torch.set_num_threads(1)
    torch.manual_seed(0)
    make, divisor, _ = MODELS[arguments.model]
    return make(divisor)


def _wrapped(model: nn.Module, arm: str, bank: Path) -> Any:
    if arm == "bucket_cap_mb=1":
        return DistributedDataParallel(model, bucket_cap_mb=1)
    if arm != "from the bank":
        return DistributedDataParallel(model)
    from aoe.torch import apply_gradient_strategy

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ddp = apply_gradient_strategy(model, bank=bank)
    for warning in caught:
        print(f"warning: {warning.message}", file=sys.stderr, flush=True)
    return ddp


def _tune(ddp: Any, step: Any, arguments: argparse.Namespace) -> None:
    import json

    from aoe.cli.progress import LineProgress, QuietProgress
    from aoe.tasks.gradients.bench import GdatSettings
    from aoe.torch import tune_gradients

    tuned = tune_gradients(
        ddp,
        step,
        bank=arguments.folder,
        output=arguments.folder,
        settings=GdatSettings(tuning_time_limit_s=arguments.seconds, repeat_tune=True),
        progress=LineProgress() if arguments.rank == 0 else QuietProgress(),
    )
    if arguments.rank == 0:
        result = tuned.result
        estimate = result.estimate
        found = {
            "outcome": result.outcome.value,
            "reason": result.reason,
            "segments": len(result.segmentation) if result.segmentation else None,
            "printed": estimate.median if estimate else None,
            "low": estimate.low if estimate else None,
            "high": estimate.high if estimate else None,
            "pairs": estimate.pairs if estimate else None,
            "steps": result.steps,
            "seconds": result.report.tuning_time_s,
        }
        (arguments.folder / "tuned.json").write_text(json.dumps(found))


def _serve(step: Any, rank: int) -> None:
    for line in sys.stdin:
        for _ in range(_UNTIMED):
            step()
        start = time.perf_counter_ns()
        for _ in range(int(line)):
            step()
        mean_us = (time.perf_counter_ns() - start) / 1e3 / int(line)
        slowest = torch.tensor([mean_us], dtype=torch.float64)
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
        if rank == 0:
            print(slowest.item(), flush=True)


if __name__ == "__main__":
    main()
