"""Locks on files of our own."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from aoe.folders.locks import take_lock

_HOLDER = """
import sys, time
from pathlib import Path
from aoe.folders.locks import take_lock
lock = take_lock(Path(sys.argv[1]))
print("held" if lock else "refused", flush=True)
sys.stdin.read()
"""


def test_lock_makes_its_file_and_keeps_others_out(tmp_path: Path) -> None:
    held = take_lock(tmp_path / "lock")
    assert held is not None
    assert take_lock(tmp_path / "lock") is None
    assert take_lock(tmp_path / "lock", shared=True) is None
    held.release()
    held.release()
    with take_lock(tmp_path / "lock") or pytest.fail("still held"):
        assert take_lock(tmp_path / "lock") is None


def test_shared_locks_go_together_and_keep_writers_out(tmp_path: Path) -> None:
    with take_lock(tmp_path / "lock", shared=True) or pytest.fail("held"):
        second = take_lock(tmp_path / "lock", shared=True)
        assert second is not None
        second.release()
        assert take_lock(tmp_path / "lock") is None


def test_killed_holder_holds_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _HOLDER, str(tmp_path / "lock")]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        assert take_lock(tmp_path / "lock") is None
        holder.kill()
        holder.wait()
    lock = take_lock(tmp_path / "lock")
    assert lock is not None
    lock.release()


def test_waiting_gets_the_lock_once_it_is_free(tmp_path: Path) -> None:
    held = take_lock(tmp_path / "lock")
    assert held is not None
    threading.Timer(0.05, held.release).start()
    lock = take_lock(tmp_path / "lock", wait_s=60)
    assert lock is not None
    lock.release()


def test_lock_of_a_file_that_was_removed_meanwhile_is_taken_anew(tmp_path: Path) -> None:
    file = tmp_path / "lock"
    held = take_lock(file)
    assert held is not None

    def replace() -> None:
        file.unlink()
        held.release()

    threading.Timer(0.05, replace).start()
    lock = take_lock(file, wait_s=60)
    assert lock is not None
    assert file.exists()
    assert take_lock(file) is None
    lock.release()


def test_folder_that_is_missing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        take_lock(tmp_path / "none" / "lock")


def test_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        take_lock(tmp_path / "lock")
    assert not (tmp_path / "elsewhere").exists()


def test_file_that_may_only_be_read_can_be_shared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lock").touch()
    real = os.open

    def read_only(path: Path, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_RDWR:
            raise PermissionError(13, "Permission denied")
        return real(path, flags, mode)

    monkeypatch.setattr(os, "open", read_only)
    with take_lock(tmp_path / "lock", shared=True) or pytest.fail("held") as lock:
        lock.touch()
    with pytest.raises(PermissionError):
        take_lock(tmp_path / "lock")


def test_file_system_without_locks_is_an_error_and_leaks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(*_: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(OSError, match="No locks available"):
        take_lock(tmp_path / "lock")
    assert len(list(Path("/proc/self/fd").iterdir())) == before
