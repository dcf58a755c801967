"""Plan of gradient tuning: what it would do with a training, without tuning it.

The training runs: its modelhash, its step and its all-reduce are known nowhere else. A few steps
tell whether what the bank has holds in this cluster, and how long a search would take.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from aoe.gradients.cost import CostModel, choose_cost
from aoe.gradients.training import Training
from aoe.runs.gradients.run import run_program
from aoe.runs.planning import KindPlan, TuningPlan, with_all_kinds
from aoe.settings import lock_path
from aoe.tasks.gradients.bench import (
    GdatSettings,
    TrainingBench,
    checked_loops,
    measuring_together,
    open_reading_bench,
)
from aoe.tasks.gradients.candidates import most_candidates
from aoe.tasks.gradients.looking_up import CHECK_STEPS, KnownGradients, look_up
from aoe.tasks.gradients.racing import most_steps
from aoe.tuner.mode import JobType, ModeContext
from aoe.tuner.progress import Progress
from aoe.tuner.reuse.kinds import Reuse, ReuseKind, ReuseSummary
from aoebank import plural

_OP_TYPE = "gradients"
_SMALLEST_BYTES = 4 << 10
_SIZES = 9
_TIMES = 9
"""Measuring all-reduce: evenly spaced sizes from the smallest to all gradients, each twice to warm
up and seven times. Source: `aoe.torch.ddp.training`."""
_SETTLING_STEPS = 3
"""Steps in which the framework shows its own groups. Source: `aoe.torch.ddp.buckets`."""
_TIMELINE_STEPS = 16
"""Steps in which the groups are watched, before and after."""


def plan_program(context: ModeContext) -> TuningPlan:
    """Return the plan for a training program; see `ProgramPlanner`.

    Raises:
        AoeError: the program fails, or trains no `DistributedDataParallel` model.
        AoebankError: the bank cannot be used.
    """
    settings = GdatSettings(
        loops=checked_loops(context.settings.run_loop),
        repeat_tune=context.settings.repeat_tune,
        tuning_time_limit_s=context.settings.tuning_time_limit_s,
    )

    def plan(training: Training) -> TuningPlan:
        return plan_training(
            training, settings, env=context.env, cwd=context.cwd, progress=context.progress
        )

    program = context.settings.model
    assert not isinstance(program, Path)
    return run_program(program, plan)[0]


def plan_training(
    training: Training,
    settings: GdatSettings,
    *,
    env: Mapping[str, str],
    cwd: Path,
    progress: Progress,
) -> TuningPlan:
    """Return the plan for a training that runs; every process of its group calls this.

    Args:
        training: The run; it is left with its default grouping.
        settings: Of the search that is planned.
        env: Environment variables.
        cwd: Directory relative paths are taken from.
        progress: Told what happens, in the first process.
    """
    bench = open_reading_bench(training, settings, env=env, cwd=cwd, progress=progress)
    with measuring_together(training, lock_path(env), bench.progress.warn):
        known = look_up(bench)
        training.apply(None)
        is_over = known.is_used or known.is_default_best
        candidates = most_candidates(
            training.sizes_bytes, settings.grid_mib, is_known=known.stored is not None
        )
        steps = 0 if is_over else _most_steps(settings, candidates)
        most_s = steps * training.step_us(CHECK_STEPS) / 1e6 if steps else 0.0
        if steps:
            cost = choose_cost(training.cost_samples(briefly=True))
            most_s += _all_reduces_us(cost, sum(training.sizes_bytes)) / 1e6
    planned = f"; at most {plural(candidates, 'grouping')}, {plural(steps, 'training step')}"
    part = Reuse(
        key=str(training.model_hash),
        op_type=_OP_TYPE,
        op_names=(training.model_name,),
        kind=_kind(known, is_over=is_over),
        reason=known.why + (planned if steps else ""),
    )
    return TuningPlan(
        model=training.model_name,
        soc_version=training.soc_version,
        core_num=int(training.machine.get("core_num", 0)),
        group=f"{training.world_size} processes, {training.backend}",
        kinds=with_all_kinds({JobType.GDAT: KindPlan(reuse=_summary(bench, part), most_s=most_s)}),
    )


def _most_steps(settings: GdatSettings, candidates: int) -> int:
    """Return the training steps a search takes at most, as if nothing in the bank fits."""
    recorded = _SETTLING_STEPS + settings.loops + 1
    return recorded + most_steps(candidates, settings.race, settings.final) + _TIMELINE_STEPS


def _all_reduces_us(cost: CostModel, total_bytes: int) -> float:
    """Return the time measuring all-reduce takes at most, us."""
    ratio = max(1.0, total_bytes / _SMALLEST_BYTES) ** (1 / (_SIZES - 1))
    return _TIMES * sum(cost.cost_us(total_bytes / ratio**step) for step in range(_SIZES))


def _kind(known: KnownGradients, *, is_over: bool) -> ReuseKind:
    if is_over:
        return ReuseKind.REUSED
    return ReuseKind.NEW if known.stored is None else ReuseKind.RETUNED


def _summary(bench: TrainingBench, part: Reuse) -> ReuseSummary:
    return ReuseSummary(base=str(bench.bank.file), parts=(part,))
