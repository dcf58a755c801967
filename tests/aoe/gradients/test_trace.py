"""Traces: averages as AOE takes them, order, identity."""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Iterator
from itertools import pairwise, takewhile
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.engine.gradients import make_gradient_trace

from aoe.errors import MeasurementError
from aoe.gradients.trace import GradientTrace, average_loops, model_hash

TIMES = st.floats(0, 1e9)


def test_slowest_three_of_each_gradient_do_not_count() -> None:
    loops = [[1.0, 500.0], [3.0, 4.0], [100.0, 6.0], [200.0, 700.0], [300.0, 800.0]]
    assert average_loops(loops) == (2.0, 5.0)


def test_four_loops_leave_the_fastest() -> None:
    assert average_loops([[4.0], [3.0], [2.0], [1.0]]) == (1.0,)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_three_loops_are_too_few(count: int) -> None:
    with pytest.raises(MeasurementError, match=rf"too few loops \(got {count}, expected more than"):
        average_loops([[1.0, 2.0]] * count)


@pytest.mark.parametrize(
    "loops",
    [
        [[1.0], [1.0], [1.0], [1.0, 2.0]],
        [[], [], [], []],
        [[1.0], [1.0], [1.0], [math.nan]],
        [[1.0], [1.0], [1.0], [math.inf]],
        [[1.0], [1.0], [1.0], [-1.0]],
    ],
)
def test_loops_that_do_not_fit_are_refused(loops: list[list[float]]) -> None:
    with pytest.raises(MeasurementError):
        average_loops(loops)


@given(st.lists(st.lists(TIMES, min_size=6, max_size=6), min_size=4, max_size=9))
def test_means_of_ordered_loops_are_ordered(loops: list[list[float]]) -> None:
    means = average_loops([sorted(loop) for loop in loops])
    assert all(b >= a * (1 - 1e-12) for a, b in pairwise(means))


@given(st.lists(st.lists(TIMES, min_size=4, max_size=4), min_size=4, max_size=8), st.randoms())
def test_order_of_loops_does_not_matter(loops: list[list[float]], random: object) -> None:
    shuffled = list(loops)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert average_loops(shuffled) == average_loops(loops)


@pytest.mark.parametrize(
    "changes",
    [
        {"ready_us": (2.0, 1.0)},
        {"ready_us": (1.0,)},
        {"ready_us": (1.0, math.nan)},
        {"ready_us": (-1.0, 1.0)},
        {"sizes_bytes": (1, -1)},
        {"sizes_bytes": (), "names": (), "dtypes": (), "ready_us": ()},
    ],
)
def test_trace_refuses_what_no_backward_does(changes: dict[str, object]) -> None:
    facts: dict[str, object] = {
        "sizes_bytes": (1, 2),
        "names": ("a", "b"),
        "dtypes": ("f", "f"),
        "ready_us": (1.0, 2.0),
        "loops": 4,
    }
    with pytest.raises(ValueError):
        GradientTrace(**{**facts, **changes})  # type: ignore[arg-type]


def test_hash_is_the_documented_one() -> None:
    # sha256("float32:4096") starts with 8d518eeba74a5163
    assert model_hash(["float32"], [4096]) == 0x8D518EEBA74A5163


@given(
    st.lists(
        st.tuples(st.sampled_from(["float32", "float16"]), st.integers(0, 2**40)),
        min_size=1,
        max_size=20,
    )
)
def test_hash_is_u64_and_depends_on_order(gradients: list[tuple[str, int]]) -> None:
    dtypes, sizes = zip(*gradients, strict=True)
    value = model_hash(dtypes, sizes)
    assert 0 <= value < 2**64
    assert value == model_hash(list(dtypes), list(sizes))
    backwards = gradients[::-1]
    if backwards != gradients:
        assert model_hash(*map(list, zip(*backwards, strict=True))) != value  # type: ignore[arg-type]


def test_hash_tells_dtypes_from_sizes_and_counts_apart() -> None:
    values = {
        model_hash(["f"], [12]),
        model_hash(["f1"], [2]),
        model_hash(["f", "f"], [1, 2]),
        model_hash(["f", "f"], [12, 0]),
        model_hash(["g"], [12]),
    }
    assert len(values) == 5


def test_hash_needs_a_size_per_dtype() -> None:
    with pytest.raises(ValueError, match="one size per dtype"):
        model_hash(["f"], [1, 2])


def test_factory_makes_what_it_says() -> None:
    assert make_gradient_trace([4, 8]).ready_us == (100.0, 200.0)


BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"
PAGE = BENCHMARKS.parent / "docs" / "benchmarks.md"


@pytest.fixture
def simulation(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield importlib.import_module("gdat_simulation")
    for name in ("gdat_simulation", "gradient_lists"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("network", "parameters", "gradients"),
    [("resnet50", 25_557_032, 161), ("bert_base", 109_482_240, 199), ("vgg16", 138_357_544, 32)],
)
def test_networks_have_their_published_size(
    simulation: ModuleType, network: str, parameters: int, gradients: int
) -> None:
    trace = simulation.gradient_trace(network, batch=32, tflops=30)
    assert (trace.total_bytes, len(trace)) == (4 * parameters, gradients)


def test_forward_work_is_the_published_one(simulation: ModuleType) -> None:
    # backward does twice the work of forward; 4.1 and 15.5 billion multiply-adds per image
    for network, expected in (("resnet50", 4.1e9), ("vgg16", 15.5e9)):
        trace = simulation.gradient_trace(network, batch=1, tflops=1)
        assert trace.backward_end_us * 1e6 / 4 == pytest.approx(expected, rel=0.08)


def test_no_rule_beats_the_optimum(simulation: ModuleType) -> None:
    found = list(simulation.cases(["vgg16", "bert_base"], [8, 1024], batch=8, tflops=50))
    assert len(found) == 16
    for case in found:
        assert all(case.excess_percent(rule) >= -1e-6 for rule in simulation.RULES)
        assert case.excess_percent("best bucket_cap_mb") <= case.excess_percent("DDP default")


def test_output_says_that_it_is_a_simulation(
    simulation: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulation.main(["--networks", "vgg16", "--workers", "8"]) == 0
    assert capsys.readouterr().out.startswith("simulation: 4 clusters")


def test_page_shows_the_summary_the_program_prints(
    simulation: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    simulation.main([])
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    page = PAGE.read_text(encoding="utf-8").splitlines()
    summary = [*takewhile(lambda row: "| link |" not in row, rows)]  # without the single clusters
    assert len(summary) == 6
    assert [row for row in summary if row not in page] == []
