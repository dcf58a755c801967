"""Contents come back byte for byte, and what did not change is stored once."""

from __future__ import annotations

from array import array
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import version_banks as banks
from support.sample_bank_files import ALL, GPU

from aoebank import HistoryError
from aoebank.formats.registry import FORMATS, format_of, get_format
from aoebank.storage.history.content import (
    CHUNK_BYTES,
    Chunk,
    decode_runs,
    encode_runs,
    pack,
    pack_numbers,
    piece_name,
    read_content,
    unpack_numbers,
)
from aoebank.storage.history.database import open_history, transaction
from aoebank.storage.history.store import add_content
from aoebank.storage.sides.snapshots import open_snapshot_side
from aoebank.testing.factories import make_record

NUMBERS = st.lists(st.integers(0, 2**64 - 1), max_size=30)


@given(NUMBERS)
def test_packed_numbers_come_back(numbers: list[int]) -> None:
    assert list(unpack_numbers(pack_numbers(array("Q", numbers)))) == numbers


@given(st.lists(st.tuples(*[st.integers(0, 2**40)] * 3), max_size=20))
def test_runs_come_back(runs: list[tuple[int, int, int]]) -> None:
    assert decode_runs(encode_runs(runs)) == runs


@pytest.mark.parametrize("damage", [b"", b"junk", pack_numbers(array("Q", [1, 2]))])
def test_damaged_runs_are_told(damage: bytes) -> None:
    with pytest.raises(HistoryError, match="damaged"):
        decode_runs(damage)


def _pieces_stored(root: Path) -> int:
    """Return how many bytes of pieces the history holds, before compression."""
    with open_history(root) as database:
        lengths = [packed for (packed,) in database.execute("SELECT lengths FROM chunk")]
    return sum(sum(unpack_numbers(packed)) for packed in lengths)


LINES = st.lists(st.sampled_from([b"a\n", b"b\n", b"\n", b"\r\n", b"long " * 9 + b"\n"]))


@given(st.lists(st.builds(lambda lines, end: b"".join(lines) + end, LINES, st.binary(max_size=3))))
def test_any_bytes_come_back_whatever_was_stored_before(versions: list[bytes]) -> None:
    known: dict[bytes, tuple[int, int]] = {}
    digests: dict[int, bytes] = {}
    stored: dict[int, Chunk] = {}
    for data in versions:
        packing = pack(data, None, known, digests)
        for place, chunk in enumerate(packing.chunks):
            number = len(stored) + 1
            stored[number] = chunk
            digests[number] = chunk.records
            packing.runs = [
                (number, first, count) if chunk_id == -1 - place else (chunk_id, first, count)
                for chunk_id, first, count in packing.runs
            ]
            for position, piece in enumerate(chunk.pieces()):
                known.setdefault(piece_name(piece), (number, position))
        pieces = {number: list(chunk.pieces()) for number, chunk in stored.items()}
        again = b"".join(
            b"".join(pieces[number][first : first + count]) for number, first, count in packing.runs
        )
        assert again == data
        assert packing.member.size_bytes == len(data)


@pytest.mark.parametrize("name", [known.name for known in FORMATS])
def test_banks_of_every_format_come_back(name: str, tmp_path: Path) -> None:
    folder = Path(__file__).resolve().parents[4] / "sample_banks"
    found = [*folder.rglob("*.json*"), *folder.rglob("*.csv")]
    names = {
        "unified": "s_1_AiCore_x.json",
        "runtime_kb": "s_1_AiCore_x_runtime_kb.json",
        "cube": "AIC_1_L1_SIZE_1_repository_s_x.json",
        "vector": "s_AiCore_1_v001.json",
        "graph": "s_l2cache.json",
        "gradient": "s_gradient_fusion.json",
    }
    names |= {format_of(path).name: path.name for path in ALL if path.parent == GPU}
    place = tmp_path / names[name]
    expected = []
    for data in [
        get_format(name).empty,
        b"",
        *(path.read_bytes() for path in found if path.is_file()),
    ]:
        place.write_bytes(data)  # of other formats too: then all of it is one broken file
        identity = banks.snap_id(tmp_path)
        expected.append((identity, data))
    for identity, data in expected:
        side = open_snapshot_side(identity, root=tmp_path)
        assert side.read(side.contents[place.name]) == data


def test_changed_record_costs_that_record_alone(tmp_path: Path) -> None:
    banks.put(tmp_path, *map(make_record, range(400)))
    banks.snap(tmp_path)
    before = _pieces_stored(tmp_path)
    size = banks.file_of(tmp_path).stat().st_size
    assert before == size
    banks.put(tmp_path, make_record(200, tile=99))
    banks.snap(tmp_path)
    assert 0 < _pieces_stored(tmp_path) - before < size / 300


def test_going_back_costs_nothing(tmp_path: Path) -> None:
    banks.put(tmp_path, *map(make_record, range(40)))
    banks.snap(tmp_path)
    banks.put(tmp_path, make_record(1, tile=99))
    banks.snap(tmp_path)
    before = _pieces_stored(tmp_path)
    banks.put(tmp_path, make_record(1))
    assert banks.snap(tmp_path).recorded.is_new  # type: ignore[union-attr]
    assert _pieces_stored(tmp_path) == before


def test_file_under_another_name_costs_nothing(tmp_path: Path) -> None:
    banks.put(tmp_path, *map(make_record, range(40)))
    banks.snap(tmp_path)
    before = _pieces_stored(tmp_path)
    banks.file_of(tmp_path).rename(banks.file_of(tmp_path, "Softmax2"))
    banks.snap(tmp_path)
    assert _pieces_stored(tmp_path) == before


def test_large_files_are_cut_into_chunks(tmp_path: Path) -> None:
    data = b"".join(b"%06d\n" % number for number in range(CHUNK_BYTES // 2))
    packing = pack(data, None, {}, {})
    assert len(packing.chunks) == -(-len(data) // CHUNK_BYTES)
    with open_history(tmp_path, create=True) as database:
        with transaction(database):
            number = add_content(database, packing)
        assert read_content(database, number) == data


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE chunk SET data = zeroblob(9)",
        "UPDATE chunk SET data = substr(data, 1, 20)",
        "UPDATE chunk SET lengths = x'00'",
        "UPDATE content SET runs = x'00'",
        "UPDATE content SET sha256 = 'x'",
        "DELETE FROM chunk",
    ],
)
def test_damage_is_told_and_never_returned(tmp_path: Path, statement: str) -> None:
    banks.put(tmp_path, *map(make_record, range(9)))
    banks.snap(tmp_path)
    banks.tamper(tmp_path, statement)
    with pytest.raises(HistoryError, match="not what was stored"):
        side = open_snapshot_side("latest", root=tmp_path)
        side.load(side.names()[0])
