"""Four worker processes with simulated devices: who measures, who does not, and who is gone."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.engine.families import chain_workload, schedules_of
from support.engine.farms import POLICY, SimulatedFarm, simulated_farm, speed_of

from aoe.device.compiler import KernelSource
from aoe.errors import RunError
from aoe.execute.compiling import KernelCompilers
from aoe.execute.workers.farm import (
    JOBS_BETWEEN_CALIBRATIONS,
    Farm,
    FarmClosed,
    Post,
    WorkerLostError,
)
from aoe.execute.workers.seat import SeatAtWorker
from aoe.schedule import schedule_to_json
from aoe.testing.fakes import ScriptedRunner, make_target
from aoe.workload import workload_to_json

_EXP = chain_workload(("Exp",))
_SCHEDULES = schedules_of(_EXP, make_target(), 3)
_MEASURE = {
    "workload": workload_to_json(_EXP),
    "policy": POLICY,
    "seed": 0,
    "best_ratio": None,
    "timeout_s": 30.0,
}


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimulatedFarm]:
    """Return a sound worker, one of another machine, one with an old library, one that drifts."""
    names = ("good", "other", "old", "slowing")
    with simulated_farm(tmp_path_factory.mktemp("farm"), names) as farm:
        yield farm


@pytest.fixture
def seat(four: SimulatedFarm) -> Iterator[SeatAtWorker]:
    """Return a seat at the sound worker."""
    made = _seat(four.farm)
    made.take()
    yield made
    made.leave()


def _seat(farm: Farm, told: list[str] | None = None) -> SeatAtWorker:
    from contextlib import nullcontext

    return SeatAtWorker(
        farm,
        ScriptedRunner(candidate=speed_of),
        released=nullcontext,
        told=(told if told is not None else []).append,
    )


def _post(farm: SimulatedFarm, name: str) -> Post:
    (found,) = (post for post in farm.farm.measuring() if post.announced.name == name)
    return found


@pytest.mark.slow
def test_each_has_its_part_by_what_it_announces(four: SimulatedFarm) -> None:
    assert [post.announced.name for post in four.farm.measuring()] == ["good", "slowing"]
    assert [post.announced.name for post in four.farm.compiling()] == ["other"]
    (refused,) = [text for text in four.warnings if "refused" in text]
    assert refused.startswith("worker old (tcp://127.0.0.1:")
    assert refused.endswith("is refused: onnxruntime 1.29.0 instead of 1.30.0")


def test_ratio_is_the_same_on_a_worker_and_here(four: SimulatedFarm, seat: SeatAtWorker) -> None:
    schedules = [schedule_to_json(schedule) for schedule in _SCHEDULES]
    found = seat.call("measure_candidates", schedules=schedules, **_MEASURE)
    assert [one.speedup for one in found] == pytest.approx(
        [speed_of(schedule) for schedule in _SCHEDULES], rel=0.02
    )
    assert "measure_candidates" not in four.tasks("other") + four.tasks("old")


def test_kernels_compiled_elsewhere_reach_the_worker_that_measures(
    four: SimulatedFarm, seat: SeatAtWorker
) -> None:
    compilers = KernelCompilers(seat)
    sources = [
        KernelSource(name=f"k{number}", workload=_EXP, schedule=schedule)
        for number, schedule in enumerate(_SCHEDULES)
    ]
    compiled = compilers.compiled(sources)
    assert compiled.errors == {"k0": "", "k1": "", "k2": ""}
    assert "compile_kernels" in four.tasks("other")
    schedules = [schedule_to_json(schedule) for schedule in _SCHEDULES]
    # the simulated runner fails where an object is missing
    assert seat.call("measure_candidates", schedules=schedules, compiled=compiled, **_MEASURE)
    compilers.close()


def test_worker_that_drifts_is_set_aside_and_that_is_said(four: SimulatedFarm) -> None:
    post = _post(four, "slowing")
    four.farm.calibrate(post)
    four.farm.calibrate(post)  # not due
    assert four.tasks("slowing").count("compare_itself") == 1
    post.done = JOBS_BETWEEN_CALIBRATIONS
    four.farm.calibrate(post)
    assert post not in four.farm.measuring()
    (said,) = [text for text in four.warnings if "worker slowing" in text]
    assert "is set aside: the same code twice reads 1.2" in said


def test_failure_on_a_worker_is_a_failure_here(four: SimulatedFarm, seat: SeatAtWorker) -> None:
    with pytest.raises(RunError, match="KeyError"):
        four.farm.call(four.farm.measuring()[0], "no_such_task", timeout_s=5.0)


# ---- workers that go ----


@pytest.mark.slow
def test_killed_worker_loses_what_it_was_doing_and_others_do_it_again(tmp_path: Path) -> None:
    with simulated_farm(tmp_path, ("mortal", "zgood")) as farm:
        seat, told = _seat(farm.farm), list[str]()
        seat.take()  # the first by name
        assert farm.tasks("mortal") == ["compare_itself"]
        schedules = [schedule_to_json(_SCHEDULES[0])]
        (found,) = seat.call("measure_candidates", schedules=schedules, **_MEASURE)
        assert found.speedup == pytest.approx(speed_of(_SCHEDULES[0]), rel=0.02)
        assert farm.tasks("zgood")[-1] == "measure_candidates"
        assert [text.split(" (")[0] for text in farm.warnings] == ["worker mortal"]
        assert not told

        os.kill(_post(farm, "zgood").announced.pid, signal.SIGKILL)
        alone = _seat(farm.farm, told)
        alone.take()  # its calibration finds out
        assert alone.call("measure_candidates", schedules=schedules, **_MEASURE)
        assert told == ["no worker is left to measure on; this machine goes on alone"]


@pytest.mark.slow
def test_task_that_takes_two_workers_with_it_is_a_failed_one(tmp_path: Path) -> None:
    with simulated_farm(tmp_path, ("mortal1", "mortal2", "zgood")) as farm:
        seat = _seat(farm.farm)
        seat.take()
        schedules = [schedule_to_json(_SCHEDULES[0])]
        with pytest.raises(RunError, match=r"lost with worker mortal1 .* and worker mortal2"):
            seat.call("measure_candidates", schedules=schedules, **_MEASURE)
        assert [post.announced.name for post in farm.farm.measuring()] == ["zgood"]
        assert seat.call("measure_candidates", schedules=schedules, **_MEASURE)


@pytest.mark.slow
def test_worker_that_is_gone_is_missed_and_one_that_comes_is_used(tmp_path: Path) -> None:
    from aoe.execute.workers.local import started_workers

    with simulated_farm(tmp_path, ("good1",)) as farm:
        (post,) = farm.farm.measuring()
        os.kill(post.announced.pid, signal.SIGKILL)
        _wait(lambda: not farm.client.nthreads())
        farm.farm.refresh()
        assert farm.farm.measuring() == []
        with started_workers(farm.client.scheduler.address, 1, lambda _: "good2"):
            _wait(lambda: bool(farm.client.nthreads()))
            farm.farm.refresh()
            assert [post.announced.name for post in farm.farm.measuring()] == ["good2"]


@pytest.mark.slow
def test_run_that_ends_waits_for_nobody_and_a_lost_worker_is_told_from_a_failed_task(
    tmp_path: Path,
) -> None:
    with simulated_farm(tmp_path, ("good",)) as farm:
        (post,) = farm.farm.measuring()
        os.kill(post.announced.pid, signal.SIGKILL)
        with pytest.raises(WorkerLostError):
            farm.farm.call(post, "compare_itself", timeout_s=5.0, policy=POLICY)
        seat = _seat(farm.farm)
        farm.farm.stop()
        with pytest.raises(FarmClosed):
            seat.call("measure_candidates", schedules=[], **_MEASURE)


def _wait(condition: object) -> None:
    deadline = time.monotonic() + 30
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.05)
