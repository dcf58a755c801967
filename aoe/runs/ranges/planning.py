"""What tuning for a range of shapes would do, without tuning."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from aoe.runs.opening import open_bank
from aoe.runs.operators.planning import looked_up_operator, most_seconds
from aoe.runs.planning import KindPlan, compared_with
from aoe.runs.ranges.run import find_range_operators
from aoe.tasks.operators.earlier import reuse_of
from aoe.tuner.mode import JobType
from aoe.tuner.reuse.book import reuse_summary
from aoe.tuner.tune_context import TuneContext


def plan(tuning: TuneContext, before: Sequence[KindPlan]) -> KindPlan:
    """Return the plan for a range: operators and blocks that are reused, and those tuned.

    Blocks for the rows of frequent shapes are not among them: whether they may pay, only the times
    of the others tell. Images of frequent sizes are, though a size is searched only where images of
    any size have won. The model is optimised and profiled once, as a run does.
    """
    base, bank = compared_with(tuning), open_bank(tuning, None)
    there = find_range_operators(tuning)
    searched = {one.key: one for one in (*there.searched, *there.fixed)}
    look = partial(looked_up_operator, bank, tuning)
    lookups = {key: look(one) for key, one in searched.items()}
    parts = [reuse_of(one, lookups[key], bank, base) for key, one in searched.items()]
    tuned = [one for key, one in searched.items() if lookups[key].tune]
    model_us = there.opened.profile.nodes_us
    return KindPlan(
        reuse=reuse_summary(base, JobType.OPAT, parts),
        shares={key: one.share for key, one in searched.items()},
        most_s=most_seconds(tuning, tuned, model_us)
        + there.blocks_s(there.judged)
        + there.points_s,
    )
