"""A run's checks: everything that can be known to go wrong is found before anything is measured."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from support.engine.environments import run_environment
from support.engine.fakes import RecordingProgress, make_target
from support.engine.models import chain_model, save_model

from aoe.device.registry import default_device
from aoe.errors import (
    AoeError,
    BuildError,
    CompilerNotFoundError,
    ModelImportError,
    OptionError,
    OutputError,
    RunError,
    TargetError,
)
from aoe.folders.scratch import OWNER
from aoe.ort.inputs import parse_inputs
from aoe.runs.run import tune_with
from aoe.target import Target
from aoe.tuner.mode import JobType, ModeContext, TuneSettings
from aoe.tuner.parts import EngineParts
from aoe.tuner.precision.settings import parse_precision
from aoe.tuner.tune_context import result_places
from aoebank import BankNotFoundError

_NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


def _began(*_: object) -> Any:
    """Stand in for the start of a worker: all checks are over."""
    raise AssertionError("the run began")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return a folder with a model and a bank."""
    save_model(chain_model(["Exp"]), tmp_path / "net.onnx")
    (tmp_path / "bank").mkdir()
    return tmp_path


def _tune(
    place: Path,
    env: dict[str, str] | None = None,
    progress: RecordingProgress | None = None,
    target: Target | None = None,
    **settings: Any,
) -> None:
    facts: dict[str, Any] = {"model": place / "net.onnx", "output": place / "out"}
    base = run_environment(place / "bank")
    known = (default_device(), target)
    parts: dict[str, Any] = {"resolve_target": lambda *_: known} if target is not None else {}
    tune_with(
        TuneSettings(**(facts | settings)),
        env=base | (env or {}),
        cwd=place,
        progress=progress or RecordingProgress(),
        now=_NOW,
        engine=EngineParts(open_runner=_began, **parts),
    )


def _assert_untouched(place: Path) -> None:
    assert not (place / "out").exists()
    assert list((place / "bank").iterdir()) == []


@pytest.mark.parametrize("caveat", ["", "the CPU does not say what it is"])
def test_a_name_that_is_a_guess_is_told(place: Path, caveat: str) -> None:
    progress = RecordingProgress()
    with pytest.raises(AssertionError, match="the run began"):
        _tune(place, progress=progress, target=make_target(caveat=caveat))
    told = [text for text in progress.texts("step") if text.startswith("named ")]
    assert told == ([f"named x86-64-test after its features: {caveat}"] if caveat else [])


def test_cores_that_are_not_there_are_told(place: Path) -> None:
    progress = RecordingProgress()
    with pytest.raises(AssertionError, match="the run began"):
        _tune(place, core_num=100_000, progress=progress)
    (told,) = progress.texts("warn")
    assert "threads instead of 100000" in told


def test_what_a_killed_run_left_is_removed_and_told(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(place))
    (place / "aoe_run_old").mkdir()
    (place / "aoe_run_old" / OWNER).touch()
    progress = RecordingProgress()
    with pytest.raises(AssertionError, match="the run began"):
        _tune(place, progress=progress)
    told = f"removed {place / 'aoe_run_old'}, left by a run that was killed"
    assert told in progress.texts("step")
    assert not list(place.glob("aoe_*"))


def test_what_a_model_seldom_means_is_told(place: Path) -> None:
    model = chain_model(["PRelu"])
    model.graph.node[0].input.append("slope")
    model.graph.initializer.append(numpy_helper.from_array(np.ones(1, np.float32), "slope"))
    model.graph.input.append(helper.make_tensor_value_info("slope", TensorProto.FLOAT, [1]))
    progress = RecordingProgress()
    with pytest.raises(AssertionError, match="the run began"):
        _tune(place, model=save_model(model, place / "old.onnx"), progress=progress)
    (told,) = progress.texts("warn")
    assert "weight slope is an input too" in told


@pytest.mark.parametrize(
    ("settings", "kind", "words"),
    [
        ({"framework": 1}, OptionError, "MindSpore models cannot be read"),
        ({"framework": 9}, OptionError, "unknown framework"),
        ({"soc_version": "Ascend910B1"}, TargetError, "needs a CANN toolkit"),
        ({"soc_version": "Cortex-A53"}, TargetError, "another target"),
        ({"input_shape": "x"}, OptionError, "--input_shape"),
        ({"input_shape": "z:1"}, ModelImportError, "no such input"),
        ({"inputs": parse_inputs(["z:gone.npy"])}, OptionError, "--input: .*no such input"),
        ({"inputs": parse_inputs(["gone.npy"])}, RunError, r"gone\.npy: no such file"),
        ({"seed": -1}, OptionError, "--seed: no seed .*got -1"),
        ({"seed": 2**32}, OptionError, "--seed: no seed"),
        ({"core_num": 0}, OptionError, "--aicore_num: no number of cores"),
        ({"search": "annealing"}, OptionError, "--search: unknown search"),
        ({"model": Path("gone.onnx")}, ModelImportError, "no such file"),
    ],
)
def test_bad_option_is_named_and_nothing_is_touched(
    place: Path, settings: dict[str, Any], kind: type[AoeError], words: str
) -> None:
    with pytest.raises(kind, match=words):
        _tune(place, **settings)
    _assert_untouched(place)


def test_bank_that_does_not_exist_is_an_error(place: Path) -> None:
    with pytest.raises(BankNotFoundError, match="TUNE_BANK_PATH"):
        _tune(place, {"TUNE_BANK_PATH": str(place / "gone")})
    _assert_untouched(place)


def test_compiler_that_is_not_there_is_an_error(place: Path) -> None:
    with pytest.raises(CompilerNotFoundError, match="CC"):
        _tune(place, {"CC": "no-such-compiler"})
    _assert_untouched(place)


def test_compiler_that_cannot_link_is_an_error(place: Path) -> None:
    with pytest.raises(BuildError, match="C compiler: "):
        _tune(place, {"CC": "false"})
    _assert_untouched(place)


def test_output_in_a_file_is_an_error(place: Path) -> None:
    (place / "file").write_text("")
    for output in (place / "file" / "deep", place / "file" / "x.om"):
        with pytest.raises(OutputError, match="cannot be created") as caught:
            _tune(place, output=output)
        assert "--output" in str(caught.value.hint)


def test_output_without_permission_is_an_error(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.access
    monkeypatch.setattr(
        os, "access", lambda path, mode: Path(path).name != "out" and real(path, mode)
    )
    with pytest.raises(OutputError, match="no permission to write there"):
        _tune(place)


def test_work_path_that_is_a_file_is_an_error(place: Path) -> None:
    with pytest.raises(OutputError, match="ASCEND_WORK_PATH"):
        _tune(place, {"ASCEND_WORK_PATH": str(place / "net.onnx")}, output=None)


# ---- where results go ----


def _places(place: Path, env: dict[str, str], output: Path | None) -> tuple[Path, Path]:
    """Return the tuned model and the result file of a run."""
    context = ModeContext(
        settings=TuneSettings(model=place / "net.onnx", output=output),
        env=env,
        cwd=place,
        progress=RecordingProgress(),
        now=_NOW,
    )
    places = result_places(context, "net", JobType.OPAT)
    return places.om_file, places.result_file


def test_workspace_has_no_folder_before_there_is_a_result(place: Path) -> None:
    om, _ = _places(place, {}, None)
    assert om.parent == place / "aoe_workspace/net_20260102030405678/tunespace/result"
    assert not (place / "aoe_workspace").exists()


def test_output_directory_takes_everything(place: Path) -> None:
    om, result = _places(place, {}, place / "out")
    assert om == place / "out" / "net_tune.om"
    assert result == place / "out" / f"aoe_result_opat_20260102030405678_pid{os.getpid()}.json"


def test_work_path_takes_the_result_file_whatever_the_output(place: Path) -> None:
    env = {"ASCEND_WORK_PATH": str(place / "work")}
    om, result = _places(place, env, place / "out")
    assert om == place / "out" / "net_tune.om"
    assert result.parent == place / "work" / "aoe_data"


@pytest.mark.parametrize("name", ["result.txt", "other.onnx", "Out.JSON"])
def test_output_that_looks_like_another_file_is_refused(place: Path, name: str) -> None:
    with pytest.raises(OptionError, match="neither a directory nor"):
        _places(place, {}, Path(name))
    assert not (place / name).exists()
    (place / name).mkdir()
    om, _ = _places(place, {}, Path(name))
    assert om == place / name / "net_tune.om"


def test_output_with_a_dot_in_its_name_is_a_directory(place: Path) -> None:
    om, _ = _places(place, {}, Path("out.v1"))
    assert om == place / "out.v1" / "net_tune.om"


def test_output_file_names_the_model_itself(place: Path) -> None:
    om, result = _places(place, {}, Path("new/fast.om"))
    assert om == place / "new" / "fast.om"
    assert result.parent == place / "new"


def test_without_output_aoe_s_workspace_is_used(place: Path) -> None:
    om, result = _places(place, {"ASCEND_WORK_PATH": str(place / "work")}, None)
    root = place / "work" / "aoe_data"
    name = "net_20260102030405678"
    assert om == root / "aoe_workspace" / name / "tunespace" / "result" / f"{name}_tune.om"
    assert result.parent == root


def test_without_output_and_work_path_it_is_here(place: Path) -> None:
    om, result = _places(place, {}, None)
    assert om.is_relative_to(place / "aoe_workspace")
    assert result.parent == place


def test_precision_the_cpu_has_not_is_refused_before_the_model_is_read(
    place: Path,
) -> None:
    (place / "net.onnx").write_bytes(b"no model")
    with pytest.raises(TargetError, match="this CPU has no bfloat16 instructions"):
        _tune(place, precision=parse_precision("allow_mix_precision_bf16"), target=make_target())


def test_calibration_that_does_not_fit_the_model_is_refused(place: Path) -> None:
    sets = parse_inputs([f"z:{place / 'z.npy'}"])
    np.save(place / "z.npy", np.zeros(3, np.float32))
    precision = parse_precision(accuracy="cosine>=0.9", calibration=sets)
    with pytest.raises(OptionError, match="the model has no such input"):
        _tune(place, precision=precision)
