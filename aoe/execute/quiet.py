"""Pairs taken while the machine is quiet: a busy one is waited for, within bounds."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from aoe.measurement import (
    Clock,
    CpuUse,
    MachineLoad,
    MeasurePolicy,
    PairedSamples,
    deciding_clock,
    run_pairs,
)

PATIENCE_S = 60.0
"""A worker waits so long for a quiet machine, all its measurements together."""
FIRST_PAUSE_S = 1.0
"""Before the second try; each further pause is twice as long."""

Sampler = Callable[[], float]


@dataclass(slots=True, kw_only=True)
class QuietPairs:
    """Takes pairs again when the machine was busy, as long as the patience lasts.

    Attributes:
        usage: Counters of this process, see `Device.usage`.
        patience_s: Seconds of waiting that are left.
        sleep: Waits.
    """

    usage: Callable[[], CpuUse]
    patience_s: float = PATIENCE_S
    sleep: Callable[[float], None] = time.sleep

    def take(
        self,
        baseline: Sampler,
        tuned: Sampler,
        policy: MeasurePolicy,
        best_ratio: float | None = None,
        *,
        spins: bool,
    ) -> tuple[PairedSamples, MachineLoad]:
        """Return the pairs of the quietest try, and how the machine served it.

        Pairs of a busy machine that CPU time decides are not taken again.

        Args:
            baseline: Takes a sample of the baseline.
            tuned: The same of the candidate.
            policy: Numbers of pairs and tries, and what counts as quiet.
            best_ratio: Speed-up of the best candidate so far, see `run_pairs`.
            spins: True if threads spin while they wait, so that CPU time says nothing.
        """
        best = self._once(baseline, tuned, policy, best_ratio, spins=spins)
        tries = 1
        while not _is_decided(*best) and tries < policy.tries and self._pause(tries):
            tries += 1
            found = self._once(baseline, tuned, policy, best_ratio, spins=spins)
            best = max(best, found, key=lambda taken: taken[1].use.given_share)
        return best[0], replace(best[1], tries=tries)

    def _once(
        self,
        baseline: Sampler,
        tuned: Sampler,
        policy: MeasurePolicy,
        best_ratio: float | None,
        *,
        spins: bool,
    ) -> tuple[PairedSamples, MachineLoad]:
        before = self.usage()
        samples = run_pairs(baseline, tuned, policy, best_ratio)
        load = MachineLoad(
            use=self.usage().since(before), threads=policy.threads, least_quiet=policy.least_quiet
        )
        return samples.by_wall_time if spins else samples, load

    def _pause(self, tries: int) -> bool:
        """Wait before another try; return False if that would take more patience than is left."""
        pause_s = FIRST_PAUSE_S * 2 ** (tries - 1)
        if pause_s > self.patience_s:
            return False
        self.patience_s -= pause_s
        self.sleep(pause_s)
        return True


def _is_decided(samples: PairedSamples, load: MachineLoad) -> bool:
    return load.is_quiet or deciding_clock(samples, load) is Clock.CPU
