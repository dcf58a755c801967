"""The whole model at the points of a range: which kernels stay, and what they gain at each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from aoe.entry.shape_range import ShapePoint
from aoe.measurement import SpeedupEstimate
from aoe.ort.inputs import ModelInputs
from aoe.tuning.live_report import Phase
from aoe.tuning.opat.result import PointGain
from aoe.tuning.tasks.operators.chosen_kernel import ChosenKernel
from aoe.tuning.tune_context import TuneContext
from aoe.tuning.validation.candidates import Drop
from aoe.tuning.validation.comparing import ModelComparer, ModelGain, TimeIsUpError
from aoe.tuning.validation.group_tests import GroupTests
from aoe.tuning.validation.kernel_assembly import Assembly
from aoe.tuning.validation.kernels import compiled, model_comparer, model_validator
from aoe.tuning.validation.model_validator import ValidationResult
from aoe.tuning.validation.time_reserve import ModelCosts

_NO_TIME = "not decided, the time limit left no time to compare the whole model at every point"


def validate_points(
    tuning: TuneContext,
    assembly: Assembly,
    kernels: Sequence[ChosenKernel],
    points: Sequence[ShapePoint],
    costs: ModelCosts,
) -> tuple[ValidationResult[ChosenKernel], tuple[PointGain, ...]]:
    """Return the kernels that stay, and the gains with them; the library of just these is built.

    Kernels are judged at the largest shape as those of fixed shapes are, then tested for losses at
    the others. They stay if the geometric mean of the gains is proven and no point surely loses.

    Args:
        tuning: The run.
        assembly: Puts the model together.
        kernels: For any number of rows.
        points: The smallest first, with their counts.
        costs: What things take with this model.
    """
    tuning.time.phases.begin(Phase.VALIDATE)
    comparers = [_comparer(tuning, assembly, costs, point) for point in points]
    in_library, lost = compiled(tuning, assembly, kernels, comparers[-1])
    validator = model_validator(tuning, comparers[-1])
    if tuning.settings.lookup_only:
        tuning.progress.step("trying the whole model")
        taken = validator.take(in_library)
        return replace(taken, drops={**taken.drops, **lost}), ()
    tuning.progress.step("judging the whole model at the largest shape")
    validation = validator.validate(in_library)
    kept: Sequence[ChosenKernel] = validation.kept
    drops: dict[str, Drop] = {**validation.drops, **lost}
    if not kept:
        return replace(validation, drops=drops), ()
    tuning.progress.step("judging it at the other points of the range")
    for comparer in comparers[:-1]:
        tests = GroupTests(kept, comparer.without, tuning.progress.step, left_s=comparer.left_s)
        if tests.are_wrong():
            wrong = Drop(reason="the model computes something else with it at another shape")
            return _untuned(validation, comparers[-1], drops | {k.name: wrong for k in kept}), ()
        tests.run()
        kept, drops = tests.kept, drops | tests.dropped
    return _decided(tuning, assembly, validation, comparers, points, kept, drops)


def _decided(
    tuning: TuneContext,
    assembly: Assembly,
    validation: ValidationResult[ChosenKernel],
    comparers: Sequence[ModelComparer[ChosenKernel]],
    points: Sequence[ShapePoint],
    kept: Sequence[ChosenKernel],
    drops: Mapping[str, Drop],
) -> tuple[ValidationResult[ChosenKernel], tuple[PointGain, ...]]:
    """Measure what stays at every point, and keep all of it or nothing."""
    all_or_none = partial(_untuned, validation, comparers[-1])
    try:
        gains = [comparer.for_the_record(kept) for comparer in comparers[:-1]]
        same = len(kept) == len(validation.kept)
        last = None if same else comparers[-1].for_the_record(kept)
    except TimeIsUpError:
        undecided = Drop(reason=_NO_TIME, is_final=False)
        return all_or_none({**drops, **{one.name: undecided for one in kept}}), ()
    estimates = [gain.estimate for gain in gains]
    estimates.append(validation.estimate if last is None else last.estimate)
    comparison = validation.comparison if last is None else last.comparison
    headline = mean_estimate(estimates, [point.count for point in points])
    reason = _against(gains, estimates, headline)
    if reason:
        return all_or_none({**drops, **{one.name: Drop(reason=reason) for one in kept}}), ()
    assembly.build(kept)
    baselines = [gain.comparison.measurement.baseline_latency_us for gain in gains]
    baselines.append(comparison.measurement.baseline_latency_us)
    found = tuple(
        PointGain(shapes=str(point), estimate=estimate, baseline_us=us)
        for point, estimate, us in zip(points, estimates, baselines, strict=True)
    )
    decided = replace(
        validation,
        kept=tuple(sorted(kept, key=lambda kernel: kernel.name)),
        drops=dict(drops),
        comparison=comparison,
        estimate=headline,
    )
    return decided, found


def _against(
    gains: Sequence[ModelGain], estimates: Sequence[SpeedupEstimate], headline: SpeedupEstimate
) -> str:
    """Return the reason to leave out kernels, the empty string for kernels that stay."""
    if any(not gain.comparison.deviation.acceptable for gain in gains):
        return "the model computes something else with it at another shape"
    if any(estimate.high < 1 for estimate in estimates):
        return "the model is slower with it at a point of the range"
    return "" if headline.low > 1 else "the whole model is not faster with it over the range"


def mean_estimate(estimates: Sequence[SpeedupEstimate], counts: Sequence[float]) -> SpeedupEstimate:
    """Return the geometric mean of independent estimates, with its interval.

    Args:
        estimates: Of each point.
        counts: Their weights.

    >>> one = SpeedupEstimate(median=1.2, low=1.1, high=1.309, pairs=10, coverage=0.95)
    >>> mean_estimate([one, one], [3, 1]).pairs
    20
    """
    shares = [count / sum(counts) for count in counts]
    pairs = list(zip(shares, estimates, strict=True))
    middle = sum(share * math.log(one.median) for share, one in pairs)
    below = math.hypot(*(share * math.log(one.median / one.low) for share, one in pairs))
    above = math.hypot(*(share * math.log(one.high / one.median) for share, one in pairs))
    return SpeedupEstimate(
        median=math.exp(middle),
        low=math.exp(middle - below),
        high=math.exp(middle + above),
        pairs=sum(one.pairs for one in estimates),
        coverage=min(one.coverage for one in estimates),
    )


def _untuned(
    validation: ValidationResult[ChosenKernel],
    comparer: ModelComparer[ChosenKernel],
    drops: Mapping[str, Drop],
) -> ValidationResult[ChosenKernel]:
    """Return the judgement that leaves the model as it was."""
    gain = comparer.unmeasured(())
    return replace(
        validation, kept=(), drops=dict(drops), comparison=gain.comparison, estimate=gain.estimate
    )


def _comparer(
    tuning: TuneContext, assembly: Assembly, costs: ModelCosts, point: ShapePoint
) -> ModelComparer[Any]:
    inputs: ModelInputs = replace(tuning.subject.inputs, shapes=dict(point.shapes))
    subject = replace(tuning.subject, inputs=inputs)
    return model_comparer(replace(tuning, subject=subject), assembly, costs)
