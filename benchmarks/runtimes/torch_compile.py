"""torch.compile with its own compiler, weights frozen into the code as for inference."""

from __future__ import annotations

import torch
from networks.building import build_module
from runtimes.runtime import Facts, RunOnce, RuntimeTask


def build(task: RuntimeTask) -> Facts:
    """Nothing is built beforehand: compiling is loading, and its cache is this folder's."""
    return {}


def load(task: RuntimeTask) -> tuple[RunOnce, Facts]:
    """Compile; everything that is compiled later is compiled by the first run."""
    torch.set_num_threads(task.threads)
    module = build_module(task.network)
    compiled = torch.compile(module, options={"freezing": True})
    inputs = tuple(torch.from_numpy(values) for values in task.inputs.values())

    def run() -> list:  # type: ignore[type-arg]
        with torch.inference_mode():
            results = compiled(*inputs)
        single = isinstance(results, torch.Tensor)
        return [result.numpy() for result in ((results,) if single else results)]

    return run, {}
