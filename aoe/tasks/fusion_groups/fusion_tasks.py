"""Sets of fused kernels as tasks of a scheduler: which kernels of a subgraph go together."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from aoe.bank.records.subgraph import FusionGroup
from aoe.execute.messages import TaskRunner
from aoe.ort.inputs import ModelInputs
from aoe.results.files import OUT_OF_TIME, RepoOutcome
from aoe.tasks.fusion_groups.choosing import fusion_space
from aoe.tasks.fusion_groups.kernels import WonKernels, saved_us, source_of
from aoe.tasks.fusion_groups.measuring import FusionMeasurer
from aoe.tasks.operators.operator import TunedOperator
from aoe.tasks.rewrites.lookup import SubgraphLookup, TunedSubgraph, known_subgraph
from aoe.tasks.rewrites.space import StrategySpace
from aoe.tasks.rewrites.subgraph_task import SubgraphContext, search_subgraph
from aoe.tasks.rewrites.subgraphs import Subgraph
from aoe.tuner.policies import final_policy
from aoe.tuner.task_scheduler import BudgetSlice, FinishedSlice

SETS_MAX = 6
"""Sets of kernels that are measured for one subgraph: what each kernel saves is known already."""
SET_S = 1.5
"""Seconds to measure a set of kernels, about: two sessions, warm-up, pairs."""


@dataclass(slots=True, kw_only=True)
class FusionTasks:
    """The subgraphs of an optimised graph whose kernels were tuned alone; see `Tasks`."""

    # Subgraphs nothing has been done about; the one with most to save comes first.
    left: list[Subgraph]
    lookups: Mapping[str, SubgraphLookup]  # What the banks say of each, by its identity
    context: SubgraphContext  # What with
    won: WonKernels  # Kernels that are faster alone
    library: Path  # File of these
    folder: Path  # Scratch directory, which is made
    bytes_around: int  # What one inference of the model reads and writes
    accept_busy: bool  # True to decide on a busy machine by wall time
    on_event: Callable[[TunedSubgraph], None]  # Is told of each subgraph that is done
    detail: Callable[[str], None]  # Is told the same in a line, for the log
    done: list[TunedSubgraph] = field(default_factory=list)  # What became of each

    def waiting(self) -> Sequence[Subgraph]:
        """Return the subgraphs nothing has been done about."""
        return self.left

    def next_slice(self, tasks: Sequence[Subgraph], trials_left: float) -> BudgetSlice[Subgraph]:
        """Return the subgraph with most to save."""
        return BudgetSlice(task=tasks[0], trials=self.context.budget)

    def begin(
        self, given: BudgetSlice[Subgraph], trials_left: float
    ) -> Callable[[TaskRunner], TunedSubgraph] | None:
        """Return the search of a subgraph, None if the bank had its answer or there is no time."""
        subgraph, waiting = given.task, len(self.left)
        lookup = self.lookups[subgraph.graph_id]
        self.left.remove(subgraph)
        if not lookup.tune:
            self._take(known_subgraph(subgraph, lookup))
            return None
        kernels = self.won.of(subgraph)
        gains = {group: gain for group, one in kernels.items() if (gain := saved_us(one)) > 0}
        owned = {group: subgraph.groups[group].owned for group in gains}
        choices = fusion_space(gains, owned)
        if gains and lookup.stored is None and self.context.left_s() <= 0:
            self._take(_not_measured(subgraph, lookup, choices))
            return None

        def search(runner: TaskRunner) -> TunedSubgraph:
            return search_subgraph(
                subgraph,
                lookup,
                replace(
                    self.context,
                    runner=runner,
                    measurer=lambda subgraph, runner: self._measurer(subgraph, runner, kernels),
                    space=lambda subgraph: choices,
                    is_partial=self.won.is_open(subgraph),
                    affordable=_affordable(self.context.left_s() / waiting),
                    final=final_policy(
                        runner.target.core_num,
                        accept_busy=self.accept_busy,
                        left_s=self.context.left_s(),
                    ),
                ),
            )

        return search

    def record(self, finished: FinishedSlice[Subgraph, TunedSubgraph]) -> None:
        """Take what became of a subgraph."""
        tuned = finished.result
        self.detail(f"{tuned.subgraph.op_name}: {tuned.outcome.value}, {tuned.reason}")
        self._take(tuned)

    def trials_left(self) -> float:
        """Return infinity: sets are few, and their trials count for no limit."""
        return math.inf

    def _take(self, tuned: TunedSubgraph) -> None:
        self.done.append(tuned)
        self.on_event(tuned)

    def _measurer(
        self, subgraph: Subgraph, runner: TaskRunner, kernels: Mapping[FusionGroup, TunedOperator]
    ) -> FusionMeasurer:
        self.folder.mkdir(exist_ok=True)
        return FusionMeasurer(
            subgraph,
            {group: source_of(one).name for group, one in kernels.items()},
            self.library,
            runner,
            directory=self.folder / subgraph.graph_id,
            inputs=ModelInputs(seed=self.context.settings.seed),
            bytes_around=self.bytes_around,
        )


def _affordable(left_s: float) -> int | None:
    """Return the number of sets of kernels that fit into so many seconds, None for any number."""
    return None if left_s >= SET_S * (SETS_MAX + 1) else 1


def _not_measured(
    subgraph: Subgraph, lookup: SubgraphLookup, choices: StrategySpace
) -> TunedSubgraph:
    """Return a subgraph with the kernels that should save most; no record says so."""
    return TunedSubgraph(
        subgraph=subgraph,
        outcome=RepoOutcome.UNSATISFIED,
        reason=f"{lookup.reason}; {OUT_OF_TIME}, its kernels have won alone",
        strategy=choices.strategy(choices.space.first_guesses[0]),
        untried=OUT_OF_TIME,
    )
