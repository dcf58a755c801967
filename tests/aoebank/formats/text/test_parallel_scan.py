"""Two halves scanned at once give what one scan gives, whatever becomes of the child."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from support import sample_bank_files

from aoebank.formats.protocol import ParsedFile
from aoebank.formats.runtime_kb.format import RuntimeKbFormat
from aoebank.formats.text import parallel_scan

NAME = Path(sample_bank_files.RUNTIME_KB.name)
EXAMPLE = sample_bank_files.RUNTIME_KB.read_bytes()
LINES = EXAMPLE.splitlines(keepends=True)
FILES = {
    "good": EXAMPLE,
    "no final newline": EXAMPLE[:-1],
    "bad lines in both halves": b"".join([b"{}\n", *LINES[:3], b"\n[1]\n", *LINES[3:], b"x\n"]),
    "byte order mark and CR LF": b"\xef\xbb\xbf" + EXAMPLE.replace(b"\n", b"\r\n"),
    "a newline only in the first half": LINES[0] + b" " * 3000,
    "no newline": LINES[0].rstrip(),
    "equal records": EXAMPLE + EXAMPLE,
    "more bad lines than are listed": b"\n" * 700 + b"x\n" * 3000 + b"\n" * 700 + EXAMPLE,
}
Forks = list[int]


def parse(data: bytes) -> ParsedFile:
    return RuntimeKbFormat().parse(data, NAME)


@pytest.fixture
def forks(monkeypatch: pytest.MonkeyPatch) -> Forks:
    """Make every file a large one, and note the children."""
    monkeypatch.setattr(parallel_scan, "MIN_BYTES", 1)
    monkeypatch.setattr(parallel_scan, "may_fork", lambda: True)
    children: Forks = []
    start = parallel_scan._start_child

    def noting(*arguments: object) -> tuple[int, int]:
        child, pipe = start(*arguments)  # type: ignore[arg-type]
        children.append(child)
        return child, pipe

    monkeypatch.setattr(parallel_scan, "_start_child", noting)
    return children


def assert_same(one: ParsedFile, other: ParsedFile) -> None:
    assert one.keys == other.keys
    assert (one.starts, one.ends, one.findings) == (other.starts, other.ends, other.findings)


@pytest.mark.parametrize("name", FILES)
def test_two_scans_find_what_one_finds(
    name: str, forks: Forks, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = parse(FILES[name])
    assert len(forks) == ("only in the first" not in name and name != "no newline")
    monkeypatch.setattr(parallel_scan, "may_fork", lambda: False)
    assert_same(together, parse(FILES[name]))


def test_child_that_dies_is_replaced(forks: Forks, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = parse(EXAMPLE)
    parent = os.getpid()
    dump = parallel_scan.pickle.dump

    def die(*arguments: object, **options: object) -> None:
        assert os.getpid() != parent
        os._exit(7)

    monkeypatch.setattr(parallel_scan.pickle, "dump", die)
    assert_same(parse(EXAMPLE), alone)
    monkeypatch.setattr(parallel_scan.pickle, "dump", dump)
    assert len(forks) == 2


def test_no_child_is_left_behind(forks: Forks) -> None:
    parse(EXAMPLE)
    (child,) = forks
    with pytest.raises(ChildProcessError):
        os.waitpid(child, os.WNOHANG)


def test_error_in_the_parent_reaps_the_child(forks: Forks) -> None:
    def work(scan: object, start: int, stop: int) -> None:
        if start == 0:
            raise KeyboardInterrupt

    scan = parallel_scan.FileScan(data=EXAMPLE, path=NAME, lines=parse(b"").lines)
    with pytest.raises(KeyboardInterrupt):
        parallel_scan.scan_lines(scan, work)
    with pytest.raises(ChildProcessError):
        os.waitpid(forks[-1], os.WNOHANG)


def test_process_with_threads_does_not_fork() -> None:
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    try:
        assert not parallel_scan.may_fork()
    finally:
        done.set()
        thread.join()


def test_small_files_are_scanned_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel_scan, "may_fork", lambda: pytest.fail("asked to fork"))
    assert len(parse(EXAMPLE)) == 6
