"""Several banks looked up as one."""

from __future__ import annotations

from pathlib import Path

import pytest

from aoebank import Bank, Event, Provenance, Record, UnionBank, make_unified_record
from aoebank.model.resolution import UnionRule

SOC = "x86-64-v4"


def _record(number: int, tile: int, cost_us: float | None = None) -> Record:
    return make_unified_record(
        workload={"op_type": "Foo", "m": number},
        strategy={"tile": tile},
        cost_us=cost_us,
        origin="test",
    )


def _file(root: Path) -> Path:
    return Bank(root).unified_file(soc_version=SOC, core_num=2, op_type="Foo")


def _line(record: Record, event: Event, engine: str) -> Provenance:
    return Provenance(
        key=record.key, event=event, time="2026-01-01T00:00:00Z", engine=engine, fingerprint={}
    )


@pytest.fixture
def roots(tmp_path: Path) -> list[Path]:
    """Return four banks: `own` is the third, and written."""
    found = [tmp_path / name for name in ("team", "old", "own", "late")]
    for root in found:
        root.mkdir()
    return found


def _put(root: Path, *records: Record) -> None:
    Bank(root).put(_file(root), records, [_line(one, Event.ADD, root.name) for one in records])


def test_first_bank_that_has_a_record_answers_with_its_lines(roots: list[Path]) -> None:
    team, old, own, late = roots
    _put(team, _record(1, 10))
    _put(old, _record(1, 20, 1.0), _record(2, 20))
    _put(late, _record(1, 40), _record(3, 40))
    union, file = UnionBank(own, roots), _file(own)
    tiles = {number: union.find(file, _record(number, 0).key) for number in (1, 2, 3, 4)}
    assert {n: one and one.strategy for n, one in tiles.items()} == {
        1: {"tile": 10},
        2: {"tile": 20},
        3: {"tile": 40},
        4: None,
    }
    (line,) = union.iter_provenance(file, _record(2, 0).key)
    assert line.engine == "old"
    assert sorted(str(one.strategy) for one in union.iter_records(file)) == [
        *("{'tile': 10}", "{'tile': 20}", "{'tile': 40}")
    ]


def test_best_record_answers_where_that_is_asked_for(roots: list[Path]) -> None:
    for root, cost_us in zip(roots, (None, 3.0, 5.0, 2.0), strict=True):
        _put(root, _record(1, 10, cost_us))
    union = UnionBank(roots[2], roots, UnionRule.BEST)
    found = union.find(_file(roots[2]), _record(1, 0).key)
    assert found is not None
    assert found.cost_us == 2.0
    assert found.location is not None
    assert found.location.path == _file(roots[3])


def test_record_that_does_not_fit_leaves_the_answer_to_the_next(roots: list[Path]) -> None:
    _put(roots[0], _record(1, 10))
    _put(roots[3], _record(1, 40))
    union, file, key = UnionBank(roots[2], roots), _file(roots[2]), _record(1, 0).key
    union.fits = lambda record, lines, root: root != roots[0] and lines[0].engine == "late"
    found = union.find(file, key)
    assert found is not None
    assert found.strategy == {"tile": 40}
    union = UnionBank(roots[2], roots)
    union.fits = lambda record, lines, root: False  # the first one tells why
    unfit = union.find(file, key)
    assert unfit is not None
    assert unfit.strategy == {"tile": 10}


def test_what_is_put_goes_to_the_written_bank_and_answers_from_then_on(roots: list[Path]) -> None:
    _put(roots[0], _record(1, 10))
    union, file = UnionBank(roots[2], roots), _file(roots[2])
    union.put(file, [_record(1, 99)], [_line(_record(1, 99), Event.UPDATE, "run")])
    found = union.find(file, _record(1, 0).key)
    assert found is not None
    assert found.strategy == {"tile": 99}
    assert [line.engine for line in union.iter_provenance(file, found.key)] == ["run"]
    assert _file(roots[0]).read_bytes().count(b"99") == 0
    later = UnionBank(roots[2], roots).find(file, found.key)
    assert later is not None
    assert later.strategy == {"tile": 10}  # the first of the list again
    hidden = [*UnionBank(roots[2], roots).iter_provenance(file, found.key)]
    assert [line.engine for line in hidden] == ["team"]  # not those of the record it hides


def test_file_of_another_bank_is_read_as_it_is(roots: list[Path], tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    _put(other, _record(7, 70))
    union = UnionBank(roots[2], roots)
    assert union.find(_file(other), _record(7, 0).key) is not None
    assert union.find(_file(roots[2]), _record(7, 0).key) is None
