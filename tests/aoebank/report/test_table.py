"""Tables: no number is ever cut or folded, whatever the terminal; texts are, and stay whole."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aoebank.report.table import fold, lay_out, text_width

HEADER = ("soc_version", "cores", "records", "median", "file")
PATH = "a_very_long_folder/another_long_folder/Ascend910B2_24_AiCore_batch_normalization.json"
ROW = ("Ascend910B2-with-a-long-name", "24", "123456", "1234.56x", PATH)
NUMBERS = ("24", "123456", "1234.56x")
KINDS = "-rrrp"


def _lines(width: int | None, *rows: tuple[str, ...]) -> list[str]:
    return [line for line, _ in lay_out(HEADER, rows or (ROW,), kinds=KINDS, width=width)]


@pytest.mark.parametrize("width", [*range(1, 140), None])
def test_numbers_are_whole_at_every_width(width: int | None) -> None:
    (line,) = (line for line in _lines(width) if "1234.56x" in line)
    assert set(NUMBERS) <= set(line.split())


@pytest.mark.parametrize("width", [60, 80, 120])
def test_lines_fit_but_for_a_path_of_its_own(width: int) -> None:
    lines = _lines(width)
    assert all(len(line) <= width for line in lines if PATH not in line)


def test_path_gets_a_line_of_its_own_where_there_is_no_room() -> None:
    assert f"  {PATH}" in _lines(80)


def test_without_a_terminal_every_row_is_one_line() -> None:
    assert len(_lines(None)) == 2


def test_columns_of_dashes_go_first() -> None:
    rows = (("Ascend910B2", "-", "6", "-", "a" * 40),)
    assert _lines(70, *rows)[0].split() == ["soc_version", "records", "file"]
    assert _lines(100, *rows)[0].split() == [*HEADER]


def test_header_lines_are_told_apart() -> None:
    kinds = [is_title for _, is_title in lay_out(HEADER, [ROW], kinds=KINDS, width=40)]
    assert kinds == sorted(kinds, reverse=True)
    assert True in kinds and False in kinds


def test_no_rows_and_one_column() -> None:
    assert [*lay_out(("a",), [], kinds="", width=1)] == [("a", True)]


@given(st.text(st.characters(categories=["L", "N", "P", "Zs"]), max_size=60), st.integers(2, 30))
def test_fold_loses_nothing_but_blanks(text: str, width: int) -> None:
    lines = fold(text, width)
    assert all(text_width(line) <= width for line in lines)
    assert "".join("".join(lines).split()) == "".join(text.split())
