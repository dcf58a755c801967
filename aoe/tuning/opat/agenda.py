"""Which operator is tuned next: the one expected to save most of the model's time per second.

What tuning can save follows from the time an operator takes and the least it could take, by the
roofline. How much of that is ever reached is learnt while the run goes on: where three pointwise
convolutions behind each other were as fast as ONNX Runtime's, the fourth can wait.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from aoe.device.compiler import kernel_name
from aoe.graph.regions import Refusal, Region
from aoe.kernels.family import KernelTarget
from aoe.kernels.registry import get_family
from aoe.kernels.roofline import MachineRates, least_us
from aoe.operators import OperatorKind, facts_of
from aoe.tuning.opat.operator import OperatorTools, TunedOperator, tune_operator
from aoe.tuning.opat.operators import FoundOperators, Operator
from aoe.workload import Workload

_FULL_GAIN = 0.01
"""Expected share of the model's time from which on the whole budget of trials is spent."""
_LEAST_TRIALS = ((0.005, 8), (0.0015, 6), (0.0005, 4), (0.0, 2))
"""Trials where at least such a share is expected. The first guess and the answer to a similar
workload are two; more would take longer to try than what they can save is worth, and models have
dozens of operators that small."""
_FULL_PRODUCT_TRIALS = 0.5
"""Share of the budget sums of products get: their candidates take the longest to compile, and the
register file leaves few tiles that are any good, which are the first guesses."""
_HURRIED_TRIALS = 4
"""Where the time limit does not allow for all trials, every operator gets so many at least: one
batch, which has the first guesses."""
_TRIAL_S = 0.6
"""Seconds of a trial before any is known."""
_OVERHEAD_TRIALS = 3
"""What an operator takes besides: its baseline, and fresh pairs for the winner."""
_GEOMETRY = ("kernel_shape", "strides", "dilations")


@dataclass(slots=True)
class _Experience:
    """Shares of what was expected that operators of one kind have saved."""

    reached: float = 0.5
    operators: float = 0.5

    def add(self, share: float) -> None:
        self.reached += min(max(share, 0.0), 2.0)
        self.operators += 1

    @property
    def share(self) -> float:
        return self.reached / self.operators


@dataclass(slots=True)
class _Pace:
    seconds: float = _TRIAL_S
    trials: float = 1.0

    @property
    def trial_s(self) -> float:
        return self.seconds / self.trials


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """What an operator gets: trials, their seconds, and what they are expected to save."""

    trials: int
    seconds: float
    expected_us: float

    @property
    def gain_per_second(self) -> float:
        return self.expected_us / self.seconds


@dataclass(slots=True, kw_only=True)
class Agenda:
    """What is expected of the operators of a model, by what the others have brought.

    Attributes:
        rates: Of the machine.
        target: What kernels are made for.
        model_us: Time of the model's operators, untuned.
        trials: Most trials of an operator.
        left_s: Seconds until the time limit of the run.
    """

    rates: MachineRates
    target: KernelTarget
    model_us: float
    trials: int
    left_s: Callable[[], float] = lambda: math.inf
    _least_us: dict[str, float] = field(default_factory=dict)
    _now_us: dict[tuple[int, ...], float] = field(default_factory=dict)
    _kinds: defaultdict[Hashable, _Experience] = field(
        default_factory=lambda: defaultdict(_Experience)
    )
    _paces: defaultdict[str, _Pace] = field(default_factory=lambda: defaultdict(_Pace))

    def next(self, operators: Sequence[Operator]) -> tuple[Operator, int]:
        """Return the operator to tune next, of equals the first, and how many trials it gets.

        Where the time left is too short for all that `operators` are worth, each gets fewer.
        """
        plans = [self._plan(operator) for operator in operators]
        at = max(range(len(plans)), key=lambda number: plans[number].gain_per_second)
        worth = plans[at].trials
        needed_s = sum(plan.seconds for plan in plans)
        hurry = self.left_s() / needed_s if needed_s > 0 else 1.0
        return operators[at], min(worth, max(_HURRIED_TRIALS, round(worth * min(hurry, 1.0))))

    def budget(self, operator: Operator) -> int:
        """Return how many trials an operator is worth, time permitting."""
        return self._plan(operator).trials

    def _plan(self, operator: Operator) -> _Plan:
        expected_us = self._expected_us(operator)
        trials = self._trials(operator, expected_us / self.model_us)
        pace = self._paces[operator.workload.op_type]
        return _Plan(
            trials=trials,
            seconds=pace.trial_s * (trials + _OVERHEAD_TRIALS),
            expected_us=expected_us,
        )

    def _trials(self, operator: Operator, gain: float) -> int:
        """Return the trials for an operator expected to save this share of the model's time."""
        share = min(1.0, gain / _FULL_GAIN)
        if _is_product(operator.workload):
            share *= _FULL_PRODUCT_TRIALS
        least = next(count for floor, count in _LEAST_TRIALS if gain >= floor)
        return max(min(least, self.trials), round(self.trials * share))

    def learn(self, tuned: TunedOperator, seconds: float) -> None:
        """Take what has become of an operator into account.

        Args:
            tuned: The operator.
            seconds: What it took.
        """
        operator = tuned.operator
        found = tuned.search
        if found is not None and found.trials:
            pace = self._paces[operator.workload.op_type]
            pace.seconds += seconds
            pace.trials += len(found.trials) + _OVERHEAD_TRIALS
        room_us = self._room_us(operator)
        saved_us = 0.0
        if tuned.schedule is not None and tuned.speedup:
            after_us = operator.default_us / len(operator.regions) / tuned.speedup
            saved_us = operator.default_us * (1 - 1 / tuned.speedup)
            for region in operator.regions:
                self._now_us[region.nodes] = min(after_us, self._now_us.get(region.nodes, after_us))
        is_known = tuned.schedule is not None or tuned.estimate is not None
        if is_known and room_us > 0:
            self._kinds[_kind(operator.workload)].add(saved_us / room_us)

    def _expected_us(self, operator: Operator) -> float:
        """Return what tuning is expected to save in one run of the model."""
        return self._room_us(operator) * self._kinds[_kind(operator.workload)].share

    def _room_us(self, operator: Operator) -> float:
        """Return the time over the roofline, all places together, as fast as they are by now."""
        if operator.key not in self._least_us:
            workload = operator.workload
            family = get_family(workload.op_type)
            self._least_us[operator.key] = least_us(workload, family, self.target, self.rates)
        each_us = operator.default_us / len(operator.regions)
        now_us = sum(self._now_us.get(region.nodes, each_us) for region in operator.regions)
        return max(0.0, now_us - self._least_us[operator.key] * len(operator.regions))


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
    agenda: Agenda,
    tools: OperatorTools,
    tell: Callable[[TunedOperator], None],
) -> TunedOperators:
    """Tune what promises most first; parts of what was fused and is not won join the others.

    Args:
        found: The operators of a model.
        take_apart: See `part_operators`.
        agenda: Says what comes next.
        tools: What operators are tuned with.
        tell: Is told of each operator that is done.

    Raises:
        BankFormatError: the bank file is corrupt.
    """
    done: dict[str, TunedOperator] = {}
    lost: list[Region] = []
    left, planned = found, 0
    while waiting := [one for one in (*found.fused, *left.operators) if one.key not in done]:
        if planned != len(done) + len(waiting):
            planned = len(done) + len(waiting)
            tools.progress.plan(planned)
        operator, budget = agenda.next(waiting)
        began_s = time.monotonic()
        tuned = tune_operator(operator, replace(tools, trials_left=_left(tools, done)), budget)
        agenda.learn(tuned, time.monotonic() - began_s)
        _forget_losers(tuned, tools)
        done[operator.key] = tuned
        tell(tuned)
        if len(now_lost := _lost(found.fused, done)) > len(lost):
            lost = now_lost
            left = take_apart(found, lost)
    # an operator may have got more places since it was tuned
    tuned_operators = [
        replace(done[one.key], operator=one) for one in (*found.fused, *left.operators)
    ]
    tuned_operators.sort(key=lambda item: (-item.operator.share, item.operator.key))
    return TunedOperators(operators=tuple(tuned_operators), refusals=left.refusals)


def _left(tools: OperatorTools, done: Mapping[str, TunedOperator]) -> float:
    """Return how many candidates the run may still measure."""
    most = tools.settings.max_tuning_count
    spent = sum(len(one.search.trials) for one in done.values() if one.search is not None)
    return math.inf if most is None else most - spent


def _forget_losers(tuned: TunedOperator, tools: OperatorTools) -> None:
    if tools.compilers is not None:
        schedule = tuned.schedule
        name = kernel_name(tuned.operator.workload, schedule) if schedule is not None else None
        tools.compilers.keep_only(name)


def _lost(fused: Sequence[Operator], done: Mapping[str, TunedOperator]) -> list[Region]:
    """Return the places for which no precision of a fused operator has brought anything."""
    places = [(region, one.key) for one in fused for region in one.regions]
    hoped = {r.nodes for r, key in places if key not in done or done[key].schedule is not None}
    return [region for region, _ in places if region.nodes not in hoped]


def _is_product(workload: Workload) -> bool:
    return any(facts_of(item).kind is OperatorKind.PRODUCT for item in workload.operations)


def _kind(workload: Workload) -> Hashable:
    """Return what workloads share of which one tells about the other: all but extents."""
    operations = tuple(
        (
            operation.op_type,
            *(operation.attributes.get(name) for name in _GEOMETRY),
            operation.attributes.get("group", 1) == 1,
        )
        for operation in workload.operations
    )
    return workload.precision, operations
