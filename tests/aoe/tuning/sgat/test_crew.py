"""Subgraphs side by side on workers with simulated devices: the same records as on one machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.engine.farms import SimulatedFarm, SimulatedProcesses, farm_of, simulated_workers
from support.engine.scripted_runs import script_runs
from support.engine.subgraph_runs import Run

from aoe.bank.records.subgraph import strategy_of
from aoe.execute.workers.farm import Farm
from aoe.tuning.mode import JobType
from aoe.tuning.sgat.result import SgatResult
from aoebank import Bank


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimulatedProcesses]:
    """Return two sound workers and one of another machine."""
    folder = tmp_path_factory.mktemp("farm")
    with simulated_workers(folder, ("good1", "good2", "other")) as processes:
        yield processes


class Opened:
    """The farms runs have opened, in the place of those of `--workers`."""

    def __init__(self, processes: SimulatedProcesses) -> None:
        self.farms: list[SimulatedFarm] = []
        self._processes = processes

    @contextmanager
    def open(self, *_: Any, **__: Any) -> Iterator[Farm]:
        with farm_of(self._processes) as farm:
            self.farms.append(farm)
            yield farm.farm

    def compared(self) -> dict[str, int]:
        """Return how many forms each worker of the last farm has measured."""
        names = ("good1", "good2", "other")
        return {name: self.farms[-1].tasks(name).count("compare_models") for name in names}


@pytest.fixture
def opened(workers: SimulatedProcesses, monkeypatch: pytest.MonkeyPatch) -> Opened:
    found = Opened(workers)
    monkeypatch.setattr("aoe.execute.workers.keeper.open_farm", found.open)
    return found


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    script_runs(monkeypatch)
    return Run(tmp_path, monkeypatch)


def _records(run: Run, result: SgatResult) -> dict[str, str]:
    bank = Bank(run.place / "bank")
    return {one.key: str(strategy_of(one)) for one in bank.iter_records(result.bank_file)}


def _again(run: Run) -> None:
    (run.place / "bank").rename(run.place / "bank.before")
    (run.place / "bank").mkdir()


def test_records_and_model_are_those_of_one_machine(run: Run, opened: Opened) -> None:
    alone = run.tune()
    expected, forms = _records(run, alone), run.comparisons
    _again(run)
    together = run.tune(workers="3")
    assert _records(run, together) == expected
    assert together.used_ids == alone.used_ids
    assert [one.subgraph.graph_id for one in together.subgraphs] == [
        one.subgraph.graph_id for one in alone.subgraphs
    ]
    compared = opened.compared()
    assert compared["good1"] and compared["good2"] and not compared["other"]
    # what is left here is the whole model
    assert run.comparisons < forms


def test_farm_is_opened_once_for_all_modes_and_shapes(run: Run, opened: Opened) -> None:
    run.tune(workers="3", job_types=(JobType.SGAT, JobType.OPAT), trials=1)
    assert len(opened.farms) == 1
    assert opened.farms[0].farm.is_stopped  # given back at the end


def test_hits_ask_no_worker(run: Run, opened: Opened) -> None:
    run.tune()
    run.tune(workers="3")
    assert sum(opened.compared().values()) == 0


@pytest.mark.parametrize("most", [0, 1, 3])
def test_most_trials_hold_for_all_workers_together(run: Run, opened: Opened, most: int) -> None:
    result = run.tune(workers="3", max_tuning_count=most)
    assert sum(len(tuned.trials) for tuned in result.subgraphs) == most
