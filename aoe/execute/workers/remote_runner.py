"""A runner that executes its tasks on one worker of a remote pool."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from aoe.device.protocol import Device
from aoe.device.toolchain import Toolchain
from aoe.errors import RunError
from aoe.execute.messages import TaskRunner
from aoe.execute.runner import COMPILING_TASKS, MEASURING_TASKS
from aoe.execute.workers.remote_pool import RemotePool, WorkerLostError, WorkerSlot
from aoe.target import Target

_MOST_LOSSES = 2
"""A task that has lost so many workers may be what ends them."""


@dataclass(slots=True, eq=False)
class RemoteRunner:
    """Runs the tasks of one operator; baseline and candidate of a pair share a worker.

    Attributes:
        remote_pool: The workers.
        local: Stands in where no worker is left.
        released: Lets the other seats go on while this one waits.
        told: Is told when this machine has to stand in.
    """

    remote_pool: RemotePool
    local: TaskRunner
    released: Callable[[], AbstractContextManager[None]] = field(kw_only=True)
    told: Callable[[str], None] = field(kw_only=True)
    _slot: WorkerSlot | None = field(default=None, init=False)

    @property
    def device(self) -> Device:
        """What is measured on."""
        return self.local.device

    @property
    def toolchain(self) -> Toolchain:
        """What links libraries on this machine."""
        return self.local.toolchain

    @property
    def target(self) -> Target:
        """What is compiled and measured for."""
        return self.remote_pool.target

    def take(self) -> None:
        """Sit down at the worker that has least to do and can be believed; else here."""
        self.leave()
        while worker_slots := self.remote_pool.measuring():
            slot = self._sit(worker_slots[0])
            try:
                with self.released():
                    self.remote_pool.calibrate(slot)
            except WorkerLostError:
                self.remote_pool.lose(slot)
            if slot in self.remote_pool.measuring():
                return
            self.leave()
        self.told("no worker is left to measure on; this machine goes on alone")

    def leave(self, *, is_done: bool = False) -> None:
        """Get up; `is_done` counts the operator."""
        if self._slot is not None:
            self._slot.jobs -= 1
            self._slot.done += is_done
            self._slot = None

    def call(self, task: str, *, timeout_s: float, **arguments: Any) -> Any:
        """Run a task on the worker; one that is lost with it is run on another, once.

        Raises:
            RunTimeoutError: no answer in time.
            RunError: the measuring process died, the task failed, or it has cost two workers.
        """
        losses: list[str] = []
        while self._slot is not None and task in MEASURING_TASKS | COMPILING_TASKS:
            slot = self._slot
            try:
                with self.released():
                    return self._ask(slot, task, timeout_s, arguments)
            except WorkerLostError as error:
                losses.append(str(error))
                self.remote_pool.lose(slot)
                self.take()
                if len(losses) == _MOST_LOSSES:
                    raise RunError(task, f"lost with {' and '.join(losses)}") from error
        self.remote_pool.check_open()
        return self.local.call(task, timeout_s=timeout_s, **arguments)

    def sibling(self) -> RemoteRunner:
        """Return itself: a worker has a process that compiles beside the one that measures."""
        return self

    def close(self) -> None:
        """Do nothing: the processes are the pool's."""

    def _sit(self, slot: WorkerSlot) -> WorkerSlot:
        slot.jobs += 1
        self._slot = slot
        return slot

    def _ask(self, slot: WorkerSlot, task: str, timeout_s: float, arguments: dict[str, Any]) -> Any:
        if task in COMPILING_TASKS:
            return self.remote_pool.compile(slot, timeout_s=timeout_s, **arguments)
        return self.remote_pool.call(slot, task, timeout_s=timeout_s, **arguments)
