"""Files as their tuner would write them, with the answers they had."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import version_banks as banks
from support.golden_harness import run

import aoebank
from aoebank import make_gradient_record
from aoebank.model.codes import FixClass
from aoebank.testing.factories import make_record


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return a bank file whose records stand in reverse, with line ends of another system."""
    banks.put(tmp_path, *(make_record(number) for number in range(3)))
    file = banks.file_of(tmp_path)
    head, *records, last = file.read_bytes().splitlines()
    turned = [record.rstrip(b",") for record in reversed(records)]
    file.write_bytes(b"\r\n".join([head, b",\r\n".join(turned), last, b""]))
    return file


def test_formatted_file_has_the_answers_it_had_and_stays(file: Path, tmp_path: Path) -> None:
    before = banks.costs(tmp_path)
    (done,) = aoebank.fmt(tmp_path)
    assert done.is_written and b"\r" not in file.read_bytes()
    assert [*banks.costs(tmp_path)] == sorted(before)
    assert banks.costs(tmp_path) == before
    assert aoebank.fmt(tmp_path) == ()


def test_broken_file_keeps_its_order_and_text(file: Path, tmp_path: Path) -> None:
    file.write_bytes(before := file.read_bytes()[:-30])
    (done,) = aoebank.fmt(tmp_path)
    assert done.fix.classes == (FixClass.CRLF,)
    assert file.read_bytes() == before.replace(b"\r\n", b"\n")


def test_summary_claims_nothing_about_files_that_are_broken(file: Path, tmp_path: Path) -> None:
    aoebank.fmt(tmp_path)
    file.write_bytes(file.read_bytes()[:-30])
    assert run("aoebank", ["fmt", str(tmp_path)]).stdout == "all sound files are in this form\n"


def test_gradient_bank_is_as_its_tuner_writes_it_and_converts(tmp_path: Path) -> None:
    records = [
        make_gradient_record(modelhash=str(number), sizes_bytes=[4, 8], times=[9, 1])
        for number in (2, 1)
    ]
    file = tmp_path / "bank" / "Ascend910_gradient_fusion.json"
    aoebank.Bank(file.parent).put(file, records)
    assert aoebank.fmt(file) == ()
    file.write_bytes(file.read_bytes().replace(b"},{", b"},\n {"))
    (done,) = aoebank.fmt(file)
    assert done.fix.classes == (FixClass.TEXT,)
    assert file.read_bytes().count(b"\n") == 1
    assert aoebank.list_bank(file).files[0].keys == ("2", "1")
    aoebank.convert(file.parent, output=tmp_path / "rows.jsonl")
    aoebank.convert(tmp_path / "rows.jsonl", output=tmp_path / "back")
    assert (tmp_path / "back" / file.name).read_bytes() == file.read_bytes()
