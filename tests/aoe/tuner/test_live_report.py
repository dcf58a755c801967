"""A report that follows its run: always whole on disk, always with the time spent."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from aoe.errors import OutputError
from aoe.results.files import RepoOutcome, TuningResult, write_json
from aoe.results.opat import OpatReport, OperatorResult, opat_report_to_json
from aoe.tuner.live_report import LiveReport, Phase, PhaseTimes, start_stopwatch

_EXP = OperatorResult(op_name="n", op_types=("Exp",), outcome=RepoOutcome.UNSATISFIED)


def _report(file: Path, now_s: list[float]) -> LiveReport[OpatReport]:
    return LiveReport(
        OpatReport(tuning_name="net"),
        lambda report: write_json(file, opat_report_to_json(report)),
        start_stopwatch(lambda: now_s[-1], None),
    )


def _read(file: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    basic, body = json.loads(file.read_text())
    return basic["basic"], body["OPAT"]


def test_phases_of_a_run_take_its_time_together() -> None:
    now_s = [100.0]
    phases = PhaseTimes(start_stopwatch(lambda: now_s[-1], None))
    for phase, ends_s in (
        (Phase.PROFILE, 101.0),
        (Phase.SEARCH, 103.0),
        (Phase.VALIDATE, 110.0),
        (Phase.SEARCH, 111.0),  # of another part of the run
    ):
        now_s.append(ends_s)
        phases.begin(phase)
    now_s.append(114.5)
    found = {"start": 1.0, "profile": 2.0, "search": 10.5, "judge": 1.0, "write": 0.0}
    assert phases.seconds() == found == phases.seconds()


def test_published_report_replaces_the_one_before(tmp_path: Path) -> None:
    file, now_s = tmp_path / "report.json", [100.0]
    report = _report(file, now_s)
    for spent_s, result in enumerate(TuningResult):
        now_s.append(100.0 + spent_s)
        report.update(result=result, tasks=(_EXP,))
        basic, body = _read(file)
        told_s = spent_s if result is not TuningResult.INCOMPLETE else None
        assert basic.get("tuning_time(s)") == told_s
        assert body["opat_tuning_result"] == result.value
        assert report.value.result is result


@pytest.mark.usefixtures("no_room")
def test_full_disk_is_an_output_error(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="No space left"):
        _report(tmp_path / "report.json", [0.0]).update()
    assert list(tmp_path.iterdir()) == []


def test_run_without_a_limit_is_never_over() -> None:
    now_s = [5.0]
    without, limited = (start_stopwatch(lambda: now_s[-1], limit) for limit in (None, 2.0))
    assert not limited.is_over()
    now_s.append(7.0)
    assert limited.elapsed_s() == 2.0 and not limited.is_over()
    now_s.append(7.1)
    assert limited.is_over() and not without.is_over()


def test_time_kept_for_what_follows_comes_off_the_limit() -> None:
    now_s = [5.0]
    without, limited = (start_stopwatch(lambda: now_s[-1], limit) for limit in (None, 2.0))
    assert without.keeping(1.5).left_s() == math.inf
    assert limited.keeping(1.5).left_s() == 0.5
    assert limited.keeping(3.0).left_s() == 0.0
    now_s.append(5.6)
    assert limited.keeping(1.5).is_over() and not limited.is_over()
