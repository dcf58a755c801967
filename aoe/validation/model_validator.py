"""Validation: the kernels that make the whole model faster, and the proof that it is."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic

from aoe.bank.verdicts import BankNote
from aoe.errors import RunError, RunTimeoutError
from aoe.execute.tasks import ModelComparison
from aoe.measurement import Scatter, SpeedupEstimate
from aoe.measurement.memory import ModelMemory
from aoe.tuner.progress import Progress
from aoe.validation.accuracy import HeldAccuracy
from aoe.validation.candidates import NO_TIMES, Drop, ModelTimes, P
from aoe.validation.comparing import (
    ModelComparer,
    TimeIsUpError,
)
from aoe.validation.group_tests import PROVEN, GroupTests
from aoe.validation.memory_pruning import (
    LEAST_BYTES,
    all_bytes,
    excess_bytes,
    fitting,
    in_order_of_going,
    not_worth_their_memory,
)
from aoe.validation.model_gain import ModelGain, PointComparison, saves_as_expected
from aoe.validation.prior_result import NO_PRIOR_RESULT, PriorResult
from aoe.validation.time_reserve import PROCESSES
from aoebank import Event

_LEFT_OF_GAIN = 0.5
"""Part of a proven gain that a check of it has to leave possible."""
_NO_TIME = "not decided, the time limit left no time to compare the whole model"
_LATE = "not decided, the model did not answer in time with it"
_OPEN = "not decided, the time limit left too few comparisons of the whole model"
_MORE_TIME = (
    "; what won alone is in the bank: a run with more time compares it, --lookup_only takes it "
    "unmeasured"
)
_LARGEST = 5
"""Kernels that are tried alone where the model with all of them gains nothing."""
_NOT_FASTER = "the whole model is not proven faster with it"
_SLOWER = "the whole model is slower with it"
SLOWER_AT_A_POINT = "the model is slower with it at a point of the range"
_NOT_RUN = "the model cannot be run with it"
_WRONG = "the model computes something else with it"
OVER_PEAK = "with it the model takes more memory at its peak than"
"""What the reason of a kernel begins with that went for the memory of the model alone."""
OF_ALL = (_NOT_FASTER, _SLOWER, f"{_NOT_RUN}:", f"{_WRONG}:", OVER_PEAK)
"""What the reasons of kernels begin with that went because a model with all of them gains nothing,
fails or takes too much memory: they say little of each kernel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationResult(Generic[P]):
    """The kernels that stay in the model, those that go, and the measured gain."""

    kept: tuple[P, ...]  # Kernels that stay
    drops: dict[str, Drop]  # Kernels that go, with the reason, by kernel name
    comparison: ModelComparison  # Untuned against final model, pairs that chose nothing
    estimate: SpeedupEstimate  # The speed-up they prove
    # What the model was held to, None where nothing was asked.
    accuracy: HeldAccuracy[P] | None = None
    # True if even without any part the model is not the imported one: an earlier mode of the run
    # has chosen its graph.
    graph_chosen: bool = False
    scatter: Scatter | None = None  # Of the processes that decided, None if they cannot tell
    # Of the logarithm of the speed-up; 0 where only its interval is known.
    standard_error: float = 0.0
    # Lower end of the interval by which a gain is accepted, see `ModelGain`; None where that is not
    # known.
    surely: float | None = None
    processes: int = 0  # How many decided; 0 where one process only measured
    # Names of those that stay because a model like this one has kept them, if the whole saves what
    # that has shown. What is new beside them had no test of its own.
    as_expected: frozenset[str] = frozenset()
    points: tuple[PointComparison, ...] = ()  # Of a range, the gain of what stays at each point

    @property
    def is_changed(self) -> bool:
        """True if the final model is another one than the imported."""
        return bool(self.kept) or self.graph_chosen

    def verdict(self, part: P, op_names: tuple[str, ...], surroundings: frozenset[str]) -> BankNote:
        """Return the note on a part, so that a second run makes the same choice.

        Args:
            part: That is decided.
            op_names: Its nodes of the model.
            surroundings: Digests of what stands around its places.
        """
        drop = self.drops.get(part.name)
        if drop is not None:
            return BankNote.of_model(
                Event.DROPPED,
                op_names,
                reason=drop.reason,
                estimate=drop.estimate,
                surroundings=surroundings,
            )
        return BankNote.of_model(
            Event.KEPT,
            op_names,
            reason="the whole model is faster with all that are kept",
            estimate=self.estimate,
            scatter=self.scatter,
            promise=self.promise,
            is_as_expected=part.name in self.as_expected,
            surroundings=surroundings,
            kernel=part.name,
        )

    @property
    def promise(self) -> float | None:
        """Saving of the kernels that stay, as proven alone, as a share of the time with them."""
        with_us = self.comparison.measurement.latency_us
        return sum(kernel.gain_us for kernel in self.kept) / with_us if with_us > 0 else None

    @property
    def is_measured(self) -> bool:
        """True if the final model was timed; one that is only looked up is not."""
        return self.estimate.pairs > 0

    @property
    def memory(self) -> ModelMemory | None:
        """Memory of the sessions, None if unknown; a model without kernels takes what it took."""
        found = self.comparison.memory
        if found is None or self.is_changed:
            return found
        return replace(found, tuned=found.baseline)

    @property
    def undecided(self) -> str:
        """Why a later run has to decide; the empty string if this one did."""
        return next((drop.reason for drop in self.drops.values() if not drop.is_final), "")

    def is_decided(self, kernel: P) -> bool:
        """True if what became of a kernel may be remembered."""
        drop = self.drops.get(kernel.name)
        return drop is None or drop.is_final

    def with_drops(self, drops: Mapping[str, Drop]) -> ValidationResult[P]:
        """Return the judgement with further kernels that go, but for those that stay after all.

        A model that was proven before may have kernels which the last judgement did without.
        """
        kept = {one.name for one in self.kept}
        others = {name: drop for name, drop in drops.items() if name not in kept}
        return replace(self, drops=self.drops | others)

    @property
    def dropped(self) -> dict[str, str]:
        """Kernels that go, with the reason in words."""
        return {name: drop.reason for name, drop in self.drops.items()}


class ModelValidator(Generic[P]):
    """Decides which kernels stay in a model.

    Args:
        comparer: Compares models with and without them.
        step: Is told what is dropped.
        kept_bytes: What a kernel keeps besides the weights of the model.
        peak_ratio: What a session of the tuned model may take at its peak, over one of the untuned
            model; infinity for no limit.
        mapped_bytes: Weights of the untuned model, see `excess_bytes`.
        proves_settled: True to prove the gain of what an earlier run has kept again.
        times: What profiles of the model say of its kernels.
        streams: Callers that run the model at the same time.

    Attributes:
        is_proven_anew: True once a gain that was proven before has been found gone.
    """

    def __init__(
        self,
        comparer: ModelComparer[P],
        step: Callable[[str], None],
        kept_bytes: Callable[[P], float] = lambda kernel: 0.0,
        peak_ratio: float = math.inf,
        mapped_bytes: float = 0,
        *,
        proves_settled: bool = False,
        times: ModelTimes = NO_TIMES,
        streams: int = 1,
    ) -> None:
        self._comparer = comparer
        self._step = step
        self._kept_bytes = kept_bytes
        self._peak_ratio = peak_ratio
        self._mapped_bytes = mapped_bytes
        self._proves_settled = proves_settled
        self._times = times
        self._streams = streams
        self._drops: dict[str, Drop] = {}
        self.is_proven_anew = False

    def validate(
        self, kernels: Sequence[P], prior_result: PriorResult = NO_PRIOR_RESULT
    ) -> ValidationResult[P]:
        """Drop kernels that compute wrongly or slow the model down, then measure the rest.

        A kernel stays unless leaving it out shows a loss beyond noise, so that small gains add
        up; whether they do is decided by the last comparison, for all kernels together. Kernels
        that are believed stay without a test unless that comparison disagrees.

        Args:
            kernels: Kernels in the library.
            prior_result: What was judged before, in this model or in one like it.
        """
        new = [kernel for kernel in kernels if kernel.name not in prior_result.believed]
        if len(new) == len(kernels) or (prior_result.is_own and self._comparer.is_hurried):
            return self._validate_all(kernels, prior_result)
        return self._validate_new(kernels, new, prior_result)

    def _validate_new(
        self, kernels: Sequence[P], new: Sequence[P], prior_result: PriorResult
    ) -> ValidationResult[P]:
        """Test new kernels one by one, unless the whole model is as fast as they promise.

        One model has two last comparisons only if something is known to slow it down, so that what
        is no faster hardly ever passes by the second one.
        """
        is_checked = not self._comparer.is_hurried
        if all_bytes(new, self._kept_bytes) >= LEAST_BYTES:  # the others fit before
            kernels = self._within_peak(kernels)
        new = [kernel for kernel in new if kernel in kernels]
        if prior_result.is_own:  # that what it had gains is proven
            return self.confirm(
                self._examined(kernels, new, prior_result) if is_checked else kernels
            )
        expected_us = _expected_us(kernels, new, prior_result)
        proof = partial(self._for_the_record, known=prior_result.scatter, expected_us=expected_us)
        found = self._concluded(kernels, proof, demand_gain=True, is_checked=is_checked)
        is_as_expected = is_checked and _is_as_expected(found, expected_us)
        if is_as_expected:
            known = {one.name for one in found.kept}.difference(one.name for one in new)
            found = replace(found, as_expected=frozenset(known))
        if found.kept and new and is_checked and not is_as_expected:
            # fewer than before where some went for the peak
            kernels = self._examined(found.kept, new, prior_result)
            if len(kernels) < len(found.kept):
                proof = partial(self._for_the_record, known=prior_result.scatter)
                found = self._concluded(kernels, proof, demand_gain=True)
        if found.kept or found.undecided:
            return found
        self._step("the model is not as one like it was: every kernel is looked at")
        refused = replace(found, drops=dict(self._drops))
        self._forget(kernels)
        return self._validate_all(kernels, prior_result, refused)

    def _examined(
        self, kernels: Sequence[P], new: Sequence[P], prior_result: PriorResult
    ) -> Sequence[P]:
        """Return the kernels without new ones that lose, by group tests."""
        tests = self._group_tests(kernels, prior_result)
        tests.run_among([kernel for kernel in new if kernel in kernels])
        self._drops |= tests.dropped
        return tests.kept

    def _validate_all(
        self,
        kernels: Sequence[P],
        prior_result: PriorResult,
        refused: ValidationResult[P] | None = None,
    ) -> ValidationResult[P]:
        """Test every kernel; a refused model stays refused if no single kernel loses."""
        before = dict(self._drops)
        # loading a large model twice more takes what its proof needs, which shows wrong results too
        tests = self._group_tests(kernels, prior_result)
        is_checked = tests.has_time and not self._comparer.is_hurried
        try:
            if is_checked and tests.are_wrong():
                tests = self._group_tests(self._correct(kernels), prior_result)
        except TimeIsUpError:
            return self.undecided(kernels)
        tests.run()
        self._drops |= tests.dropped
        kept = self._faster_elsewhere(tests.kept)
        if refused is not None and self._drops == before:
            return refused
        proof = partial(self._for_the_record, known=prior_result.scatter)
        kept = self._within_peak(self._memory_pruned(kept))
        return self._concluded(kept, proof, demand_gain=True, is_checked=is_checked)

    def _group_tests(self, kernels: Sequence[P], prior_result: PriorResult) -> GroupTests[P]:
        return group_tests(
            self._comparer,
            kernels,
            self._step,
            prior_result,
            times=self._times,
            streams=self._streams,
        )

    def _faster_elsewhere(self, kernels: Sequence[P]) -> Sequence[P]:
        """Leave out what loses at another point of a range, where there is time to find that."""
        largest_s = self._comparer.run_s
        for comparer in self._comparer.at_other_points():
            # kernels promise what they save at the largest point; elsewhere, that share of the time
            share = comparer.run_s / largest_s if largest_s > 0 else 1.0
            here = PriorResult(usual_share=share)
            tests = group_tests(comparer, kernels, self._step, here, following=0)
            if tests.has_time:
                tests.run()
                kernels, self._drops = tests.kept, self._drops | tests.dropped
        return kernels

    def _memory_pruned(self, kernels: Sequence[P]) -> Sequence[P]:
        """Drop kernels that save next to nothing for the memory they keep."""
        heavy = not_worth_their_memory(kernels, self._kept_bytes)
        for name, reason in heavy.items():
            self._drops[name] = Drop(reason=reason)
            self._step(f"dropped {name}: {reason}")
        return tuple(kernel for kernel in kernels if kernel.name not in heavy)

    def _within_peak(self, kernels: Sequence[P]) -> Sequence[P]:
        """Leave out kernels until the model takes no more memory at its peak than it may.

        Kernels that keep next to nothing are not worth a look before the last comparison.
        """
        is_light = all_bytes(kernels, self._kept_bytes) < LEAST_BYTES
        if is_light or math.isinf(self._peak_ratio):
            return kernels
        try:
            kept = fitting(kernels, self._kept_bytes, self._excess_of)
        except (RunError, TimeIsUpError):  # what that says of a model, the comparison behind tells
            return kernels
        return self._without([one for one in kernels if one not in kept], kernels)

    def _fits(self, memory: ModelMemory | None) -> bool:
        return excess_bytes(memory, self._peak_ratio, self._mapped_bytes) <= 0

    def _excess_of(self, kernels: Sequence[P]) -> float:
        memory = self._comparer.memory(kernels)
        return excess_bytes(memory, self._peak_ratio, self._mapped_bytes, aimed=True)

    def _without(self, going: Collection[P], kernels: Sequence[P]) -> Sequence[P]:
        """Drop kernels for their memory, and return the rest."""
        reason = f"{OVER_PEAK} {self._peak_ratio:.2f}x of what ONNX Runtime takes"
        for kernel in going:
            self._drops[kernel.name] = Drop(reason=reason)
            self._step(f"dropped {kernel.name}: {reason}")
        return tuple(kernel for kernel in kernels if kernel not in going)

    def _forget(self, kernels: Sequence[P]) -> None:
        """Take back that kernels were dropped."""
        for kernel in kernels:
            self._drops.pop(kernel.name, None)

    def confirm(
        self, kernels: Sequence[P], proven_gain: float | None = None
    ) -> ValidationResult[P]:
        """Measure the kernels an earlier run has kept; noise undoes nothing, wrong results do.

        Args:
            kernels: Kernels in the library.
            proven_gain: Least speed-up of this model with just these kernels on such a machine with
                the same versions, as proven before: a few pairs check that, and where more than
                half of it is surely gone, it is proven anew. None where some of that is not known.
        """
        # the figures that count were taken in that earlier run: one process will do
        compare = self._for_the_record if self._proves_settled else self._comparer.once
        if proven_gain is not None and kernels and not self._proves_settled:
            checked = self._checked(kernels, proven_gain)
            if checked is not None:
                return checked
        found = self._concluded(kernels, compare, demand_gain=False)
        if found.kept or len(kernels) < 2:
            return found
        self._forget(kernels)
        try:
            right = self._correct(list(kernels))
        except TimeIsUpError:
            return self.undecided(kernels)
        return self._concluded(right, compare, demand_gain=False)

    def prove(self, kernels: Sequence[P]) -> ValidationResult[P] | str:
        """Return the model with all kernels if a gain is proven, else why not; nothing is dropped.

        Args:
            kernels: Kernels in the library.
        """
        kept = self._within_peak(self._memory_pruned(kernels))
        try:
            gain = self._comparer.for_the_record(kept, is_early=True, fits=self._fits)
        except TimeIsUpError:
            return _NO_TIME
        except RunError as error:
            return f"{_NOT_RUN}: {error}"
        if not gain.comparison.deviation.acceptable:
            return f"{_WRONG}: {gain.comparison.deviation.detail}"
        if not self._fits(gain.comparison.memory):
            return f"{OVER_PEAK} it may"
        if not gain.comparison.counts or gain.surely <= 1 or sure_loss(gain.points) is not None:
            low, high = gain.estimate.low, gain.estimate.high
            return f"{gain.estimate.median:.2f}x, {low:.2f}x to {high:.2f}x"
        return self._result(kept, gain)

    def _largest_alone(self, kernels: Sequence[P], gain: ModelGain) -> ValidationResult[P] | None:
        """Return the model with the kernels that save most, None unless a gain is proven with them.

        What they save in the model counts, where that is known. Where there is time for group
        tests, these have found what loses.

        Args:
            kernels: Kernels whose model is not proven faster.
            gain: Of that model.
        """
        largest = sorted(kernels, key=lambda one: -self._times.saved_by(one))[:_LARGEST]
        if len(largest) == len(kernels) or self._comparer.has_time_for_groups:
            return None
        if self._comparer.left_s() < self._comparer.least_s:
            return None
        self._step(f"{not_proven_faster(gain)}: trying the {_LARGEST} that save most")
        found = self.prove(largest)
        if isinstance(found, str):
            return None
        reason = f"{not_proven_faster(gain)}; it is {found.estimate.median:.3f}x without it"
        others = (one for one in kernels if one not in found.kept)
        drops = {one.name: Drop(reason=reason, is_final=False) for one in others}
        for name in drops:
            self._step(f"put back {name}: {reason}")
        self._drops |= drops
        return replace(found, drops=self._drops)

    def _checked(self, kernels: Sequence[P], proven_gain: float) -> ValidationResult[P] | None:
        """Return the model after a check of what was proven, None to look at it as if it was not.

        A wrong result, and a kernel that does not run, are looked into behind this.
        """
        try:
            gain = self._comparer.check(kernels)
        except (RunError, TimeIsUpError):
            return None
        if not gain.comparison.deviation.acceptable:
            return None
        left = 1 + _LEFT_OF_GAIN * (proven_gain - 1)
        if gain.comparison.counts and gain.estimate.high < left:
            self._step(
                f"it is {gain.estimate.median:.3f}x as fast with them, {proven_gain:.3f}x was "
                "proven: all is proven anew"
            )
            self.is_proven_anew = True
            return self.validate(kernels, NO_PRIOR_RESULT)
        return self._result(kernels, gain)

    def take(self, kernels: Sequence[P]) -> ValidationResult[P]:
        """Return the model with all kernels that compute the right result in it, untimed.

        Args:
            kernels: Kernels in the library.
        """
        try:
            right = self._correct(list(kernels))
        except TimeIsUpError:
            return self.undecided(kernels)
        return self._untimed(self._within_peak(right))

    def undecided(self, kernels: Sequence[P], reason: str = _NO_TIME) -> ValidationResult[P]:
        """Return the model without these kernels, undecided for lack of time."""
        drop = Drop(reason=reason, is_final=False)
        self._drops |= {kernel.name: drop for kernel in kernels}
        return self._untimed(())

    def _untimed(self, kept: Sequence[P]) -> ValidationResult[P]:
        """Return the model with these kernels, about whose speed nothing is claimed."""
        return replace(self._result(kept, self._comparer.unmeasured(kept)), surely=None)

    def _for_the_record(
        self, kept: Sequence[P], known: Scatter | None = None, expected_us: float | None = None
    ) -> ModelGain:
        if not kept:  # a model without kernels is only timed, nothing is claimed about it
            return self._comparer.once(kept)
        return self._comparer.for_the_record(
            kept, known=known, expected_us=expected_us, fits=self._fits
        )

    def _concluded(
        self,
        kept: Sequence[P],
        compare: Callable[[Sequence[P]], ModelGain],
        *,
        demand_gain: bool,
        is_checked: bool = True,
    ) -> ValidationResult[P]:
        """Return the judgement on `kept`, all or nothing; of kernels not checked, it is for now."""
        try:
            gain = compare(kept)
        except RunTimeoutError as error:
            if not kept:
                raise
            return self._all_dropped(kept, Drop(reason=f"{_LATE}: {error}", is_final=False))
        except RunError as error:
            if not kept:
                raise
            reason = f"{_NOT_RUN}: {error}"
            return self._all_dropped(kept, Drop(reason=reason, is_final=is_checked))
        except TimeIsUpError:
            return self.undecided(kept)
        deviation = gain.comparison.deviation
        if kept and not deviation.acceptable:
            reason = f"{_WRONG}: {deviation.detail}"
            return self._all_dropped(kept, Drop(reason=reason, is_final=is_checked))
        if kept and not self._fits(gain.comparison.memory):
            lighter = self._within_peak(kept)
            if len(lighter) == len(kept):  # one process says that it fits, others that it does not
                lighter = self._without(in_order_of_going(kept, self._kept_bytes)[:1], kept)
            return self._concluded(lighter, compare, demand_gain=demand_gain, is_checked=is_checked)
        if kept and demand_gain and not gain.comparison.counts:
            busy = next(one for one in gain.comparison.points if not one.counts)
            reason = f"not decided, the machine was busy: {busy.busy_words}"
            return self._all_dropped(kept, Drop(reason=reason, is_final=False))
        if kept and demand_gain and gain.surely <= 1:
            largest = self._largest_alone(kept, gain)
            if largest is not None:
                return largest
            if not gain.is_open:
                reason = not_proven_faster(gain)
                return self._all_dropped(kept, Drop(reason=reason, estimate=gain.estimate))
        if kept and demand_gain and gain.is_open:
            return self.undecided(
                kept, f"{_OPEN}: {gain.estimate.low:.2f}x to {gain.estimate.high:.2f}x"
            )
        if kept and demand_gain and (lost := sure_loss(gain.points)) is not None:
            return self._all_dropped(kept, Drop(reason=SLOWER_AT_A_POINT, estimate=lost))
        return self._result(kept, gain)

    def _result(self, kept: Sequence[P], gain: ModelGain) -> ValidationResult[P]:
        """Return the judgement with the kernels that stay, and what was dropped before."""
        return ValidationResult(
            kept=tuple(sorted(kept, key=lambda kernel: kernel.name)),
            drops=self._drops,
            comparison=gain.comparison,
            estimate=gain.estimate,
            scatter=gain.scatter,
            standard_error=gain.standard_error,
            surely=gain.surely,
            processes=len(gain.processes),
            points=gain.points if kept else (),
        )

    def _all_dropped(self, kernels: Sequence[P], drop: Drop) -> ValidationResult[P]:
        self._drops |= {kernel.name: drop for kernel in kernels}
        return self._concluded((), self._comparer.once, demand_gain=False)

    def _correct(self, kernels: Sequence[P]) -> list[P]:
        """Return the kernels with which the model computes what it did before."""
        right, drops = correct_kernels(self._comparer, kernels, self._step)
        self._drops |= drops
        return right


def better_of(
    found: ValidationResult[P], proven: ValidationResult[P] | None
) -> ValidationResult[P]:
    """Return the judgement on all kernels, unless an earlier one on fewer of them is better.

    Args:
        found: On all kernels.
        proven: On those found first, None if they were not proven faster.
    """
    if proven is None:
        return found
    if found.kept and found.estimate.median >= proven.estimate.low:
        return found
    slower = Drop(
        reason=f"the whole model is slower with all: {found.estimate.median:.3f}x",
        estimate=found.estimate,
        is_final=False,
    )
    drops = found.drops | dict.fromkeys((one.name for one in found.kept), slower)
    return replace(proven, drops={}).with_drops(drops)


def sure_loss(points: Sequence[PointComparison]) -> SpeedupEstimate | None:
    """Return the worst gain at a point of a range, None unless that is surely a loss."""
    worst = min(points, key=lambda point: point.at_most, default=None)
    return worst.estimate if worst is not None and worst.at_most < 1 else None


def _expected_us(kernels: Sequence[P], new: Sequence[P], prior_result: PriorResult) -> float | None:
    """Return the time a model is expected to save, in us; None where nobody noted what it takes.

    Believed kernels are expected to save the part of their promise that they have kept before, new
    ones the part of it that those keep which a model has kept: alone they save more than in
    company.
    """
    is_new = {kernel.name for kernel in new}
    believed = [kernel for kernel in kernels if kernel.name not in is_new]
    if any(kernel.name not in prior_result.kept_share for kernel in believed):
        return None
    of_believed = sum(prior_result.kept_share[kernel.name] * kernel.gain_us for kernel in believed)
    return of_believed + PROVEN * sum(kernel.gain_us for kernel in new)


def _is_as_expected(found: ValidationResult[P], expected_us: float | None) -> bool:
    return expected_us is not None and bool(found.kept) and saves_as_expected(found, expected_us)


def not_proven_faster(gain: ModelGain) -> str:
    """Return the reason to leave out kernels of a model that may be no faster with them.

    The 95 % interval that reports show can lie above 1 all the same, so the reason has its figures.
    """
    estimate = gain.estimate
    if estimate.high < 1:
        return f"{_SLOWER}: {estimate.median:.3f}x"
    return f"{_NOT_FASTER}: {estimate.median:.3f}x, 99 % interval from {gain.surely:.3f}x"


def correct_kernels(
    comparer: ModelComparer[P],
    kernels: Sequence[P],
    step: Callable[[str], None],
) -> tuple[list[P], dict[str, Drop]]:
    """Return the kernels with which a model computes what it did before, and why others go.

    Halves that are wrong are halved again, so that one wrong kernel costs itself alone.

    Args:
        comparer: Compares models with and without kernels.
        kernels: Of one model.
        step: Is told what is dropped.

    Raises:
        TimeIsUpError: there is no time for that.
    """
    drop = Drop(reason="the model computes something else with it")
    try:
        if not kernels or comparer.agrees(kernels):
            return [*kernels], {}
    except RunTimeoutError as error:
        drop = Drop(reason=f"{_LATE}: {error}", is_final=False)
    if len(kernels) == 1:
        step(f"dropped {kernels[0].name}: {drop.reason}")
        return [], {kernels[0].name: drop}
    half = len(kernels) // 2
    first, first_drops = correct_kernels(comparer, kernels[:half], step)
    second, second_drops = correct_kernels(comparer, kernels[half:], step)
    return first + second, first_drops | second_drops


def group_tests(
    comparer: ModelComparer[P],
    kernels: Sequence[P],
    step: Callable[[str], None],
    prior_result: PriorResult = NO_PRIOR_RESULT,
    following: int = PROCESSES,
    times: ModelTimes = NO_TIMES,
    streams: int = 1,
) -> GroupTests[P]:
    """Return the group tests of a model, with time left for its last comparison.

    Args:
        comparer: Compares models with and without kernels.
        kernels: Kernels that compute rightly together.
        step: Is told what is dropped.
        prior_result: What other models say of kernels, see `GroupTests`.
        following: Comparisons there has to be time for afterwards.
        times: What profiles of the model say of the kernels.
        streams: Callers that run the model at the same time.
    """
    return GroupTests(
        kernels,
        comparer.without,
        step,
        left_s=comparer.left_s,
        following_comparisons=following,
        comparison_s=comparer.screening_s,
        proven=prior_result.proven,
        usual_share=prior_result.usual_share,
        times=times,
        streams=streams,
    )


def decide_candidates(
    validator: ModelValidator[P],
    candidates: Sequence[P],
    *,
    own: frozenset[str],
    prior: Callable[[], PriorResult],
    lookup_only: bool,
    progress: Progress,
    measures_none: bool = True,
    proven_gain: Callable[[], float | None] = lambda: None,
    without: str = "untuned",
) -> tuple[ValidationResult[P], list[P]]:
    """Return the candidates that stay in the model, and the candidates the bank needs a note on.

    What this very model has kept before is believed; where all of it is, nothing is chosen again.

    Args:
        validator: Compares models.
        candidates: Kernels or rewrites that have won alone.
        own: Names of those this very model has kept.
        prior: Returns what earlier models say, asked where there is something to choose.
        lookup_only: True to take all of them without measuring.
        progress: Is told what happens.
        measures_none: True to measure the model where there is no candidate, too.
        proven_gain: Returns what an earlier run has proven of just these candidates, see `confirm`.
        without: How the model stays without candidates, in words.
    """
    progress.step(f"{'trying' if lookup_only else 'judging'} the whole model")
    if lookup_only or not (candidates or measures_none):
        return validator.take(candidates), []
    if len(own) == len(candidates):
        validation = validator.confirm(candidates, proven_gain())
    else:
        validation = validator.validate(candidates, prior())
    if validation.undecided and not validation.kept:
        way_out = _MORE_TIME if validation.undecided.startswith((_NO_TIME, _OPEN)) else ""
        progress.warn(f"the whole model stays {without}: {validation.undecided}{way_out}")
    news = [
        one
        for one in candidates
        if one.name not in own or one not in validation.kept or validator.is_proven_anew
    ]
    return validation, [one for one in news if validation.is_decided(one)]
