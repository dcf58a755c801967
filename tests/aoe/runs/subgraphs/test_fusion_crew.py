"""Kernels of scopes on workers with simulated devices: what one machine finds, they find."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import onnx
import pytest
from support.engine.environments import run_environment
from support.engine.fakes import RecordingProgress
from support.engine.remote_pools import OpenedPools, SimulatedProcesses, simulated_workers, speed_of
from support.engine.scripted_runs import ScriptedRuns, blocks_net
from support.engine.subgraphs import by_kernels

from aoe.om.file import read_manifest
from aoe.runs.run import tune_with
from aoe.runs.subgraphs.result import SgatResult
from aoe.tuner.mode import JobType, TuneSettings
from aoebank import Bank

_NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
_NAMES = ("good1", "good2")
_SIZES = (3, 5, 7)


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimulatedProcesses]:
    with simulated_workers(tmp_path_factory.mktemp("farm"), _NAMES) as processes:
        yield processes


@pytest.fixture
def opened(workers: SimulatedProcesses) -> OpenedPools:
    return OpenedPools(workers, _NAMES)


@pytest.fixture
def runs(opened: OpenedPools) -> ScriptedRuns:
    found = ScriptedRuns(parts={"rules": {}, "open_remote_pool": opened.open})
    found.candidate, found.model = speed_of, by_kernels(1.1)
    return found


def _tune(runs: ScriptedRuns, place: Path, workers: str | None = None) -> SgatResult:
    (place / "bank").mkdir(parents=True, exist_ok=True)
    onnx.save(blocks_net(_SIZES), place / "net.onnx")
    result = tune_with(
        TuneSettings(
            model=place / "net.onnx",
            output=place / "out",
            job_types=(JobType.SGAT,),
            trials=2,
            workers=workers,
        ),
        env=run_environment(place / "bank"),
        cwd=place,
        progress=RecordingProgress(),
        now=_NOW,
        engine=runs.engine,
    )
    return result.get(SgatResult)


def _keys(place: Path) -> dict[str, list[str]]:
    bank = Bank(place / "bank")
    return {
        file.name: sorted(record.key for record in bank.iter_records(file))
        for file in bank.iter_files()
    }


@pytest.mark.slow
def test_kernels_and_records_are_those_of_one_machine(
    runs: ScriptedRuns, opened: OpenedPools, tmp_path: Path
) -> None:
    alone = _tune(runs, tmp_path / "alone")
    assert runs.trials() > 0
    together = _tune(runs, tmp_path / "together", workers="2")
    assert all(opened.asked("measure_candidates").values())
    assert runs.trials() == 0  # no kernel was measured here
    assert _keys(tmp_path / "together") == _keys(tmp_path / "alone")
    assert together.used_ids == alone.used_ids != frozenset()
    assert read_manifest(together.om_file).kernels
