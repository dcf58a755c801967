"""Steps become Halide calls, or errors that name the step."""

from __future__ import annotations

import numpy as np
import pytest
from support.contracts.kernels import SEED, CompiledKernel, operation, plain
from support.tiers import few_every_day

from aoe.errors import ScheduleError
from aoe.graph.workload_model import random_inputs
from aoe.kernels.halide.apply import apply_schedule
from aoe.kernels.registry import get_family
from aoe.schedule import (
    Atomic,
    ComputeAt,
    ComputeRoot,
    Fuse,
    Memory,
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
