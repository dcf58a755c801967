#!/usr/bin/env bash
# Expected: channels of LRN farther away than its window do not influence a result.
# Happens: ONNX Runtime keeps one running sum of squares over the channels. What a large channel
# adds is subtracted again with its rounding error: with one channel of 1e6 among ones, every
# later channel is infinity or NaN. A NaN in one channel reaches all later ones.
# Seen with: onnxruntime 1.31.1 and 1.32.0, onnx 1.23.2, Python 3.11; 2026-11-28.
# Matters: a correct kernel differs from ONNX Runtime on such inputs and looks wrong.
# Handled in: aoe/operators/facts.py (`MODERATE`), aoe/graph/workload_model.py (`special_inputs`).
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

CHANNELS, LARGE, SIZE = 30, 5, 3
node = helper.make_node("LRN", ["x"], ["y"], size=SIZE, alpha=1.0, beta=0.75, bias=1.0)
shape = [1, CHANNELS, 1, 1]
graph = helper.make_graph(
    [node],
    "normalisation",
    [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
    [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
session = onnxruntime.InferenceSession(model.SerializeToString())


def run(value):
    x = np.ones(shape, np.float32)
    x[0, LARGE] = value
    return session.run(None, {"x": x})[0].ravel()


far = slice(LARGE + SIZE // 2 + 1, CHANNELS - 1)
of_ones = run(1.0)
large, undefined = run(1e6), run(np.nan)
print("onnxruntime", onnxruntime.__version__)
print("all ones:          ", of_ones[[0, 3, *range(8, 12), 29]])
print("channel 5 is 1e6:  ", large[[0, 3, *range(8, 12), 29]])
print("channel 5 is NaN:  ", undefined[[0, 3, *range(8, 12), 29]])

seen = {
    "channels before the large one are right": np.allclose(large[:4], of_ones[:4]),
    "no channel behind the large one is a number": not np.isfinite(large[far]).any(),
    "every channel behind the NaN is NaN": np.isnan(undefined[far]).all(),
}
changed = [what for what, holds in seen.items() if not holds]
sys.exit("behaviour changed, no longer true: " + "; ".join(changed) if changed else 0)
PY
