"""Workers of `--workers`: of a scheduler that is named, or processes on this machine."""

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
    from distributed import Client, Security

CONNECT_S = 15.0
_START_S = 60.0
_ADDRESS = re.compile(r"(tcp|tls|ws|wss|ucx)://\S+")
_MOST_PROCESSES = 64
_BOOT = "from distributed.cli.dask_worker import main; main()"
_WORKER_OPTIONS = (
    *("--no-nanny", "--no-dashboard", "--nthreads", "2", "--memory-limit", "0"),
    *("--host", "127.0.0.1", "--dashboard-address", "127.0.0.1:0"),
)
"""Two threads: one may measure while one compiles. Dask's own limit of memory would end workers
that ONNX Runtime and Halide make large. The last address is of the HTTP server, which has one even
without a dashboard: that of all networks."""
_TLS_OPTIONS = {
    "--tls-ca-file": "tls_ca_file",
    "--tls-cert": "tls_worker_cert",
    "--tls-key": "tls_worker_key",
}
"""Options of a worker, and what they are called in `Security`."""
OPEN_TO_ALL = (
    "--workers: every user of this machine can run programs as you through the workers while they "
    "run; install cryptography (python -m pip install 'aoebank[workers]') to have them closed"
)
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
    where: int | str,
    *,
    connect_s: float = CONNECT_S,
    root: Path | None = None,
    warn: Callable[[str], None] = lambda text: None,
) -> Iterator[Client]:
    """Give a client of Dask's scheduler, with processes of our own where a number is asked for.

    These and their scheduler talk to nobody without a certificate of this run, as far as there is
    a library that makes one.

    Args:
        where: See `parse_workers`.
        connect_s: After which a scheduler is given up.
        root: Where scratch files of processes of our own go; None for `TMPDIR`.
        warn: Is told where others on this machine can reach these processes.

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
        security: Security | None = None
        if isinstance(where, int):
            security = _own_certificate(warn)
            address = opened.enter_context(local_scheduler(root, security))
        else:
            address = where
        try:
            client = Client(
                address,
                timeout=connect_s,
                security=security,
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
            opened.enter_context(started_workers(address, where, root=root, security=security))
            _wait_for(client, where)
        yield client


@contextmanager
def started_workers(
    address: str,
    count: int,
    name: Callable[[int], str] = lambda number: f"local{number + 1}",
    root: Path | None = None,
    security: Security | None = None,
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Have worker processes of a scheduler on this machine; they end with it at the latest.

    Args:
        address: Of the scheduler.
        count: How many.
        name: Of a worker, by number from 0.
        root: Where their scratch files go; None for `TMPDIR`.
        security: Certificates of the scheduler; None for those of Dask's configuration.
    """
    scratch = ScratchFolder("dask", root)
    boot = python_command(_BOOT, address, *_WORKER_OPTIONS)
    boot += ["--local-directory", str(scratch.path)]
    for option, member in _TLS_OPTIONS.items() if security is not None else ():
        file = scratch.path / f"{member}.pem"  # nobody else can look into the folder
        file.write_text(getattr(security, member))
        boot += [option, str(file)]
    started: list[subprocess.Popen[bytes]] = []
    try:
        for number in range(count):
            started.append(
                subprocess.Popen(
                    [*boot, "--name", name(number)],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,  # Ctrl-C is the run's business, which ends them
                )
            )
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
def local_scheduler(root: Path | None = None, security: Security | None = None) -> Iterator[str]:
    """Have a scheduler in this process, which only this machine reaches; give its address."""
    from distributed import LocalCluster

    with (
        ScratchFolder("dask", root) as folder,
        LocalCluster(
            n_workers=0,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            silence_logs=logging.CRITICAL,
            security=security,
            scheduler_kwargs={"local_directory": str(folder), "dashboard": False},
        ) as cluster,
    ):
        yield cluster.scheduler_address


def _own_certificate(warn: Callable[[str], None]) -> Security | None:
    """Return a certificate nobody else has; None, with a warning, where none can be made."""
    from distributed import Security

    try:
        return Security.temporary()
    except ImportError:
        warn(OPEN_TO_ALL)
        return None


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
