"""Plan of a run: what it would do with a model, kind by kind, without doing it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from aoe.errors import OptionError
from aoe.folders.scratch import ScratchFolder
from aoe.runs.written_form import with_faster_form
from aoe.tuner.chosen_graph import ChosenGraph
from aoe.tuner.mode import JobType, ModeContext
from aoe.tuner.registry import KINDS, get_mode
from aoe.tuner.reuse.covering_records import covering_ranges
from aoe.tuner.reuse.earlier import EarlierResult
from aoe.tuner.reuse.kinds import ReuseSummary
from aoe.tuner.tune_context import TuneContext, open_tune_context


@dataclass(frozen=True, slots=True, kw_only=True)
class KindPlan:
    """Plan for the tasks of one kind."""

    reuse: ReuseSummary  # What would become of each task
    # Seconds searching takes at most, where compiling and measuring are as quick as they usually
    # are.
    most_s: float = 0.0
    # Part of the model's time by record key, between 0 and 1; None where a kind knows none.
    shares: Mapping[str, float] | None = None
    # The graph the known answers leave to the kinds behind; None if it stays as it is.
    chosen: ChosenGraph | None = None
    # True where a run holds that graph against the imported one, so that the tasks of both are
    # tuned.
    is_open: bool = False


class Planner(Protocol):
    """The module of a kind of tuning that tells what a run would do."""

    def plan(self, tuning: TuneContext, before: Sequence[KindPlan]) -> KindPlan:
        """Return the plan of a kind; nothing is compiled, measured or written.

        Args:
            tuning: The run, with the imported graph.
            before: Plans of the kinds that are tuned before it.

        Raises:
            AoeError: the model cannot be run.
            AoebankError: a bank cannot be read.
        """
        ...


class ProgramPlanner(Protocol):
    """The module of a kind of tuning that tells what a run on a training program would do."""

    def plan_program(self, context: ModeContext) -> TuningPlan:
        """Return the plan; the program runs for it, in every process of its group.

        Raises:
            AoeError: the program fails.
            AoebankError: the bank cannot be used.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningPlan:
    """Plan of a run."""

    model: str  # Name of the model
    soc_version: str  # Target
    core_num: int  # Threads
    # The plan of each kind of tuning that can be planned; of those that are not asked for it is
    # empty.
    kinds: Mapping[JobType, KindPlan]
    # Ranges of shapes the bank has kernels for that hold the one shape that is planned.
    ranges: tuple[str, ...] = ()
    group: str = ""  # Processes of a training, in words; empty for a model file
    # Regions of a training script for which there is nothing to tune, by the reason.
    left: Mapping[str, int] = field(default_factory=dict)

    @property
    def reuse(self) -> ReuseSummary:
        """Planned reuse of every task, and the earlier result it is compared with."""
        plans = self.kinds.values()
        base = next(plan.reuse.base for plan in plans if plan.reuse.base)
        return ReuseSummary(base=base, parts=tuple(one for p in plans for one in p.reuse.parts))

    @property
    def shares(self) -> Mapping[str, float]:
        """Part of the model's time by record key."""
        return {
            key: one for plan in self.kinds.values() for key, one in (plan.shares or {}).items()
        }

    @property
    def most_s(self) -> float:
        """Seconds searching takes at most."""
        return sum(plan.most_s for plan in self.kinds.values())


def plan_model(context: ModeContext) -> TuningPlan:
    """Return the plan of a run: what its modes would reuse, tune again, tune and drop.

    The model is optimised and profiled once, as a run does, a training program runs for a few
    steps; no candidate is compiled or measured, and nothing is written.

    Args:
        context: As a mode is given; without an earlier result the bank stands for one.

    Raises:
        OptionError: a kind is asked for that is not planned for a model file.
        AoeError: bad input; see the subclasses.
        AoebankError: a bank cannot be read.
    """
    if not isinstance(context.settings.model, Path):
        return _plan_program(context)
    planners = {job: kind.planner for job, kind in KINDS.items() if kind.planner}
    for job in context.settings.job_types:
        if job not in planners:
            raise OptionError(
                "--job_type",
                f"of a model file, only {' and '.join(f'{one.subject}s' for one in planners)} are "
                "planned",
                got=",".join(context.settings.job_types),
                expected=" or ".join(planners),
                hint="for a training: aoe plan --job_type=4 --script TRAIN.py",
            )
    is_range = context.settings.shape_range is not None
    for job in context.settings.job_types:
        get_mode(job, is_range=is_range).check(context)
    plans, ranges = dict[JobType, KindPlan](), tuple[str, ...]()
    with ScratchFolder("plan") as nowhere:
        settings = replace(context.settings, output=nowhere, lookup_only=True)
        for job in settings.job_types:
            module = KINDS[job].range_mode if is_range else planners[job]
            planner = cast(Planner, import_module(module))
            with open_tune_context(replace(context, settings=settings), job) as tuning:
                target, name = tuning.machine.runner.target, tuning.subject.model.name
                if not is_range:
                    ranges = covering_ranges(tuning.banks.journal, tuning.subject.model.proto)
                    tuning = with_faster_form(tuning)
                plans[job] = planner.plan(tuning, [*plans.values()])
    return TuningPlan(
        model=name,
        soc_version=target.soc_version,
        core_num=target.core_num,
        kinds=with_all_kinds(plans),
        ranges=ranges,
    )


def _plan_program(context: ModeContext) -> TuningPlan:
    jobs = context.settings.job_types
    for job in jobs:
        get_mode(job).check(context)
    (planner,) = {KINDS[job].program_planner for job in jobs}
    return cast(ProgramPlanner, import_module(planner)).plan_program(context)


def with_all_kinds(plans: Mapping[JobType, KindPlan]) -> Mapping[JobType, KindPlan]:
    """Return plans, with an empty one for each other kind that is planned for model files."""
    nothing = KindPlan(reuse=ReuseSummary(base="", parts=()))
    return {job: nothing for job, kind in KINDS.items() if kind.planner} | dict(plans)


def compared_with(tuning: TuneContext) -> EarlierResult:
    """Return the earlier result a plan is made against; without one the bank stands for it."""
    own = tuning.banks.journal.bank
    return tuning.banks.base or EarlierResult(name=str(own.root), bank=own)
