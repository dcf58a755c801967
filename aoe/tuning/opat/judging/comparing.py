"""Compares whole models: once to choose among variants, in fresh processes for the record."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from statistics import fmean, stdev
from typing import Generic

from aoe.errors import RunError
from aoe.execute.accuracy import worse_of
from aoe.execute.messages import ModelPart
from aoe.execute.runner import Runner
from aoe.execute.tasks import ModelComparison
from aoe.measurement import (
    Measurement,
    MeasurePolicy,
    Outcome,
    SpeedupEstimate,
    estimate_speedup,
    joined_loads,
)
from aoe.measurement.memory import median_memory
from aoe.ort.inputs import ModelInputs
from aoe.tuning.opat.judging.candidates import P, VariantWriter

PROCESSES = 5
"""Worker processes the final comparison is spread over."""
_TIMEOUT_S = 600.0
_PRINTED, _ACCEPTING = 0.95, 0.99
_QUANTILES = {_PRINTED: 2.776, _ACCEPTING: 4.604}
"""Of Student's t with `PROCESSES` - 1 degrees of freedom, both tails. Source: W. S. Gosset 1908."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelGain:
    """The untuned model against a tuned one.

    Attributes:
        comparison: All pairs, and the worst deviation.
        estimate: Speed-up with its 95 % interval.
        surely: Lower end of the 99 % interval; where it has to exceed 1, a model that is no
            faster passes once in 200.
    """

    comparison: ModelComparison
    estimate: SpeedupEstimate
    surely: float


class ModelComparer(Generic[P]):
    """Writes variants of a model and has them measured against each other.

    Args:
        assembly: Writes the variants.
        runner: Measures them.
        screen: Policy for choosing among variants.
        final: Policy for the reported comparison, all processes together.
        inputs: What models are run on; results are compared on every set.
    """

    def __init__(
        self,
        assembly: VariantWriter[P],
        runner: Runner,
        *,
        screen: MeasurePolicy,
        final: MeasurePolicy,
        inputs: ModelInputs,
    ) -> None:
        self._assembly = assembly
        self._runner = runner
        self._screen = screen
        self._final = replace(
            final,
            pairs_min=math.ceil(final.pairs_min / PROCESSES),
            pairs_max=math.ceil(final.pairs_max / PROCESSES),
        )
        self._inputs = inputs

    def agrees(self, kernels: Sequence[P]) -> bool:
        """True if the model runs with these kernels and computes what it did before."""
        tuned = self._assembly.write_model(kernels, "variant.onnx")
        quick = MeasurePolicy(pairs_min=1, pairs_max=1, warmup=0, threads=self._screen.threads)
        try:
            found = self._compare(self._assembly.untuned, tuned, quick)
        except RunError:
            return False
        return found.deviation.acceptable

    def without(self, kept: Sequence[P], group: Sequence[P]) -> Measurement:
        """Measure the model without `group`, the baseline, against the one with all of `kept`."""
        tuned = self._assembly.write_model(kept, "variant.onnx")
        rest = [kernel for kernel in kept if kernel not in group]
        baseline = self._assembly.write_model(rest, "variant_without.onnx")
        return self._compare(baseline, tuned, self._screen).measurement

    def once(self, kept: Sequence[P]) -> ModelGain:
        """Write the model with `kept` and measure it in one process."""
        tuned = self._assembly.write_model(kept)
        found = self._compare(self._assembly.untuned, tuned, self._screen)
        estimate = estimate_speedup(found.measurement)
        return ModelGain(comparison=found, estimate=estimate, surely=estimate.low)

    def for_the_record(self, kept: Sequence[P], baseline: ModelPart | None = None) -> ModelGain:
        """Write the model with `kept` and measure it in several processes, one after another.

        Pairs of one process share where its memory came to lie, which decides a few percent, so
        what counts as a sample is a process: the interval is Student's, of the logarithms of
        their medians.

        Args:
            kept: Parts the model has.
            baseline: What it is held against; None for the model without any.

        Source: the method of independent replications (A. M. Law, Simulation Modeling and
            Analysis, 5th ed., section 9.5.2).
        """
        tuned = self._assembly.write_model(kept)
        found = []
        for _ in range(PROCESSES):
            self._runner.restart()
            found.append(self._compare(baseline or self._assembly.untuned, tuned, self._final))
        logs = [math.log(comparison.measurement.speedup) for comparison in found]
        middle, spread = fmean(logs), stdev(logs) / math.sqrt(PROCESSES)
        low, high = (math.exp(middle + sign * _QUANTILES[_PRINTED] * spread) for sign in (-1, 1))
        joined = _joined(found)
        return ModelGain(
            comparison=joined,
            estimate=SpeedupEstimate(
                median=math.exp(middle),
                low=low,
                high=high,
                pairs=len(joined.measurement.tuned_us),
                coverage=_PRINTED,
            ),
            surely=math.exp(middle - _QUANTILES[_ACCEPTING] * spread),
        )

    def _compare(
        self, baseline: ModelPart, tuned: ModelPart, policy: MeasurePolicy
    ) -> ModelComparison:
        found: ModelComparison = self._runner.call(
            "compare_models",
            timeout_s=_TIMEOUT_S,
            baseline=baseline,
            tuned=tuned,
            policy=policy,
            inputs=self._inputs,
        )
        return found


def _joined(comparisons: Sequence[ModelComparison]) -> ModelComparison:
    """Return all pairs as one comparison."""
    deviation = reduce(worse_of, (comparison.deviation for comparison in comparisons))
    measurements = [comparison.measurement for comparison in comparisons]
    return ModelComparison(
        measurement=Measurement(
            outcome=Outcome.CORRECT if deviation.acceptable else Outcome.CORRECTNESS,
            baseline_us=tuple(us for found in measurements for us in found.baseline_us),
            tuned_us=tuple(us for found in measurements for us in found.tuned_us),
            detail=deviation.detail,
            load=joined_loads(measurements),
        ),
        deviation=deviation,
        memory=median_memory(comparison.memory for comparison in comparisons),
    )
