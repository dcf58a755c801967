"""Numbers of rows blocks have, and what rows in blocks take."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.engine.tuning import make_kernel

from aoe.device.compiler import RowBlock, row_kernel
from aoe.tasks.ranges.open_operators import block_rows, expected_us, interpolated_us

_SOURCE = make_kernel(1).source


def _blocks(**us: float) -> list[RowBlock]:
    rows = sorted((int(name[1:]) for name in us), reverse=True)
    return [RowBlock(rows=one, source=_SOURCE, us=us[f"r{one}"]) for one in rows]


@pytest.mark.parametrize(
    ("most", "rows"), [(1, (1,)), (5, (4, 1)), (64, (64, 16, 4, 1)), (9999, (256, 64, 16, 4, 1))]
)
def test_blocks_grow_to_the_largest_number_of_rows(most: int, rows: tuple[int, ...]) -> None:
    assert block_rows(most) == rows


def test_rows_are_cut_where_they_take_least() -> None:
    blocks = _blocks(r16=10.0, r4=4.0, r1=2.0)
    assert expected_us(blocks, 16) == 10.0
    assert expected_us(blocks, 20) == 14.0
    assert expected_us(blocks, 31) == 20.0  # one block more, which begins earlier
    assert expected_us(blocks, 3) == pytest.approx(4.4)  # a block of four that is filled up
    assert expected_us(_blocks(r16=3.0, r1=2.0), 7) == pytest.approx(3.3)
    assert expected_us(_blocks(r16=3.0, r1=2.0), 1) == 2.0
    assert expected_us(blocks, 0) == 0.0


def test_blocks_of_heavy_weights_double() -> None:
    assert block_rows(64, 80 << 20) == (64, 32, 16, 8, 4, 2, 1)


def test_slow_large_blocks_are_not_used() -> None:
    assert expected_us(_blocks(r16=100.0, r1=2.0), 16) == 32.0


@given(st.integers(1, 2000), st.floats(0.1, 9), st.floats(0.1, 9), st.floats(0.1, 9))
def test_no_way_of_cutting_by_one_size_is_faster(
    rows: int, large: float, middle: float, small: float
) -> None:
    blocks = _blocks(r64=large, r8=middle, r1=small)
    found = expected_us(blocks, rows)
    assert found <= rows * small * 1.0001
    for block in blocks:
        if rows >= block.rows:
            assert found <= -(-rows // block.rows) * block.us * 1.0001


def test_times_between_numbers_of_rows_lie_on_a_line() -> None:
    times = {1: 10.0, 4: 16.0, 16: 40.0}
    assert [interpolated_us(times, rows) for rows in (1, 2, 4, 10, 32)] == [10, 12, 16, 28, 80]


def test_kernel_has_its_largest_blocks_and_the_one_for_what_is_left() -> None:
    blocks = [RowBlock(rows=one, source=_SOURCE, us=1.0) for one in range(1, 13)]
    kernel = row_kernel(blocks, open_rank=1, open_inputs=(True,), shapes=((1, 8), (1, 8)))
    assert [one.rows for one in kernel.blocks] == [12, 11, 10, 9, 8, 7, 6, 5, 4, 1]
