"""A file goes only if it is what was seen."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

import pytest

from aoebank.errors import BankLockedError, BankPathError
from aoebank.storage.writing import removal
from aoebank.storage.writing.lock import hold_lock
from aoebank.storage.writing.removal import remove_file


def test_expected_file_goes(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(b"old")
    remove_file(path, b"old")
    assert list(tmp_path.iterdir()) == []


def test_other_content_stays(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(b"new")
    with pytest.raises(BankPathError, match="changed meanwhile"):
        remove_file(path, b"old")
    assert path.read_bytes() == b"new"


def test_file_that_is_gone_already_is_fine(tmp_path: Path) -> None:
    remove_file(tmp_path / "x.json", b"old")


def test_directory_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(BankPathError):
        remove_file(tmp_path, b"")
    assert tmp_path.is_dir()


def _hold(path: Path, told: int, wait: int) -> None:
    with hold_lock(path):
        os.write(told, b".")
        os.read(wait, 1)


def test_file_somebody_writes_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(b"old")
    hear, tell = os.pipe()
    wait, end = os.pipe()
    process = multiprocessing.get_context("fork").Process(target=_hold, args=(path, tell, wait))
    process.start()
    os.read(hear, 1)
    monkeypatch.setattr(removal, "LOCK_TIMEOUT_S", 0.0)
    try:
        with pytest.raises(BankLockedError):
            remove_file(path, b"old")
    finally:
        os.write(end, b".")
        process.join()
    assert path.read_bytes() == b"old"
