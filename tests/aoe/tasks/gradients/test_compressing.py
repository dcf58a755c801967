"""Sums in 16 bits on top of a grouping: refused, too inexact, better, remembered."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from support.engine.fakes import RecordingProgress
from support.engine.trainings import FakeProgram, FakeTraining

from aoe.errors import OptionError, RunError
from aoe.gradients.compression import Compression, parse_compression
from aoe.gradients.trace import model_hash
from aoe.report.tuning import GradientTuningReport
from aoe.results.files import RepoOutcome
from aoe.results.gradients import load_gdat_report
from aoe.runs.gradients.result import TunedGradients
from aoe.runs.run import tune_with
from aoe.tuner.mode import JobType, TuneSettings
from aoebank import emit

_BF16 = Compression.BFLOAT16


def _training(*, gain: float = 0.8, deviation: float = 0.002, trouble: str = "") -> FakeTraining:
    training = FakeTraining()
    training.gain, training.deviation_found, training.trouble = gain, deviation, trouble
    return training


def _tuned(
    folder: Path,
    training: FakeTraining,
    compression: Compression | None = _BF16,
    progress: RecordingProgress | None = None,
    **settings: Any,
) -> TunedGradients:
    facts: dict[str, Any] = {"job_types": (JobType.GDAT,), "output": folder / "out"}
    return tune_with(
        TuneSettings(
            model=FakeProgram(training), allow_compression=compression, **(facts | settings)
        ),
        env={"TUNE_BANK_PATH": str(folder)},
        cwd=folder,
        progress=progress or RecordingProgress(),
        now=datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
    ).get(TunedGradients)


def test_it_has_to_beat_the_best_grouping_in_full(tmp_path: Path) -> None:
    training = _training()
    tuned = _tuned(tmp_path, training)
    result = tuned.result
    assert result.outcome is RepoOutcome.ADD and result.segmentation is not None
    assert result.compressed is not None and result.compressed.outcome is RepoOutcome.ADD
    assert training.other.default == result.segmentation
    assert training.other.raced[0] is None and training.other.applied[-1] is not None
    plain, on_top = result.estimate, result.compressed.estimate
    assert plain is not None and on_top is not None
    assert tuned.speedup == pytest.approx(plain.median * on_top.median)


def test_same_groups_are_a_candidate_of_their_own(tmp_path: Path) -> None:
    training = _training()
    _tuned(tmp_path, training)
    assert training.other.default in training.other.raced


def test_not_better_keeps_all_bits_and_is_remembered(tmp_path: Path) -> None:
    training = _training(gain=1.3)
    tuned = _tuned(tmp_path, training)
    assert tuned.result.compressed is not None and not tuned.result.is_compressed
    assert tuned.result.compressed.outcome is RepoOutcome.UNSATISFIED
    assert training.other.applied[-1] is None
    again = _training(gain=0.5)
    found = _tuned(tmp_path, again).result.compressed
    assert found is not None and found.outcome is RepoOutcome.UNSATISFIED
    assert not again.other.raced


def test_record_is_used_again_only_where_allowed(tmp_path: Path) -> None:
    _tuned(tmp_path, _training())
    plain = _training()
    assert _tuned(tmp_path, plain, None).result.compressed is None
    assert not hasattr(plain, "other")
    again = _training()
    found = _tuned(tmp_path, again).result.compressed
    assert found is not None and found.outcome is RepoOutcome.RESERVED and not again.other.raced


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"deviation": 0.034}, "gradients would differ by 3.40%, which is more than 1%"),
        ({"deviation": float("inf")}, "more than 1%"),
        ({"deviation": float("nan")}, "more than 1%"),
        ({"trouble": "the script has a hook"}, "the script has a hook"),
    ],
)
def test_what_may_not_be_used_is_told(tmp_path: Path, given: dict[str, Any], problem: str) -> None:
    progress, training = RecordingProgress(), _training(**given)
    tuned = _tuned(tmp_path, training, progress=progress)
    assert tuned.result.compressed is None and tuned.result.outcome is RepoOutcome.ADD
    assert not training.other.raced and not training.other.applied
    assert any(text.startswith("bfloat16 is not used: ") for text in progress.texts("warn"))
    report = load_gdat_report(tuned.result_file).compression
    assert report is not None and problem in report.problem and report.tuning is None


def test_failure_gives_all_bits_back(tmp_path: Path) -> None:
    training = _training()
    before = FakeTraining.sample_us

    def failing(self: FakeTraining, segmentation: Any, steps: int) -> float:
        if self.compression is not None:
            raise RunError("script", "ended")
        return before(self, segmentation, steps)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FakeTraining, "sample_us", failing)
        with pytest.raises(RunError):
            _tuned(tmp_path, training)
    assert training.other.left == 1


def test_report_and_headline_say_that_results_differ(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = GradientTuningReport(result=_tuned(tmp_path, _training()))
    emit(report, as_json=False, no_color=True)
    text = capsys.readouterr().out
    words = "gradients are summed in bfloat16: results differ in rounding"
    lines = text.splitlines()
    assert any(line.startswith(f"{words}, by 0.20% of their length") for line in lines)
    (headline,) = (line for line in lines if "process finished. Performance improved" in line)
    assert headline.endswith(f"({words})")
    document: Any = report.document()["compression"]
    assert document["summed_in"] == "bf16" and document["in_use"] is True
    assert document["deviation"] == 0.002 and document["tolerance"] == 0.01


def test_report_without_it_says_nothing_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = GradientTuningReport(result=_tuned(tmp_path, _training(), None))
    emit(report, as_json=False, no_color=True)
    text = capsys.readouterr().out
    assert "summed in" not in text and report.document()["compression"] is None


def test_type_is_a_part_of_the_modelhash() -> None:
    plain = model_hash(["float32"], [4096])
    types = {model_hash(["float32"], [4096], summed_in=one) for one in Compression}
    assert len(types | {plain}) == 3


def test_it_is_for_gradient_tuning_only(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="--allow_compression: it is for gradient tuning"):
        _tuned(tmp_path, _training(), job_types=(JobType.OPAT,))


def test_only_types_of_16_bits_are_allowed() -> None:
    assert parse_compression("fp16") is Compression.FLOAT16 and parse_compression(None) is None
    with pytest.raises(OptionError, match=r"got 'fp8', expected bf16 or fp16"):
        parse_compression("fp8")
