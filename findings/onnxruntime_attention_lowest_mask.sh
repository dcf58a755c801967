#!/usr/bin/env bash
# Expected: a float mask of Attention is added to the scores. A row that is masked by the same
# number everywhere keeps equal weights, so the result is the mean of V.
# Happens: with the lowest float32 in a whole row ONNX Runtime gives zeros: it takes this one
# number for "not allowed". With -3e38 or -1e9 it gives the mean. The reference evaluator of onnx
# gives the mean for all three.
# Seen with: onnxruntime 1.31.1 and 1.32.0, onnx 1.23.2, Python 3.11; 2026-11-28.
# Matters: exporters write this number as the mask of padded rows. Fusing the chain of MatMul,
# Add, Softmax, MatMul into Attention changes these rows, and a correct kernel seems wrong.
# Handled in: aoe/graph/rewrites/attention.py (rules between Attention and its chain keep such rows).
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
from onnx.reference import ReferenceEvaluator

shapes = {"q": [1, 1, 1, 4], "k": [1, 1, 2, 4], "v": [1, 1, 2, 4], "mask": [1, 2]}
graph = helper.make_graph(
    [helper.make_node("Attention", list(shapes), ["y"])],
    "attention",
    [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in shapes.items()
    ],
    [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1, 1, 4])],
)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)
session, reference = (
    onnxruntime.InferenceSession(model.SerializeToString()),
    ReferenceEvaluator(model),
)
feed = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
feed["v"] = np.arange(1, 9, dtype=np.float32).reshape(shapes["v"])

print("onnxruntime", onnxruntime.__version__)
mean, zeros = [3, 4, 5, 6], [0, 0, 0, 0]
lowest = np.finfo(np.float32).min
changed = []
for value, expected in ((lowest, zeros), (-3e38, mean), (-1e9, mean)):
    feed["mask"] = np.full(shapes["mask"], value, np.float32)
    found = session.run(None, feed)[0].ravel().tolist()
    evaluated = reference.run(None, feed)[0].ravel().tolist()
    print(f"mask of {value:.7g}: ONNX Runtime {found}, reference {evaluated}")
    if not (np.allclose(found, expected) and np.allclose(evaluated, mean)):
        changed.append(
            f"mask of {value:.7g} gives {found} and {evaluated}, expected {expected} and {mean}"
        )
sys.exit("behaviour changed: " + "; ".join(changed) if changed else 0)
PY
