"""OpenVINO on the CPU, in float32 where that is set, else in what it chooses itself."""

from __future__ import annotations

from openvino import Core
from runtimes.runtime import Facts, RunOnce, RuntimeTask


def build(task: RuntimeTask) -> Facts:
    """Nothing is built beforehand."""
    return {}


def load(task: RuntimeTask) -> tuple[RunOnce, Facts]:
    """Compile for the latency of one request; inputs and outputs are shared, not copied."""
    core = Core()
    config = {
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": "1",
        "INFERENCE_NUM_THREADS": task.threads,
    }
    if "precision" in task.options:
        config["INFERENCE_PRECISION_HINT"] = task.options["precision"]
    compiled = core.compile_model(core.read_model(task.model), "CPU", config)
    request = compiled.create_infer_request()
    feed = dict(task.inputs)

    def run() -> list:  # type: ignore[type-arg]
        results = request.infer(feed, share_inputs=True, share_outputs=True)
        return [results[output] for output in compiled.outputs]

    precision = compiled.get_property("INFERENCE_PRECISION_HINT").get_type_name()
    return run, {"computes_in": precision}
