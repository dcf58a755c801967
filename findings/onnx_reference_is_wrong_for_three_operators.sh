#!/usr/bin/env bash
# Expected: the reference evaluator of onnx computes what the specification says.
# Happens: it is no oracle for these. GridSample with cubic interpolation: padding `border` and
# `reflection` is off by up to a tenth and more of the values where a point lies near the border; ONNX
# Runtime agrees with torch's grid_sample to 1e-6 (not installed here; a cubic spline in NumPy stands
# for it). LpNormalization with p = 1 divides by the sum, not by the sum of magnitudes, so a row may
# be divided by nearly nothing. LSTM, GRU and RNN read `sequence_lens` and `clip` and do nothing with
# them.
# Seen with: onnx 1.23.2, onnxruntime 1.31.1 and 1.32.0, Python 3.11; 2026-11-29.
# Matters: whoever tests a kernel against the reference finds faults in the kernel.
# Handled in: tests/support/reference_faults.py (tests compare these, and some more, with NumPy).
set -euo pipefail

folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/python -m pip install --quiet --no-compile numpy==2.4.6 onnx==1.23.2 onnxruntime==1.32.0
venv/bin/python -W ignore - <<'PY'
import sys

import numpy as np
import onnx
import onnxruntime
from onnx import helper
from onnx.reference import ReferenceEvaluator

onnxruntime.set_default_logger_severity(4)


def model(operator, opset, inputs, results=("y",), **attributes):
    given = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for name, value in inputs.items()
        if value is not None
    ]
    names = [name if value is not None else "" for name, value in inputs.items()]
    node = helper.make_node(operator, names, list(results), **attributes)
    made = [helper.make_empty_tensor_value_info(name) for name in results if name]
    graph = helper.make_graph([node], "one operator", given, made)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def both(operator, opset, inputs, **attributes):
    """Return the first result of ONNX Runtime and of the reference evaluator."""
    proto = model(operator, opset, inputs, **attributes)
    feed = {name: value for name, value in inputs.items() if value is not None}
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    return session.run(None, feed)[0], ReferenceEvaluator(proto).run(None, feed)[0]


def cubic(image, x, y, pad):
    """Return one sample of an image by the formula of the specification, alpha = -0.75."""

    def weights(t):
        a, d = -0.75, np.array([1 + t, t, 1 - t, 2 - t])
        near = ((a + 2) * d - (a + 3)) * d * d + 1
        far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
        return np.where(d <= 1, near, far)

    high, wide = image.shape
    total = 0.0
    for row, of_row in zip(range(-1, 3), weights(y - np.floor(y)), strict=True):
        for column, of_column in zip(range(-1, 3), weights(x - np.floor(x)), strict=True):
            at = pad(int(np.floor(y)) + row, high), pad(int(np.floor(x)) + column, wide)
            total += of_row * of_column * image[at]
    return total


def border(at, extent):
    return min(max(at, 0), extent - 1)


print("onnxruntime", onnxruntime.__version__, "onnx", onnx.__version__)
rng = np.random.default_rng(0)
changed = []

image = rng.standard_normal((1, 1, 5, 6), np.float32)
grid = rng.uniform(-1.1, 1.1, (1, 6, 6, 2)).astype(np.float32)
run, reference = both(
    "GridSample", 20, {"x": image, "grid": grid}, mode="cubic", padding_mode="border", align_corners=1
)
points = (grid[0].astype(np.float64) + 1) / 2 * [5, 4]
exact = np.array([[cubic(image[0, 0], x, y, border) for x, y in row] for row in points])
errors = [float(np.abs(one[0, 0] - exact).max()) for one in (run, reference)]
print(f"GridSample: ONNX Runtime off by {errors[0]:.1e}, the reference by {errors[1]:.2f}")
if errors[0] > 1e-4 or errors[1] < 0.05:
    changed.append("GridSample")

row = np.array([[1, -2, 3]], np.float32)
run, reference = both("LpNormalization", 22, {"x": row}, axis=1, p=1)
print(f"LpNormalization of {row[0]}: ONNX Runtime {run[0]}, the reference {reference[0]}")
if not np.allclose(run, row / 6) or not np.allclose(reference, row / 2):
    changed.append("LpNormalization")

steps, batch, hidden = 4, 2, 3
for operator, gates in (("RNN", 1), ("GRU", 3), ("LSTM", 4)):
    inputs = {
        "x": rng.standard_normal((steps, batch, 2), np.float32),
        "w": rng.standard_normal((1, gates * hidden, 2), np.float32),
        "r": rng.standard_normal((1, gates * hidden, hidden), np.float32),
        "b": None,
        "lengths": np.array([4, 2], np.int32),
    }
    for clip in ({}, {"clip": 0.3}):
        if clip:
            inputs["lengths"] = np.array([4, 4], np.int32)
        run, reference = both(operator, 14, inputs, hidden_size=hidden, **clip)
        off = float(np.abs(run - reference).max())
        whole = inputs | {"lengths": np.array([4, 4], np.int32)}
        _, ignored = both(operator, 14, whole, hidden_size=hidden)
        is_ignored = np.array_equal(reference, ignored)
        what = f"{operator} with {'clip' if clip else 'lengths 4 and 2'}"
        print(f"{what}: the reference is {off:.2f} off, and ignores it: {is_ignored}")
        if off < 0.01 or not is_ignored:
            changed.append(what)
sys.exit("behaviour changed: " + "; ".join(changed) if changed else 0)
PY
