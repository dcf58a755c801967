"""`aoe.tune`: every option of a run is a parameter, and every kind of model reaches its mode."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from google.protobuf.message import EncodeError  # type: ignore[import-untyped]
from support.engine.fakes import RecordingProgress
from support.engine.models import chain_model, save_model
from support.engine.scripted_runs import ScriptedRuns, blocks_net
from support.engine.stand_in_modes import StandInMode, StandInResult

import aoe
from aoe import TuneResult
from aoe.device.registry import default_device
from aoe.errors import ModelImportError, OptionError, TurnTimeoutError
from aoe.ort.inputs import read_input_sets
from aoe.runs.configuration.options import SETTINGS
from aoe.tuner.mode import JobType, Mode, ModeContext, TuneSettings
from aoe.tuner.parts import EngineParts
from aoe.tuner.progress import ContinuedProgress
from aoe.tuner.registry import KINDS


class Log(list[tuple[str, ModeContext]]):
    """What the modes of the runs were given; nothing is tuned."""

    def tune(self, *model: Any, **options: Any) -> TuneResult:
        """Tune with modes that only note what they are given."""
        return aoe.tune(*model, **options, engine=EngineParts(modes=self.modes))

    @property
    def modes(self) -> dict[JobType, Mode]:
        """The modes, by job type."""
        return {job: self._mode(job) for job in KINDS}

    def _mode(self, job: JobType) -> Mode:
        def run(context: ModeContext) -> None:
            model = context.settings.model
            assert not isinstance(model, Path) or model.is_file()  # while the mode runs
            self.append((f"run {job}", context))

        return StandInMode(
            run,
            StandInResult(tuning_name=job),
            lambda context: self.append((f"check {job}", context)),
        )


@pytest.fixture
def log() -> Log:
    """Return what the modes of the runs were given; nothing is tuned."""
    return Log()


def test_parameters_have_the_names_of_settings_and_options() -> None:
    parameters = set(inspect.signature(aoe.tune).parameters)
    named = {name for name, row in SETTINGS.items() if row.option or row.key or row.ini_key}
    assert named - parameters == {"work_path"}


def test_former_names_of_parameters_are_taken(log: Log, tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(b"")
    former: dict[str, Any] = {"core_num": 1, "tuning_time_limit_s": 60.0, "batch": 2}
    log.tune(tmp_path / "net.onnx", **former)
    settings = log[-1][1].settings
    assert (settings.core_num, settings.tuning_time_limit_s, settings.batch) == (1, 60.0, 2)
    with pytest.raises(OptionError, match=r"^core_num: given together with aicore_num"):
        log.tune(tmp_path / "net.onnx", core_num=1, aicore_num=2)


def test_model_in_memory_is_refused_without_the_name_of_a_file_nobody_wrote(
    tmp_path: Path,
) -> None:
    model = chain_model(["Exp"])
    model.graph.node[0].op_type = "Concat"  # which needs an axis
    with pytest.raises(ModelImportError, match=r"^model: not a valid model: .*axis") as caught:
        aoe.tune(model, bank=tmp_path, output=tmp_path / "out")
    assert "/aoe_" not in str(caught.value)


def test_chosen_operators_reach_operator_tuning(log: Log, tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(b"")
    (tmp_path / "ops.json").write_text('{"tune_ops_type": ["Conv"]}')
    given: dict[str, Any] = {"tune_ops_file": tmp_path / "ops.json", "bank": tmp_path}
    log.tune(tmp_path / "net.onnx", job_type="1,2", **given)
    choice = log[-1][1].settings.tune_ops
    assert choice is not None and choice.types == ("Conv",)
    with pytest.raises(OptionError, match=r"operator tuning only \(got sgat"):
        log.tune(tmp_path / "net.onnx", job_type=1, **given)


def test_options_of_precision_reach_the_mode(log: Log, tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(b"")
    lists = tmp_path / "lists.json"
    lists.write_text('{"black-list": {"to-add": ["Gemm"]}}')
    log.tune(
        tmp_path / "net.onnx",
        precision_mode="allow_mix_precision_bf16",
        modify_mixlist=lists,
        accuracy="max_relative<=0.02",
        calibration={"x": np.zeros(3, np.float32)},
    )
    settings = log[-1][1].settings.precision
    assert settings.mode.value == "allow_mix_precision_bf16"
    assert settings.lists.listings == {"Gemm": "black-list"}
    assert str(settings.constraint) == "max_relative <= 0.02"
    assert [given.place for given in settings.calibration] == ["inputs[0]"]
    log.tune(tmp_path / "net.onnx", strict_fp32=True)
    assert log[-1][1].settings.precision.strict
    assert log[-1][1].settings.precision.constraint is None


def test_every_parameter_reaches_the_mode(log: Log, tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(b"")
    given: dict[str, Any] = {
        "soc_version": "host",
        "core_num": 3,
        "repeat_tune": True,
        "accept_busy": False,
        "trials": 7,
        "kernel_memory_mib": 64,
        "search": "random",
        "seed": 9,
        "tuning_time_limit_s": 60.0,
        "framework": None,
    }
    log.tune(
        tmp_path / "net.onnx",
        input_shape={"x:0": (1, 3), "y": (2,)},
        weight="w.caffemodel",
        output="out",
        bank=tmp_path / "new" / "bank",
        **given,
    )
    _, context = log[-1]
    settings = context.settings
    assert {name: getattr(settings, name) for name in given} == given
    assert settings.input_shape == "x:0:1,3;y:2"
    assert (settings.weight, settings.output) == (Path("w.caffemodel"), Path("out"))
    assert context.env["TUNE_BANK_PATH"] == str(tmp_path / "new" / "bank")
    assert (tmp_path / "new" / "bank").is_dir()


def test_variable_decides_about_a_busy_machine_unless_it_is_said(
    log: Log, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    model = tmp_path / "net.onnx"
    model.write_bytes(b"")
    monkeypatch.delenv("AOE_ACCEPT_BUSY")
    log.tune(model)
    assert not log[-1][1].settings.accept_busy
    monkeypatch.setenv("AOE_ACCEPT_BUSY", "True")
    log.tune(model)
    assert log[-1][1].settings.accept_busy


def test_model_in_memory_that_no_file_can_hold_is_refused(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_large(model: onnx.ModelProto, **_: object) -> bytes:
        raise EncodeError("over 2 GiB")

    monkeypatch.setattr(onnx.ModelProto, "SerializeToString", too_large)
    with pytest.raises(ModelImportError, match=r"model: .*too large"):
        log.tune(chain_model(["Exp"]))
    assert not log


@pytest.mark.parametrize("model", [5, None, object()])
def test_what_is_no_model_is_refused_as_an_argument(log: Log, model: Any) -> None:
    with pytest.raises(OptionError, match=r"^model: neither a path nor a model \(got .*, expected"):
        log.tune(model)


def test_device_variable_of_an_npu_does_not_end_a_run(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "net.onnx").write_bytes(b"")
    progress = RecordingProgress()
    monkeypatch.setenv("ASCEND_DEVICE_ID", "77")
    if len(default_device().numbers()) > 1:
        with pytest.raises(OptionError, match=r"^ASCEND_DEVICE_ID: no such device"):
            log.tune(tmp_path / "net.onnx")
        return
    log.tune(tmp_path / "net.onnx", progress=progress)
    assert log[-1][1].settings.device_id is None
    assert [text.split()[0] for text in progress.texts("warn")] == ["ASCEND_DEVICE_ID=77"]
    with pytest.raises(OptionError, match=r"^--device: no such device"):
        log.tune(tmp_path / "net.onnx", device=77)


def test_model_in_memory_is_a_file_while_the_run_goes_on(
    log: Log,
) -> None:
    model = chain_model(["Exp"])
    model.graph.name = "my net/1"
    log.tune(model)
    file = log[-1][1].settings.model
    assert isinstance(file, Path)
    assert file.name == "my_net_1.onnx" and not file.exists()


def test_arrays_in_memory_are_files_while_the_run_goes_on(log: Log, tmp_path: Path) -> None:
    log.tune(chain_model(["Exp"]), inputs={"x": [1.0, 2.0]})
    (given,) = log[-1][1].settings.inputs
    assert list(given.files) == ["x"]
    assert not given.files["x"].path.exists()
    np.save(tmp_path / "x.npy", np.ones(2))
    log.tune(chain_model(["Exp"]), inputs=tmp_path)
    assert log[-1][1].settings.inputs == read_input_sets(tmp_path, "inputs")


def test_each_stage_has_its_own_time(log: Log) -> None:
    log.tune(chain_model(["Exp"]), stage=["sgat:28800", "opat:3600"])
    limits = {step: context.settings.tuning_time_limit_s for step, context in log}
    assert (limits["run sgat"], limits["run opat"]) == (28800.0, 3600.0)
    log.tune(chain_model(["Exp"]), stage="sgat:5,opat")
    limits = {step: context.settings.tuning_time_limit_s for step, context in log}
    assert (limits["run sgat"], limits["run opat"]) == (5.0, None)


def test_modes_of_a_list_share_the_time_of_the_run(log: Log) -> None:
    log.tune(chain_model(["Exp"]), job_type="sgat,opat", tuning_time_limit_s=600)
    limits = {step: context.settings.tuning_time_limit_s for step, context in log}
    assert limits["run sgat"] == pytest.approx(300, abs=60)  # the first takes half, and no more
    assert limits["run opat"] == pytest.approx(600, abs=60)  # which took no time here


@pytest.mark.parametrize("late", [{"sgat"}, {"opat"}, {"sgat", "opat"}])
def test_mode_that_has_no_turn_in_its_time_leaves_what_the_other_has_done(
    log: Log, late: set[str]
) -> None:
    def wait(context: ModeContext) -> None:
        raise TurnTimeoutError("time limit", "it was over before the cores were free")

    modes: dict[JobType, Mode] = {
        job: StandInMode(wait) if job in late else mode for job, mode in log.modes.items()
    }
    progress = RecordingProgress()
    asked: dict[str, Any] = {"job_type": "sgat,opat", "tuning_time_limit": 60, "progress": progress}
    asked["engine"] = EngineParts(modes=modes)
    if len(late) > 1:
        with pytest.raises(TurnTimeoutError):
            aoe.tune(chain_model(["Exp"]), **asked)
        return
    found = aoe.tune(chain_model(["Exp"]), **asked)
    assert [mode.tuning_name for mode in found.modes] == [*({"sgat", "opat"} - late)]
    (told,) = progress.texts("warn")
    assert "is left out: time limit: it was over before the cores were free" in told


def test_all_modes_are_asked_before_the_first_one_runs(
    log: Log,
) -> None:
    tuned = log.tune(chain_model(["Exp"]), job_type="sgat,opat")
    assert [step for step, _ in log] == ["check sgat", "check opat", "run sgat", "run opat"]
    assert [mode.tuning_name for mode in tuned.modes] == ["sgat", "opat"]


def test_training_runs_alone_and_operators_need_a_model() -> None:
    class Program:
        name = "train.py"

        def run(self, tune: Any) -> Any:
            raise AssertionError("it runs")

    with pytest.raises(OptionError, match=r"operator tuning \(OPAT\) needs a model file"):
        aoe.tune(Program(), job_type=2)
    with pytest.raises(OptionError, match="needs a training script and runs alone") as refused:
        aoe.tune("net.onnx", job_type="2,4")
    assert refused.value.hint == "aoe --job_type=4 --script TRAIN.py"


@pytest.mark.parametrize(
    ("job_type", "command"),
    [
        ("2,4", "torchrun --nproc-per-node=2 -m aoe --job_type=2,4 --script 'my train.py' -n 3"),
        (2, "aoe --job_type=2 --script 'my train.py' -n 3"),
    ],
)
def test_training_that_python_cannot_tune_is_hinted_at_with_its_command(
    job_type: str | int, command: str
) -> None:
    class Program:
        name, path, arguments = "my train.py", Path("my train.py"), ("-n", "3")

        def run(self, tune: Any) -> Any:
            raise AssertionError("it runs")

    with pytest.raises(OptionError) as refused:
        aoe.tune(Program(), job_type=job_type)
    assert refused.value.hint == command


def test_script_given_as_a_model_is_hinted_at_with_its_command() -> None:
    with pytest.raises(OptionError) as refused:
        aoe.tune(Path("code/train.py"), job_type="2,4")
    hint = "torchrun --nproc-per-node=2 -m aoe --job_type=2,4 --script code/train.py"
    assert refused.value.hint == hint


def test_result_speaks_for_its_last_mode_and_the_model_it_made() -> None:
    tuned = TuneResult(
        modes=(
            StandInResult(tuning_name="sgat", om_file=Path("first.om"), speedup=1.2),
            StandInResult(tuning_name="opat", om_file=Path("second.om"), speedup=1.5),
        )
    )
    assert (tuned.om_file, tuned.speedup, tuned.bank) == (Path("second.om"), 1.5, Path("bank"))
    assert tuned.get(StandInResult).tuning_name == "sgat"
    with pytest.raises(LookupError, match="TuneSettings"):
        tuned.get(TuneSettings)


def test_a_function_is_told_by_events(log: Log) -> None:
    told: list[aoe.ProgressEvent] = []
    log.tune(chain_model(["Exp"]), progress=told.append)
    progress = log[-1][1].progress
    progress.step("begin")
    progress.detail("why")
    progress.plan(3)
    progress.trial("conv", 2, 8, None)
    progress.trial("conv", 3, 8, 1.5)
    progress.operator("conv", "1.50x")
    progress.warn("busy")
    assert [(event.kind.value, event.text) for event in told] == [
        ("step", "begin"),
        ("detail", "why"),
        ("plan", "3 operators to tune"),
        ("trial", "conv: trial 2 of 8"),
        ("trial", "conv: trial 3 of 8, best 1.50x"),
        ("operator", "conv: 1.50x"),
        ("warning", "busy"),
    ]
    assert (told[2].total, told[4].done, told[4].total, told[4].speedup) == (3, 3, 8, 1.5)
    assert (told[4].op_name, told[5].op_name) == ("conv", "conv")


def test_an_object_with_the_methods_is_told_itself(log: Log) -> None:
    recording = RecordingProgress()
    log.tune(chain_model(["Exp"]), progress=recording)
    told = log[-1][1].progress
    assert isinstance(told, ContinuedProgress) and told.inner is recording


def test_progress_that_cannot_be_told_is_refused(log: Log) -> None:
    with pytest.raises(OptionError, match=r"progress: nothing that can be told \(got int"):
        log.tune(chain_model(["Exp"]), progress=3)  # type: ignore[arg-type]
    assert not log


def test_cache_that_others_can_write_to_is_told_of_and_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[aoe.ProgressEvent] = []
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    monkeypatch.setenv("XDG_CACHE_HOME", str(shared))
    file = save_model(blocks_net([3]), tmp_path / "net.onnx")
    places = {"output": tmp_path / "out", "bank": tmp_path / "bank"}
    ScriptedRuns().tune(file, **places, progress=told.append)
    warnings = [event.text for event in told if event.kind.value == "warning"]
    assert any(f"{shared} can be written to by others" in text for text in warnings), warnings
    assert [*shared.iterdir()] == []
