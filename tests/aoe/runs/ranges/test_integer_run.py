"""A quantised model tuned for a range of shapes: integers of any number of rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from support.engine.open_rows import parsed

import aoe
from aoe.om.file import read_manifest

_LEVELS = "scale_x, zero_x"
_BODY = f"""q = QuantizeLinear (x, {_LEVELS}) d = DequantizeLinear (q, {_LEVELS})
    v = DequantizeLinear (w, scale_w, zero_w) t = MatMul (d, v)
    r = QuantizeLinear (t, scale_y, zero_x) y = DequantizeLinear (r, scale_y, zero_x)"""
_WEIGHTS = "int8[128,96] w, float scale_x, uint8 zero_x, float scale_w, int8 zero_w, float scale_y"
_DYNAMIC = "y = com.microsoft.DynamicQuantizeMatMul (x, w, scale_w, zero_w)"
_MODELS = {
    "static": (_BODY, _WEIGHTS),
    "dynamic": (_DYNAMIC, "int8[128,96] w, float scale_w, int8 zero_w"),
}


@pytest.fixture(scope="module", params=_MODELS)
def tuned(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Path]:
    """Return a model, and the folder of a run that places its kernels."""
    body, weights = _MODELS[request.param]
    folder = tmp_path_factory.mktemp(request.param)
    model = folder / "integers.onnx"
    onnx.save(parsed("float[N,S,128] x", body, weights=weights), model)
    given: dict[str, Any] = {"input_shape": "x:1~2,1~40,128", "trials": 1, "accept_busy": True}
    (folder / "bank").mkdir()
    for output in ("out", "found"):  # what the bank has is placed, whatever noise made of it
        if output == "found":
            given["lookup_only"] = True
        aoe.tune(model, bank=folder / "bank", job_type="opat", output=folder / output, **given)
    return model, folder


def test_blocks_of_a_product_of_integers_are_searched(tuned: tuple[Path, Path]) -> None:
    _, folder = tuned
    summary = json.loads((folder / "out" / "summary.json").read_text())
    found = {row["op_name"].rsplit(", ", 1)[1] for row in summary["operators"]}
    assert {"1 row", "4 rows", "16 rows", "64 rows"} <= found
    products = [row for row in summary["operators"] if row["op_type"] == "quantised_matmul"]
    assert len(products) >= len(found)


def test_every_number_of_rows_is_that_of_the_model(tuned: tuple[Path, Path]) -> None:
    model, folder = tuned
    session = aoe.load(folder / "found" / "integers_tune.om")
    untuned = ort.InferenceSession(model)
    for batch, length in ((1, 1), (1, 2), (1, 15), (1, 17), (2, 16), (1, 33), (3, 50), (1, 0)):
        x = np.random.default_rng(length).standard_normal((batch, length, 128)).astype(np.float32)
        found, expected = (one.run(None, {"x": x})[0] for one in (session, untuned))
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    assert read_manifest(folder / "found" / "integers_tune.om").shape_range == "x:1~2,1~40,128"
