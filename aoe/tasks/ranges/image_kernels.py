"""Kernels for images of any size, made of what the bank has for the points of a range.

A kernel has the schedule of the middle, others where the bank has another one for smaller or larger
images, and kernels of frequent sizes where these gain over it. All of that follows from the bank,
so that every run makes the same kernel of the same records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from aoe.bank.operators import OperatorBank, key_of
from aoe.bank.records.operator import StoredAnswer
from aoe.device.compiler import KernelSource, image_kernel
from aoe.schedule import Schedule
from aoe.tasks.operators.chosen_kernel import ChosenKernel, kernels_of
from aoe.tasks.operators.operator import TunedOperator
from aoe.tasks.ranges.image_choice import switches
from aoe.tasks.ranges.image_points import ImagePoint, ImageRange, recorded
from aoe.workload import Workload


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
