"""Four worker processes with simulated devices: who measures, who does not, and who is gone."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from support.engine.fakes import ScriptedRunner, make_target
from support.engine.families import chain_workload, schedules_of
from support.engine.models import matmul_net, save_model
from support.engine.remote_pools import POLICY, SimulatedPool, simulated_pool, speed_of
from support.engine.tuning import make_measurement

from aoe.device.compiler import KernelSource
from aoe.device.registry import default_device
from aoe.errors import RunError
from aoe.execute.compiling import KernelCompilers
from aoe.execute.messages import ModelPart
from aoe.execute.tasks import ComparisonTerms
from aoe.execute.workers.announcement import Announcement, WorkerPart
from aoe.execute.workers.local import connected, local_scheduler
from aoe.execute.workers.measure_pool import RemoteRunner
from aoe.execute.workers.remote_pool import (
    JOBS_BETWEEN_CALIBRATIONS,
    RemotePool,
    RemotePoolClosed,
    WorkerLostError,
    WorkerSlot,
    drift_of,
)
from aoe.graph.weights import WeightStore
from aoe.measurement import CpuUse, MachineLoad, Measurement, Outcome
from aoe.ort.inputs import ModelInputs
from aoe.schedule import schedule_to_json
from aoe.tasks.rewrites.measuring import write_segment
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
def four(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimulatedPool]:
    """Return a sound worker, one of another machine, one with an old library, one that drifts."""
    names = ("good", "other", "old", "slowing")
    with simulated_pool(tmp_path_factory.mktemp("farm"), names) as remote_pool:
        yield remote_pool


@pytest.fixture
def remote_runner(four: SimulatedPool) -> Iterator[RemoteRunner]:
    """Return a seat at the sound worker."""
    made = _remote_runner(four.remote_pool)
    made.take()
    yield made
    made.leave()


def _remote_runner(remote_pool: RemotePool, told: list[str] | None = None) -> RemoteRunner:
    from contextlib import nullcontext

    return RemoteRunner(
        remote_pool,
        ScriptedRunner(candidate=speed_of),
        released=nullcontext,
        told=(told if told is not None else []).append,
    )


def _slot(remote_pool: SimulatedPool, name: str) -> WorkerSlot:
    (found,) = (slot for slot in remote_pool.remote_pool.measuring() if slot.announced.name == name)
    return found


@pytest.mark.slow
def test_each_has_its_part_by_what_it_announces(four: SimulatedPool) -> None:
    assert [slot.announced.name for slot in four.remote_pool.measuring()] == ["good", "slowing"]
    assert [slot.announced.name for slot in four.remote_pool.compiling()] == ["other"]
    (refused,) = [text for text in four.warnings if "refused" in text]
    assert refused.startswith("worker old (tcp://127.0.0.1:")
    assert refused.endswith("is refused: onnxruntime 1.29.0 instead of 1.30.0")


def test_ratio_is_the_same_on_a_worker_and_here(
    four: SimulatedPool, remote_runner: RemoteRunner
) -> None:
    schedules = [schedule_to_json(schedule) for schedule in _SCHEDULES]
    found = remote_runner.call("measure_candidates", schedules=schedules, **_MEASURE)
    assert [one.speedup for one in found] == pytest.approx(
        [speed_of(schedule) for schedule in _SCHEDULES], rel=0.02
    )
    assert "measure_candidates" not in four.tasks("other") + four.tasks("old")


def test_kernels_compiled_elsewhere_reach_the_worker_that_measures(
    four: SimulatedPool, remote_runner: RemoteRunner
) -> None:
    compilers = KernelCompilers(remote_runner)
    sources = [
        KernelSource(name=f"k{number}", workload=_EXP, schedule=schedule)
        for number, schedule in enumerate(_SCHEDULES)
    ]
    compiled = compilers.compiled(sources)
    assert compiled.errors == {"k0": "", "k1": "", "k2": ""}
    assert "compile_kernels" in four.tasks("other")
    schedules = [schedule_to_json(schedule) for schedule in _SCHEDULES]
    # the simulated runner fails where an object is missing
    assert remote_runner.call(
        "measure_candidates", schedules=schedules, compiled=compiled, **_MEASURE
    )
    compilers.close()


def test_all_files_of_a_comparison_reach_the_worker(
    tmp_path: Path, remote_runner: RemoteRunner
) -> None:
    with WeightStore(tmp_path / "model.weights") as store:
        model = store.settled(matmul_net(width=32))
    baseline = write_segment(model, tmp_path / "subgraph.onnx")
    assert baseline.weights is not None
    found = remote_runner.call(
        "compare_models",
        timeout_s=30.0,
        baseline=baseline,
        tuned=ModelPart(model=save_model(matmul_net(), tmp_path / "candidate.onnx")),
        policy=POLICY,
        inputs=ModelInputs(seed=0),
        terms=ComparisonTerms(rounding=baseline),  # its untuned model is one of the files
    )
    assert found.measurement.is_correct


def test_worker_that_drifts_is_set_aside_and_that_is_said(four: SimulatedPool) -> None:
    slot = _slot(four, "slowing")
    four.remote_pool.calibrate(slot)
    four.remote_pool.calibrate(slot)  # not due
    assert four.tasks("slowing").count("compare_itself") == 1
    slot.done = JOBS_BETWEEN_CALIBRATIONS
    four.remote_pool.calibrate(slot)
    assert slot not in four.remote_pool.measuring()
    (said,) = [text for text in four.warnings if "worker slowing" in text]
    assert "is set aside: the same code twice reads 1.2" in said


def test_failure_on_a_worker_is_a_failure_here(
    four: SimulatedPool, remote_runner: RemoteRunner
) -> None:
    with pytest.raises(RunError, match="KeyError"):
        four.remote_pool.call(four.remote_pool.measuring()[0], "no_such_task", timeout_s=5.0)


# ---- workers that go ----


@pytest.mark.slow
def test_killed_worker_loses_what_it_was_doing_and_others_do_it_again(tmp_path: Path) -> None:
    with simulated_pool(tmp_path, ("mortal", "zgood")) as remote_pool:
        remote_runner, told = _remote_runner(remote_pool.remote_pool), list[str]()
        remote_runner.take()  # the first by name
        assert remote_pool.tasks("mortal") == ["compare_itself"]
        schedules = [schedule_to_json(_SCHEDULES[0])]
        (found,) = remote_runner.call("measure_candidates", schedules=schedules, **_MEASURE)
        assert found.speedup == pytest.approx(speed_of(_SCHEDULES[0]), rel=0.02)
        assert remote_pool.tasks("zgood")[-1] == "measure_candidates"
        assert [text.split(" (")[0] for text in remote_pool.warnings] == ["worker mortal"]
        assert not told

        os.kill(_slot(remote_pool, "zgood").announced.pid, signal.SIGKILL)
        alone = _remote_runner(remote_pool.remote_pool, told)
        alone.take()  # its calibration finds out
        assert alone.call("measure_candidates", schedules=schedules, **_MEASURE)
        assert told == ["no worker is left to measure on; this machine goes on alone"]


@pytest.mark.slow
def test_worker_that_cannot_compile_is_set_aside_and_others_do_it(tmp_path: Path) -> None:
    with simulated_pool(tmp_path, ("good", "other_without")) as remote_pool:
        remote_runner = _remote_runner(remote_pool.remote_pool)
        remote_runner.take()
        with closing(KernelCompilers(remote_runner)) as compilers:
            sources = [KernelSource.of(_EXP, schedule) for schedule in _SCHEDULES]
            compiled = compilers.compiled(sources)
        assert set(compiled.errors.values()) == {""}
        (warning,) = remote_pool.warnings
        assert warning.startswith("worker other_without") and "none found" in warning
        assert not remote_pool.remote_pool.compiling()


@pytest.mark.slow
def test_task_that_takes_two_workers_with_it_is_a_failed_one(tmp_path: Path) -> None:
    with simulated_pool(tmp_path, ("mortal1", "mortal2", "zgood")) as remote_pool:
        remote_runner = _remote_runner(remote_pool.remote_pool)
        remote_runner.take()
        schedules = [schedule_to_json(_SCHEDULES[0])]
        with pytest.raises(RunError, match=r"lost with worker mortal1 .* and worker mortal2"):
            remote_runner.call("measure_candidates", schedules=schedules, **_MEASURE)
        assert [slot.announced.name for slot in remote_pool.remote_pool.measuring()] == ["zgood"]
        assert remote_runner.call("measure_candidates", schedules=schedules, **_MEASURE)


@pytest.mark.slow
def test_worker_that_is_gone_is_missed_and_one_that_comes_is_used(tmp_path: Path) -> None:
    from aoe.execute.workers.local import started_workers

    with simulated_pool(tmp_path, ("good1",)) as remote_pool:
        (slot,) = remote_pool.remote_pool.measuring()
        os.kill(slot.announced.pid, signal.SIGKILL)
        _wait(lambda: not remote_pool.client.nthreads())
        remote_pool.remote_pool.refresh()
        assert remote_pool.remote_pool.measuring() == []
        with started_workers(remote_pool.client.scheduler.address, 1, lambda _: "good2"):
            _wait(lambda: bool(remote_pool.client.nthreads()))
            remote_pool.remote_pool.refresh()
            assert [slot.announced.name for slot in remote_pool.remote_pool.measuring()] == [
                "good2"
            ]


def test_scheduler_that_was_given_up_is_no_error() -> None:
    from aoe.execute.workers.service import SlotSetup, own_runner

    target, told = make_target(), list[str]()
    setup = SlotSetup(device=default_device(), target=target, open_runner=own_runner)
    with local_scheduler() as address, connected(address) as client:
        remote_pool = RemotePool(
            client, setup, versions={}, policy=POLICY, on_event=lambda text, _: told.append(text)
        )
        nobody = Announcement(name="a", host="a", pid=0, target=target, cores=(), versions={})
        slot = WorkerSlot(address="tcp://a:1", announced=nobody, part=WorkerPart.MEASURING)
        client.close()  # as Dask does when it has tried for long enough
        with pytest.raises(WorkerLostError, match="its scheduler is gone"):
            remote_pool.call(slot, "compare_itself", timeout_s=5.0, policy=POLICY)
        remote_pool.refresh()
        remote_pool.close()
    assert not told


@pytest.mark.slow
def test_run_that_ends_waits_for_nobody_and_a_lost_worker_is_told_from_a_failed_task(
    tmp_path: Path,
) -> None:
    with simulated_pool(tmp_path, ("good",)) as remote_pool:
        (slot,) = remote_pool.remote_pool.measuring()
        os.kill(slot.announced.pid, signal.SIGKILL)
        with pytest.raises(WorkerLostError):
            remote_pool.remote_pool.call(slot, "compare_itself", timeout_s=5.0, policy=POLICY)
        remote_runner = _remote_runner(remote_pool.remote_pool)
        remote_pool.remote_pool.stop()
        with pytest.raises(RemotePoolClosed):
            remote_runner.call("measure_candidates", schedules=[], **_MEASURE)


def _wait(condition: object) -> None:
    deadline = time.monotonic() + 30
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _slower(times: float) -> Measurement:
    once = make_measurement(1.0)
    return replace(
        once,
        baseline_us=tuple(us * times for us in once.baseline_us),
        tuned_us=tuple(us * times for us in once.tuned_us),
    )


@pytest.mark.parametrize("ratio", [0.98, 1.0, 1.02])
def test_what_reads_about_one_is_sound(ratio: float) -> None:
    assert drift_of(make_measurement(ratio), make_measurement(1.0)) == ""


@pytest.mark.parametrize("ratio", [0.9, 1.1])
def test_bias_is_drift_and_said_in_figures(ratio: float) -> None:
    found = drift_of(make_measurement(ratio), None)
    assert found.startswith(f"the same code twice reads {ratio:.3f}x")


def test_interval_too_wide_to_tell_anything_is_drift() -> None:
    times = tuple(1000.0 * (0.8 if number % 2 else 1.25) for number in range(20))
    wide = Measurement(outcome=Outcome.CORRECT, baseline_us=times, tuned_us=(1000.0,) * 20)
    assert drift_of(wide, None).endswith("too wide to tell anything")


def test_slower_than_at_its_start_is_drift_only_beyond_what_clocks_do() -> None:
    first = make_measurement(1.0)
    assert drift_of(_slower(1.1), first) == ""
    assert "1.30 times as long as at its start" in drift_of(_slower(1.3), first)
    assert drift_of(_slower(1.3), None) == ""
    assert drift_of(_slower(0.5), first) == ""


def test_busy_and_broken_workers_are_not_believed() -> None:
    load = MachineLoad(use=CpuUse(wall_s=1.0, cpu_s=0.5, waited_s=0.5))
    assert drift_of(replace(make_measurement(1.0), load=load), None).startswith("it is busy: 50%")
    failed = Measurement.failure(Outcome.RUNTIME, "no memory")
    assert drift_of(failed, None) == "the same code twice: runtime: no memory"
