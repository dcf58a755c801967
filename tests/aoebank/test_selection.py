"""Globs that choose records."""

from __future__ import annotations

import pytest

from aoebank import UsageError
from aoebank.selection import RecordFilter, demand_case, target_of

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


def test_empty_key_is_refused() -> None:
    with pytest.raises(UsageError, match="an empty key"):
        RecordFilter(key=("abc", ""))


def test_one_of_several_patterns_is_enough() -> None:
    only = RecordFilter(op=("LRN", "Soft*"))
    assert only.holds_op("Softmax")
    assert only.holds_op("LRN")
    assert not only.holds_op("lrn")


def test_unknown_target_or_operator_is_not_what_was_asked_for() -> None:
    assert not RecordFilter(soc=("Ascend*",)).holds_soc()
    assert not RecordFilter(op=("LRN",)).holds_op(None)
    assert RecordFilter(soc=("new",)).holds_soc("old", "new")


@pytest.mark.parametrize("pattern", ["x86-64-zen3", "x86_64_zen3", "x86_64-z*", "x86-64-zen[3]"])
def test_both_spellings_of_a_target_are_one(pattern: str) -> None:
    only = RecordFilter(soc=(pattern,))
    assert only.holds_soc("x86-64-zen3")
    assert not only.holds_soc("x86-64-skylake")
    assert only.holds_soc("x86_64_zen3") is ("[" not in pattern)


def test_target_in_another_case_is_an_error_that_names_it() -> None:
    names = ["Ascend910B2/unified_bank/Ascend910B2_24_AiCore_matmul.json"]
    with pytest.raises(UsageError, match=r"got ascend910b2, expected Ascend910B2"):
        demand_case(RecordFilter(soc=("ascend910b2",)), names)
    for pattern in ("Ascend910B2", "Ascend910*", "x86-64-v4"):
        demand_case(RecordFilter(soc=(pattern,)), names)


def test_operator_in_another_case_is_an_error_that_names_it() -> None:
    folder = "Ascend910B2/unified_bank/Ascend910B2_24_AiCore_"
    names = [f"{folder}MatMulV3_runtime_kb.json", f"{folder}conv2d.json"]
    with pytest.raises(UsageError, match=r"got matmulv3, expected MatMulV3"):
        demand_case(RecordFilter(op=("matmulv3",)), names)
    for pattern in ("MatMulV3", "MatMul*", "conv2d", "Softmax"):
        demand_case(RecordFilter(op=(pattern,)), names)
    # the records of a subgraph bank may be of any operator
    demand_case(RecordFilter(op=("matmulv3",)), [*names, "graph/ascend910b2_l2cache.json"])


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("Ascend910B2/unified_bank/Ascend910B2_24_AiCore_matmul.json", "Ascend910B2"),
        (
            "site/Ascend910B2/cube/AIC_24_L1_SIZE_512_repository_Ascend910B2_matmul.bin",
            "Ascend910B2",
        ),
        ("unified_bank/Ascend910B2_24_AiCore_matmul.json.provenance.jsonl", "Ascend910B2"),
        ("matmul/config/Ascend910B2_24_AiCore_MatMulV3_runtime_kb.json", "Ascend910B2"),
        ("graph/Ascend910B4-1/ascend910b4_1_l2cache.json", "Ascend910B4-1"),
        ("Ascend910B2/other.json", "Ascend910B2"),
        ("other.json", ""),
    ],
)
def test_target_of_a_file_is_its_folder_above_the_bank_or_its_name(name: str, target: str) -> None:
    assert target_of(name) == target
