"""The command `aoe` with scripted measurements: it notes what it tries, and may be killed.

    python -m support.engine.reloaded_tuning WORKLOADS CALLS WORDS...

Every candidate goes into `tried` in the current folder, a line of JSON with its workload and its
schedule, before it is measured. With WORKLOADS = n > 0 the process ends as by kill -9 where the
n-th workload is to be measured for the time after CALLS others; with 0 it runs to its end. WORDS
are those of the command line.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import aoe.validation.kernel_assembly
from aoe.cli.app import main as aoe_main
from aoe.tuner.parts import EngineParts
from aoe.workload import workload_from_json, workload_to_json
from aoebank import workload_key
from support.engine.fakes import ScriptedRunner


class NotedTrials:
    """What was tried, in a file; ends the process where it is told to.

    Args:
        workloads: Number of the workload it ends at, from 1; 0 for none.
        calls: Calls of that one which are answered before.
    """

    def __init__(self, workloads: int, calls: int) -> None:
        self._workloads = workloads
        self._calls = calls
        self._seen: dict[str, int] = {}

    def take(self, workload: Any, schedules: Any) -> None:
        """Note the candidates of a call."""
        key = workload_key(workload_to_json(workload_from_json(workload)))
        answered = self._seen.setdefault(key, 0)
        if len(self._seen) == self._workloads and answered == self._calls:
            os.kill(os.getpid(), signal.SIGKILL)
        self._seen[key] += 1
        with Path("tried").open("a") as file:
            for schedule in schedules:
                file.write(json.dumps([key, json.dumps(schedule, sort_keys=True)]) + "\n")


def main() -> None:
    """Tune as the command line says."""
    trials = NotedTrials(int(sys.argv[1]), int(sys.argv[2]))

    class NotingRunner(ScriptedRunner):
        def call(self, task: str, **arguments: Any) -> Any:
            if task == "measure_candidates":
                trials.take(arguments["workload"], arguments["schedules"])
            return super().call(task, **arguments)

    # operators win alone and lose together; nothing is compiled
    engine = EngineParts(open_runner=lambda *_: NotingRunner(jitter=0.0005, drift=0.0))
    aoe.validation.kernel_assembly.Assembly.build = lambda *_, **__: {}  # type: ignore[method-assign]
    aoe_main(sys.argv[3:], engine=engine)


if __name__ == "__main__":
    main()
