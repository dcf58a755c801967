"""A runner whose tasks are done on one worker of a farm, until that is lost."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from aoe.device.protocol import Device
from aoe.device.toolchain import Toolchain
from aoe.errors import RunError
from aoe.execute.messages import TaskRunner
from aoe.execute.runner import COMPILING_TASKS, MEASURING_TASKS
from aoe.execute.workers.farm import Farm, Post, WorkerLostError
from aoe.target import Target

_MOST_LOSSES = 2
"""A task that has lost so many workers may be what ends them."""


class SeatAtWorker:
    """Runs the tasks of one operator; baseline and candidate of a call are on the same worker.

    Args:
        farm: The workers.
        local: Stands in where no worker is left.
        released: Lets the other seats go on while this one waits.
        told: Is told when this machine has to stand in.
    """

    def __init__(
        self,
        farm: Farm,
        local: TaskRunner,
        *,
        released: Callable[[], AbstractContextManager[None]],
        told: Callable[[str], None],
    ) -> None:
        self._farm = farm
        self._local = local
        self._released = released
        self._told = told
        self._post: Post | None = None

    @property
    def device(self) -> Device:
        """What is measured on."""
        return self._local.device

    @property
    def toolchain(self) -> Toolchain:
        """What links libraries on this machine."""
        return self._local.toolchain

    @property
    def target(self) -> Target:
        """What is compiled and measured for."""
        return self._farm.target

    def take(self) -> None:
        """Sit down at the worker that has least to do and can be believed; else here."""
        self.leave()
        while posts := self._farm.measuring():
            post = self._sit(posts[0])
            try:
                with self._released():
                    self._farm.calibrate(post)
            except WorkerLostError:
                self._farm.lose(post)
            if post in self._farm.measuring():
                return
            self.leave()
        self._told("no worker is left to measure on; this machine goes on alone")

    def leave(self, *, is_done: bool = False) -> None:
        """Get up; `is_done` counts the operator."""
        if self._post is not None:
            self._post.jobs -= 1
            self._post.done += is_done
            self._post = None

    def call(self, task: str, *, timeout_s: float, **arguments: Any) -> Any:
        """Run a task on the worker; one that is lost with it is run on another, once.

        Raises:
            RunTimeoutError: no answer in time.
            RunError: the measuring process died, the task failed, or it has cost two workers.
        """
        losses: list[str] = []
        while self._post is not None and task in MEASURING_TASKS | COMPILING_TASKS:
            post = self._post
            try:
                with self._released():
                    return self._ask(post, task, timeout_s, arguments)
            except WorkerLostError as error:
                losses.append(str(error))
                self._farm.lose(post)
                self.take()
                if len(losses) == _MOST_LOSSES:
                    raise RunError(task, f"lost with {' and '.join(losses)}") from error
        self._farm.check_open()
        return self._local.call(task, timeout_s=timeout_s, **arguments)

    def sibling(self) -> SeatAtWorker:
        """Return itself: a worker has a process that compiles beside the one that measures."""
        return self

    def close(self) -> None:
        """Do nothing: the processes are the farm's."""

    def _sit(self, post: Post) -> Post:
        post.jobs += 1
        self._post = post
        return post

    def _ask(self, post: Post, task: str, timeout_s: float, arguments: dict[str, Any]) -> Any:
        if task in COMPILING_TASKS:
            return self._farm.compile(post, timeout_s=timeout_s, **arguments)
        return self._farm.call(post, task, timeout_s=timeout_s, **arguments)
