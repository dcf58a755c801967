"""A real tuning as a program that hangs where its environment says, for tests that interrupt it.

    SLOW_AT=compile|measure|judge python -m support.engine.slow_tuning OPTIONS OF AOE

Workers are real processes; what hangs notes that in `SLOW_MARK` first. `measure` and `judge` hang
in the process that measures, `compile` in a child of the one that compiles.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_LONG_S = 600.0
_WORKER = "from support.engine.slow_tuning import slow_worker; slow_worker(*map(int, sys.argv[1:]))"


def hang() -> None:
    """Note that something hangs, and do so."""
    Path(os.environ["SLOW_MARK"]).write_text("hangs")
    while True:
        time.sleep(_LONG_S)


def slow_worker(descriptor: int, lifeline: int) -> None:
    """Be a worker in which one kind of work hangs."""
    from aoe.execute import tasks, worker

    if os.environ["SLOW_AT"] == "compile":
        tasks._compile_kernel = lambda *_: hang()  # type: ignore[attr-defined]
    made = tasks.make_tasks

    def make_tasks(setup: Any, others: Any) -> dict[str, Callable[..., Any]]:
        found = dict(made(setup, others))
        slow = {"measure": "measure_candidates", "judge": "compare_models"}
        if (task := slow.get(os.environ["SLOW_AT"])) is not None:
            found[task] = lambda **_: hang()
        return found

    tasks.make_tasks = make_tasks
    worker.main(descriptor, lifeline)


def main() -> None:
    """Run `aoe` with such workers."""
    from functools import partial

    from aoe.cli.app import main as run
    from aoe.execute.runner import Runner
    from aoe.tuner.parts import EngineParts

    run(engine=EngineParts(open_runner=partial(Runner, boot=_WORKER)))


if __name__ == "__main__":
    main()
