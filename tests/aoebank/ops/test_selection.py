"""Globs that choose records."""

from __future__ import annotations

import pytest

from aoebank.ops.selection import RecordFilter

VECTOR_KEY = "[[1, [[0, 0]], [24, 1], [], 9, [1]]]"


def test_empty_filter_holds_everything() -> None:
    only = RecordFilter()
    assert only.holds_soc()
    assert only.holds_op(None)
    assert only.holds_key("x")


@pytest.mark.parametrize(
    ("pattern", "key", "holds"),
    [
        ("abc", "abcdef", True),
        ("abc*", "abcdef", True),
        ("*def", "abcdef", True),
        ("bcd", "abcdef", False),
        ("ABC", "abcdef", False),
        (VECTOR_KEY, VECTOR_KEY, True),
        ("[[1, [[0", VECTOR_KEY, True),
        ("a?c", "abc", True),
    ],
)
def test_key_is_a_start_or_a_glob(pattern: str, key: str, holds: bool) -> None:
    assert RecordFilter(key=(pattern,)).holds_key(key) is holds


def test_one_of_several_patterns_is_enough() -> None:
    only = RecordFilter(op=("LRN", "Soft*"))
    assert only.holds_op("Softmax")
    assert only.holds_op("LRN")
    assert not only.holds_op("lrn")


def test_unknown_target_or_operator_is_not_what_was_asked_for() -> None:
    assert not RecordFilter(soc=("Ascend*",)).holds_soc()
    assert not RecordFilter(op=("LRN",)).holds_op(None)
    assert RecordFilter(soc=("new",)).holds_soc("old", "new")
