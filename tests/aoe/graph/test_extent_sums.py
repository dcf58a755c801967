"""Sums and differences of open extents are worth what their names are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aoe.graph.extents import (
    NamedExtents,
    difference_of,
    find_shape_at,
    least_of,
    sum_of,
)
from aoe.operators.extents import Extent, stepped

_NAMES = ("s", "past", "32*h")
_TERMS = st.one_of(
    st.integers(-9, 9),
    st.builds(
        stepped,
        st.sampled_from(_NAMES),
        times=st.sampled_from((1, 1, 2, 3)),
        plus=st.integers(-3, 9),
        over=st.sampled_from((1, 1, 2)),
    ),
)


def _value(extent: Extent, known: dict[str, int]) -> int:
    found = find_shape_at((extent,), known)
    assert found is not None
    return found[0]


@given(st.lists(st.tuples(st.booleans(), _TERMS), max_size=4), st.integers(1, 99), st.data())
def test_a_text_is_worth_what_was_added_and_taken_off(
    terms: list[tuple[bool, Extent]], extent: int, data: st.DataObject
) -> None:
    known = {"s": extent, "past": data.draw(st.integers(1, 99)), "32*h": 32 * extent}
    text: Extent | None = 0
    value = 0
    for is_added, term in terms:
        text = (sum_of if is_added else difference_of)(text, term)
        if text is None:
            return  # several names, and one of them below zero
        value += (1 if is_added else -1) * _value(term, known)
    assert _value(text, known) == value
    least = least_of(text)
    assert least is None or least <= value


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (sum_of("s", "s"), stepped("s", times=2)),
        (sum_of("s", 1, -1), "s"),
        (difference_of("past + s", "s"), "past"),
        (difference_of(sum_of("s", 199) or 0, difference_of(200, "s") or 0), "(2*s-1)"),
        (sum_of("(f+1)//2", -1), stepped("f", plus=-1, over=2)),
        (sum_of("(past + s+1)//2", "s"), "(past + s+1)//2 + s"),
        (difference_of("s", "past"), None),
    ],
)
def test_equal_sums_have_equal_texts(one: Extent | None, other: Extent | None) -> None:
    assert one == other


def test_steps_of_a_sum_of_steps_have_no_known_least() -> None:
    assert least_of("((a)//2 + b)//3") is None  # 0 where both are 1


@pytest.mark.parametrize(
    ("shapes", "given", "agrees"),
    [
        (("N", "N"), (3, 3), True),
        (("N", "N"), (3, 1), False),
        (("N", "2*N"), (3, 6), True),
        (("N", "2*N"), (3, 1), False),
        (("N", "(2*N+1)"), (3, 7), True),
        (("N", "(N+1)//2"), (3, 2), True),
        (("N", "(N+1)//2"), (3, 1), False),
        (("32*H", "4"), (330, 4), False),
        (("2*N", "3*N"), (4, 6), True),
        (("2*N", "3*N"), (4, 9), False),
        (("P", "S", "P + S"), (3, 4, 7), True),
        (("P", "S", "P + S"), (3, 4, 1), False),
        (("P", "P + Q"), (3, 1), True),  # nothing is known of Q
        (("a b/2", "a b/2"), (3, 1), False),
        (("N", "M"), (3, 1), True),
        (("N", "2*N"), (0, 0), True),
    ],
)
def test_names_of_inputs_promise_relations_of_their_extents(
    shapes: tuple[str, ...], given: tuple[int, ...], agrees: bool
) -> None:
    named = NamedExtents({f"x{at}": (name, 8) for at, name in enumerate(shapes)})
    assert named.agree({f"x{at}": (extent, 8) for at, extent in enumerate(given)}) is agrees
