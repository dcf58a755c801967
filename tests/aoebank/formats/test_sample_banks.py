"""The sample banks: made by the generator, clean, and good for every verb of a bank."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from support import sample_bank_files
from support.scripts import load_script

from aoebank import Bank
from aoebank.formats.protocol import ParsedFile
from aoebank.formats.registry import FORMATS, find_format, get_format

FILES = pytest.mark.parametrize("path", sample_bank_files.ALL, ids=lambda path: path.name)


def parse(path: Path) -> ParsedFile:
    format_ = find_format(path)
    assert format_ is not None
    return format_.parse(path.read_bytes(), path)


def load_generator() -> ModuleType:
    return load_script("benchmarks/make_bank.py")


def test_there_is_one_sample_per_format() -> None:
    names = [parse(path).format.name for path in sample_bank_files.ALL]
    assert sorted(names) == sorted(known.name for known in FORMATS)


@FILES
def test_sample_has_six_records_and_no_findings(path: Path) -> None:
    parsed = parse(path)
    assert len(parsed) == len([*parsed.iter_records()]) == 6
    assert [*parsed.findings, *parsed.format.check(parsed)] == []


@FILES
def test_only_one_format_takes_the_name_and_the_content(path: Path) -> None:
    own = parse(path).format
    head = path.read_bytes()[:4096]
    assert [format_ for format_ in FORMATS if format_.parse_name(path.name)] == [own]
    assert [format_ for format_ in FORMATS if format_.recognizes_content(head)] == [own]
    assert find_format(Path("renamed.json"), head) is own


@FILES
def test_sample_is_what_the_generator_writes(path: Path, tmp_path: Path) -> None:
    generator = load_generator()
    (written,) = generator.make_bank(tmp_path, parse(path).format.name, records=6)
    assert written.relative_to(tmp_path) == path.relative_to(sample_bank_files.root_of(path))
    assert written.read_bytes() == path.read_bytes()


@pytest.mark.parametrize("name", [known.name for known in FORMATS])
def test_generator_splits_a_bank_over_files_without_repeating_a_record(
    name: str, tmp_path: Path
) -> None:
    files = load_generator().make_bank(tmp_path, name, records=50, files=3)
    keys = [key for file in files for key in parse(file).keys]
    assert len(files) == 3
    assert len(keys) == len(set(keys)) == 50


@FILES
def test_bank_stores_replaces_and_removes_records_of_every_format(
    path: Path, tmp_path: Path
) -> None:
    file = tmp_path / path.name
    records = [*parse(path).iter_records()]
    bank = Bank(tmp_path)
    bank.put(file, records[:3])
    bank.put(file, [replace(records[1], strategy=records[2].strategy)])
    bank.remove(file, [records[0].key])
    stored = [*bank.iter_records(file)]
    assert [record.key for record in stored] == [records[1].key, records[2].key]
    assert stored[0].strategy == records[2].strategy
    assert bank.find(file, records[0].key) is None
    parsed = parse(file)
    assert [*parsed.findings, *parsed.format.check(parsed)] == []


@FILES
@pytest.mark.parametrize("name", [known.name for known in FORMATS])
def test_every_format_survives_the_files_of_the_others(path: Path, name: str) -> None:
    parsed = get_format(name).parse(path.read_bytes(), path)
    found = [*parsed.findings, *parsed.format.check(parsed)]
    assert found or name == parse(path).format.name
