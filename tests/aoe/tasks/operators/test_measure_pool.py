"""Operators side by side on workers with simulated devices: the same records as on one machine."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.engine.fakes import RATES, RecordingProgress, ScriptedRunner, make_target
from support.engine.families import chain_workload
from support.engine.remote_pools import (
    SimulatedPool,
    SimulatedProcesses,
    remote_pool_of,
    simulated_pool,
    simulated_workers,
    speed_of,
)
from support.engine.tuning import make_bank, make_operator

from aoe.errors import AoeError
from aoe.execute.workers.measure_pool import RemoteMeasurePool
from aoe.kernels.family import KernelTarget
from aoe.results.files import RepoOutcome
from aoe.tasks.operators.operator import OperatorContext
from aoe.tasks.operators.operator_budget import OperatorBudget
from aoe.tasks.operators.operator_tasks import TunedOperators, tune_found
from aoe.tasks.operators.operators import FoundOperators
from aoe.tuner.mode import TuneSettings

_OPS = ("Exp", "Tanh", "Erf", "Sin", "Cos", "Sqrt")


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimulatedProcesses]:
    """Return two sound workers and one of another machine, shared by tests that kill none."""
    folder = tmp_path_factory.mktemp("farm")
    with simulated_workers(folder, ("good1", "good2", "other")) as processes:
        yield processes


def _tuned(
    folder: Path,
    remote_pool: SimulatedPool | None,
    *,
    scheduler_s: float = math.inf,
    **settings: Any,
) -> tuple[TunedOperators, RecordingProgress]:
    """Tune one operator of each kind; without a farm on this machine."""
    folder.mkdir(exist_ok=True)
    runner, progress = ScriptedRunner(candidate=speed_of), RecordingProgress()
    context = OperatorContext(
        settings=TuneSettings(model=Path("net.onnx"), trials=4, search="random", **settings),
        runner=runner,
        bank=make_bank(folder),
        progress=progress,
        left_s=lambda: math.inf,
    )
    measure_pool = RemoteMeasurePool(remote_pool.remote_pool) if remote_pool is not None else None
    operators = tuple(make_operator(chain_workload((op,)), op_names=(op,)) for op in _OPS)
    try:
        found = tune_found(
            FoundOperators(fused=(), operators=operators, refusals=()),
            unfuse=lambda found, lost: found,
            budget=OperatorBudget(
                rates=RATES,
                target=KernelTarget.of(make_target()),
                model_us=10_000.0,
                trials=4,
                left_s=lambda: scheduler_s,
            ),
            context=context,
            on_event=lambda one: None,
            measure_pool=measure_pool,
        )
    finally:
        if measure_pool is not None:
            measure_pool.close()
    return found, progress


def _check_speeds(found: TunedOperators) -> None:
    """Every operator is won, with the speed-up its schedule has on every machine."""
    assert [one.outcome for one in found.operators] == [RepoOutcome.ADD] * len(_OPS)
    for one in found.operators:
        assert one.schedule is not None
        assert one.speedup == pytest.approx(speed_of(one.schedule), rel=0.03)


def test_records_are_those_of_one_machine(tmp_path: Path, three: SimulatedProcesses) -> None:
    alone, _ = _tuned(tmp_path / "alone", None)
    _check_speeds(alone)
    with remote_pool_of(three) as remote_pool:
        together, progress = _tuned(tmp_path / "together", remote_pool)
        spread = [
            remote_pool.tasks(name).count("measure_candidates") for name in ("good1", "good2")
        ]
        assert all(spread)
        assert "measure_candidates" not in remote_pool.tasks("other")
    _check_speeds(together)
    assert {one.operator.key for one in together.operators} == {
        one.operator.key for one in alone.operators
    }
    for folder in ("alone", "together"):
        bank = make_bank(tmp_path / folder)
        assert all(bank.find(one.operator.workload) for one in alone.operators)
    assert not progress.texts("warn")


@pytest.mark.slow
def test_killed_and_drifting_workers_cost_no_record(tmp_path: Path) -> None:
    with simulated_pool(tmp_path, ("mortal", "good", "biased", "busy")) as remote_pool:
        found, progress = _tuned(tmp_path / "bank", remote_pool)
        said = " ".join(remote_pool.warnings)
        assert "worker mortal" in said and "is gone" in said
        assert "worker biased" in said and "worker busy" in said
        assert "measure_candidates" not in remote_pool.tasks("biased") + remote_pool.tasks("busy")
    _check_speeds(found)
    assert not progress.texts("warn")


@pytest.mark.slow
def test_this_machine_goes_on_where_nobody_else_can(tmp_path: Path) -> None:
    with simulated_pool(tmp_path, ("mortal",)) as remote_pool:
        found, progress = _tuned(tmp_path / "bank", remote_pool)
    _check_speeds(found)
    assert "this machine goes on alone" in progress.texts("warn")[0]


def test_where_time_is_short_workers_glance_at_all_first(
    tmp_path: Path, three: SimulatedProcesses
) -> None:
    with remote_pool_of(three) as remote_pool:
        found, _ = _tuned(tmp_path / "bank", remote_pool, scheduler_s=1.0)
        assert len(remote_pool.tasks("good1")) > 2 and len(remote_pool.tasks("good2")) > 2
    _check_speeds(found)


def test_most_candidates_hold_for_all_workers_together(
    tmp_path: Path, three: SimulatedProcesses
) -> None:
    with remote_pool_of(three) as remote_pool:
        found, _ = _tuned(tmp_path / "bank", remote_pool, max_tuning_count=9)
    trials = [len(one.search.trials) if one.search else 0 for one in found.operators]
    assert 0 < sum(trials) <= 9


def test_error_of_one_operator_ends_the_run_and_its_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, three: SimulatedProcesses
) -> None:
    def fail(*_: object) -> None:
        raise AoeError("bank", "is corrupt")

    monkeypatch.setattr("aoe.bank.operators.OperatorBank.save", fail)
    before = {thread.ident for thread in threading.enumerate()}
    with remote_pool_of(three) as remote_pool:
        with pytest.raises(AoeError, match="is corrupt"):
            _tuned(tmp_path / "bank", remote_pool)
        ours = [
            thread
            for thread in threading.enumerate()
            if thread.ident not in before and "_run" in thread.name
        ]
        for thread in ours:
            thread.join(timeout=20)
        assert not [thread for thread in ours if thread.is_alive()]


def test_close_is_enough_for_a_crew_nobody_asked(three: SimulatedProcesses) -> None:
    with (
        remote_pool_of(three) as remote_pool,
        closing(RemoteMeasurePool(remote_pool.remote_pool)) as measure_pool,
    ):
        assert measure_pool.slots() == 2
