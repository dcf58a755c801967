"""Costs: fits find known lines, tables follow their samples, JSON keeps both."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aoe.errors import MeasurementError
from aoe.gradients.cost import (
    AllReduceCost,
    CostModel,
    CostSample,
    InflatedCost,
    TableCost,
    choose_cost,
    cost_from_json,
    cost_to_json,
    fit_cost,
    tabulate_cost,
)

SIZES = [4096 * 4**step for step in range(8)]
LATENCIES = st.floats(1, 1e5)
SLOPES = st.floats(1e-5, 1.0)


def line(latency_us: float, us_per_byte: float, noise: list[float]) -> list[CostSample]:
    return [
        CostSample(size, (latency_us + us_per_byte * size) * factor)
        for size, factor in zip(SIZES, noise, strict=True)
    ]


@given(LATENCIES, SLOPES)
def test_fit_recovers_an_exact_line(latency_us: float, us_per_byte: float) -> None:
    fitted = fit_cost(line(latency_us, us_per_byte, [1.0] * len(SIZES)))
    for size in SIZES:
        assert fitted.cost_us(size) == pytest.approx(latency_us + us_per_byte * size, rel=1e-6)
    assert fitted.misfit < 1e-6


@given(LATENCIES, SLOPES, st.lists(st.floats(0.97, 1.03), min_size=8, max_size=8))
def test_fit_stays_near_the_line_under_noise(
    latency_us: float, us_per_byte: float, noise: list[float]
) -> None:
    fitted = fit_cost(line(latency_us, us_per_byte, noise))
    for size in SIZES:
        assert fitted.cost_us(size) == pytest.approx(latency_us + us_per_byte * size, rel=0.1)


@given(LATENCIES, SLOPES, st.integers(0, 7), st.floats(3, 50))
def test_one_wild_sample_does_not_move_the_fit(
    latency_us: float, us_per_byte: float, place: int, factor: float
) -> None:
    noise = [1.0, 1.01, 0.99, 1.01, 0.99, 1.01, 0.99, 1.0]
    noise[place] = factor
    fitted = fit_cost(line(latency_us, us_per_byte, noise))
    others = [size for number, size in enumerate(SIZES) if number != place]
    worst = [abs(fitted.cost_us(size) / (latency_us + us_per_byte * size) - 1) for size in others]
    assert sorted(worst)[len(worst) // 2] < 0.1


@given(st.lists(st.tuples(st.integers(0, 2**40), st.floats(1e-3, 1e12)), min_size=2, max_size=20))
def test_fit_is_never_negative_nor_a_crash(samples: list[tuple[int, float]]) -> None:
    if len({size for size, _ in samples}) < 2:
        with pytest.raises(MeasurementError, match="too few sizes"):
            fit_cost([CostSample(*sample) for sample in samples])
        return
    fitted = fit_cost([CostSample(*sample) for sample in samples])
    assert fitted.latency_us >= 0
    assert fitted.us_per_byte >= 0
    assert len(fitted.residuals) == len(samples)


def test_times_that_fall_with_the_size_become_pure_latency() -> None:
    fitted = fit_cost([CostSample(10, 100.0), CostSample(1000, 50.0), CostSample(2000, 40.0)])
    assert fitted.us_per_byte == 0
    assert 40 <= fitted.latency_us <= 100


def test_line_through_the_origin_has_no_latency() -> None:
    fitted = fit_cost([CostSample(1000, 1.0), CostSample(2000, 2.2), CostSample(4000, 5.0)])
    assert fitted.latency_us == 0
    assert fitted.us_per_byte == pytest.approx(0.0011, rel=0.15)


def test_residuals_are_relative_and_in_order_of_size() -> None:
    cost = fit_cost([CostSample(2000, 30.0), CostSample(0, 10.0), CostSample(1000, 20.0)])
    assert cost.residuals == pytest.approx((0, 0, 0), abs=1e-9)


@pytest.mark.parametrize("time", [0.0, -1.0, math.nan, math.inf])
def test_sample_that_is_no_time_is_refused(time: float) -> None:
    with pytest.raises(MeasurementError, match="not a measured time"):
        fit_cost([CostSample(1, 1.0), CostSample(2, time)])


def test_negative_size_is_refused() -> None:
    with pytest.raises(MeasurementError, match="not a measured time"):
        tabulate_cost([CostSample(-1, 1.0), CostSample(2, 1.0)])


def test_table_goes_through_its_samples_and_on_with_the_last_slope() -> None:
    table = tabulate_cost([CostSample(100, 10.0), CostSample(200, 30.0), CostSample(400, 40.0)])
    assert [table.cost_us(size) for size in (100, 150, 200, 300, 400)] == [10, 20, 30, 35, 40]
    assert table.cost_us(600) == pytest.approx(50)
    assert table.cost_us(1) == 10


def test_table_takes_the_median_of_repeats_and_never_falls() -> None:
    samples = [(100, 9.0), (100, 10.0), (100, 99.0), (200, 5.0), (300, 20.0)]
    table = tabulate_cost([CostSample(*sample) for sample in samples])
    assert table.times_us == (10.0, 10.0, 20.0)


def test_table_is_taken_only_where_a_line_misfits() -> None:
    straight = line(100, 1e-3, [1.0] * len(SIZES))
    stairs = [CostSample(size, 10.0 ** (number // 2)) for number, size in enumerate(SIZES)]
    assert isinstance(choose_cost(straight), AllReduceCost)
    assert isinstance(choose_cost(stairs), TableCost)
    assert isinstance(choose_cost(stairs, misfit=1e9), AllReduceCost)


@pytest.mark.parametrize(
    ("sizes", "times"),
    [
        ((1,), (1,)),
        ((1, 2), (1,)),
        ((2, 1), (1, 2)),
        ((1, 2), (2, 1)),
        ((1, 2), (1, math.nan)),
        ((1, math.inf), (1, 2)),
        ((-1, 2), (1, 2)),
    ],
)
def test_odd_tables_are_refused(sizes: tuple[float, ...], times: tuple[float, ...]) -> None:
    with pytest.raises(ValueError):
        TableCost(sizes_bytes=sizes, times_us=times)


@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf])
def test_odd_lines_are_refused(value: float) -> None:
    with pytest.raises(ValueError):
        AllReduceCost(latency_us=value, us_per_byte=1.0)
    with pytest.raises(ValueError):
        AllReduceCost(latency_us=1.0, us_per_byte=value)


COSTS: list[CostModel] = [
    AllReduceCost(latency_us=12.5, us_per_byte=0.00125, residuals=(0.01, -0.02)),
    TableCost(sizes_bytes=(0.0, 100.0, 4096.0), times_us=(1.0, 1.0, 30.0)),
]


@pytest.mark.parametrize("cost", [*COSTS, InflatedCost(base=COSTS[0], factor=2, extra_us=7)])
def test_arrays_and_numbers_agree(cost: CostModel) -> None:
    sizes = np.array([0.0, 1.0, 99.0, 4096.0, 1e9])
    assert cost.costs_us(sizes) == pytest.approx([cost.cost_us(size) for size in sizes])


@pytest.mark.parametrize("cost", COSTS)
def test_json_keeps_a_cost(cost: CostModel) -> None:
    assert cost_from_json(json.loads(json.dumps(cost_to_json(cost)))) == cost


def test_inflated_cost_has_no_json() -> None:
    with pytest.raises(ValueError, match="no JSON form"):
        cost_to_json(InflatedCost(base=COSTS[0]))


@pytest.mark.parametrize(
    "value",
    [
        None,
        3,
        "x",
        [],
        {},
        {"kind": "cubic"},
        {"kind": "line"},
        {"kind": "line", "latency_us": "a", "us_per_byte": 1},
        {"kind": "line", "latency_us": None, "us_per_byte": 1},
        {"kind": "line", "latency_us": -1, "us_per_byte": 1},
        {"kind": "table", "sizes_bytes": 3, "times_us": [1]},
        {"kind": "table", "sizes_bytes": [1, 2], "times_us": [1]},
    ],
)
def test_other_json_is_a_value_error(value: object) -> None:
    with pytest.raises(ValueError):
        cost_from_json(value)


def test_inflation_multiplies_then_adds() -> None:
    inflated = InflatedCost(base=AllReduceCost(latency_us=10, us_per_byte=1), factor=2, extra_us=5)
    assert inflated.cost_us(10) == 45
