"""Transforms of Winograd, and the places of the values of tiles in the caches."""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import halide as hl
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.contracts.kernels import block_size, blocked, kernel_target, operation, plain

from aoe.kernels.conv_nchwc.family import Convolution
from aoe.kernels.conv_nchwc.winograd.tiles import DATA, GATHERED, stored_extents
from aoe.kernels.conv_nchwc.winograd.transforms import (
    F2,
    F2_STRIDE_2,
    F3,
    F4,
    F4_STRIDE_2,
    F4_TAPS_5,
    F4_TAPS_7,
    Matrix,
    TileTransforms,
    Transforms,
    combine,
    single_column,
    single_row,
    square,
)
from aoe.kernels.halide.apply import apply_schedule, set_extents
from aoe.schedule import Configuration
from aoe.workload import NCHWC_DOMAIN, Workload

ALL = {
    "2x2": square(F2),
    "3x3": square(F3),
    "4x4": square(F4),
    "2x2, stride 2": square(F2_STRIDE_2),
    "4x4, stride 2": square(F4_STRIDE_2),
    "4x4, 5 taps": square(F4_TAPS_5),
    "1x4": single_row(F4),
    "4x1": single_column(F4),
    "1x4, 5 taps": single_row(F4_TAPS_5),
    "4x1, 7 taps": single_column(F4_TAPS_7),
}
each = pytest.mark.parametrize("transforms", ALL.values(), ids=ALL)

numbers = st.fractions(min_value=-9, max_value=9, max_denominator=8)


def matrix(rows: int, columns: int) -> st.SearchStrategy[Matrix]:
    row = st.lists(numbers, min_size=columns, max_size=columns).map(tuple)
    return st.lists(row, min_size=rows, max_size=rows).map(tuple)


def multiplied(one: Matrix, other: Matrix) -> Matrix:
    columns = list(zip(*other, strict=True))
    return tuple(
        tuple(
            sum((a * b for a, b in zip(row, column, strict=True)), Fraction(0))
            for column in columns
        )
        for row in one
    )


def turned(matrix: Matrix) -> Matrix:
    return tuple(zip(*matrix, strict=True))


def around(left: Matrix, inner: Matrix, right: Matrix) -> Matrix:
    return multiplied(multiplied(left, inner), turned(right))


def spread(transforms: Transforms) -> Matrix:
    """Return a row of weights for each product."""
    missing = transforms.products - len(transforms.weights)
    return transforms.weights + (transforms.weights[-1],) * missing


@pytest.mark.slow
@each
@given(data=st.data())
def test_transforms_give_the_convolution_exactly(
    transforms: TileTransforms, data: st.DataObject
) -> None:
    down, across = transforms.down, transforms.across
    tile = data.draw(matrix(down.products, across.products))
    weights = data.draw(matrix(down.taps, across.taps))
    left = around(down.data, tile, across.data)
    right = around(spread(down), weights, spread(across))
    products = tuple(
        tuple(a * b for a, b in zip(rows, others, strict=True))
        for rows, others in zip(left, right, strict=True)
    )
    found = around(down.result, products, across.result)
    expected = tuple(
        tuple(
            sum(
                (
                    tile[down.stride * y + i][across.stride * x + j] * weights[i][j]
                    for i in range(down.taps)
                    for j in range(across.taps)
                ),
                Fraction(0),
            )
            for x in range(across.results)
        )
        for y in range(down.results)
    )
    assert found == expected


@each
def test_sizes_go_together(transforms: TileTransforms) -> None:
    for one in (transforms.down, transforms.across):
        results, products = one.results, one.products
        assert products == one.stride * (results - 1) + one.taps
        assert {len(row) for row in one.data} == {products}
        assert {len(row) for row in one.weights} == {one.taps}
        assert len(one.weights) == (products if one.stride == 1 else results + 2)
        assert {len(row) for row in one.result} == {products}


@each
def test_products_beyond_the_weights_have_the_last_ones(transforms: TileTransforms) -> None:
    rows, columns = len(transforms.down.weights), len(transforms.across.weights)
    e, found = hl.Var("e"), hl.Func("found")
    found[e] = transforms.weights_of(e)
    expected = [
        min(row, rows - 1) * columns + min(column, columns - 1)
        for row in range(transforms.down.products)
        for column in range(transforms.across.products)
    ]
    assert list(np.array(found.realize([transforms.products]))) == expected


def test_row_of_zeros_is_refused() -> None:
    with pytest.raises(ValueError, match="row of zeros"):
        combine([Fraction(0), Fraction(0)], [hl.f32(1.0), hl.f32(2.0)])


LINES_OF_A_SET_MIN = 8
VALUES, SETS = 36, 64


@pytest.mark.parametrize("blocks", [1, 2, 4, 16, 32, 33])
def test_values_of_a_tile_do_not_share_a_few_sets_of_the_cache(blocks: int) -> None:
    for tiles in range(1, 66):
        wide, deep = stored_extents(tiles, blocks)
        assert tiles <= wide <= tiles + 1
        assert blocks <= deep <= blocks + 1
        if (wide, deep) != (tiles, blocks):
            assert tiles * blocks % 16 == 0
        lines = {value * wide * deep % SETS for value in range(VALUES)}
        assert len(lines) * LINES_OF_A_SET_MIN >= VALUES, (tiles, blocks)


@pytest.mark.skipif(block_size() != 16, reason="counts lines of blocks of 16 channels")
def test_stages_are_stored_so(tmp_path: Path) -> None:
    """Images of 64x64 in tiles of 4x4: 16 tiles in a row, 2 blocks, 2 rows of tiles in a group."""
    image = blocked(1, 32, 64, 64)
    conv = operation(
        "Conv", "x0 x1", "t0", domain=NCHWC_DOMAIN, kernel_shape=(3, 3), pads=(1, 1, 1, 1)
    )
    workload = Workload(
        op_type="convolution",
        inputs=(image, plain(32, 32, 3, 3, constant=True)),
        operations=(conv,),
        output=image,
    )
    family, target = Convolution(), replace(kernel_target(), threads=1)
    chosen = {"algorithm": "winograd_4x4", "blocks": 2, "across": 4, "down": 2}
    values = Configuration({**chosen, "tile_rows": 2, "scope": "group"})
    schedule = family.schedule(workload, values, target)
    pipeline = family.pipeline(workload, schedule.algorithm)
    apply_schedule(pipeline, schedule)
    set_extents(pipeline)
    file = tmp_path / "kernel.stmt"
    pipeline.output.compile_to_lowered_stmt(
        str(file), list(pipeline.arguments), hl.StmtOutputFormat.Text
    )
    text = file.read_text()
    for stage in (DATA, GATHERED):
        found = re.search(rf"allocate {stage}\S*\[float32\*? \* (.*?)\]", text)
        assert found is not None, re.findall(r"allocate .*", text)
        assert " 17" in f" {found[1]}", found[1]
