"""Text and document of a report come from the same value."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from aoe.execute.accuracy import Deviation
from aoe.execute.tasks import ModelComparison
from aoe.measurement import CpuUse, MachineLoad, Measurement, Outcome
from aoe.report.answers import BenchmarkReport, Output, RunReport
from aoe.workload import Precision
from aoebank import Report, emit

NAN = float("nan")


def _told(report: Report, capsys: pytest.CaptureFixture[str]) -> tuple[str, dict[str, object]]:
    assert emit(report, as_json=False) == 0
    text = capsys.readouterr().out
    assert emit(report, as_json=True, indent=None) == 0
    line = capsys.readouterr().out
    assert line.count("\n") == 1
    return text, json.loads(line)


def _benchmark(
    *, max_abs_err: float, detail: str = "", load: MachineLoad | None = None
) -> BenchmarkReport:
    measurement = Measurement(
        outcome=Outcome.CORRECT, baseline_us=(200.0,) * 6, tuned_us=(100.0,) * 6, load=load
    )
    deviation = Deviation(max_abs_err=max_abs_err, excess=0.0, detail=detail)
    return BenchmarkReport(
        model=Path("m.om"),
        baseline="untuned model inside",
        threads=2,
        comparison=ModelComparison(measurement=measurement, deviation=deviation),
    )


def test_benchmark_tells_times_speed_up_and_difference(capsys: pytest.CaptureFixture[str]) -> None:
    text, document = _told(_benchmark(max_abs_err=1e-6), capsys)
    assert text.splitlines() == [
        "m.om: 0.100 ms",
        "untuned model inside: 0.200 ms",
        (
            "2.000x as fast (95 % interval 2.000 to 2.000, 6 pairs, 2 threads); "
            "same results (largest difference 1e-06)"
        ),
    ]
    assert document["schema"] == "aoe.benchmark/1"
    assert document["speedup"] == 2.0
    assert document["same_results"] is True


def test_benchmark_of_streams_tells_runs_in_a_second_and_no_times(
    capsys: pytest.CaptureFixture[str],
) -> None:
    report = replace(_benchmark(max_abs_err=1e-6), threads=1, streams=2)
    text, document = _told(report, capsys)
    assert text.splitlines()[:2] == [
        "m.om: 10000.000 runs/s",
        "untuned model inside: 5000.000 runs/s",
    ]
    assert "6 pairs, 2 streams, each of 1 thread)" in text
    assert document["streams"] == 2
    assert (document["model_runs_per_s"], document["baseline_runs_per_s"]) == (10000.0, 5000.0)
    assert "model_ms" not in document and "baseline_ms" not in document


def test_benchmark_tells_what_the_machine_gave(capsys: pytest.CaptureFixture[str]) -> None:
    use = CpuUse(wall_s=1.0, cpu_s=1.2, waited_s=0.8, switches=40)
    for least_quiet in (0.9, 0.0):  # who accepts a busy machine is told all the same
        load = MachineLoad(use=use, threads=2, tries=3, least_quiet=least_quiet)
        text, document = _told(_benchmark(max_abs_err=0.0, load=load), capsys)
        assert text.splitlines()[-1] == (
            "do not believe these figures, the machine was busy: 60% of the CPU time it asked for, "
            "40 involuntary switches, 0.00 s stolen, 3 tries"
        )
        assert document["machine"] == {
            "quiet": False,
            "clock": "wall",
            "given_share": 0.6,
            "cpu_share": 0.6,
            "threads": 2,
            "wall_s": 1.0,
            "cpu_s": 1.2,
            "waited_s": 0.8,
            "stolen_s": 0.0,
            "involuntary_switches": 40,
            "tries": 3,
            "paused_s": 0.0,
        }
    quiet = MachineLoad(use=CpuUse(wall_s=1.0, cpu_s=1.2))
    text, document = _told(_benchmark(max_abs_err=0.0, load=quiet), capsys)
    assert "busy" not in text
    assert document["machine"] is not None


def test_difference_that_is_no_number_is_null_in_a_document(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text, document = _told(_benchmark(max_abs_err=NAN, detail="y: NaN"), capsys)
    assert text.endswith("results differ (not even finite alike)\n")
    assert document["max_abs_err"] is None
    assert document["same_results"] is False


def test_values_that_are_no_numbers_are_null_in_a_document(
    capsys: pytest.CaptureFixture[str],
) -> None:
    output = Output(name="y", dtype="float32", shape=(2,), values=(NAN, float("-inf")))
    report = RunReport(om=Path("m.om"), kernels=0, outputs=(output,), fallback_reason="")
    text, document = _told(report, capsys)
    assert text.endswith("y float32 [2]: [nan, -inf]\n")
    assert document["outputs"] == [
        {"name": "y", "dtype": "float32", "shape": [2], "values": [None, None]}
    ]


def test_run_tells_which_model_ran_and_its_outputs(capsys: pytest.CaptureFixture[str]) -> None:
    output = Output(name="y", dtype="float32", shape=(1, 2), values=(0.5, 1.0))
    report = RunReport(om=Path("m.om"), kernels=3, outputs=(output,), fallback_reason="no AVX")
    text, document = _told(report, capsys)
    assert text == "m.om: untuned model, 3 kernels\n  y float32 [1, 2]: [0.5, 1.0]\n"
    assert document == {
        "schema": "aoe.run/1",
        "tuned": False,
        "precision": "float32",
        "outputs": [{"name": "y", "dtype": "float32", "shape": [1, 2], "values": [0.5, 1.0]}],
        "fallback_reason": "no AVX",
    }


def test_precision_is_told_wherever_a_model_computed_in_a_lower_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    report = RunReport(
        om=Path("m.om"), kernels=3, outputs=(), fallback_reason="", precision=Precision.BFLOAT16
    )
    text, document = _told(report, capsys)
    assert text == "m.om: tuned model, 3 kernels, bfloat16\n"
    assert document["precision"] == "bfloat16"
    fell_back, document = _told(replace(report, fallback_reason="no AVX512"), capsys)
    assert "bfloat16" not in fell_back
    assert document["precision"] == "float32"
    text, document = _told(
        replace(_benchmark(max_abs_err=0.5), precision=Precision.BFLOAT16), capsys
    )
    assert "products in bfloat16 (largest difference" in text
    assert "same results" not in text
    assert (document["precision"], document["same_results"]) == ("bfloat16", None)
    assert document["baseline_precision"] == "float32"


def test_benchmark_names_the_precision_of_both_models(capsys: pytest.CaptureFixture[str]) -> None:
    report = replace(_benchmark(max_abs_err=0.5), baseline_precision=Precision.INT8)
    text, document = _told(report, capsys)
    assert "products in float32 against int8 (largest difference" in text
    assert (document["precision"], document["baseline_precision"]) == ("float32", "int8")
    assert document["same_results"] is None
