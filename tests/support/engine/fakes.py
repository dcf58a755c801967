"""Stand-ins for the measuring process and for a user who watches."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from aoe.device.protocol import Device
from aoe.device.registry import default_device
from aoe.device.toolchain import Toolchain
from aoe.errors import RunError
from aoe.execute.accuracy import Deviation
from aoe.execute.messages import CompiledKernels, ModelPart
from aoe.execute.tasks import WHOLE_MODELS, ComparisonTerms, ModelComparison
from aoe.folders.turns import Turns
from aoe.kernels.roofline import MachineRates
from aoe.measurement import (
    CpuUse,
    MachineLoad,
    Measurement,
    MeasurePolicy,
    Outcome,
    RoundingSteps,
    run_pairs,
)
from aoe.measurement.memory import MemoryUse, ModelMemory
from aoe.operators.element_types import LEVELS
from aoe.ort.inputs import ModelInputs
from aoe.ort.optimizers import ALL_OPTIMIZATIONS
from aoe.schedule import Schedule, schedule_from_json
from aoe.target import Target
from aoe.workload import Workload, workload_from_json
from support.engine.fake_runner import FakeRunner

BASELINE_US = 1000.0
RATES = MachineRates(multiply_adds_per_us=1e5, bytes_per_us=1e5)
"""Of the scripted machine: 2 cores with AVX-512."""
MEMORY = ModelMemory(
    baseline=MemoryUse(resident_bytes=100 << 20, peak_bytes=120 << 20),
    tuned=MemoryUse(resident_bytes=105 << 20, peak_bytes=126 << 20),
)
"""Of the sessions of any two models: within what a tuned one may take."""


def make_target(**changes: Any) -> Target:
    """Return a made-up CPU."""
    facts: dict[str, Any] = {
        "soc_version": "x86-64-test",
        "core_num": 2,
        "architecture": "x86-64",
        "features": ("avx2",),
        "cpu_features": ("avx2",),
        "vector_lanes": 8,
        "l1_bytes": 32 << 10,
        "l2_bytes": 1 << 20,
        "cpu_model": "Test CPU",
    }
    return Target(**(facts | changes))


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A task a runner was asked for."""

    task: str
    timeout_s: float
    arguments: Mapping[str, Any]


def always_twice_as_fast(schedule: Schedule) -> float:
    """Script for `ScriptedRunner`: every candidate is correct and 2x as fast as the default."""
    return 2.0


def model_as_before(baseline: ModelPart, tuned: ModelPart) -> float:
    """Script for `ScriptedRunner`: no model is faster than another."""
    return 1.0


def as_before(baseline: ModelPart, tuned: ModelPart, with_nan: bool) -> Deviation:
    """Script for `ScriptedRunner`: unusual inputs show nothing."""
    return Deviation(max_abs_err=0.0, excess=0.0)


ScriptedModel = Callable[[ModelPart, ModelPart], float | Outcome | RunError]


@dataclass
class ScriptedClock:
    """A clock that moves only where a script says so."""

    now_s: float = 0.0  # Its time
    spent_s: dict[str, float] = field(default_factory=dict)  # Seconds by what they were spent on

    def __call__(self) -> float:
        """Return its time."""
        return self.now_s

    def advance(self, what: str, seconds: float) -> None:
        """Move it on."""
        self.now_s += seconds
        self.spent_s[what] = self.spent_s.get(what, 0.0) + seconds


@dataclass(slots=True, kw_only=True)
class ScriptedRunner:
    """A `Runner` without a process: what it measures is true speed plus seeded noise."""

    # True speed-up of a schedule over the default, the outcome it fails with, or the error its
    # measuring dies of.
    candidate: Callable[[Schedule], float | Outcome | RunError] = always_twice_as_fast
    # True speed-up of the second model over the first, or the outcome or error.
    model: ScriptedModel = model_as_before
    # The same with some inputs; None where they make no difference.
    model_at: Callable[[ModelInputs], ScriptedModel | None] = lambda inputs: None
    # How results of two models differ on unusual inputs, with a NaN among them or without, or the
    # error the process dies of.
    unusual: Callable[[ModelPart, ModelPart, bool], Deviation | RunError] = as_before
    # What sessions of two models take.
    memory: Callable[[ModelPart, ModelPart], ModelMemory] = lambda baseline, tuned: MEMORY
    # Time of each node of a model, in us.
    node_us: Callable[[ModelPart], Mapping[str, float]] = lambda part: {}
    # Outputs of a model for one set of inputs, or the error it dies of.
    results: Callable[[ModelPart], Sequence[Any] | RunError] = lambda part: ()
    # True speed-up of the default without what it reorders, likewise.
    formats: Callable[[Workload], float | Outcome | RunError] = lambda workload: 1.0
    # What is wrong with a schedule, empty if nothing is, or the error its check dies of.
    schedule_flaw: Callable[[Schedule], str | RunError] = lambda schedule: ""
    # Of kernels that make integers of 8 bits.
    rounding: RoundingSteps | None = None
    # Error text for a kernel name, empty if it compiles.
    compile_error: Callable[[str], str] = lambda name: ""
    # What kernels are compiled to; the cache that runs share keeps no empty ones.
    object_code: bytes = b""
    seed: int = 0  # Of the noise
    # Optimises graphs and opens sessions for real.
    device: Device = field(default_factory=default_device)
    target: Target = field(default_factory=make_target)  # What is tuned for
    toolchain: Toolchain = field(default_factory=lambda: Toolchain(command=("cc",)))  # Never run
    # Taken by what measures beside it.
    turns: Turns = field(default_factory=lambda: Turns(None, ()))
    jitter: float = 0.002  # Noise of one sample, see `FakeRunner`
    drift: float = 0.02  # Drift of the machine's load between two samples, see `FakeRunner`
    given_share: float = 1.0  # Share of the CPU time asked for that the machine gives
    itself: float = 1.0  # What the machine makes of the same code twice; 1 on a sound one
    calls: list[Call] = field(default_factory=list)  # What was asked for, in order
    restarts: int = 0  # How often a fresh worker was asked for
    closed: bool = False  # True once `close` was called

    def __enter__(self) -> ScriptedRunner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(self, task: str, *, timeout_s: float, **arguments: Any) -> Any:
        """Return the scripted answer; raise it if it is an error."""
        self.calls.append(Call(task=task, timeout_s=timeout_s, arguments=arguments))
        tasks: dict[str, Callable[..., Any]] = {
            "measure_candidates": self._measure_candidates,
            "measure_format": self._measure_format,
            "compare_models": self._compare_models,
            "compare_unusual": self._compare_unusual,
            "run_model": self._run_model,
            "check_schedule": self._check_schedule,
            "compile_kernels": self._compile_kernels,
            "profile_models": lambda models, **_: [self.node_us(part) for part in models],
            "machine_rates": lambda: RATES,
            "right_optimizations": lambda **_: (ALL_OPTIMIZATIONS, ""),
            "compare_itself": lambda policy: self._measured(self.itself, policy, None),
        }
        return tasks[task](**arguments)

    def sibling(self) -> ScriptedRunner:
        """Return a runner with the same scripts that notes its calls here too."""
        return replace(self, restarts=0, closed=False)

    def apart(self) -> None:
        """Return None: it has no cores to leave over."""

    def restart(self, following: int = 0) -> None:
        """Count the request."""
        self.restarts += 1

    def start(self, *, is_apart: bool = False) -> None:
        """Do nothing: there is no process."""

    def await_start(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Remember it."""
        self.closed = True

    def asked(self, task: str) -> list[Call]:
        """Return the calls of one task."""
        return [call for call in self.calls if call.task == task]

    def _measure_candidates(
        self,
        workload: Mapping[str, Any],
        schedules: list[Any],
        policy: MeasurePolicy,
        seed: int,
        best_ratio: float | None,
        bytes_around: int = 0,
        compiled: CompiledKernels | None = None,
        at: Mapping[str, Any] | None = None,
    ) -> list[Measurement]:
        scripted = [self.candidate(schedule_from_json(schedule)) for schedule in schedules]
        for answer in scripted:
            if isinstance(answer, RunError):
                raise answer
        found = [self._measured(answer, policy, best_ratio) for answer in scripted]
        is_level = workload["output"]["dtype"] in LEVELS
        return [replace(one, rounding=self.rounding) for one in found] if is_level else found

    def _measure_format(
        self, workload: Mapping[str, Any], policy: MeasurePolicy, seed: int, bytes_around: int = 0
    ) -> Measurement:
        scripted = self.formats(workload_from_json(workload))
        if isinstance(scripted, RunError):
            raise scripted
        return self._measured(scripted, policy, None)

    def _compare_models(
        self,
        baseline: ModelPart,
        tuned: ModelPart,
        policy: MeasurePolicy,
        inputs: ModelInputs,
        terms: ComparisonTerms = WHOLE_MODELS,
    ) -> ModelComparison:
        elsewhere = [
            self._compare_models(baseline, tuned, point.policy, point.inputs)
            for point in terms.points
        ]
        scripted = (self.model_at(inputs) or self.model)(baseline, tuned)
        if isinstance(scripted, RunError):
            raise scripted
        wrong = isinstance(scripted, Outcome) or not all(
            one.deviation.acceptable for one in elsewhere
        )
        timed = self._measured(1.0 if isinstance(scripted, Outcome) else scripted, policy, None)
        detail = "2 instead of 1 at [0]" if wrong else ""
        return ModelComparison(
            measurement=Measurement(
                outcome=Outcome.CORRECTNESS if wrong else Outcome.CORRECT,
                baseline_us=timed.baseline_us,
                tuned_us=timed.tuned_us,
                detail=detail,
                load=timed.load,
            ),
            deviation=Deviation(max_abs_err=float(wrong), excess=2.0 * wrong, detail=detail),
            memory=self.memory(baseline, tuned),
            elsewhere=tuple(elsewhere),
        )

    def _compare_unusual(
        self,
        baseline: ModelPart,
        tuned: ModelPart,
        inputs: Sequence[ModelInputs],
        most_s: float,
        with_nan: bool = True,
    ) -> Deviation:
        scripted = self.unusual(baseline, tuned, with_nan)
        if isinstance(scripted, RunError):
            raise scripted
        return scripted

    def _run_model(self, part: ModelPart, inputs: ModelInputs) -> list[list[Any]]:
        scripted = self.results(part)
        if isinstance(scripted, RunError):
            raise scripted
        return [list(scripted) for _ in inputs.sets or (None,)]

    def _check_schedule(self, workload: Mapping[str, Any], schedule: Any) -> str:
        found = self.schedule_flaw(schedule_from_json(schedule))
        if isinstance(found, RunError):
            raise found
        return found

    def _compile_kernels(
        self,
        kernels: list[tuple[str, Any, Any]],
        directory: Path,
        at_once: int = 1,
        all_s: float = math.inf,
    ) -> dict[str, str]:
        errors = {name: self.compile_error(name) for name, _, _ in kernels}
        for name, error in errors.items():
            if not error:
                (directory / f"{name}.o").write_bytes(self.object_code)
        return errors

    def _measured(
        self, scripted: float | Outcome | RunError, policy: MeasurePolicy, best: float | None
    ) -> Measurement:
        if isinstance(scripted, Outcome):
            return Measurement.failure(scripted, "scripted")
        assert not isinstance(scripted, RunError)
        self.seed += 1
        fake = FakeRunner(
            rng=random.Random(self.seed),
            baseline_us=BASELINE_US,
            tuned_us=BASELINE_US / scripted,
            jitter=self.jitter,
            drift=self.drift,
            spike_chance=0.0,
        )
        samples = run_pairs(fake.baseline, fake.tuned, policy, best)
        use = CpuUse(wall_s=1.0, cpu_s=self.given_share, waited_s=1 - self.given_share)
        return Measurement(
            outcome=Outcome.CORRECT,
            baseline_us=samples.baseline_us,
            tuned_us=samples.tuned_us,
            load=MachineLoad(use=use, threads=policy.threads, least_quiet=policy.least_quiet),
        )


class RecordingProgress:
    """Remembers what a run told its user.

    Attributes:
        events: (kind, text) in order; kinds are the names of the methods.
    """

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []

    def step(self, text: str) -> None:
        """Remember a step."""
        self.events.append(("step", text))

    def detail(self, text: str) -> None:
        """Remember a detail."""
        self.events.append(("detail", text))

    def plan(self, operators: int) -> None:
        """Remember the number of operators."""
        self.events.append(("plan", str(operators)))

    def trial(self, op_name: str, done: int, budget: int, best: float | None) -> None:
        """Remember the trials of an operator."""
        self.events.append(("trial", f"{op_name} {done}/{budget}"))

    def operator(self, op_name: str, text: str) -> None:
        """Remember an operator that is done."""
        self.events.append(("operator", f"{op_name}: {text}"))

    def warn(self, text: str) -> None:
        """Remember a warning."""
        self.events.append(("warn", text))

    def texts(self, kind: str) -> list[str]:
        """Return the texts of one kind."""
        return [text for known, text in self.events if known == kind]
