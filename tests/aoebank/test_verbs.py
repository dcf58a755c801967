"""The verbs, as far as the golden outputs do not show them already."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
from support import version_banks
from support.sample_bank_files import RUNTIME_KB

import aoebank as api
from aoebank import Bank, Event, Severity, UsageError
from aoebank.reading.ls import list_bank
from aoebank.reading.show import show
from aoebank.storage.bank import load_file
from aoebank.storage.sides.side import PathSide
from aoebank.testing.factories import make_provenance, make_record
from aoebank.validation.run import validate

SOC = "x86-64-v4"


def make_bank(root: Path, *records: Any, soc: str = SOC, op_type: str = "Softmax") -> Path:
    bank = Bank(root)
    file = bank.unified_file(soc_version=soc, core_num=2, op_type=op_type)
    bank.put(file, records)
    return file


def test_validate_sees_a_file_once_however_often_it_is_named(tmp_path: Path) -> None:
    file = make_bank(tmp_path, make_record())
    result = validate([tmp_path, file, tmp_path])
    assert (result.files, result.records) == (1, 1)


def test_validate_takes_links_to_nowhere_and_loops_for_findings(tmp_path: Path) -> None:
    (tmp_path / "a.json").symlink_to("b.json")
    (tmp_path / "b.json").symlink_to("a.json")
    assert {finding.code for finding in validate([tmp_path]).findings} == {"AB101"}
    assert {finding.code for finding in validate([tmp_path / "a.json"]).findings} == {"AB501"}


def test_validate_has_no_finding_for_provenance_of_what_was_not_kept(tmp_path: Path) -> None:
    file = make_bank(tmp_path, make_record())
    other = make_record(1).key
    Bank(tmp_path).append_provenance(
        file,
        [
            make_provenance(other),
            make_provenance(other, event=Event.DROPPED),
            make_provenance(make_record(2).key, event=Event.UNSATISFIED),
        ],
    )
    assert validate([tmp_path]).findings == ()
    Bank(tmp_path).append_provenance(file, [make_provenance(other)])
    assert [finding.severity for finding in validate([tmp_path]).findings] == [Severity.NOTE]


def test_ls_counts_only_speedups_of_records_still_there(tmp_path: Path) -> None:
    file = make_bank(tmp_path, make_record(0), make_record(1))
    keys = [make_record(number).key for number in range(3)]
    Bank(tmp_path).append_provenance(
        file,
        [
            make_provenance(keys[0], speedup=9.0),
            make_provenance(keys[0], speedup=1.5),
            make_provenance(keys[1], speedup=2.5),
            make_provenance(keys[2], speedup=99.0),
            make_provenance(keys[1], speedup=1.0, event=Event.UNSATISFIED),
        ],
    )
    (summary,) = list_bank(_side(tmp_path)).files
    assert (summary.best_speedup, summary.median_speedup) == (2.5, 2.0)


def test_show_takes_a_record_readers_pass_over_for_none(tmp_path: Path) -> None:
    file = make_bank(tmp_path, make_record(0))
    text = file.read_text()
    member = text.strip("{}\n")
    file.write_text(f"{{\n{member.replace('10.5', '99')},\n{member}\n}}\n")
    result = show([make_record(0).key[:8]], [_side(tmp_path)])
    assert [shown.record.cost_us for shown in result.records] == [10.5]


def test_show_tells_of_a_record_that_cannot_be_read(tmp_path: Path) -> None:
    file = make_bank(tmp_path, make_record(0), make_record(1))
    file.write_bytes(file.read_bytes().replace(b'"knowledge"', b'"knowlege"', 1))
    result = show([str(file)], [])
    second = max(make_record(0).key, make_record(1).key)
    assert [shown.record.key for shown in result.records] == [second]
    assert "member knowledge is missing" in result.misses[0].reason


def test_show_takes_a_colon_in_a_path_for_what_it_is(tmp_path: Path) -> None:
    file = make_bank(tmp_path / "a:b", make_record(0))
    assert len(show([str(file)], []).records) == 1
    assert len(show([f"{file}:{make_record(0).key[:4]}"], []).records) == 1


def _side(root: Path) -> PathSide:
    return PathSide(label=str(root), path=root)


def test_show_finds_a_record_by_the_hash_logs_print(tmp_path: Path) -> None:
    for record in load_file(RUNTIME_KB).iter_records():
        number = str(int(record.key[:8], 16))
        (shown,) = show([number], [_side(RUNTIME_KB)]).records
        assert shown.record.key == record.key


def test_show_finds_a_record_by_a_stored_id_that_is_not_its_hash(tmp_path: Path) -> None:
    source = RUNTIME_KB
    first, *_ = load_file(source).iter_records()
    lines = source.read_bytes().replace(str(first.extra["id"]).encode(), b"4115235782")
    (tmp_path / source.name).write_bytes(lines)
    (shown,) = show(["4115235782"], [_side(tmp_path)]).records
    assert shown.record.key == first.key
    assert shown.record.extra["id"] == 4115235782
    assert show(["4115235783"], [_side(tmp_path)]).misses


def test_show_finds_a_record_in_each_file_that_has_its_key(tmp_path: Path) -> None:
    source = RUNTIME_KB
    for soc in ("Ascend910B1", "Ascend910B2"):
        (tmp_path / f"{soc}_20_AiCore_MatMulV3_runtime_kb.json").write_bytes(source.read_bytes())
    first, second, *_ = load_file(source).iter_records()
    found = show([str(int(first.key[:8], 16))], [_side(tmp_path)])
    assert [shown.record.soc_version for shown in found.records] == ["Ascend910B1", "Ascend910B2"]
    lines = source.read_bytes().replace(str(second.extra["id"]).encode(), b"4115235782")
    lines = lines.replace(str(first.extra["id"]).encode(), b"4115235782")
    (tmp_path / "Ascend910B1_20_AiCore_MatMulV3_runtime_kb.json").write_bytes(lines)
    (miss,) = show(["4115235782"], [_side(tmp_path)]).misses  # an id of two records
    assert miss.reason == "more than one record"
    assert len(miss.keys) == 2


def test_show_looks_into_the_bank_in_git_one_is_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / RUNTIME_KB.name).write_bytes(RUNTIME_KB.read_bytes())
    version_banks.git(tmp_path, "init", "-q")
    version_banks.git(tmp_path, "add", "-A")
    version_banks.git(tmp_path, "commit", "-q", "-m", "one")
    first, *_ = load_file(RUNTIME_KB).iter_records()
    with contextlib.chdir(tmp_path):
        (shown,) = api.show(str(int(first.key[:8], 16))).records
    assert shown.record.key == first.key


def test_number_beyond_32_bits_is_no_id(tmp_path: Path) -> None:
    (miss,) = show(["9999999999"], [_side(RUNTIME_KB)]).misses
    assert miss.reason == "no such record"


def test_ls_and_show_read_commits_and_snapshots_as_they_read_folders(tmp_path: Path) -> None:
    make_bank(tmp_path, make_record(0), make_record(1))
    version_banks.snap(tmp_path, tag="v1")
    version_banks.git(tmp_path, "init", "-q")
    version_banks.git(tmp_path, "add", "-A")
    version_banks.git(tmp_path, "commit", "-q", "-m", "one")
    expected = [(file.name, file.records) for file in api.list_bank(tmp_path).files]
    make_bank(tmp_path, make_record(2))
    with contextlib.chdir(tmp_path):
        for text in ("git:HEAD", f"snapshot:v1:{tmp_path}"):
            listed = api.list_bank(text)
            assert [(file.name, file.records) for file in listed.files] == expected
            (shown,) = api.show(make_record(1).key, text).records
            assert shown.record.key == make_record(1).key
            assert str(shown.file).startswith(text.partition(":")[0])
        name = expected[0][0]
        assert len(api.show(f"git:HEAD:{name}").records) == 2
        with pytest.raises(UsageError, match="at least one"):
            api.show("git:HEAD")
