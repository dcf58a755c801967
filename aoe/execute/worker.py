"""The measuring process: compiles, checks and times, so that a crash or a hang costs one trial.

The parent talks to it over a pipe, see `aoe.execute.runner`. One worker serves one device; while
it measures, nothing else of the engine runs.
"""

from __future__ import annotations

import signal
import traceback
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from typing import Any

from aoe.errors import AoeError
from aoe.execute.messages import Reply, Request, WorkerSetup


def main(descriptor: int) -> None:
    """Serve requests until the parent closes its end of the pipe.

    Ctrl-C goes to the whole process group; the parent decides what it means, so the worker
    ignores it.

    Args:
        descriptor: The worker's end of the pipe, inherited.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connection = Connection(descriptor)
    setup: WorkerSetup = connection.recv()
    from aoe.execute.tasks import make_tasks

    tasks = make_tasks(setup)
    while True:
        try:
            request = connection.recv()
        except (EOFError, OSError):
            return
        connection.send(_serve(tasks, request))


def _serve(tasks: Mapping[str, Callable[..., Any]], request: Request) -> Reply:
    try:
        return Reply(value=tasks[request.task](**request.arguments))
    except AoeError as error:
        return Reply(error=error)
    except Exception:  # the worker boundary: the parent reports it
        return Reply(crash=traceback.format_exc())
