"""The process of one runtime: builds or loads a network, then runs it for a while when told to.

    python -m runtimes.worker TASK.json        # started by comparison.processes

Answers are lines of JSON on what was standard output; libraries that print find it turned to
standard error.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from runtimes.runtime import RunOnce, Runtime, RuntimeTask

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_WARM_SHARE = 0.2
_FEWEST_CALLS = 3
_PATIENCE = 4


def main() -> None:
    """Serve until standard input ends; the first answer comes when everything is ready."""
    end_with_parent()
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    request = json.loads(Path(sys.argv[1]).read_text())
    for answer in _answers(request):
        answers.write(json.dumps(answer) + "\n")


def end_with_parent() -> None:
    """Be killed when the suite ends, whatever ends it: a stopped process would stay for ever."""
    parent = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)


def _answers(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    try:
        task = _task(request)
        runtime: Runtime = importlib.import_module(f"runtimes.{request['module']}")
        started = time.perf_counter()
        if request["verb"] == "build":
            facts = dict(runtime.build(task))
            yield {"facts": facts, "build_s": round(time.perf_counter() - started, 2)}
            return
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: task.threads])
        run, facts = runtime.load(task)
        outputs = run()
        yield {"facts": dict(facts), "load_s": round(time.perf_counter() - started, 2)}
        np.savez(request["outputs"], *[np.asarray(output) for output in outputs])
        yield {"saved": request["outputs"]}
        gc.freeze()
        for line in sys.stdin:
            yield _turn(run, json.loads(line)["seconds"], task.threads)
    except Exception as error:
        yield {"failure": f"{type(error).__name__}: {error}"[:600]}


def _task(request: dict[str, Any]) -> RuntimeTask:
    with np.load(request["inputs"]) as file:
        inputs = {name: file[name] for name in file.files}
    return RuntimeTask(
        network=request["network"],
        model=Path(request["model"]),
        inputs=inputs,
        folder=Path(request["folder"]),
        threads=request["threads"],
        budget_s=request["budget_s"],
        options=request["options"],
    )


def _turn(run: RunOnce, seconds: float, threads: int) -> dict[str, Any]:
    """Run for about so long after a warm-up; times in us.

    Returns:
        Median and least time of a call, number of calls; `busy` is CPU time of this process over
        wall time x threads, `others` the share of the machine other processes had meanwhile.
    """
    call_for(run, _WARM_SHARE * seconds)
    cpu, machine = time.process_time(), _machine_busy_s()
    switches = resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
    started = time.perf_counter()
    times = call_for(run, seconds)
    wall = time.perf_counter() - started
    own = time.process_time() - cpu
    foreign = (_machine_busy_s() - machine - own) / (wall * (os.cpu_count() or 1))
    return {
        "median_us": round(median(times) * 1e6, 2),
        "least_us": round(min(times) * 1e6, 2),
        "calls": len(times),
        "busy": round(own / (wall * threads), 3),
        "others": round(min(max(foreign, 0.0), 1.0), 3),  # what is counted has steps of 10 ms
        "switches": resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw - switches,
    }


def call_for(
    run: RunOnce, seconds: float, clock: Callable[[], float] = time.perf_counter
) -> list[float]:
    """Return the times of calls in s: three at least, unless they take four times as long."""
    times: list[float] = []
    started = clock()
    while True:
        began = clock()
        run()
        ended = clock()
        times.append(ended - began)
        spent = ended - started
        enough = len(times) >= _FEWEST_CALLS or spent >= _PATIENCE * seconds
        if spent >= seconds and enough:
            return times


def _machine_busy_s() -> float:
    """Return the seconds all processors were busy, or taken away by the hypervisor, since boot."""
    with Path("/proc/stat").open() as file:
        user, nice, system, _, _, irq, softirq, steal = map(int, file.readline().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
