#!/usr/bin/env bash
# Expected: two neighbouring releases of ONNX Runtime order a NaN in the same way.
# Happens: they differ, and in opposite directions. TopK of 1.31.1 gives an order that depends on
# where the NaN stands, and may leave the largest number out of the first two; in 1.32.0 NaN is
# the largest everywhere. ArgMax of 1.31.1 finds the NaN everywhere; in 1.32.0 only in the first
# place.
# Seen with: onnxruntime 1.31.1 and 1.32.0, onnx 1.23.2, Python 3.11; 2026-11-28.
# Matters: a result recorded with one release is no reference for another one; a bank entry
# checked under 1.31.1 has to be checked again. ArgMax and TopK with k = 1 are not the same
# operator.
# Handled in: aoe/operators/axes.py, aoe/kernels/arg_extremes.py (ArgMax); TopK has no kernel.
set -euo pipefail

folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cd "$folder"
cat >order.py <<'PY'
import sys

import numpy as np
import onnxruntime
from onnx import TensorProto, helper


def run(node, x, initializers=()):
    graph = helper.make_graph(
        [node],
        "order",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("places", TensorProto.INT64, None)],
        initializers,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return session.run(["places"], {"x": x})[0].tolist()


two = helper.make_tensor("k", TensorProto.INT64, [1], [2])
found = {"TopK": [], "ArgMax": []}
for place in range(5):
    x = np.float32([1, 2, 3, 0.5, 0])
    x[place] = np.nan
    found["TopK"].append(run(helper.make_node("TopK", ["x", "k"], ["v", "places"]), x, [two]))
    found["ArgMax"].append(
        run(helper.make_node("ArgMax", ["x"], ["places"], axis=0, keepdims=0), x)
    )
expected = {
    "1.31.1": {
        "TopK": [[0, 2], [0, 1], [1, 0], [2, 1], [2, 1]],
        "ArgMax": [0, 1, 2, 3, 4],
    },
    "1.32.0": {
        "TopK": [[0, 2], [1, 2], [2, 1], [3, 2], [4, 2]],
        "ArgMax": [0, 2, 1, 2, 2],
    },
}[onnxruntime.__version__]
print("onnxruntime", onnxruntime.__version__)
print("[1, 2, 3, 0.5, 0] with a NaN in place 0, 1, 2, 3, 4:")
for operator, places in found.items():
    print(f"  {operator}: {places}")
sys.exit(f"behaviour changed: got {found}, expected {expected}" if found != expected else 0)
PY
python3 -m venv venv
for release in 1.31.1 1.32.0; do
    venv/bin/python -m pip install --quiet --no-compile \
        numpy==2.4.6 onnx==1.23.2 "onnxruntime==$release"
    venv/bin/python -W ignore order.py
done
