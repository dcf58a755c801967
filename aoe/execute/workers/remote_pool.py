"""The workers of a run: who is there, who measures, who is set aside, and how they are asked."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from aoe.device.protocol import Device
from aoe.errors import AoeError, RemotePoolError, RunError
from aoe.execute.workers.announcement import Announcement, WorkerPart, part_of
from aoe.execute.workers.artifact_transfer import pack
from aoe.execute.workers.local import CONNECT_S, connected, parse_workers
from aoe.measurement import Measurement, MeasurePolicy, estimate_speedup
from aoe.target import Target

if TYPE_CHECKING:
    from distributed import Client, Future

    from aoe.execute.workers.service import Delivery, Errand, SlotSetup


_POLL_S = 1.0
"""A worker that is gone is missed after so long."""
_CALIBRATION_TIMEOUT_S = 60.0
JOBS_BETWEEN_CALIBRATIONS = 8
"""Operators a worker tunes before it is compared with itself again."""


_NO_SCHEDULER = (OSError, RuntimeError, AttributeError)
"""Errors of a call to a scheduler that is gone, the last of a client that has given it up."""


class WorkerLostError(Exception):
    """A worker is gone with what it was doing."""


class RemotePoolClosed(BaseException):
    """The run ends; jobs that wait for a worker have no result."""


@dataclass(slots=True, kw_only=True, eq=False)
class WorkerSlot:
    """One worker as the run knows it."""

    address: str  # In Dask
    announced: Announcement  # What it says of itself
    part: WorkerPart  # What it is used for
    jobs: int = 0  # Operators at it now
    done: int = 0  # Operators since its last calibration
    known: set[str] = field(default_factory=set)  # Digests of files it has
    first: Measurement | None = None  # Its first calibration, None before it

    def __str__(self) -> str:
        return f"worker {self.announced.name} ({self.address})"


class RemotePool:
    """Workers of a Dask scheduler on which a run measures and compiles.

    Args:
        client: Of the scheduler.
        setup: What workers are told.
        versions: Of the run; a worker with others is refused.
        policy: Of calibrations.
        on_event: Is told who is there and who is not any more: (text, True for a warning).
    """

    def __init__(
        self,
        client: Client,
        setup: SlotSetup,
        *,
        versions: Mapping[str, str],
        policy: MeasurePolicy,
        on_event: Callable[[str, bool], None],
    ) -> None:
        self.target = setup.target
        self._client = client
        self._setup = setup
        self._versions = versions
        self._policy = policy
        self._on_event = on_event
        self._key = f"aoe-{uuid.uuid4().hex}"
        self._slots: dict[str, WorkerSlot] = {}
        self._closed = False

    # ---- who is there ----

    def refresh(self) -> None:
        """Look who has come and who is gone."""
        present = self._addresses()
        for address in [address for address in self._slots if address not in present]:
            self.lose(self._slots[address])
        for address in sorted(present - self._slots.keys()):
            self._open(address)

    def measuring(self) -> list[WorkerSlot]:
        """Return the workers that measure, whoever has least to do first."""
        worker_slots = [slot for slot in self._slots.values() if slot.part is WorkerPart.MEASURING]
        return sorted(worker_slots, key=lambda slot: (slot.jobs, slot.announced.name))

    def compiling(self) -> list[WorkerSlot]:
        """Return the workers that only compile."""
        return [slot for slot in self._slots.values() if slot.part is WorkerPart.COMPILING]

    def lose(self, slot: WorkerSlot) -> None:
        """Forget a worker that is gone; what comes back at its address is a new one."""
        if self._slots.pop(slot.address, None) is not None:
            self._on_event(f"{slot} is gone; what it was doing is done again elsewhere", True)

    def set_aside(self, slot: WorkerSlot, reason: str) -> None:
        """Use a worker no more."""
        if slot.part is not WorkerPart.REFUSED:
            slot.part = WorkerPart.REFUSED
            self._on_event(f"{slot} is set aside: {reason}", True)

    def _addresses(self) -> set[str]:
        try:
            return set(self._client.nthreads())
        except _NO_SCHEDULER:  # and all workers are gone with it
            return set()

    def _open(self, address: str) -> None:
        from aoe.execute.workers.service import open_slot

        try:
            found = self._client.run(
                open_slot, self._key, self._setup, workers=[address], on_error="return"
            )
            announced = found[address]
        except (*_NO_SCHEDULER, KeyError) as error:
            announced = error
        if not isinstance(announced, Announcement):
            reason = str(announced).strip().splitlines() or [type(announced).__name__]
            self._on_event(f"worker {address} is refused: {reason[0]}", True)
            nobody = Announcement(
                name=address, host=address, pid=0, target=self.target, cores=(), versions={}
            )
            slot = WorkerSlot(address=address, announced=nobody, part=WorkerPart.REFUSED)
        else:
            part, why = part_of(announced, self.target, self._versions)
            slot = WorkerSlot(address=address, announced=announced, part=part)
            self._tell_of(slot, why)
        self._slots[address] = slot

    def _tell_of(self, slot: WorkerSlot, why: str) -> None:
        if slot.part is WorkerPart.REFUSED:
            self._on_event(f"{slot} is refused: {why}", True)
        elif slot.part is WorkerPart.COMPILING:
            self._on_event(f"{slot} only compiles: {why}", False)
        else:
            self._on_event(f"{slot} measures, on {slot.announced.device}", False)

    # ---- what they do ----

    def calibrate(self, slot: WorkerSlot) -> None:
        """Compare a worker with itself where that is due; set it aside if it drifts.

        Raises:
            WorkerLostError: it is gone.
        """
        if slot.first is not None and slot.done < JOBS_BETWEEN_CALIBRATIONS:
            return
        try:
            now: Measurement = self.call(
                slot, "compare_itself", timeout_s=_CALIBRATION_TIMEOUT_S, policy=self._policy
            )
        except RunError as error:
            self.set_aside(slot, f"it cannot be calibrated: {error}")
            return
        if reason := drift_of(now, slot.first):
            self.set_aside(slot, reason)
        slot.first = slot.first or now
        slot.done = 0

    def call(self, slot: WorkerSlot, task: str, *, timeout_s: float, **arguments: Any) -> Any:
        """Run a task on a worker and return its result; see `Runner.call`.

        Raises:
            RunTimeoutError: no answer of its measuring process in time.
            RunError: that process died, or the task failed.
            WorkerLostError: the worker is gone.
        """
        from aoe.execute.workers.service import Errand, files_of

        files = {file for value in arguments.values() for file in files_of(value)}
        # a worker may have evicted files it had: everything is sent the second time
        for known in (slot.known, frozenset[str]()):
            artifacts = pack(files, known)
            errand = Errand(
                task=task, timeout_s=timeout_s, arguments=arguments, artifacts=artifacts
            )
            delivery = self._delivered(slot, self._send(slot, errand))
            slot.known.update(artifact.digest for artifact in artifacts)
            if not delivery.missing:
                return _value(task, delivery)
        raise RunError(task, f"{slot} does not keep what it is sent")

    def compile(
        self, home: WorkerSlot, kernels: Sequence[Any], directory: Path, **arguments: Any
    ) -> dict[str, str]:
        """Compile kernels on a worker and on the workers that only compile, each its share.

        Args:
            home: The worker that is to measure them.
            kernels: (name, workload, schedule) triples.
            directory: Where their objects go.
            arguments: What else the task is given, and `timeout_s`.

        Returns:
            By name what is wrong with a kernel; an empty text if it is there.

        Raises:
            WorkerLostError: `home` is gone.
            RunError: it cannot compile.
        """
        worker_slots = [home, *self.compiling()][: len(kernels)]
        shares = {
            slot: list(kernels[number :: len(worker_slots)])
            for number, slot in enumerate(worker_slots)
        }
        sent = {
            slot: self._send(slot, _compile_errand(share, arguments))
            for slot, share in shares.items()
        }
        errors: dict[str, str] = {}
        for slot in reversed(worker_slots):  # what a lost or a broken one leaves is done at home
            try:
                delivery = self._delivered(slot, sent[slot])
                found = _value("compile_kernels", delivery)
            except (WorkerLostError, RunError) as error:
                if slot is home:
                    raise
                if isinstance(error, RunError):
                    self.set_aside(slot, f"it cannot compile: {error}")
                else:
                    self.lose(slot)
                errand = _compile_errand(shares[slot], arguments)
                delivery = self._delivered(home, self._send(home, errand))
                found = _value("compile_kernels", delivery)
            errors |= found
            for artifact in delivery.artifacts:
                assert artifact.content is not None
                (directory / artifact.name).write_bytes(artifact.content)
                if slot is home:
                    home.known.add(artifact.digest)
        return errors

    def _send(self, slot: WorkerSlot, errand: Errand) -> Future:
        from distributed.client import ClosedClientError

        from aoe.execute.workers.service import run_errand

        try:
            return self._client.submit(
                run_errand, self._key, errand, workers=[slot.address], pure=False, retries=0
            )
        except (*_NO_SCHEDULER, ClosedClientError) as error:
            raise WorkerLostError(f"{slot}: its scheduler is gone") from error

    def _delivered(self, slot: WorkerSlot, future: Future) -> Delivery:
        """Wait for a worker; what is restricted to one that is gone would wait for ever."""
        try:
            while not self._closed:
                with suppress(TimeoutError):
                    future.exception(timeout=_POLL_S)
                if future.done():
                    return self._answer(slot, future)
                if slot.address not in self._addresses():
                    self.check_open()
                    raise WorkerLostError(str(slot))
            raise RemotePoolClosed
        finally:
            if not future.done():
                future.cancel()

    def _answer(self, slot: WorkerSlot, future: Future) -> Delivery:
        from aoe.execute.workers.service import Delivery

        self.check_open()
        if future.status != "finished":
            error = future.exception() if future.status == "error" else None
            if isinstance(error, AoeError):
                raise RunError(str(slot), str(error)) from error
            raise WorkerLostError(f"{slot}: {error or future.status}")
        delivery = self._handed_over(slot, future)
        assert isinstance(delivery, Delivery)
        if delivery.unknown:
            raise WorkerLostError(f"{slot}: started again")
        return delivery

    def _handed_over(self, slot: WorkerSlot, future: Future) -> object:
        """Return the result of a task that is done; its worker may be gone before it hands it over.

        Raises:
            WorkerLostError: it is, Dask would wait for it for ever; or the scheduler is.
        """
        while True:
            try:
                return future.result(timeout=_POLL_S)
            except TimeoutError:
                pass
            except Exception as error:  # of Dask: a task never fails, it replies
                raise WorkerLostError(f"{slot}: {error}") from error
            self.check_open()
            if slot.address not in self._addresses():
                raise WorkerLostError(f"{slot}: gone before its answer came")

    def check_open(self) -> None:
        """Raise `RemotePoolClosed` if the run has ended."""
        if self._closed:
            raise RemotePoolClosed

    @property
    def is_stopped(self) -> bool:
        """True once nobody gets an answer any more."""
        return self._closed

    def tell_to(self, on_event: Callable[[str, bool], None]) -> None:
        """Tell somebody else from now on: (text, True for a warning)."""
        self._on_event = on_event

    def stop(self) -> None:
        """End the run: whoever waits for a worker meets `RemotePoolClosed`."""
        self._closed = True

    def close(self) -> None:
        """Release everything on the workers; workers that are gone hold nothing."""
        from aoe.execute.workers.service import close_slot

        self.stop()
        present = self._addresses()
        if addresses := [address for address in self._slots if address in present]:
            self._client.run(close_slot, self._key, workers=addresses, on_error="ignore")


class OpenRemotePool(Protocol):
    """Opens the workers of a run; see `open_remote_pool`."""

    def __call__(
        self,
        workers: str,
        device: Device,
        target: Target,
        *,
        versions: Mapping[str, str],
        policy: MeasurePolicy,
        on_event: Callable[[str, bool], None],
    ) -> AbstractContextManager[RemotePool]:
        """Give the workers, which are given back at the end of the `with` block."""
        ...


@contextmanager
def open_remote_pool(
    workers: str,
    device: Device,
    target: Target,
    *,
    versions: Mapping[str, str],
    policy: MeasurePolicy,
    on_event: Callable[[str, bool], None],
    connect_s: float = CONNECT_S,
) -> Iterator[RemotePool]:
    """Give the workers of `--workers`, which the run shares with others if there are any.

    Args:
        workers: A number of processes here, or the address of a scheduler.
        device: Kind of device the run is for.
        target: What is tuned for.
        versions: Of the run.
        policy: Of calibrations.
        on_event: Is told who is there and who is not: (text, True for a warning).
        connect_s: After which a scheduler that does not answer, or no more, is given up.

    Raises:
        OptionError: the text names none.
        EngineNotInstalledError: Dask is not installed.
        RemotePoolError: no scheduler, no worker, or none that measures.
    """
    with connected(
        parse_workers(workers), connect_s=connect_s, warn=lambda text: on_event(text, True)
    ) as client:
        from aoe.execute.workers.service import SlotSetup, own_runner

        setup = SlotSetup(device=device, target=target, open_runner=own_runner)
        remote_pool = RemotePool(client, setup, versions=versions, policy=policy, on_event=on_event)
        try:
            remote_pool.refresh()
            if not remote_pool.measuring():
                raise RemotePoolError(
                    f"--workers={workers}",
                    f"no worker measures for {setup.target.soc_version}",
                    got=f"{len(remote_pool.compiling())} that only compile"
                    if remote_pool.compiling()
                    else "none",
                    hint="on such a machine: dask worker tcp://HOST:8786, with the same versions",
                )
            yield remote_pool
        finally:
            remote_pool.close()


def _compile_errand(kernels: Sequence[Any], arguments: Mapping[str, Any]) -> Errand:
    from aoe.execute.workers.service import Errand

    given = {**arguments, "kernels": list(kernels), "directory": Path()}
    timeout_s = given.pop("timeout_s")
    return Errand(task="compile_kernels", timeout_s=timeout_s, arguments=given)


def _value(task: str, delivery: Delivery) -> Any:
    reply = delivery.reply
    if isinstance(reply.error, RunError):
        raise reply.error
    if reply.error is not None:
        raise RunError(task, str(reply.error)) from reply.error
    if reply.crash:
        raise RunError(task, f"failed in the worker\n{reply.crash}")
    return reply.value


MOST_BIAS = 0.03
"""Distance from 1 nothing may prove of two equal things. Source: `NOTABLE_SPEEDUP`, what a kernel
has to prove to take the place of another."""
MOST_WIDTH = 0.05
"""Half-width of an interval in which the gain of a kernel is lost."""
MOST_SLOWER = 1.15
"""Times as long as at its first calibration: a machine that heats up, or got a neighbour."""


def drift_of(now: Measurement, first: Measurement | None) -> str:
    """Return why a worker is not to be believed any more, empty if it is.

    Args:
        now: The same code against itself, as both sides of a measurement.
        first: The worker's first such measurement, None if this is it.
    """
    if not now.is_correct:
        return f"the same code twice: {now.outcome}: {now.detail}"
    if not now.counts:
        return f"it is busy: {now.load}"
    estimate = estimate_speedup(now)
    read = f"{estimate.median:.3f}x ({estimate.low:.3f} to {estimate.high:.3f})"
    if estimate.low > 1 + MOST_BIAS or estimate.high < 1 - MOST_BIAS:
        return f"the same code twice reads {read}"
    if estimate.half_width > MOST_WIDTH:
        return f"the same code twice reads {read}, too wide to tell anything"
    if first is None:
        return ""
    pace = now.baseline_latency_us / first.baseline_latency_us
    if pace > MOST_SLOWER:
        return f"the same code takes {pace:.2f} times as long as at its start"
    return ""
