"""One form of one training in a process of its own: prepared, then timed when it is asked.

    python benchmarks/training_worker.py '{"network": "vae", "form": "aoe", ...}'

Answers with a line of JSON when it is ready, and with one for each line it is sent.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from statistics import median
from typing import Any

import torch
from networks.trained import TRAININGS, Training, losses

FORMS = {
    "eager": "eager, as scripts have it",
    "fused": "eager, fused optimizer",
    "inductor": "Inductor, model",
    "inductor_step": "Inductor, model and step",
    "aoe": "aoe, as `AOE_MODE=2` has it",
}
FIRST = ("aoe", "aot_eager")
"""Backends of `torch.compile` whose first step is timed; as a form their names follow `first_`."""
_LEAST_STEPS = 2
Step = Callable[[], float]


def main() -> None:
    """Prepare a form, then take turns."""
    task = json.loads(sys.argv[1])
    torch.set_num_threads(task["threads"])
    torch.manual_seed(0)
    training = TRAININGS[task["network"]][1]()
    if task["form"].startswith("first_"):
        _answer({"cpu_s": _first_step(training, task)})
        return
    began_s = time.monotonic()
    found, step, more = _FORMS[task["form"]](training, task)
    _answer({"losses": found, "prepared_s": round(time.monotonic() - began_s, 2), **more()})
    for line in sys.stdin:
        _answer({"ms": _timed(step, json.loads(line))})


def _answer(value: Mapping[str, Any]) -> None:
    print(json.dumps(value), flush=True)


def _first_step(training: Training, task: Mapping[str, Any]) -> float:
    """Return the CPU time of a first step, compiling included, in seconds.

    A step of eager comes before: what PyTorch prepares once is no part of it. The steps behind it
    let a later process find everything decided.
    """
    backend, batch = task["form"].removeprefix("first_"), _batch(training)
    training.loss(training.module, batch).backward()
    training.module.zero_grad()
    options = {"tuning_time_limit": task["budget"]} if backend == "aoe" else None
    began_s = time.process_time()
    module = torch.compile(training.module, backend=backend, options=options)
    training.loss(module, batch).backward()
    first_s = time.process_time() - began_s
    for _ in range(task["steps"] - 1):
        training.loss(module, batch).backward()
    return round(first_s, 3)


def _timed(step: Step, seconds: float) -> float:
    """Return the median time of a step, in ms; a first one is warm-up."""
    step()
    times: list[float] = []
    end_s = time.perf_counter() + seconds
    while len(times) < _LEAST_STEPS or time.perf_counter() < end_s:
        began_s = time.perf_counter()
        step()
        times.append((time.perf_counter() - began_s) * 1e3)
    return median(times)


Prepared = tuple[list[float], Step, Callable[[], dict[str, Any]]]


def _eager(training: Training, task: Mapping[str, Any], *, fused: bool | None = None) -> Prepared:
    optimizer = torch.optim.AdamW(training.module.parameters(), fused=fused)
    found = losses(training, optimizer, task["steps"])
    return found, partial(_one, training, training.module, optimizer, _batch(training)), dict


def _inductor(
    training: Training, task: Mapping[str, Any], *, compiles_step: bool = False
) -> Prepared:
    rate = torch.tensor(1e-3) if compiles_step else 1e-3  # a number is compiled anew
    optimizer = torch.optim.AdamW(training.module.parameters(), lr=rate)
    if compiles_step:
        optimizer.step = torch.compile(optimizer.step)  # type: ignore[method-assign]
    module = torch.compile(training.module)
    found = losses(training, optimizer, task["steps"], module=module)
    return found, partial(_one, training, module, optimizer, _batch(training)), dict


def _aoe(training: Training, task: Mapping[str, Any]) -> Prepared:
    from aoe.torch.scripts.compiling import ScriptTraining

    watching = ScriptTraining({"tuning_time_limit": task["budget"]})
    watching.start()
    optimizer = torch.optim.AdamW(training.module.parameters())
    found = losses(training, optimizer, task["steps"])
    watching.close()

    def more() -> dict[str, Any]:
        regions = [one for graph in watching.graphs for one in graph.regions]
        return {
            "graphs": len(watching.graphs),
            "used": sum(bool(graph.is_used) for graph in watching.graphs),
            "regions": len(regions),
            "faster": sum(region.is_used for region in regions),
            "fused": sum(one.fused for one in watching.optimizers.found),
        }

    return found, partial(_one, training, training.module, optimizer, _batch(training)), more


def _batch(training: Training) -> Any:
    torch.manual_seed(1)
    return training.draw()


def _one(training: Training, module: Any, optimizer: Any, batch: Any) -> float:
    optimizer.zero_grad()
    loss = training.loss(module, batch)
    loss.backward()
    optimizer.step()
    return float(loss.detach())


_FORMS: dict[str, Callable[[Training, Mapping[str, Any]], Prepared]] = {
    "eager": _eager,
    "fused": partial(_eager, fused=True),
    "inductor": _inductor,
    "inductor_step": partial(_inductor, compiles_step=True),
    "aoe": _aoe,
}


if __name__ == "__main__":
    main()
