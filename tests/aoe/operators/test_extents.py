"""Expressions of open extents: one spelling, and the numbers they stand for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aoe.operators.extents import (
    Extent,
    extent_at,
    image_extents,
    pads_by_extent,
    stepped,
)
from aoe.operators.windows import same_padding, windows_of
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


@given(
    kernel=st.integers(1, 4),
    stride=st.integers(1, 3),
    dilation=st.integers(1, 2),
    pads=st.tuples(st.integers(0, 2), st.integers(0, 2)),
    ceil=st.integers(0, 1),
    padding=st.sampled_from(("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")),
    more=st.integers(0, 12),
)
def test_windows_are_as_many_as_of_every_extent(
    kernel: int,
    stride: int,
    dilation: int,
    pads: tuple[int, int],
    ceil: int,
    padding: str,
    more: int,
) -> None:
    attributes = {"kernel_shape": (kernel,), "strides": (stride,), "dilations": (dilation,)}
    reach = dilation * (kernel - 1) + 1
    pooling = Operation(
        op_type="MaxPool",
        inputs=("x0",),
        output="t0",
        attributes={**attributes, "pads": pads, "ceil_mode": ceil, "auto_pad": padding},
    )
    made = image_extents(pooling, ("h",), ())
    if made is not None:
        extent = reach + more
        assert extent_at(made[0], {"h": extent}) == windows_of(pooling, (1, 1, extent))[0].made
    may_be_lost = stride + (pads[1] if padding == "NOTSET" else 0) > reach
    assert (made is None) == bool(ceil and (padding.startswith("SAME") or may_be_lost))


def test_windows_that_begin_elsewhere_at_other_extents_are_told() -> None:
    def begins_elsewhere(padding: str, size: int, stride: int) -> bool:
        attributes = {"kernel_shape": (size,), "strides": (stride,), "auto_pad": padding}
        return pads_by_extent(
            Operation(op_type="MaxPool", inputs=("x0",), output="t0", attributes=attributes), ()
        )

    for padding in ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"):
        for size in range(1, 5):
            for stride in range(1, 4):
                found = {same_padding(padding, one, stride, size)[0] for one in range(8, 20)}
                moves = padding.startswith("SAME") and len(found) > 1
                assert begins_elsewhere(padding, size, stride) == moves
