"""Whole steps of a training script: what was tuned against PyTorch.

The passes of a graph are compared on copies of its inputs. A step has more: the optimizer, the next
batch, all-reduce. So behind the steps in which graphs are decided, the script's own steps take
turns between PyTorch and what was tuned, and their pairs decide whether that stays.

A step lies between two steps of one optimizer; as long as none has stepped, between two forwards of
a module whose gradients are wanted. Processes of a group need no word of each other: their steps
have the same numbers, and each compares as many.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from statistics import median
from typing import Any, Protocol
from weakref import WeakKeyDictionary, ref

import torch

from aoe.device.registry import default_device
from aoe.errors import AoeError
from aoe.measurement import (
    ACCEPT_COVERAGE,
    CallTime,
    CpuUse,
    MachineLoad,
    MeasurePolicy,
    PairedSamples,
    SpeedupEstimate,
    accepts,
    estimate_speedup,
    measured,
)
from aoe.measurement.pairs import WantedSample, wanted_samples
from aoe.settings import accept_busy, environment
from aoe.torch.modules.training.loops import LoopCompiler
from aoe.torch.modules.training.region_settings import RegionSettings
from aoe.torch.scripts.regions import SETTLED_AFTER, is_in_group

WATCHED_STEPS = 8
"""Optimizer steps after which no further module is looked for: watching costs time in each call."""
SETTLED_STEPS = WATCHED_STEPS + SETTLED_AFTER
"""Steps of a script after which its graphs are as they stay, unless shapes change."""
STEP_POLICY = MeasurePolicy(
    pairs_min=6, pairs_max=12, sample_min_us=0.0, target_half_width=0.02, enough_s=60.0
)
"""Half of these steps are PyTorch's, so they are few: 8 pairs where the interval is narrow then."""
COMPARED_STEPS = 2 * (STEP_POLICY.warmup + STEP_POLICY.pairs_max)
"""Steps of a comparison at most; in a group, always."""
_MOST_OTHERS = 16
"""Steps of other optimizers after which the one that bounds steps is taken to be done with."""


class StepOutcome(StrEnum):
    """Outcome of comparing whole steps."""

    FASTER = "faster"
    SLOWER = "slower"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepGain:
    """Gain of whole steps over PyTorch."""

    estimate: SpeedupEstimate  # Time of a step in PyTorch over that of one as tuned
    eager_ms: float  # Median step of PyTorch
    busy: str = ""  # How a busy machine served the steps, where no clock decides then
    is_known: bool = False  # True if an earlier run has compared them

    @property
    def outcome(self) -> StepOutcome:
        """What the interval says."""
        if self.busy:
            return StepOutcome.UNDECIDED
        if accepts(self.estimate, 1.0):
            return StepOutcome.FASTER
        is_sure = self.estimate.coverage >= ACCEPT_COVERAGE
        is_slower = is_sure and self.estimate.high < 1.0
        return StepOutcome.SLOWER if is_slower else StepOutcome.UNDECIDED

    def __str__(self) -> str:
        found = self.estimate
        digits = 0 if self.eager_ms >= 100 else 2
        text = (
            f"whole steps: {found.median:.2f}x ({found.low:.2f} to {found.high:.2f}, "
            f"{found.pairs} pairs, {self.eager_ms:.{digits}f} ms in PyTorch)"
        )
        if self.is_known:
            text += " in an earlier run"
        if self.outcome is StepOutcome.SLOWER:
            return f"{text}, slower as tuned: everything is PyTorch's again"
        if self.outcome is StepOutcome.UNDECIDED:
            why = f" on a busy machine ({self.busy})" if self.busy else ""
            return f"{text}, undecided{why}: it stays as the passes have decided"
        return text


class KeptGains:
    """Gains of whole steps that earlier runs have found, kept with compiled kernels.

    They are for this processor, compiler, PyTorch and number of threads, as all that is kept there.

    Args:
        settings: Say where that is.
    """

    def __init__(self, settings: RegionSettings) -> None:
        try:
            self._loops: LoopCompiler | None = LoopCompiler(settings)
        except AoeError:  # without a compiler nothing is kept
            self._loops = None

    def find(self, texts: Sequence[str]) -> StepGain | None:
        """Return the gain of steps, given all that tells them from others."""
        if self._loops is None:
            return None
        try:
            found = json.loads(self._loops.verdict(self._loops.digest("steps", *texts)) or "")
            estimate = SpeedupEstimate(**found["estimate"])
            return StepGain(estimate=estimate, eager_ms=found["eager_ms"], is_known=True)
        except (ValueError, KeyError, TypeError):  # nothing, or of another version
            return None

    def keep(self, texts: Sequence[str], gain: StepGain) -> None:
        """Keep the gain of steps."""
        if self._loops is not None:
            document = {"estimate": asdict(gain.estimate), "eager_ms": gain.eager_ms}
            self._loops.keep(self._loops.digest("steps", *texts), json.dumps(document))


class ComparedTraining(Protocol):
    """A training whose steps can be PyTorch's, or as they were tuned."""

    def has_tuned(self) -> bool | None:
        """True if a step is computed otherwise than by PyTorch; None while that is open."""

    def use(self, *, is_tuned: bool) -> None:
        """Compute the next step as tuned, or as PyTorch does it."""

    def known(self) -> StepGain | None:
        """Return the gain of an earlier run, None if none has compared these steps."""

    def decided(self, gain: StepGain) -> None:
        """Take the gain of the steps."""


class WholeSteps:
    """Compares whole steps of a script, which notices nothing of it.

    Attributes:
        gain: What was found; None as long as nothing was compared.
        is_pytorch: True while a step is PyTorch's.
        reason: Why nothing is compared; empty if there is no reason.

    Args:
        training: Whose steps are compared.
        usage: Returns the counters of this process, which time a step.
        policy: Numbers of pairs; in a group as many as it allows.
    """

    def __init__(
        self,
        training: ComparedTraining,
        *,
        usage: Callable[[], CpuUse] | None = None,
        policy: MeasurePolicy = STEP_POLICY,
    ) -> None:
        self.gain: StepGain | None = None
        self.is_pytorch = False
        self.reason = ""
        self._training = training
        self._usage = usage or default_device().usage
        self._policy = policy
        self._least_quiet = 0.0 if accept_busy(environment()) else policy.least_quiet
        self._is_over = False
        self._steps = self._forwards = self._others = 0
        self._counts: WeakKeyDictionary[torch.optim.Optimizer, int] = WeakKeyDictionary()
        self._bound: Callable[[], Any] = lambda: None  # Optimizer, or module, that bounds steps
        self._asking: Generator[WantedSample, float, PairedSamples] | None = None
        self._wanted = WantedSample(is_tuned=True, samples=PairedSamples((), ()))
        self._began = self._spent = CpuUse()

    @property
    def line(self) -> str:
        """Line on it, empty where there is nothing to say."""
        if self.gain is not None:
            return str(self.gain)
        if not self._training.has_tuned():
            return ""
        steps = self._steps or self._forwards
        short = f"the script ended after {steps} steps, and {SETTLED_STEPS} come before them"
        return f"whole steps: not compared, {self.reason or short}"

    def end_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Note that an optimizer has stepped."""
        if self._is_over:
            return
        if not self._steps and self._asking is not None:  # these were parts of a step
            self._drop()
        self._steps += 1
        self._counts[optimizer] = self._counts.get(optimizer, 0) + 1
        if self._asking is None:
            if self._steps >= SETTLED_STEPS and optimizer is self._rarest():
                self._begin(optimizer)
        elif optimizer is self._bound():
            self._others = 0
            self._next()
        else:
            self._others += 1
            if self._others > _MOST_OTHERS:
                self.close()

    def forward(self, module: torch.nn.Module) -> bool:
        """Note a forward with gradients; return whether PyTorch computes it."""
        if self._is_over:
            return False
        if torch._C._autograd._top_saved_tensors_default_hooks(True) is not None:
            # a checkpoint has to compute again as it did before, maybe behind the end of a step
            self.leave("the script has hooks on saved tensors, such as checkpoints")
        elif not self._steps and torch._C._current_graph_task_id() == -1:
            self._count_forward(module)
        return self.is_pytorch

    def close(self) -> None:
        """End the comparison with the pairs there are; a second call does nothing."""
        if self._asking is not None:
            self._conclude(self._wanted.samples)
        self._is_over = True

    def leave(self, reason: str) -> None:
        """Compare nothing, or no further; what was sampled is forgotten."""
        if not self._is_over:
            self._drop()
            self._is_over, self.reason = True, reason

    def _rarest(self) -> torch.optim.Optimizer | None:
        """Return the optimizer that has stepped least often, but more than once.

        Of several that take turns (GANs), its steps hold those of all others.
        """
        found = [one for one, count in self._counts.items() if count > 1]
        return min(found, key=self._counts.__getitem__, default=None)

    def _count_forward(self, module: torch.nn.Module) -> None:
        if not self._forwards:
            self._bound = ref(module)
        elif module is not self._bound():
            return
        self._forwards += 1
        if self._asking is not None:
            self._next()
        elif self._forwards > SETTLED_STEPS:
            self._begin(module)

    def _begin(self, bound: Any) -> None:
        has_tuned, in_group = self._training.has_tuned(), is_in_group()
        if has_tuned is None and not in_group:
            return  # at a later step; in a group steps are compared at the same ones
        if not has_tuned:
            self.leave(f"nothing was decided after {SETTLED_STEPS} steps")
            return
        if (known := self._training.known()) is not None:
            self._is_over, self.gain = True, known
            self._training.decided(known)
            return
        policy = self._policy
        if in_group:
            policy = replace(policy, pairs_min=policy.pairs_max, enough_s=float("inf"))
        self._bound, self._others = ref(bound), 0
        self._began, self._spent = self._usage(), CpuUse()
        self._asking = wanted_samples(policy, clock=lambda: self._began.wall_s)
        self._wanted = next(self._asking)
        self._take_turn()

    def _next(self) -> None:
        """Take the time of the step that ends here, and choose how the next one is computed."""
        assert self._asking is not None
        now = self._usage()
        use = now.since(self._began)
        self._began, self._spent = now, self._spent + use
        wall_us, cpu_us = (max(1.0, seconds * 1e6) for seconds in (use.wall_s, use.cpu_s))
        # several threads spin while they wait: their CPU time says nothing
        is_alone = torch.get_num_threads() == 1
        try:
            self._wanted = self._asking.send(CallTime(wall_us, cpu_us) if is_alone else wall_us)
        except StopIteration as end:
            self._conclude(end.value)
        else:
            self._take_turn()

    def _take_turn(self) -> None:
        if self.is_pytorch == self._wanted.is_tuned:
            self.is_pytorch = not self.is_pytorch
            self._training.use(is_tuned=not self.is_pytorch)

    def _drop(self) -> None:
        """Compute as tuned again; what was sampled is forgotten."""
        self._asking = None
        if self.is_pytorch:
            self.is_pytorch = False
            self._training.use(is_tuned=True)

    def _conclude(self, samples: PairedSamples) -> None:
        self._drop()
        self._is_over = True
        if not samples.tuned_us:
            self.reason = "the script ended before the first pair"
            return
        load = MachineLoad(
            use=self._spent,
            threads=torch.get_num_threads(),
            least_quiet=self._least_quiet,
        )
        found = measured(samples, load)
        self.gain = StepGain(
            estimate=estimate_speedup(found),
            eager_ms=median(samples.baseline_us) / 1e3,
            busy="" if found.counts else found.busy_words,
        )
        self._training.decided(self.gain)
