#!/usr/bin/env bash
# Expected: a maximum over a window with one NaN is NaN, or it never is; where the NaN stands does
# not decide.
# Happens: in ONNX Runtime the place decides, and each operator has a place of its own. MaxPool
# and GlobalMaxPool keep a NaN only at the end of the last whole vector of four, ReduceMax and
# ReduceMin only at the front.
# Seen with: onnxruntime 1.31.1 and 1.32.0 on x86-64, onnx 1.23.2, Python 3.11; 2026-11-28.
# Matters: a kernel that keeps every NaN is right by IEEE 754 and still differs; a rewrite of one
# of these operators into another changes which NaN comes through, and a diverged model looks
# healthy.
# Handled in: aoe/kernels/pooling.py, aoe/kernels/reductions.py, aoe/execute/accuracy.py.
set -euo pipefail

folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/python -m pip install --quiet --no-compile numpy==2.4.6 onnx==1.23.2 onnxruntime==1.32.0
venv/bin/python -W ignore - <<'PY'
import sys

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

LENGTH = 9


def session_of(operator, shape, **attributes):
    graph = helper.make_graph(
        [helper.make_node(operator, ["x"], ["y"], **attributes)],
        "maximum",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return onnxruntime.InferenceSession(model.SerializeToString())


image = [1, 1, LENGTH]
sessions = {
    "MaxPool": session_of("MaxPool", image, kernel_shape=[LENGTH]),
    "GlobalMaxPool": session_of("GlobalMaxPool", image),
    "ReduceMax": session_of("ReduceMax", image, axes=[2]),
    "ReduceMin": session_of("ReduceMin", image, axes=[2]),
}
print("onnxruntime", onnxruntime.__version__)
kept = {}
for operator, session in sessions.items():
    kept[operator] = []
    for place in range(LENGTH):
        x = np.arange(LENGTH, dtype=np.float32).reshape(image)
        x[0, 0, place] = np.nan
        if np.isnan(session.run(None, {"x": x})[0]).any():
            kept[operator].append(place)
    print(f"{operator} of {LENGTH} numbers, one NaN: NaN for places {kept[operator]}")

expected = {"MaxPool": [7], "GlobalMaxPool": [7], "ReduceMax": [0], "ReduceMin": [0]}
sys.exit(f"behaviour changed: got {kept}, expected {expected}" if kept != expected else 0)
PY
