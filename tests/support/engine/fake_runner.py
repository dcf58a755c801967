"""A machine that measures without running anything: true times, and noise from a seed."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field


@dataclass(slots=True, kw_only=True)
class FakeRunner:
    """Baseline and candidate of known speed on a noisy, drifting machine.

    A sample is the true time, times the load of the machine (a random walk both sides share),
    times a little jitter of its own, times `spike` now and then, as when something preempts it.
    """

    rng: random.Random  # Source of all noise
    baseline_us: float  # True time of the baseline
    tuned_us: float  # True time of the candidate
    jitter: float = 0.01  # Standard deviation of the log of the noise of one sample
    drift: float = 0.02  # Standard deviation of the log of the load's step between two samples
    spike_chance: float = 0.02  # Chance of a sample to be hit by a spike
    spike: float = 3.0  # Factor of a spike
    # Which side ran, in order: "A" the baseline, "B" the candidate.
    calls: list[str] = field(default_factory=list)
    _load: float = 1.0

    def baseline(self) -> float:
        """Return one sample of the baseline in us."""
        self.calls.append("A")
        return self._sample(self.baseline_us)

    def tuned(self) -> float:
        """Return one sample of the candidate in us."""
        self.calls.append("B")
        return self._sample(self.tuned_us)

    def _sample(self, true_us: float) -> float:
        self._load = max(1.0, self._load * math.exp(self.rng.gauss(0.0, self.drift)))
        spike = self.spike if self.rng.random() < self.spike_chance else 1.0
        return true_us * self._load * spike * math.exp(self.rng.gauss(0.0, self.jitter))
