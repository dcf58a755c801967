"""Which frequent shapes get blocks of just their rows."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import pairwise
from types import MappingProxyType

import pytest
from support.engine.open_rows import opened, parsed
from support.engine.tuning import make_kernel

from aoe.bank.operators import key_of
from aoe.device.compiler import MOST_BLOCKS, RowBlock
from aoe.entry.shape_range import ShapePoint
from aoe.graph.open_rows import OpenRows, find_open_rows
from aoe.results.files import RepoOutcome
from aoe.tasks.operators.operator import TunedOperator
from aoe.tasks.operators.operator_tasks import TunedOperators
from aoe.tasks.ranges.frequent_rows import frequent_rows, paying, with_blocks
from aoe.tasks.ranges.open_operators import RowOperator, block_rows
from aoe.workload import Workload


@pytest.fixture(scope="module")
def rows() -> OpenRows:
    model = parsed("float[N,24] x", "t = Mul(x, b) y = Sigmoid(t)", weights="float[24] b")
    graph, shapes, parts = opened(model, {"N": 300})
    found = find_open_rows(graph, parts.regions[-1], shapes)
    assert isinstance(found, OpenRows)
    return found


def _workload(rows: OpenRows, count: int) -> Workload:
    found = rows.of(count)
    assert found is not None
    return found


def _operator(rows: OpenRows) -> RowOperator:
    return RowOperator(
        rows=rows,
        regions=(rows.region,),
        op_names=("y",),
        share=0.5,
        blocks={count: _workload(rows, count) for count in block_rows(300)},
    )


def _tuned(operator: RowOperator, us: Mapping[int, float]) -> TunedOperators:
    found = [
        TunedOperator(operator=one, outcome=RepoOutcome.ADD, reason="", after_us=us[count])
        for count, one in zip(operator.blocks, operator.operators(), strict=True)
    ]
    return TunedOperators(operators=tuple(found), refusals=())


def _points(*counts: tuple[int, int]) -> list[ShapePoint]:
    return [ShapePoint(extents={"N": n}, shapes={"x": (n, 24)}, count=calls) for n, calls in counts]


_US = {256: 64.0, 64: 16.0, 16: 6.0, 4: 4.0, 1: 3.0}


def _chosen(
    rows: OpenRows,
    points: list[ShapePoint],
    known: Collection[int] = (),
    noted: Mapping[int, bool] = MappingProxyType({}),
    searches: bool = True,
) -> dict[int, Workload]:
    operator = _operator(rows)
    keys = {key_of(_workload(rows, count)) for count in known}
    found = frequent_rows(
        [operator],
        _tuned(operator, _US),
        points,
        lambda workload: key_of(workload) in keys,
        lambda _: noted,
        searches=searches,
    )
    return {count: workload for one in found for count, workload in one.blocks.items()}


def test_rows_that_blocks_cut_badly_get_one_of_their_own(rows: OpenRows) -> None:
    # 64 is a block, 128 is two of them, 13 takes four calls
    found = _chosen(rows, _points((64, 1), (128, 1), (13, 1)))
    assert found.keys() == {13}
    assert found[13].output.shape == (13, 24)


def test_those_that_save_most_in_all_calls_come_first_and_few_are_searched(rows: OpenRows) -> None:
    often = [*range(21, 60, 4), *range(69, 230, 8)]
    chosen = _chosen(rows, _points((13, 1), *((count, 30) for count in often)))
    assert len(chosen) == 16 and chosen.keys() <= set(often)
    assert 13 in _chosen(rows, _points((13, 1)))


def test_what_the_bank_knows_is_taken_and_nothing_else_where_nothing_is_searched(
    rows: OpenRows,
) -> None:
    points = _points((13, 9), (128, 1))
    assert _chosen(rows, points, known=[128], searches=False).keys() == {128}
    assert _chosen(rows, points, known=[128]).keys() == {13, 128}
    many = _points((13, 1), (21, 2), (37, 3), (53, 4))
    assert _chosen(rows, many, known=[13, 21, 37, 53]).keys() == {13, 21, 37, 53}


def test_what_an_earlier_run_has_settled_is_not_asked_again(rows: OpenRows) -> None:
    points = _points((13, 9), (21, 9), (64, 1), (128, 1))
    assert _chosen(rows, points).keys() == {13, 21}
    # 13 were cut, 128 had a block; the times of this run would say otherwise
    assert _chosen(rows, points, noted={13: False, 128: True}).keys() == {21, 128}
    assert not _chosen(rows, points, noted={128: True}, searches=False)


def test_blocks_of_frequent_shapes_stand_among_the_others(rows: OpenRows) -> None:
    operator = _operator(rows)
    more = RowOperator(
        rows=rows, regions=operator.regions, op_names=(), share=0, blocks={13: _workload(rows, 13)}
    )
    found = with_blocks([operator], [more])[0]
    assert list(found.blocks) == [256, 64, 16, 13, 4, 1]
    assert found.frequent == {13}


@pytest.mark.parametrize(("us", "stays"), [(5.0, True), (11.9, False)])
def test_block_stays_if_it_is_faster_than_the_others_together(us: float, stays: bool) -> None:
    source = make_kernel(1).source
    times = {16: 20.0, 13: us, 4: 3.0, 1: 3.0}  # 13 rows in others: 3 x 4 and 1, 12 us
    blocks = [RowBlock(rows=count, source=source, us=one) for count, one in times.items()]
    assert (13 in {one.rows for one in paying(blocks, {13})}) is stays


def test_blocks_beyond_what_a_kernel_may_have_go_where_others_are_close() -> None:
    source, frequent = make_kernel(1).source, {300, 200, 37, 23, 17}
    sizes = sorted({*block_rows(300, 80 << 20), *frequent}, reverse=True)
    blocks = [RowBlock(rows=one, source=source, us=100 + one / 99) for one in sizes]
    found = [one.rows for one in paying(blocks, frequent)]
    assert len(found) == MOST_BLOCKS and frequent < {*found} and found[-1] == 1
    assert all(more <= 4 * less for more, less in pairwise(found))
