"""Operators whose images have any size, at the points of a range, and their kernels.

The search is made in the middle, which is cheap. Its best schedules, and those the bank has for
other points, are measured at every point, each against ONNX Runtime's default there. The choice
for a point becomes the record of the workload with the shapes of that point, so that later runs
find it and measure nothing.

A kernel has the schedule of the middle, others where the bank has another one for smaller or larger
images, and kernels of frequent sizes where these gain over it. All of that follows from the bank,
so that every run makes the same kernel of the same records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from aoe.bank.operators import OperatorBank, key_of
from aoe.bank.records.operator import StoredAnswer
from aoe.bank.verdicts import BankNote
from aoe.device.compiler import KernelSource, image_kernel
from aoe.entry.shape_range import ShapePoint
from aoe.errors import TurnTimeoutError
from aoe.graph.extents import OpenShape
from aoe.graph.open_images import (
    LEAST_OPEN,
    OpenImages,
    find_fixed_images,
    find_open_images,
)
from aoe.kernels.family import KernelTarget
from aoe.kernels.registry import get_family
from aoe.measurement import Measurement, SpeedupEstimate, accepts, estimate_speedup, mean_estimate
from aoe.schedule import Configuration, Schedule
from aoe.tasks.operators.chosen_kernel import ChosenKernel, kernels_of
from aoe.tasks.operators.lookup import ACCEPT_SPEEDUP
from aoe.tasks.operators.operator import TunedOperator
from aoe.tasks.operators.operator_tasks import TunedOperators
from aoe.tasks.operators.operators import Operator
from aoe.tasks.ranges.image_choice import PointWeight, choose_schedules, loses_at, switches
from aoe.workload import Workload
from aoebank import Event

POINT_S = 2.0
"""To compile schedules of an operator and measure them at a point of the range."""
_WINNERS, _CANDIDATES = 3, 4
"""Schedules of the search that are measured at all points, and with those of the bank."""
_NEAR = 0.85
"""Share of the best speed in the middle from which on a schedule may be the best elsewhere."""
_MOST_FIXED = 2
"""Sizes that get kernels of their own: each is one more search of every operator."""
_LEAST_WEIGHT = 0.1
"""Share of the work of all calls below which a size gets none."""
_METHOD = "points"
_WRONG = "it computes something else at a point of the range, or cannot be measured there"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImagePoint:
    """An operator at a point of the range."""

    shapes: str  # Of the inputs of the model
    count: int  # Calls with these shapes
    workload: Workload  # Of open axes, with the shapes of the point
    # The same as an ordinary workload, None where it gets no kernel of its own.
    fixed: Workload | None

    @property
    def weight(self) -> PointWeight:
        """Elements and calls of the point, by which it weighs in the choice of schedules."""
        return PointWeight(elements=self.workload.output.size, count=self.count)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageRange:
    """An operator whose images have any size, over the range."""

    operator: Operator  # Its workload is that of the middle point
    points: tuple[ImagePoint, ...]  # By rising elements of its result, each workload once

    @property
    def middle(self) -> int:
        """Number of the point it is searched at."""
        return next(at for at, one in enumerate(self.points) if one.workload == self.workload)

    @property
    def workload(self) -> Workload:
        """Workload that is searched, and compiled for all points."""
        return self.operator.workload

    def fixed_operators(self) -> Iterator[Operator]:
        """Yield the operators of fixed size that may have kernels of their own."""
        for point in self.points:
            if point.fixed is not None:
                names = (f"{name}, {point.shapes}" for name in self.operator.op_names)
                yield Operator(
                    workload=point.fixed,
                    key=key_of(point.fixed),
                    regions=self.operator.regions,
                    op_names=tuple(names),
                    share=self.operator.share / _MOST_FIXED,
                    default_us=0.0,
                )


def image_range(
    operator: Operator,
    shapes: Mapping[str, OpenShape],
    points: Sequence[ShapePoint],
    frequent: Sequence[ShapePoint] = (),
) -> ImageRange:
    """Return an operator whose images have any size, at the points of the range.

    Args:
        operator: Searched at one of the points.
        shapes: Of the tensors of the model, with names for open extents.
        points: Where the model is judged.
        frequent: Those of them whose sizes get kernels of their own.
    """
    region, found = operator.regions[0], dict[str, ImagePoint]()
    for point in points:
        apart = {name: max(extent, LEAST_OPEN) for name, extent in point.extents.items()}
        made = find_open_images(region, shapes, apart)
        if not isinstance(made, OpenImages):
            continue
        known = found.get(key_of(made.workload))
        fixed = find_fixed_images(region, shapes, point.extents) if point in frequent else None
        found[key_of(made.workload)] = ImagePoint(
            shapes=str(point),
            count=point.count + (known.count if known is not None else 0),
            workload=made.workload,
            fixed=fixed if known is None else known.fixed or fixed,
        )
    ordered = sorted(found.values(), key=lambda one: one.weight.elements)
    return ImageRange(operator=operator, points=tuple(ordered))


def frequent_points(points: Sequence[ShapePoint]) -> tuple[ShapePoint, ...]:
    """Return the points of a log whose sizes get kernels of their own: those that cost most.

    The cost of a point is its calls times the elements of its inputs.
    """
    work = [(one.count * sum(map(prod, one.shapes.values())), one) for one in points]
    least = _LEAST_WEIGHT * sum(cost for cost, _ in work)
    costly = sorted(work, key=lambda pair: -pair[0])[:_MOST_FIXED]
    return tuple(one for cost, one in costly if cost >= least)


# ---- measuring ----


@dataclass(frozen=True, slots=True, kw_only=True)
class PointContext:
    """Tools that measure operators at the points of a range."""

    bank: OperatorBank  # Has the winners of the search, and gets what is chosen
    target: KernelTarget  # What kernels are made for
    # Measures schedules of a workload in the shapes of another one.
    measure: Callable[[Workload, Sequence[Schedule], Workload], Sequence[Measurement]]
    # Says what an earlier run of the model has settled about a workload.
    verdict: Callable[[Workload], Event | None]
    step: Callable[[str], None]  # Is told what happens
    left_s: Callable[[], float]  # Seconds until measuring has to end


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    """Schedules of an operator, measured at the points of the range."""

    configurations: Mapping[Schedule, Configuration]  # Of each schedule
    # Of each schedule that is right at all points, its pairs at each.
    measured: Mapping[Schedule, Sequence[Measurement]]
    speedups: Mapping[Schedule, Sequence[SpeedupEstimate]]  # The estimates from these pairs

    def times(
        self, points: Sequence[ImagePoint], chosen: Sequence[Schedule]
    ) -> dict[str, list[float]]:
        """Return the times of default and chosen schedule at each point, microseconds."""
        found = [self.measured[schedule][at] for at, schedule in enumerate(chosen)]
        return {
            point.shapes: [round(one.baseline_latency_us, 3), round(one.latency_us, 3)]
            for point, one in zip(points, found, strict=True)
        }


def measure_images(
    context: PointContext, images: Sequence[ImageRange], tuned: TunedOperators
) -> TunedOperators:
    """Measure what won in the middle at all points, and record what is chosen for each.

    An operator whose every schedule surely loses at a point, or is wrong there, is noted as dropped
    by the model. What an earlier run has settled is not measured again, nor what time is too short
    for: the judgement on the whole model has the last word at any rate.

    Args:
        context: What with.
        images: The operators.
        tuned: What became of them in the middle, and of others.

    Returns:
        The same with the schedules chosen for the middle, none for an operator that loses.
    """
    seen = {one.operator.key: one for one in tuned.operators}
    due = [
        one
        for one in sorted(images, key=lambda one: -one.operator.share)
        if seen[one.operator.key].schedule is not None and not _is_settled(context, one)
    ]
    if due:
        context.step("measuring kernels for images at the points of the range")
    for image in due:
        key = image.operator.key
        if context.left_s() < POINT_S * len(image.points):
            break
        try:
            table = _measured(context, image, seen[key])
        except TurnTimeoutError:
            break
        if table is None:
            continue
        chosen = choose_schedules(table.speedups, [one.weight for one in image.points])
        if chosen is None or _is_base_wrong(context.bank, image, table, chosen):
            reason = _note_lost(context, image, table)
            seen[key] = replace(seen[key], schedule=None, reason=reason)
        else:
            _record(context.bank, image, table, chosen)
            seen[key] = _as_recorded(context.bank, seen[key])
    return replace(tuned, operators=tuple(seen[one.operator.key] for one in tuned.operators))


def _is_base_wrong(
    bank: OperatorBank, image: ImageRange, table: _Table, chosen: Sequence[Schedule]
) -> bool:
    """True if the record of the middle is wrong at a point, and nothing that is right gains there.

    That record is the schedule of all sizes without one, so none of the kernel may be used then.
    """
    answer = bank.find(image.workload)
    if answer is None or answer.schedule in table.measured:
        return False
    return not accepts(table.speedups[chosen[image.middle]][image.middle], ACCEPT_SPEEDUP)


def recorded(bank: OperatorBank, image: ImageRange) -> list[Workload]:
    """Return the workloads of an operator the bank has records of, one for each point at most."""
    return [one.workload for one in image.points if bank.find(one.workload) is not None]


def _is_settled(context: PointContext, image: ImageRange) -> bool:
    verdicts = {context.verdict(one) for one in recorded(context.bank, image)}
    return len(verdicts) == 1 and None not in verdicts


def _measured(context: PointContext, image: ImageRange, seen: TunedOperator) -> _Table | None:
    """Measure the candidates at all points; None if the machine or the time has kept from that."""
    configurations = _candidates(context, image, seen)
    schedules, found = [*configurations], list[Sequence[Measurement]]()
    if not schedules:
        return None  # all of them are in quarantine
    for point in image.points:
        if context.left_s() <= 0:
            return None
        found.append(context.measure(image.workload, schedules, point.workload))
        if any(one.is_of_machine or not one.counts for one in found[-1]):
            return None
    columns = dict(zip(schedules, zip(*found, strict=True), strict=True))
    right = {one: every for one, every in columns.items() if all(m.is_correct for m in every)}
    speedups = {one: [*map(estimate_speedup, every)] for one, every in right.items()}
    return _Table(configurations=configurations, measured=right, speedups=speedups)


def _candidates(
    context: PointContext, image: ImageRange, seen: TunedOperator
) -> dict[Schedule, Configuration]:
    """Return the winner in the middle, then others that were near, then those of other points."""
    found: dict[Schedule, Configuration] = {}
    family, bank = get_family(image.workload.op_type), context.bank
    answers = {key_of(one.workload): bank.find(one.workload) for one in image.points}
    middle = answers.pop(image.operator.key)
    if middle is not None:
        found[middle.schedule] = middle.configuration
    trials = seen.search.trials if seen.search is not None else ()
    good = [one for one in trials if one.measurement.is_correct]
    good.sort(key=lambda one: -one.measurement.speedup)
    for trial in good:
        is_near = trial.measurement.speedup >= _NEAR * good[0].measurement.speedup
        if is_near and len(found) < _WINNERS:
            schedule = family.schedule(image.workload, trial.configuration, context.target)
            found.setdefault(schedule, trial.configuration)
    for answer in answers.values():
        if answer is not None and len(found) < _CANDIDATES:
            found.setdefault(answer.schedule, answer.configuration)
    return {
        schedule: configuration
        for schedule, configuration in found.items()
        if bank.refusal(image.workload, schedule, configuration) is None
    }


# ---- the bank ----


def _record(
    bank: OperatorBank, image: ImageRange, table: _Table, chosen: Sequence[Schedule]
) -> None:
    """Write the schedules that were chosen as records of the points.

    The record of the middle is for all points without one. So another point gets a record where its
    schedule gains, and where that of the middle would lose.
    """
    middle = image.middle
    _record_point(bank, image, table, chosen, middle, is_needed=False)
    answer = bank.find(image.workload)
    base = table.speedups.get(answer.schedule) if answer is not None else None
    for at in (at for at in range(len(chosen)) if at != middle):
        is_needed = base is None or loses_at(base[at])
        _record_point(bank, image, table, chosen, at, is_needed=is_needed)


def _record_point(
    bank: OperatorBank,
    image: ImageRange,
    table: _Table,
    chosen: Sequence[Schedule],
    at: int,
    *,
    is_needed: bool,
) -> None:
    """Write the record of a point, unless the one there is as good at its own point.

    One whose schedule is wrong at some point, or was not measured, is replaced at any rate.
    """
    point, schedule = image.points[at], chosen[at]
    found, stored = table.speedups, bank.find(point.workload)
    estimate = found[schedule][at]
    note = BankNote(
        event=Event.RESERVED,
        op_names=image.operator.op_names,
        estimate=estimate,
        measurement=table.measured[schedule][at],
        search={"method": _METHOD, "points_us": table.times(image.points, chosen)},
    )
    if stored is not None and stored.schedule == schedule:
        bank.note([(point.workload, note)])
        return
    old = found.get(stored.schedule) if stored is not None else None
    is_needed = is_needed or (stored is not None and old is None)
    is_worse = old is None or loses_at(old[at]) or estimate.low > old[at].high
    is_due = is_worse or at == image.middle
    if is_due and (is_needed or accepts(estimate, ACCEPT_SPEEDUP)):
        note = replace(note, event=Event.ADD if stored is None else Event.UPDATE)
        bank.save(point.workload, schedule, table.configurations[schedule], note)


def _as_recorded(bank: OperatorBank, seen: TunedOperator) -> TunedOperator:
    """Return an operator with the answer of the bank, where the points have changed that."""
    answer = bank.find(seen.operator.workload)
    if answer is None or answer.schedule == seen.schedule:
        return seen
    cost_us, speedup = answer.cost_us, answer.speedup
    return replace(
        seen,
        schedule=answer.schedule,
        speedup=speedup,
        proven_speedup=answer.speedup_low,
        before_us=cost_us * speedup if cost_us is not None and speedup is not None else None,
        after_us=cost_us,
        estimate=None,
    )


def _note_lost(context: PointContext, image: ImageRange, table: _Table) -> str:
    """Note that no schedule is without a loss; return where the best one loses, in words."""
    counts = [one.count for one in image.points]
    rows = table.speedups.values()
    best = max(rows, key=lambda row: mean_estimate(row, counts).median, default=None)
    reason, worst = _WRONG, None
    if best is not None and any(map(loses_at, best)):
        pairs = zip(best, image.points, strict=True)
        worst, point = min(pairs, key=lambda pair: pair[0].high)
        reason = f"it is slower than the default at {point.shapes}, {worst.median:.2f}x"
    name = image.operator.op_name
    context.step(f"left out {name}: {reason}")
    note = BankNote.of_model(Event.DROPPED, image.operator.op_names, reason=reason, estimate=worst)
    context.bank.note([(one, note) for one in recorded(context.bank, image)])
    return reason


def image_kernels(
    images: Sequence[ImageRange],
    tuned: Mapping[str, TunedOperator],
    bank: OperatorBank,
    invalid_reason: Callable[[Workload, Schedule], str],
) -> list[ChosenKernel]:
    """Return the kernels of operators that have won in the middle, by their names.

    Args:
        images: The operators.
        tuned: What became of them, and of those of frequent sizes, by record key.
        bank: Has the records of the points.
        invalid_reason: Says what is wrong with a schedule of the bank; empty if it can be compiled.
    """
    by_key = {one.operator.key: one for one in images}
    won = kernels_of([one for key, one in tuned.items() if key in by_key])
    found = [_with_points(one, by_key[one.key], tuned, bank, invalid_reason) for one in won]
    return sorted(found, key=lambda kernel: kernel.name)


def _with_points(
    kernel: ChosenKernel,
    image: ImageRange,
    tuned: Mapping[str, TunedOperator],
    bank: OperatorBank,
    invalid_reason: Callable[[Workload, Schedule], str],
) -> ChosenKernel:
    """Return the kernel of an operator with other points' schedules, and with frequent sizes."""
    answers = [bank.find(point.workload) for point in image.points]
    base = kernel.source.schedule
    schedules = [base if one is None else one.schedule for one in answers]
    others = {*schedules} - {base}
    wrong = {one for one in others if invalid_reason(image.workload, one)}
    schedules = [base if one in wrong else one for one in schedules]
    variants = switches(schedules, [one.weight for one in image.points]) or {0: base}
    fixed = [
        source
        for point, answer in zip(image.points, answers, strict=True)
        if (source := _fixed_kernel(point, answer, tuned)) is not None
    ]
    source = image_kernel(
        {least: KernelSource.of(image.workload, one) for least, one in variants.items()}, fixed
    )
    workloads = (*recorded(bank, image), *(one.workload for one in fixed))
    return replace(kernel, source=source, recorded=workloads)


def _fixed_kernel(
    point: ImagePoint, answer: StoredAnswer | None, tuned: Mapping[str, TunedOperator]
) -> KernelSource | None:
    """Return the kernel of a frequent size, None where it does not surely gain over the open one.

    Both speed-ups are over ONNX Runtime's default at that size; an open kernel without a record
    there gains nothing that is known.
    """
    if point.fixed is None:
        return None
    seen = tuned.get(key_of(point.fixed))
    if seen is None or seen.schedule is None:
        return None
    source = KernelSource.of(point.fixed, seen.schedule)
    least = (answer.speedup if answer is not None else None) or 1.0
    return None if source.is_hosted or (seen.proven_speedup or 0.0) <= least else source
