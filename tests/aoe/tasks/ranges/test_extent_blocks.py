"""Which block of a kernel for open extents serves which numbers of rows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.engine.open_rows import opened, parsed
from support.engine.tuning import make_bank, make_measurement, make_verdict

from aoe.bank.operators import OperatorBank
from aoe.entry.shape_range import ShapePoint
from aoe.execute.runner import Runner
from aoe.graph.open_extents import OpenRegion, find_open_region
from aoe.kernels.family import KernelTarget
from aoe.kernels.registry import OPEN_EXTENTS, get_family
from aoe.measurement import Measurement, MeasurePolicy, Outcome
from aoe.schedule import schedule_to_json
from aoe.tasks.ranges.block_notes import note_blocks
from aoe.tasks.ranges.extent_blocks import (
    ServingBlock,
    choose_blocks,
    find_served,
    sample_extents,
    serve_rows,
)
from aoe.workload import Workload, workload_to_json
from aoebank import Event

_LEAST = {1: 1, 4: 4, 16: 6}
_BODY = "s = com.microsoft.FusedMatMul <alpha = 0.25> (q, k) p = Softmax(s) y = MatMul(p, v)"
_INPUTS = "float[N,3,Q,8] q, float[N,3,8,K] k, float[N,3,K,20] v"
_FAMILY = OPEN_EXTENTS["attention"]


def _region() -> OpenRegion:
    graph, shapes, parts = opened(parsed(_INPUTS, _BODY), {"N": 2, "Q": 64, "K": 300})
    (region,) = (one for one in parts.regions if one.workload.op_type == "attention")
    found = find_open_region(graph, region, shapes)
    assert isinstance(found, OpenRegion), found
    return found


_REGION = _region()
_POINTS = tuple(
    ShapePoint(extents={"N": 1, "Q": queries, "K": keys}, shapes={"q": (1, 3, queries, 8)})
    for queries, keys in ((1, 30), (8, 90), (64, 300))
)
_SAMPLES = sample_extents(_REGION, _POINTS, (16, 4, 1))


def _queries(workload: Workload) -> int:
    return workload.output.shape[-2]


# ---- where blocks are measured ----


def test_samples_are_points_own_rows_and_odd_numbers_between() -> None:
    assert [one.rows for one in _SAMPLES] == [1, 3, 4, 8, 16, 33, 64]
    assert [one.rows for one in _SAMPLES if one.count] == [1, 8, 64]
    shapes = {one.rows: one.workload.inputs[1].shape for one in _SAMPLES}
    assert shapes[8] == (1, 3, 8, 90) and shapes[64] == (1, 3, 8, 300)
    assert 90 < shapes[16][-1] < shapes[33][-1] < 300


def test_own_rows_below_the_range_are_no_part_of_it() -> None:
    samples = sample_extents(_REGION, _POINTS[1:], (16, 4, 1))
    assert [one.rows for one in samples if not one.is_inside] == [1, 3, 4]


def test_rows_that_are_always_one_are_measured_at_other_extents() -> None:
    inputs = "float[1,3,1,8] q, float[1,3,8,K] k, float[1,3,K,20] v"
    graph, shapes, parts = opened(parsed(inputs, _BODY), {"K": 300})
    region = find_open_region(graph, parts.regions[0], shapes)
    assert isinstance(region, OpenRegion)
    points = [ShapePoint(extents={"K": keys}, shapes={}) for keys in (25, 100)]
    samples = sample_extents(region, points, (1,))
    assert [one.workload.inputs[1].shape[-1] for one in samples] == [25, 50, 100]


def test_block_is_measured_at_other_extents_than_its_own(runner: Runner) -> None:
    block, at = _REGION.of(16), _REGION.at(33, {"N": 2, "Q": 33, "K": 71})
    assert block is not None and at is not None
    family, target = get_family("attention"), KernelTarget.of(runner.target)
    guess = family.space(block, target).first_guesses[0]
    schedule = _FAMILY.schedule(block, family.schedule(block, guess, target))
    (found,) = runner.call(
        "measure_candidates",
        timeout_s=120.0,
        workload=workload_to_json(block),
        schedules=[schedule_to_json(schedule)],
        policy=MeasurePolicy(pairs_min=1, pairs_max=1, threads=runner.target.core_num),
        seed=0,
        best_ratio=None,
        at=workload_to_json(at),
    )
    assert found.is_correct, found.detail


# ---- who serves ----


def test_block_serves_where_it_is_fastest() -> None:
    scores = {1: {1: 0.5}, 4: {1: 0.3, 4: 0.6}, 8: {4: 0.1, 16: 0.2}, 16: {4: -0.2, 16: 0.3}}
    assert choose_blocks(scores, _LEAST) == {1: 1, 4: 4, 16: 6}
    scores[8] = {4: 0.3, 16: 0.2}
    assert choose_blocks(scores, _LEAST) == {1: 1, 4: 4, 16: 11}


def test_block_that_is_never_fastest_serves_nowhere() -> None:
    scores = {1: {1: 0.5}, 4: {1: 0.3, 4: 0.2}, 8: {4: 0.1, 16: 0.2}, 16: {4: 0.2, 16: 0.3}}
    assert choose_blocks(scores, _LEAST) == {1: 1, 16: 6}


def test_block_of_one_row_serves_what_nothing_else_computes() -> None:
    assert choose_blocks({8: {16: 0.2}}, _LEAST) == {1: 1, 16: 6}
    assert choose_blocks({8: {16: 0.2}}, {16: 6}) == {}
    assert choose_blocks({}, _LEAST) == {}


_SPEED = st.floats(-1, 1)


@given(st.dictionaries(st.integers(1, 99), st.tuples(_SPEED, _SPEED, _SPEED), min_size=1))
def test_every_number_of_rows_has_a_block_that_computes_it(
    speeds: Mapping[int, tuple[float, float, float]],
) -> None:
    scores = {
        rows: {own: one for own, one in zip(_LEAST, row, strict=True) if _LEAST[own] <= rows}
        for rows, row in speeds.items()
    }
    chosen = choose_blocks(scores, _LEAST)
    assert min(chosen.values()) == 1
    assert all(first >= _LEAST[own] for own, first in chosen.items())
    assert [own for own, _ in sorted(chosen.items(), key=lambda pair: pair[1])] == sorted(chosen)


@dataclass
class _Table:
    """Blocks whose speed-ups at a number of queries are given; 1.2 elsewhere."""

    # By own rows and queries.
    speeds: Mapping[tuple[int, int], float | Measurement] = field(default_factory=dict)
    # Own rows and queries of what was measured.
    asked: list[tuple[int, int]] = field(default_factory=list)

    def blocks(self) -> list[ServingBlock]:
        return [self._block(own, least) for own, least in _LEAST.items()]

    def _block(self, own: int, least: int) -> ServingBlock:
        def measure(at: Workload) -> Measurement:
            self.asked.append((own, _queries(at)))
            found = self.speeds.get((own, _queries(at)), 1.2)
            return make_measurement(found) if isinstance(found, float) else found

        return ServingBlock(own_rows=own, least_rows=least, measure=measure)

    def serves(self) -> dict[int, int] | None:
        found = serve_rows(self.blocks(), _SAMPLES, lambda: math.inf)
        return None if found is None else dict(found[0].serves_from)


def test_blocks_are_measured_where_they_may_serve() -> None:
    table = _Table()
    table.serves()
    assert [rows for own, rows in table.asked if own == 1] == [1, 3, 4]
    assert [rows for own, rows in table.asked if own == 4] == [4, 8, 16]
    assert [rows for own, rows in table.asked if own == 16] == [8, 16, 33, 64]


def test_kernel_is_not_used_where_it_surely_loses_between_points() -> None:
    table = _Table({(16, 33): 0.9})
    assert table.serves() == {}
    assert table.asked[-1] == (16, 33)  # once more, before that is believed


def test_kernel_is_not_used_without_a_gain_at_the_points() -> None:
    assert _Table({(1, 1): 1.0, (4, 8): 1.0, (16, 8): 1.0, (16, 64): 1.0}).serves() == {}


@pytest.mark.parametrize(("noise", "is_noted"), [(0.0, True), (0.005, True), (0.1, False)])
def test_no_gain_is_noted_only_where_it_is_sure(noise: float, is_noted: bool) -> None:
    even = make_measurement(1.0, pairs=12)
    ratios = (1 - noise, 1 + noise) * 6
    noisy = replace(
        even, tuned_us=tuple(us / one for us, one in zip(even.tuned_us, ratios, strict=True))
    )
    at_points = ((1, 1), (4, 8), (16, 8), (16, 64))
    found = serve_rows(_Table(dict.fromkeys(at_points, noisy)).blocks(), _SAMPLES, lambda: math.inf)
    assert found is not None and found[0].serves_from == {}
    assert (found[1].get("serves_from") == {}) is is_noted


def test_sure_loss_is_noted() -> None:
    found = serve_rows(_Table({(16, 33): 0.9}).blocks(), _SAMPLES, lambda: math.inf)
    assert found is not None and found[1]["serves_from"] == {}


@pytest.mark.parametrize(("gain", "is_used"), [(1.05, False), (1.1, True)])
def test_points_where_the_block_that_serves_was_not_measured_gain_nothing(
    gain: float, is_used: bool
) -> None:
    wrong = Measurement.failure(Outcome.CORRECTNESS, "off by one")
    others: dict[tuple[int, int], float | Measurement] = {(4, 4): wrong, (16, 8): wrong}
    # of the points 1, 8 and 64 the block of one row was measured at the first alone
    serves = _Table({**others, (1, 1): gain}).serves()
    assert serves == ({1: 1} if is_used else {})


def test_wrong_block_serves_nowhere() -> None:
    wrong = Measurement.failure(Outcome.CORRECTNESS, "off by one")
    serves = _Table({(4, 16): wrong, (16, 8): 1.5}).serves()
    assert serves is not None and serves.keys() == {1, 16}


def test_kernel_is_not_used_without_a_right_block_for_one_row() -> None:
    wrong = Measurement.failure(Outcome.CORRECTNESS, "off by one")
    assert _Table({(1, 3): wrong}).serves() == {}


@pytest.mark.parametrize("left_s", [0.0, math.inf])
def test_nothing_is_known_without_time_or_a_machine(left_s: float) -> None:
    broken = Measurement.failure(Outcome.RUNTIME, "worker lost", is_of_machine=True)
    assert serve_rows(_Table({(16, 64): broken}).blocks(), _SAMPLES, lambda: left_s) is None


def test_wrong_block_is_not_used_where_the_others_could_not_be_measured() -> None:
    wrong = Measurement.failure(Outcome.CORRECTNESS, "off by one")
    broken = Measurement.failure(Outcome.RUNTIME, "worker lost", is_of_machine=True)
    table = _Table({(4, 4): wrong, (16, 64): broken})
    found = serve_rows(table.blocks(), _SAMPLES, lambda: math.inf)
    assert found is not None and (dict(found[0].serves_from), found[1]) == ({}, {})


# ---- the side-car ----


def _bank_of_blocks(folder: Path) -> tuple[OperatorBank, dict[int, Workload]]:
    """Return a bank with records of the blocks of 1 and 16 queries, and all blocks."""
    bank, blocks = make_bank(folder), {own: _REGION.of(own) for own in _LEAST}
    workloads = {own: one for own, one in blocks.items() if one is not None}
    _save(bank, workloads[1])
    _save(bank, workloads[16])
    return bank, workloads


def _save(bank: OperatorBank, workload: Workload) -> None:
    family = get_family("attention")
    target = KernelTarget(threads=2, vector_lanes=8)
    guess = family.space(workload, target).first_guesses[0]
    schedule = family.schedule(workload, guess, target)
    bank.save(workload, schedule, guess, make_verdict(Event.ADD, 1.2))


def test_later_run_knows_who_serves_until_a_record_is_replaced(tmp_path: Path) -> None:
    bank, workloads = _bank_of_blocks(tmp_path)
    assert find_served(bank, workloads, of_this_model=True) is None
    found = serve_rows(_Table({(4, 8): 1.0, (4, 4): 1.0}).blocks(), _SAMPLES, lambda: math.inf)
    assert found is not None
    note_blocks(bank, workloads.values(), found[1], ("n0",))
    assert find_served(bank, workloads, of_this_model=True) == found[0].serves_from
    other = make_bank(tmp_path, model="other")
    assert find_served(other, workloads, of_this_model=True) is None
    assert find_served(other, workloads, of_this_model=False) == found[0].serves_from
    _save(bank, workloads[16])
    assert find_served(bank, workloads, of_this_model=True) is None


def test_blocks_without_records_are_measured_again(tmp_path: Path) -> None:
    bank, workloads = _bank_of_blocks(tmp_path)
    facts = {"method": "points", "serves_from": {"1": 1, "4": 4, "16": 9}}
    note_blocks(bank, workloads.values(), facts, ("n0",))
    assert find_served(bank, workloads, of_this_model=True) is None
    assert find_served(bank, workloads, of_this_model=False) == {1: 1, 4: 4, 16: 9}
