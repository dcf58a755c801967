"""The comment for a pull request: bounded, complete in its counts, safe."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.diff_sides import file_name, make_side, side_of, unified

from aoebank.diffing.markdown import MAX_CHARACTERS, MAX_ROWS, code, diff_markdown
from aoebank.diffing.report import DiffReport
from aoebank.diffing.run import diff
from aoebank.testing.factories import make_record

LONG = "x" * 5000


def comment(a: object, b: object) -> str:
    return diff_markdown(DiffReport(result=diff(a, b)))  # type: ignore[arg-type]


@given(st.text())
def test_code_is_one_cell_and_one_span(text: str) -> None:
    shown = code(text)
    assert "\n" not in shown
    assert not re.search(r"(?<!\\)\|", shown)
    if shown:
        fence = re.match(r"`+", shown)
        assert fence is not None
        inside = shown[len(fence[0]) : -len(fence[0])]
        assert fence[0] not in re.findall(r"`+", inside)
        assert shown.endswith(fence[0])


@pytest.mark.parametrize(
    ("text", "shown"),
    [("a", "`a`"), ("a`b", "`` a`b ``"), ("``", "` `` `"), ("a|b", "`a\\|b`"), ("", ""), (" ", "")],
)
def test_code_picks_a_fence_that_is_not_in_the_text(text: str, shown: str) -> None:
    assert code(text) == shown


def test_comment_is_bounded_whatever_the_bank_holds() -> None:
    files = {
        file_name(f"Op{LONG[:100]}{number}", soc=f"soc{number}"): unified(
            make_record(0, cost_us=1.0), make_record(number, strategy={LONG: LONG})
        )
        for number in range(1, 300)
    }
    slow = {
        name: unified(make_record(0, cost_us=9.0, strategy={LONG: f"{n}{LONG}", "b": LONG}))
        for n, name in enumerate(files)
    }
    text = comment(make_side(files, label=LONG), make_side(slow, label=LONG))
    assert len(text) <= MAX_CHARACTERS
    assert text.count("<details") == text.count("</details>")
    assert "Slower, worst first (299)" in text
    assert re.search(r"^\.\.\. and \d+ more$", text, re.MULTILINE)
    assert "299 strategy changed, 299 removed" in text


def test_long_list_is_cut_with_a_count() -> None:
    text = comment(side_of(), side_of(*map(make_record, range(MAX_ROWS + 5))))
    assert "\n... and 5 more\n" in text
    assert text.count("op_type=Softmax") == MAX_ROWS


def test_every_row_of_a_table_has_as_many_cells_as_its_header() -> None:
    evil = "|`|``\\| @team <img src=x> \n| a | b |"
    a = side_of(make_record(strategy={evil: evil}, workload={evil: evil}, cost_us=1.0))
    b = side_of(make_record(strategy={evil: 1}, workload={evil: evil}, cost_us=9.0))
    width = 0
    for line in comment(a, b).splitlines():
        if line.startswith("|"):
            cells = len(re.findall(r"(?<!\\)\|", line))
            width = width or cells
            assert cells == width
        else:
            width = 0


def test_hostile_text_is_always_inside_code() -> None:
    evil = "@team <img src=x> [link](http://x) #1"
    a = side_of(make_record(strategy={evil: evil}, workload={evil: evil}))
    b = side_of(make_record(strategy={evil: 1}, workload={evil: evil}))
    outside = re.sub(r"(`+).*?\1", "", comment(a, b))
    assert not re.search(r"@team|<img|http:|#1\b", outside)
    assert "@team" in comment(a, b)


def test_slower_records_are_open_and_first() -> None:
    text = comment(side_of(make_record(cost_us=1.0)), side_of(make_record(cost_us=2.0)))
    assert text.index("<details open><summary>Slower, worst first (1)") < text.index("soc_version")
