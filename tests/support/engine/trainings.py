"""A training run that computes its times."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from aoe.gradients.compression import Compression
from aoe.gradients.cost import AllReduceCost, CostSample
from aoe.gradients.segmentation import Segmentation, finish_us, from_bucket_caps
from aoe.gradients.timeline import Timeline, simulate
from aoe.gradients.trace import GradientTrace, model_hash
from aoe.gradients.training import Training
from aoe.measurement import CpuUse, MachineLoad
from aoe.runs.run import tune_with
from aoe.tasks.gradients.racing import RACE_STEPS
from aoe.tuner.mode import JobType, TuneSettings
from aoe.tuner.progress import SilentProgress

MIB = 1 << 20
SIZES = (4 * MIB, MIB, 6 * MIB, 2 * MIB, 12 * MIB, MIB // 2, 8 * MIB, 3 * MIB)
SLOW = AllReduceCost(latency_us=300.0, us_per_byte=1e-3)
T = TypeVar("T")


class FakeTraining:
    """Steps take as long as the cost model says; nothing is random."""

    def __init__(
        self,
        cost: AllReduceCost = SLOW,
        *,
        world_size: int = 4,
        fits: bool = True,
        real_timeline: bool = False,
    ) -> None:
        count = len(SIZES)
        self.trace = GradientTrace(
            sizes_bytes=SIZES,
            dtypes=("float32",) * count,
            names=tuple(f"layer{place}" for place in range(count)),
            ready_us=tuple(4000.0 * place for place in range(1, count + 1)),
            loops=8,
        )
        self.cost = cost
        self.world_size, self.backend, self.is_first = world_size, "gloo", True
        self.default = from_bucket_caps(SIZES)
        self.default_name = "DDP"
        self.model_name, self.soc_version = "Net", "host"
        self.versions = {"torch": "2"}
        self.machine: dict[str, str | int] = {"soc_version": "host", "torch": "2"}
        self.sizes_bytes = tuple(reversed(SIZES))
        self.model_hash = model_hash(("float32",) * count, self.sizes_bytes)
        self.steps = 0
        self.fits = fits
        self.real_timeline = real_timeline
        self.raced: list[Segmentation | None] = []  # a member for each sample
        self.confirmed: list[Segmentation | None] = []
        self.applied: list[Segmentation | None] = []
        self.recorded = 0
        self.penalty = 1.0
        self.compression: Compression | None = None
        self.gain, self.deviation_found, self.trouble = 1.0, 0.002, ""
        self.left = 0
        self.batch = 1.0  # factor on the time of backward and of everything after it
        self.probes = 0
        self.given = 1.0  # share of the CPU time asked for

    @property
    def candidates(self) -> list[Segmentation]:
        """Return what was measured against the default, in order, once each."""
        return [one for one in dict.fromkeys(self.raced) if one not in (None, self.default)]

    def is_default(self, segmentation: Segmentation) -> bool:
        """Compare with the default."""
        return segmentation == self.default

    def look_at_default(self) -> None:
        """Know it already."""

    def order_by(self, trace: GradientTrace) -> bool:
        """Say whether the trace fits."""
        return self.fits

    def record(self, loops: int) -> GradientTrace:
        """Return the trace."""
        self.steps += loops
        self.recorded += 1
        return replace(self.trace, loops=loops)

    def cost_samples(self, *, briefly: bool = False) -> tuple[CostSample, ...]:
        """Sample the line."""
        self.probes += briefly
        return tuple(CostSample(size, self.cost.cost_us(size)) for size in (4096, MIB, 16 * MIB))

    def sample_us(self, segmentation: Segmentation | None, steps: int) -> float:
        """Return an exact time."""
        (self.raced if steps == RACE_STEPS else self.confirmed).append(segmentation)
        self.steps += steps
        return self._true_us(segmentation)

    def step_us(self, steps: int) -> float:
        """Return the exact time of what is in use."""
        self.steps += steps
        return self._true_us(self.applied[-1] if self.applied else None)

    def _true_us(self, segmentation: Segmentation | None) -> float:
        step_us = finish_us(self.trace, segmentation or self.default, self.cost) * self.batch
        return step_us if segmentation is None else step_us * self.penalty

    def timeline(self, segmentation: Segmentation | None) -> Timeline | None:
        """Return what a clock would have seen, if there is one."""
        if not self.real_timeline:
            return None
        return simulate(self.trace, segmentation or self.default, self.cost)

    def apply(self, segmentation: Segmentation | None) -> None:
        """Remember."""
        self.applied.append(segmentation)

    def compressed(self, compression: Compression, base: Segmentation | None) -> FakeTraining:
        """Return the training whose steps take another time."""
        other = copy(self)
        other.compression, other.default = compression, base or self.default
        other.penalty = self.gain
        other.model_hash = self.model_hash + 1
        other.raced, other.confirmed, other.applied = [], [], []
        self.other = other
        return other

    def problem(self) -> str | None:
        """Return the trouble there is."""
        return self.trouble or None

    def deviation(self) -> float:
        """Return what was set."""
        self.steps += 2
        return self.deviation_found

    def leave_alone(self) -> None:
        """Remember."""
        self.left += 1

    def usage(self) -> CpuUse:
        """Return no counters."""
        return CpuUse()

    def load_since(self, before: CpuUse) -> MachineLoad:
        """Return what was set."""
        return MachineLoad(use=CpuUse(wall_s=1.0, cpu_s=self.given, waited_s=1.0 - self.given))

    def from_first(self, value: Any) -> Any:
        """Be alone."""
        return value

    def agree(self, error: Exception | None) -> None:
        """Raise."""
        if error is not None:
            raise error


def tuned_into(folder: Path, training: FakeTraining) -> FakeTraining:
    """Tune a training with the bank in a folder; return it."""
    settings = TuneSettings(
        model=FakeProgram(training), job_types=(JobType.GDAT,), output=folder / "out"
    )
    tune_with(
        settings,
        env={"TUNE_BANK_PATH": str(folder)},
        cwd=folder,
        progress=SilentProgress(),
        now=datetime(2026, 1, 2, tzinfo=UTC),
    )
    return training


class FakeProgram:
    """A program that trains once and ends with a code of its own."""

    name = "train.py"

    def __init__(self, training: FakeTraining, code: int = 0) -> None:
        self._training, self._code = training, code

    def run(self, tune: Callable[[Training], T]) -> tuple[T, int]:
        """Train."""
        return tune(self._training), self._code
