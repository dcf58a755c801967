"""A log of shapes says what is tuned first, what is left out, and what is odd about it."""

from __future__ import annotations

from pathlib import Path

import pytest

from aoe.entry.shape_log import MOST_SHAPES, ShapeLog, read_shape_log
from aoe.errors import OptionError


def _log(folder: Path, *lines: str) -> ShapeLog:
    file = folder / "shapes.csv"
    file.write_text("\n".join(lines) + "\n")
    return read_shape_log(file)


def test_lines_are_counts_with_shapes_and_equal_ones_add_up(tmp_path: Path) -> None:
    found = _log(
        tmp_path,
        "count,shapes",
        "# of last week",
        "",
        "10,x:1,3,224,224",
        "80,x:8,3,224,224;mask:8,16",
        "10,mask:8,16;x:8,3,224,224",
        "5, x:1,3,224,224",
    )
    assert [(shape.text, shape.count) for shape in found.shapes] == [
        ("mask:8,16;x:8,3,224,224", 90),
        ("x:1,3,224,224", 15),
    ]
    assert found.calls == 105
    assert found.shapes[0].elements == 8 * 3 * 224 * 224 + 8 * 16


def test_json_lines_say_the_same(tmp_path: Path) -> None:
    as_json = _log(tmp_path, '{"count": 7, "shapes": {"x": [1, 3], "y": [2]}}')
    assert as_json.shapes == _log(tmp_path, "7,x:1,3;y:2").shapes


def test_byte_order_mark_of_a_spreadsheet_is_no_part_of_the_first_line(tmp_path: Path) -> None:
    marked = _log(tmp_path, "\ufeffcount,shapes", "7,x:1,3")
    assert marked.shapes == _log(tmp_path, "7,x:1,3").shapes


@pytest.mark.parametrize(
    "line",
    [
        *("x:1,3", "0,x:1,3", "-3,x:1,3", "3", "3,", "3,x", "3,x:-1,3", "1.5,x:1", "{"),
        *('{"count": 3}', '{"count": Infinity, "shapes": {"x": [1]}}'),
        *('{"count": 3, "shapes": {"x": [1e999]}}', '{"count": 3, "shapes": {"x": [1.5]}}'),
        *(f"1{'0' * 400},x:1", f"3,x:{','.join([str(2**62)] * 20)}"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_line(tmp_path: Path, line: str) -> None:
    with pytest.raises(OptionError, match=r"shapes.csv, line 2: (no count|not a name)") as caught:
        _log(tmp_path, "1,x:1", line)
    assert "900,input:1,3,224,224" in caught.value.hint


def test_empty_and_missing_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="no shape in it"):
        _log(tmp_path, "# nothing")
    with pytest.raises(OptionError, match="cannot be read"):
        read_shape_log(tmp_path / "none.csv")


def test_frequent_shapes_are_chosen_until_hardly_any_cost_is_left(tmp_path: Path) -> None:
    found = _log(tmp_path, "900,x:1,8", "99,x:2,8", "1,x:1,9")
    assert [shape.text for shape in found.chosen()] == ["x:1,8", "x:2,8"]
    (caveat,) = found.caveats()
    assert "of 3 shapes the 2 most frequent are tuned, 99.9% of the calls" in caveat


def test_calls_without_an_element_cost_something(tmp_path: Path) -> None:
    found = _log(tmp_path, "9,x:0,8", "3,x:8,0")
    assert [found.weight_of(shape.text) for shape in found.chosen()] == [9, 3]


def test_shape_without_an_element_is_told_in_words_that_hold(tmp_path: Path) -> None:
    (caveat,) = _log(tmp_path, "30,x:0,8", "29,x:4,8", "2,x:5,8").caveats()
    assert "x:0,8 is extreme: 1/32 the size of the usual x:4,8" in caveat
    assert _log(tmp_path, "9,x:0,8", "8,x:0,4").caveats() == ()


def test_rare_but_costly_shapes_are_tuned_too(tmp_path: Path) -> None:
    found = _log(tmp_path, "900,x:1,8", "1,x:100,8")
    assert len(found.chosen()) == 2
    (caveat,) = found.caveats()
    assert "x:100,8 is extreme: 100 times the size of the usual x:1,8, 1 of 901 calls" in caveat


def test_tiny_shape_is_extreme_too(tmp_path: Path) -> None:
    found = _log(tmp_path, "500,x:64,8", "490,x:1,8", "11,x:65,8")
    assert "x:1,8 is extreme: 1/64 the size of the usual x:64,8" in " ".join(found.caveats())


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("200,x:1,32,32", "x:1,32,32 represents few calls: extent 1 of x at axis 0 in place of 4"),
        ("200,x:4,1,512", "extent 1 of x at axis 1 in place of 32"),
        ("200,x:64,8,32", "batch 64 of x in place of 4 of the usual x:4,32,32, 200 of 1100 calls"),
    ],
)
def test_shape_that_represents_few_calls_is_told(tmp_path: Path, line: str, what: str) -> None:
    (caveat,) = _log(tmp_path, "900,x:4,32,32", line).caveats()
    assert what in caveat


def test_long_tail_is_cut_and_that_is_said(tmp_path: Path) -> None:
    found = _log(tmp_path, *(f"{100 - number},x:{number + 10},8" for number in range(40)))
    assert len(found.chosen()) == MOST_SHAPES
    assert f"of 40 shapes the {MOST_SHAPES} most frequent" in found.caveats()[0]


def test_what_is_even_has_no_doubts(tmp_path: Path) -> None:
    found = _log(tmp_path, "10,x:1,8", "9,x:2,8")
    assert found.caveats() == ()
    assert found.count_of("x:2,8") == 9 and found.count_of("x:3,8") is None
    assert found.weight_of("x:2,8") == 9 * 16 and found.weight_of("x:3,8") == 0
