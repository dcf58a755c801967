"""All operators of a model: one after another, or first a screening of each where time is short.

A search to the end of every operator takes minutes; most of what it brings, its first guess brings.
Where a time limit does not allow for all of them, every operator gets that first, with as many
pairs as an interval needs, and what time is left goes on where it promises most.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from aoe.device.compiler import KernelSource, kernel_name
from aoe.execute.messages import TaskRunner
from aoe.execute.workers.measure_pool import MeasurePool, SerialExecutor
from aoe.graph.regions import Refusal, Region
from aoe.tasks.operators.lookup import OperatorLookup
from aoe.tasks.operators.operator import (
    OperatorContext,
    OperatorSearch,
    TunedOperator,
    begin_search,
    look_up_operator,
)
from aoe.tasks.operators.operator_budget import OperatorBudget
from aoe.tasks.operators.operators import FoundOperators, Operator
from aoe.tuner.task_scheduler import BudgetSlice, FinishedSlice, tune_tasks

OperatorPool = MeasurePool[FinishedSlice[Operator, TunedOperator]]
_COMPILED_AHEAD = 2
"""First guesses that are compiled at once, by the compiling processes there are: kernels take
from 0.2 to 2 s, and the last one is waited for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedOperators:
    """Operators of a model with the outcomes of their tuning."""

    operators: tuple[TunedOperator, ...]  # By falling share of its time
    refusals: tuple[Refusal, ...]  # Nodes left alone, with the reason


def tune_found(
    found: FoundOperators,
    *,
    unfuse: Callable[[FoundOperators, Sequence[Region]], FoundOperators],
    budget: OperatorBudget,
    context: OperatorContext,
    on_event: Callable[[TunedOperator], None],
    measure_pool: OperatorPool | None = None,
    later: Sequence[Operator] = (),
    checkpoint: Callable[[Sequence[TunedOperator]], None] = lambda done: None,
) -> TunedOperators:
    """Tune what promises most first; parts of what was fused and is not won join the others.

    Args:
        found: The operators of a model.
        unfuse: See `part_operators`; what is `later` may be among what it gives.
        budget: Shares the trials and the time out.
        context: What operators are tuned with.
        on_event: Is told of each operator that is done, and again where more time has changed that.
        measure_pool: Does the searches; None for this machine, one after another.
        later: Other operators that compute nodes of these; their turn comes when all of these had
            a first guess.
        checkpoint: Is called with the operators tuned so far, between two searches.

    Raises:
        BankFormatError: the bank file is corrupt.
    """
    operators = OperatorTasks(
        found=found,
        left=found,
        unfuse=unfuse,
        budget=budget,
        context=context,
        on_event=on_event,
        measure_pool=measure_pool or SerialExecutor(),
        checkpoint=checkpoint,
    )
    budget.see(operators.untouched())
    operators.look_up()
    if budget.is_hurried(operators.untouched()):
        operators.screen_all()
        operators.later = later
    operators.tune_all()
    if operators.later != later:
        operators.later = later
        operators.tune_all()
    operators.use_what_is_left()
    return operators.result()


@dataclass(slots=True, kw_only=True)
class OperatorTasks:
    """The operators of a run, as tasks of a scheduler."""

    found: FoundOperators
    # Those that are not fused, with the parts of what was lost, which may be fused.
    left: FoundOperators
    unfuse: Callable[[FoundOperators, Sequence[Region]], FoundOperators]
    budget: OperatorBudget
    context: OperatorContext
    on_event: Callable[[TunedOperator], None]
    measure_pool: OperatorPool
    checkpoint: Callable[[Sequence[TunedOperator]], None]
    done: dict[str, TunedOperator] = field(default_factory=dict)  # What became of each, by key
    # Searches that were screened and may go on.
    open: dict[str, OperatorSearch] = field(default_factory=dict)
    # Searches that run now and the trials they had before, by key.
    running: dict[str, tuple[OperatorSearch, int]] = field(default_factory=dict)
    lost: list[Region] = field(default_factory=list)  # Places of fused operators that were not won
    # Searches that have won nothing and got less than they are worth, by key.
    cut: dict[str, OperatorSearch] = field(default_factory=dict)
    # What the banks say of operators whose search has not begun, by key.
    looked_up: dict[str, OperatorLookup] = field(default_factory=dict)
    # Searches of fused operators whose parts have had their turn instead.
    given_up: list[OperatorSearch] = field(default_factory=list)
    planned: int = 0
    later: Sequence[Operator] = ()  # What else there is, once it has its turn
    is_screening: bool = False  # True while every operator gets its first guess
    # True once a search had to stop because the next candidate would take too long.
    is_short: bool = False

    def all(self) -> tuple[Operator, ...]:
        """Return the operators there are to tune by now."""
        first = (*self.fused(), *self.left.operators)
        known = {one.key for one in first}
        return (*first, *(one for one in self.later if one.key not in known))

    def fused(self) -> tuple[Operator, ...]:
        """Return the fused operators that may be taken apart, and those made of others."""
        return tuple({one.key: one for one in (*self.found.fused, *self.left.fused)}.values())

    def untouched(self) -> list[Operator]:
        """Return the operators that have not begun."""
        return [one for one in self.all() if one.key not in self.done]

    def look_up(self) -> None:
        """Take what the banks know first: it tells what searches of similar operators bring."""
        while waiting := [one for one in self.untouched() if one.key not in self.looked_up]:
            self._plan(self.untouched())
            for operator in waiting:
                found = look_up_operator(operator, self._context())
                if isinstance(found, TunedOperator):
                    self._take(found, 0.0)
                else:
                    self.looked_up[operator.key] = found
            self._look_for_parts()

    def screen_all(self) -> None:
        """Give every operator its first guess, several being compiled at once."""
        if self.measure_pool.slots() > 1:
            self.is_screening = True
            self._run()
            self.is_screening = False
            return
        coming: list[OperatorSearch] = []
        while coming or self.untouched():
            began_s = self.context.clock()
            searches = coming or self._next_screenings(())
            # where there are cores for it, the next ones are compiled while these are measured
            coming = self._next_screenings(searches) if self._is_beside() else []
            preparing_s = (self.context.clock() - began_s) / max(1, len(searches))
            for search in searches:
                began_s = self.context.clock()
                self.context.log.begin(search.operator.key, 1)
                tuned = search.screen(self._context())
                if not search.is_over:
                    self.open[search.operator.key] = search
                self._take(tuned, self.context.clock() - began_s + preparing_s, is_screening=True)
                self._pass_checkpoint()
            self._look_for_parts()

    def _next_screenings(self, begun: Sequence[OperatorSearch]) -> list[OperatorSearch]:
        """Begin the searches that come after others, and have their first guesses compiled."""
        under_way = {one.operator.key for one in begun}
        waiting = [one for one in self.untouched() if one.key not in under_way]
        if not waiting:
            return []
        self._plan(self.untouched())
        ordered = self.budget.screenings(waiting)
        chosen = _apart(ordered, [one.operator for one in begun])[: self._compiled_at_once()]
        searches = [search for one in chosen if (search := self._begun(one)) is not None]
        self._compile_ahead([source for one in searches for source in one.sources_ahead()])
        return searches

    def tune_all(self) -> None:
        """Search what is left, and go on with what was only screened."""
        self._run()

    def use_what_is_left(self) -> None:
        """Go on with what got less than it is worth, where there is time after all.

        A later run need not begin with it anew then, nor with what was given up for its parts.
        """
        while self.cut and self._has_time():
            self.open, self.cut = self.cut, {}
            self.tune_all()
        if self._has_time() and not self.is_short:
            for search in self.given_up:
                search.give_up(self._context())

    def _has_time(self) -> bool:
        return self.context.left_s() > 0 and self.trials_left() >= 1

    def _run(self) -> None:
        tune_tasks(self, self.context, self.measure_pool)

    # ---- what the scheduler asks: see `Tasks` ----

    def waiting(self) -> list[Operator]:
        """Return the operators left to tune; without time, only operators that have not begun."""
        if self.is_screening or self.context.left_s() <= 0:
            return self.untouched()
        return [one for one in self.all() if one.key not in self.done or one.key in self.open]

    def next_slice(self, tasks: Sequence[Operator], trials_left: float) -> BudgetSlice[Operator]:
        """Return the operator that promises most for the time; see `OperatorBudget`."""
        self._plan(self.untouched())
        if self.is_screening:
            first = self.budget.screenings(tasks)[0]
            return BudgetSlice(task=first, trials=1, is_screening=True)
        return self.budget.next_slice(tasks)

    def begin(
        self, given: BudgetSlice[Operator], trials_left: float
    ) -> Callable[[TaskRunner], TunedOperator] | None:
        """Return the search of an operator for a slice, None if the bank had its answer."""
        operator = given.task
        search = self.open.pop(operator.key, None) or self._begun(operator)
        if search is None:
            self._look_for_parts()
            return None
        context = replace(self.context, trials_left=trials_left)
        self.running[operator.key] = search, len(search.search.trials)

        def run(context: OperatorContext) -> TunedOperator:
            if given.is_screening:
                return search.screen(context)
            return search.finish(context, given.trials, is_enough=given.is_enough)

        return lambda runner: search.run_at(runner, context, run)

    def record(self, finished: FinishedSlice[Operator, TunedOperator]) -> None:
        """Take what became of an operator; its search may go on later."""
        given, tuned = finished.slice, finished.result
        search, tried = self.running.pop(given.task.key)
        is_over = search.is_over
        has_tried = len(search.search.trials) > tried
        is_cut = not (search.is_enough or is_over) and has_tried
        self.is_short |= tried > 0 and not (search.is_enough or is_over or has_tried)
        if given.is_screening and not is_over:
            self.open[given.task.key] = search
        elif not given.is_screening and is_cut and tuned.schedule is None:
            search.seen = tuned  # what has won is a hit from now on
            self.cut[given.task.key] = search
        self._take(tuned, finished.seconds, is_screening=given.is_screening)
        self._look_for_parts()
        self._pass_checkpoint()

    def trials_left(self) -> float:
        """Return the number of candidates the run may still measure."""
        return self.context.trials_to_spend()

    # ---- the run ----

    def result(self) -> TunedOperators:
        """Return the tuned operators; occurrences found since an operator was tuned are added."""
        tuned = self._tuned_so_far()
        tuned.sort(key=lambda item: (-item.operator.share, item.operator.key))
        return TunedOperators(operators=tuple(tuned), refusals=self.left.refusals)

    def _tuned_so_far(self) -> list[TunedOperator]:
        done = [one for one in self.all() if one.key in self.done]
        return [replace(self.done[one.key], operator=one) for one in done]

    def _pass_checkpoint(self) -> None:
        """Call the checkpoint, unless the last comparison is next or another search measures."""
        if not self.running and self.waiting():
            self.checkpoint(self._tuned_so_far())

    def _begun(self, operator: Operator) -> OperatorSearch | None:
        """Return the search of an operator, None if the bank had its answer."""
        context = self._context()
        found: TunedOperator | OperatorLookup
        earlier = self.looked_up.pop(operator.key, None)
        if earlier is None or self._is_known_since(operator, earlier):
            found = look_up_operator(operator, context)
        else:
            found = earlier
        if isinstance(found, TunedOperator):
            begun: TunedOperator | OperatorSearch = found
        else:
            begun = begin_search(operator, context, self.budget.budget(operator), found)
        if isinstance(begun, OperatorSearch):
            return begun
        self._take(begun, 0.0)
        return None

    def _is_known_since(self, operator: Operator, found: OperatorLookup) -> bool:
        """True if another run has put a record of an operator into the bank since its look-up."""
        return not found.has_record and self.context.bank.find(operator.workload) is not None

    def _take(self, tuned: TunedOperator, seconds: float, *, is_screening: bool = False) -> None:
        key = tuned.operator.key
        before = self.done.get(key)
        is_new = before != tuned
        self.context.count.spent += max(0, _trials_of(tuned) - _trials_of(before))
        self.budget.learn(tuned, seconds, is_screening=is_screening)
        self._forget_losers(tuned)
        self.done[key] = tuned
        if is_new:
            self.on_event(tuned)

    def _look_for_parts(self) -> None:
        while len(lost := _lost(self.fused(), self.done)) > len(self.lost):
            self.lost = lost
            self.left = self.unfuse(self.found, lost)
            occurrences = {region.nodes for region in lost}
            for one in self.fused():  # its parts have their turn instead
                if any(region.nodes in occurrences for region in one.regions):
                    search = self.open.pop(one.key, None) or self.cut.pop(one.key, None)
                    self.given_up += [search] if search is not None else []

    def _plan(self, waiting: Sequence[Operator]) -> None:
        if self.planned != len(self.done) + len(waiting):
            self.planned = len(self.done) + len(waiting)
            self.context.progress.plan(self.planned)
            self.context.log.plan([one.line for one in self.all()])

    def _context(self) -> OperatorContext:
        return replace(self.context, trials_left=self.trials_left())

    def _is_beside(self) -> bool:
        return self.context.builder is not None and self.context.builder.is_beside

    def _compiled_at_once(self) -> int:
        compilers = self.context.builder
        return _COMPILED_AHEAD * (compilers.processes if compilers is not None else 1)

    def _compile_ahead(self, sources: Sequence[KernelSource]) -> None:
        if self.context.builder is not None and (left_s := self.context.left_s()) > 0:
            self.context.builder.prepare(sources, left_s=left_s)

    def _forget_losers(self, tuned: TunedOperator) -> None:
        if self.context.builder is not None:
            schedule = tuned.schedule
            name = kernel_name(tuned.operator.workload, schedule) if schedule is not None else None
            self.context.builder.keep_only(name)


def _trials_of(tuned: TunedOperator | None) -> int:
    """Return the number of candidates measured for an operator so far."""
    return len(tuned.search.trials) if tuned is not None and tuned.search is not None else 0


def _apart(ordered: Sequence[Operator], begun: Sequence[Operator]) -> list[Operator]:
    """Return operators no two of which compute the same nodes, nor any that have begun.

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


def _lost(fused: Sequence[Operator], done: Mapping[str, TunedOperator]) -> list[Region]:
    """Return the occurrences for which no precision of a fused operator has brought anything."""
    occurrences = [(region, one.key) for one in fused for region in one.regions]
    hoped = {r.nodes for r, key in occurrences if key not in done or done[key].schedule is not None}
    return [region for region, _ in occurrences if region.nodes not in hoped]
