#!/usr/bin/env bash
# Expected: a pooling window larger than the image and its padding fits nowhere: by the formula of
# the specification, floor((in - kernel) / stride + 1), there is no result, or an error.
# Happens: with a stride of 2 or more, shape inference of onnx and ONNX Runtime give one result, the
# window cut off at the border (a division that truncates to 0 where a floor is -1); with a stride of
# 1 they give none, an empty tensor. The reference evaluator follows the formula, torch refuses, and
# ONNX Runtime's own Conv of that kernel and stride fails when it runs, though shape inference says 1.
# Seen with: onnxruntime 1.31.1 and 1.32.0, onnx 1.23.2, Python 3.11; 2026-11-29.
# Matters: a classifier that is given an image below its least size runs through and answers,
# or fails at a later layer, depending on a stride.
# Handled in: aoe/kernels (pooling takes its extents from ONNX Runtime, and cuts windows off as it
# does).
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


print("onnxruntime", onnxruntime.__version__, "onnx", onnx.__version__)
x = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
changed = []
for operator, stride, kernel, dilation, extents in (
    ("MaxPool", 2, 5, 1, (1, 0)),
    ("AveragePool", 2, 5, 1, (1, 0)),
    ("LpPool", 2, 5, 1, (1, 0)),
    ("MaxPool", 3, 3, 2, (1, 0)),
    ("MaxPool", 1, 5, 1, (0, 0)),
    ("AveragePool", 1, 5, 1, (0, 0)),
):
    pool = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "dilations": [dilation] * 2}
    proto = model(operator, 22, {"x": x}, **pool)
    onnx.checker.check_model(onnx.shape_inference.infer_shapes(proto), full_check=True)
    inferred = onnx.shape_inference.infer_shapes(proto).graph.output[0].type.tensor_type.shape
    run = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, {"x": x})[0]
    try:
        rows = ReferenceEvaluator(proto).run(None, {"x": x})[0].shape[2]
    except RuntimeError:  # some operators of the reference refuse an empty result
        rows = 0
    found = inferred.dim[2].dim_value, run.shape[2], rows
    what = f"{operator}, kernel {kernel}, dilation {dilation}, stride {stride}, image 4"
    print(f"{what}: rows inferred {found[0]}, of ONNX Runtime {found[1]}, of the reference {found[2]}")
    if found != (extents[0], extents[0], extents[1]):
        changed.append(what)
kernel = {"x": x, "w": np.ones((1, 1, 5, 5), np.float32)}
proto = model("Conv", 22, kernel, strides=[2, 2])
try:
    onnxruntime.InferenceSession(proto.SerializeToString()).run(None, kernel)
    changed.append("Conv")
except Exception as error:
    print("Conv:", str(error).splitlines()[0][:150])
sys.exit("behaviour changed: " + "; ".join(changed) if changed else 0)
PY
