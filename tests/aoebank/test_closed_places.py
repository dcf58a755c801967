"""What this user may not read is told, and hides nothing else."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.faulty_system import FaultySystem
from support.golden_harness import run

from aoebank import Bank, BankPermissionError, diff, list_bank, quarantine_add, show, validate
from aoebank.testing.factories import make_record

SOC, OTHER = "x86-64-v4", "x86-64-v3"
Close = Callable[[Path], None]


def put(root: Path, soc: str, op_type: str, seed: int = 1) -> Path:
    bank = Bank(root)
    file = bank.unified_file(soc_version=soc, core_num=2, op_type=op_type)
    bank.put(file, [make_record(seed)])
    return file


@pytest.fixture
def close(system: FaultySystem) -> Close:
    return system.close


@pytest.fixture
def root(tmp_path: Path) -> Path:
    put(tmp_path, SOC, "Softmax")
    put(tmp_path, OTHER, "LRN", 2)
    return tmp_path


def places(root: Path) -> Iterator[Path]:
    yield root / OTHER
    yield root / OTHER / "unified_bank"
    yield root / OTHER / "unified_bank" / f"{OTHER}_2_AiCore_LRN.json"


@pytest.mark.parametrize("number", range(3))
def test_ls_tells_it_and_lists_the_rest(root: Path, close: Close, number: int) -> None:
    place = [*places(root)][number]
    close(place)
    outcome = run("aoebank", ["ls", str(root)])
    assert outcome.exit_code == 3
    assert f"unreadable: {place}: " in outcome.stdout
    assert f"{SOC}_2_AiCore_Softmax.json" in outcome.stdout
    assert "1 file, 1 record\n" in outcome.stdout
    assert outcome.stderr.startswith(f"error: {place}: ")
    document = json.loads(run("aoebank", ["ls", str(root), "--json"]).stdout)
    assert document["error"]["code"] == "bank_permission"
    assert [member["path"] for member in document["unreadable"]] == [str(place)]
    assert len(document["files"]) == 1


def test_ls_of_a_folder_that_is_closed_itself_is_an_error(root: Path, close: Close) -> None:
    close(root)
    outcome = run("aoebank", ["ls", str(root)])
    assert outcome.exit_code == 3
    assert "0 files, 0 records" in outcome.stdout
    assert "permission denied" in outcome.stderr


def test_ls_counts_what_is_closed(root: Path, close: Close) -> None:
    close(root / SOC)
    close(root / OTHER)
    assert len(list_bank(root).closed) == 2
    assert "2 files and folders cannot be read" in run("aoebank", ["ls", str(root)]).stderr


@pytest.mark.parametrize("number", range(3))
def test_validate_has_a_finding_for_it_and_checks_the_rest(
    root: Path, close: Close, number: int
) -> None:
    place = [*places(root)][number]
    close(place)
    result = validate(root)
    found = [(finding.code, finding.location.path) for finding in result.findings]
    assert found == [("AB101", place)]
    assert result.records == 1


@pytest.mark.parametrize("number", range(3))
def test_show_finds_the_records_that_can_be_read(root: Path, close: Close, number: int) -> None:
    place = [*places(root)][number]
    close(place)
    result = show(make_record(1).key, root)
    assert [shown.record.key for shown in result.records] == [make_record(1).key]
    assert [miss.selector for miss in result.misses] == [str(place)]


@pytest.mark.parametrize("number", range(3))
def test_what_would_count_as_removed_stops_a_diff(
    root: Path, tmp_path: Path, close: Close, number: int
) -> None:
    place = [*places(root)][number]
    close(place)
    if number < 2:
        with pytest.raises(BankPermissionError, match="cannot be read"):
            diff(root, root)
    else:
        (problem,) = diff(root, root).problems
        assert "cannot be read" in problem.headline


def test_quarantine_knows_no_closed_place(root: Path, close: Close) -> None:
    close(root / OTHER)
    with pytest.raises(BankPermissionError, match="cannot be read"):
        quarantine_add(make_record(1).key, root, reason="slow")


def test_built_in_bank_that_is_closed_in_part_is_told(
    root: Path, tmp_path: Path, close: Close
) -> None:
    built_in = tmp_path / "built-in"
    put(built_in, SOC, "Softmax")
    close(put(built_in, OTHER, "LRN", 2))
    close(built_in / "more")
    (built_in / "more").mkdir()
    found = validate([root / SOC, root / OTHER], built_in=built_in).findings
    assert [finding.code for finding in found] == ["AB512", "AB512"]


def test_path_behind_a_closed_folder_is_not_called_missing(
    tmp_path: Path, system: FaultySystem
) -> None:
    for name in ("Path.is_dir", "Path.is_file"):
        system.fail(name, PermissionError(errno.EACCES, "Permission denied"))
    (finding,) = validate(tmp_path / "bank").findings
    assert (finding.code, finding.message) == ("AB101", "cannot be read: permission denied")
