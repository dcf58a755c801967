"""Whether what the bank says about a training was found out where it runs now.

A modelhash knows neither the link nor the batch, and a record of a slow link is worth nothing on
a fast one. So before it is used, all-reduce and a few training steps are timed, about a second.
"""

from __future__ import annotations

from collections.abc import Callable

from aoe.bank.records.gradient import GradientConditions
from aoe.gradients.cost import CostModel, choose_cost
from aoe.gradients.segmentation import Segmentation
from aoe.gradients.training import Training

FITS_WITHIN = 1.5
"""Factor by which times may differ from the record's, either way. A busy machine stays within it,
the next faster kind of link (2.5 Gbit/s after 1) and twice the batch do not."""
CHECK_STEPS = 5


class FitCheck:
    """Compares this cluster with those in the bank; what differs is looked at a second time.

    Args:
        training: The run; every process makes the same calls.
    """

    def __init__(self, training: Training) -> None:
        self._training = training
        self._costs: dict[bool, CostModel] = {}

    def misfit(
        self,
        then: GradientConditions,
        segmentation: Segmentation,
        sizes_bytes: tuple[int, ...],
        *,
        with_steps: bool = True,
    ) -> str | None:
        """Return the difference of conditions here, None if the times fit.

        Args:
            then: What was measured there.
            segmentation: Grouping in use.
            sizes_bytes: Of the gradients in the order it groups them.
            with_steps: True to run a few training steps, too.
        """
        groups = [sum(sizes_bytes[start:end]) for start, end in segmentation.ranges]

        def all_reduce_us(cost: CostModel) -> float:
            return sum(cost.cost_us(size) for size in groups)

        different = None
        if then.cost is not None:
            different = _difference(
                lambda look: all_reduce_us(self._cost(briefly=look == 0)), all_reduce_us(then.cost)
            )
            different = different and f"all-reduce takes {different}"
        if different is None and with_steps and then.step_us is not None:
            different = _difference(lambda look: self._training.step_us(CHECK_STEPS), then.step_us)
            different = different and f"a training step takes {different}"
        return different

    def _cost(self, *, briefly: bool) -> CostModel:
        """Return all-reduce here, measured once; not briefly: as it is measured for tuning."""
        if briefly not in self._costs:
            self._costs[briefly] = choose_cost(self._training.cost_samples(briefly=briefly))
        return self._costs[briefly]


def _difference(time_us: Callable[[int], float], then_us: float) -> str | None:
    """Return both times if they differ in a first and in a second look, else None."""
    here_us = 0.0
    for look in range(2):
        here_us = time_us(look)
        if max(here_us, then_us) <= FITS_WITHIN * min(here_us, then_us):
            return None
    return f"{here_us / 1e3:.1f} ms here, {then_us / 1e3:.1f} ms in the bank"
