"""Holds a model to its accuracy: which kernels of lower precision it may have.

An occurrence of the model may have a kernel in each precision. The lowest is used where it is
faster than those above it, as long as the whole model keeps the constraint; else the next one is,
or ONNX Runtime's own. Winograd's kernels go the same way, last.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from aoe.errors import AccuracyError, RunError
from aoe.execute.messages import ModelPart
from aoe.execute.runner import Runner
from aoe.graph.regions import Region
from aoe.kernels.algorithms import precision_of
from aoe.ort.inputs import ModelInputs
from aoe.tasks.operators.chosen_kernel import ChosenKernel
from aoe.tuner.precision.constraint import OPTION, AccuracyConstraint, Results, hold, told
from aoe.validation.accuracy import HeldAccuracy
from aoe.validation.kernel_assembly import Assembly
from aoe.workload import Precision

_TIMEOUT_S = 600.0
_MOST_IN_DETAIL = 24
"""Kernels each of which is looked at alone, for the report, even where all may stay: each costs a
run of the model."""
"""A kernel of lower precision has to be this much faster than those of a higher one: below that,
the choice would be one of noise."""


class AccuracyChecker:
    """Runs variants of a model and compares their results with those of the untuned one.

    Args:
        assembly: Writes the variants; its library holds every kernel.
        runner: Runs them.
        constraint: What has to hold.
        inputs: What they are run on, every set.
        left_s: Seconds until it has to end.
        run_s: What running a variant should take, loading it included.
        following_s: What follows should take: nothing is looked at in detail in that time.
    """

    def __init__(
        self,
        assembly: Assembly,
        runner: Runner,
        *,
        constraint: AccuracyConstraint,
        inputs: ModelInputs,
        left_s: Callable[[], float] = lambda: math.inf,
        run_s: float = 0.0,
        following_s: float = 0.0,
    ) -> None:
        self._left_s = left_s
        self._following_s = following_s
        self._longest_s = run_s
        self._assembly = assembly
        self._runner = runner
        self._constraint = constraint
        self._inputs = inputs
        self._reference: Results | None = None

    def hold(self, kernels: Sequence[ChosenKernel]) -> HeldAccuracy[ChosenKernel]:
        """Return the kernels with which the model keeps its accuracy, one for each occurrence.

        Args:
            kernels: Kernels in the library; an occurrence may have several.

        Raises:
            RunError: the untuned model cannot be run.
            AccuracyError: the metric fails.
        """
        weighed = tuple(kernel for kernel in kernels if _is_weighed(kernel))

        def evaluate(lowered: frozenset[str]) -> float:
            return self.value(one_per_occurrence(kernels, lowered))

        names = [kernel.source.name for kernel in weighed]

        def in_detail() -> bool:
            return 1 < len(names) <= _MOST_IN_DETAIL and self._has_time(self._following_s)

        trade = hold(names, evaluate, self._constraint, in_detail=in_detail, in_time=self._has_time)
        known = trade.in_time or not math.isnan(trade.value)
        return HeldAccuracy(
            constraint=self._constraint,
            trade=trade,
            kernels=one_per_occurrence(kernels, trade.lowered) if known else (),
            weighed=weighed,
            sets=len(self._inputs.sets) or 1,
            made_up=not self._inputs.sets,
        )

    def value(self, kernels: Sequence[ChosenKernel]) -> float:
        """Return the metric of the model with these kernels, NaN if it cannot be run.

        Raises:
            RunError: the untuned model cannot be run.
            AccuracyError: the metric fails.
        """
        reference = self._untuned()
        try:
            results = self._results(self._assembly.write_model(kernels, "variant.onnx"))
        except RunError:
            return math.nan
        return self._constraint.value(reference, results)

    def check(self) -> None:
        """Run the untuned model and compare it with itself.

        Raises:
            RunError: it cannot be run.
            AccuracyError: the metric fails, or even the untuned model misses the bound.
        """
        reference = self._untuned()
        value = self._constraint.value(reference, reference)
        if not self._constraint.holds(value):
            raise AccuracyError(
                OPTION,
                "the untuned model itself misses the bound",
                got=f"{self._constraint.name} {told(value)}",
                expected=str(self._constraint),
                hint="widen the bound, or check the metric and its inputs (--calibration)",
            )

    def _has_time(self, following_s: float = 0.0) -> bool:
        """True if two more variants can be run: one, and in the end the exact one."""
        return self._left_s() - following_s > 2 * self._longest_s

    def _untuned(self) -> Results:
        if self._reference is None:
            self._reference = self._results(self._assembly.imported)
        return self._reference

    def _results(self, part: ModelPart) -> Results:
        began_s = self._left_s()
        found: Results = self._runner.call(
            "run_model", timeout_s=_TIMEOUT_S, part=part, inputs=self._inputs
        )
        if math.isfinite(began_s):
            self._longest_s = max(self._longest_s, began_s - self._left_s())
        return found


def one_per_occurrence(
    kernels: Sequence[ChosenKernel], lowered: frozenset[str]
) -> tuple[ChosenKernel, ...]:
    """Return one kernel for each occurrence: of the lowest precision that may be, by name.

    Args:
        kernels: Kernels to choose from, each with all occurrences it can compute.
        lowered: Names of those in question which may be used.
    """
    taken: set[str] = set()
    chosen = []
    for kernel in sorted(kernels, key=lambda one: -one.source.workload.precision.rank):
        if _is_weighed(kernel) and kernel.source.name not in lowered:
            continue
        occurrences = zip(kernel.regions, kernel.op_names, strict=True)
        free = [(region, name) for region, name in occurrences if region.output not in taken]
        if free:
            taken.update(region.output for region, _ in free)
            chosen.append(_at(kernel, free))
    return tuple(sorted(chosen, key=lambda kernel: kernel.source.name))


def _at(kernel: ChosenKernel, occurrences: Sequence[tuple[Region, str]]) -> ChosenKernel:
    """Return a kernel for some of its occurrences only."""
    return replace(
        kernel,
        regions=tuple(region for region, _ in occurrences),
        op_names=tuple(name for _, name in occurrences),
        gain_us=kernel.gain_us * len(occurrences) / len(kernel.regions),
    )


def _is_weighed(kernel: ChosenKernel) -> bool:
    return precision_of(kernel.source.schedule.algorithm) is not Precision.STRICT_FLOAT32
