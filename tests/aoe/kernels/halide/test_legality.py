"""Steps are refused before Halide dies of them, and nothing a family asks for is."""

from __future__ import annotations

from typing import Any

import pytest

from aoe.errors import ScheduleError
from aoe.kernels.family import Pipeline
from aoe.kernels.halide.apply import (
    FACTOR_MAX,
    STEPS_MAX,
    VECTOR_MAX,
    WRITTEN_OUT_MAX,
    legal_steps,
)
from aoe.schedule import (
    Atomic,
    ComputeAt,
    ComputeRoot,
    Fuse,
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


LEGAL: dict[str, tuple[Step, ...]] = {
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


@pytest.mark.parametrize("name", LEGAL)
def test_legal_steps_are_returned_in_order(name: str) -> None:
    found = legal_steps(_pipeline(), Schedule(LEGAL[name]))
    assert tuple(legal.step for legal in found) == LEGAL[name]


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


ILLEGAL: dict[str, tuple[tuple[Step, ...], str]] = {
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


@pytest.mark.parametrize("name", ILLEGAL)
def test_illegal_steps_are_refused_with_the_reason(name: str) -> None:
    steps, message = ILLEGAL[name]
    with pytest.raises(ScheduleError) as caught:
        legal_steps(_pipeline(), Schedule(steps))
    assert message in str(caught.value)
