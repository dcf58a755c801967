"""One process of `benchmarks/gdat.py`: tunes a model, measures what it is compared with."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from statistics import median
from typing import Any

import torch.distributed as dist
from delayed_group import BACKEND, register_delayed
from gdat_models import make_step
from gdat_processes import join, process_arguments
from torch.nn.parallel import DistributedDataParallel

from aoe.cli.progress import LineProgress, QuietProgress
from aoe.gradients.segmentation import Segmentation, finish_us, from_bucket_caps, optimal
from aoe.gradients.timeline import Timeline, simulate
from aoe.measurement import MeasurePolicy, RacePolicy, estimate_speedup, run_pairs
from aoe.results.gradients import CandidateReport
from aoe.tasks.gradients.bench import GRID_MIB, GdatSettings
from aoe.tasks.gradients.racing import FINAL_STEPS
from aoe.torch.ddp.gradients import TunedGradients, tune_gradients
from aoe.torch.ddp.ranks import Ranks
from aoe.torch.ddp.training import DdpTraining

_MIB = 1 << 20


def main() -> None:
    """Join the group, tune, compare, and let the first process write what was found."""
    arguments = _arguments()
    backend = "gloo"
    if arguments.latency_us:
        register_delayed(latency_us=arguments.latency_us, megabits=arguments.megabits)
        backend = BACKEND
    ddp = DistributedDataParallel(join(arguments, backend))
    step = make_step(ddp, arguments.model)
    step_s = _step_seconds(Ranks(None, ddp.device, timeout_s=None), step)
    race = RacePolicy(rounds_min=min(4, arguments.pairs), rounds_max=arguments.pairs)
    # four comparisons of so many pairs, of twelve steps each, in half of the time
    final_pairs = int(arguments.seconds / (2 * 4 * 12 * step_s))
    final_pairs = max(arguments.pairs, min(final_pairs, 20))
    final = MeasurePolicy(pairs_min=final_pairs, pairs_max=final_pairs, target_half_width=0.0)
    tuned = tune_gradients(
        ddp,
        step,
        bank=arguments.folder,
        output=arguments.folder,
        settings=GdatSettings(
            race=race,
            final=final,
            tuning_time_limit_s=arguments.seconds / 2,
            repeat_tune=True,
        ),
        progress=LineProgress() if arguments.rank == 0 else QuietProgress(),
    )
    found = _compared(ddp, step, tuned, replace(final, warmup=1))
    if arguments.rank == 0:
        (arguments.folder / "found.json").write_text(json.dumps(found))
    dist.destroy_process_group()


def _arguments() -> argparse.Namespace:
    parser = process_arguments(__doc__)
    parser.add_argument("--pairs", type=int, required=True)
    parser.add_argument("--latency-us", type=float, default=0.0)
    parser.add_argument("--megabits", type=float, default=0.0)
    return parser.parse_args()


def _step_seconds(ranks: Ranks, step: Callable[[], None]) -> float:
    """Return the time of a step of the slowest process, after a few that warm up."""
    for _ in range(2):
        step()
    start = time.perf_counter()
    for _ in range(3):
        step()
    return ranks.max([(time.perf_counter() - start) / 3])[0]


def _compared(ddp: Any, step: Any, tuned: TunedGradients, policy: MeasurePolicy) -> dict[str, Any]:
    """Return fresh figures of the default, the best size of the grid, and the optimum."""
    ranks = Ranks(ddp.process_group, ddp.device, timeout_s=None)
    training = DdpTraining(ddp, step, ranks)
    trace = training.record(6)
    report = tuned.result.report
    assert report.cost is not None
    contenders: dict[str, Segmentation | None] = {
        "grid": _best_of_grid(report.candidates, trace.sizes_bytes),
        "optimum": optimal(trace, report.cost),
        "chosen": tuned.result.segmentation,
    }
    figures: dict[str, Any] = {}
    done: dict[Segmentation | None, str] = {}
    for name, segmentation in contenders.items():
        if name == "grid" and segmentation is None:
            figures[name] = {"same_as": "nothing, not measured"}
        elif segmentation is None or segmentation == training.default:
            figures[name] = {"same_as": "default"}
        elif segmentation in done:
            figures[name] = {"same_as": done[segmentation]}
        else:
            done[segmentation] = name
            samples = run_pairs(
                lambda: training.sample_us(None, FINAL_STEPS),
                lambda chosen=segmentation: training.sample_us(chosen, FINAL_STEPS),
                policy,
            )
            estimate = estimate_speedup(samples)
            figures[name] = {
                "default_ms": median(samples.baseline_us) / 1e3,
                "step_ms": median(samples.tuned_us) / 1e3,
                "speedup": estimate.median,
                "low": estimate.low,
                "high": estimate.high,
                "pairs": estimate.pairs,
                "segments": len(segmentation),
                "predicted_ms": finish_us(trace, segmentation, report.cost) / 1e3,
                **_shown(training.timeline(segmentation), "measured"),
                **_shown(simulate(trace, segmentation, report.cost), "simulated"),
            }
    figures["default"] = {
        "segments": len(training.default),
        "predicted_ms": finish_us(trace, training.default, report.cost) / 1e3,
        **_shown(training.timeline(None), "measured"),
        **_shown(simulate(trace, training.default, report.cost), "simulated"),
    }
    return {
        "gradients": len(trace),
        "megabytes": trace.total_bytes / 1e6,
        "backward_ms": trace.backward_end_us / 1e3,
        "outcome": tuned.result.outcome.value,
        "reason": tuned.result.reason,
        "steps": tuned.result.steps,
        "tuning_s": report.tuning_time_s,
        "all_reduce_us": {str(size): report.cost.cost_us(size) for size in (0, _MIB, 16 * _MIB)},
        "candidates": [
            {
                "name": candidate.name,
                "segments": candidate.segments,
                "speedup": candidate.estimate.median if candidate.estimate else None,
            }
            for candidate in report.candidates
        ],
        "figures": figures,
        "load_average": os.getloadavg()[0],
    }


def _best_of_grid(
    candidates: tuple[CandidateReport, ...], sizes_bytes: tuple[int, ...]
) -> Segmentation | None:
    """Return the grouping of the best measured bucket size, None if none was measured."""
    measured = {
        candidate.name: candidate.estimate.median for candidate in candidates if candidate.estimate
    }
    best, best_speedup = None, 0.0
    for mib in GRID_MIB:
        speedup = measured.get(f"bucket_cap_mb={mib:g}", 0.0)
        if speedup > best_speedup:
            cap = int(mib * _MIB)
            best, best_speedup = from_bucket_caps(sizes_bytes, cap, cap), speedup
    return best


def _shown(timeline: Timeline | None, kind: str) -> dict[str, float]:
    if timeline is None:
        return {}
    return {
        f"{kind}_tail_ms": timeline.tail_us / 1e3,
        f"{kind}_overlap_ratio": timeline.overlap_ratio,
    }


if __name__ == "__main__":
    main()
