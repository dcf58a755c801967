"""`aoe --job_type=4 --model`: two real processes, and what is refused before any of them trains."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import onnx  # noqa: E402
from support.ddp.loss_models import WIDTHS, make_loss_model, skip_without_converter  # noqa: E402
from support.ddp.recorded import record_grouping  # noqa: E402

from aoe.errors import AoeError, ModelImportError, OptionError  # noqa: E402
from aoe.torch.model_files.model_run import TrainingModel  # noqa: E402

SHAPES = "input:6,8;label:6"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Return the file of a model with a loss."""
    onnx.save(make_loss_model(), tmp_path / "net.onnx")
    return tmp_path / "net.onnx"


def refused(**options: Any) -> AoeError:
    """Return the error a run of a model ends with before it trains."""

    def tune(training: Any) -> Any:
        raise AssertionError("it trains")

    with pytest.raises(AoeError) as got:
        TrainingModel(**options).run(tune)
    return got.value


def test_loss_the_model_does_not_have_is_named_with_those_it_has(model: Path) -> None:
    error = refused(path=model, loss_name="lost", input_shape=SHAPES)
    assert isinstance(error, OptionError)
    assert "no output of the model is called so (got lost, expected loss or scores)" in str(error)


def test_one_of_several_outputs_has_to_be_the_loss(model: Path) -> None:
    error = refused(path=model, input_shape=SHAPES)
    assert "several outputs" in str(error) and error.hint == "--loss_name=loss"


def test_open_shapes_are_asked_for(model: Path) -> None:
    error = refused(path=model, loss_name="loss")
    assert isinstance(error, ModelImportError) and "input" in str(error)


def test_loss_no_parameter_has_a_part_in_is_refused(model: Path) -> None:
    skip_without_converter()
    proto = onnx.load(model)
    proto.graph.node.append(onnx.helper.make_node("ArgMax", ["scores"], ["best"], axis=1))
    proto.graph.output.append(onnx.helper.make_tensor_value_info("best", 7, ["n", 1]))
    onnx.save(proto, model)
    error = refused(path=model, loss_name="best", input_shape=SHAPES)
    assert isinstance(error, ModelImportError) and "trained" in str(error)


def _cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-200])


def _without_weights(file: Path) -> None:
    proto = onnx.load(file)
    onnx.save(proto, file, save_as_external_data=True, location="net.weights", size_threshold=0)
    (file.parent / "net.weights").unlink()


@pytest.mark.parametrize(
    ("damage", "shapes", "words"),
    [
        (Path.unlink, SHAPES, "no such file"),
        (_cut, SHAPES, "net.onnx"),
        (lambda file: file.write_text("hello"), SHAPES, "not an ONNX model"),
        (_without_weights, SHAPES, "net.weights"),
        (lambda file: None, "input:6;label:6", "another rank"),
        (lambda file: None, f"{SHAPES};other:1", "no such input"),
    ],
    ids=["missing", "truncated", "wrong-kind", "weights", "shape", "input"],
)
def test_broken_model_is_refused_before_any_process_trains(
    model: Path, damage: Callable[[Path], object], shapes: str, words: str
) -> None:
    damage(model)
    before = sorted(model.parent.iterdir())
    error = refused(path=model, loss_name="loss", input_shape=shapes)
    assert isinstance(error, ModelImportError) and words in str(error)
    assert sorted(model.parent.iterdir()) == before


def _run(folder: Path, *words: str) -> dict[str, Any]:
    """Run a command on the model in two processes it starts itself; return its document."""
    options = ("--loss_name=loss", f"--input_shape={SHAPES}", "--json")
    done = subprocess.run(
        [sys.executable, "-m", "aoe", *words, *options],
        cwd=folder,
        env={
            **os.environ,
            "GLOO_SOCKET_IFNAME": "lo",
            "TUNE_BANK_PATH": str(folder),
            "PYTHONPATH": os.pathsep.join(sys.path),
        },
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def test_two_processes_train_it_and_the_bank_knows_it(model: Path) -> None:
    skip_without_converter()
    document = _run(
        model.parent, "--job_type=4", f"--model={model}", "--output=out", "--tuning_time_limit=0"
    )
    report = json.loads((model.parent / document["result_file"]).read_text())
    assert document["schema"] == "aoe.gdat/1" and document["steps"] > 0
    assert '"world_size": 2' in json.dumps(report) and "net" in json.dumps(report)


@pytest.mark.slow
def test_model_is_planned_and_verified_in_two_processes(model: Path) -> None:
    skip_without_converter()
    sizes = (WIDTHS[1] * WIDTHS[0], WIDTHS[1], WIDTHS[1] * WIDTHS[2], WIDTHS[2])
    key = str(record_grouping(model.parent, "net", [4 * size for size in sizes]))
    (reused,) = _run(model.parent, "plan", "net.onnx", "-j4")["gradients"]
    assert (reused["key"], reused["kind"], reused["op_names"]) == (key, "reused", ["net"])
    verified = _run(model.parent, "verify", "--model=net.onnx")
    (found,) = verified["records"]
    assert (found["key"], verified["left"]) == (key, 0)
    assert [one["key"] for one in verified["decided"]] in ([key], [])
