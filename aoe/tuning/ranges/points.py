"""The whole model at the points of a range: which kernels stay, and what they gain at each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from aoe.bank.operators import OperatorBank
from aoe.bank.verdicts import BankNote
from aoe.entry.shape_range import ShapePoint
from aoe.measurement import SpeedupEstimate
from aoe.ort.inputs import ModelInputs
from aoe.tuning.live_report import Phase
from aoe.tuning.opat.result import PointGain
from aoe.tuning.tasks.operators.chosen_kernel import ChosenKernel
from aoe.tuning.tune_context import TuneContext
from aoe.tuning.validation.candidates import Drop
from aoe.tuning.validation.comparing import ModelComparer, ModelGain, TimeIsUpError
from aoe.tuning.validation.kernel_assembly import Assembly
from aoe.tuning.validation.kernels import (
    compiled,
    earlier_verdict,
    kernels_within_memory,
    model_comparer,
    model_validator,
)
from aoe.tuning.validation.model_validator import (
    ValidationResult,
    correct_kernels,
    decide_candidates,
    group_tests,
)
from aoe.tuning.validation.prior_result import PriorResult
from aoe.tuning.validation.time_reserve import ModelCosts
from aoe.workload import Workload
from aoebank import Event

_NO_TIME = "not decided, the time limit left no time to compare the whole model at every point"
_WRONG = "the model computes something else with it at another shape"


def validate_points(
    tuning: TuneContext,
    bank: OperatorBank,
    assembly: Assembly,
    kernels: Sequence[ChosenKernel],
    points: Sequence[ShapePoint],
    costs: ModelCosts,
) -> tuple[ValidationResult[ChosenKernel], tuple[PointGain, ...]]:
    """Return the kernels that stay, and the gains with them; the library of just these is built.

    Kernels are judged at the largest shape as those of fixed shapes are, then tested for losses at
    the others. They stay if the geometric mean of the gains is proven and no point surely loses.
    The bank remembers that for the next run over the same range, see `validate_kernels`.

    Args:
        tuning: The run.
        bank: Knows what earlier runs settled.
        assembly: Puts the model together.
        kernels: For any number of rows.
        points: The smallest first, with their counts.
        costs: What things take with this model.
    """
    tuning.time.phases.begin(Phase.VALIDATE)
    comparers = [_comparer(tuning, assembly, costs, point) for point in points]
    earlier = {one.name: _earlier(tuning, bank, one) for one in kernels}
    candidates = [one for one in kernels if earlier[one.name] is not Event.DROPPED]
    candidates = kernels_within_memory(tuning, candidates)
    in_library, lost = compiled(tuning, assembly, candidates, comparers[-1])
    own = frozenset(one.name for one in in_library if earlier[one.name] is Event.KEPT)
    validation, _ = decide_candidates(
        model_validator(tuning, comparers[-1]),
        in_library,
        own=own,
        prior=lambda: PriorResult(proven=own, believed=own, is_own=bool(own)),
        lookup_only=tuning.settings.lookup_only,
        progress=tuning.progress,
    )
    validation = replace(validation, drops={**validation.drops, **lost})
    if tuning.settings.lookup_only:
        return validation, ()
    gains: tuple[PointGain, ...] = ()
    if validation.kept:
        is_known = len(own) == len(in_library)
        judge = _Judge(tuning, assembly, comparers, points, is_known=is_known)
        validation, gains = judge.over_the_range(validation)
    decided = [one for one in in_library if validation.is_decided(one)]
    news = [one for one in decided if one.name not in own or one not in validation.kept]
    bank.note([note for one in news for note in _notes(assembly, validation, one, gains)])
    return validation, gains


def _earlier(tuning: TuneContext, bank: OperatorBank, kernel: ChosenKernel) -> Event | None:
    """Return the settled verdict on a kernel: that on all of its records, since each may change."""
    verdicts = {earlier_verdict(tuning, bank, one) for one in kernel.workloads}
    return verdicts.pop() if len(verdicts) == 1 else None


def _notes(
    assembly: Assembly,
    validation: ValidationResult[ChosenKernel],
    kernel: ChosenKernel,
    gains: Sequence[PointGain],
) -> list[tuple[Workload, BankNote]]:
    """Return the verdict on a kernel as a note on each of its records, with the model's times."""
    note = validation.verdict(kernel, kernel.op_names, assembly.surroundings(kernel))
    if kernel in validation.kept:
        times = {
            gain.shapes: [round(us, 1) for us in (gain.baseline_us, gain.tuned_us)]
            for gain in gains
        }
        note = replace(note, search={**note.search, "points_us": times})
    return [(one, note) for one in kernel.workloads]


class _Judge:
    """Judges kernels at the points of a range that have passed at the largest.

    Args:
        tuning: The run.
        assembly: Puts the model together.
        comparers: Of each point, the smallest first.
        points: The points.
        is_known: True if an earlier run has kept all of them: only wrong results undo that.
    """

    def __init__(
        self,
        tuning: TuneContext,
        assembly: Assembly,
        comparers: Sequence[ModelComparer[ChosenKernel]],
        points: Sequence[ShapePoint],
        *,
        is_known: bool,
    ) -> None:
        self._tuning = tuning
        self._assembly = assembly
        self._comparers = comparers
        self._points = points
        self._is_known = is_known

    def over_the_range(
        self, validation: ValidationResult[ChosenKernel]
    ) -> tuple[ValidationResult[ChosenKernel], tuple[PointGain, ...]]:
        """Return the judgement on kernels that passed at the largest point, and the gains."""
        step = self._tuning.progress.step
        step("judging it at the other points of the range")
        kept, drops = validation.kept, validation.drops
        try:
            for comparer in self._comparers[:-1]:
                tests = group_tests(comparer, kept, step)
                if not tests.has_time or comparer.is_hurried:
                    continue  # the last comparison shows wrong results, too
                if tests.are_wrong():
                    right, wrong = correct_kernels(comparer, kept, step, _WRONG)
                    drops |= wrong
                    tests = group_tests(comparer, right, step)
                if not self._is_known:
                    tests.run()
                kept, drops = tests.kept, drops | tests.dropped
        except TimeIsUpError:
            return self._undecided(validation, kept, drops), ()
        if not kept:
            return self._untuned(validation, kept, drops, Drop(reason=_WRONG)), ()
        return self._decided(validation, kept, drops)

    def _decided(
        self,
        validation: ValidationResult[ChosenKernel],
        kept: tuple[ChosenKernel, ...],
        drops: dict[str, Drop],
    ) -> tuple[ValidationResult[ChosenKernel], tuple[PointGain, ...]]:
        """Measure what stays at every point, and keep all of it or nothing."""
        try:
            gains = [self._measured(comparer, kept) for comparer in self._comparers[:-1]]
            last = None
            if len(kept) < len(validation.kept):
                last = self._comparers[-1].for_the_record(kept)
        except TimeIsUpError:
            return self._undecided(validation, kept, drops), ()
        estimates = [gain.estimate for gain in gains]
        estimates.append(validation.estimate if last is None else last.estimate)
        comparison = validation.comparison if last is None else last.comparison
        headline = mean_estimate(estimates, [point.count for point in self._points])
        against = _against(gains, estimates, headline, is_known=self._is_known)
        if against is not None:
            return self._untuned(validation, kept, drops, against), ()
        self._assembly.build(kept)
        baselines = [gain.comparison.measurement.baseline_latency_us for gain in gains]
        baselines.append(comparison.measurement.baseline_latency_us)
        found = tuple(
            PointGain(shapes=str(point), estimate=estimate, baseline_us=us)
            for point, estimate, us in zip(self._points, estimates, baselines, strict=True)
        )
        decided = replace(
            validation,
            kept=tuple(sorted(kept, key=lambda kernel: kernel.name)),
            drops=drops,
            comparison=comparison,
            estimate=headline,
        )
        return decided, found

    def _measured(
        self, comparer: ModelComparer[ChosenKernel], kept: Sequence[ChosenKernel]
    ) -> ModelGain:
        return comparer.once(kept) if self._is_known else comparer.for_the_record(kept)

    def _undecided(
        self,
        validation: ValidationResult[ChosenKernel],
        kernels: Sequence[ChosenKernel],
        drops: Mapping[str, Drop],
    ) -> ValidationResult[ChosenKernel]:
        """Return the judgement that leaves the model as it was, and all to a later run."""
        return self._untuned(validation, kernels, drops, Drop(reason=_NO_TIME, is_final=False))

    def _untuned(
        self,
        validation: ValidationResult[ChosenKernel],
        kernels: Sequence[ChosenKernel],
        drops: Mapping[str, Drop],
        drop: Drop,
    ) -> ValidationResult[ChosenKernel]:
        """Return the judgement that leaves the model as it was."""
        gain = self._comparers[-1].unmeasured(())
        return replace(
            validation,
            kept=(),
            drops={**drops, **{one.name: drop for one in kernels}},
            comparison=gain.comparison,
            estimate=gain.estimate,
        )


def _against(
    gains: Sequence[ModelGain],
    estimates: Sequence[SpeedupEstimate],
    headline: SpeedupEstimate,
    *,
    is_known: bool,
) -> Drop | None:
    """Return the reason to leave out kernels, None for kernels that stay.

    Args:
        gains: At all points but the largest.
        estimates: At all points.
        headline: Their mean.
        is_known: True if an earlier run has kept them: only wrong results undo that.
    """
    if any(not gain.comparison.deviation.acceptable for gain in gains):
        return Drop(reason=_WRONG)
    if is_known:
        return None
    worst = min(estimates, key=lambda estimate: estimate.high)
    if worst.high < 1:
        return Drop(reason="the model is slower with it at a point of the range", estimate=worst)
    if headline.low > 1:
        return None
    quiet = all(gain.comparison.measurement.counts for gain in gains)
    reason = "the whole model is not faster with it over the range"
    return Drop(reason=reason, estimate=headline, is_final=quiet)


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


def _comparer(
    tuning: TuneContext, assembly: Assembly, costs: ModelCosts, point: ShapePoint
) -> ModelComparer[Any]:
    inputs: ModelInputs = replace(tuning.subject.inputs, shapes=dict(point.shapes))
    subject = replace(tuning.subject, inputs=inputs)
    return model_comparer(replace(tuning, subject=subject), assembly, costs)
