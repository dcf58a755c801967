"""All operators of a model: one after another, or first a screening of each where time is short.

A search to the end of every operator takes minutes; most of what it brings, its first guess brings.
Where a time limit does not allow for all of them, every operator gets that first, with as many
pairs as an interval needs, and what time is left goes on where it promises most.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from aoe.device.compiler import KernelSource, kernel_name
from aoe.graph.regions import Refusal, Region
from aoe.tuning.opat.operators import FoundOperators, Operator
from aoe.tuning.opat.searching.measure_pool import Job, MeasurePool, SerialExecutor
from aoe.tuning.opat.searching.operator import (
    OperatorSearch,
    OperatorTools,
    TunedOperator,
    begin_operator,
)
from aoe.tuning.opat.searching.task_scheduler import TaskScheduler

_COMPILED_AHEAD = 2
"""First guesses that are compiled at once, by the compiling processes there are: kernels take
from 0.2 to 2 s, and the last one is waited for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedOperators:
    """What became of the operators of a model.

    Attributes:
        operators: By falling share of its time.
        refusals: Nodes left alone, with the reason.
    """

    operators: tuple[TunedOperator, ...]
    refusals: tuple[Refusal, ...]


def tune_found(
    found: FoundOperators,
    *,
    take_apart: Callable[[FoundOperators, Sequence[Region]], FoundOperators],
    scheduler: TaskScheduler,
    tools: OperatorTools,
    tell: Callable[[TunedOperator], None],
    measure_pool: MeasurePool | None = None,
    later: Sequence[Operator] = (),
) -> TunedOperators:
    """Tune what promises most first; parts of what was fused and is not won join the others.

    Args:
        found: The operators of a model.
        take_apart: See `part_operators`; what is `later` may be among what it gives.
        scheduler: Says what comes next.
        tools: What operators are tuned with.
        tell: Is told of each operator that is done, and again where more time has changed that.
        measure_pool: Does the searches; None for this machine, one after another.
        later: Other operators that compute nodes of these; their turn comes when all of these had
            a first guess.

    Raises:
        BankFormatError: the bank file is corrupt.
    """
    rounds = _Rounds(
        found=found,
        left=found,
        take_apart=take_apart,
        scheduler=scheduler,
        tools=tools,
        tell=tell,
        measure_pool=measure_pool or SerialExecutor(),
    )
    scheduler.see(rounds.untouched())
    if scheduler.is_hurried(rounds.untouched()):
        rounds.screen_all()
        rounds.later = later
    rounds.tune_all()
    if rounds.later != later:
        rounds.later = later
        rounds.tune_all()
    rounds.use_what_is_left()
    return rounds.result()


@dataclass(slots=True, kw_only=True)
class _Rounds:
    """The operators of a run.

    Attributes:
        left: Those that are not fused, with the parts of what was lost, which may be fused.
        done: What became of each, by key.
        open: Searches that were glanced at and may go on.
        running: Trials promised to searches that go on now, by key.
        lost: Places of fused operators that were not won.
        cut: Searches that have won nothing and got less than they are worth, by key.
        given_up: Searches of fused operators whose parts have had their turn instead.
        later: What else there is, once it has its turn.
    """

    found: FoundOperators
    left: FoundOperators
    take_apart: Callable[[FoundOperators, Sequence[Region]], FoundOperators]
    scheduler: TaskScheduler
    tools: OperatorTools
    tell: Callable[[TunedOperator], None]
    measure_pool: MeasurePool
    done: dict[str, TunedOperator] = field(default_factory=dict)
    open: dict[str, OperatorSearch] = field(default_factory=dict)
    running: dict[str, int] = field(default_factory=dict)
    lost: list[Region] = field(default_factory=list)
    cut: dict[str, OperatorSearch] = field(default_factory=dict)
    given_up: list[OperatorSearch] = field(default_factory=list)
    planned: int = 0
    later: Sequence[Operator] = ()

    def all(self) -> tuple[Operator, ...]:
        """Return what there is to tune by now."""
        first = (*self.fused(), *self.left.operators)
        known = {one.key for one in first}
        return (*first, *(one for one in self.later if one.key not in known))

    def fused(self) -> tuple[Operator, ...]:
        """Return what may be taken apart, with what came of others that were."""
        return tuple({one.key: one for one in (*self.found.fused, *self.left.fused)}.values())

    def untouched(self) -> list[Operator]:
        """Return what nothing has been done about."""
        return [one for one in self.all() if one.key not in self.done]

    def screen_all(self) -> None:
        """Give every operator its first guess, several being compiled at once."""
        if self.measure_pool.places() > 1:
            self._go_on_with(self.untouched, is_screening=True)
            return
        coming: list[OperatorSearch] = []
        while coming or self.untouched():
            began_s = time.monotonic()
            searches = coming or self._next_screenings(())
            # where there are cores for it, the next ones are compiled while these are measured
            coming = self._next_screenings(searches) if self._is_beside() else []
            preparing_s = (time.monotonic() - began_s) / max(1, len(searches))
            for search in searches:
                began_s = time.monotonic()
                tuned = search.screen(self._tools())
                if not search.search.is_over:
                    self.open[search.operator.key] = search
                self._take(tuned, time.monotonic() - began_s + preparing_s, is_screening=True)
            self._look_for_parts()

    def _next_screenings(self, begun: Sequence[OperatorSearch]) -> list[OperatorSearch]:
        """Begin the searches that come after others, and have their first guesses compiled."""
        under_way = {one.operator.key for one in begun}
        waiting = [one for one in self.untouched() if one.key not in under_way]
        if not waiting:
            return []
        self._plan(self.untouched())
        ordered = self.scheduler.screenings(waiting)
        chosen = _apart(ordered, [one.operator for one in begun])[: self._compiled_at_once()]
        searches = [search for one in chosen if (search := self._begun(one)) is not None]
        self._compile_ahead([source for one in searches for source in one.search.ahead(1)])
        return searches

    def tune_all(self) -> None:
        """Search what is left, and go on with what was only glanced at."""
        self._go_on_with(self._waiting, is_screening=False)

    def use_what_is_left(self) -> None:
        """Go on with what got less than it is worth, where there is time after all.

        A later run need not begin with it anew then, nor with what was given up for its parts.
        """
        while self.cut and self._has_time():
            self.open, self.cut = self.cut, {}
            self.tune_all()
        if self._has_time():
            for search in self.given_up:
                search.give_up(self._tools())

    def _has_time(self) -> bool:
        return self.tools.left_s() > 0 and self._tools().trials_left >= 1

    def _go_on_with(self, waiting: Callable[[], list[Operator]], *, is_screening: bool) -> None:
        """Keep the crew busy with what waits, until nothing does."""
        while True:
            free = [one for one in waiting() if one.key not in self.running]
            if free and self._has_room():
                self._plan(self.untouched())
                self._begin(free, is_screening=is_screening)
            elif self.running:
                self._take_next()
            else:
                return
            self._look_for_parts()

    def _has_room(self) -> bool:
        if not self.running:
            return True
        return len(self.running) < self.measure_pool.places() and self._tools().trials_left >= 1

    def _begin(self, free: Sequence[Operator], *, is_screening: bool) -> None:
        turn = self.scheduler.next(free)
        operator, trials = turn.operator, turn.trials
        if is_screening:
            operator, trials = self.scheduler.screenings(free)[0], 1
        search = self.open.pop(operator.key, None) or self._begun(operator)
        if search is not None:
            tools = self._tools()
            self.running[operator.key] = trials
            job = Job(
                search=search,
                trials=trials,
                tools=tools,
                is_screening=is_screening,
                is_enough=turn.is_enough,
                tried=len(search.search.trials),
            )
            self.measure_pool.begin(job)

    def _take_next(self) -> None:
        done = self.measure_pool.next_done()
        if done is None:
            return
        search = done.job.search
        del self.running[search.operator.key]
        if done.job.is_screening and not search.search.is_over:
            self.open[search.operator.key] = search
        elif done.job.is_cut and done.tuned.schedule is None:  # what has won is a hit from now on
            search.seen = done.tuned
            self.cut[search.operator.key] = search
        self._take(done.tuned, done.seconds, is_screening=done.job.is_screening)

    def result(self) -> TunedOperators:
        """Return what became of all; an operator may have got more places since it was tuned."""
        tuned = [replace(self.done[one.key], operator=one) for one in self.all()]
        tuned.sort(key=lambda item: (-item.operator.share, item.operator.key))
        return TunedOperators(operators=tuple(tuned), refusals=self.left.refusals)

    def _waiting(self) -> list[Operator]:
        """Return what is left to do in the time: what was glanced at needs no more of it."""
        if self.tools.left_s() <= 0:
            return self.untouched()
        return [one for one in self.all() if one.key not in self.done or one.key in self.open]

    def _begun(self, operator: Operator) -> OperatorSearch | None:
        """Return the search of an operator, None if the bank had its answer."""
        begun = begin_operator(operator, self._tools(), self.scheduler.budget(operator))
        if isinstance(begun, OperatorSearch):
            return begun
        self._take(begun, 0.0)
        return None

    def _take(self, tuned: TunedOperator, seconds: float, *, is_screening: bool = False) -> None:
        key = tuned.operator.key
        is_new = self.done.get(key) != tuned
        self.scheduler.learn(tuned, seconds, is_screening=is_screening)
        self._forget_losers(tuned)
        self.done[key] = tuned
        if is_new:
            self.tell(tuned)

    def _look_for_parts(self) -> None:
        while len(lost := _lost(self.fused(), self.done)) > len(self.lost):
            self.lost = lost
            self.left = self.take_apart(self.found, lost)
            places = {region.nodes for region in lost}
            for one in self.fused():  # its parts have their turn instead
                if any(region.nodes in places for region in one.regions):
                    search = self.open.pop(one.key, None) or self.cut.pop(one.key, None)
                    self.given_up += [search] if search is not None else []

    def _plan(self, waiting: Sequence[Operator]) -> None:
        if self.planned != len(self.done) + len(waiting):
            self.planned = len(self.done) + len(waiting)
            self.tools.progress.plan(self.planned)

    def _tools(self) -> OperatorTools:
        left = _left(self.tools, self.done) - sum(self.running.values())
        return replace(self.tools, trials_left=left)

    def _is_beside(self) -> bool:
        return self.tools.compilers is not None and self.tools.compilers.is_beside

    def _compiled_at_once(self) -> int:
        compilers = self.tools.compilers
        return _COMPILED_AHEAD * (compilers.processes if compilers is not None else 1)

    def _compile_ahead(self, sources: Sequence[KernelSource]) -> None:
        if self.tools.compilers is not None and (left_s := self.tools.left_s()) > 0:
            self.tools.compilers.prepare(sources, left_s=left_s)

    def _forget_losers(self, tuned: TunedOperator) -> None:
        if self.tools.compilers is not None:
            schedule = tuned.schedule
            name = kernel_name(tuned.operator.workload, schedule) if schedule is not None else None
            self.tools.compilers.keep_only(name)


def _apart(ordered: Sequence[Operator], begun: Sequence[Operator]) -> list[Operator]:
    """Return those of which no two compute the same nodes, nor one any that have begun.

    What is left to save by one precision is known when the other has been seen.
    """
    taken = {region.nodes[-1] for one in begun for region in one.regions}
    apart = []
    for one in ordered:
        ends = {region.nodes[-1] for region in one.regions}
        if taken.isdisjoint(ends):
            apart.append(one)
            taken |= ends
    return apart


def _left(tools: OperatorTools, done: Mapping[str, TunedOperator]) -> float:
    """Return how many candidates the run may still measure."""
    most = tools.settings.max_tuning_count
    spent = sum(len(one.search.trials) for one in done.values() if one.search is not None)
    return math.inf if most is None else most - spent


def _lost(fused: Sequence[Operator], done: Mapping[str, TunedOperator]) -> list[Region]:
    """Return the places for which no precision of a fused operator has brought anything."""
    places = [(region, one.key) for one in fused for region in one.regions]
    hoped = {r.nodes for r, key in places if key not in done or done[key].schedule is not None}
    return [region for region, _ in places if region.nodes not in hoped]
