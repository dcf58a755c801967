"""The versions of a bank, whole or those that changed something asked for."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from support import sample_bank_files
from support import version_banks as banks
from support.golden_harness import run

from aoebank import HistoryError
from aoebank.history.changes import Move
from aoebank.history.log import log, verify_history
from aoebank.history.snapshot import add_tag, delete_tag, show_tags
from aoebank.selection import RecordFilter
from aoebank.storage.sides import snapshots
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


def test_files_whose_name_tells_no_target_are_counted_too(tmp_path: Path) -> None:
    root = Path(shutil.copytree(sample_bank_files.VLLM.parent, tmp_path / "gpu"))
    banks.snap(root, "one")
    shown = run("aoebank", ["log", str(root)]).stdout
    assert "54 added (- 30, MI300X 6, NVIDIA_B200 6, NVIDIA_H200 6, aicore 6)" in shown


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


def test_counts_noted_by_a_snapshot_are_those_a_comparison_finds(tmp_path: Path) -> None:
    banks.put(tmp_path, make_record(0), make_record(1))
    banks.snap(tmp_path)
    banks.put(tmp_path, make_record(0, cost_us=3.0), make_record(2))
    banks.drop(tmp_path, make_record(1))
    banks.put(tmp_path, make_record(5), soc="Ascend910B2")
    banks.snap(tmp_path)
    noted = log(tmp_path, wanted=RecordFilter()).versions
    counted = log(tmp_path, wanted=RecordFilter(key=("*",))).versions
    assert [(one.moves, one.socs) for one in noted] == [(one.moves, one.socs) for one in counted]
    assert noted[0].moves == {Move.ADDED: 2, Move.REMOVED: 1, Move.CHANGED: 1}
    assert verify_history(tmp_path).problems == ()


def test_log_reads_no_file_where_counts_are_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        banks.put(tmp_path, make_record(number))
        banks.snap(tmp_path)
    read: list[int] = []
    real = snapshots.read_snapshot_file
    monkeypatch.setattr(
        snapshots, "read_snapshot_file", lambda root, n: (read.append(n), real(root, n))[1]
    )
    log(tmp_path, wanted=RecordFilter(), limit=2)
    assert read == []
    log(tmp_path, wanted=RecordFilter(key=("*",)), limit=2)
    assert read


@pytest.mark.parametrize("damage", ["UPDATE counts SET moves = 'x'", "DROP TABLE counts"])
def test_counts_that_are_gone_or_damaged_are_counted_again(tmp_path: Path, damage: str) -> None:
    for number in range(2):
        banks.put(tmp_path, make_record(number))
        banks.snap(tmp_path)
    banks.tamper(tmp_path, damage)
    assert log(tmp_path, wanted=RecordFilter()).versions[0].moves == {Move.ADDED: 1}


def test_counts_that_were_changed_are_told_by_verify(tmp_path: Path) -> None:
    for number in range(2):
        banks.put(tmp_path, make_record(number))
        banks.snap(tmp_path)
    banks.tamper(tmp_path, """UPDATE counts SET moves = '{"added": 9}'""")
    (problem,) = verify_history(tmp_path).problems
    assert "as was noted" in problem
