"""Expressions of open extents: one spelling, and the numbers they stand for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aoe.operators.extents import Extent, extent_at, image_extents, stepped
from aoe.workload import Operation

_STEPS = st.lists(
    st.tuples(
        st.sampled_from((1, 1, 2, 3, 4)), st.integers(-3, 5), st.sampled_from((1, 1, 2, 3, 4))
    ),
    max_size=6,
)


@given(_STEPS, st.integers(0, 700), st.sampled_from(("h", "32*h", "images_2", "a b")))
def test_an_expression_is_worth_its_steps(
    steps: list[tuple[int, int, int]], extent: int, name: str
) -> None:
    known = {name: 32 * extent if "*" in name else extent}
    text: Extent = name
    value = known[name]
    for times, plus, over in steps:
        text = stepped(text, times=times, plus=plus, over=over)
        value = (times * value + plus) // over
    assert extent_at(text, known) == value
    assert stepped(text) == text


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (stepped(stepped("h", over=2), over=3), stepped("h", over=6)),
        (stepped(stepped("h", plus=1, over=2), plus=1, over=2), stepped("h", plus=3, over=4)),
        (stepped(stepped("h", times=2), over=2), "h"),
        (stepped(stepped("32*h", over=2), times=2), "32*h"),
        (stepped(stepped("h", times=4), over=2), stepped("h", times=2)),
    ],
)
def test_equal_extents_have_equal_texts(one: Extent, other: Extent) -> None:
    assert one == other


def test_halves_that_are_doubled_are_not_the_whole() -> None:
    assert stepped(stepped("h", over=2), times=2) != "h"


@pytest.mark.parametrize("name", ["2*height + 1", "2*(a)+(b)", "s0//2", "(h", "h)"])
def test_a_name_of_another_form_stands_for_itself(name: str) -> None:
    assert extent_at(name, {name: 7}) == 7
    assert extent_at(name, {"height": 3, "a": 1, "b": 1, "s0": 4, "h": 5}) is None


@pytest.mark.parametrize("attributes", [{"auto_pad": "SAME_UPPER"}, {"ceil_mode": 1}])
def test_what_is_rounded_otherwise_is_not_known(attributes: dict[str, str | int]) -> None:
    pooling = Operation(
        op_type="MaxPool",
        inputs=("x0",),
        output="t0",
        attributes={"kernel_shape": (3, 3), "strides": (2, 2), **attributes},
    )
    assert image_extents(pooling, ("h", "w"), ()) is None
