"""`aoe profile`: what it writes of scripted profiles, and that it runs a real model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.commands import aoe_exit_code
from support.documents import find_faults
from support.engine.models import conv_net
from support.engine.profiles import PEAK, make_counters, make_operator_profile, make_profile

from aoe.graph.fusing import StopReason
from aoe.profiling import run
from aoe.profiling.document import SCHEMA, profile_to_json
from aoe.profiling.figures import FusionLimit, ProfiledModel
from aoe.profiling.probe import ProbedPeak
from aoe.profiling.run import ProfileSettings

_PROFILE = make_profile(
    make_operator_profile(
        "c_nchwc",
        op_names=("conv", "relu"),
        op_types=("Conv", "Relu"),
        layout="NCHW16c",
        us_by_threads={1: 90.0, 2: 100.0},
        warm_us=61.5,
    ),
    make_operator_profile("soft", op_type="Softmax", median_us=50.0, roofline_us=None),
    by_threads={1: 200.0, 2: 160.0},
    counters=make_counters(cycles=2e6, instructions=3e6),
)
_LIMIT = FusionLimit(
    fusion_class="conv_elementwise",
    op_names=("conv", "relu"),
    op_types=("Conv", "Relu"),
    through_cache="relu",
    stop=StopReason.INPUTS,
    stopped_at="add",
    stopped_type="Add",
    without_limits=3,
    runs_as=1,
    goes_on_here=True,
    median_us=100.0,
)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[ProfileSettings]:
    """Script the profile; return what was asked for."""
    found: list[ProfileSettings] = []

    def profile_file(settings: ProfileSettings, on_event: Any) -> ProfiledModel:
        found.append(settings)
        on_event("the machine is busy")
        return replace(_PROFILE, fusion=(_LIMIT,) if settings.fusion else None)

    monkeypatch.setattr(run, "profile_file", profile_file)
    return found


def _run(*arguments: object) -> int:
    return aoe_exit_code(["profile", *arguments])


def _document(arguments: Sequence[object], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert _run(*arguments, "--json") == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert find_faults(document) == []
    return document


def test_text_has_the_operators_the_kinds_and_the_threads(
    asked: list[ProfileSettings], capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run("net.onnx", "--fusion") == 0
    told = capsys.readouterr()
    assert told.err == "warning: the machine is busy\n"
    lines = told.out.splitlines()
    assert lines[1].startswith("operators 150.0 us, of which 60.0 us (40%) are lost")
    assert lines[2] == "at its best: 1 GF/s in float32; GB/s 0 (l2), 0 (l3), 0 (memory)"
    assert lines[3] == "by threads 1: 200.0 us, 2: 160.0 us; 2 is fastest"
    assert lines[4] == (
        "hardware counters of a run: cycles 2e+06, instructions 3e+06; 1.50 instructions per cycle"
    )
    row = next(line for line in lines if line.startswith("conv +1"))
    assert " ".join(row.split()) == (
        "conv +1 Conv + Relu float32 1x16x8x8 NCHW16c 100.0 60.0 40% 0.4 0.0 compute 61.5 1"
    )
    unknown = next(line for line in lines if line.startswith("soft"))
    assert " ".join(unknown.split()) == "soft Softmax float32 1x16x8x8 50.0 - - - - - - -"
    assert "fusions AOE's classes allow: 1, stopped by a limit: 1" in lines
    joined = lines.index(next(line for line in lines if "joins through the cache (L2)" in line))
    assert lines[joined + 1].split() == ["conv", "2", "relu"]
    assert "add (Add)" in told.out
    assert "goes on" in told.out


def test_document_fits_its_schema(
    asked: list[ProfileSettings], capsys: pytest.CaptureFixture[str]
) -> None:
    document = _document(["net.onnx", "--fusion"], capsys)
    assert document["schema"] == SCHEMA
    assert document["fusion"][0]["stopped_by_limit"] is True
    assert document["written"] == []
    assert _document(["net.onnx"], capsys)["fusion"] is None


def test_options_reach_the_profile(
    asked: list[ProfileSettings], capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--aicore_num", "1", "--runs", "3", "--warm", "--one_thread_count", "--seed", "5"]
    assert _run("net.onnx", "--input_shape", "x:1,3,8,8", *options) == 0
    (settings,) = asked
    assert (settings.threads, settings.runs, settings.seed) == (1, 3, 5)
    assert (settings.warm, settings.sweeps, settings.fusion) == (True, False, False)
    assert settings.input_shape == "x:1,3,8,8"
    capsys.readouterr()


def test_trace_is_written_and_told(
    asked: list[ProfileSettings], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "net.trace.json"
    assert _run("net.onnx", "--trace", file, "--dry-run") == 0
    assert f"would write {file}" in capsys.readouterr().out
    assert not file.exists()
    assert _run("net.onnx", "--trace", file) == 0
    assert f"wrote {file}" in capsys.readouterr().out
    assert json.loads(file.read_text())["traceEvents"]


def test_page_is_written_and_told(
    asked: list[ProfileSettings], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "net.html"
    document = _document(["net.onnx", "--html", file], capsys)
    assert document["written"] == [str(file)]
    assert file.read_text().startswith("<!doctype html>")


# ---- two profiles ----


def _saved(profile: ProfiledModel, file: Path) -> Path:
    file.write_text(json.dumps({"schema": SCHEMA, **profile_to_json(profile), "written": []}))
    return file


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    after = make_profile(
        make_operator_profile(
            "kernel", median_us=50.0, op_names=("conv", "relu"), op_types=("Conv", "Relu")
        ),
        make_operator_profile("soft", op_type="Softmax", median_us=50.0, roofline_us=None),
        model="net_tune.om",
    )
    return _saved(_PROFILE, tmp_path / "a.json"), _saved(after, tmp_path / "b.json")


def test_comparison_shows_what_became_of_each_operator(
    files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run("--compare", *files) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [
        "before net.onnx: 160.0 us a run",
        "after  net_tune.om: 110.0 us a run, 1.455x as fast",
    ]
    row = next(line for line in lines if line.startswith("conv +1"))
    assert row.split() == ["conv", "+1", "Conv", "+", "Relu", "100.0", "50.0", "2.00"]


def test_comparison_as_a_document_fits_its_schema(
    files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    document = _document(["--compare", *files], capsys)
    assert document["speedup"] == 1.4545
    assert document["operators"][0] == {
        "op_names": ["conv", "relu"],
        "kind": "Conv + Relu",
        "before": ["c_nchwc"],
        "after": ["kernel"],
        "before_us": 100.0,
        "after_us": 50.0,
        "speedup": 2.0,
    }


def test_comparison_has_a_page_that_spares_the_profiles(
    files: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "both.html"
    assert _run("--compare", *files, "--html", page, "--dry-run") == 0
    assert not page.exists()
    assert _run("--compare", *files, "--html", page) == 0
    assert "What has changed" in page.read_text()
    assert _run("--compare", *files, "--html", files[0]) == 2
    assert "--html: wrong suffix" in capsys.readouterr().err
    assert files[0].read_text().startswith("{")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no model given"),
        (["net.onnx", "--compare", "a", "b"], "given together with a model"),
        (["--compare", "a", "b", "--trace", "t"], "is of one profile, not of two"),
        (["--compare", "a", "b"], "a: cannot be read"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert _run(*arguments) == 2
    assert message in capsys.readouterr().err


# ---- for real ----


def test_model_is_profiled_and_its_document_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run, "machine_peak", lambda *_: ProbedPeak(peak=PEAK))
    file = tmp_path / "net.onnx"
    file.write_bytes(conv_net().SerializeToString())
    document = _document([file, "--runs", "1", "--one_thread_count", "--fusion"], capsys)
    assert document["operators"]
    assert document["fusion"]
    assert {run["node"] for run in document["timeline"]} == {
        operator["name"] for operator in document["operators"]
    }
