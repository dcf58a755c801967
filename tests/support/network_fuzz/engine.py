"""The engine with one drawn candidate for each operator: compiled, run and compared for real.

Nothing is timed. How fast a candidate is, and that a model gains by every kernel in it, is drawn,
so that what a run keeps depends on its seed alone.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from aoe.device.protocol import Device
from aoe.device.toolchain import Toolchain
from aoe.errors import RunError
from aoe.execute.messages import ModelPart
from aoe.execute.runner import Runner
from aoe.execute.tasks import ModelComparison
from aoe.measurement import Measurement, Outcome
from aoe.schedule import Choice, Space
from aoe.target import Target
from aoe.tuner.parts import EngineParts
from aoe.tuner.policies import single_run_policy
from aoe.tuner.search.protocol import Search
from aoe.tuner.search.random_search import RandomSearch
from support.engine.fakes import RATES
from support.engine.scripted_runs import evenly_profiled
from support.engine.subgraphs import kernels
from support.engine.tuning import make_measurement

GUESSED_SHARE = 0.25
"""Of the operators that get the first guess of their family."""
_SPEEDS = (0.8, 1.2, 1.5, 2.0, 3.0, 4.0)
"""Of candidates; one that loses is taken apart, where it is of several operators."""
_BY_KERNEL = 1.1
"""What each kernel makes of its model."""
_OPERATOR_US, _MODEL_US = 1.0, 1000.0
"""Times of what is untuned: operators promise their model little, which holds more."""
_SAMPLES = 20
_RUNS_OF_A_WORKER = 20


class KeptRunner(Runner):
    """A runner that outlives the runs it is made for: a start takes two seconds."""

    def restart(self, following: int = 0) -> None:
        """Do nothing: another process would tell the same, as nothing is timed."""

    def apart(self) -> None:
        """Return None: no cores are kept for measuring."""

    def close(self) -> None:
        """Do nothing; see `finish`."""

    def finish(self) -> None:
        """End the worker and remove its files."""
        super().close()


class DrawnRunner(KeptRunner):
    """Does what a measuring process does, but for the time it takes.

    Args:
        runs: Is told what was wrong, and says what is drawn.
        device: As for `Runner`, and so the next two.
        target: What to compile for.
        toolchain: C compiler.
    """

    def __init__(
        self, runs: DrawnRuns, device: Device, target: Target, toolchain: Toolchain
    ) -> None:
        super().__init__(device, target, toolchain)
        self._runs = runs
        self._compiler = KeptRunner(device, target, toolchain)
        self._measured: dict[str, list[Measurement]] = {}
        self._compared: dict[str, ModelComparison] = {}
        self._runs_done = 0

    def forget(self) -> None:
        """Forget what was measured; now and then a worker with fewer libraries goes on."""
        self._measured.clear()
        self._compared.clear()
        self._runs_done += 1
        if self._runs_done % _RUNS_OF_A_WORKER == 0:
            Runner.restart(self)

    def sibling(self) -> KeptRunner:
        """Return the one that compiles."""
        return self._compiler

    def finish(self) -> None:
        """End both workers."""
        self._compiler.finish()
        super().finish()

    def call(self, task: str, *, timeout_s: float, **arguments: Any) -> Any:
        """Run a task; those that would time something have drawn times."""
        if task == "machine_rates":
            return RATES
        if task == "measure_format":
            return make_measurement(1.0)
        try:
            if task == "measure_candidates":
                return self._candidates(timeout_s, arguments)
            if task == "compare_models":
                return self._comparison(timeout_s, arguments)
            found = super().call(task, timeout_s=timeout_s, **arguments)
            if task == "compare_unusual" and not found.acceptable:
                self._runs.flaws.append(f"model in a run, {found.detail}")
            return found
        except RunError as error:
            self._runs.flaws.append(f"{task}: {error}")
            raise

    def _candidates(self, timeout_s: float, arguments: Mapping[str, Any]) -> list[Measurement]:
        key = repr((arguments["workload"], arguments["schedules"]))
        if key not in self._measured:
            untimed = {"policy": self._once(), "best_ratio": None, "bytes_around": 0}
            found = super().call(
                "measure_candidates", timeout_s=timeout_s, **{**arguments, **untimed}
            )
            wrong = [one for one in found if not one.is_correct]
            self._runs.flaws.extend(f"{one.outcome.value}, {one.detail}: {key}" for one in wrong)
            speed = random.Random(f"{self._runs.seed} {key}").choice(_SPEEDS)
            timed = _timed(_OPERATOR_US, speed)
            self._measured[key] = [timed if one.is_correct else one for one in found]
        return self._measured[key]

    def _comparison(self, timeout_s: float, arguments: Mapping[str, Any]) -> ModelComparison:
        parts: tuple[ModelPart, ModelPart] = (arguments["baseline"], arguments["tuned"])
        key = "".join(hashlib.sha256(part.model.read_bytes()).hexdigest() for part in parts)
        if key not in self._compared:
            found: ModelComparison = super().call(
                "compare_models", timeout_s=timeout_s, **{**arguments, "policy": self._once()}
            )
            if not found.deviation.acceptable:
                self._runs.flaws.append(f"model in a run: {found.deviation.detail}")
            before, after = (kernels(part.model) for part in parts)
            timed = replace(
                _timed(_MODEL_US, _BY_KERNEL ** (after - before)),
                outcome=found.measurement.outcome,
                detail=found.measurement.detail,
            )
            self._compared[key] = replace(found, measurement=timed)
        return self._compared[key]

    def _once(self) -> Any:
        return single_run_policy(self.target.core_num)


class DrawnRuns:
    """The runners of all runs in this process; they are kept for the next one.

    Attributes:
        seed: Of what is drawn.
        flaws: What was wrong with candidates and models since `begin`.
    """

    def __init__(self) -> None:
        self.seed = 0
        self.flaws: list[str] = []
        self._made: dict[int, DrawnRunner] = {}

    @property
    def engine(self) -> EngineParts:
        """The engine of these runs."""
        return EngineParts(
            check_toolchain=lambda *_: None,
            open_runner=self._open_runner,
            profile_model=evenly_profiled,
        )

    def _open_runner(
        self, device: Device, target: Target, toolchain: Toolchain, *_: object
    ) -> DrawnRunner:
        if target.core_num not in self._made:
            self._made[target.core_num] = DrawnRunner(self, device, target, toolchain)
        return self._made[target.core_num]

    def begin(self, seed: int) -> None:
        """Forget what was found; what follows is of this seed."""
        self.seed, self.flaws = seed, []
        for runner in self._made.values():
            runner.forget()

    def finish(self) -> None:
        """End all workers."""
        for runner in self._made.values():
            runner.finish()


@contextmanager
def drawn_engine() -> Iterator[DrawnRuns]:
    """Let every run in this process try one drawn candidate for each operator, however small."""
    runs = DrawnRuns()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("aoe.tasks.operators.operators._LEAST_ELEMENTS", 0)
        patch.setattr("aoe.tuner.task_search.make_search", _drawn_search)
        try:
            yield runs
        finally:
            runs.finish()


def _drawn_search(
    name: str,
    space: Space,
    *,
    budget: int,
    seed: int = 0,
    warm_starts: Iterable[Mapping[str, Choice]] = (),
) -> Search:
    """Return a search that proposes any legal configuration first, sometimes a first guess."""
    rng = random.Random(f"{seed} {space.knobs}")
    if rng.random() >= GUESSED_SHARE:
        drawn = next(replace(space, first_guesses=()).draw(rng), None)
        space = replace(space, first_guesses=(drawn,)) if drawn is not None else space
    return RandomSearch(space, budget=budget, seed=seed)


def _timed(baseline_us: float, speed: float) -> Measurement:
    return Measurement(
        outcome=Outcome.CORRECT,
        baseline_us=(baseline_us,) * _SAMPLES,
        tuned_us=(baseline_us / speed,) * _SAMPLES,
    )
