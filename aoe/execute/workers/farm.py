"""The workers of a run: who is there, who measures, who is set aside, and how they are asked."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aoe.device.compiler import objects_of
from aoe.device.protocol import Device
from aoe.errors import AoeError, FarmError, RunError
from aoe.execute.messages import CompiledKernels, ModelPart
from aoe.execute.workers.announcement import Announcement, WorkerPart, part_of
from aoe.execute.workers.calibration import drift_of
from aoe.execute.workers.local import connected, parse_workers
from aoe.execute.workers.parcels import pack
from aoe.measurement import Measurement, MeasurePolicy
from aoe.target import Target

if TYPE_CHECKING:
    from distributed import Client, Future

    from aoe.execute.workers.service import Delivery, Errand, PostSetup

_POLL_S = 1.0
"""A worker that is gone is missed after so long."""
_CALIBRATION_TIMEOUT_S = 60.0
JOBS_BETWEEN_CALIBRATIONS = 8
"""Operators a worker tunes before it is compared with itself again."""


class WorkerLostError(Exception):
    """A worker is gone with what it was doing."""


class FarmClosed(BaseException):
    """The run ends; what waits for a worker is not to draw conclusions from that."""


@dataclass(slots=True, kw_only=True, eq=False)
class Post:
    """A worker as the run knows it.

    Attributes:
        address: In Dask.
        announced: What it says of itself.
        part: What it is used for.
        jobs: Operators at it now.
        done: Operators since its last calibration.
        known: Digests of files it has.
        first: Its first calibration, None before it.
    """

    address: str
    announced: Announcement
    part: WorkerPart
    jobs: int = 0
    done: int = 0
    known: set[str] = field(default_factory=set)
    first: Measurement | None = None

    def __str__(self) -> str:
        return f"worker {self.announced.name} ({self.address})"


class Farm:
    """Workers of a Dask scheduler which this run measures and compiles on.

    Args:
        client: Of the scheduler.
        setup: What workers are told.
        versions: Of the run; a worker with others is refused.
        policy: Of calibrations.
        tell: Is told who is there and who is not any more: (text, True for a warning).
    """

    def __init__(
        self,
        client: Client,
        setup: PostSetup,
        *,
        versions: Mapping[str, str],
        policy: MeasurePolicy,
        tell: Callable[[str, bool], None],
    ) -> None:
        self.target = setup.target
        self._client = client
        self._setup = setup
        self._versions = versions
        self._policy = policy
        self._tell = tell
        self._key = f"aoe-{uuid.uuid4().hex}"
        self._posts: dict[str, Post] = {}
        self._closed = False

    # ---- who is there ----

    def refresh(self) -> None:
        """Look who has come and who is gone."""
        present = self._addresses()
        for address in [address for address in self._posts if address not in present]:
            self.lose(self._posts[address])
        for address in sorted(present - self._posts.keys()):
            self._open(address)

    def measuring(self) -> list[Post]:
        """Return the workers that measure, whoever has least to do first."""
        posts = [post for post in self._posts.values() if post.part is WorkerPart.MEASURING]
        return sorted(posts, key=lambda post: (post.jobs, post.announced.name))

    def compiling(self) -> list[Post]:
        """Return the workers that only compile."""
        return [post for post in self._posts.values() if post.part is WorkerPart.COMPILING]

    def lose(self, post: Post) -> None:
        """Forget a worker that is gone; what comes back at its address is a new one."""
        if self._posts.pop(post.address, None) is not None:
            self._tell(f"{post} is gone; what it was doing is done again elsewhere", True)

    def set_aside(self, post: Post, reason: str) -> None:
        """Measure on a worker no more."""
        if post.part is WorkerPart.MEASURING:
            post.part = WorkerPart.REFUSED
            self._tell(f"{post} is set aside: {reason}", True)

    def _addresses(self) -> set[str]:
        try:
            return set(self._client.nthreads())
        except (OSError, RuntimeError):  # the scheduler is gone, and all workers with it
            return set()

    def _open(self, address: str) -> None:
        from aoe.execute.workers.service import open_post

        try:
            found = self._client.run(
                open_post, self._key, self._setup, workers=[address], on_error="return"
            )
            announced = found[address]
        except (OSError, KeyError) as error:
            announced = error
        if not isinstance(announced, Announcement):
            reason = str(announced).strip().splitlines() or [type(announced).__name__]
            self._tell(f"worker {address} is refused: {reason[0]}", True)
            nobody = _nobody(address, self.target)
            post = Post(address=address, announced=nobody, part=WorkerPart.REFUSED)
        else:
            part, why = part_of(announced, self.target, self._versions)
            post = Post(address=address, announced=announced, part=part)
            self._tell_of(post, why)
        self._posts[address] = post

    def _tell_of(self, post: Post, why: str) -> None:
        if post.part is WorkerPart.REFUSED:
            self._tell(f"{post} is refused: {why}", True)
        elif post.part is WorkerPart.COMPILING:
            self._tell(f"{post} only compiles: {why}", False)
        else:
            self._tell(f"{post} measures, on {post.announced.device}", False)

    # ---- what they do ----

    def calibrate(self, post: Post) -> None:
        """Compare a worker with itself where that is due; set it aside if it drifts.

        Raises:
            WorkerLostError: it is gone.
        """
        if post.first is not None and post.done < JOBS_BETWEEN_CALIBRATIONS:
            return
        try:
            now: Measurement = self.call(
                post, "compare_itself", timeout_s=_CALIBRATION_TIMEOUT_S, policy=self._policy
            )
        except RunError as error:
            self.set_aside(post, f"it cannot be calibrated: {error}")
            return
        if reason := drift_of(now, post.first):
            self.set_aside(post, reason)
        post.first = post.first or now
        post.done = 0

    def call(self, post: Post, task: str, *, timeout_s: float, **arguments: Any) -> Any:
        """Run a task on a worker and return its result; see `Runner.call`.

        Raises:
            RunTimeoutError: no answer of its measuring process in time.
            RunError: that process died, or the task failed.
            WorkerLostError: the worker is gone.
        """
        from aoe.execute.workers.service import Errand

        files = [file for value in arguments.values() for file in _files_of(value)]
        for known in (post.known, frozenset[str]()):
            parcels = pack(files, known)
            errand = Errand(task=task, timeout_s=timeout_s, arguments=arguments, parcels=parcels)
            delivery = self._delivered(post, self._send(post, errand))
            post.known.update(parcel.digest for parcel in parcels)
            if not delivery.missing:
                return _value(task, delivery)
        raise RunError(task, f"{post} does not keep what it is sent")

    def compile(
        self, home: Post, kernels: Sequence[Any], directory: Path, **arguments: Any
    ) -> dict[str, str]:
        """Compile kernels on a worker and on those that only compile, each its share.

        Args:
            home: The worker that is to measure them.
            kernels: (name, workload, schedule) triples.
            directory: Where their objects go.
            arguments: What else the task is given, and `timeout_s`.

        Returns:
            By name what is wrong with a kernel; an empty text if it is there.

        Raises:
            WorkerLostError: `home` is gone.
        """
        posts = [home, *self.compiling()][: len(kernels)]
        shares = {post: list(kernels[number :: len(posts)]) for number, post in enumerate(posts)}
        sent = {
            post: self._send(post, _compile_errand(share, arguments))
            for post, share in shares.items()
        }
        errors: dict[str, str] = {}
        for post in reversed(posts):  # what a lost one leaves is done at home
            try:
                delivery = self._delivered(post, sent[post])
            except WorkerLostError:
                if post is home:
                    raise
                self.lose(post)
                errand = _compile_errand(shares[post], arguments)
                delivery = self._delivered(home, self._send(home, errand))
            errors |= _value("compile_kernels", delivery)
            for parcel in delivery.parcels:
                assert parcel.content is not None
                (directory / parcel.name).write_bytes(parcel.content)
                if post is home:
                    home.known.add(parcel.digest)
        return errors

    def _send(self, post: Post, errand: Errand) -> Future:
        from aoe.execute.workers.service import run_errand

        return self._client.submit(
            run_errand, self._key, errand, workers=[post.address], pure=False, retries=0
        )

    def _delivered(self, post: Post, future: Future) -> Delivery:
        """Wait for a worker; what is restricted to one that is gone would wait for ever."""
        try:
            while not self._closed:
                with suppress(TimeoutError):
                    future.exception(timeout=_POLL_S)
                if future.done():
                    return self._answer(post, future)
                if post.address not in self._addresses():
                    self.check_open()
                    raise WorkerLostError(str(post))
            raise FarmClosed
        finally:
            if not future.done():
                future.cancel()

    def _answer(self, post: Post, future: Future) -> Delivery:
        from aoe.execute.workers.service import Delivery

        self.check_open()
        if future.status != "finished":
            error = future.exception() if future.status == "error" else None
            if isinstance(error, AoeError):
                raise RunError(str(post), str(error)) from error
            raise WorkerLostError(f"{post}: {error or future.status}")
        delivery = future.result()
        assert isinstance(delivery, Delivery)
        if delivery.unknown:
            raise WorkerLostError(f"{post}: started again")
        return delivery

    def check_open(self) -> None:
        """Raise `FarmClosed` if the run has ended."""
        if self._closed:
            raise FarmClosed

    @property
    def is_stopped(self) -> bool:
        """True once nobody gets an answer any more."""
        return self._closed

    def tell_to(self, tell: Callable[[str, bool], None]) -> None:
        """Tell somebody else from now on: (text, True for a warning)."""
        self._tell = tell

    def stop(self) -> None:
        """End the run: whoever waits for a worker meets `FarmClosed`."""
        self._closed = True

    def close(self) -> None:
        """Give everything on the workers back."""
        from aoe.execute.workers.service import close_post

        self.stop()
        addresses = [address for address in self._posts if address in self._addresses()]
        with suppress(OSError, RuntimeError):
            self._client.run(close_post, self._key, workers=addresses, on_error="ignore")


@contextmanager
def open_farm(
    workers: str,
    device: Device,
    target: Target,
    *,
    versions: Mapping[str, str],
    policy: MeasurePolicy,
    tell: Callable[[str, bool], None],
) -> Iterator[Farm]:
    """Give the workers of `--workers`, which the run shares with others if there are any.

    Args:
        workers: A number of processes here, or the address of a scheduler.
        device: Kind of device the run is for.
        target: What is tuned for.
        versions: Of the run.
        policy: Of calibrations.
        tell: Is told who is there and who is not: (text, True for a warning).

    Raises:
        OptionError: the text names none.
        EngineNotInstalledError: Dask is not installed.
        FarmError: no scheduler, no worker, or none that measures.
    """
    with connected(parse_workers(workers)) as client:
        from aoe.execute.workers.service import PostSetup, own_runner

        setup = PostSetup(device=device, target=target, open_runner=own_runner)
        farm = Farm(client, setup, versions=versions, policy=policy, tell=tell)
        try:
            farm.refresh()
            if not farm.measuring():
                raise FarmError(
                    f"--workers={workers}",
                    f"no worker measures for {setup.target.soc_version}",
                    got=f"{len(farm.compiling())} that only compile"
                    if farm.compiling()
                    else "none",
                    hint="on such a machine: dask worker tcp://HOST:8786, with the same versions",
                )
            yield farm
        finally:
            farm.close()


def _files_of(value: object) -> list[Path]:
    """Return the files an argument stands for: objects of compiled kernels, a model."""
    match value:
        case CompiledKernels():
            made = [name for name, error in value.errors.items() if not error]
            return [file for name in made for file in objects_of(value.directory / f"{name}.o")]
        case ModelPart():
            return [value.model, *([value.library] if value.library is not None else [])]
        case _:
            return []


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


def _nobody(address: str, target: Target) -> Announcement:
    return Announcement(name=address, host=address, pid=0, target=target, cores=(), versions={})
