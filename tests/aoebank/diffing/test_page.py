"""The HTML page: whole, self-contained, and safe whatever a bank holds."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import UndefinedError
from support.diff_sides import file_name, make_side, side_of, unified
from support.pages import ReadPage

from aoebank import Record, page_environment
from aoebank.diffing.page import MAX_ROWS, diff_html
from aoebank.diffing.report import DiffReport
from aoebank.diffing.result import FileMove
from aoebank.diffing.run import DiffOptions, diff
from aoebank.testing.factories import make_provenance, make_record

EVIL = (
    "</script></style></title><script>alert(1)</script>\"'><img src=x onerror=alert(1)>"
    "\x1b[2J\u202e"
)


def read(text: str) -> ReadPage:
    page = ReadPage(text)
    assert page.open == []
    return page


def report_of(a: Record, b: Record, **facts: bool) -> DiffReport:
    return DiffReport(result=diff(side_of(a), side_of(b)), **facts)


def visible(reader: ReadPage) -> str:
    return " ".join(" ".join(reader.texts).split())


def test_page_has_the_figures_and_the_worst_first() -> None:
    a = side_of(*(make_record(n, cost_us=10.0) for n in range(3)))
    b = side_of(*(make_record(n, cost_us=cost) for n, cost in enumerate((11.0, 40.0, 5.0))))
    text = diff_html(DiffReport(result=diff(a, b)))
    shown = visible(read(text))
    assert "2 slower 1 faster" in shown
    assert shown.index("4.000x") < shown.index("1.100x") < shown.rindex("0.500x")
    assert shown.index("4.000x", shown.index("Slower, worst first")) > 0


def test_changed_members_stand_side_by_side() -> None:
    text = diff_html(report_of(make_record(), make_record(tile=8)))
    assert '<td class="old"><code>16</code></td>\n<td class="new"><code>8</code></td>' in text


def test_page_loads_nothing_and_allows_only_its_own_script() -> None:
    text = diff_html(report_of(make_record(), make_record(tile=8)))
    assert not re.search(r"(?:\bsrc=|href|url\(|@import|http:|https:)", text)
    (policy,) = re.findall(r'content="(default-src[^"]*)"', text)
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src &#39;sha256-{digest}&#39;" in policy
    assert policy.startswith("default-src &#39;none&#39;")


def hostile_side(number: int) -> object:
    record = make_record(
        workload={EVIL: EVIL}, strategy={EVIL: number}, cost_us=10.0 + number, origin=EVIL
    )
    file = file_name().replace("Softmax", "<b>op<b>").replace("x86", "<i>")
    broken = unified(make_record(5 + number)).replace(b'"knowledge"', b'"<u>"')
    return make_side(
        {
            file: unified(replace(record, key=EVIL)),
            file_name(): broken,
            "x_1_AiCore_y.json": b"<s>",
        },
        label=EVIL,
    )


def test_hostile_bank_adds_no_tag_and_no_attribute() -> None:
    evil, tame = (
        read(diff_html(DiffReport(result=diff(a, b))))  # type: ignore[arg-type]
        for a, b in (
            (hostile_side(0), hostile_side(9)),
            (side_of(make_record()), side_of(make_record(tile=8, cost_us=99.0))),
        )
    )
    assert evil.tags.count("script") == evil.tags.count("style") == evil.tags.count("title") == 1
    assert not {"img", "b>op<b", "u", "s", "i"} & set(evil.tags)
    assert evil.attributes <= tame.attributes | {"open"}
    assert "alert(1)" in visible(evil)
    assert "\x1b" not in visible(evil)
    assert "\u202e" not in visible(evil)


@given(st.text(), st.text())
def test_any_text_comes_back_as_text(first: str, second: str) -> None:
    template = page_environment().from_string('<p><b title="{{ b }}">{{ a }}</b>{{ b }}</p>')
    reader = read(template.render(a=first, b=second))
    assert reader.tags == ["p", "b"]
    assert reader.attributes == {"title"}


def test_markup_is_not_escaped_twice_and_texts_are_once() -> None:
    environment = page_environment()
    text = """{% macro inner(text) %}<i>{{ text }}</i>{% endmacro %}{{ inner("&" ~ name) }}"""
    assert environment.from_string(text).render(name="<b>\x1b") == "<i>&amp;&lt;b&gt;\\x1b</i>"


def test_misspelt_name_in_a_page_is_an_error() -> None:
    with pytest.raises(UndefinedError):
        page_environment().from_string("{{ nobody }}").render()


def test_long_tables_are_cut_and_say_so() -> None:
    result = diff(side_of(), side_of(*map(make_record, range(MAX_ROWS + 7))))
    shown = visible(read(diff_html(DiffReport(result=result))))
    assert "7 more: aoebank diff --json has them all" in shown
    assert shown.count("op_type=Softmax") == MAX_ROWS


def test_figures_alone_have_no_list_of_records() -> None:
    result = diff(side_of(make_record()), side_of(make_record(1)), DiffOptions(has_fields=False))
    shown = visible(read(diff_html(DiffReport(result=result, is_stat=True))))
    assert "By soc_version and op_type" in shown
    assert make_record(1).key not in shown


def test_times_of_different_environments_are_marked() -> None:
    logs = [[make_provenance(make_record().key, fingerprint={"cpu": cpu})] for cpu in "ab"]
    a, b = (
        side_of(make_record(cost_us=cost), provenance=log)
        for cost, log in zip((1.0, 2.0), logs, strict=True)
    )
    shown = visible(read(diff_html(DiffReport(result=diff(a, b)))))
    assert "not comparable" in shown
    assert "Slower" not in shown


def test_equal_banks_make_a_page_too() -> None:
    shown = visible(read(diff_html(report_of(make_record(), make_record()))))
    assert "no difference (1 record unchanged)" in shown


def test_columns_without_an_entry_are_left_out() -> None:
    timed = diff_html(report_of(make_record(cost_us=10.0), make_record(cost_us=20.0)))
    without = diff_html(
        report_of(make_record(cost_us=None), make_record(cost_us=None, strategy={"tile": 7}))
    )
    columns = ("A (us)", "B (us)", "ratio", "worst")
    assert [name for name in columns if name not in visible(read(timed))] == []
    assert [name for name in columns if name in visible(read(without))] == []
    assert "re-timed" not in visible(read(without))


def test_moved_files_are_all_listed() -> None:
    number = MAX_ROWS + 1
    moves = tuple(
        FileMove(
            a=f"old/{place}.json",
            b=f"new/{place}.json",
            records_a=1,
            records_b=1,
            equal=1,
        )
        for place in range(number)
    )
    result = replace(diff(side_of(make_record()), side_of(make_record())), moves=moves)
    shown = visible(read(diff_html(DiffReport(result=result))))
    assert f"old/{number - 1}.json" in shown
