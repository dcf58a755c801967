"""A file scanned in parts, by several processes, gives what one scan gives."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from support import sample_bank_files
from support.tiers import few_every_day

from aoebank.formats.protocol import ParsedFile
from aoebank.formats.runtime_kb.format import RuntimeKbFormat
from aoebank.formats.text.json_lines import iter_lines
from aoebank.formats.text.scan import FileScan, ScannedPart, scan_lines

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


def parse(data: bytes, processes: int = 1) -> ParsedFile:
    return RuntimeKbFormat(processes=lambda _: processes).parse(data, NAME)


def assert_same(one: ParsedFile, other: ParsedFile) -> None:
    assert one.keys == other.keys
    assert (one.starts, one.ends, one.findings) == (other.starts, other.ends, other.findings)


@pytest.mark.parametrize("processes", few_every_day([2, 3, 5], 6))
@pytest.mark.parametrize("name", FILES)
def test_parts_hold_what_the_whole_holds(name: str, processes: int) -> None:
    assert_same(parse(FILES[name], processes), parse(FILES[name]))


@pytest.mark.parametrize("processes", [2, 3, 5])
def test_each_line_is_scanned_once(processes: int) -> None:
    def work(scan: FileScan, start: int, stop: int) -> None:
        scan.add(f"{start}-{stop}", start, stop)

    scan = FileScan(data=EXAMPLE, path=NAME, lines=parse(b"").lines)
    scan_lines(scan, work, lambda _: processes)
    parts = list(zip(scan.starts, scan.ends, strict=True))
    assert len(parts) == min(processes, len(LINES))
    assert b"".join(EXAMPLE[start:stop] for start, stop in parts) == EXAMPLE
    assert all(EXAMPLE[:stop].endswith(b"\n") for _, stop in parts)


def test_what_is_sent_holds_no_byte_of_the_file() -> None:
    sizes: list[int] = []

    def noting(
        work: Callable[[object], ScannedPart], pieces: Iterable[object], _: int
    ) -> Iterator[ScannedPart]:
        for found in map(work, pieces):
            sizes.append(len(pickle.dumps(found)))
            yield found

    def work(scan: FileScan, start: int, stop: int) -> None:
        for place in iter_lines(EXAMPLE * 100, start, stop):
            scan.add(f"{place[0]:032x}", *place)

    scan = FileScan(data=EXAMPLE * 100, path=NAME, lines=parse(b"").lines)
    scan_lines(scan, work, lambda _: 2, noting)
    assert len(scan.keys) == 600
    assert len(sizes) == 2
    assert sum(sizes) < len(scan.data) / 4


def test_small_files_are_scanned_by_one() -> None:
    scan = FileScan(data=EXAMPLE, path=NAME, lines=parse(b"").lines)
    scan_lines(scan, lambda *_: None, spread=lambda *_: pytest.fail("several processes"))
