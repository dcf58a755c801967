"""The last word has the whole model: kernels that win alone and lose in it are dropped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from aoe.errors import RunError
from aoe.execute.messages import ModelPart
from aoe.execute.runner import Runner
from aoe.execute.tasks import ModelComparison
from aoe.measurement import MeasurePolicy, SpeedupEstimate, accepts, estimate_speedup
from aoe.ort.inputs import ModelInputs
from aoe.tuning.opat.assembly import Assembly, ChosenKernel

ACCEPT_MODEL_SPEEDUP = 1.01
"""Lower bound of the speed-up a tuned model needs. Source: DESIGN D7."""
_TIMEOUT_S = 600.0
_MOST_COMPARISONS = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What holds up in the whole model.

    Attributes:
        kept: Kernels that stay.
        dropped: Kernels that go, with the reason by kernel name.
        comparison: Untuned against final model, fresh pairs.
        estimate: The speed-up it proves.
    """

    kept: tuple[ChosenKernel, ...]
    dropped: dict[str, str]
    comparison: ModelComparison
    estimate: SpeedupEstimate


class Judge:
    """Compares whole models.

    Args:
        assembly: Writes the variants.
        runner: Measures them.
        screen: Policy for comparing variants.
        final: Policy for the last, reported comparison.
        inputs: What models are run on; results are compared on every set.
    """

    def __init__(
        self,
        assembly: Assembly,
        runner: Runner,
        *,
        screen: MeasurePolicy,
        final: MeasurePolicy,
        inputs: ModelInputs,
    ) -> None:
        self._assembly = assembly
        self._runner = runner
        self._screen = screen
        self._final = final
        self._inputs = inputs
        self._comparisons = 0
        self.dropped: dict[str, str] = {}

    def judge(self, kernels: Sequence[ChosenKernel], step: Callable[[str], None]) -> Judgement:
        """Drop what computes wrongly or slows the model down, then measure what is left.

        Groups are tested by leaving them out, the least promising together; a group without
        which the model is faster is halved until the culprit is alone.

        Args:
            kernels: Kernels in the library.
            step: Is told what is dropped.
        """
        kept = self._correct(list(kernels), step)
        ordered = sorted(kept, key=lambda kernel: kernel.gain_us)
        half = len(ordered) // 2
        for group in (ordered[:half], ordered[half:]):
            kept = self._pruned(kept, group, step)
        return self._concluded(kept, self._final, least_speedup=ACCEPT_MODEL_SPEEDUP)

    def confirm(self, kernels: Sequence[ChosenKernel], step: Callable[[str], None]) -> Judgement:
        """Measure the kernels an earlier run has kept; noise undoes nothing, wrong results do.

        Args:
            kernels: Kernels in the library.
            step: Is told what is dropped.
        """
        # the figures that count were taken in that earlier run: the screening policy will do
        found = self._concluded(list(kernels), self._screen, least_speedup=0.0)
        if found.kept or len(kernels) < 2:
            return found
        self.dropped.clear()
        right = self._correct(list(kernels), step)
        return self._concluded(right, self._screen, least_speedup=0.0)

    def _concluded(
        self, kept: list[ChosenKernel], policy: MeasurePolicy, *, least_speedup: float
    ) -> Judgement:
        """Return the judgement on `kept`, all or nothing."""
        try:
            final = self._final_comparison(kept, policy)
        except RunError as error:
            if not kept:
                raise
            return self._all_dropped(kept, policy, f"the model cannot be run with it: {error}")
        estimate = estimate_speedup(final.measurement)
        if kept and not final.deviation.acceptable:
            reason = f"the model computes something else with it: {final.deviation.detail}"
            return self._all_dropped(kept, policy, reason)
        if kept and not accepts(estimate, least_speedup):
            return self._all_dropped(kept, policy, "the whole model is not faster with it")
        return Judgement(
            kept=tuple(sorted(kept, key=lambda kernel: kernel.source.name)),
            dropped=self.dropped,
            comparison=final,
            estimate=estimate,
        )

    def _all_dropped(
        self, kernels: Sequence[ChosenKernel], policy: MeasurePolicy, reason: str
    ) -> Judgement:
        self.dropped |= {kernel.source.name: reason for kernel in kernels}
        return self._concluded([], policy, least_speedup=0.0)

    def _correct(
        self, kernels: list[ChosenKernel], step: Callable[[str], None]
    ) -> list[ChosenKernel]:
        """Return the kernels with which the model computes what it did before."""
        if not kernels or self._agrees(kernels):
            return kernels
        if len(kernels) == 1:
            name = kernels[0].source.name
            self.dropped[name] = "the model computes something else with it"
            step(f"dropped {name}: {self.dropped[name]}")
            return []
        half = len(kernels) // 2
        parts = [self._correct(part, step) for part in (kernels[:half], kernels[half:])]
        return parts[0] + parts[1]

    def _agrees(self, kernels: Sequence[ChosenKernel]) -> bool:
        tuned = self._assembly.write_model(kernels, "variant.onnx")
        quick = MeasurePolicy(pairs_min=1, pairs_max=1, warmup=0, threads=self._screen.threads)
        try:
            found = self._compare(self._assembly.untuned, tuned, quick)
        except RunError:
            return False
        return found.deviation.acceptable

    def _pruned(
        self,
        kept: list[ChosenKernel],
        group: Sequence[ChosenKernel],
        step: Callable[[str], None],
    ) -> list[ChosenKernel]:
        """Return `kept` without those members of `group` that slow the model down."""
        group = [kernel for kernel in group if kernel in kept]
        if not group or self._comparisons >= _MOST_COMPARISONS:
            return kept
        estimate = self._gain_of(kept, group)
        if estimate.low > 1:
            return kept
        if len(group) == 1:
            if estimate.median >= 1:
                return kept
            name = group[0].source.name
            self.dropped[name] = f"the model is {1 / estimate.median:.3f}x as fast without it"
            step(f"dropped {name}: {self.dropped[name]}")
            return [kernel for kernel in kept if kernel is not group[0]]
        half = len(group) // 2
        for part in (group[:half], group[half:]):
            kept = self._pruned(kept, part, step)
        return kept

    def _gain_of(
        self, kept: Sequence[ChosenKernel], group: Sequence[ChosenKernel]
    ) -> SpeedupEstimate:
        """Return how many times faster the model is with `group` than without it."""
        self._comparisons += 1
        with_group = self._assembly.write_model(kept, "variant.onnx")
        rest = [kernel for kernel in kept if kernel not in group]
        without = self._assembly.write_model(rest, "variant_without.onnx")
        return estimate_speedup(self._compare(without, with_group, self._screen).measurement)

    def _final_comparison(
        self, kept: Sequence[ChosenKernel], policy: MeasurePolicy
    ) -> ModelComparison:
        tuned = self._assembly.write_model(kept)
        return self._compare(self._assembly.untuned, tuned, policy)

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
