"""Side-cars only grow: their lines are united, each once, in their order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aoebank.ops.merge.lines import merge_side_cars

LINES = st.lists(st.sampled_from([b'{"a":1}', b'{"b":2}', b'{"c":3}', b'{"d":4}']), unique=True)
ENDS = st.sampled_from([b"\n", b"\r\n"])


@st.composite
def side_cars(draw: st.DrawFn) -> bytes:
    end = draw(ENDS)
    text = end.join(draw(LINES))
    return text + end if text and draw(st.booleans()) else text


def lines(data: bytes) -> list[bytes]:
    return [line.strip() for line in data.split(b"\n") if line.strip()]


@given(base=side_cars(), x=side_cars())
def test_side_that_did_not_change_gives_way(base: bytes, x: bytes) -> None:
    assert merge_side_cars(base, x, x) == x
    assert merge_side_cars(base, base, x) == x
    assert merge_side_cars(base, x, base) == x


@given(base=side_cars(), ours=side_cars(), theirs=side_cars())
def test_no_line_is_lost_and_none_comes_twice(base: bytes, ours: bytes, theirs: bytes) -> None:
    merged = lines(merge_side_cars(base, ours, theirs))
    gone = {line for line in lines(base) if line not in lines(ours) or line not in lines(theirs)}
    assert {*merged} == {*lines(ours), *lines(theirs)} - gone
    assert len(merged) == len({*merged})


@given(ours=side_cars(), theirs=side_cars())
def test_order_of_ours_stays_and_that_of_theirs_follows(ours: bytes, theirs: bytes) -> None:
    merged = lines(merge_side_cars(b"", ours, theirs))
    mine = lines(ours) or merged
    assert merged[: len(mine)] == mine
    rest = merged[len(mine) :]
    assert rest == [line for line in lines(theirs) if line in rest]


def test_torn_last_line_stays_and_does_not_swallow_the_next_one() -> None:
    assert merge_side_cars(b"", b'{"a":', b'{"b":2}\n') == b'{"a":\n{"b":2}\n'


def test_line_one_side_took_out_stays_out() -> None:
    base = b'{"a":1}\n{"b":2}\n'
    assert merge_side_cars(base, b'{"b":2}\n{"c":3}\n', base + b'{"d":4}\n') == (
        b'{"b":2}\n{"c":3}\n{"d":4}\n'
    )
