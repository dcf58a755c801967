"""Service inside a Dask worker: a measuring process of its own, asked by a run somewhere else.

Nothing here is imported before a run wants workers: Dask takes a second to load.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from distributed import Semaphore, get_worker
from distributed.diagnostics.plugin import WorkerPlugin

from aoe.device.compiler import objects_of
from aoe.device.protocol import Device
from aoe.device.toolchain import find_toolchain
from aoe.errors import AoeError
from aoe.execute.messages import CompiledKernels, ModelPart, Reply, TaskRunner
from aoe.execute.runner import COMPILING_TASKS, MEASURING_TASKS, Runner
from aoe.execute.tasks import ComparisonTerms
from aoe.execute.workers.announcement import Announce, Announcement, announce
from aoe.execute.workers.artifact_transfer import Artifact, ArtifactStore, pack
from aoe.folders.scratch import ScratchFolder
from aoe.folders.turns import Turns
from aoe.settings import environment, lock_path
from aoe.target import Target

_IDLE_S = 600.0
"""A post nobody has asked for so long gives its processes back: its run may have been killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotSetup:
    """Settings a run sends to a worker."""

    device: Device  # Kind of device it measures on
    target: Target  # What is tuned for
    # Makes the runner of a worker; a test has one that measures nothing.
    open_runner: Callable[[SlotSetup, Announcement], TaskRunner]
    describe: Announce = announce  # Says what a worker is


@dataclass(frozen=True, slots=True, kw_only=True)
class Errand:
    """A task on its way to a worker."""

    task: str  # By name, see `aoe.execute.tasks`
    timeout_s: float  # Seconds it may take there, waiting for its turn apart
    arguments: Mapping[str, Any]  # Of the task; folders are the worker's own
    artifacts: tuple[Artifact, ...] = ()  # Files it needs


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """Answer of a worker to an errand."""

    reply: Reply  # Of the task
    artifacts: tuple[Artifact, ...] = ()  # Files it made
    missing: tuple[str, ...] = ()  # Digests the worker lacks; then nothing was done
    unknown: bool = False  # True if the worker has no post of this run: it was started again


def own_runner(setup: SlotSetup, announced: Announcement) -> Runner:
    """Return a runner on the worker's machine, which takes turns with other runs there."""
    env = environment()
    turns = Turns(lock_path(env), announced.cores)
    return Runner(setup.device, setup.target, find_toolchain(env), turns)


class MeasuringSlot(WorkerPlugin):  # type: ignore[misc]  # Dask is not always installed
    """Two measuring processes of a run on one worker, and the artifacts they have."""

    def __init__(self, setup: SlotSetup) -> None:
        self._setup = setup
        self._used_s = time.monotonic()

    def setup(self, worker: Any) -> None:
        """Look at the machine; called by Dask when the post is opened."""
        self.announced = self._setup.describe(
            self._setup.device,
            self._setup.target.core_num,
            name=str(worker.name),
            address=worker.address,
            pid=os.getpid(),
        )
        self._scratch = ScratchFolder("post")
        self._store = ArtifactStore(_made(self._scratch.path / "store"))
        self._runners: dict[bool, TaskRunner] = {}
        self._locks = {True: threading.Lock(), False: threading.Lock()}
        self._store_lock = threading.Lock()

    def teardown(self, worker: Any) -> None:
        """End the processes, busy or not, and remove the files; called by Dask at the end."""
        for runner in [*self._runners.values()]:
            runner.close()
        self._scratch.remove()

    def rest(self) -> None:
        """End the processes if nobody has asked for long; the next errand starts them again."""
        if time.monotonic() - self._used_s < _IDLE_S:
            return
        for compiles, lock in self._locks.items():
            if lock.acquire(blocking=False):
                try:
                    if (runner := self._runners.pop(compiles, None)) is not None:
                        runner.close()
                finally:
                    lock.release()

    def run(self, errand: Errand) -> Delivery:
        """Run an errand; one that measures and one that compiles at a time."""
        self._used_s = time.monotonic()
        compiles = errand.task in COMPILING_TASKS
        with (
            self._locks[compiles],
            self._lease(errand.task),
            TemporaryDirectory(dir=self._scratch.path) as folder,
        ):
            with self._store_lock:
                if missing := self._store.missing(errand.artifacts):
                    return Delivery(reply=Reply(), missing=missing)
                self._store.unpack(errand.artifacts, Path(folder))
            reply = self._reply(compiles, errand, Path(folder))
            with self._store_lock:
                return Delivery(reply=reply, artifacts=self._made_in(Path(folder), errand))

    def _reply(self, compiles: bool, errand: Errand, folder: Path) -> Reply:
        try:
            if compiles not in self._runners:
                self._runners[compiles] = self._setup.open_runner(self._setup, self.announced)
            value = self._runners[compiles].call(
                errand.task, timeout_s=errand.timeout_s, **_placed(errand.arguments, folder)
            )
            return Reply(value=value)
        except AoeError as error:
            return Reply(error=error)
        except Exception:  # the worker boundary: the run reports it
            return Reply(crash=traceback.format_exc())

    def _lease(self, task: str) -> AbstractContextManager[object]:
        """Have the device for oneself, whatever other workers and runs share it."""
        if task not in MEASURING_TASKS:
            return contextlib.nullcontext()
        lease: AbstractContextManager[object] = Semaphore(
            max_leases=1, name=f"aoe-device-{self.announced.device}"
        )
        return lease

    def _made_in(self, folder: Path, errand: Errand) -> tuple[Artifact, ...]:
        if errand.task not in COMPILING_TASKS:
            return ()
        files = [*folder.iterdir()]
        self._store.keep(files)
        return pack(files, ())


# ---- functions Dask runs on a worker, by name ----


async def open_slot(key: str, setup: SlotSetup, dask_worker: Any = None) -> Announcement:
    """Open the post of a run on a worker; return what the worker says of itself."""
    for other in dask_worker.plugins.values():
        if isinstance(other, MeasuringSlot):
            other.rest()
    slot = MeasuringSlot(setup)
    await dask_worker.plugin_add(plugin=slot, name=key, catch_errors=False)
    return slot.announced


async def close_slot(key: str, dask_worker: Any = None) -> None:
    """Close the post of a run on a worker."""
    if key in dask_worker.plugins:
        await dask_worker.plugin_remove(name=key)


def run_errand(key: str, errand: Errand) -> Delivery:
    """Run an errand in the slot of a run."""
    slot = get_worker().plugins.get(key)
    if not isinstance(slot, MeasuringSlot):
        return Delivery(reply=Reply(), unknown=True)
    return slot.run(errand)


# ---- files an errand takes along ----


def files_of(value: object) -> list[Path]:
    """Return the files an argument stands for: objects of compiled kernels, models."""
    match value:
        case CompiledKernels():
            made = [name for name, error in value.errors.items() if not error]
            return [file for name in made for file in objects_of(value.directory / f"{name}.o")]
        case ModelPart():
            files = (value.model, value.weights, value.library)
            return [file for file in files if file is not None]
        case ComparisonTerms():
            return files_of(value.rounding)
        case _:
            return []


def _placed(arguments: Mapping[str, Any], folder: Path) -> Mapping[str, Any]:
    """Return arguments whose folders are this one."""
    placed = {name: _with_files_in(folder, value) for name, value in arguments.items()}
    return {**placed, "directory": folder} if "directory" in placed else placed


def _with_files_in(folder: Path, value: Any) -> Any:
    def moved(file: Path | None) -> Path | None:
        return folder / file.name if file is not None else None

    match value:
        case CompiledKernels():
            return replace(value, directory=folder)
        case ModelPart():
            weights, library = moved(value.weights), moved(value.library)
            return replace(value, model=folder / value.model.name, weights=weights, library=library)
        case ComparisonTerms():
            return replace(value, rounding=_with_files_in(folder, value.rounding))
        case _:
            return value


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder
