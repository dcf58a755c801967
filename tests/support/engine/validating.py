"""A machine on which kernels save or cost known times, and models with them."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import onnx

from aoe.errors import RunError, RunTimeoutError
from aoe.execute.messages import ModelPart
from aoe.measurement import MeasurePolicy, Outcome
from aoe.ort.inputs import MADE_UP
from aoe.tasks.operators.chosen_kernel import ChosenKernel
from aoe.validation.candidates import NO_TIMES, ModelTimes
from aoe.validation.comparing import ModelComparer
from aoe.validation.model_validator import ModelValidator, ValidationResult
from aoe.validation.prior_result import PriorResult
from aoe.validation.time_reserve import NO_COSTS, ModelCosts
from support.engine.fakes import ScriptedRunner
from support.engine.tuning import make_kernel

SCREEN = MeasurePolicy(pairs_min=7, pairs_max=7, warmup=0)
FINAL = MeasurePolicy(pairs_min=20, pairs_max=20, warmup=0)


@dataclass
class FakeAssembly:
    """Remembers which kernels each model file holds."""

    contents: dict[str, frozenset[str]] = field(default_factory=dict)
    untuned: ModelPart = field(default_factory=lambda: ModelPart(model=Path("fallback.onnx")))
    imported: ModelPart = field(default_factory=lambda: ModelPart(model=Path("fallback.onnx")))

    def surroundings(self, kernel: ChosenKernel) -> frozenset[str]:
        return frozenset(f"around {name}" for name in kernel.op_names)

    def write_graph(self, name: str) -> ModelPart:
        return self.write_model((), name)

    def replaced_nodes(self, kernel: ChosenKernel) -> dict[str, list[str]]:
        return {f"{name}_{kernel.name}": [name] for name in kernel.op_names}

    def adjacent_nodes(
        self, kernel: ChosenKernel, *, behind_reorders: bool = False
    ) -> list[onnx.NodeProto]:
        return []

    def write_model(self, kernels: Sequence[ChosenKernel], name: str = "model.onnx") -> ModelPart:
        self.contents[name] = frozenset(kernel.source.name for kernel in kernels)
        return ModelPart(model=Path(name), optimize=False)


def _costs_nothing(numbers: frozenset[int]) -> float:
    return 0.0


@dataclass
class Machine:
    """What each kernel does to the time of the model, and which ones are wrong or deadly."""

    assembly: FakeAssembly  # Knows which kernels a model holds
    numbers: dict[str, int]  # Number of a kernel by its name
    saves: Sequence[float]  # Share of the model's time each kernel saves; negative costs time
    wrong: frozenset[int] = frozenset()  # Kernels with which the model computes something else
    deadly: frozenset[int] = frozenset()  # Kernels the worker dies of
    hanging: frozenset[int] = frozenset()  # Kernels that never come to an end
    together: frozenset[int] = frozenset()  # Kernels that are wrong only together
    # Share of the time that kernels cost together, such as reorders between them.
    cost: Callable[[frozenset[int]], float] = _costs_nothing
    placing: float = 0.0  # Standard deviation of what the place of its memory does to a session
    rng: random.Random = field(default_factory=lambda: random.Random(0))  # Source of those places

    def __call__(self, baseline: ModelPart, tuned: ModelPart) -> float | Outcome | RunError:
        held = self._held(tuned)
        if held & self.deadly:
            return RunError("compare_models", "the worker ended with signal 11")
        if held & self.hanging:
            return RunTimeoutError("compare_models", "no answer from the worker")
        if held & self.wrong or (self.together and self.together <= held):
            return Outcome.CORRECTNESS
        ratio = self.time(self._held(baseline)) / self.time(held)
        return ratio * math.exp(self.rng.gauss(0.0, self.placing))

    def time(self, held: frozenset[int]) -> float:
        """Return the true time of the model with some kernels; 1 without any."""
        return 1.0 - sum(self.saves[number] for number in held) + self.cost(held)

    def _held(self, part: ModelPart) -> frozenset[int]:
        names = self.assembly.contents.get(str(part.model), frozenset())
        return frozenset(self.numbers[name] for name in names)


@dataclass
class ValidatedModel:
    """A judge with its kernels and what it said."""

    kernels: list[ChosenKernel]
    validator: ModelValidator
    runner: ScriptedRunner
    assembly: FakeAssembly
    machine: Machine
    comparer: ModelComparer
    steps: list[str] = field(default_factory=list)

    def judged(self, *, kept_share: float | None = None, **prior_result: Any) -> ValidationResult:
        """Judge it; `believed` and `proven` are numbers of kernels.

        Args:
            kept_share: What of their promise all believed ones have kept before, None if not known.
            prior_result: What else is known.
        """
        for name in ("believed", "proven"):
            numbers = prior_result.get(name, ())
            prior_result[name] = frozenset(self.kernels[number].name for number in numbers)
        if kept_share is not None:
            prior_result["kept_share"] = dict.fromkeys(prior_result["believed"], kept_share)
        return self.validator.validate(self.kernels, PriorResult(**prior_result))

    def confirmed(self) -> ValidationResult:
        return self.validator.confirm(self.kernels)

    def numbers(self, kernels: Sequence[ChosenKernel]) -> list[int]:
        return sorted(self.kernels.index(kernel) for kernel in kernels)

    def true_speedup(self, kernels: Sequence[ChosenKernel]) -> float:
        return 1 / self.machine.time(frozenset(self.numbers(kernels)))


def model_of(
    *saves: float,
    promised: Sequence[float] | None = None,
    wrong: Sequence[int] = (),
    deadly: Sequence[int] = (),
    hanging: Sequence[int] = (),
    together: Sequence[int] = (),
    cost: Callable[[frozenset[int]], float] = _costs_nothing,
    jitter: float = 0.0005,
    drift: float = 0.0,
    placing: float = 0.0,
    seed: int = 0,
    screen: MeasurePolicy = SCREEN,
    final: MeasurePolicy = FINAL,
    left_s: float = math.inf,
    costs: ModelCosts = NO_COSTS,
    in_model: Mapping[int, float] | None = None,
    losses: Sequence[int] = (),
    groups: Sequence[Sequence[int]] = (),
    streams: int = 1,
) -> ValidatedModel:
    """Return a model whose kernels save these shares of its time.

    Args:
        saves: What each kernel does in the model.
        promised: What each has proven alone; the same unless given.
        wrong: Kernels that compute something else.
        deadly: Kernels the worker dies of.
        hanging: Kernels that never come to an end.
        together: Kernels that are wrong only together.
        cost: What kernels cost together.
        jitter: Noise of one sample.
        drift: Drift of the machine's load between two samples.
        placing: Noise of one session.
        seed: Of all noise.
        screen: Policy for variants.
        final: Policy for the record.
        left_s: Seconds there are for comparisons, from first to last.
        costs: What they should take.
        in_model: What kernels save by profiles of the model.
        losses: Kernels that lose by these profiles.
        groups: Kernels that stand beside each other.
        streams: Callers at the same time, for each of which kernels save what they promise.
    """
    gains = saves if promised is None else promised
    kernels = [
        replace(_kernel(number), gain_us=1000 * streams * gain) for number, gain in enumerate(gains)
    ]
    assembly = FakeAssembly()
    machine = Machine(
        assembly,
        {kernel.source.name: number for number, kernel in enumerate(kernels)},
        saves,
        wrong=frozenset(wrong),
        deadly=frozenset(deadly),
        hanging=frozenset(hanging),
        together=frozenset(together),
        cost=cost,
        placing=placing,
        rng=random.Random(seed),
    )
    runner = ScriptedRunner(model=machine, jitter=jitter, drift=drift, seed=1000 * seed)
    policies = {"screen": screen, "final": final}
    comparer = ModelComparer(
        assembly,
        runner,  # type: ignore[arg-type]
        **policies,
        inputs=MADE_UP,
        left_s=lambda: left_s,
        costs=costs,
        streams=streams,
    )
    steps: list[str] = []
    times = NO_TIMES
    if in_model or losses or groups:
        names = [kernel.name for kernel in kernels]
        times = ModelTimes(
            saved_us={names[number]: 1000 * saved for number, saved in (in_model or {}).items()},
            losses={names[number]: "its neighbours take longer" for number in losses},
            groups=tuple(tuple(names[number] for number in group) for group in groups),
        )
    validator = ModelValidator(comparer, steps.append, times=times, streams=streams)
    return ValidatedModel(kernels, validator, runner, assembly, machine, comparer, steps)


@cache
def _kernel(number: int) -> ChosenKernel:
    return make_kernel(number)
