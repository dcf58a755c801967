"""Contents of files in a history: pieces in chunks, each piece stored once.

A file is cut behind each record (a side-car behind each line). Pieces the file had in the
snapshot before are named by where they are; the others go, in their order, into new chunks
that are compressed as a whole. So a million records of which ten thousand changed cost ten
thousand records and a list of runs, and a file comes back byte for byte.
"""

from __future__ import annotations

import hashlib
import sys
import zlib
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from sqlite3 import Connection

from aoebank.errors import HistoryError
from aoebank.formats.protocol import ParsedFile
from aoebank.formats.text.digest import DIGEST_BYTES, record_digest, record_set_hash
from aoebank.model.digest import sha256_of
from aoebank.model.snapshot import Member

CHUNK_BYTES = 256 * 1024
_LEVEL = 6
_NO_RECORD = bytes(DIGEST_BYTES)

Place = tuple[int, int]  # number of a chunk, number of a piece in it


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Pieces one behind the other."""

    digest: bytes
    lengths: array[int]  # Bytes of each piece
    records: bytes  # Digest of the record each piece ends with, zeros for none
    data: bytes  # Their bytes, compressed
    id: int = 0  # In the store; 0 before it is there

    def pieces(self) -> Iterator[bytes]:
        """Yield the bytes of each piece."""
        data = self.unpack()
        start = 0
        for length in self.lengths:
            yield data[start : start + length]
            start += length

    def unpack(self) -> bytes:
        """Return the bytes of all pieces.

        Raises:
            HistoryError: they are not what was stored.
        """
        size = sum(self.lengths)
        try:
            data = zlib.decompressobj().decompress(self.data, size + 1)
        except zlib.error as error:
            raise _damaged(f"chunk {self.id}") from error
        if len(data) != size or _digest(self.lengths, self.records, data) != self.digest:
            raise _damaged(f"chunk {self.id}")
        return data


@dataclass(slots=True, kw_only=True)
class Packing:
    """A file on its way into the store."""

    member: Member  # The file; its `content` is 0 unless the store has the bytes already
    # Pieces of the file, as first place and number; chunks not stored yet count down from -1.
    runs: list[tuple[int, int, int]] = field(default_factory=list)
    chunks: list[Chunk] = field(default_factory=list)  # New chunks, in order
    _pieces: list[bytes] = field(default_factory=list)
    _digests: list[bytes] = field(default_factory=list)
    _size: int = 0

    def add_known(self, chunk: int, position: int) -> None:
        """Add a piece that is stored: a run goes on, or a new one begins."""
        if self.runs:
            last, first, count = self.runs[-1]
            if last == chunk and first + count == position:
                self.runs[-1] = (last, first, count + 1)
                return
        self.runs.append((chunk, position, 1))

    def add_new(self, piece: bytes, digest: bytes) -> None:
        """Add a new piece to the chunk that is being filled."""
        self.add_known(-1 - len(self.chunks), len(self._pieces))
        self._pieces.append(piece)
        self._digests.append(digest)
        self._size += len(piece)
        if self._size >= CHUNK_BYTES:
            self.flush()

    def flush(self) -> None:
        """End the chunk that is being filled."""
        if not self._pieces:
            return
        lengths, data = array("Q", map(len, self._pieces)), b"".join(self._pieces)
        has_records = any(digest != _NO_RECORD for digest in self._digests)
        records = b"".join(self._digests) if has_records else b""
        digest, packed = _digest(lengths, records, data), zlib.compress(data, _LEVEL)
        self.chunks.append(Chunk(digest=digest, lengths=lengths, records=records, data=packed))
        self._pieces, self._digests, self._size = [], [], 0


def pack(
    data: bytes, parsed: ParsedFile | None, known: dict[bytes, Place], digests: dict[int, bytes]
) -> Packing:
    """Return the packing of a file without a name: shared runs and new bytes.

    Args:
        parsed: The file as a bank file; None for any other, which is cut into lines.
        known: Places of pieces that are stored, by `piece_name`.
        digests: Record digests of each chunk `known` speaks of.
    """
    format_ = str(parsed.format.name) if parsed else ""
    file = Member(name="", content=0, sha256=sha256_of(data), size_bytes=len(data), format=format_)
    packing = Packing(member=file)
    records: list[bytes] = []
    if parsed is not None and not all(a < b for a, b in pairwise([0, *parsed.ends])):
        parsed = None  # so broken that its records overlap
    for number, (start, end) in enumerate(pairwise(_cuts(data, parsed))):
        piece = data[start:end]
        place = known.get(piece_name(piece)) if known else None
        if place is not None:
            chunk, position = place
            digest = _digest_at(digests[chunk], position)
            packing.add_known(chunk, position)
        else:
            has_record = parsed is not None and number < len(parsed)
            digest = record_digest(parsed.raw(number)) if parsed and has_record else _NO_RECORD
            packing.add_new(piece, digest)
        if digest != _NO_RECORD:
            records.append(digest)
    packing.flush()
    record_set = record_set_hash(records) if parsed else ""
    packing.member = replace(file, records=len(records), record_set=record_set)
    return packing


def piece_name(piece: bytes) -> bytes:
    """Return a short name for the bytes of a piece."""
    return hashlib.blake2b(piece, digest_size=16).digest()


def load_chunks(database: Connection, numbers: Iterable[int]) -> Iterator[Chunk]:
    """Yield stored chunks one by one."""
    for number in numbers:
        found = database.execute(
            "SELECT digest, lengths, records, data FROM chunk WHERE id = ?", [number]
        ).fetchone()
        if found is None:
            raise _damaged(f"chunk {number}")
        digest, lengths, records, data = found
        yield Chunk(
            id=number, digest=digest, lengths=unpack_numbers(lengths), records=records, data=data
        )


def read_content(database: Connection, number: int) -> bytes:
    """Return the bytes of a stored file.

    Raises:
        HistoryError: they are not what was stored.
    """
    found = database.execute("SELECT sha256, runs FROM content WHERE id = ?", [number]).fetchone()
    if found is None:
        raise _damaged(f"file {number}")
    sha256, data = found[0], _join(database, decode_runs(found[1]))
    if sha256_of(data) != sha256:
        raise _damaged(f"file {number}")
    return data


def _join(database: Connection, runs: list[tuple[int, int, int]]) -> bytes:
    """Return the bytes of runs; each chunk is unpacked once, one at a time."""
    by_chunk: dict[int, list[int]] = {}
    for place, (chunk, _, _) in enumerate(runs):
        by_chunk.setdefault(chunk, []).append(place)
    parts = [b""] * len(runs)
    for packed in load_chunks(database, by_chunk):
        data, ends = packed.unpack(), [0, *accumulate(packed.lengths)]
        for place in by_chunk[packed.id]:
            _, first, count = runs[place]
            if first + count >= len(ends):
                raise _damaged("run of pieces")
            parts[place] = data[ends[first] : ends[first + count]]
    return b"".join(parts)


def encode_runs(runs: Iterable[tuple[int, int, int]]) -> bytes:
    """Return runs as bytes; column by column, since columns compress."""
    columns = list(zip(*runs, strict=True)) or [(), (), ()]
    return pack_numbers(array("Q", (number for column in columns for number in column)))


def decode_runs(data: bytes) -> list[tuple[int, int, int]]:
    """Return the runs that `encode_runs` encoded."""
    numbers = unpack_numbers(data)
    count, rest = divmod(len(numbers), 3)
    if rest:
        raise _damaged("list of runs")
    return list(zip(numbers[:count], numbers[count : 2 * count], numbers[2 * count :], strict=True))


def pack_numbers(numbers: array[int]) -> bytes:
    """Return numbers as compressed little-endian 64-bit words, differences of neighbours."""
    words = array("Q", ((b - a) % 2**64 for a, b in pairwise([0, *numbers])))
    if sys.byteorder == "big":
        words.byteswap()
    return zlib.compress(words.tobytes(), _LEVEL)


def unpack_numbers(data: bytes) -> array[int]:
    """Return the numbers that `pack_numbers` packed."""
    words = array("Q")
    try:
        words.frombytes(zlib.decompress(data))
    except (zlib.error, ValueError) as error:
        raise _damaged("list of numbers") from error
    if sys.byteorder == "big":
        words.byteswap()
    return array("Q", accumulate(words, lambda total, word: (total + word) % 2**64))


def _cuts(data: bytes, parsed: ParsedFile | None) -> Iterator[int]:
    """Yield 0, where each record ends, and the end of the file, each once."""
    yield 0
    if parsed is not None:
        yield from parsed.ends
        if not len(parsed) or parsed.ends[-1] < len(data):
            yield len(data)
        return
    place = data.find(b"\n") + 1
    while 0 < place < len(data):
        yield place
        place = data.find(b"\n", place) + 1
    yield len(data)


def _digest_at(records: bytes, position: int) -> bytes:
    start = position * DIGEST_BYTES
    return records[start : start + DIGEST_BYTES] or _NO_RECORD


def _digest(lengths: array[int], records: bytes, data: bytes) -> bytes:
    head = ",".join(map(str, lengths)).encode("ascii")
    return hashlib.sha256(b"%s;%d;%s%s" % (head, len(records), records, data)).digest()


def _damaged(what: str) -> HistoryError:
    return HistoryError(
        f"history is damaged: {what} is not what was stored",
        hint="the bank itself is untouched; `aoebank log --verify` tells what can still be read",
    )
