"""ONNX Runtime with every optimisation on."""

from __future__ import annotations

import onnxruntime
from runtimes.runtime import Facts, RunOnce, RuntimeTask


def build(task: RuntimeTask) -> Facts:
    """Nothing is built beforehand."""
    return {}


def load(task: RuntimeTask) -> tuple[RunOnce, Facts]:
    """Create a session with its own pool of as many threads."""
    onnxruntime.disable_telemetry_events()
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.intra_op_num_threads = task.threads
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        str(task.model), options, providers=["CPUExecutionProvider"]
    )
    feed = dict(task.inputs)
    return lambda: session.run(None, feed), {}
