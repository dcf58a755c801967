"""A convolutional network tuned for a range of image sizes."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from support.commands import aoe_exit_code
from support.engine.open_rows import parsed

import aoe
import aoebank
from aoe.om.file import read_manifest

_RANGE = "x:1~2,3,32~64,32~64"
_BODY = """a = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1], strides = [2, 2]> (x, f, g)
b = Sigmoid(a) c = Mul(a, b)
d = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (c, w, v)
e = Sigmoid(d) h = Mul(d, e) i = Add(h, c)
j = MaxPool <kernel_shape = [5, 5], pads = [2, 2, 2, 2]> (i) k = Concat <axis = 1> (i, j)
l = Conv <kernel_shape = [1, 1]> (k, u) m = Relu(l)
n = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1], strides = [2, 2]> (m, w, v) o = Relu(n)
p = Constant <value = float[4] {1., 1., 2., 2.}> ()
y = Resize <mode = "nearest", coordinate_transformation_mode = "asymmetric",
nearest_mode = "floor"> (o, , p)"""
_WEIGHTS = "float[64,3,3,3] f, float[64] g, float[64,64,3,3] w, float[64] v, float[64,128,1,1] u"


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("model") / "net.onnx"
    onnx.save(parsed("float[N,3,H,W] x", _BODY, weights=_WEIGHTS), file)
    return file


@pytest.fixture(scope="module")
def log(model: Path) -> Path:
    """Return a log of calls: two sizes of it are most of the work."""
    file = model.with_name("calls.csv")
    file.write_text("5,x:1,3,32,32\n900,x:1,3,48,48\n2,x:2,3,64,64\n500,x:1,3,64,40\n")
    return file


@pytest.fixture(scope="module")
def tuned(model: Path, log: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of two runs: one that searches, one that takes what is in the bank.

    Between them all kernels are noted as kept: how the model has judged them, noise may decide.
    """
    folder = tmp_path_factory.mktemp("range")
    (folder / "bank").mkdir()
    for name, options in {"searched": {"trials": 1}, "found": {"lookup_only": True}}.items():
        aoe.tune(
            model,
            job_type="opat",
            input_shape=_RANGE,
            shapes_from=log,
            bank=folder / "bank",
            output=folder / name,
            accept_busy=True,
            **options,
        )
        _note_kept(folder / "bank")
    return folder


def _note_kept(root: Path) -> None:
    bank = aoebank.Bank(root)
    for file in tuple(bank.iter_files()):
        last = {line.key: line for line in bank.iter_provenance(file)}
        search = {"reason": "the whole model is faster"}
        lines = [last[record.key] for record in bank.iter_records(file)]
        kept = [replace(one, event=aoebank.Event.KEPT, search=search) for one in lines]
        bank.append_provenance(file, kept)


def _operators(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((folder / "summary.json").read_text())["operators"]
    return found


def test_kernels_for_images_of_any_size_are_in_the_model(tuned: Path) -> None:
    manifest = read_manifest(tuned / "found" / "net_tune.om")
    assert manifest.shape_range == _RANGE
    kept = {kernel.op_type for kernel in manifest.kernels}
    assert kept and kept <= {"convolution", "elementwise", "pooling", "resizing"}
    assert all('"open": [0, 2, 3]' in json.dumps(one.record) for one in manifest.kernels)


def test_frequent_sizes_are_operators_of_fixed_shapes(tuned: Path) -> None:
    rows = _operators(tuned / "searched")
    fixed = {row["op_name"].rpartition(", x:")[2] for row in rows if ", x:" in row["op_name"]}
    won = [row for row in rows if ", x:" not in row["op_name"] and row["outcome"] == "add"]
    assert fixed == ({"1,3,48,48", "1,3,64,40"} if won else set())


def test_look_up_measures_nothing(tuned: Path) -> None:
    summary = json.loads((tuned / "found" / "summary.json").read_text())
    assert (summary["points"], summary["pairs"]) == ([], 0)
    used = [row for row in summary["operators"] if row["in_model"]]
    assert used
    assert all(row["outcome"] == "reserved" for row in used)


def test_plan_counts_the_frequent_sizes(
    model: Path,
    log: Path,
    tuned: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("TUNE_BANK_PATH", str(tuned / "bank"))
    words = ["plan", model, f"--input_shape={_RANGE}", "--trials=1", "--json"]
    planned = []
    for more in ([], [f"--shapes_from={log}"]):
        capsys.readouterr()
        assert aoe_exit_code([*words, *more]) == 0
        planned.append({one["key"] for one in json.loads(capsys.readouterr().out)["operators"]})
    without, with_log = planned
    assert {row["key"] for row in _operators(tuned / "searched")} <= with_log
    assert len(with_log) == 3 * len(without)  # each operator, and twice of fixed size


@pytest.mark.parametrize(
    "shape",
    [
        (1, 48, 48),
        (2, 48, 48),
        (1, 64, 40),
        (1, 32, 32),
        (2, 64, 64),
        (1, 37, 61),
        (1, 63, 33),
        (3, 41, 128),
        (1, 7, 2),
        (1, 160, 160),
    ],
)
def test_every_size_is_computed_within_the_range_and_beyond(
    model: Path, tuned: Path, shape: tuple[int, int, int]
) -> None:
    batch, rows, columns = shape
    x = np.random.default_rng(3).standard_normal((batch, 3, rows, columns)).astype(np.float32)
    expected = ort.InferenceSession(model).run(None, {"x": x})[0]
    found = aoe.load(tuned / "found" / "net_tune.om").run(None, {"x": x})[0]
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max())


def test_bank_commands_take_a_record_with_open_axes(tuned: Path, tmp_path: Path) -> None:
    bank, other = tuned / "bank", tmp_path / "other"
    file = next(bank.rglob("*_AiCore_*.json"))
    assert '"open": [0, 2, 3]' in file.read_text()
    shutil.copytree(bank, other)
    changed = other / file.relative_to(bank)
    changed.write_text(
        re.sub(r'"cost_time": [0-9.]+', '"cost_time": 1.0', file.read_text(), count=1)
    )
    assert not aoebank.validate([bank, other]).findings
    assert file.name in str(aoebank.list_bank(bank).files)
    shown = aoebank.show(file).records
    assert not aoebank.diff(bank, bank).changes
    assert shown and len(aoebank.diff(bank, other).changes) == 1
    merged = tmp_path / "merged"
    aoebank.merge(bank, other, output=merged)
    assert not aoebank.diff(other, merged).changes
