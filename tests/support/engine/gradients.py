"""Small gradient traces and a result of tuning one, for tests."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from aoe.gradients.cost import AllReduceCost, CostModel, TableCost
from aoe.gradients.segmentation import Segmentation, finish_us, from_bucket_caps, optimal
from aoe.gradients.timeline import simulate
from aoe.gradients.trace import GradientTrace, model_hash
from aoe.measurement import SpeedupEstimate
from aoe.results.files import RepoOutcome, TuningResult
from aoe.results.gradients import CandidateReport, GdatReport, GroupingReport, TimelineSource


def make_gradient_trace(
    sizes_bytes: Sequence[int], ready_us: Sequence[float] | None = None, *, loops: int = 5
) -> GradientTrace:
    """Return a trace of float32 gradients; by default one becomes ready every 100 us."""
    count = len(sizes_bytes)
    return GradientTrace(
        sizes_bytes=tuple(sizes_bytes),
        dtypes=("float32",) * count,
        names=tuple(f"layer{number}" for number in range(count)),
        ready_us=tuple(
            ready_us if ready_us is not None else (100.0 * (number + 1) for number in range(count))
        ),
        loops=loops,
    )


def hash_of(trace: GradientTrace) -> int:
    """Return the modelhash of a model that lists its parameters as the trace does."""
    return model_hash(trace.dtypes, trace.sizes_bytes)


def make_gdat_report() -> GdatReport:
    """Return a finished result: eight gradients, DDP's default against the optimum."""
    sizes = (8192, 4 << 20, 2 << 20, 2 << 20, 9 << 20, 1 << 20, 256 << 10, 64 << 10)
    trace = make_gradient_trace(sizes, [400.0 * (number + 1) for number in range(8)])
    cost = AllReduceCost(latency_us=150, us_per_byte=0.0002, residuals=(0.02, -0.01, 0.005))
    default, best = from_bucket_caps(trace.sizes_bytes), optimal(trace, cost)
    estimate = SpeedupEstimate(median=1.25, low=1.2, high=1.3, pairs=40, coverage=0.96)
    return GdatReport(
        tuning_name="net_20260301",
        tuning_time_s=42.0,
        result=TuningResult.SUCCESSFUL,
        modelhash=str(hash_of(trace)),
        gradients=len(trace),
        total_bytes=trace.total_bytes,
        world_size=4,
        backend="gloo",
        cost=cost,
        outcome=RepoOutcome.ADD,
        before=GroupingReport(
            name="DDP default (1 MiB, 25 MiB)",
            timeline=simulate(trace, default, cost),
            source=TimelineSource.SIMULATION,
            step_us=20_000,
        ),
        after=GroupingReport(
            name="optimum",
            timeline=simulate(trace, best, cost),
            source=TimelineSource.SIMULATION,
            step_us=16_000,
        ),
        estimate=estimate,
        candidates=(
            CandidateReport(
                name="optimum",
                segments=len(best),
                estimate=estimate,
                predicted_us=finish_us(trace, best, cost),
            ),
            CandidateReport(name="one all-reduce", segments=1),
        ),
        machine={"cpu_model": "Example CPU"},
        versions={"torch": "2.13.0"},
    )


@st.composite
def traces(draw: st.DrawFn, most: int = 10) -> GradientTrace:
    count = draw(st.integers(1, most))
    sizes = draw(st.lists(st.integers(0, 10**6), min_size=count, max_size=count))
    gaps = draw(st.lists(st.floats(0, 2000), min_size=count, max_size=count))
    ready = [sum(gaps[: place + 1]) for place in range(count)]
    return make_gradient_trace(sizes, sorted(ready))


LINES = st.builds(AllReduceCost, latency_us=st.floats(0, 2000), us_per_byte=st.floats(0, 1e-2))
TABLES = st.builds(
    lambda a, b, c: TableCost(sizes_bytes=(0.0, 1e4, 1e6), times_us=tuple(sorted((a, b, c)))),
    st.floats(0, 1e4),
    st.floats(0, 1e4),
    st.floats(0, 1e4),
)
COSTS = st.one_of(LINES, TABLES)


def is_no_worse(
    trace: GradientTrace, best: Segmentation, other: Segmentation, cost: CostModel
) -> bool:
    mine, theirs = finish_us(trace, best, cost), finish_us(trace, other, cost)
    return mine <= theirs * (1 + 1e-9) + 1e-9
