"""Whether a run would stop is known before it begins, with what to do."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
from support.documents import find_faults
from support.engine.cpu import CPU

from aoe.device.protocol import CheckUp, Soundness
from aoe.device.registry import default_device
from aoe.folders.turns import Turns
from aoe.measurement import CpuUse, MachineLoad, Measurement, Outcome, estimate_speedup
from aoe.report.doctor import DoctorReport
from aoe.runs.configuration.resolving import configure
from aoe.runs.doctor.noise import check_noise, noise_of
from aoe.runs.doctor.run import (
    Examination,
    check_bank,
    check_cache,
    check_disk,
    check_versions,
    examine,
)
from aoebank import emit


def _examined(folder: Path, options: Mapping[str, object] = {}, **env: str) -> Examination:
    whole = {"PATH": os.environ["PATH"], "TUNE_BANK_PATH": str(folder), "TMPDIR": str(folder)}
    whole |= {"AOE_LOCK_PATH": str(folder / "locks"), **env}
    found = configure(options, env=whole, cwd=folder)
    return examine(found, env=whole, cwd=folder)


def _check(examination: Examination, name: str) -> CheckUp:
    (check,) = (one for one in examination.checks if one.name == name)
    return check


def test_sound_machine_is_ready_and_everything_was_looked_at(tmp_path: Path) -> None:
    examination = _examined(tmp_path)
    assert examination.is_ready
    names = [check.name for check in examination.checks]
    assert names == [
        *("settings", "versions", "bank", "disk for results", "disk for scratch files"),
        *("cache", "CANN"),
        *("target", "compiler", "affinity", "cgroup quota", "governor", "load", "memory"),
        *("noise", "locks"),
    ]
    document = {"schema": "aoe.doctor/1", **DoctorReport(examination=examination).document()}
    assert find_faults(document) == []
    assert DoctorReport(examination=examination).exit_code == 0


@pytest.mark.parametrize(
    ("env", "name", "advice"),
    [
        ({"CC": "no-such-compiler"}, "compiler", "install"),
        ({"TUNE_BANK_PATH": "/no/such/bank"}, "bank", "mkdir"),
        ({"TE_PARALLEL_COMPILER": "33"}, "settings", ""),
    ],
)
def test_what_would_stop_a_run_is_said_with_a_way_out_and_the_rest_is_looked_at(
    env: dict[str, str], name: str, advice: str, tmp_path: Path
) -> None:
    examination = _examined(tmp_path, **env)
    check = _check(examination, name)
    assert check.verdict is Soundness.STOPS and advice in check.advice
    assert _check(examination, "noise")
    report = DoctorReport(examination=examination)
    assert report.exit_code == 1 and not report.document()["ready"]


@pytest.mark.parametrize(("doubts", "words"), [(1, "1 thing may"), (2, "2 things may")])
def test_doubts_are_counted(doubts: int, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    check = CheckUp(name="load", found="busy", verdict=Soundness.DOUBTFUL)
    report = DoctorReport(examination=Examination(settings=(), checks=(check,) * doubts))
    assert emit(report, as_json=False) == 0
    assert words in capsys.readouterr().out


def test_device_that_is_not_here_stops_an_option_and_not_a_variable(tmp_path: Path) -> None:
    check = _check(_examined(tmp_path, {"device": "77"}), "device")
    assert check.verdict is Soundness.STOPS and "--device" in check.advice
    check = _check(_examined(tmp_path, ASCEND_DEVICE_ID="77"), "device")
    is_alone = len(default_device().numbers()) == 1
    assert check.verdict is (Soundness.DOUBTFUL if is_alone else Soundness.STOPS)
    assert "ASCEND_DEVICE_ID" in check.advice


def test_sources_of_settings_are_told(tmp_path: Path) -> None:
    document = DoctorReport(
        examination=_examined(tmp_path, {"device": "0"}, TE_PARALLEL_COMPILER="3")
    ).document()
    settings = document["settings"]
    assert isinstance(settings, list)
    told = {one["name"]: (one["value"], one["source"], one["place"]) for one in settings}
    assert told["device"] == ("0", "option", "--device")
    assert told["compile_processes"] == ("3", "environment", "TE_PARALLEL_COMPILER")
    assert told["trials"] == ("24", "default", "")


def test_engine_that_is_not_installed_stops_a_run() -> None:
    def version_of(name: str) -> str:
        if name == "halide":
            raise PackageNotFoundError(name)
        return "1"

    (check,) = check_versions(version_of)
    assert check.verdict is Soundness.STOPS
    assert "not installed: halide" in check.found and "aoebank[engine]" in check.advice


@pytest.mark.parametrize(
    ("free_gib", "verdict"),
    [(50, Soundness.GOOD), (1, Soundness.DOUBTFUL), (0.1, Soundness.STOPS)],
)
def test_room_is_needed(free_gib: float, verdict: Soundness, tmp_path: Path) -> None:
    check = check_disk("disk", tmp_path / "not" / "made", free_bytes=int(free_gib * 2**30))
    assert check.verdict is verdict and str(tmp_path) in check.found


def test_place_below_a_file_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert check_disk("disk", tmp_path / "file" / "out").verdict is Soundness.STOPS


def test_cache_that_others_can_write_to_is_told_of(tmp_path: Path) -> None:
    env = {"XDG_CACHE_HOME": str(tmp_path)}
    assert check_cache(env).verdict is Soundness.GOOD
    (tmp_path / "aoe").mkdir()
    (tmp_path / "aoe").chmod(0o777)
    check = check_cache(env)
    assert check.verdict is Soundness.DOUBTFUL
    assert f"{tmp_path / 'aoe'} can be written to by others (got mode 777" in check.found
    assert "chmod go-w" in check.advice


def test_bank_that_will_be_made_is_no_fault(tmp_path: Path) -> None:
    check = check_bank({"HOME": str(tmp_path)}, tmp_path)
    assert check.verdict is Soundness.GOOD and check.found.endswith("made by the first run")


def _noise(given_share: float, spread: float) -> CheckUp:
    use = CpuUse(cpu_s=given_share, waited_s=1 - given_share)
    samples = tuple(100.0 * (1 + spread * (-1) ** n) for n in range(20))
    measurement = Measurement(
        outcome=Outcome.CORRECT,
        baseline_us=(100.0,) * 20,
        tuned_us=samples,
        load=MachineLoad(use=use),
    )
    return noise_of(measurement, estimate_speedup(measurement))


def test_noise_of_a_busy_or_a_wobbling_machine_is_doubtful() -> None:
    assert _noise(1.0, 0.001).verdict is Soundness.GOOD
    assert "machine is busy" in _noise(0.5, 0.001).advice
    assert "fix the clock" in _noise(1.0, 0.1).advice


def test_noise_is_not_measured_beside_another_run(
    tmp_path: Path,
) -> None:
    with Turns(tmp_path, ["cpu0"]).measuring():
        check = check_noise(CPU, Turns(tmp_path, ["cpu0"]), wait_s=0.0)
    assert check.verdict is Soundness.DOUBTFUL and f"pid {os.getpid()}" in check.found
