"""Workers of pytest-xdist that replace crashed ones: they run what is left, or the run fails.

A pytest plugin; `tests/conftest.py` registers it.
"""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController


class _Scheduling(LoadFileScheduling):
    """Whole files to workers, and to the successor of the last worker what that one has left.

    pytest-xdist 3.8 gives a successor one file at first, maybe one whose tests have all been run.
    As a worker begins a test when it knows what comes next, it then waits for ever, and so does
    the run where no other worker is left.
    """

    def remove_node(self, node: WorkerController) -> str | None:
        files = self.assigned_work.get(node, {})
        for file in [file for file, tests in files.items() if all(tests.values())]:
            del files[file]
        return super().remove_node(node)

    def schedule(self) -> None:
        is_successor = self.collection is not None
        super().schedule()
        if is_successor:
            super().schedule()  # a second file


_SCHEDULING = pytest.StashKey[_Scheduling]()


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _Scheduling | None:
    if config.option.dist != "loadfile":
        return None
    config.stash[_SCHEDULING] = _Scheduling(config, log)
    return config.stash[_SCHEDULING]


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Tell a run that has left tests out from one whose failed tests may be tried again."""
    scheduling = session.config.stash.get(_SCHEDULING, None)
    if scheduling is not None and scheduling.has_pending:
        session.exitstatus = pytest.ExitCode.INTERRUPTED
