#!/usr/bin/env bash
# Expected: Pow of two int64 tensors is exact where the result fits into 64 bits.
# Happens: ONNX Runtime computes it in float64: 3^39 ends in 256 instead of 267, and 7^22 is off
# by 239. The reference evaluator of onnx is exact, and so is ONNX Runtime with a chain of Mul. No
# error or warning says so; results are whole numbers and look exact.
# Seen with: onnxruntime 1.31.1 and 1.32.0, onnx 1.23.2, Python 3.11; 2026-11-28.
# Matters: index and hash arithmetic inside a model; a rewrite of Pow into products changes
# integers.
# Handled in: not needed; the rewrites of aoe/graph/rewrites/arithmetic.py take floats.
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

base, exponent = np.int64([3, -3, 7, 10]), np.int64([39, 39, 22, 18])
graph = helper.make_graph(
    [helper.make_node("Pow", ["x", "n"], ["y"])],
    "power",
    [helper.make_tensor_value_info(name, TensorProto.INT64, [4]) for name in "xn"],
    [helper.make_tensor_value_info("y", TensorProto.INT64, [4])],
)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
feed = {"x": base, "n": exponent}
runtime = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feed)[0].tolist()
reference = ReferenceEvaluator(model).run(None, feed)[0].tolist()
exact = [int(x) ** int(n) for x, n in zip(base, exponent)]

print("onnxruntime", onnxruntime.__version__)
for x, n, *values in zip(base, exponent, runtime, reference, exact):
    print(f"{x}^{n}: " + "ONNX Runtime {}, reference {}, exact {}".format(*values))

seen = {
    "the reference is exact": reference == exact,
    "10^18, a float64, is exact": runtime[3] == exact[3],
    "the others are those of float64": runtime[:3] == [int(float(value)) for value in exact[:3]],
    "these differ from the exact ones": all(a != b for a, b in zip(runtime[:3], exact[:3])),
}
changed = [what for what, holds in seen.items() if not holds]
sys.exit("behaviour changed, no longer true: " + "; ".join(changed) if changed else 0)
PY
