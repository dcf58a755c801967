"""Where the workers of `--workers` are: a scheduler that is named, or processes on this machine."""

from __future__ import annotations

import logging
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from aoe.child_python import python_command
from aoe.errors import EngineNotInstalledError, OptionError, RemotePoolError
from aoe.folders.scratch import ScratchFolder

if TYPE_CHECKING:
    from distributed import Client

_START_S = 60.0
_ADDRESS = re.compile(r"(tcp|tls|ws|wss|ucx)://\S+")
_MOST_PROCESSES = 64
_BOOT = "from distributed.cli.dask_worker import main; main()"
_WORKER_OPTIONS = (
    *("--no-nanny", "--no-dashboard", "--nthreads", "2", "--memory-limit", "0"),
    *("--host", "127.0.0.1"),
)
"""Two threads: one may measure while one compiles. Dask's own limit of memory would end workers
that ONNX Runtime and Halide make large."""
HINT = "python -m pip install 'aoebank[workers]'"


def parse_workers(text: str, where: str = "--workers") -> int | str:
    """Return a number of processes on this machine, or the address of a scheduler.

    Raises:
        OptionError: it is neither.
    """
    if text.isdecimal() and 1 <= int(text) <= _MOST_PROCESSES:
        return int(text)
    if _ADDRESS.fullmatch(text):
        return text
    raise OptionError(
        where,
        "neither a number of workers nor the address of a scheduler",
        got=repr(text),
        expected=f"1 to {_MOST_PROCESSES}, or tcp://HOST:PORT",
        hint="dask scheduler prints its address when it starts",
    )


@contextmanager
def connected(
    where: int | str, *, connect_s: float = 15.0, root: Path | None = None
) -> Iterator[Client]:
    """Give a client of Dask's scheduler, with processes of our own where a number is asked for.

    Args:
        where: See `parse_workers`.
        connect_s: After which a scheduler is given up.
        root: Where scratch files of processes of our own go; None for `TMPDIR`.

    Raises:
        EngineNotInstalledError: Dask is not there.
        RemotePoolError: the scheduler does not answer, or no worker starts.
    """
    try:
        from distributed import Client
    except ModuleNotFoundError as error:
        raise EngineNotInstalledError(
            "--workers", f"its dependency {error.name} is not installed", hint=HINT
        ) from error
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    with ExitStack() as opened:
        address = opened.enter_context(local_scheduler(root)) if isinstance(where, int) else where
        try:
            client = Client(
                address,
                timeout=connect_s,
                set_as_default=False,
                name="aoe",
                direct_to_workers=False,
            )
        except (OSError, ValueError) as error:  # a time-out is an OSError
            raise RemotePoolError(
                f"--workers={where}",
                f"the scheduler does not answer: {error}",
                hint="start one with: dask scheduler; workers with: dask worker tcp://HOST:8786",
            ) from error
        opened.enter_context(client)
        if isinstance(where, int):
            opened.enter_context(started_workers(address, where, root=root))
            _wait_for(client, where)
        yield client


@contextmanager
def started_workers(
    address: str,
    count: int,
    name: Callable[[int], str] = lambda number: f"local{number + 1}",
    root: Path | None = None,
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Have worker processes of a scheduler on this machine; they end with it at the latest.

    Args:
        address: Of the scheduler.
        count: How many.
        name: Of a worker, by number from 0.
        root: Where their scratch files go; None for `TMPDIR`.
    """
    scratch = ScratchFolder("dask", root)
    boot = python_command(_BOOT, address, *_WORKER_OPTIONS)
    boot += ["--local-directory", str(scratch.path)]
    started = [
        subprocess.Popen(
            [*boot, "--name", name(number)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is the run's business, which ends them
        )
        for number in range(count)
    ]
    try:
        yield started
    finally:
        for process in started:
            process.terminate()
        for process in started:
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        scratch.remove()


@contextmanager
def local_scheduler(root: Path | None = None) -> Iterator[str]:
    """Have a scheduler in this process, which only this machine reaches; give its address."""
    from distributed import LocalCluster

    with (
        ScratchFolder("dask", root) as folder,
        LocalCluster(
            n_workers=0,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            silence_logs=logging.CRITICAL,
            scheduler_kwargs={"local_directory": str(folder)},
        ) as cluster,
    ):
        yield cluster.scheduler_address


def _wait_for(client: Client, count: int) -> None:
    try:
        client.wait_for_workers(count, timeout=_START_S)
    except OSError as error:
        raise RemotePoolError(
            f"--workers={count}",
            "the workers do not start",
            got=f"{len(client.nthreads())} after {_START_S:.0f} s",
            hint="with less memory in use, or with fewer of them",
        ) from error
