"""Which choice brought what: the implementation, then its schedule."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from support.engine.tuning import make_measurement, make_opat_result, make_tuned

from aoe.kernels.algorithms import KNOB
from aoe.measurement import Measurement, Outcome
from aoe.results.files import Gain, GainKind, RepoOutcome
from aoe.results.opat import opat_report_to_json
from aoe.runs.operators.gains import gains_of, has_failed, operator_result
from aoe.schedule import Configuration
from aoe.tasks.operators.operator import TunedOperator
from aoe.tuner.task_search import SearchResult, TrialRecord
from aoe.workload import Precision


def _trial(algorithm: str, tile: int, speedup: float | None) -> TrialRecord:
    failure = Measurement.failure(Outcome.COMPILE, "illegal")
    return TrialRecord(
        configuration=Configuration({KNOB: algorithm, "tile": tile}),
        measurement=failure if speedup is None else make_measurement(speedup),
    )


def _tuned(*trials: TrialRecord, best: int, after_us: float) -> TunedOperator:
    """Return an operator that took 100 us and takes `after_us` with the trial `best`."""
    search = SearchResult(configuration=trials[best].configuration, trials=trials)
    return replace(make_tuned("n"), search=search, before_us=100.0, after_us=after_us)


@pytest.mark.parametrize(
    ("trials", "expected"),
    [
        ([("a", 1, 2.0)], [(GainKind.IMPL, 100, 50)]),
        (
            [("b", 1, 3.0), ("a", 1, None), ("a", 2, 1.25), ("a", 3, 2.0)],
            [(GainKind.IMPL, 100, 80), (GainKind.SCHEDULE, 80, 50)],
        ),
        ([("a", 1, 0.5), ("a", 2, 2.0)], [(GainKind.SCHEDULE, 100, 50)]),
        ([("a", 1, 2.5), ("a", 2, 2.0)], [(GainKind.IMPL, 100, 50)]),
    ],
)
def test_gain_is_that_of_switching_one_choice(
    trials: list[tuple[str, int, float | None]], expected: list[tuple[GainKind, float, float]]
) -> None:
    tuned = _tuned(*(_trial(*trial) for trial in trials), best=-1, after_us=50.0)
    assert gains_of(tuned) == tuple(
        Gain(kind=kind, before_us=before, after_us=pytest.approx(after))
        for kind, before, after in expected
    )


@pytest.mark.parametrize(
    ("formatted_us", "first", "expected"),
    [
        (80.0, 1.25, [(GainKind.FORMAT, 100, 80), (GainKind.SCHEDULE, 80, 50)]),
        (
            80.0,
            1.6,
            [
                (GainKind.FORMAT, 100, 80),
                (GainKind.IMPL, 80, 62.5),
                (GainKind.SCHEDULE, 62.5, 50),
            ],
        ),
        (90.0, 0.5, [(GainKind.FORMAT, 100, 90), (GainKind.SCHEDULE, 90, 50)]),
        (30.0, 2.0, [(GainKind.FORMAT, 100, 50)]),
        (110.0, 2.0, [(GainKind.IMPL, 100, 50)]),
        (None, 2.0, [(GainKind.IMPL, 100, 50)]),
    ],
)
def test_layout_goes_first_and_no_more_is_its_gain_than_there_is(
    formatted_us: float | None, first: float, expected: list[tuple[GainKind, float, float]]
) -> None:
    trials = [_trial("a", 1, first), _trial("a", 2, 2.0)]
    tuned = replace(_tuned(*trials, best=-1, after_us=50.0), formatted_us=formatted_us)
    found = [(gain.kind, gain.before_us, gain.after_us) for gain in gains_of(tuned)]
    assert found == [(kind, before, pytest.approx(after)) for kind, before, after in expected]


@pytest.mark.parametrize("outcome", [RepoOutcome.RESERVED, RepoOutcome.UNSATISFIED])
def test_what_is_not_modified_gained_nothing(outcome: RepoOutcome) -> None:
    tuned = _tuned(_trial("a", 1, 2.0), best=0, after_us=50.0)
    assert gains_of(replace(tuned, outcome=outcome)) == ()


def test_operator_has_failed_if_no_candidate_was_right() -> None:
    tried = replace(_tuned(_trial("a", 1, None), best=0, after_us=50.0))
    lost = replace(tried, outcome=RepoOutcome.UNSATISFIED)
    assert has_failed(lost) and operator_result(lost).failed
    for hit in (RepoOutcome.RESERVED, RepoOutcome.UPDATE):
        assert not operator_result(replace(tried, outcome=hit)).failed
    assert not has_failed(_tuned(_trial("a", 1, None), _trial("a", 2, 0.5), best=1, after_us=200.0))
    assert not has_failed(replace(lost, search=None))
    assert not has_failed(replace(lost, search=SearchResult()))


def test_result_file_of_aoe_says_it_only_below_float32() -> None:
    tuned = make_tuned("conv1")
    report = replace(make_opat_result(tuned).report, tasks=(operator_result(tuned),))
    assert "precision" not in json.dumps(opat_report_to_json(report))
    lower = replace(report, precision=Precision.BFLOAT16)
    assert opat_report_to_json(lower)[1]["OPAT"]["precision"] == "bfloat16"
