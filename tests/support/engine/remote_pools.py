"""Worker processes with simulated devices: each behaves as its name says."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aoe.device.protocol import Device
from aoe.device.registry import default_device
from aoe.errors import CompilerNotFoundError, RunError
from aoe.execute.messages import TaskRunner
from aoe.execute.workers.announcement import Announcement
from aoe.execute.workers.local import connected, local_scheduler, started_workers
from aoe.execute.workers.remote_pool import RemotePool
from aoe.measurement import MeasurePolicy
from aoe.schedule import Schedule, schedule_to_json
from support.engine.fakes import ScriptedRunner, make_target
from support.engine.subgraphs import by_splits

if TYPE_CHECKING:
    from distributed import Client

    from aoe.execute.workers.service import SlotSetup

VERSIONS = {"aoe": "0.1.0", "halide": "21.0.0", "onnxruntime": "1.30.0"}
POLICY = MeasurePolicy(pairs_min=6, pairs_max=12)


def speed_of(schedule: Schedule) -> float:
    """Return the true speed-up of a schedule, the same on every machine."""
    return 1.2 + sum(map(ord, str(schedule_to_json(schedule)))) % 100 / 100


@dataclass(frozen=True)
class SimulatedWorkers:
    """What workers do, by what their names begin with.

    `good` measures, `other` is another machine, `other_without` is one that has no compiler, `old`
    has another ONNX Runtime, `biased` finds the same code 1.2x as fast as itself, `slowing` does so
    from its second calibration on, `mortal` is killed while it measures for the first time, `busy`
    gets half of the CPU time it asks for.
    """

    notes: Path  # Folder in which each worker notes what it was asked for

    def describe(
        self, device: Device, core_num: int, *, name: str, address: str, pid: int
    ) -> Announcement:
        """Return a machine of its own for each worker."""
        target = make_target()
        if name.startswith("other"):
            target = replace(target, soc_version="x86-64-other")
        versions = dict(VERSIONS)
        if name.startswith("old"):
            versions["onnxruntime"] = "1.29.0"
        return Announcement(
            name=name, host=name, pid=pid, target=target, cores=("cpu0",), versions=versions
        )

    def open_runner(self, setup: SlotSetup, announced: Announcement) -> TaskRunner:
        """Return a runner that only says what the worker's script is."""
        if announced.name.startswith("other_without"):
            raise CompilerNotFoundError("C compiler", "none found")
        return SimulatedRunner(kind=announced.name, notes=self.notes)


@dataclass(slots=True, kw_only=True)
class SimulatedRunner(ScriptedRunner):
    """A scripted runner on a worker."""

    kind: str
    notes: Path
    calibrations: int = 0

    def call(self, task: str, *, timeout_s: float, **arguments: Any) -> Any:
        """Note the task, and do what this worker does."""
        with (self.notes / self.kind).open("a") as file:
            file.write(f"{task}\n")
        self.candidate, self.model = speed_of, by_splits(1.2)
        if self.kind.startswith("busy"):
            self.given_share = 0.5
        if task == "compare_itself":
            self.calibrations += 1
            odd = self.kind.startswith("biased") or (
                self.kind.startswith("slowing") and self.calibrations > 1
            )
            self.itself = 1.2 if odd else 1.0
        if task == "measure_candidates":
            self._measure_or_die(arguments)
        if task == "compare_models":
            _check_files(arguments)
        return ScriptedRunner.call(self, task, timeout_s=timeout_s, **arguments)

    def _measure_or_die(self, arguments: dict[str, Any]) -> None:
        if self.kind.startswith("mortal"):
            os.kill(os.getpid(), signal.SIGKILL)
        compiled = arguments.get("compiled")
        if compiled is not None:
            made = {name for name, error in compiled.errors.items() if not error}
            here = {file.name.partition(".")[0] for file in compiled.directory.glob("*.o")}
            if made != here:
                raise RunError("worker", f"objects missing: {made ^ here}")


def _check_files(arguments: dict[str, Any]) -> None:
    """Raise an error unless all files of a comparison are the worker's own, in one folder."""
    parts = [arguments["baseline"], arguments["tuned"], arguments["terms"].rounding]
    named = [file for part in parts if part for file in (part.model, part.weights, part.library)]
    given = {file for file in named if file is not None}
    (folder, *others) = {file.parent for file in given}
    if others or {*folder.iterdir()} != given:
        raise RunError("worker", f"{sorted(given)} in place of {sorted(folder.iterdir())}")


@dataclass(frozen=True)
class SimulatedProcesses:
    """Worker processes, a client of their scheduler, and where they note what they do."""

    client: Client
    notes: Path


@dataclass
class SimulatedPool:
    """Workers with simulated devices, and what the run was told of them."""

    remote_pool: RemotePool  # The workers
    client: Client  # Of their scheduler
    notes: Path  # Folder of what each was asked for
    # (text, True for a warning) in order.
    told: list[tuple[str, bool]] = field(default_factory=list)

    def tasks(self, name: str) -> list[str]:
        """Return what a worker was asked for."""
        file = self.notes / name
        return file.read_text().split() if file.exists() else []

    @property
    def warnings(self) -> list[str]:
        """What the run was warned of."""
        return [text for text, is_warning in self.told if is_warning]


@contextmanager
def simulated_workers(folder: Path, names: Sequence[str]) -> Iterator[SimulatedProcesses]:
    """Have a process for each name, with a scheduler in this one."""
    notes = folder / "notes"
    notes.mkdir()
    with (
        local_scheduler() as address,
        started_workers(address, len(names), lambda number: names[number]),
        connected(address) as client,
    ):
        client.wait_for_workers(len(names), timeout=60)
        yield SimulatedProcesses(client=client, notes=notes)


@contextmanager
def remote_pool_of(processes: SimulatedProcesses) -> Iterator[SimulatedPool]:
    """Have a run's farm of these workers; what they were asked for before is forgotten."""
    from aoe.execute.workers.service import SlotSetup

    for file in processes.notes.iterdir():
        file.unlink()
    script = SimulatedWorkers(processes.notes)
    told: list[tuple[str, bool]] = []
    setup = SlotSetup(
        device=default_device(),
        target=make_target(),
        open_runner=script.open_runner,
        describe=script.describe,
    )
    remote_pool = RemotePool(
        processes.client,
        setup,
        versions=VERSIONS,
        policy=POLICY,
        on_event=lambda text, is_warning: told.append((text, is_warning)),
    )
    remote_pool.refresh()
    try:
        yield SimulatedPool(remote_pool, processes.client, processes.notes, told)
    finally:
        remote_pool.close()


@contextmanager
def simulated_pool(folder: Path, names: Sequence[str]) -> Iterator[SimulatedPool]:
    """Have workers and a farm of them."""
    with simulated_workers(folder, names) as processes, remote_pool_of(processes) as remote_pool:
        yield remote_pool


class OpenedPools:
    """The farms runs have opened, in the place of those of `--workers`.

    Args:
        processes: Their workers.
        names: Those of the workers.
    """

    def __init__(self, processes: SimulatedProcesses, names: Sequence[str]) -> None:
        self.remote_pools: list[SimulatedPool] = []
        self._processes = processes
        self._names = names

    @contextmanager
    def open(self, *_: Any, **__: Any) -> Iterator[RemotePool]:
        """Stand in for `open_remote_pool`."""
        with remote_pool_of(self._processes) as remote_pool:
            self.remote_pools.append(remote_pool)
            yield remote_pool.remote_pool

    def asked(self, task: str) -> dict[str, int]:
        """Return how often each worker of the last farm was asked for something."""
        return {name: self.remote_pools[-1].tasks(name).count(task) for name in self._names}
