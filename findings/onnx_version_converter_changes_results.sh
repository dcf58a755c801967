#!/usr/bin/env bash
# Expected: the version converter of onnx gives a model that computes the same, or raises.
# Happens: three conversions succeed, pass the checker and change results. Hardmax 12 -> 13 keeps
# its axis though the meaning of axis has changed (Softmax has an adapter in this direction,
# Hardmax none). Softmax 13 -> 12 keeps it as well. Linear Resize 10 -> 11 gets the new default of
# the coordinates instead of `asymmetric`.
# Seen with: onnx 1.23.2, onnxruntime 1.32.0, Python 3.11; 2026-11-28.
# Matters: "convert it to a newer opset" is the usual advice before a model is tuned.
# Handled in: aoe/advice/trying.py (a proposed model is compared with the given one; a newer opset
# is one of the proposals, aoe/advice/proposals.py); aoe/entry/converted_versions.py (a warning of a
# Softmax over several axes); aoe/ort/newer_opsets.py (models are lowered without it).
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
from onnx import TensorProto, helper, version_converter


def run(model, x):
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return session.run(None, {"x": x})[0]


def difference(node, x, before, after, initializers=()):
    graph = helper.make_graph(
        [node],
        "converted",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * x.ndim)],
        initializers,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", before)], ir_version=7)
    onnx.checker.check_model(model, full_check=True)
    converted = version_converter.convert_version(model, after)
    onnx.checker.check_model(converted, full_check=True)
    found = float(np.abs(run(model, x) - run(converted, x)).max())
    print(f"{node.op_type} {before} -> {after}: largest difference {found:.3f}")
    return found


print("onnx", onnx.__version__, "onnxruntime", onnxruntime.__version__)
rng = np.random.default_rng(0)
rows, image = rng.random((2, 3, 4), np.float32), rng.random((1, 1, 5, 5), np.float32)
twice = helper.make_tensor("scales", TensorProto.FLOAT, [4], [1, 1, 2, 2])
resize = helper.make_node("Resize", ["x", "scales"], ["y"], mode="linear")
changed = {
    "Hardmax 12 -> 13": difference(helper.make_node("Hardmax", ["x"], ["y"], axis=1), rows, 12, 13)
    == 1,
    "Softmax 13 -> 12": difference(helper.make_node("Softmax", ["x"], ["y"], axis=1), rows, 13, 12)
    > 0.1,
    "Resize 10 -> 11": difference(resize, image, 10, 11, [twice]) > 0.1,
    "not Softmax 12 -> 13": difference(
        helper.make_node("Softmax", ["x"], ["y"], axis=1), rows, 12, 13
    )
    < 1e-6,
}
now = [what for what, holds in changed.items() if not holds]
sys.exit("behaviour changed, results no longer change in: " + "; ".join(now) if now else 0)
PY
