"""`aoe.tensorflow`: graphs of a script are tuned when they are first computed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import support.tensorflow.stand_in as stand_in
from support.scripted_command import ScriptedCommand
from support.tensorflow.real import NEEDED, tensorflow_python

import aoe.tensorflow
from aoe.errors import EngineNotInstalledError, OptionError, OutputError
from aoe.online.command import run_aoe

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def tf(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a stand-in for TensorFlow."""
    return stand_in.install(monkeypatch)


@pytest.fixture
def command(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> ScriptedCommand:
    """Return what stands in for `aoe`."""
    return ScriptedCommand(tmp_path_factory.mktemp("aoe") / "command", monkeypatch)


def _rows(count: int) -> Any:
    return np.zeros((count, 4), np.float32)


# ---- what is tuned ----


def test_model_that_trains_is_tuned_in_its_inference_form_for_its_batch(
    tf: Any,
    command: ScriptedCommand,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("AOE_TENSORFLOW_PYTHON", raising=False)
    model = stand_in.Model()
    with aoe.tensorflow.enable(work_path=tmp_path, trials=3):
        for _ in range(2):
            model.fit(_rows(10), batch_size=8)
    (run,) = command.runs
    arguments, env, cwd, graphs = run.arguments, run.env, run.cwd, run.files
    assert arguments[1:] == ["--job_type=2", "--trials=3"]
    assert graphs == {"graph_01_net.pb": "forward [(8, 4)]"}
    assert cwd == tmp_path and env["AOE_TENSORFLOW_PYTHON"] == sys.executable
    assert model.seen == [True, False, True]
    said = capsys.readouterr().err
    assert "in tune mode, training graph handled by tools" in said
    assert said.count("Aoe tuning graph.") == 1


def test_batch_size_is_read_by_its_place_too(
    tf: Any, command: ScriptedCommand, tmp_path: Path
) -> None:
    with aoe.tensorflow.enable(work_path=tmp_path):
        stand_in.Model().fit(_rows(10), None, 8)
        stand_in.Model().predict(_rows(100), 64)
    assert [run.files["graph_01_net.pb"] for run in command.runs] == [
        "forward [(8, 4)]",
        "forward [(64, 4)]",
    ]


def test_rows_of_several_inputs_are_those_of_the_first(
    tf: Any, command: ScriptedCommand, tmp_path: Path
) -> None:
    with aoe.tensorflow.enable(work_path=tmp_path):
        stand_in.Model().fit([_rows(10), _rows(10)], batch_size=8)
        stand_in.Model().predict({"a": _rows(100), "b": _rows(100)}, 64)
    assert [run.files["graph_01_net.pb"] for run in command.runs] == [
        "forward [(8, 4)]",
        "forward [(64, 4)]",
    ]


def test_each_shape_of_a_model_is_tuned_once(
    tf: Any, command: ScriptedCommand, tmp_path: Path
) -> None:
    model = stand_in.Model()
    with aoe.tensorflow.enable(1, work_path=tmp_path) as watcher:
        for count in (2, 3, 2):
            model(_rows(count))
    assert [run.files["graph_01_net.pb"] for run in command.runs] == [
        "forward [(2, 4)]",
        "forward [(3, 4)]",
    ]
    assert command.runs[0].arguments[1] == "--job_type=1"
    assert watcher.graphs == ["net", "net"]


def test_function_is_tuned_as_it_is(tf: Any, command: ScriptedCommand, tmp_path: Path) -> None:
    def scores(x: Any) -> Any:
        return x

    function = tf.function(scores)
    with aoe.tensorflow.enable(work_path=tmp_path):
        function(_rows(2))
        function(_rows(2))
    assert [run.files for run in command.runs] == [{"graph_01_scores.pb": "scores [(2, 4)]"}]


def test_step_around_a_model_that_is_tuned_already_is_told_nothing(
    tf: Any, command: ScriptedCommand, tmp_path: Path
) -> None:
    model = stand_in.Model()
    with aoe.tensorflow.enable(work_path=tmp_path) as watcher:
        for _ in ("fit", "evaluate"):  # each makes a function of its own
            stand_in.Function(lambda x: model(x), types=["IteratorGetNext"])(_rows(8))
    assert [run.files for run in command.runs] == [{"graph_01_net.pb": "forward [(8, 4)]"}]
    assert watcher.problems == {}


def test_step_that_changes_variables_is_left_alone(
    tf: Any, command: ScriptedCommand, tmp_path: Path
) -> None:
    function = stand_in.Function(lambda x: x, types=["MatMul", "AssignAddVariableOp"])
    with (
        aoe.tensorflow.enable(work_path=tmp_path) as watcher,
        pytest.warns(UserWarning, match="left alone: it changes what it reads: AssignAdd"),
    ):
        function(_rows(2))
    assert not command.runs and len(watcher.problems) == 1


def test_open_shape_is_left_alone(tf: Any, command: ScriptedCommand, tmp_path: Path) -> None:
    model = stand_in.Model()
    step = tf.function(lambda x: model(x))
    with (
        aoe.tensorflow.enable(work_path=tmp_path),
        pytest.warns(UserWarning, match="its shapes are open"),
    ):
        step(stand_in.Spec(stand_in.Shape((None, 4)), np.float32))
    assert not command.runs


def test_shapes_keras_only_looks_at_are_no_call(
    tf: Any, command: ScriptedCommand, tmp_path: Path
) -> None:
    model = stand_in.Model()
    with aoe.tensorflow.enable(work_path=tmp_path), stand_in.traced():
        model(_rows(83))
    assert not command.runs


def test_other_threads_are_not_watched(tf: Any, command: ScriptedCommand, tmp_path: Path) -> None:
    model = stand_in.Model()
    with aoe.tensorflow.enable(work_path=tmp_path):
        thread = threading.Thread(target=model, args=(_rows(2),))
        thread.start()
        thread.join()
    assert not command.runs


def test_script_goes_on_when_tuning_fails(
    tf: Any, tmp_path: Path, command: ScriptedCommand
) -> None:
    command.ends_with(3)
    model = stand_in.Model()
    with (
        aoe.tensorflow.enable(work_path=tmp_path),
        pytest.warns(UserWarning, match="tuning ended with code 3; the script goes on"),
    ):
        assert model(_rows(2)).shape == (2, 4)


def test_closing_leaves_tensorflow_as_it_was(
    tf: Any, command: ScriptedCommand, tmp_path: Path
) -> None:
    before = (stand_in.Function.__call__, stand_in.Model.__call__, stand_in.Model.fit)
    aoe.tensorflow.enable(work_path=tmp_path).close()
    assert (stand_in.Function.__call__, stand_in.Model.__call__, stand_in.Model.fit) == before
    stand_in.Model()(_rows(2))
    assert not command.runs


# ---- what is asked for ----


def test_script_counts_more_than_the_environment(
    tf: Any, command: ScriptedCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AOE_MODE", "1")
    monkeypatch.setenv("ASCEND_WORK_PATH", str(tmp_path / "elsewhere"))
    for mode, place in ((None, None), ("2", tmp_path)):
        with aoe.tensorflow.enable(mode, work_path=place):
            stand_in.Model()(_rows(2))
    runs = command.runs
    assert [run.arguments[1] for run in runs] == ["--job_type=1", "--job_type=2"]
    assert ["ASCEND_WORK_PATH" in run.env for run in runs] == [True, False]
    assert not any("AOE_MODE" in run.env for run in runs)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"aoe_mode": "4"}, "gradients of TensorFlow are not tuned"),
        ({"aoe_mode": 3}, r"aoe_mode: no mode \(got '3', expected 1 \(subgraphs\), 2"),
        ({"work_path": "nowhere"}, "work_path: not a directory"),
        ({"trials": 0}, "trials: not a limit"),
        ({"trials": 2.5}, "trials: not a limit"),
        ({"tuning_time_limit": float("inf")}, "tuning_time_limit: not a limit"),
        ({"aoe_config_file": "nowhere.json"}, "cannot be read"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_watched(
    tf: Any, given: dict[str, Any], message: str
) -> None:
    before = stand_in.Function.__call__
    with pytest.raises(OptionError, match=message):
        aoe.tensorflow.enable(**given)
    assert stand_in.Function.__call__ is before


def test_variable_is_named_where_it_is_wrong(tf: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AOE_MODE", "all")
    with pytest.raises(OptionError, match="AOE_MODE: no mode"):
        aoe.tensorflow.enable()


def test_bank_that_cannot_be_is_found_out_at_once(tf: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot be created"):
        aoe.tensorflow.enable(bank=tmp_path / "file" / "bank")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"tune_optimization_level": "O3"}', "no level .*got 'O3', expected O1 or O2"),
        ('{"feature": ["deeper"]}', "no list of features .*expected deeper_opat or nonhomo_split"),
        ('{"feature": "deeper_opat"}', "no list of features"),
        ('{"tune_ops_name": "MatMul"}', "not a list of names"),
        ('{"tune_op_type": []}', r"(?s)unknown key \(got tune_op_type, expected .*tune_ops"),
        ("[]", "not a JSON object"),
        ("{", "cannot be read"),
    ],
)
def test_file_that_cannot_be_followed_is_refused(
    tf: Any, tmp_path: Path, content: str, message: str
) -> None:
    (tmp_path / "aoe.json").write_text(content)
    with pytest.raises(OptionError, match=message):
        aoe.tensorflow.enable(aoe_config_file=tmp_path / "aoe.json")


def test_settings_without_a_difference_are_passed_over(tf: Any, tmp_path: Path) -> None:
    given = {"tune_ops_name": [], "tune_optimization_level": "O1", "feature": ["deeper_opat"]}
    (tmp_path / "aoe.json").write_text(json.dumps(given), "utf-8-sig")  # a byte order mark
    with pytest.warns(UserWarning, match="passed over") as told:
        aoe.tensorflow.enable(aoe_config_file=tmp_path / "aoe.json").close()
    assert len(told) == 2


@pytest.mark.parametrize(
    ("given", "option"),
    [
        ({"tune_ops_name": ["dense/*"]}, {"tune_ops_name": ["dense/*"], "tune_ops_type": []}),
        ({"tune_ops_type": ["MatMul"]}, {"tune_ops_name": [], "tune_ops_type": ["MatMul"]}),
        ({"tune_ops_name": [], "tune_ops_type": []}, None),
    ],
)
def test_operators_a_file_names_are_those_that_are_tuned(
    tf: Any,
    tmp_path: Path,
    command: ScriptedCommand,
    given: dict[str, Any],
    option: dict[str, Any] | None,
) -> None:
    (tmp_path / "aoe.json").write_text(json.dumps(given))
    with aoe.tensorflow.enable(aoe_config_file=tmp_path / "aoe.json", work_path=tmp_path):
        stand_in.Model()(_rows(2))
    (run,) = command.runs
    files = [one.partition("=")[2] for one in run.arguments if one.startswith("--tune_ops_file=")]
    assert [json.loads(run.files[file]) for file in files] == ([] if option is None else [option])


def test_features_are_followed_in_the_mode_they_are_for(
    tf: Any, command: ScriptedCommand, tmp_path: Path
) -> None:
    (tmp_path / "aoe.json").write_text('{"feature": ["nonhomo_split"]}')
    with aoe.tensorflow.enable(1, aoe_config_file=tmp_path / "aoe.json", work_path=tmp_path):
        stand_in.Model()(_rows(2))
    assert "--Fnonhomo_split" in command.runs[0].arguments
    with pytest.warns(UserWarning, match="it is for aoe_mode=1"):
        aoe.tensorflow.enable(2, aoe_config_file=tmp_path / "aoe.json").close()


def test_operators_are_chosen_for_operator_tuning_only(tf: Any, tmp_path: Path) -> None:
    (tmp_path / "aoe.json").write_text('{"tune_ops_type": ["MatMul"]}')
    with pytest.raises(OptionError, match=r"operator tuning only \(got aoe_mode=1"):
        aoe.tensorflow.enable(1, aoe_config_file=tmp_path / "aoe.json")


def test_missing_tensorflow_is_said_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    with pytest.raises(EngineNotInstalledError, match="TensorFlow is not installed"):
        aoe.tensorflow.enable()


# ---- the other Python ----


def test_module_needs_no_engine() -> None:
    text = (
        "import sys, aoe.tensorflow.watching as w; "
        "print(sorted({'numpy', 'onnx', 'onnxruntime', 'halide', 'torch'} & {*sys.modules}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", text],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"


def test_engine_of_another_python_is_used(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/called\nexit 7\n')
    python.chmod(0o755)
    env = {"AOE_ENGINE_PYTHON": str(python), "PATH": os.environ["PATH"]}
    assert run_aoe(["--model_path=x"], env, tmp_path) == 7
    assert (tmp_path / "called").read_text() == "-P -m aoe --model_path=x\n"


def test_engine_that_is_not_there_is_named() -> None:
    with pytest.raises(OptionError, match=r"AOE_ENGINE_PYTHON: cannot be run.* \(got /no/python"):
        run_aoe([], {"AOE_ENGINE_PYTHON": "/no/python"}, None)


def _module(*arguments: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "aoe.tensorflow", *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), **env},
        capture_output=True,
        text=True,
    )


def test_script_runs_as_it_would_alone(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("VALUE = 3\n")
    (tmp_path / "script.py").write_text(
        "import sys, own\nassert __name__ == '__main__'\n"
        "print(own.VALUE, sys.argv[1:])\nsys.exit(5)"
    )
    done = _module("script.py", "-x", cwd=tmp_path, AOE_MODE="")
    assert (done.returncode, done.stdout) == (5, "3 ['-x']\n")


@pytest.mark.parametrize(
    ("arguments", "mode", "message"),
    [
        ([], "2", "aoe.tensorflow: no script (got nothing)"),
        (["none.py"], "2", "no script (got none.py)"),
        (["script.py"], "4", "gradients of TensorFlow are not tuned"),
    ],
)
def test_call_that_cannot_be_meant_ends_with_code_2(
    tmp_path: Path, arguments: list[str], mode: str, message: str
) -> None:
    (tmp_path / "script.py").write_text("print('ran')")
    done = _module(*arguments, cwd=tmp_path, AOE_MODE=mode)
    assert done.returncode == 2 and message in done.stderr and "hint: " in done.stderr
    assert "ran" not in done.stdout


# ---- TensorFlow itself ----

_REAL = tensorflow_python()
_ENGINE = """
import pathlib, sys
import tensorflow as tf

(folder,) = (one for one in sys.argv if one.startswith("--model_path="))
for file in sorted(pathlib.Path(folder.partition("=")[2]).iterdir()):
    graph = tf.compat.v1.GraphDef.FromString(file.read_bytes())
    inputs = [n.attr["shape"].shape for n in graph.node if n.op == "Placeholder"]
    shapes = [[extent.size for extent in shape.dim] for shape in inputs]
    print(file.name, shapes, sum(n.op == "Transpose" for n in graph.node))
"""
_SCRIPT = """
import numpy as np, tensorflow as tf
import aoe.tensorflow

layers = tf.keras.layers
stack = [layers.Input((8, 8, 3)), layers.Conv2D(4, 3), layers.Flatten(), layers.Dense(2)]
model = tf.keras.Sequential(stack, name="net")
model.compile(loss="mse", optimizer="sgd")
x, y = np.zeros((10, 8, 8, 3), np.float32), np.zeros((10, 2), np.float32)
with aoe.tensorflow.enable():
    model.fit(x, y, batch_size=4, verbose=0)
    model.fit(x, y, batch_size=4, verbose=0)
    model.predict(x, batch_size=5, verbose=0)
    model(x[:1])
    scores = tf.function(lambda a: tf.nn.softmax(a))
    scores(tf.zeros((3, 3)))
    tf.keras.Sequential([layers.Input((7, 3)), layers.LSTM(4)], name="loop")(tf.zeros((6, 7, 3)))
"""


@pytest.mark.skipif(not _REAL, reason=NEEDED)
def test_graphs_of_a_real_script_are_found(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(_SCRIPT)
    engine = tmp_path / "engine"  # tells what it is given, and tunes nothing
    engine.write_text(f"#!{_REAL}\n{_ENGINE}")
    engine.chmod(0o755)
    done = subprocess.run(
        [_REAL, "script.py"],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "AOE_ENGINE_PYTHON": str(engine),
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "graph_01_net.pb [[4, 8, 8, 3]] 0",
        "graph_01_net.pb [[5, 8, 8, 3]] 0",
        "graph_01_net.pb [[1, 8, 8, 3]] 0",
        "graph_01_lambda.pb [[3, 3]] 0",
        "graph_01_loop.pb [[6, 7, 3]] 1",
    ]


_TUNED = """
import numpy as np, tensorflow as tf
import aoe.tensorflow

layers = tf.keras.layers
def net(name, activation):
    stack = [layers.Input((40, 40, 8)), layers.Activation(activation), layers.Conv2D(8, 3)]
    return tf.keras.Sequential([*stack, layers.Activation(activation)], name=name)

first, second = net("first", "softplus"), net("second", "elu")
both = tf.function(lambda a: first(a) + second(a))
x = tf.constant(np.random.default_rng(0).normal(size=(2, 40, 40, 8)).astype(np.float32))
plain = both(x)
with aoe.tensorflow.enable(work_path="work", bank="bank", trials=1) as found:
    tuned = tf.function(lambda a: first(a) + second(a))(x)
np.testing.assert_allclose(plain, tuned, rtol=1e-6)
print(len(found.graphs), found.problems)
"""


@pytest.mark.skipif(not _REAL, reason=NEEDED)
@pytest.mark.parametrize(("mode", "kind"), [("1", "sgat"), ("2", "opat")])
def test_real_script_leaves_a_report_for_each_graph_of_its_step(
    mode: str, kind: str, tmp_path: Path
) -> None:
    (tmp_path / "script.py").write_text(_TUNED)
    (tmp_path / "work").mkdir()
    done = subprocess.run(
        [_REAL, "script.py"],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "AOE_MODE": mode,
            "AOE_ENGINE_PYTHON": sys.executable,
            "AOE_ACCEPT_BUSY": "True",
        },
        capture_output=True,
        text=True,
        timeout=570,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "2 {}", done.stderr
    assert done.stderr.count("in tune mode, training graph handled by tools") == 1
    assert done.stderr.count("Aoe tuning graph.") == 2
    (file,) = (tmp_path / "work").rglob(f"aoe_result_{kind}_*.json")
    reports = json.loads(file.read_text())
    stamp = file.stem.removeprefix(f"aoe_result_{kind}_").partition("_pid")[0]
    assert [name.rpartition("_")[2] for name in reports] == ["1", "2"]
    assert all(name.startswith(f"report_{stamp}") for name in reports)
    assert (tmp_path / "bank").is_dir()
