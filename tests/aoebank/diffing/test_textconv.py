"""The text git shows: stable, complete, and there for any bytes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import golden_harness
from support.diff_sides import file_name, unified

from aoebank import Alternative
from aoebank.diffing.textconv import textconv
from aoebank.formats.protocol import ParsedFile
from aoebank.formats.registry import find_format
from aoebank.formats.unified.format import UnifiedFormat
from aoebank.model.digest import canonical_text
from aoebank.storage.bank import load_file
from aoebank.testing.factories import make_record

ROOT = Path(__file__).resolve().parents[3]
FILES = [path for path in sorted((ROOT / "sample_banks").rglob("*.json")) if find_format(path)]
NAME = Path(file_name())
SHORT = make_record().key[:8]


def parse(data: bytes, name: str = NAME.name) -> ParsedFile:
    return UnifiedFormat().parse(data, Path(name))


def text_of(*records: object) -> str:
    return textconv(parse(unified(*records)))  # type: ignore[arg-type]


def changed_lines(a: str, b: str) -> set[str]:
    return set(b.splitlines()) - set(a.splitlines())


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_record_of_every_format_has_its_block(file: Path) -> None:
    parsed = load_file(file)
    text = textconv(parsed)
    assert text.count("\nrecord ") == len(parsed)
    assert "cannot be read" not in text
    assert text == textconv(load_file(file))
    for record in parsed.iter_records():
        assert f"\nrecord {record.key}" in text


def test_changed_member_is_one_changed_line() -> None:
    a, b = text_of(make_record(), make_record(1)), text_of(make_record(tile=8), make_record(1))
    assert changed_lines(a, b) == {f"  {SHORT} strategy.tile: [8,4]"}


def test_new_time_is_one_changed_line() -> None:
    assert changed_lines(text_of(make_record()), text_of(make_record(cost_us=1.5))) == {
        f"  {SHORT} time: 1.5 us"
    }


def test_order_of_records_and_of_members_does_not_show() -> None:
    a = make_record(strategy={"x": 1, "y": {"a": 1, "b": 2}})
    b = make_record(strategy={"y": {"b": 2, "a": 1}, "x": 1})
    assert text_of(a, make_record(1)) == text_of(make_record(1), b)


def test_long_list_of_steps_has_a_line_per_step() -> None:
    steps = [["split", "y", "hw", f"step {number} of a long schedule"] for number in range(5)]
    text = text_of(make_record(strategy={"steps": steps}))
    assert text.count(f'\n  {SHORT} strategy.steps[]: ["split",') == 5


def test_further_candidates_and_unknown_members_show() -> None:
    other = Alternative(workload={"other": 1}, strategy={"tile": 1}, cost_us=99.0)
    text = text_of(make_record(alternatives=(other,), extra={"new member": {"x": 1}}))
    assert f'  {SHORT} candidate 2 workload: {{"other":1}}\n' in text
    assert f"  {SHORT} candidate 2 time: 99.0 us\n" in text
    assert f'  {SHORT} "new member".x: 1\n' in text


def test_workload_of_a_further_candidate_shows_where_one_is_1_0() -> None:
    other = Alternative(workload={"m": 1.0}, strategy={"tile": 1}, cost_us=99.0)
    text = text_of(make_record(workload={"m": 1}, alternatives=(other,)))
    assert f'  {SHORT} candidate 2 workload: {{"m":1.0}}\n' in text


def test_name_git_gives_its_copy_does_not_show() -> None:
    data = unified(make_record())
    assert textconv(parse(data)) == textconv(parse(data, f"XyZ123_{NAME.name}"))


def test_hostile_content_cannot_steer_a_terminal() -> None:
    evil = "\x1b[2J\n! AB999 \u202e\x00\ud800"
    record = make_record(strategy={evil: evil}, workload={evil: evil}, origin=evil)
    text = text_of(record)
    assert text.isascii()
    assert all(line.isprintable() for line in text.splitlines())
    assert "\n! AB999" not in text


def test_record_that_cannot_be_read_shows_that_it_changed() -> None:
    broken = unified(make_record(), make_record(1)).replace(b'"knowledge"', b'"knowlege"', 1)
    texts = [textconv(parse(data)) for data in (broken, broken.replace(b"1000", b"1009"))]
    assert texts[0] != texts[1]
    assert all(" problem: member knowledge is missing" in text for text in texts)
    assert all(f"record {make_record(1).key} Softmax" in text for text in texts)


def test_damage_outside_of_records_shows_that_it_changed() -> None:
    whole = unified(make_record())
    texts = [textconv(parse(whole + junk)) for junk in (b"junk", b"jung")]
    assert texts[0] != texts[1]
    assert all("! line 4: AB107" in text for text in texts)


@given(data=st.binary(max_size=300))
@pytest.mark.parametrize("name", [path.name for path in FILES])
def test_any_bytes_have_a_text(name: str, data: bytes) -> None:
    known = find_format(Path(name))
    assert known is not None
    text = textconv(known.parse(data, Path(name)))
    assert text.endswith("\n")
    assert text.isascii() or text.isprintable() or "\n" in text


@given(st.data())
def test_one_damaged_byte_is_seen_or_changes_no_record(data: st.DataObject) -> None:
    whole = unified(make_record(0), make_record(1))
    place = data.draw(st.integers(0, len(whole) - 1))
    broken = whole[:place] + data.draw(st.binary(min_size=1, max_size=1)) + whole[place + 1 :]
    if textconv(parse(broken)) == textconv(parse(whole)):
        old, new = (list(parse(content).iter_records()) for content in (whole, broken))
        assert sorted(map(str, old)) == sorted(map(str, new)) or all(
            canonical_text(replace(a).strategy) == canonical_text(replace(b).strategy)
            for a, b in zip(old, new, strict=True)
        )


def test_textconv_of_what_is_no_file_is_an_error(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "gone"):
        assert golden_harness.run("aoebank", ["textconv", str(path)]).exit_code == 3
