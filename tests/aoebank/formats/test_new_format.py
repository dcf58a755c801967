"""A new format is a folder and a line in the registry: with these, everything works with it."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.golden_harness import answer
from support.toy_format import ToyFormat, toy_line

from aoebank import Reader
from aoebank.formats import registry
from aoebank.storage.bank import load_file
from aoebank.storage.git.attributes import attribute_block
from aoebank.storage.readers.places import SOC, TUNE_BANK_PATH, Place, Rules
from aoebank.storage.readers.rules import RULES
from aoebank.testing.factories import make_record
from aoebank.testing.format_tests import FormatTests

NAME = "Chip9_gemm.toy"
PLACE = f"Chip9/toys/{NAME}"
LINES = (toy_line("16x16", [4, 4], 9.5), toy_line("32x16", [8, 4], 12.0), toy_line("8x8", None))


class TestContract(FormatTests):
    format = ToyFormat()
    file_name = NAME
    example = "".join(f"{line}\n" for line in LINES).encode()


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "FORMATS", (*registry.FORMATS, ToyFormat()))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def put(tree: Path, *lines: str) -> Path:
    file = tree / PLACE
    file.parent.mkdir(parents=True)
    file.write_text("".join(f"{line}\n" for line in lines))
    return file


def test_file_is_known_by_its_name_and_by_its_content(folder: Path) -> None:
    file = put(folder, *LINES)
    assert registry.find_format(file) is registry.get_format("toy")
    renamed = file.rename(folder / "renamed")
    assert load_file(renamed).format.name == "toy"
    assert load_file(renamed).name is None


def test_validate_checks_records_name_and_folder(folder: Path) -> None:
    put(folder / "good", *LINES)
    assert "3 records" in answer("validate", "good")
    put(folder / "bad", LINES[0], "{}", LINES[1]).rename(folder / "bad/Chip9/toys/Chip8_gemm.toy")
    (folder / "bad/Chip9/toys/notes.txt").touch()
    found = answer("validate", "bad", exit_code=1)
    assert [code for code in ("AB113", "AB503", "AB504") if code in found] == [
        "AB113",
        "AB503",
        "AB504",
    ]


def test_validate_mends_a_file(folder: Path) -> None:
    file = put(folder / "bank", LINES[1], "", LINES[0])
    answer("validate", "--fix", "--fix-class", "blank", "--fix-class", "order", "bank")
    assert file.read_text().splitlines() == [LINES[0], LINES[1]]


def test_ls_and_show_list_it(folder: Path) -> None:
    put(folder / "bank", *LINES)
    listed = answer("ls", "bank")
    assert "toy" in listed
    assert "gemm" in listed
    assert "16x16" in answer("show", f"bank/{PLACE}")


def test_textconv_shows_its_records(folder: Path) -> None:
    file = put(folder, *LINES)
    assert answer("textconv", str(file)).startswith("toy bank, 3 records")


def test_diff_pairs_records_by_key(folder: Path) -> None:
    put(folder / "a", *LINES)
    put(folder / "b", LINES[0], toy_line("32x16", [8, 8], 6.0), toy_line("64x64", [1]))
    shown = answer("diff", "a", "b", exit_code=1)
    assert [word for word in ("8x8", "32x16", "64x64", "16x16") if word in shown] == [
        "8x8",
        "32x16",
        "64x64",
    ]


def test_merge_keeps_what_both_sides_did(folder: Path) -> None:
    put(folder / "base", *LINES)
    put(folder / "ours", LINES[0], toy_line("32x16", [8, 8], 6.0), LINES[2])
    put(folder / "theirs", *LINES[:2], toy_line("64x64", [1]))
    answer("merge", "--base", "base", "ours", "theirs", "--output", "out")
    merged = (folder / "out" / PLACE).read_text().splitlines()
    assert merged == [LINES[0], toy_line("32x16", [8, 8], 6.0), toy_line("64x64", [1])]


def test_snapshot_keeps_and_restores_it(folder: Path) -> None:
    file = put(folder / "bank", *LINES)
    answer("snapshot", "bank")
    file.write_text(LINES[0])
    answer("restore", "latest", "bank")
    assert file.read_text().splitlines() == [*LINES]


def test_reader_of_it_finds_its_files_by_name(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(folder, LINES[0])
    put(folder / "bank", *LINES)
    query = (folder / PLACE).rename(folder / "wanted.toy")
    here = Place(source=TUNE_BANK_PATH, below=(f"{SOC}/toys",))
    rules = Rules(reader=Reader.HOST, format="toy", custom=(here,))
    monkeypatch.setitem(RULES, Reader.HOST, rules)
    monkeypatch.setenv(TUNE_BANK_PATH, str(folder / "bank"))
    shown = answer("resolve", "--reader", "host", "--soc", "Chip9", "--record", str(query))
    assert "host: uses" in shown
    assert NAME in shown


def test_patterns_for_git_take_it_in() -> None:
    assert b"\n*.toy " in attribute_block()


def test_bank_stores_records_in_it(folder: Path) -> None:
    from aoebank import Bank

    file = put(folder, *LINES)
    bank = Bank(folder)
    bank.put(file, [make_record(key="9x9", format="toy")])
    record = bank.find(file, "9x9")
    assert record is not None
    assert record.format == "toy"
    assert file.read_text().splitlines()[:3] == [*LINES]
