#!/usr/bin/env bash
# Expected: `quantize_static` in the QOperator format gives every convolution a bias in its own
# scale, that of its input times that of its weights: QLinearConv has no input for another one.
# Happens: two convolutions with the same bias get one integer bias, in the scale of the first. With
# an input ten times as large, the second one's bias is ten times too large: results are off by
# their own size, and no warning names it. In the QDQ format, which stores the scale beside the
# bias, they are off by 1 %.
# Seen with: onnxruntime 1.31.1 and 1.32.0, onnx 1.23.2, Python 3.11; 2026-11-29.
# Matters: heads that are applied to several sizes of an image share weights and bias, and
# exporters write both once. A bias of its own for each convolution is the way out.
# Handled in: aoe/ort (calibration of --precision_mode writes QDQ, with a scale beside the bias).
set -euo pipefail

folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/python -m pip install --quiet --no-compile numpy==2.4.6 onnx==1.23.2 onnxruntime==1.32.0
venv/bin/python -W ignore - <<'PY'
import logging
import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static

logging.disable(logging.WARNING)
onnxruntime.set_default_logger_severity(3)
rng = np.random.default_rng(0)
x = rng.standard_normal((1, 3, 16, 16), np.float32)
weights = rng.standard_normal((4, 3, 3, 3), np.float32) / 5
bias = np.array([-3, 2, 1, 4], np.float32)


class Reader(CalibrationDataReader):
    def __init__(self):
        self.sets = iter([{"small": x, "large": 10 * x}])

    def get_next(self):
        return next(self.sets, None)


def network(is_shared):
    constants = {"w": weights, "b": bias} | ({} if is_shared else {"b2": bias})
    nodes = [
        helper.make_node("Conv", ["small", "w", "b"], ["y1"]),
        helper.make_node("Conv", ["large", "w", "b" if is_shared else "b2"], ["y2"]),
    ]
    graph = helper.make_graph(
        nodes,
        "heads",
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, x.shape)
            for name in ("small", "large")
        ],
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4, 14, 14])
            for name in ("y1", "y2")
        ],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def errors(is_shared, layout):
    onnx.save(network(is_shared), "float.onnx")
    quantize_static("float.onnx", "quantised.onnx", Reader(), quant_format=layout)
    feed = {"small": x, "large": 10 * x}
    exact, found = (
        onnxruntime.InferenceSession(file).run(None, feed)
        for file in ("float.onnx", "quantised.onnx")
    )
    return [float(abs(a - b).max() / abs(a).max()) for a, b in zip(exact, found, strict=True)]


print("onnxruntime", onnxruntime.__version__)
changed = []
for is_shared, layout, is_right in (
    (True, QuantFormat.QOperator, False),
    (False, QuantFormat.QOperator, True),
    (True, QuantFormat.QDQ, True),
):
    found = errors(is_shared, layout)
    said = ", ".join(f"{one:.1%}" for one in found)
    print(f"{layout.name}, {'one bias' if is_shared else 'two equal biases'}: errors {said}")
    if found[0] > 0.03 or (found[1] < 0.03) != is_right:
        changed.append(f"{layout.name}, shared: {is_shared}")
sys.exit("behaviour changed: " + "; ".join(changed) if changed else 0)
PY
