"""An operator as a search task: its schedules, and how they are compiled and measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from aoe.device.compiler import KernelSource
from aoe.errors import RunError, TurnTimeoutError
from aoe.execute.compiling import KernelCompilers
from aoe.execute.messages import CompiledKernels, TaskRunner, failure_of
from aoe.kernels.algorithms import allowed_space
from aoe.kernels.family import KernelFamily, KernelTarget
from aoe.kernels.formats import layout_moves
from aoe.kernels.roofline import kept_bytes
from aoe.measurement import Measurement, MeasurePolicy
from aoe.schedule import Configuration, Schedule, Space, schedule_to_json
from aoe.tuner.search.protocol import Trial
from aoe.tuner.task_search import SearchSettings, TrialRecord
from aoe.workload import Workload, workload_to_json

_AS_FAST = 0.95
"""Share of the best speed that is enough for a kernel that keeps smaller weights: a model has
dozens of them, and candidates are told apart by a few percent only."""
_LEAST_SPARED_BYTES = 1 << 20
"""Fewer are not worth that."""
_HOPELESS = ((4, 0.7), (8, 0.88))
"""(trials, speed-up): a workload whose first guesses are so far behind the default will not be won
by tuning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorTask:
    """One workload to be searched; see `SearchTask`."""

    runner: TaskRunner  # Measures candidates
    family: KernelFamily  # Kernel family of the workload
    workload: Workload  # What to compute
    kernel_target: KernelTarget  # What the family wants to know of the hardware
    settings: SearchSettings  # Method, budget, policies
    bytes_around: int = 0  # What one inference of the model reads and writes besides
    # Compile candidates; without them the measuring worker does.
    compilers: KernelCompilers | None = None
    # Knobs that are tried before the guesses of the family, if they are legal.
    first: Configuration | None = None

    def space(self) -> Space | None:
        """Return the schedules that may be chosen, as configurations."""
        found = allowed_space(self.family, self.workload, self.kernel_target)
        if found is None or self.first is None or not found.is_legal(self.first):
            return found
        others = (guess for guess in found.first_guesses if guess != self.first)
        return replace(found, first_guesses=(self.first, *others))

    def answer(self, configuration: Configuration) -> Schedule:
        """Return the schedule a configuration stands for."""
        return self.family.schedule(self.workload, configuration, self.kernel_target)

    def known(self, answer: Schedule, trials: Sequence[TrialRecord]) -> Trial | None:
        """Return None: every schedule is measured."""
        return None

    def prepare(self, answers: Sequence[Schedule]) -> None:
        """Have kernels compiled beside the measuring worker, where there are cores for that."""
        if self.compilers is not None and self.compilers.is_beside:
            self.compilers.prepare(sources_of(self, answers))

    def measure(
        self, answers: Sequence[Schedule], policy: MeasurePolicy, best: float | None
    ) -> list[Measurement]:
        """Return the speed of schedules; see `measure_schedules`."""
        return measure_schedules(self, answers, policy, best)

    def chosen(self, good: Sequence[TrialRecord]) -> TrialRecord:
        """Return the fastest candidate, or one nearly as fast that keeps far smaller weights.

        Transformed weights are up to four times as large, and a session keeps those of all its
        kernels.
        """
        fastest = max(good, key=lambda trial: trial.measurement.speedup)
        enough = max(_AS_FAST * fastest.measurement.speedup, 1 / _AS_FAST)
        kept = {id(trial): self._kept_bytes(trial) for trial in good}
        lighter = [
            trial
            for trial in good
            if trial.measurement.speedup >= enough
            and kept[id(trial)] <= kept[id(fastest)] - _LEAST_SPARED_BYTES
        ]
        if not lighter:
            return fastest
        return min(lighter, key=lambda trial: (kept[id(trial)], -trial.measurement.speedup))

    def is_hopeless(self, trials: Sequence[TrialRecord]) -> bool:
        """True if the first guesses are too far behind the default."""
        good = [one.measurement for one in trials if one.measurement.is_correct]
        best = max((one.speedup for one in good), default=0.0)
        # a busy machine makes any candidate look slow
        known = len(trials) - sum(not one.counts for one in good)
        return any(known >= count and best < speedup for count, speedup in _HOPELESS)

    def _kept_bytes(self, trial: TrialRecord) -> float:
        return kept_bytes(self.workload, self.answer(trial.configuration).algorithm)


def measure_schedules(
    task: OperatorTask,
    schedules: Sequence[Schedule],
    policy: MeasurePolicy,
    best: float | None = None,
    at: Workload | None = None,
) -> list[Measurement]:
    """Measure schedules, in one call or, where that call dies, one by one.

    A crash or a time-out costs the candidate, never the run.

    Args:
        task: Whose schedules they are.
        schedules: The candidates.
        policy: Of their pairs.
        best: Best speed-up so far.
        at: The workload in the shapes to measure kernels of open axes in, None for its own.

    Raises:
        TurnTimeoutError: the time of the run was over before the cores were free.
    """
    settings = task.settings
    try:
        found: list[Measurement] = task.runner.call(
            "measure_candidates",
            timeout_s=settings.call_timeout_s + settings.candidate_timeout_s * len(schedules),
            workload=workload_to_json(task.workload),
            schedules=[schedule_to_json(schedule) for schedule in schedules],
            policy=policy,
            seed=settings.seed,
            best_ratio=best,
            bytes_around=task.bytes_around,
            compiled=_compiled(task, schedules),
            **({"at": workload_to_json(at)} if at is not None else {}),
        )
        return found
    except TurnTimeoutError:
        raise
    except RunError as error:
        if len(schedules) > 1:
            return [measure_schedules(task, [s], policy, best, at)[0] for s in schedules]
        return [failure_of(error)]


def format_speedup(task: OperatorTask, policy: MeasurePolicy) -> float | None:
    """Return the default's speed-up where nothing is reordered in it.

    None where there is no such choice, or it cannot be measured, as on a busy machine.
    """
    if not layout_moves(task.workload):
        return None
    try:
        found: Measurement = task.runner.call(
            "measure_format",
            timeout_s=task.settings.call_timeout_s,
            workload=workload_to_json(task.workload),
            policy=policy,
            seed=task.settings.seed,
            bytes_around=task.bytes_around,
        )
    except RunError:
        return None
    return found.speedup if found.is_correct and found.counts else None


def _compiled(task: OperatorTask, schedules: Sequence[Schedule]) -> CompiledKernels | None:
    if task.compilers is None:
        return None
    return task.compilers.compiled(sources_of(task, schedules))


def sources_of(task: OperatorTask, schedules: Sequence[Schedule]) -> tuple[KernelSource, ...]:
    """Return the kernels of schedules, of which some may coincide."""
    every = (KernelSource.of(task.workload, schedule) for schedule in schedules)
    sources = {source.name: source for source in every}
    return tuple(sources.values())
