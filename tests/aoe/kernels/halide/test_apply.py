"""Steps become Halide calls, or errors that name the step before Halide dies of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.contracts.kernels import SEED, CompiledKernel, operation, plain
from support.tiers import few_every_day

from aoe.errors import ScheduleError
from aoe.graph.workload_model import random_inputs
from aoe.kernels.family import Pipeline
from aoe.kernels.halide.apply import (
    FACTOR_MAX,
    STEPS_MAX,
    VECTOR_MAX,
    WRITTEN_OUT_MAX,
    apply_schedule,
    legal_steps,
)
from aoe.kernels.registry import get_family
from aoe.schedule import (
    Atomic,
    ComputeAt,
    ComputeRoot,
    Fuse,
    Memory,
    NeverPartition,
    Parallel,
    Reorder,
    Schedule,
    Split,
    Step,
    StoreIn,
    Tail,
    Unroll,
    Vectorize,
)
from aoe.workload import Workload

SCALE = Workload(
    op_type="batch_normalization",
    inputs=(plain(2, 6, 5, 7), *(plain(6, constant=True),) * 4),
    operations=(operation("BatchNormalization", "x0 x1 x2 x3 x4"),),
    output=plain(2, 6, 5, 7),
)
"""Loops of `y`: hw of 35, c of 6, n of 2; stages `factor` and `summand` over c."""

LEGAL: dict[str, tuple[Step, ...]] = {
    "nothing": (),
    "vector with a shifted tail": (Vectorize("y", "hw", 16),),
    "split guarded": (Split("y", "hw", "hw", "i", 16, Tail.GUARD), Vectorize("y", "i", 16)),
    "split wider than the loop, guarded": (Split("y", "hw", "o", "i", 64, Tail.GUARD),),
    "unroll part": (Unroll("y", "c", 2),),
    "unroll all": (Unroll("y", "c", 6),),
    "fused parallel": (Fuse("y", "n", "c", "nc"), Parallel("y", "nc")),
    "fused under an old name": (Fuse("y", "n", "c", "c"), Parallel("y", "c", 3)),
    "tasks that do not divide": (Parallel("y", "c", 4),),
    "reordered": (Reorder("y", ("c", "hw", "n")),),
    "parameters before": (
        ComputeRoot("factor"),
        StoreIn("factor", Memory.STACK),
        ComputeRoot("summand"),
        StoreIn("summand", Memory.HEAP),
    ),
    "parameters per image": (ComputeAt("factor", "y", "n"), ComputeAt("summand", "y", "c")),
    "parameters in vectors": (ComputeRoot("factor"), Vectorize("factor", "c", 4)),
}


@pytest.mark.parametrize("name", few_every_day(LEGAL, 2))
def test_legal_steps_change_no_result(name: str) -> None:
    inputs = dict(random_inputs(SCALE, SEED))
    rng = np.random.default_rng(SEED)
    inputs |= {f"x{i}": rng.uniform(0.5, 2, 6).astype(np.float32) for i in range(1, 5)}
    expected = CompiledKernel(SCALE).run(inputs)
    actual = CompiledKernel(SCALE, Schedule(LEGAL[name])).run(inputs)
    np.testing.assert_array_equal(actual, expected)


ILLEGAL: dict[str, tuple[tuple[Step, ...], str]] = {
    "unknown stage": ((Unroll("z", "c", 2),), "no such stage (got z, expected y, factor, summand)"),
    "unknown loop": ((Unroll("y", "w", 2),), "no such loop (got w, expected hw, c, n)"),
    "loop that was split away": (
        (Split("y", "hw", "o", "i", 5), Unroll("y", "hw", 2)),
        "no such loop (got hw",
    ),
    "split into a loop there is": (
        (Split("y", "hw", "c", "i", 5),),
        "the loop exists already (got c)",
    ),
    "vector wider than the loop": (
        (Vectorize("y", "hw", 64),),
        "more iterations than the loop has (got 64, expected 35)",
    ),
    "vectorized twice": (
        (
            Split("y", "hw", "o", "i", 4),
            Vectorize("y", "i", 4),
            Vectorize("y", "i", 4),
        ),
        "vectorized or unrolled already",
    ),
    "rounded up where nothing is padded": (
        (Split("factor", "c", "c", "i", 4, Tail.ROUND_UP),),
        "must not be computed past its end",
    ),
    "result rounded up": (
        (Split("y", "c", "c", "i", 4, Tail.ROUND_UP),),
        "must not be computed past its end",
    ),
    "atomic without sums": ((Atomic("factor"),), "only the sums of a reduction"),
    "tasks larger than the loop": ((Parallel("y", "c", 7),), "more iterations than the loop has"),
    "reorder of a loop there is not": ((Reorder("y", ("c", "w")),), "no such loop (got w"),
    "fused with itself": ((Fuse("y", "c", "c", "cc"),), "cannot be fused with itself"),
    "result at root": ((ComputeRoot("y"),), "only an intermediate stage can be placed"),
    "result on the stack": ((StoreIn("y", Memory.STACK),), "only an intermediate stage"),
    "computed inside itself": ((ComputeAt("factor", "factor", "c"),), "no stage to compute at"),
    "computed in a stage there is not": ((ComputeAt("factor", "z", "c"),), "no stage to compute"),
    "computed in a loop there is not": ((ComputeAt("factor", "y", "w"),), "no such loop (got w"),
    "computed in a loop split away later": (
        (ComputeAt("factor", "y", "hw"), Split("y", "hw", "o", "i", 5)),
        "no such loop (got hw",
    ),
}


@pytest.mark.parametrize("name", ILLEGAL)
def test_illegal_step_is_refused(name: str) -> None:
    steps, message = ILLEGAL[name]
    with pytest.raises(ScheduleError) as caught:
        apply_schedule(get_family("batch_normalization").pipeline(SCALE), Schedule(steps))
    assert message in str(caught.value)
    assert caught.value.exit_code == 3


SOFTMAX = Workload(
    op_type="softmax",
    inputs=(plain(2, 3, 20),),
    operations=(operation("Softmax", "x0", axis=1),),
    output=plain(2, 3, 20),
)


def test_update_of_a_reduction_is_not_placed_apart_from_it() -> None:
    with pytest.raises(ScheduleError, match="only an intermediate stage can be placed"):
        apply_schedule(
            get_family("softmax").pipeline(SOFTMAX), Schedule((ComputeRoot("peak.update"),))
        )


def test_stage_is_computed_in_a_loop_of_an_update_only_it_has() -> None:
    pipeline = get_family("softmax").pipeline(SOFTMAX)
    shared = pipeline.loops["peak"][0][0]
    with pytest.raises(ScheduleError, match="the first definition has such a loop too"):
        apply_schedule(pipeline, Schedule((ComputeAt("grown", "peak.update", shared),)))
    apply_schedule(pipeline, Schedule((ComputeAt("grown", "peak.update", "k$x"),)))


def test_stage_computed_in_its_own_update_is_refused() -> None:
    with pytest.raises(ScheduleError, match="inside itself"):
        apply_schedule(
            get_family("softmax").pipeline(SOFTMAX),
            Schedule((ComputeAt("peak", "peak.update", "k$x"),)),
        )


def test_what_halide_refuses_is_passed_on() -> None:
    with pytest.raises(ScheduleError, match=r"total.update: parallel t\$x: Halide refuses: .*race"):
        apply_schedule(
            get_family("softmax").pipeline(SOFTMAX), Schedule((Parallel("total.update", "t$x"),))
        )


_RESULT: Any = object()


def _pipeline(padded: frozenset[str] = frozenset()) -> Pipeline:
    """Return two intermediate stages, one with an update, and a result of 1000 x 30."""
    return Pipeline(
        output=_RESULT,
        stages={"y": _RESULT, "a": object(), "b": object(), "b.update": object()},
        arguments=(),
        argument_extents=(),
        output_extents=(1000, 30),
        loops={
            "y": (("x", 1000), ("z", 30)),
            "a": (("x", 0), ("z", 0)),
            "b": (("x", 0),),
            "b.update": (("x", 0), ("r$x", 9)),
        },
        padded=padded,
    )


LEGAL_STEPS: dict[str, tuple[Step, ...]] = {
    "factor of a long loop": (Split("y", "x", "xo", "xi", 1000),),
    "long factor, guarded": (Split("y", "x", "xo", "xi", FACTOR_MAX, Tail.GUARD),),
    "old name for the outer loop": (Split("y", "x", "x", "xi", 8), Vectorize("y", "xi", 8)),
    "vector of a part": (Vectorize("y", "x", 16), Unroll("y", "x", 4), Parallel("y", "x")),
    "fused under an old name": (Fuse("y", "z", "x", "x"), Parallel("y", "x", 4)),
    "outside of a vector": (
        Split("y", "x", "x", "lane", 16),
        Vectorize("y", "lane", 16),
        ComputeAt("a", "y", "x"),
        ComputeAt("b", "a", "x"),
    ),
    "in a loop only an update has": (ComputeAt("a", "b.update", "r$x"), ComputeAt("b", "y", "x")),
    "place changed": (ComputeAt("a", "b", "x"), ComputeRoot("a"), ComputeAt("b", "a", "x")),
    "as often as may be": (Unroll("y", "x", 512), Unroll("y", "z", 4)),
    "unrolled loops inside the place do not count": (
        Split("y", "x", "x", "xi", 1000),
        Unroll("y", "xi", 1000),
        ComputeAt("a", "y", "x"),
        Unroll("a", "x", 1000),
    ),
}


@pytest.mark.parametrize("name", LEGAL_STEPS)
def test_legal_steps_are_returned_in_order(name: str) -> None:
    found = legal_steps(_pipeline(), Schedule(LEGAL_STEPS[name]))
    assert tuple(legal.step for legal in found) == LEGAL_STEPS[name]


def test_factor_that_is_the_whole_loop_is_told() -> None:
    steps = (Unroll("y", "z", 30), Split("y", "x", "xo", "xi", 8), Vectorize("y", "xi", 4))
    found = legal_steps(_pipeline(), Schedule(steps))
    assert [legal.is_whole for legal in found] == [True, False, False]


@pytest.mark.parametrize("stage", ["b", "b.update"])
def test_padded_stage_may_go_past_its_end(stage: str) -> None:
    step = Split(stage, "x", "xo", "xi", 8, Tail.ROUND_UP)
    assert legal_steps(_pipeline(frozenset({"b"})), Schedule((step,)))
    with pytest.raises(ScheduleError, match="must not be computed past its end"):
        legal_steps(_pipeline(), Schedule((step,)))


ILLEGAL_STEPS: dict[str, tuple[tuple[Step, ...], str]] = {
    "factor beyond 32 bits": (
        (Split("a", "x", "xo", "xi", 2**64),),
        f"factor is too large (got {2**64}, expected {FACTOR_MAX})",
    ),
    "factor beyond 32 bits, of a loop of the result": (
        (Split("y", "x", "xo", "xi", 2**40, Tail.GUARD),),
        "factor is too large",
    ),
    "tasks beyond 32 bits": ((Parallel("a", "x", 2**31),), "factor is too large"),
    "too wide a vector": (
        (Vectorize("a", "x", 2 * VECTOR_MAX),),
        f"vector is too wide (got {2 * VECTOR_MAX}, expected {VECTOR_MAX})",
    ),
    "vector with one element over": (
        (Vectorize("a", "x", 17),),
        "vector is no power of two (got 17)",
    ),
    "unrolled too often": (
        (Unroll("a", "x", WRITTEN_OUT_MAX + 1),),
        f"a: unrolled too often (got {WRITTEN_OUT_MAX + 1} copies, expected {WRITTEN_OUT_MAX})",
    ),
    "unrolled too often by two loops": (
        (Unroll("y", "x", 512), Unroll("y", "z", 5)),
        "unrolled too often (got 2560 copies",
    ),
    "unrolled too often, place included": (
        (Unroll("y", "z", 30), ComputeAt("a", "y", "z"), Unroll("a", "x", 100)),
        "a: unrolled too often (got 3000 copies",
    ),
    "update in an unrolled place": (
        (Unroll("y", "z", 30), ComputeAt("b", "y", "z"), Unroll("b.update", "x", 100)),
        "b.update: unrolled too often (got 3000 copies",
    ),
    "two loops of one name": ((Split("y", "x", "i", "i", 8),), "two loops of one name (got i)"),
    "fused into a loop there is": (
        (Split("y", "x", "xo", "xi", 8), Fuse("y", "xo", "xi", "z")),
        "the loop exists already (got z)",
    ),
    "split of a vector": (
        (Unroll("y", "z", 30), Split("y", "z", "zo", "zi", 3)),
        "vectorized or unrolled already",
    ),
    "threads in a vector": (
        (Split("y", "x", "x", "i", 8), Vectorize("y", "i", 8), Parallel("y", "i")),
        "vectorized or unrolled already",
    ),
    "inside each other": (
        (ComputeAt("a", "b", "x"), ComputeAt("b", "a", "x")),
        "the stage would be computed inside itself",
    ),
    "inside a vector": (
        (
            Split("y", "x", "x", "lane", 16),
            Reorder("y", ("x", "lane")),
            Vectorize("y", "lane", 16),
            ComputeAt("a", "y", "x"),
        ),
        "nothing can be computed inside a vector",
    ),
    "in a loop of an update its first definition has too": (
        (ComputeAt("a", "b.update", "x"),),
        "the first definition has such a loop too",
    ),
    "in its own update": ((ComputeAt("b", "b.update", "r$x"),), "inside itself"),
    "unrolled in an unrolled update": (
        (ComputeAt("a", "b.update", "r$x"), Unroll("b.update", "r$x", 9), Unroll("a", "x", 512)),
        "unrolled too often",
    ),
    "update elsewhere": ((StoreIn("b.update", "stack"),), "only an intermediate stage"),
    "atomic without a sum": ((Atomic("b"),), "only the sums of a reduction can be atomic"),
    "atomic on all threads": (
        (Atomic("b.update"), Parallel("b.update", "x")),
        "b.update: atomic sums cannot run on all threads",
    ),
    "a loop there is not, in one piece": ((NeverPartition("y", "q"),), "no such loop (got q"),
    "a vector in one piece": (
        (Split("y", "x", "x", "v", 8), Vectorize("y", "v", 8), NeverPartition("y", "v")),
        "vectorized or unrolled already",
    ),
    "steps without end": (
        (ComputeRoot("a"),) * (STEPS_MAX + 1),
        f"too many steps (got {STEPS_MAX + 1}, expected {STEPS_MAX})",
    ),
}


@pytest.mark.parametrize("name", ILLEGAL_STEPS)
def test_illegal_steps_are_refused_with_the_reason(name: str) -> None:
    steps, message = ILLEGAL_STEPS[name]
    with pytest.raises(ScheduleError) as caught:
        legal_steps(_pipeline(), Schedule(steps))
    assert message in str(caught.value)
