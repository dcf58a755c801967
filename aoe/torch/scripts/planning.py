"""Plan of tuning the operators of a training script: what would be tuned, and how long it takes.

The script runs for a few steps. Its regions are looked up in the bank and timed as PyTorch computes
them; what is not known is neither compiled nor compared. Then the script ends.
"""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from aoe.bank.operators import bank_root
from aoe.errors import FallbackWarning, RunError
from aoe.folders.scratch import ScratchFolder
from aoe.runs.planning import KindPlan, TuningPlan, with_all_kinds
from aoe.torch.modules.training.records import NOT_TUNED
from aoe.torch.modules.training.regions import RegionOutcome
from aoe.torch.scripts.compiling import ScriptTraining
from aoe.torch.scripts.main_program import run_script
from aoe.torch.scripts.regions import TunedGraph, TunedRegion, time_us
from aoe.torch.scripts.result_folder import (
    RecordedPart,
    TrainingBanks,
    recorded_parts,
    reuse_of_training,
)
from aoe.tuner.mode import JobType
from aoe.tuner.reuse.earlier import EarlierResult, open_earlier
from aoe.tuner.reuse.kinds import Reuse
from aoe.workload import TRAINING_CONVOLUTION
from aoebank import Bank

_EAGER_STEPS = 2
"""The first one warms up, the second one is timed; modules are compiled behind them."""
_MOST_STEPS = 8
"""Steps after which a plan is made of what was seen."""
_COMPILED_S = 0.5
"""Seconds a loop takes to be compiled. Source: docs/pytorch.md."""
_CALLS, _LEAST_US = 60, 200.0
"""Calls of a check and of its pairs, and the least time of a sample: see `choice`."""
_MOST_OPERATORS = 3
"""Operators of a region that are named."""
_WAYS = 3
"""Ways of a convolution that are tried."""


def plan_script(
    script: Path,
    arguments: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path,
    base_result: Path | None = None,
) -> TuningPlan:
    """Return the regions of a script that tuning would reuse, tune again and tune anew.

    Args:
        script: It runs in this process until its training graphs are known.
        arguments: Of the script.
        env: Environment variables.
        cwd: Directory relative paths are taken from.
        base_result: An earlier result to compare with; None for the bank.

    Raises:
        RunError: the script fails, or ends before a module was trained.
        OptionError: there is no earlier result.
        AoebankError: the bank cannot be used.
    """
    root = bank_root(env, cwd, writes=False)
    with ScratchFolder("plan") as scratch:
        base = EarlierResult(name=str(root), bank=Bank(root))
        if base_result is not None:
            base = open_earlier(cwd / base_result, scratch)
        watch = _Watch(base)
        try:
            with watch:
                run_script(script, arguments)
        except _Seen:
            pass
        if not watch.training.graphs:
            raise RunError(
                str(script),
                f"ended after {watch.steps} optimizer steps without a training graph",
                hint="; ".join(f"{name}: {why}" for name, why in watch.training.left.items())
                or "a module has to be called three times with gradients wanted",
            )
        return _plan(script.name, watch, root, base)


class _Seen(BaseException):
    """Ends a script whose training graphs are known; no `except Exception` of its own stops it."""


class _PlannedGraph(TunedGraph):
    """Times regions as PyTorch computes them; they were looked up."""

    def told(self, outcome: RegionOutcome) -> None:
        if outcome.compute is not None:
            self._eager_us = time_us(outcome.compute)
        super().told(outcome)

    def graph(self, eager: object, compiled: object) -> bool:
        return False


class _Watch:
    """Looks at the first steps of a script, and ends it."""

    def __init__(self, base: EarlierResult) -> None:
        self.training = ScriptTraining(
            {"lookup_only": True},
            make_graph=_PlannedGraph,
            fuses=False,
            base=base,
            compiled_at=_EAGER_STEPS + 1,
        )
        self.steps = 0
        self.step_us = 0.0  # Time of a step as PyTorch computes it
        self._began_s = 0.0
        self._regions = 0  # So many behind the last step

    def __enter__(self) -> None:
        with ExitStack() as undo:
            undo.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore", FallbackWarning)  # what is not tuned is the answer
            undo.callback(self.training.close)
            self.training.start()
            hook = register_optimizer_step_post_hook(lambda *step: self._end_step())
            undo.callback(hook.remove)
            self._undo = undo.pop_all()

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    def _end_step(self) -> None:
        now_s = time.perf_counter()
        self.steps += 1
        if self.steps == _EAGER_STEPS:
            self.step_us = (now_s - self._began_s) * 1e6
        self._began_s = now_s
        known, regions = self._regions, [one for g in self.training.graphs for one in g.regions]
        self._regions = len(regions)
        is_whole = len({one.direction for one in regions}) == 2 and len(regions) == known
        if is_whole or self.steps == _MOST_STEPS:  # another module may be trained in turns
            raise _Seen


def _plan(name: str, watch: _Watch, root: Path, base: EarlierResult) -> TuningPlan:
    parts = recorded_parts(watch.training.graphs)
    banks = TrainingBanks(root, base)
    reuse = reuse_of_training(parts, banks, base)
    assert reuse is not None
    regions = {part.key: part.region for part in parts}
    left = Counter(
        region.reason
        for graph in watch.training.graphs
        for region in graph.regions
        if not region.workloads
    )
    return TuningPlan(
        model=name,
        soc_version=banks.target.soc_version,
        core_num=torch.get_num_threads(),
        kinds=with_all_kinds(
            {
                JobType.OPAT: KindPlan(
                    reuse=replace(
                        reuse, parts=tuple(_with_places(one, regions) for one in reuse.parts)
                    ),
                    most_s=sum(map(_seconds, parts)),
                    shares=_shares(parts, watch.step_us),
                )
            }
        ),
        left=dict(left),
    )


def _with_places(part: Reuse, regions: Mapping[str, TunedRegion]) -> Reuse:
    """Return a part with its operators, and a name for each of its places."""
    region = regions.get(part.key)
    if region is None:  # not in the training any more
        return part
    names = [name.removeprefix("aten.") for name in region.operators]
    more = " + ..." if len(names) > _MOST_OPERATORS else ""
    first = f"{part.op_names[0]}: {' + '.join(names[:_MOST_OPERATORS])}{more}"
    others = (f"{part.op_names[0]}#{number}" for number in range(2, 1 + region.places))
    return replace(part, op_names=(first, *part.op_names[1:], *others))


def _shares(parts: Sequence[RecordedPart], step_us: float) -> Mapping[str, float]:
    """Return the part of a step's time that PyTorch takes for each workload."""
    whole_us = step_us or sum(part.region.eager_us * part.region.places for part in parts) or 1.0
    return {part.key: part.region.eager_us * part.region.places / whole_us for part in parts}


def _seconds(part: RecordedPart) -> float:
    """Return the seconds tuning takes for a workload, none where it is known."""
    if part.region.reason != NOT_TUNED:
        return 0.0
    measured_s = _CALLS * max(_LEAST_US, part.region.eager_us) / 1e6
    is_convolution = part.workload.op_type == TRAINING_CONVOLUTION
    return measured_s * _WAYS if is_convolution else measured_s + _COMPILED_S
