"""Where workers are looked for, and what is said where there are none."""

from __future__ import annotations

import socket
import ssl
import sys
import time
from pathlib import Path

import psutil
import pytest

from aoe.errors import EngineNotInstalledError, OptionError, RemotePoolError
from aoe.execute.workers.local import (
    OPEN_TO_ALL,
    connected,
    parse_workers,
    started_workers,
)


@pytest.mark.parametrize(
    ("text", "found"),
    [("1", 1), ("4", 4), ("tcp://a:8786", "tcp://a:8786"), ("tls://a", "tls://a")],
)
def test_a_number_or_an_address(text: str, found: int | str) -> None:
    assert parse_workers(text) == found


@pytest.mark.parametrize("text", ["0", "65", "-1", "", "host:8786", "http://a", "4.5"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match=r"--workers: neither a number .* nor the address"):
        parse_workers(text)


def test_missing_dask_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(EngineNotInstalledError) as caught, connected(2):
        pass
    assert "aoebank[workers]" in caught.value.hint


def test_scheduler_that_does_not_answer_is_an_error_with_a_way_out() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{unused.getsockname()[1]}"
        with (
            pytest.raises(RemotePoolError, match="the scheduler does not answer") as caught,
            connected(address, connect_s=1.0),
        ):
            pass
    assert "dask scheduler" in caught.value.hint


def test_local_workers_end_with_the_run_and_leave_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # of the worker
    monkeypatch.setitem(sys.modules, "cryptography", None)
    told: list[str] = []
    with connected(1, root=tmp_path, warn=told.append) as client:
        assert told == [OPEN_TO_ALL]
        assert set(_listening()) == {"127.0.0.1"}
        (pid,) = client.run(_pid).values()
        assert {path.name.split("_")[1] for path in tmp_path.iterdir()} == {"dask"}
    assert not [*tmp_path.iterdir()]
    deadline = time.monotonic() + 20
    while _runs(pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not _runs(pid)


def test_workers_begun_before_one_that_cannot_be_end_and_leave_nothing(tmp_path: Path) -> None:
    before = {process.pid for process in psutil.Process().children()}
    workers = started_workers("tcp://127.0.0.1:1", 2, ["first"].__getitem__, root=tmp_path)
    with pytest.raises(IndexError), workers:
        pass
    assert {process.pid for process in psutil.Process().children()} <= before
    assert not [*tmp_path.iterdir()]


def test_local_workers_are_closed_to_others() -> None:
    pytest.importorskip("cryptography")
    told: list[str] = []
    with connected(1, warn=told.append) as client:
        assert set(_listening()) == {"127.0.0.1"}
        for address in (client.scheduler.address, *client.nthreads()):
            host, port = address.removeprefix("tls://").split(":")
            stranger = ssl.create_default_context()
            stranger.check_hostname, stranger.verify_mode = False, ssl.CERT_NONE
            with (
                socket.create_connection((host, int(port))) as plain,
                stranger.wrap_socket(plain) as encrypted,
                pytest.raises(ssl.SSLError, match=r"(?i)certificate.required"),
            ):
                encrypted.recv(1)
    assert not told


def _listening() -> list[str]:
    """Return the addresses at which this process and its children can be reached."""
    this = psutil.Process()
    processes = [this, *this.children(recursive=True)]
    sockets = [one for process in processes for one in process.net_connections("inet")]
    return [one.laddr.ip for one in sockets if one.status == psutil.CONN_LISTEN]


def _pid() -> int:
    import os

    return os.getpid()


def _runs(pid: int) -> bool:
    import os

    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
