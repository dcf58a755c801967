"""A convolutional network tuned for a range of image sizes."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
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
def tuned(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of two runs: one that searches, one that takes what is in the bank."""
    folder = tmp_path_factory.mktemp("range")
    (folder / "bank").mkdir()
    for name, options in {"searched": {"trials": 1}, "found": {"lookup_only": True}}.items():
        aoe.tune(
            model,
            job_type="opat",
            input_shape=_RANGE,
            bank=folder / "bank",
            output=folder / name,
            accept_busy=True,
            **options,
        )
    return folder


def test_kernels_for_images_of_any_size_are_in_the_model(tuned: Path) -> None:
    manifest = read_manifest(tuned / "found" / "net_tune.om")
    assert manifest.shape_range == _RANGE
    kept = {kernel.op_type for kernel in manifest.kernels}
    assert kept and kept <= {"convolution", "elementwise", "pooling", "resizing"}
    assert all('"open": [0, 2, 3]' in json.dumps(one.record) for one in manifest.kernels)


@pytest.mark.parametrize(
    "shape",
    [(1, 32, 32), (2, 64, 64), (1, 37, 61), (1, 63, 33), (3, 41, 128), (1, 7, 2), (1, 160, 160)],
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
