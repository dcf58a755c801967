"""A workload in one short line."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aoebank import Record
from aoebank.formats.registry import FORMATS
from aoebank.formats.text.workload import WIDTH, workload_text


def text_of(workload: Any, format_: str = "unified") -> str:
    return workload_text(Record(key="k", workload=workload, strategy={}, format=format_))


@pytest.mark.parametrize(
    ("workload", "text"),
    [
        (
            {"op_type": "Softmax", "shape": [1, 2], "axis": -1, "x": True, "y": None},
            "op_type=Softmax shape=[1,2] axis=-1 x=true y=null",
        ),
        ({"a b": "c d"}, '"a b"="c d"'),
        ([1, [2]], "[1,[2]]"),
        ("x", '"x"'),
        ({}, ""),
    ],
)
def test_members_stand_in_their_order(workload: Any, text: str) -> None:
    assert text_of(workload) == text


def test_runtime_bank_leaves_out_zeros_and_ones_but_no_data_type() -> None:
    workload = {"a_dtype": 1, "b_dtype": 0, "m": 16, "batch": 1, "bias": False, "t": True, "f": 0.0}
    assert text_of(workload, "runtime_kb") == "a_dtype=1 b_dtype=0 m=16"


def test_subgraph_is_its_operators_and_a_digest() -> None:
    struct = [{"op": "Conv2D"}, {"op": "Relu"}, {"op": "Conv2D"}]
    text = text_of({"feature": [{"struct": struct}]}, "graph")
    assert text.startswith("Conv2D x2 Relu (")
    assert text != text_of({"feature": [{"struct": [*struct, struct[0]]}]}, "graph")
    assert text_of({}, "graph").startswith("subgraph (")


def test_long_text_is_cut_and_still_tells_two_workloads_apart() -> None:
    first, second = (text_of({"x": "y" * 500 + end}) for end in "ab")
    assert first != second
    assert len(first) <= WIDTH + len(" (12345678)")


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    ),
    st.sampled_from([known.name for known in FORMATS]),
)
def test_any_workload_is_one_printable_line(workload: Any, format_: str) -> None:
    text = text_of(workload, format_)
    assert text.isascii()
    assert text.isprintable()


@pytest.mark.parametrize(
    "workload",
    [
        {"operations": [{"op": "Conv"}], "inputs": [], "output": {}},
        {"operations": [], "inputs": [{}], "output": {"shape": [1]}},
        {"operations": "Conv", "inputs": {"shape": 1}, "output": None},
        {"operations": [{"op": "QLinearConv", "in": ["x0"]}], "inputs": [1], "output": 2},
    ],
)
def test_workload_of_another_engine_is_told_by_its_members(workload: Any) -> None:
    told = workload_text(Record(key="k", strategy={}, workload=workload))
    assert told.startswith("operations=")
