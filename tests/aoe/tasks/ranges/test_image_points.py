"""Image operators at the points of a range: what the bank gets, and the kernels made of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from support.engine.fakes import make_target
from support.engine.tuning import make_bank, make_measurement, make_operator, make_verdict

from aoe.bank.operators import OperatorBank, key_of
from aoe.device.compiler import ImageKernel
from aoe.entry.shape_range import ShapePoint
from aoe.kernels.family import KernelTarget
from aoe.kernels.registry import get_family
from aoe.measurement import Measurement, Outcome
from aoe.results.files import RepoOutcome
from aoe.schedule import Configuration, Schedule
from aoe.tasks.operators.chosen_kernel import ChosenKernel
from aoe.tasks.operators.operator import TunedOperator
from aoe.tasks.operators.operator_tasks import TunedOperators
from aoe.tasks.ranges.image_points import (
    ImagePoint,
    ImageRange,
    PointContext,
    frequent_points,
    image_kernels,
    measure_images,
)
from aoe.tuner.task_search import SearchResult, TrialRecord
from aoe.workload import Operation, TensorSpec, Workload
from aoebank import Bank, Event

_TARGET = KernelTarget.of(make_target())
_SIZES = (16, 32, 64)
_SMALL, _MIDDLE, _LARGE = range(3)


def _workload(size: int, *, is_open: bool = True) -> Workload:
    spec = TensorSpec(shape=(2, 8, size, size), open=(0, 2, 3) if is_open else ())
    operation = Operation(op_type="Exp", version=6, inputs=("x0",), output="t0")
    return Workload(op_type="elementwise", inputs=(spec,), operations=(operation,), output=spec)


_FAMILY, _WORKLOAD = get_family("elementwise"), _workload(_SIZES[_MIDDLE])


def _answers() -> dict[Schedule, Configuration]:
    """Return distinct schedules of the family, with their configurations."""
    space = _FAMILY.space(_WORKLOAD, _TARGET)
    found = {_FAMILY.schedule(_WORKLOAD, one, _TARGET): one for one in space.configurations()}
    return dict([*found.items()][:3])


_CONFIGURATIONS = _answers()
_FIRST, _SECOND, _THIRD = _CONFIGURATIONS
Speeds = Mapping[Schedule, Sequence[float | Measurement]]


@dataclass
class _Run:
    """A run whose operator has won in the middle with the first schedule."""

    bank: OperatorBank
    speeds: Speeds  # Of each schedule at each point, or the measurement there
    # Schedules of the search, with their speed in the middle.
    tried: Mapping[Schedule, float] = field(default_factory=dict)
    fixed: Sequence[int] = ()  # Numbers of the points whose sizes may have kernels of their own
    asked: list[Workload] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    left_s: float = math.inf

    def __post_init__(self) -> None:
        if self.bank.find(_WORKLOAD) is None:
            self.save(_WORKLOAD, _FIRST, 1.5)

    def save(self, workload: Workload, schedule: Schedule, speedup: float) -> None:
        configuration = _CONFIGURATIONS[schedule]
        self.bank.save(workload, schedule, configuration, make_verdict(Event.ADD, speedup))

    @property
    def image(self) -> ImageRange:
        points = [
            ImagePoint(
                shapes=f"x:2,8,{size},{size}",
                count=1,
                workload=_workload(size),
                fixed=_workload(size, is_open=False) if at in self.fixed else None,
            )
            for at, size in enumerate(_SIZES)
        ]
        return ImageRange(operator=make_operator(_WORKLOAD), points=tuple(points))

    def tuned(self, workload: Workload, speedup: float | None = None) -> TunedOperator:
        answer = self.bank.find(workload)
        trials = [
            TrialRecord(configuration=_CONFIGURATIONS[one], measurement=make_measurement(speed))
            for one, speed in self.tried.items()
        ]
        return TunedOperator(
            operator=make_operator(workload),
            outcome=RepoOutcome.RESERVED,
            reason="in the bank",
            schedule=answer.schedule if answer is not None else None,
            proven_speedup=speedup,
            search=SearchResult(trials=tuple(trials)),
        )

    def measured(self) -> TunedOperator:
        """Return the operator as it is after its points were measured."""
        context = PointContext(
            bank=self.bank,
            target=_TARGET,
            measure=self._measure,
            verdict=self.bank.model_verdict,
            step=self.told.append,
            left_s=lambda: self.left_s,
        )
        found = TunedOperators(operators=(self.tuned(_WORKLOAD),), refusals=())
        return measure_images(context, [self.image], found).operators[0]

    def _measure(
        self, workload: Workload, schedules: Sequence[Schedule], at: Workload
    ) -> list[Measurement]:
        assert workload == _WORKLOAD
        self.asked.append(at)
        number = _SIZES.index(at.output.shape[-1])
        found = [self.speeds[one][number] for one in schedules]
        return [one if isinstance(one, Measurement) else make_measurement(one) for one in found]

    def schedules(self) -> list[Schedule | None]:
        """Return the records of the points."""
        answers = [self.bank.find(_workload(size)) for size in _SIZES]
        return [None if one is None else one.schedule for one in answers]

    def kernel(self, fixed_speeds: Mapping[int, float] | None = None) -> ChosenKernel:
        """Return the kernel of the operator, given what fixed sizes have proven."""
        every = [self.tuned(_WORKLOAD)]
        for at, speed in (fixed_speeds or {}).items():
            every.append(self.tuned(_workload(_SIZES[at], is_open=False), speed))
        tuned = {one.operator.key: one for one in every}
        (found,) = image_kernels([self.image], tuned, self.bank, lambda *given: "")
        return found


def _failed(outcome: Outcome) -> Measurement:
    return Measurement.failure(outcome, "it failed")


@pytest.fixture
def bank(tmp_path: Path) -> OperatorBank:
    return make_bank(tmp_path)


def test_winner_that_gains_everywhere_is_recorded_at_all_points(bank: OperatorBank) -> None:
    run = _Run(bank, {_FIRST: [1.2, 1.5, 1.4]})
    found = run.measured()
    assert run.schedules() == [_FIRST] * 3
    assert found.schedule == _FIRST
    kernel = run.kernel()
    assert kernel.source.schedule == _FIRST and len(kernel.source.parts) == 1
    assert {key_of(one) for one in kernel.workloads} == {key_of(_workload(size)) for size in _SIZES}


def test_side_car_has_the_points_with_their_times(bank: OperatorBank, tmp_path: Path) -> None:
    run = _Run(bank, {_FIRST: [1.25, 1.5, 2.0]})
    run.measured()
    answer = bank.find(_WORKLOAD)
    assert answer is not None
    *_, last = Bank(tmp_path).iter_provenance(answer.file, answer.key)
    times = last.search["points_us"]
    ratios = [default / own for default, own in times.values()]
    assert ratios == pytest.approx([1.25, 1.5, 2.0], rel=1e-3)
    assert [*times] == [f"x:2,8,{size},{size}" for size in _SIZES]


def test_schedule_with_the_better_mean_replaces_the_winner_of_the_middle(
    bank: OperatorBank,
) -> None:
    second = [_noisy(speed) for speed in (1.4, 1.4, 1.4)]
    speeds: Speeds = {_FIRST: [0.9, 1.5, 1.0], _SECOND: second}
    run = _Run(bank, speeds, tried={_FIRST: 1.5, _SECOND: 1.4, _THIRD: 1.0})  # that one is far off
    assert run.measured().schedule == _SECOND
    assert run.schedules() == [_SECOND] * 3
    assert len(run.kernel().source.parts) == 1


def _noisy(speedup: float) -> Measurement:
    """Return a measurement whose interval is about 20 % to either side."""
    exact = make_measurement(speedup)
    spread = [1.2 if at % 2 else 1 / 1.2 for at in range(len(exact.tuned_us))]
    pairs = zip(exact.tuned_us, spread, strict=True)
    return replace(exact, tuned_us=tuple(us * factor for us, factor in pairs))


def test_two_schedules_are_one_kernel_with_a_switch(bank: OperatorBank) -> None:
    speeds = {_FIRST: [0.9, 1.5, 1.6], _SECOND: [1.3, 1.3, 1.1]}
    run = _Run(bank, speeds, tried={_FIRST: 1.5, _SECOND: 1.3})
    assert run.measured().schedule == _FIRST
    assert run.schedules() == [_SECOND, _FIRST, _FIRST]
    source = run.kernel().source
    assert isinstance(source, ImageKernel)
    small, middle = (_workload(size).output.size for size in _SIZES[:2])
    assert [block.rows for block in source.blocks] == [math.isqrt(small * middle), 0]
    assert [block.source.schedule for block in source.blocks] == [_FIRST, _SECOND]
    assert all(block.source.workload == _WORKLOAD for block in source.blocks)


def test_schedule_without_a_loss_is_recorded_where_that_of_the_middle_loses(
    bank: OperatorBank,
) -> None:
    speeds = {_FIRST: [0.8, 1.5, 1.6], _SECOND: [1.0, 1.3, 1.1]}
    run = _Run(bank, speeds, tried={_FIRST: 1.5, _SECOND: 1.3})
    run.measured()
    assert run.schedules() == [_SECOND, _FIRST, _FIRST]


def test_operator_that_loses_at_a_point_is_dropped_for_this_model(bank: OperatorBank) -> None:
    run = _Run(bank, {_FIRST: [0.8, 1.5, 1.6]})
    lost = run.measured()
    assert lost.schedule is None
    assert lost.reason == "it is slower than the default at x:2,8,16,16, 0.80x"
    assert run.schedules() == [None, _FIRST, None]
    assert bank.model_verdict(_WORKLOAD) is Event.DROPPED
    assert run.told[-1] == f"left out n0: {lost.reason}"
    before = len(run.asked)
    run.measured()
    assert len(run.asked) == before  # it is settled


def test_operator_that_is_wrong_at_a_point_is_dropped(bank: OperatorBank) -> None:
    run = _Run(bank, {_FIRST: [1.4, 1.5, _failed(Outcome.CORRECTNESS)]})
    lost = run.measured()
    assert lost.schedule is None
    assert "computes something else" in lost.reason
    assert bank.model_verdict(_WORKLOAD) is Event.DROPPED


@pytest.mark.parametrize("speed", [_failed(Outcome.CORRECTNESS), _failed(Outcome.COMPILE)])
def test_schedule_that_is_wrong_at_a_point_is_not_used_at_any(
    bank: OperatorBank, speed: Measurement
) -> None:
    run = _Run(bank, {_FIRST: [1.4, 1.5, speed], _SECOND: [1.1, 1.2, 1.1]})
    run.tried = {_FIRST: 1.5, _SECOND: 1.4}
    assert run.measured().schedule == _SECOND
    assert run.schedules() == [_SECOND] * 3


def test_winner_that_is_wrong_at_a_point_goes_though_nothing_gains_in_its_place(
    bank: OperatorBank,
) -> None:
    wrong = _failed(Outcome.CORRECTNESS)
    run = _Run(bank, {_FIRST: [wrong, 1.5, 1.4], _SECOND: [1.0, 1.0, 1.0]})
    run.tried = {_FIRST: 1.5, _SECOND: 1.4}
    lost = run.measured()
    assert lost.schedule is None
    assert "computes something else" in lost.reason
    assert bank.model_verdict(_WORKLOAD) is Event.DROPPED


def test_record_that_was_wrong_at_a_point_leaves_its_own_point(bank: OperatorBank) -> None:
    wrong = _failed(Outcome.CORRECTNESS)
    run = _Run(bank, {_FIRST: [1.0, 1.5, 1.4], _SECOND: [1.3, 1.3, wrong]})
    run.save(_workload(_SIZES[_SMALL]), _SECOND, 1.3)
    assert run.measured().schedule == _FIRST
    assert run.schedules() == [_FIRST] * 3


def test_busy_machine_and_a_clock_that_has_run_out_change_nothing(bank: OperatorBank) -> None:
    late = _Run(bank, {_FIRST: [1.4, _failed(Outcome.TIMEOUT), 1.5]})
    assert late.measured().schedule == _FIRST
    hurried = _Run(bank, {}, left_s=1.0)
    assert hurried.measured().schedule == _FIRST
    assert hurried.asked == []
    assert late.schedules() == [None, _FIRST, None]


def test_record_of_another_range_stays_where_it_is_as_good(bank: OperatorBank) -> None:
    speeds = {_FIRST: [1.3, 1.5, 1.4], _SECOND: [1.32, 1.2, 1.1]}
    run = _Run(bank, {one: [_noisy(speed) for speed in row] for one, row in speeds.items()})
    run.save(_workload(_SIZES[_SMALL]), _SECOND, 1.3)
    run.measured()
    assert run.schedules() == [_SECOND, _FIRST, _FIRST]
    worse = _Run(bank, {_FIRST: [1.5, 1.5, 1.4], _SECOND: [1.1, 1.2, 1.1]})
    worse.measured()
    assert worse.schedules() == [_FIRST] * 3


def test_model_that_kept_the_kernel_is_not_measured_again(bank: OperatorBank) -> None:
    run = _Run(bank, {_FIRST: [1.3, 1.5, 1.4]})
    run.measured()
    assert len(run.asked) == 3
    kept = make_verdict(Event.KEPT, reason="the whole model is faster")
    bank.note([(one, kept) for one in run.kernel().workloads])
    run.measured()
    assert len(run.asked) == 3
    run.save(_workload(_SIZES[_LARGE]), _SECOND, 1.2)  # nobody has judged that one
    run.speeds = {_FIRST: [1.3, 1.5, 1.4], _SECOND: [1.2, 1.2, 1.2]}
    run.measured()
    assert len(run.asked) == 6


def test_fixed_size_is_in_the_kernel_where_it_gains_over_the_open_one(bank: OperatorBank) -> None:
    run = _Run(bank, {_FIRST: [1.3, 1.5, 1.4]}, fixed=(_SMALL, _LARGE))
    run.measured()
    for at in (_SMALL, _LARGE):
        run.save(_workload(_SIZES[at], is_open=False), _SECOND, 1.6)
    assert not isinstance(run.kernel().source, ImageKernel)
    kernel = run.kernel({_SMALL: 1.25, _LARGE: 1.5})
    assert isinstance(kernel.source, ImageKernel)
    large = _workload(_SIZES[_LARGE], is_open=False)
    assert [block.source.workload for block in kernel.source.blocks] == [large, _WORKLOAD]
    assert large in kernel.workloads
    assert kernel.key == key_of(_WORKLOAD)


def test_invalid_schedule_of_the_bank_costs_its_point_alone(bank: OperatorBank) -> None:
    run = _Run(bank, {})
    run.save(_workload(_SIZES[_SMALL]), _SECOND, 1.3)
    run.save(_workload(_SIZES[_LARGE]), _THIRD, 1.3)
    tuned = {key_of(_WORKLOAD): run.tuned(_WORKLOAD)}
    (kernel,) = image_kernels(
        [run.image], tuned, bank, lambda one, schedule: "odd" if schedule == _SECOND else ""
    )
    assert isinstance(kernel.source, ImageKernel)
    assert [block.source.schedule for block in kernel.source.blocks] == [_THIRD, _FIRST]


def test_sizes_that_cost_most_get_kernels_of_their_own() -> None:
    sizes = {320: 50, 480: 400, 512: 9, 640: 300}
    points = [
        ShapePoint(extents={"H": one}, shapes={"x": (1, 3, one, one)}, count=calls)
        for one, calls in sizes.items()
    ]
    assert [one.extents["H"] for one in frequent_points(points)] == [640, 480]
    rare = [replace(one, count=1) if one.extents["H"] != 480 else one for one in points]
    assert [one.extents["H"] for one in frequent_points(rare)] == [480]
