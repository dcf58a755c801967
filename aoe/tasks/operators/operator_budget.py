"""The budget of operators: the next one is expected to save most of the model's time per second.

What tuning can save follows from the time an operator takes and the least it could take, by the
roofline. How much of that is ever reached is learnt while the run goes on: where three pointwise
convolutions behind each other were as fast as ONNX Runtime's, the fourth can wait.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace

from aoe.kernels.family import KernelTarget
from aoe.kernels.registry import get_family
from aoe.kernels.roofline import MachineRates, least_us, multiply_adds
from aoe.operators import OperatorKind, facts_of
from aoe.results.files import DEFAULT_WAS_BEST
from aoe.tasks.operators.operator import TunedOperator
from aoe.tasks.operators.operators import Operator
from aoe.tuner.task_scheduler import BudgetSlice
from aoe.workload import Workload, gain_kind

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
"""Where the time limit does not allow for all trials, an operator whose turn it is gets so many at
least: one batch."""
_TRIAL_S = 0.6
"""Seconds of a trial before any is known."""
_OVERHEAD_TRIALS = 3
"""What an operator takes besides: its baseline, and fresh pairs for the winner."""
_SCREENING_S = 1.0
"""Seconds of the screening of an operator before any is known."""
_MORE_REACHED = 0.1
"""Share of the room a first guess has left that the rest of a search is expected to save. Source:
what was won in 26 networks of docs/benchmarks.md: first guesses are at 0.96 of the best."""
_LONG_US = 100.0
"""Time of an operator from which on it tells how fast the machine is: a profile counts whole
microseconds."""


@dataclass(slots=True)
class _Experience:
    """Ratio of saved to expected time, over the operators of one kind."""

    reached: float = 0.5
    operators: float = 0.5

    def add(self, share: float) -> None:
        self.reached += min(max(share, 0.0), 2.0)
        self.operators += 1

    @property
    def share(self) -> float:
        return self.reached / self.operators


def _of_more() -> _Experience:
    return _Experience(reached=_MORE_REACHED, operators=1.0)


@dataclass(slots=True)
class _Pace:
    seconds: float
    trials: float = 1.0

    @property
    def trial_s(self) -> float:
        return self.seconds / self.trials


class _Savings:
    """Time that kernels save at occurrences in the model, which may overlap.

    Two occurrences are alike in part if one computes what the other ends in: what is only read
    through by both, a reorder, counts for nothing.
    """

    def __init__(self) -> None:
        self._saved_us: dict[tuple[int, ...], float] = {}
        self._with: defaultdict[int, set[tuple[int, ...]]] = defaultdict(set)
        self._ending: defaultdict[int, set[tuple[int, ...]]] = defaultdict(set)

    def add(self, occurrence: tuple[int, ...], saved_us: float) -> None:
        """Remember what a kernel saves at an occurrence; of several, the most."""
        self._saved_us[occurrence] = max(saved_us, self._saved_us.get(occurrence, 0.0))
        self._ending[occurrence[-1]].add(occurrence)
        for node in occurrence:
            self._with[node].add(occurrence)

    def at(self, occurrence: tuple[int, ...]) -> float:
        """Return the time saved at an occurrence so far, parts of it included, in us."""
        found = {other for node in occurrence for other in self._ending[node]}
        found |= self._with[occurrence[-1]]
        saved_us, taken = 0.0, set[int]()
        for other in sorted(found, key=lambda one: (-self._saved_us[one], one)):
            if taken.isdisjoint(other):
                taken.update(other)
                saved_us += self._saved_us[other]
        return saved_us


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """Budget slice of an operator: trials, seconds, and the time they are expected to save."""

    trials: int
    seconds: float
    expected_us: float

    @property
    def gain_per_second(self) -> float:
        return self.expected_us / self.seconds


@dataclass(slots=True, kw_only=True)
class OperatorBudget:
    """Chooses the operator with the largest expected saving per second of search."""

    rates: MachineRates  # Of the machine
    target: KernelTarget  # What kernels are made for
    model_us: float  # Time of the model's operators, untuned
    trials: int  # Most trials of an operator
    left_s: Callable[[], float] = lambda: math.inf  # Seconds until the time limit of the run
    # Times as long as on a quiet machine that trials take, before one has been measured.
    slowness: float = 1.0
    _least_us: dict[str, float] = field(default_factory=dict)
    _savings: _Savings = field(default_factory=_Savings)
    _kinds: defaultdict[Hashable, _Experience] = field(
        default_factory=lambda: defaultdict(_Experience)
    )
    _more: defaultdict[Hashable, _Experience] = field(default_factory=lambda: defaultdict(_of_more))
    _paces: defaultdict[str, _Pace] = field(init=False)
    _screenings: defaultdict[str, _Pace] = field(init=False)
    _screened: set[str] = field(default_factory=set)
    # Results that were not looked into yet; nobody asks where the bank had all answers.
    _news: list[tuple[TunedOperator, float, bool]] = field(default_factory=list)

    def __post_init__(self) -> None:
        trial_s, screening_s = _TRIAL_S * self.slowness, _SCREENING_S * self.slowness
        self._paces = defaultdict(lambda: _Pace(seconds=trial_s))
        self._screenings = defaultdict(lambda: _Pace(seconds=screening_s))

    def see(self, operators: Sequence[Operator]) -> None:
        """Take into account how fast the default computes operators: no roof lies below that.

        Rates are measured in some ten milliseconds, in which a neighbour may have a core; then
        nothing would seem to be left to save.
        """
        shown = max(map(_shown_rate, operators), default=0.0)
        if shown > self.rates.multiply_adds_per_us:
            self.rates = replace(self.rates, multiply_adds_per_us=shown)
            self._least_us.clear()

    def is_hurried(self, operators: Sequence[Operator]) -> bool:
        """True if the time left is too short for the trials these operators are worth."""
        return self.left_s() < sum(self._plan(operator).seconds for operator in operators)

    def screenings(self, operators: Sequence[Operator]) -> list[Operator]:
        """Return operators in the order of screening: expected saving per second of screening."""
        gains = {
            operator.key: self._expected_us(operator) / self._screening_s(operator)
            for operator in operators
        }
        return sorted(operators, key=lambda operator: -gains[operator.key])

    def _screening_s(self, operator: Operator) -> float:
        """Return the seconds that screening an operator should take."""
        return operator.setting_up_s + self._screenings[operator.workload.op_type].trial_s

    def next_slice(self, operators: Sequence[Operator]) -> BudgetSlice[Operator]:
        """Return the operator to tune next, of equals the first, and how many trials it gets.

        Where the time left is too short for all that `operators` are worth, each gets fewer.
        """
        plans = [self._plan(operator) for operator in operators]
        at = max(range(len(plans)), key=lambda number: plans[number].gain_per_second)
        worth = plans[at].trials
        needed_s = sum(plan.seconds for plan in plans)
        hurry = self.left_s() / needed_s if needed_s > 0 else 1.0
        trials = min(worth, max(_HURRIED_TRIALS, round(worth * min(hurry, 1.0))))
        return BudgetSlice(task=operators[at], trials=trials, is_enough=trials >= worth)

    def seconds(self, operator: Operator) -> float:
        """Return the seconds of an operator's whole budget."""
        return self._plan(operator).seconds

    def budget(self, operator: Operator) -> int:
        """Return the number of trials an operator is worth, time permitting."""
        return self._plan(operator).trials

    def _plan(self, operator: Operator) -> _Plan:
        expected_us = self._expected_us(operator)
        trials = self._trials(operator, expected_us / self.model_us)
        pace = self._paces[operator.workload.op_type]
        return _Plan(
            trials=trials,
            seconds=operator.setting_up_s + pace.trial_s * (trials + _OVERHEAD_TRIALS),
            expected_us=expected_us,
        )

    def _trials(self, operator: Operator, gain: float) -> int:
        """Return the trials for an operator expected to save this share of the model's time."""
        share = min(1.0, gain / _FULL_GAIN)
        if _is_product(operator.workload):
            share *= _FULL_PRODUCT_TRIALS
        least = next(count for floor, count in _LEAST_TRIALS if gain >= floor)
        return max(min(least, self.trials), round(self.trials * share))

    def learn(self, tuned: TunedOperator, seconds: float, *, is_screening: bool = False) -> None:
        """Learn from the result of a search.

        Args:
            tuned: The operator.
            seconds: What it took.
            is_screening: True if that was its first guess only.
        """
        self._news.append((tuned, seconds, is_screening))

    def _catch_up(self) -> None:
        """Look into the results so far, in their order."""
        news, self._news = self._news, []
        for tuned, seconds, is_screening in news:
            self._take(tuned, seconds, is_screening=is_screening)

    def _take(self, tuned: TunedOperator, seconds: float, *, is_screening: bool) -> None:
        operator = tuned.operator
        found = tuned.search
        if found is not None and found.trials:
            self._learn_pace(operator, len(found.trials), seconds, is_screening=is_screening)
        room_us, experience = self._room_us(operator), self._experience(operator)
        saved_us = self._saved_us(tuned)
        is_known = tuned.schedule is not None or tuned.estimate is not None
        is_known = is_known or tuned.reason == DEFAULT_WAS_BEST
        if is_known and room_us > 0:
            experience.add(saved_us / room_us)
        if is_screening:
            self._screened.add(operator.key)

    def _learn_pace(
        self, operator: Operator, trials: int, seconds: float, *, is_screening: bool
    ) -> None:
        pace = (self._screenings if is_screening else self._paces)[operator.workload.op_type]
        pace.seconds += max(0.0, seconds - operator.setting_up_s)
        pace.trials += 1 if is_screening else trials + _OVERHEAD_TRIALS

    def _saved_us(self, tuned: TunedOperator) -> float:
        """Return the time an operator newly saves, which counts as known from now on, in us."""
        if tuned.schedule is None or not tuned.speedup:
            return 0.0
        operator, saved_us = tuned.operator, 0.0
        if not operator.default_us:
            return self._share_us(operator) * max(0.0, 1 - 1 / tuned.speedup)
        each_us = operator.default_us / len(operator.regions)
        after_us = each_us / tuned.speedup
        for region in operator.regions:
            now_us = each_us - self._savings.at(region.nodes)
            saved_us += max(0.0, now_us - after_us)
            self._savings.add(region.nodes, each_us - after_us)
        return saved_us

    def _experience(self, operator: Operator) -> _Experience:
        """Return the experience with this kind of operator: whole searches, or after screening."""
        known = self._more if operator.key in self._screened else self._kinds
        return known[gain_kind(operator.workload)]

    def _expected_us(self, operator: Operator) -> float:
        """Return the time tuning is expected to save in one run of the model, in us."""
        self._catch_up()
        return self._room_us(operator) * self._experience(operator).share

    def _share_us(self, operator: Operator) -> float:
        return operator.share * self.model_us

    def _room_us(self, operator: Operator) -> float:
        """Return the time over the roofline, all occurrences together, as fast as they are by now.

        Of a block of rows all of its share of the model's time: nobody has timed its default.
        """
        if not operator.default_us:
            return self._share_us(operator)
        if operator.key not in self._least_us:
            workload = operator.workload
            family = get_family(workload.op_type)
            try:
                found_us = least_us(workload, family, self.target, self.rates)
            except Exception:  # said where its search begins
                found_us = 0.0
            self._least_us[operator.key] = found_us
        each_us = operator.default_us / len(operator.regions)
        now_us = sum(each_us - self._savings.at(region.nodes) for region in operator.regions)
        return max(0.0, now_us - self._least_us[operator.key] * len(operator.regions))


def _is_product(workload: Workload) -> bool:
    return any(facts_of(item).kind is OperatorKind.PRODUCT for item in workload.operations)


def _shown_rate(operator: Operator) -> float:
    """Return the multiply-adds of a microsecond in which the default computes an operator.

    ONNX Runtime leaves out the zeros around an image, which are most of what dilated filters meet.
    """
    given = (one.attributes.get("dilations", ()) for one in operator.workload.operations)
    is_dilated = any(isinstance(apart, tuple) and {*apart} - {1} for apart in given)
    each_us = operator.default_us / len(operator.regions)
    is_reported = each_us >= _LONG_US and not is_dilated
    return multiply_adds(operator.workload) / each_us if is_reported else 0.0
