#!/usr/bin/env bash
# Expected: with align_corners, an axis of one pixel has its centre at 0, as in PyTorch: the identity
# gives a grid that samples an image of one row where it is.
# Happens: three libraries give three answers. ONNX Runtime puts the only row at +1, the reference
# evaluator of onnx at -1 (behind a warning of a division by zero), torch at 0. Without
# align_corners all say 0.
# Seen with: onnxruntime 1.31.1 and 1.32.0, onnx 1.23.2, torch 2.13.0 (not installed here: its 0 is
# written down), Python 3.11; 2026-11-29.
# Matters: a spatial transformer exported with a batch of rows or columns samples behind the border
# (zeros with the default padding) in ONNX Runtime alone.
# Handled in: nothing; AffineGrid has no kernel, and a tuned model computes what ONNX Runtime does.
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


print("onnxruntime", onnxruntime.__version__, "onnx", onnx.__version__)
identity = np.array([[[1, 0, 0], [0, 1, 0]]], np.float32)
row = {"theta": identity, "size": np.array([1, 1, 1, 3], np.int64)}
found = {}
for align in (0, 1):
    found[align] = [float(grid[0, 0, 0, 1]) for grid in both("AffineGrid", 20, row, align_corners=align)]
    ours, reference = found[align]
    print(f"align_corners {align}: row of ONNX Runtime {ours}, of the reference {reference}, of torch 0")
sys.exit(0 if found == {0: [0, 0], 1: [1, -1]} else "behaviour changed")
PY
