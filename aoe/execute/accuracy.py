"""Accuracy of a kernel, or of a tuned model, against the results of the untuned one.

Where a NaN among the inputs reaches a result, ONNX Runtime may make a number of it, as releases and
even places of one operator do (`Max`, `Clip`), so a kernel may make either; but a NaN that ONNX
Runtime keeps, a kernel keeps too. Operators that only copy values leave no such choice: all of
their results are compared. docs/kernels.md has a table of what each operator makes of a NaN.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from aoe.kernels.halide.shapes import reduction_length
from aoe.measurement import RoundingSteps
from aoe.operators import OperatorKind, Rounding, facts_of
from aoe.operators.element_types import FLOAT16, LEVELS, element_types
from aoe.workload import Operation, Precision, Workload
from aoebank import plural

Array = np.ndarray[Any, Any]

_FLOAT32_EPS = 2.0**-23
_FLOAT16_EPS, _FLOAT16_LEAST = 2.0**-10, 2.0**-24
"""Of float16: distance of the numbers from 1 on, and of the smallest ones."""
_ELEMENT_ULPS = 128
"""Rounding steps allowed per result of a chain: each transcendental function of either side is
good for a few, and a chain adds up. Source: error bounds stated in aoe.kernels.math.functions."""
_SCALE_SHARE = 3e-5
"""Error of one result, as a share of the largest: Winograd's F(4x4, 3x3) makes up to 1.2e-5 with
512 channels (max over 10^5 results of normal data), F(4x4, 5x5) 1.5e-5 (10^4 results), direct sums
1e-6."""
_BFLOAT16_SHARE = 1.2e-2
"""Error of one result of products in bfloat16, as a share of the largest, and of 1, the spread of
the sums that are compared. Convolutions and matrix products that sum up to 4608 of them make
2e-3 to 4e-3 (max over 10^5 results against float64, Zen 4): three times as much for other CPUs."""
_INT8_SHARE = 4e-2
"""The same for products in int8. Matrix products that sum up to 4096 normally distributed ones
make 7e-3 to 1.3e-2, as ONNX Runtime's own DynamicQuantizeMatMul does: three times as much for
ranges that a few large values stretch."""
_INT4_SHARE = 0.3
"""The same for weights of 4 bits: normally distributed ones make 6e-2 to 1.2e-1."""
_SHARES = {
    Precision.BFLOAT16: _BFLOAT16_SHARE,
    Precision.INT8: _INT8_SHARE,
    Precision.INT4: _INT4_SHARE,
}
STEPS_SHARE = 5e-3
"""Share of a kernel's integers that may be one step off without a look at ONNX Runtime's own forms.
Products and convolutions of integers make none to 1e-5, chains of functions up to 1e-5 (10^6 values
each). Sums of float32 in another order may be 3e-5 of the largest apart, which 128 steps make 4e-3
of. A kernel that cuts off in place of rounding makes half of them."""
MODEL_TOLERANCE = 1e-3
"""Largest error of a model result, relative to the largest magnitude of that result: float32
rounding of a hundred layers in another order of summation."""
NARROW_TOLERANCE = 8 * _FLOAT16_EPS
"""The same of models with tensors in float16: sums in another order are rounded to the neighbour
here and there, and what follows carries that on. Six layers of BERT in float16 differ by 1.6e-3
between ONNX Runtime's own form and the same model in float32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """|actual - reference| <= absolute + relative * |reference|, element by element."""

    relative: float
    absolute: float


_STEP = Tolerance(relative=0.0, absolute=1.0)
"""Of integers, whatever they were summed up of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deviation:
    """The worst disagreement found."""

    max_abs_err: float  # Largest absolute difference between finite results
    excess: float  # Largest difference divided by what is tolerated; above 1 is a failure
    detail: str = ""  # Where and what, empty if nothing is beyond tolerance
    # How far results are apart where rounding steps of the model explain it; empty elsewhere.
    note: str = ""
    rounding: RoundingSteps | None = None  # Of a kernel that makes integers, None for others

    @property
    def acceptable(self) -> bool:
        """True if every element is within its tolerance."""
        return not self.detail


AS_BEFORE = Deviation(max_abs_err=0.0, excess=0.0)
"""No disagreement at all."""


def kernel_tolerance(workload: Workload, reference: Array) -> Tolerance:
    """Return the tolerance for one kernel's float32 result.

    Nothing is tolerated where no operator rounds. Else rounding grows with the square root of
    the operators in the chain, and of the elements summed up into one result. Operators whose
    sums may be put together in another way are allowed a share of the largest result, and so
    are products of lower precision. Integers may be one step off: see `rounding_steps`.

    Args:
        workload: What the kernel computes.
        reference: What ONNX Runtime computes for it.
    """
    operations = workload.operations
    if all(facts_of(operation).rounding is Rounding.EXACT for operation in operations):
        return Tolerance(relative=0.0, absolute=0.0)
    steps = _ELEMENT_ULPS * math.sqrt(reduction_length(workload) * len(operations))
    finite = np.abs(reference[np.isfinite(reference)])
    counting = finite[finite > 0]  # zeros an activation has left say nothing of what was summed up
    typical = float(np.median(counting)) if counting.size else 0.0
    relative = steps * _FLOAT32_EPS
    absolute = relative * min(max(typical, 1e-3), 1.0)
    strict = workload.precision is Precision.STRICT_FLOAT32
    if not strict and any(facts_of(op).rounding is Rounding.SCALE for op in operations):
        absolute = max(absolute, _SCALE_SHARE * float(finite.max(initial=0.0)))
    if workload.precision in _SHARES:
        share = _SHARES[workload.precision]
        absolute = max(absolute, share * float(finite.max(initial=1.0)))
    elif workload.output.dtype in LEVELS:
        return _STEP
    return _widened(Tolerance(relative=relative, absolute=absolute), workload)


def _widened(tolerance: Tolerance, workload: Workload) -> Tolerance:
    """Return a tolerance for results that are rounded once more, to float16.

    Where float32 results differ at all, the one nearest to them may be a neighbour's.
    """
    halves = sum(dtype == FLOAT16 for dtype in element_types(workload).values())
    return Tolerance(
        relative=tolerance.relative + halves * _FLOAT16_EPS,
        absolute=tolerance.absolute + halves * _FLOAT16_LEAST,
    )


def rounding_steps(
    reference: Array, actual: Array, *, undefined: Array | None = None
) -> RoundingSteps:
    """Count the integers that are rounded to another neighbour than those of the reference.

    Args:
        reference: The untuned result, integers of 8 bits.
        actual: The tuned one, within one step of it.
        undefined: True where inputs are NaN, of which no integer is the right one.
    """
    differs = reference != actual
    if undefined is not None:
        differs &= ~undefined
    counted = reference.size if undefined is None else int((~undefined).sum())
    return RoundingSteps(off=int(differs.sum()), of=counted)


def compare(
    reference: Array, actual: Array, tolerance: Tolerance, *, undefined: Array | None = None
) -> Deviation:
    """Compare two results element by element, non-finite values included.

    Args:
        reference: The untuned result.
        actual: The tuned one, same shape.
        tolerance: For finite elements.
        undefined: True where inputs are NaN: there runtimes differ between NaN and a number,
            within one operator even, so either is accepted where the reference is a number. A NaN
            of the reference must not be lost.
    """
    if reference.shape != actual.shape:
        return different(f"shape {actual.shape} instead of {reference.shape}")
    wide, narrow = reference.astype(np.float64), actual.astype(np.float64)
    ignored = np.zeros(reference.shape, bool) if undefined is None else undefined & ~np.isnan(wide)
    both_finite = np.isfinite(wide) & np.isfinite(narrow) & ~ignored
    with np.errstate(invalid="ignore"):
        same_kind = (wide == narrow) | (np.isnan(wide) & np.isnan(narrow))
    odd = ~both_finite & ~same_kind & ~ignored
    if odd.any():
        return different(_at(odd, wide, narrow))
    error = np.abs(np.subtract(narrow, wide, out=np.zeros_like(wide), where=both_finite))
    allowed = tolerance.absolute + tolerance.relative * np.where(both_finite, np.abs(wide), 0.0)
    with np.errstate(divide="ignore"):  # nothing is tolerated where nothing is allowed
        excess = np.divide(error, allowed, out=np.zeros_like(error), where=error > 0)
    worst = float(excess.max(initial=0.0))
    detail = _at(excess == worst, wide, narrow) if worst > 1 else ""
    return Deviation(max_abs_err=float(error.max(initial=0.0)), excess=worst, detail=detail)


def compare_model_results(
    reference: Sequence[Any],
    actual: Sequence[Any],
    precision: Precision = Precision.FLOAT32,
    *,
    tolerance: float = MODEL_TOLERANCE,
) -> Deviation:
    """Compare the results of whole models; exact for integer results.

    Below float32, and where `tolerance` is infinite, how far numbers may be apart is for a
    constraint on the whole model to say: here only shapes and special values count then.

    Args:
        reference: Results of the untuned model as ONNX Runtime returns them: arrays, lists of
            results (ONNX sequences), dicts (maps) or plain values.
        actual: Those of the tuned model.
        precision: Of the tuned model.
        tolerance: Largest error of a result, relative to the largest magnitude of that result.

    Returns:
        The worst deviation over all results.
    """
    worst = AS_BEFORE
    if len(reference) != len(actual):
        return different(f"{plural(len(actual), 'result')} instead of {len(reference)}")
    for number, (left, right) in enumerate(zip(reference, actual, strict=True)):
        found = _compare_result(left, right, precision, tolerance)
        if found.detail:
            found = replace(found, detail=f"result {number}: {found.detail}")
        worst = worse_of(worst, found)
    return worst


def worse_of(first: Deviation, second: Deviation) -> Deviation:
    """Return the deviation further beyond its tolerance, with the larger error of both.

    Integers one step off are counted over both.
    """
    worst = second if second.excess > first.excess else first
    rounding = first.rounding or second.rounding
    if first.rounding is not None and second.rounding is not None:
        rounding = first.rounding.with_others(second.rounding)
    return replace(
        worst,
        max_abs_err=max(first.max_abs_err, second.max_abs_err),
        note=worst.note or first.note or second.note,
        rounding=rounding,
    )


def _compare_result(left: Any, right: Any, precision: Precision, tolerance: float) -> Deviation:
    if isinstance(left, dict):
        if not isinstance(right, dict) or left.keys() != right.keys():
            return different("another map")
        values = [right[key] for key in left]
        return compare_model_results(list(left.values()), values, precision, tolerance=tolerance)
    if isinstance(left, list):
        return compare_model_results(left, right, precision, tolerance=tolerance)
    reference, actual = np.asarray(left), np.asarray(right)
    is_free = precision.is_lower or math.isinf(tolerance)
    if not np.issubdtype(reference.dtype, np.floating):
        same = reference.shape == actual.shape
        same = same and (is_free or bool(np.all(reference == actual)))
        return Deviation(max_abs_err=0.0, excess=0.0) if same else different("other values")
    finite = np.abs(reference[np.isfinite(reference)])
    scale = float(finite.max(initial=0.0)) or 1.0
    if tolerance and reference.dtype == np.float16:
        tolerance = max(tolerance, NARROW_TOLERANCE)
    allowed = math.inf if is_free else tolerance * scale
    return compare(reference, actual, Tolerance(relative=0.0, absolute=allowed))


def different(detail: str) -> Deviation:
    """Return a deviation that no tolerance allows."""
    return Deviation(max_abs_err=math.inf, excess=math.inf, detail=detail)


def _at(mask: Array, reference: Array, actual: Array) -> str:
    index = tuple(int(i) for i in np.argwhere(mask)[0]) if mask.ndim else ()
    return f"{actual[index]:.9g} instead of {reference[index]:.9g} at {list(index)}"


_COPYING = frozenset({OperatorKind.MOVEMENT, OperatorKind.REORDER})
_CHOOSING = frozenset({"max", "min"})
"""Reductions of ScatterElements that choose between values, which may be NaN."""


def reached_by_nan(workload: Workload, feed: Mapping[str, Array]) -> Array:
    """Return a mask of results that may depend on a NaN; all of them if that is unknown.

    Args:
        workload: What is computed.
        feed: Its variable inputs `x0`, `x1`, ...

    Returns:
        Booleans of the result's shape.
    """
    shape = workload.output.shape
    if all(map(_keeps_nan, workload.operations)):
        return np.zeros(shape, bool)
    masks = {name: np.isnan(array) for name, array in feed.items()}
    first = workload.operations[0]
    if facts_of(first).indices and all(name in feed for name in first.inputs):
        masks = _through_indices(first, masks, [feed[name] for name in first.inputs])
    facts = [facts_of(operation) for operation in workload.operations]
    per_channel = any(one.per_channel for one in facts)
    # results of the image's own extents are no element-wise ones: each has a window of elements
    has_windows = any(one.kind is OperatorKind.WINDOW for one in facts)
    reached = np.zeros(shape, bool)
    for nan in masks.values():
        if has_windows:
            reached |= nan.any()
        elif nan.shape == shape:
            reached |= nan
        elif workload.blocked or per_channel:  # not aligned with the last dims
            reached |= nan.any()
        else:
            reached |= _broadcast(nan, shape)
    return reached


def _keeps_nan(operation: Operation) -> bool:
    """Return True if every NaN comes out of an operator where its value would."""
    facts = facts_of(operation)
    if facts.indices:
        return operation.attributes.get("reduction", "none") not in _CHOOSING
    return facts.kind in _COPYING


def _through_indices(
    operation: Operation, masks: Mapping[str, Array], inputs: Sequence[Array]
) -> dict[str, Array]:
    """Return masks in which the operator's result stands for its inputs."""
    data, indices = np.isnan(inputs[0]), inputs[1]
    axis = int(str(operation.attributes.get("axis", 0)))
    places: list[Array] = list(np.indices(indices.shape, sparse=True))
    places[axis] = indices % data.shape[axis]
    if len(inputs) > 2:
        np.logical_or.at(data, tuple(places), np.isnan(inputs[2]))
    else:
        data = data[tuple(places)]
    rest = {name: nan for name, nan in masks.items() if name not in operation.inputs}
    return {**rest, operation.output: data}


def _broadcast(nan: Array, shape: tuple[int, ...]) -> Array:
    """Return which results a NaN reaches: elements, rows of a matrix product, or else all."""
    for part in (nan, nan.any(axis=-1, keepdims=True)):
        try:
            return np.broadcast_to(part, shape)
        except ValueError:
            continue
    return np.full(shape, nan.any())
