"""What fresh pairs say about a recorded gain."""

from __future__ import annotations

import pytest
from support.engine.tuning import make_measurement

from aoe.errors import RunError, WorkerDiedError
from aoe.execute.messages import failure_of
from aoe.measurement import Measurement, Outcome
from aoe.runs.verify_records import Holding, RecordedGain, verdict_on

_RECORDED = RecordedGain(speedup=1.5, low=1.4, time="2026-01-02T03:04:05Z", engine="aoe 0.1.0")


def _between(low: float, high: float) -> Measurement:
    """Return pairs of which half read one ratio and half the other."""
    return Measurement(
        outcome=Outcome.CORRECT,
        baseline_us=(1000.0,) * 20,
        tuned_us=(1000.0 / low,) * 10 + (1000.0 / high,) * 10,
    )


@pytest.mark.parametrize(
    ("recorded", "found", "verdict"),
    [
        (_RECORDED, make_measurement(1.5), Holding.HOLDS),
        (_RECORDED, make_measurement(1.9), Holding.HOLDS),
        (_RECORDED, make_measurement(1.38), Holding.HOLDS),  # within 3 % of what was proven
        (_RECORDED, make_measurement(1.3), Holding.WEAKER),
        (_RECORDED, _between(1.1, 1.6), Holding.HOLDS),
        (_RECORDED, _between(0.95, 1.2), Holding.WEAKER),
        (_RECORDED, _between(0.95, 1.6), Holding.UNDECIDED),
        (_RECORDED, make_measurement(1.0), Holding.LOST),
        (_RECORDED, make_measurement(0.5), Holding.LOST),
        (None, make_measurement(1.1), Holding.HOLDS),
        (None, _between(0.95, 1.2), Holding.UNDECIDED),
        (None, make_measurement(0.9), Holding.LOST),
    ],
)
def test_verdict_compares_the_interval_with_1_and_with_what_was_proven(
    recorded: RecordedGain | None, found: Measurement, verdict: Holding
) -> None:
    verified = verdict_on(recorded, found)
    assert verified.verdict is verdict
    assert verified.is_decided is (verdict is not Holding.UNDECIDED)


def test_kernel_the_clock_has_ended_is_undecided_and_says_so() -> None:
    late = Measurement.failure(Outcome.TIMEOUT, "no answer from the worker (got over 80.0 s)\nlog")
    verified = verdict_on(_RECORDED, late)
    assert verified.verdict is Holding.UNDECIDED
    assert not verified.is_decided
    assert verified.reason == "timeout: no answer from the worker (got over 80.0 s)"


def test_failure_of_the_harness_is_undecided() -> None:
    broken = failure_of(RunError("model", "ONNX Runtime cannot load it"))
    assert verdict_on(_RECORDED, broken).verdict is Holding.UNDECIDED
    died = failure_of(WorkerDiedError("measure_candidates", "the worker ended with signal 11"))
    assert verdict_on(_RECORDED, died).verdict is Holding.LOST
