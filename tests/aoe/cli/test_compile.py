"""`aoe compile`: a model and a bank in, an `.om` file out, and never a trial."""

from __future__ import annotations

import filecmp
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
from support.engine.models import conv_net, save_model
from support.engine.scripted_runs import ScriptedRuns
from support.faulty_system import FaultySystem

from aoe import load, tune
from aoe.bank.task_bank import TaskBank
from aoe.cli import tune_command
from aoe.cli.app import app, atc_main, main
from aoe.device.registry import resolve_target
from aoe.errors import OptionError
from aoe.execute.runner import Runner
from aoe.om.file import read_manifest
from aoe.tuner.mode import CacheMode, JobType, TuneSettings
from aoe.tuner.parts import EngineParts
from aoe.validation.comparing import ModelComparer
from aoebank import Bank


def command(**options: Any) -> None:
    """Run the command with options; what is wrong is raised."""
    words = [f"--{name}={value}" for name, value in options.items()]
    app(["compile", *words], standalone_mode=False)


class Asked(list[tuple[TuneSettings, Mapping[str, str]]]):
    """What runs were asked for."""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """Return what the command would have run."""
    found = Asked()
    monkeypatch.setattr(
        tune_command,
        "run_tuning",
        lambda settings, *, as_json, shown, env, engine: found.append((settings, env)),
    )
    return found


@pytest.mark.parametrize(("output", "file"), [("net", "net.om"), ("a.b.om", "a.b.om")])
def test_bank_is_looked_up_and_the_file_is_named_as_atc_names_it(
    asked: Asked, tmp_path: Path, output: str, file: str
) -> None:
    command(
        model=Path("net.onnx"),
        output=Path(output),
        op_bank_path=tmp_path,
        op_compiler_cache_mode=CacheMode.FORCE,
        op_compiler_cache_dir=Path("cache"),
    )
    ((settings, env),) = asked
    assert settings.lookup_only and settings.job_types == (JobType.OPAT,)
    assert settings.output == Path(file)
    assert (settings.cache_mode, settings.cache_dir) == (CacheMode.FORCE, Path("cache"))
    assert env["TUNE_BANK_PATH"] == str(tmp_path)


@pytest.mark.parametrize(
    ("mode", "jobs", "words"),
    [
        ("2", (JobType.OPAT,), "--aoe_mode=2: operator tuning (OPAT)"),
        ("1", (JobType.SGAT,), "--aoe_mode=opat is operator tuning"),
        ("1,2", (JobType.SGAT, JobType.OPAT), "subgraph tuning (SGAT), then operator tuning"),
        ("opat", (JobType.OPAT,), "operator tuning (OPAT)"),
    ],
)
def test_mode_tunes_first_and_its_reading_is_printed(
    asked: Asked,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    mode: str,
    jobs: tuple[JobType, ...],
    words: str,
) -> None:
    bank = tmp_path / "new"
    command(model=Path("net.onnx"), output=Path("net"), op_bank_path=bank, aoe_mode=mode)
    ((settings, _),) = asked
    assert not settings.lookup_only and settings.job_types == jobs
    assert words in capsys.readouterr().err
    assert bank.is_dir()


def test_variables_of_tuning_count_where_it_tunes(
    asked: Asked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPEAT_TUNE", "True")
    monkeypatch.setenv("AOE_ACCEPT_BUSY", "True")
    for mode in ({"aoe_mode": "2"}, {}):
        command(model=Path("net.onnx"), output=Path("net"), op_bank_path=tmp_path, **mode)
    assert [one.repeat_tune for one, _ in asked] == [True, False]
    assert [one.accept_busy for one, _ in asked] == [True, False]


@pytest.mark.parametrize("output", [".", "/", "a/..", "x/../.."])
def test_output_without_a_name_is_refused(asked: Asked, output: str) -> None:
    with pytest.raises(OptionError, match="--output: no name of a file"):
        command(model=Path("net.onnx"), output=output)
    assert asked == []


def test_directory_of_results_is_a_bank(
    asked: Asked, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bank").mkdir()
    command(model=Path("net.onnx"), output=Path("net"), op_compiler_cache_dir=tmp_path)
    assert asked[0][1]["TUNE_BANK_PATH"] == str(tmp_path / "bank")
    assert "its bank is used" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options",
    [
        {"aoe_mode": "4"},
        {"aoe_mode": "7"},
        {"op_bank_path": Path("a"), "mdl_bank_path": Path("b")},
    ],
)
def test_what_cannot_be_meant_is_refused(asked: Asked, options: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        command(model=Path("net.onnx"), output=Path("net"), **options)
    assert asked == []


def test_bank_that_may_not_be_written_is_looked_up(
    asked: Asked, tmp_path: Path, system: FaultySystem
) -> None:
    system.replace("os.access", lambda path, mode: not mode & os.W_OK)
    command(model=Path("net.onnx"), output=Path("net"), op_bank_path=tmp_path)
    ((settings, env),) = asked
    assert settings.lookup_only and env["TUNE_BANK_PATH"] == str(tmp_path)


@pytest.mark.parametrize("option", ["op_bank_path", "mdl_bank_path"])
def test_missing_bank_is_told_under_the_name_of_its_option(asked: Asked, option: str) -> None:
    with pytest.raises(OptionError, match=f"^--{option}: no such directory"):
        command(model=Path("net.onnx"), output=Path("net"), **{option: Path("/nowhere")})
    assert asked == []


def test_console_script_hints_at_its_own_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        atc_main(["--model=net.onnx", "--unknown"])
    assert ended.value.code == 2
    assert "hint: aoe-atc --help" in capsys.readouterr().err


def test_console_script_is_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        atc_main(["--help"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("Usage: aoe compile ")


def test_gradients_are_not_looked_up(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="only subgraphs and operators are looked up"):
        tune(tmp_path / "net.onnx", job_type="opat,gdat", lookup_only=True)


def test_subgraphs_are_looked_up_where_the_bank_has_some_for_the_target(
    asked: Asked, tmp_path: Path
) -> None:
    _, target = resolve_target(None, None)
    file = Bank(tmp_path).graph_file(target.soc_version)
    file.parent.mkdir(parents=True)
    file.write_text("")
    command(model=Path("net.onnx"), output=Path("net"), mdl_bank_path=tmp_path)
    assert asked[0][0].job_types == (JobType.SGAT, JobType.OPAT)
    command(
        model=Path("net.onnx"),
        output=Path("net"),
        mdl_bank_path=tmp_path,
        input_shape="x:1~4,8",
    )
    assert asked[1][0].job_types == (JobType.OPAT,), "subgraphs are tuned for fixed shapes"


class NotingRunner(Runner):
    """A worker whose tasks are noted, with those of its siblings."""

    tasks: ClassVar[list[str]] = []

    def call(self, task: str, **arguments: Any) -> Any:
        self.tasks.append(task)
        return super().call(task, **arguments)

    def sibling(self) -> NotingRunner:
        return NotingRunner(self.device, self.target, self.toolchain, self.turns)


@pytest.mark.parametrize("is_real", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_models_share_a_bank_and_nothing_is_tried_measured_or_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_real: bool
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("AOE_ACCEPT_BUSY", "True")
    model, bank = save_model(conv_net(), tmp_path / "net.onnx"), tmp_path / "bank"
    runs = ScriptedRuns(object_code=b"code")
    engine = EngineParts(open_runner=NotingRunner) if is_real else runs.engine
    tuned = tune(model, bank=bank, output=tmp_path / "out", trials=2, engine=engine)
    if tuned.om_file is None or not read_manifest(tuned.om_file).kernels:
        pytest.skip("no kernel was proven faster on this machine now")
    before = {file: file.read_bytes() for file in bank.rglob("*") if file.is_file()}
    NotingRunner.tasks.clear()
    runs.runners.clear()
    for wrong in ("once", "for_the_record", "without"):
        monkeypatch.delattr(ModelComparer, wrong)
    monkeypatch.delattr(TaskBank, "note")
    files = []
    for name in ("first.om", "second.om"):
        found = tune(model, bank=bank, output=tmp_path / name, lookup_only=True, engine=engine)
        assert found.speedup == 1.0
        files.append(tmp_path / name)
    assert filecmp.cmp(*files, shallow=False)
    tasks = [*NotingRunner.tasks, *(call.task for one in runs.runners for call in one.calls)]
    assert tasks
    comparing = {"compare_models", "compare_unusual"}
    assert set(tasks) <= {"check_schedule", "compile_kernels", *comparing}
    assert tasks.count("compile_kernels") <= 1  # the second time all of them are kept
    assert read_manifest(tmp_path / "first.om").kernels
    if is_real:
        load(tmp_path / "first.om")
    assert {file: file.read_bytes() for file in bank.rglob("*") if file.is_file()} == before


def test_nothing_but_the_tuned_model_is_left_unless_reports_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AOE_ACCEPT_BUSY", "True")
    monkeypatch.setenv("ASCEND_WORK_PATH", str(tmp_path / "work"))
    save_model(conv_net(), tmp_path / "net.onnx")
    (tmp_path / "bank").mkdir()
    line = f"compile --model={tmp_path}/net.onnx --op_bank_path={tmp_path}/bank"
    for options in ("--output={0}/a/net", "--output={0}/b/net --reports={0}/reports"):
        words = f"{line} {options.format(tmp_path)}".split()
        with pytest.raises(SystemExit) as ended:
            main(words, engine=ScriptedRuns().engine)
        assert ended.value.code == 0
    for folder in ("a", "b"):
        assert [file.name for file in (tmp_path / folder).iterdir()] == ["net.om"]
    reports = {file.name.split("_")[0] for file in (tmp_path / "reports").iterdir()}
    assert {"summary.json", "aoe"} <= reports
    assert not (tmp_path / "work").exists()


def test_results_without_a_bank_are_read_from_their_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AOE_ACCEPT_BUSY", "True")
    model, out = save_model(conv_net(), tmp_path / "net.onnx"), tmp_path / "out"
    engine = ScriptedRuns().engine
    tune(model, bank=tmp_path / "bank", output=out, trials=2, engine=engine)
    shutil.rmtree(out / "bank", ignore_errors=True)
    line = f"compile --model={model} --output={tmp_path}/net --op_compiler_cache_dir={out}"
    with pytest.raises(SystemExit) as ended:
        main(line.split(), engine=engine)
    assert ended.value.code == 0
    shown = capsys.readouterr()
    assert f"bank: the reports in {out}" in shown.out
    for words in ("looking up operators (OPAT) of net.onnx", "2 operators to look up\n"):
        assert words in shown.err
    assert "tun" not in shown.err.replace(str(tmp_path), "")
    shutil.rmtree(out / "op_tuning")
    with pytest.raises(OptionError, match=r"^--op_compiler_cache_dir: a directory of results that"):
        command(model=model, output=Path("net"), op_compiler_cache_dir=out)


def test_options_of_tuning_are_taken(asked: Asked, tmp_path: Path) -> None:
    log = tmp_path / "shapes.csv"
    log.write_text("3,x:1,3\n1,x:2,3\n")
    mode = "allow_fp32_to_bf16"
    command(
        model=Path("net.onnx"),
        output=Path("net"),
        shapes_from=log,
        aicore_num=1,
        precision_mode=mode,
    )
    ((settings, _),) = asked
    assert settings.shape_cases == ("x:1,3", "x:2,3")
    assert (settings.core_num, settings.precision.mode.value) == (1, mode)


@pytest.mark.parametrize(
    "words",
    [
        ["--enable_scope_fusion_passes=ScopePass1,ScopePass2"],
        ["--enable_small_channel", "--log=error"],
        ["-enable-small-channel", "1", "--mode=0"],
        ["--deterministic=0", "--external_weight", "1"],
    ],
)
def test_options_of_atc_that_change_nothing_are_passed_over(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        atc_main([*words, "--model=/nowhere/net.onnx", "--output=net"])
    told = capsys.readouterr().err
    assert ended.value.code == 3 and "/nowhere/net.onnx" in told  # nothing else is wrong
    assert "changes nothing here" in told


def test_option_of_atc_that_would_change_the_result_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        atc_main(["--model=net.onnx", "--output=net", "--mode=1"])
    assert ended.value.code == 2
    assert "--mode: of CANN's AOE, not supported here" in capsys.readouterr().err


def test_profiles_of_atc_become_several_shapes(asked: Asked) -> None:
    command(
        model=Path("net.onnx"),
        output=Path("net"),
        input_shape="x:-1,3",
        dynamic_batch_size="1,2",
    )
    ((settings, _),) = asked
    assert settings.shape_cases == ("x:1,3", "x:2,3") and settings.input_shape is None
