"""The versions of a bank, whole or those that changed something asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import version_banks as banks

from aoebank.errors import HistoryError
from aoebank.ops.history.changes import Move
from aoebank.ops.history.log import log
from aoebank.ops.history.tag import add_tag, delete_tag, show_tags
from aoebank.ops.selection import RecordFilter
from aoebank.testing.factories import make_record

OTHER = "Ascend910B2"


@pytest.fixture
def bank(tmp_path: Path) -> Path:
    """Return a bank with four snapshots, the last one only another spelling."""
    banks.put(tmp_path, make_record(1), make_record(2))
    banks.snap(tmp_path, "one", tag="v1")
    banks.put(tmp_path, make_record(1, tile=9), op="LRN")
    banks.put(tmp_path, make_record(1), soc=OTHER)
    banks.snap(tmp_path, "two", minutes=1)
    banks.put(tmp_path, make_record(1, tile=9))
    banks.drop(tmp_path, make_record(2))
    banks.snap(tmp_path, "three", minutes=2)
    file = banks.file_of(tmp_path)
    file.write_bytes(file.read_bytes() + b"\n")
    banks.snap(tmp_path, "four", minutes=3)
    return tmp_path


def _messages(root: Path, wanted: RecordFilter, **options: object) -> list[str]:
    found = log(root, wanted=wanted, **options)  # type: ignore[arg-type]
    return [version.version.message for version in found.versions]


def test_log_is_newest_first_with_what_moved(bank: Path) -> None:
    result = log(bank, wanted=RecordFilter())
    assert [(version.version.message, dict(version.moves)) for version in result.versions] == [
        ("four", {}),
        ("three", {Move.CHANGED: 1, Move.REMOVED: 1}),
        ("two", {Move.ADDED: 2}),
        ("one", {Move.ADDED: 2}),
    ]
    assert result.versions[2].socs == {banks.SOC: 1, OTHER: 1}
    assert result.versions[3].version.tags == ("v1",)
    assert not result.more


@pytest.mark.parametrize(
    ("wanted", "messages"),
    [
        (RecordFilter(soc=(OTHER,)), ["two"]),
        (RecordFilter(op=("LRN",)), ["two"]),
        (RecordFilter(op=("Softmax",)), ["three", "two", "one"]),
        (RecordFilter(key=(make_record(2).key[:8],)), ["three", "one"]),
        (RecordFilter(soc=(OTHER,), op=("LRN",)), []),
    ],
)
def test_filter_leaves_the_versions_that_touched_it(
    bank: Path, wanted: RecordFilter, messages: list[str]
) -> None:
    assert _messages(bank, wanted) == messages


def test_limit_says_when_there_is_more(bank: Path) -> None:
    assert _messages(bank, RecordFilter(), limit=2) == ["four", "three"]
    assert log(bank, wanted=RecordFilter(), limit=2).more
    assert not log(bank, wanted=RecordFilter(), limit=4).more
    assert not log(bank, wanted=RecordFilter(op=("LRN",)), limit=1).more


def test_bank_without_history_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match="no history"):
        log(tmp_path, wanted=RecordFilter())


# ---- tags ----


def test_tag_is_set_moved_listed_and_removed(bank: Path) -> None:
    first = show_tags(bank).tags["v1"]
    second = add_tag(bank, "v2", "latest~1", banks.author()).snapshot
    assert show_tags(bank).tags == {"v1": first, "v2": second}
    with pytest.raises(HistoryError, match="tag exists"):
        add_tag(bank, "v1", "latest", banks.author())
    moved = add_tag(bank, "v1", "v2", banks.author(), force=True)
    assert moved.snapshot == second
    assert delete_tag(bank, "v1", banks.author()).tags == {"v2": second}
    with pytest.raises(HistoryError, match="no such tag") as caught:
        delete_tag(bank, "v1", banks.author())
    assert "v2" in str(caught.value)
    again = add_tag(bank, "v1", "latest~3", banks.author())
    assert again.snapshot == first


def test_tag_of_what_is_not_there_is_an_error(bank: Path) -> None:
    with pytest.raises(HistoryError, match="unknown snapshot"):
        add_tag(bank, "v2", "v9", banks.author())
    assert list(show_tags(bank).tags) == ["v1"]
