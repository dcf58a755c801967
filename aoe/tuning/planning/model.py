"""What a run would do with a model, mode by mode, without doing it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from aoe.errors import OptionError
from aoe.folders.scratch import ScratchFolder
from aoe.tuning.mode import JobType, ModeContext
from aoe.tuning.planning.operators import PlannedOperators, plan_operators
from aoe.tuning.planning.subgraphs import PlannedSubgraphs, plan_subgraphs
from aoe.tuning.reuse.kinds import ReuseSummary
from aoe.tuning.tune_context import open_tune_context

_NOTHING = ReuseSummary(base="", parts=())


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningPlan:
    """What a run would do.

    Attributes:
        model: Name of the model.
        soc_version: Target.
        core_num: Threads.
        base: What is compared with, as a person wrote it.
        subgraphs: What would become of each; nothing where these are not tuned.
        operators: What would become of each, likewise: of the graph the known forms leave.
        shares: Part of the model's time by record key of an operator, between 0 and 1.
        most_s: Seconds searching takes at most, where compiling and measuring are as quick as
            they usually are.
    """

    model: str
    soc_version: str
    core_num: int
    base: str
    subgraphs: ReuseSummary = _NOTHING
    operators: ReuseSummary = _NOTHING
    shares: Mapping[str, float] = field(default_factory=dict)
    most_s: float = 0.0

    @property
    def reuse(self) -> ReuseSummary:
        """What would become of every part, subgraphs first."""
        return ReuseSummary(base=self.base, parts=(*self.subgraphs.parts, *self.operators.parts))


def plan_model(context: ModeContext) -> TuningPlan:
    """Return the plan of a run: what its modes would reuse, tune again, tune and drop.

    The model is optimised and profiled once, as a run does; no candidate is compiled or measured,
    and nothing is written.

    Args:
        context: As a mode is given; without an earlier result the bank stands for one.

    Raises:
        OptionError: gradient tuning is asked for.
        AoeError: bad input; see the subclasses.
        AoebankError: a bank cannot be read.
    """
    jobs = context.settings.job_types
    if JobType.GDAT in jobs:
        raise OptionError(
            "--job_type",
            "only subgraphs and operators are planned",
            got=",".join(jobs),
            expected="sgat, opat, or both",
        )
    subgraphs: PlannedSubgraphs | None = None
    operators: PlannedOperators | None = None
    with ScratchFolder("plan") as nowhere:
        settings = replace(context.settings, output=nowhere, lookup_only=True)
        for job in jobs:
            with open_tune_context(replace(context, settings=settings), job) as tuning:
                target, name = tuning.machine.runner.target, tuning.subject.model.name
                if job is JobType.SGAT:
                    subgraphs = plan_subgraphs(tuning)
                else:
                    contexts = [tuning]
                    if subgraphs is not None and subgraphs.chosen is not None:
                        own = tuning.with_chosen(subgraphs.chosen)
                        contexts = [own, tuning] if subgraphs.is_open else [own]
                    operators = plan_operators(contexts)
    planned = [one for one in (subgraphs, operators) if one is not None]
    return TuningPlan(
        model=name,
        soc_version=target.soc_version,
        core_num=target.core_num,
        base=planned[0].reuse.base,
        subgraphs=subgraphs.reuse if subgraphs is not None else _NOTHING,
        operators=operators.reuse if operators is not None else _NOTHING,
        shares=operators.shares if operators is not None else {},
        most_s=sum(one.most_s for one in planned),
    )
