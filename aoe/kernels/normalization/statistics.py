"""Normalisation by statistics of the tensor itself, whatever axes they are taken over.

The stages, for each row, or each channel of an image:

    source       the chain in front, or the sum of several tensors; kept or computed again
    sum          distances from the first element, so that a large mean costs no digits
    squares      of deviations from the mean, or of the elements where none is taken off
    y            deviation / root of the mean square * scale + bias, then the chain
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from operator import add

import halide as hl

from aoe.kernels.family import KernelTarget, Pipeline, PlannedFamily
from aoe.kernels.halide.rows import SOURCE, RowKernel, RowPlan, rows_schedule, rows_space
from aoe.kernels.math.functions import constant, strict
from aoe.kernels.normalization.layout_change import is_turned, turned_schedule, turned_space
from aoe.schedule import Schedule, Space, Values

_SUM, _SQUARES = "sum", "squares"
_CYCLES = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Normalized:
    """Terms and attributes of a normalisation."""

    plan: RowPlan  # The loops; the axis is what statistics are taken over
    summands: tuple[str, ...]  # References whose sum is normalised
    scale: str  # Reference of the factor
    bias: str  # Reference of the summand behind it, empty for none
    epsilon: float  # Added to the mean square
    centred: bool  # True if the mean is taken off first

    @property
    def folds(self) -> tuple[str, ...]:
        """Names of the reductions."""
        return (_SUM, _SQUARES) if self.centred else (_SQUARES,)

    @property
    def kept(self) -> Mapping[str, str]:
        """Knob of each stage that may be kept."""
        return {SOURCE: SOURCE} if self.plan.is_computed else {}


def normalized_pipeline(normalized: Normalized) -> Pipeline:
    """Return the statistics as stages, and what they and the chain behind make of the tensor."""

    def walked(values: Mapping[str, hl.Expr]) -> hl.Expr:
        return reduce(_strict_sum, (values[ref] for ref in normalized.summands))

    kernel = RowKernel(normalized.plan, walked)
    share, zero = _share(kernel.length), constant(0.0)
    mean = zero
    if normalized.centred:
        first = kernel.per_row("first", kernel.walked(hl.Expr(0)))
        distances = kernel.fold(_SUM, lambda at: strict(kernel.walked(at) - first), zero, add)
        mean = kernel.per_row("mean", strict(strict(distances * share) + first))

    def square(at: hl.Expr) -> hl.Expr:
        deviation = kernel.walked(at) - mean if normalized.centred else kernel.walked(at)
        return deviation * deviation

    mean_square = strict(kernel.fold(_SQUARES, square, zero, add) * share)
    epsilon = constant(normalized.epsilon)
    inverse = kernel.per_row(
        "inverse", strict(constant(1.0) / hl.sqrt(strict(mean_square + epsilon)))
    )
    value = strict(kernel.element - mean) if normalized.centred else kernel.element
    result = strict(strict(value * inverse) * kernel.values[normalized.scale])
    if normalized.bias:
        result = strict(result + kernel.values[normalized.bias])
    return kernel.pipeline(result)


def _share(length: int | hl.Expr) -> hl.Expr:
    """Return one element's part of a mean, rounded once."""
    if isinstance(length, int):
        return constant(1.0 / length)
    double = hl.Float(64)
    return hl.cast(hl.Float(32), hl.cast(double, 1) / hl.cast(double, length))


def _strict_sum(left: hl.Expr, right: hl.Expr) -> hl.Expr:
    return strict(left + right)


class NormalizedFamily(PlannedFamily[Normalized]):
    """A family of such normalisations; a subclass says what it reads as one."""

    def pipeline_of(self, plan: Normalized, algorithm: str) -> Pipeline:
        """Return the statistics as stages; the chain behind is inlined into the result."""
        return normalized_pipeline(plan)

    def space_of(self, plan: Normalized, target: KernelTarget) -> Space:
        """Return tasks, vectors, and whether a computed tensor is kept while it is walked."""
        if is_turned(plan.plan):
            return turned_space(plan.plan, target, _CYCLES)
        return rows_space(plan.plan, target, _CYCLES, plan.kept)

    def schedule_of(self, plan: Normalized, values: Values, target: KernelTarget) -> Schedule:
        if is_turned(plan.plan):
            return turned_schedule(plan.plan, values, plan.folds)
        return rows_schedule(plan.plan, values, plan.folds, plan.kept)
