"""Comparisons of whole models: one process to choose variants, fresh ones for the record."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic

from aoe.errors import RunError, RunTimeoutError, TurnTimeoutError, WorkerDiedError
from aoe.execute.accuracy import AS_BEFORE, MODEL_TOLERANCE, Deviation
from aoe.execute.messages import ModelPart
from aoe.execute.runner import Runner
from aoe.execute.tasks import (
    WHOLE_MODELS,
    ComparedPoint,
    ComparisonTerms,
    ModelComparison,
)
from aoe.measurement import (
    Measurement,
    MeasurePolicy,
    Outcome,
    Scatter,
    SpeedupEstimate,
)
from aoe.measurement.memory import ModelMemory
from aoe.ort.inputs import ModelInputs
from aoe.tuner.policies import check_policy, single_run_policy
from aoe.validation.candidates import P, VariantWriter
from aoe.validation.intervals import EARLY_LOOKS, HURRIED_LOOKS, looks
from aoe.validation.model_gain import ModelGain, PointMean
from aoe.validation.time_reserve import (
    GROUP_TESTS,
    HURRIED_PROCESSES,
    LEAST_PROCESSES,
    NO_COSTS,
    PROCESSES,
    ModelCosts,
    ProcessPace,
    one_process_of,
    starting_s,
)

_TIMEOUT_S = 600.0
"""Of a comparison, at each point."""
_LARGE_TIMEOUT_S = 6 * _TIMEOUT_S
"""Of models that are loaded anew for every other sample."""
_UNUSUAL_S = 20.0
_UNUSUAL_SHARE = 0.05
"""Seconds that runs on unusual inputs may take of each model, and of a time limit that is left."""
NOT_TIMED_US = 1e-9
"""Stands for the time of a model that was never run: a measurement has no time of zero."""
_ONCE = replace(single_run_policy(1), least_quiet=0.0)
"""At a point where only results are compared: its times need not count."""
_ONE_ROUND = ComparisonTerms(orders=(False,))
"""Both models are loaded once, whatever the pairs."""
_BESIDE = 2
"""Processes that are started beside each other where a comparison in a hurry goes on: its looks are
two processes apart."""


class TimeIsUpError(Exception):
    """The time limit of the run allows no further comparison."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PointInputs:
    """A point of a range, at which models are compared."""

    inputs: ModelInputs  # What models are run on there
    # Of its gain in the mean over all points; 0 where only results are compared.
    weight: float = 1.0


class ModelComparer(Generic[P]):
    """Writes variants of a model and has them measured against each other.

    Args:
        assembly: Writes the variants.
        runner: Measures them.
        screen: Policy for choosing among variants.
        final: Policy for the reported comparison, all processes together.
        inputs: What models are run on; results are compared on every set.
        left_s: Seconds until comparing has to end.
        costs: What things take with this model.
        streams: Callers that run models at the same time, see `ComparisonTerms`.
        is_quantised: True of a model that rounds to integers: its own results tell how far others
            may be apart.
        tolerance: Largest error of a result, infinite where a constraint on the whole model counts.
        elsewhere: Further points of a range, of which `inputs` are those that take most. Models
            are loaded once for all points, and gain what they gain in the geometric mean.
        weight: Of `inputs` in that mean.
        at_most_s: Seconds until the least processes of a comparison with kernels have to end, where
            nothing is proven without them; None for `left_s`.

    Attributes:
        left_s: As given.
    """

    def __init__(
        self,
        assembly: VariantWriter[P],
        runner: Runner,
        *,
        screen: MeasurePolicy,
        final: MeasurePolicy,
        inputs: ModelInputs,
        left_s: Callable[[], float] = lambda: math.inf,
        costs: ModelCosts = NO_COSTS,
        streams: int = 1,
        is_quantised: bool = False,
        tolerance: float = MODEL_TOLERANCE,
        elsewhere: Sequence[PointInputs] = (),
        weight: float = 1.0,
        at_most_s: Callable[[], float] | None = None,
    ) -> None:
        self._assembly = assembly
        self._runner = runner
        self._screen = costs.warmed(screen)
        self._all_processes = final
        self._final = costs.warmed(one_process_of(final))
        self._inputs = inputs
        self.left_s = left_s
        self._at_most_s = at_most_s or left_s
        self._costs = costs
        self._slowness = 1.0
        self._streams = streams
        self._is_quantised = is_quantised
        self._tolerance = tolerance
        self._elsewhere = elsewhere
        self._mean = PointMean([*(point.weight for point in elsewhere), weight])
        self._unusual: dict[frozenset[str], Deviation] = {}

    @property
    def screening_s(self) -> float:
        """Seconds a comparison should take while kernels are chosen."""
        return self._comparison_s(self._screen, _ONCE)

    @property
    def run_s(self) -> float:
        """Seconds of a run of the untuned model; 0 where that is not known."""
        return self._costs.run_s

    @property
    def is_hurried(self) -> bool:
        """True if there is no time for all processes of the final comparison.

        Beside other load comparisons take longer than is reckoned; the slowest so far tells.
        """
        return self.left_s() < self._proof_s()

    @property
    def has_time_for_groups(self) -> bool:
        """True if there is time to find what loses by groups, and for the final comparison."""
        groups_s = GROUP_TESTS * self._slowness * self.screening_s
        return self.left_s() > groups_s + self._proof_s()

    def _proof_s(self) -> float:
        return PROCESSES * self._slowness * self._comparison_s(self._final)

    def _comparison_s(
        self,
        policy: MeasurePolicy,
        elsewhere: MeasurePolicy | None = None,
        terms: ComparisonTerms = WHOLE_MODELS,
    ) -> float:
        """Return the seconds of a comparison, see `_policies_elsewhere`."""
        policies = self._policies_elsewhere(policy, elsewhere)
        return self._costs.comparison_s(policy, policies, rounds=len(terms.orders))

    @property
    def _hurried_s(self) -> float:
        """Seconds of a comparison in a hurry."""
        return self._costs.process_s + self._compared_s(self._costs.hurried(self._final))

    def _compared_s(self, policy: MeasurePolicy, terms: ComparisonTerms = _ONE_ROUND) -> float:
        """Return the seconds of a process that has started; in one round, if pairs hardly scatter.

        Args:
            policy: Of its pairs.
            terms: Of its rounds.
        """
        if len(terms.orders) == 1:
            policy = replace(policy, pairs_max=policy.pairs_min)
        return self._comparison_s(policy, terms=terms) - self._costs.process_s

    def _policies_elsewhere(
        self, policy: MeasurePolicy, elsewhere: MeasurePolicy | None
    ) -> tuple[MeasurePolicy, ...]:
        """Return the policies at all other points of a range.

        Args:
            policy: Where calls take most.
            elsewhere: The same for all; None for the one that suits each.
        """
        if elsewhere is not None or not self._elsewhere:
            return (elsewhere or policy,) * len(self._elsewhere)
        own = self._costs.elsewhere(policy)
        points = zip(self._elsewhere, own, strict=True)
        return tuple(one if point.weight else _ONCE for point, one in points)

    def at_other_points(self) -> tuple[ModelComparer[P], ...]:
        """Return comparers for each other point alone, which leave the time of the proof."""
        return tuple(
            ModelComparer(
                self._assembly,
                self._runner,
                screen=self._screen,
                final=self._all_processes,
                inputs=point.inputs,
                left_s=lambda: self.left_s() - self._proof_s(),
                costs=costs,
                streams=self._streams,
                is_quantised=self._is_quantised,
                tolerance=self._tolerance,
            )
            for point, costs in zip(self._elsewhere, self._costs.at_each(), strict=True)
            if point.weight > 0
        )

    @property
    def is_pressed(self) -> bool:
        """True if there is not even time for all hurried processes."""
        return self.left_s() < self._hurried_processes_s(HURRIED_PROCESSES)

    def _hurried_processes_s(self, count: int) -> float:
        """Return the seconds of so many processes in a hurry at the pace of those so far.

        They start beside each other.
        """
        compared_s = self._compared_s(self._costs.hurried(self._final))
        return self._slowness * ProcessPace(self._costs.process_s).seconds(
            compared_s, started=count, count=count
        )

    @property
    def least_s(self) -> float:
        """Seconds without which nothing can be proven."""
        return (LEAST_PROCESSES + 1) * self._hurried_s

    @property
    def early_processes(self) -> int:
        """Most processes of an early comparison there is time for."""
        each_s = self._slowness * self._hurried_s
        most = EARLY_LOOKS[-1]
        return min(most, int(self.left_s() / each_s)) if each_s > 0 else most

    def unmeasured(self, kept: Sequence[P]) -> ModelGain:
        """Write the model with `kept` and return its comparison without measuring."""
        self._assembly.write_model(kept)
        alone = (max(NOT_TIMED_US, self._costs.run_s * 1e6),)
        return ModelGain(
            comparison=ModelComparison(
                measurement=Measurement(outcome=Outcome.CORRECT, baseline_us=alone, tuned_us=alone),
                deviation=Deviation(max_abs_err=0.0, excess=0.0),
            ),
            estimate=SpeedupEstimate(median=1.0, low=1.0, high=1.0, pairs=0, coverage=0.0),
            surely=1.0,
        )

    def agrees(self, kernels: Sequence[P]) -> bool:
        """True if the model runs with these kernels and computes the same results.

        Raises:
            TimeIsUpError: before that was known; so with all comparisons.
            RunTimeoutError: there was no answer, which says nothing.
        """
        tuned = self._assembly.write_model(kernels, "variant.onnx")
        try:
            found = self._compare(
                self._assembly.untuned, tuned, single_run_policy(self._screen.threads)
            )
            found = self._also_unusual(found, kernels, tuned)
        except RunTimeoutError:
            raise
        except RunError:
            return False
        return found.deviation.acceptable

    def memory(self, kept: Sequence[P]) -> ModelMemory | None:
        """Return the memory of sessions of the untuned model and of that with `kept`.

        None where the system does not say.

        Raises:
            RunError: the model cannot be run with them.
            TimeIsUpError: what time is left, the last comparison needs, whose first process tells
                the same.
        """
        if self.left_s() < self._hurried_processes_s(HURRIED_PROCESSES + 1):
            raise TimeIsUpError
        tuned = self._assembly.write_model(kept, "variant.onnx")
        policy = single_run_policy(self._screen.threads)
        return self._compare(self._assembly.untuned, tuned, policy, is_everywhere=False).memory

    def without(self, kept: Sequence[P], group: Sequence[P]) -> Measurement:
        """Measure the model without `group`, the baseline, against the one with all of `kept`.

        At the other points of a range only results are compared.
        """
        tuned = self._assembly.write_model(kept, "variant.onnx")
        rest = [kernel for kernel in kept if kernel not in group]
        baseline = self._assembly.write_model(rest, "variant_without.onnx")
        found = self._compare(baseline, tuned, self._screen, elsewhere=_ONCE)
        return found.measurement if rest else self._also_unusual(found, kept, tuned).measurement

    def once(self, kept: Sequence[P]) -> ModelGain:
        """Write the model with `kept` and measure it in one process.

        Over a range the calls of a model without kernels need not be as many as prove a gain.
        """
        is_short = self.left_s() < self._comparison_s(self._screen)
        in_hurry = is_short or bool(self._elsewhere and not kept)
        policy = self._costs.hurried(self._screen) if in_hurry else self._screen
        terms = _ONE_ROUND if in_hurry else WHOLE_MODELS
        left_s = self._at_most_s if kept else self.left_s
        if left_s() < self._comparison_s(policy, terms=terms):
            raise TimeIsUpError
        tuned = self._assembly.write_model(kept)
        found = self._compare(self._assembly.untuned, tuned, policy, terms, left_s=left_s)
        return self._mean.of_one(self._also_unusual(found, kept, tuned))

    def check(self, kept: Sequence[P]) -> ModelGain:
        """Write the model with what it was proven with before, and take a few pairs of it.

        One process loads each model once. Results are compared on the usual inputs: what the same
        kernels make of unusual ones is known.
        """
        accept_busy = self._screen.least_quiet == 0
        policy = self._costs.warmed(
            check_policy(self._screen.threads, accept_busy=accept_busy, left_s=self.left_s())
        )
        if self._at_most_s() < self._comparison_s(policy):
            raise TimeIsUpError
        tuned = self._assembly.write_model(kept)
        found = self._compare(self._assembly.untuned, tuned, policy, left_s=self._at_most_s)
        return self._mean.of_one(found)

    def for_the_record(
        self,
        kept: Sequence[P],
        baseline: ModelPart | None = None,
        *,
        known: Scatter | None = None,
        expected_us: float | None = None,
        is_early: bool = False,
        fits: Callable[[ModelMemory | None], bool] = lambda memory: True,
    ) -> ModelGain:
        """Write the model with `kept` and measure it in several processes, one after another.

        Pairs of one process share where its memory came to lie, which decides a few percent, so
        what counts as a sample is a process: the interval is Student's, of the logarithms of
        their medians.

        The third and the fourth process are the last where they prove a gain by far, see `looks`;
        where the scatter of a model like this one is known, any of the first three, once the gain
        is larger than the interval is wide, or is the one expected: then a later run believes it,
        see `is_settled`.
        If all show a gain but do not prove it, as many more are added once: processes of small
        models scatter by 5 %, and five of them prove a gain of 10 % no more than every other time.

        Of a range, what counts is the mean over its points in each process.

        Where the time limit does not allow for all of them, each loads both models once instead
        of twice, every other one the tuned one first: what the order does to the figures is no
        noise then, and is taken out where there are three. Up to four processes are judged with
        what is known of others, see `ProcessGain`; two more at a time follow, as far as there is
        time, where they show a gain they do not prove. One alone proves a large gain, and nothing
        else.

        Args:
            kept: Parts the model has.
            baseline: What it is held against; None for the model without any.
            known: Scatter of a model like this one on this machine.
            expected_us: Time it saves by what a model like this one has saved; None if not known.
            is_early: True for one of several comparisons of a run: always in a hurry, and held to
                more, see `EARLY_LOOKS`.
            fits: False for memory that a model may not take: the process that shows it is the
                last, as time is left for a lighter model then.

        Raises:
            TimeIsUpError: there was time for one process at most, which does not prove a gain.

        Source: the method of independent replications (A. M. Law, Simulation Modeling and
            Analysis, 5th ed., section 9.5.2).
        """
        tuned = self._assembly.write_model(kept)
        held_against = baseline or self._assembly.untuned
        is_hurried = is_early or self.is_hurried
        is_extended = False
        if is_hurried:
            found = self._hurried(held_against, tuned, is_early=is_early, fits=fits)
            if not is_early and found and fits(found[-1].memory):
                is_extended, found = self._beyond_limit(held_against, tuned, found)
        else:
            found = self._in_processes(held_against, tuned, known, expected_us, fits=fits)
        if not found:
            raise TimeIsUpError
        is_too_large = not fits(found[-1].memory)
        if baseline is None:
            found[0] = self._also_unusual(found[0], kept, tuned)
        gain = self._mean.gain(
            found,
            is_hurried=is_hurried,
            known=known,
            is_early=is_early,
            is_extended=is_extended,
        )
        if is_too_large:
            return gain
        if not is_hurried and gain.surely <= 1 < gain.estimate.median:
            terms = _both_orders(PROCESSES, begin=len(found))
            more = self._one_by_one(
                held_against, tuned, lambda found: self._final, terms, started=PROCESSES
            )
            found = [*found, *more]
            gain = self._mean.gain(found, is_hurried=False, known=known)
        if len(found) < LEAST_PROCESSES and gain.surely <= 1:
            raise TimeIsUpError
        is_cut = is_hurried or len(found) < PROCESSES
        return replace(gain, is_open=is_cut and gain.surely <= 1 < gain.estimate.high)

    def _also_unusual(
        self, found: ModelComparison, kernels: Sequence[P], tuned: ModelPart
    ) -> ModelComparison:
        """Return a comparison with the untuned model, and the results on unusual inputs in it.

        Raises:
            RunError: the process died of the kernels there.
        """
        names = frozenset(kernel.name for kernel in kernels)
        has_time = self.left_s() > 0 and not self.is_pressed
        if not names or not has_time or not found.deviation.acceptable:
            return found
        if names not in self._unusual:
            self._unusual[names] = self._on_unusual_inputs(tuned)
        return found.with_deviation(self._unusual[names])

    def _on_unusual_inputs(self, tuned: ModelPart) -> Deviation:
        """Return the deviation of a model there; without a NaN where ONNX Runtime dies of one."""
        for with_nan in (True, False):
            try:
                return self._unusual_of(tuned, with_nan=with_nan)
            except RunTimeoutError:
                break
            except WorkerDiedError:
                try:
                    self._unusual_of(self._assembly.untuned, with_nan=with_nan)
                except RunError:
                    continue
                raise
        return AS_BEFORE

    def _unusual_of(self, tuned: ModelPart, *, with_nan: bool) -> Deviation:
        left_s = self.left_s()
        found: Deviation = self._runner.call(
            "compare_unusual",
            timeout_s=min(_TIMEOUT_S, left_s),
            baseline=self._assembly.untuned,
            tuned=tuned,
            inputs=(self._inputs, *(point.inputs for point in self._elsewhere)),
            most_s=min(_UNUSUAL_S, _UNUSUAL_SHARE * left_s),
            with_nan=with_nan,
        )
        return found

    def _hurried(
        self,
        baseline: ModelPart,
        tuned: ModelPart,
        *,
        is_early: bool,
        fits: Callable[[ModelMemory | None], bool],
    ) -> list[ModelComparison]:
        """Return comparisons in fresh processes of one order each, until they decide.

        They end, too, where as many more as there is time for would prove nothing. That look
        accepts no model, so that it passes none that is no faster.
        """
        looked_at = EARLY_LOOKS if is_early else HURRIED_LOOKS
        stays_open = partial(self._mean.stays_open, is_early=is_early)
        started = LEAST_PROCESSES if is_early or self.is_pressed else HURRIED_PROCESSES
        return self._one_by_one(
            baseline,
            tuned,
            self._hurried_policy,
            _one_order_each(looked_at[-1]),
            is_enough=partial(self._mean.is_decided_in_hurry, looked_at=looked_at),
            is_hopeless=stays_open,
            started=started,
            beside=_BESIDE,
            fits=fits,
        )

    def _beyond_limit(
        self, baseline: ModelPart, tuned: ModelPart, found: list[ModelComparison]
    ) -> tuple[bool, list[ModelComparison]]:
        """Return True if a comparison in a hurry is looked at before its end, and its processes.

        What few processes leave open, as many as the first look asks for may decide where there is
        nothing else to show for the time. These few are looked at then, so that both looks are held
        to `LATER`: together they pass as many equal models as the one that there is without.
        """
        more = HURRIED_PROCESSES - len(found)
        policy = self._hurried_policy(found)
        each_s = self._slowness * (self._costs.process_s + self._compared_s(policy))
        if len(found) < LEAST_PROCESSES or more <= 0 or self._at_most_s() <= more * each_s:
            return False, found
        if not self._mean.may_go_on(found, more):
            return True, found
        terms = _one_order_each(HURRIED_PROCESSES)[len(found) :]
        following = self._one_by_one(
            baseline, tuned, self._hurried_policy, terms, until_s=self._at_most_s
        )
        # what a gain by CPU time needs of wall time is asked of all processes together
        is_timed = all(one.is_timed or not one.deviation.acceptable for one in following)
        return True, [*found, *following] if is_timed else found

    def _hurried_policy(self, found: Sequence[ModelComparison]) -> MeasurePolicy:
        """Return the policy of the process that follows others, by how much their pairs scatter."""
        return self._costs.hurried(self._final, is_scattered=self._mean.is_scattered(found))

    def _in_processes(
        self,
        baseline: ModelPart,
        tuned: ModelPart,
        known: Scatter | None,
        expected_us: float | None,
        *,
        fits: Callable[[ModelMemory | None], bool],
    ) -> list[ModelComparison]:
        """Return comparisons in fresh processes of both orders, as many as there is time for."""
        return self._one_by_one(
            baseline,
            tuned,
            lambda found: self._final,
            _both_orders(PROCESSES),
            is_enough=partial(self._mean.is_clear, known=known, expected_us=expected_us),
            started=max(LEAST_PROCESSES, min(looks(known))),
            fits=fits,
        )

    def _one_by_one(
        self,
        baseline: ModelPart,
        tuned: ModelPart,
        policy_of: Callable[[Sequence[ModelComparison]], MeasurePolicy],
        terms: Sequence[ComparisonTerms],
        is_enough: Callable[[Sequence[ModelComparison]], bool] = lambda found: False,
        is_hopeless: Callable[[Sequence[ModelComparison], int], bool] = lambda found, more: False,
        started: int = LEAST_PROCESSES,
        beside: int = 1,
        fits: Callable[[ModelMemory | None], bool] = lambda memory: True,
        until_s: Callable[[], float] | None = None,
    ) -> list[ModelComparison]:
        """Return a comparison in a process of its own for each of `terms`, while there is time.

        No more follow once `is_enough` of those there are, or the last one does not fit, or it
        `is_hopeless` with as many more as there is time for. The first `started` ones start
        beside each other, before anything is measured, and the others `beside` each other. The next
        one has `policy_of` those there are. What was taken while the machine was busy does not
        count and is taken again, at most once for each of `terms`; unless there is nothing else, or
        it shows a wrong result, which no load explains. Which side of 1 a process lies on is no
        reason to take it again: a gain by CPU time that wall time does not show is asked for of all
        processes together, see `PointMean.gain`.

        The least processes that prove anything go on beyond the limit, as far as they may: what
        was found would be found in vain otherwise. With `until_s`, all of them end by that.
        """
        found: list[ModelComparison] = []
        busy: list[ModelComparison] = []
        pace, waiting = ProcessPace(self._costs.process_s), 0
        while len(found) < len(terms):
            is_least = len(found) < LEAST_PROCESSES
            left_s = until_s or (self._at_most_s if is_least else self.left_s)
            began_s, policy = left_s(), policy_of(found)
            compared_s = self._compared_s(policy, terms[0])
            starting = 0
            if not waiting:
                is_first = not found and not busy
                several = started if is_first else beside
                has_time = began_s > pace.seconds(compared_s, started=several, count=several)
                starting = several if is_first or has_time else 1
            needed_s = pace.seconds(compared_s, started=starting)
            if began_s <= needed_s:
                break
            waiting += starting - 1
            if not is_least and needed_s > 0 and math.isfinite(began_s):
                more = pace.processes_in(
                    began_s,
                    compared_s,
                    started=starting,
                    waiting=waiting,
                    beside=beside,
                    most=len(terms) - len(found),
                )
                if is_hopeless(found, more):
                    break
            self._runner.restart(max(0, starting - 1))
            try:
                one = self._compare(
                    baseline,
                    tuned,
                    policy,
                    terms[len(found)],
                    left_s=left_s,
                    started=starting,
                )
            except TimeIsUpError:
                break
            if math.isfinite(began_s):
                pace.note(began_s - left_s(), compared_s, started=starting)
            if one.is_timed or not one.deviation.acceptable:
                found.append(one)
                if is_enough(found) or not fits(one.memory):
                    break
            elif len(busy) < len(terms):
                busy.append(one)
            else:
                break
        return found or busy

    def _compare(
        self,
        baseline: ModelPart,
        tuned: ModelPart,
        policy: MeasurePolicy,
        terms: ComparisonTerms = WHOLE_MODELS,
        elsewhere: MeasurePolicy | None = None,
        *,
        is_everywhere: bool = True,
        left_s: Callable[[], float] | None = None,
        started: int = 1,
    ) -> ModelComparison:
        """Compare two models.

        Args:
            baseline: Held against `tuned`.
            tuned: Is faster if the ratio is above 1.
            policy: Of the measurement.
            terms: Which model is loaded first.
            elsewhere: Policy at all other points of a range, by default the one that suits each.
            is_everywhere: False to compare at no other point.
            left_s: Seconds until it has to end; None for `left_s` of the comparer.
            started: Processes that start for it, beside each other.
        """
        left_s = left_s or self.left_s
        policies = self._policies_elsewhere(policy, elsewhere)
        points = (
            ComparedPoint(inputs=point.inputs, policy=own)
            for point, own in zip(self._elsewhere, policies, strict=True)
        )
        terms = replace(
            terms,
            points=tuple(points) if is_everywhere else (),
            tolerance=self._tolerance,
            rounding=self._assembly.untuned if self._is_quantised else None,
            streams=self._streams,
        )
        began_s = left_s()
        try:
            with self._runner.turns.measuring():  # waiting for others takes of the time, too
                found = self._compare_now(baseline, tuned, policy, terms, left_s)
        except TurnTimeoutError as error:
            if math.isfinite(left_s()):
                raise TimeIsUpError from error
            raise
        if math.isfinite(began_s):
            took_s, process_s = began_s - left_s(), self._costs.process_s
            reckoned_s = self._comparison_s(policy, elsewhere, terms)
            # one of them is reckoned already
            reckoned_s += starting_s(process_s, max(1, started)) - process_s
            self._slowness = max(self._slowness, took_s / reckoned_s)
        return found

    def _compare_now(
        self,
        baseline: ModelPart,
        tuned: ModelPart,
        policy: MeasurePolicy,
        terms: ComparisonTerms,
        left_s: Callable[[], float],
    ) -> ModelComparison:
        began_s, most_s = left_s(), _TIMEOUT_S
        if baseline.is_large:
            most_s = _LARGE_TIMEOUT_S
        most_s *= 1 + len(terms.points)
        if began_s <= 0:
            raise TimeIsUpError
        try:
            found: ModelComparison = self._runner.call(
                "compare_models",
                timeout_s=min(most_s, began_s),
                baseline=baseline,
                tuned=tuned,
                policy=policy,
                inputs=self._inputs,
                terms=terms,
            )
        except RunTimeoutError as error:
            if began_s < most_s or left_s() <= 0:
                raise TimeIsUpError from error
            raise
        return found


def _both_orders(count: int, begin: int = 0) -> list[ComparisonTerms]:
    """Return terms for processes of two rounds; every other process loads the tuned model first.

    The session loaded first in a fresh process is slower: by 0.3 % for a model of 2 us, by nothing
    in the second round. With one sequence for all processes, a model of 2 us read 1.002 times as
    fast as itself, outside the interval in 7 of 26 runs.
    """
    sequences = ((False, True), (True, False))
    return [ComparisonTerms(orders=sequences[n % 2]) for n in range(begin, begin + count)]


def _one_order_each(count: int) -> list[ComparisonTerms]:
    """Return terms for processes of one round, in alternating order."""
    return [ComparisonTerms(orders=(bool(n % 2),)) for n in range(count)]
