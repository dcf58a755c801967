"""A file scanned in parts, by several processes, gives what one scan gives."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support import sample_bank_files

from aoebank.formats.protocol import ParsedFile
from aoebank.formats.runtime_kb.format import RuntimeKbFormat
from aoebank.formats.text import scan as scan_module
from aoebank.formats.text.scan import FileScan, scan_lines
from aoebank.processes import map_in_order

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


def parse(data: bytes) -> ParsedFile:
    return RuntimeKbFormat().parse(data, NAME)


def use(monkeypatch: pytest.MonkeyPatch, processes: int) -> None:
    """Make every file one for several processes."""
    monkeypatch.setattr(scan_module, "count_processes", lambda _: processes)


def assert_same(one: ParsedFile, other: ParsedFile) -> None:
    assert one.keys == other.keys
    assert (one.starts, one.ends, one.findings) == (other.starts, other.ends, other.findings)


@pytest.mark.parametrize("processes", [2, 3, 5])
@pytest.mark.parametrize("name", FILES)
def test_parts_hold_what_the_whole_holds(
    name: str, processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = parse(FILES[name])
    use(monkeypatch, processes)
    assert_same(parse(FILES[name]), alone)


@pytest.mark.parametrize("processes", [2, 3, 5])
def test_each_line_is_scanned_once(processes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def work(scan: FileScan, start: int, stop: int) -> None:
        scan.add(f"{start}-{stop}", start, stop)

    use(monkeypatch, processes)
    scan = FileScan(data=EXAMPLE, path=NAME, lines=parse(b"").lines)
    scan_lines(scan, work)
    parts = list(zip(scan.starts, scan.ends, strict=True))
    assert len(parts) == min(processes, len(LINES))
    assert b"".join(EXAMPLE[start:stop] for start, stop in parts) == EXAMPLE
    assert all(EXAMPLE[:stop].endswith(b"\n") for _, stop in parts)


def test_what_is_sent_holds_no_byte_of_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def noting(work: Callable[[object], object], pieces: object, _: int) -> Iterator[object]:
        for found in map_in_order(work, [*pieces], 1):  # type: ignore[misc]
            sizes.append(len(pickle.dumps(found)))
            yield found

    use(monkeypatch, 2)
    monkeypatch.setattr(scan_module, "map_in_order", noting)
    lines = EXAMPLE * 100
    assert len(parse(lines)) == 600
    assert len(sizes) == 2
    assert sum(sizes) < len(lines) / 4


def test_small_files_are_scanned_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan_module, "map_in_order", lambda *_: pytest.fail("several processes"))
    assert len(parse(EXAMPLE)) == 6
