"""A Conformer's convolution module tuned for a range of lengths."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from support.engine.open_rows import parsed

import aoe

pytestmark = pytest.mark.slow
_BODY = """n = LayerNormalization (x, c) t = Transpose <perm = [0, 2, 1]> (n)
e = Conv <kernel_shape = [1]> (t, w, b)
p, q = Split <axis = 1> (e, i64_64) g = Sigmoid(q) h = Mul(p, g)
d = Conv <kernel_shape = [15], pads = [7, 7], group = 64> (h, f, c) s = Sigmoid(d) m = Mul(d, s)
l = Conv <kernel_shape = [1]> (m, u, c) r = Transpose <perm = [0, 2, 1]> (l) y = Add(r, x)"""
_WEIGHTS = "float[128,64,1] w, float[128] b, float[64,1,15] f, float[64] c, float[64,64,1] u"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("model") / "module.onnx"
    onnx.save(parsed("float[N,S,64] x", _BODY, weights=_WEIGHTS), file)
    return file


@pytest.fixture(scope="module")
def tuned(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the tuned model of a run that takes what an earlier one has left in the bank."""
    folder = tmp_path_factory.mktemp("range")
    (folder / "bank").mkdir()
    for name, options in {"searched": {"trials": 1}, "found": {"lookup_only": True}}.items():
        aoe.tune(
            model,
            job_type="opat",
            input_shape="x:1~2,1~96,64",
            bank=folder / "bank",
            output=folder / name,
            accept_busy=True,
            **options,
        )
    return folder / "found" / "module_tune.om"


def test_rows_and_the_convolution_of_each_channel_are_tuned(tuned: Path) -> None:
    summary = json.loads((tuned.parent.parent / "searched" / "summary.json").read_text())
    assert {"convolution", "matmul"} <= {row["op_type"] for row in summary["operators"]}
    assert {row["op_type"] for row in summary["left_to_onnxruntime"]} <= {"Transpose"}


@pytest.mark.parametrize(
    "shape", [(1, 1), (2, 96), (1, 2), (2, 7), (1, 15), (1, 16), (2, 17), (3, 61), (1, 257)]
)
def test_every_length_is_right_within_the_range_and_beyond(
    model: Path, tuned: Path, shape: tuple[int, int]
) -> None:
    x = np.random.default_rng(3).standard_normal((*shape, 64)).astype(np.float32)
    expected = ort.InferenceSession(model).run(None, {"x": x})[0]
    found = aoe.load(tuned).run(None, {"x": x})[0]
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)
