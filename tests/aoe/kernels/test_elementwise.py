"""The element-wise family: contract, broadcasting, random chains."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.contracts.kernels import (
    SEED,
    CompiledKernel,
    KernelFamilyTests,
    assert_close,
    between_reorders,
    block_size,
    blocked,
    guessed_schedules,
    kernel_target,
    operation,
    plain,
    run_baseline,
)
from support.tiers import few_every_day

from aoe.graph.workload_model import random_inputs, special_inputs
from aoe.kernels.registry import get_family
from aoe.operators import broadcast
from aoe.schedule import Configuration, Fuse
from aoe.workload import NCHWC_DOMAIN, Operation, TensorSpec, Workload


def make(
    shape: tuple[int, ...],
    *operations: Operation,
    others: tuple[TensorSpec, ...] = (),
    scalars: tuple[float, ...] = (),
) -> Workload:
    return Workload(
        op_type="elementwise",
        inputs=(plain(*shape), *others),
        scalars=scalars,
        operations=operations,
        output=plain(*shape),
    )


def prelu(shape: tuple[int, ...], slope: tuple[int, ...]) -> Workload:
    return make(shape, operation("PRelu", "x0 x1"), others=(plain(*slope, constant=True),))


GATED = make(
    (2, 24, 5, 7),
    operation("Mul", "x0 x1", "t0"),
    operation("Softplus", "t0", "t1"),
    operation("Tanh", "t1", "t2"),
    operation("Mul", "t0 t2", "t3"),
    operation("Add", "t3 s0", "t4"),
    operation("Clip", "t4 s1 s2", "t5"),
    others=(plain(2, 24, 1, 1),),
    scalars=(0.25, -0.2, 3.0),
)


SPELLED_GELU = make(
    (3, 1024),
    operation("Div", "x0 s0", "t0"),
    operation("Erf", "t0", "t1"),
    operation("Add", "t1 s1", "t2"),
    operation("Mul", "x0 s2", "t3"),
    operation("Mul", "t3 t2", "t4"),
    scalars=(math.sqrt(2), 1.0, 0.5),
)
QUOTIENT_READ_AGAIN = replace(
    SPELLED_GELU,
    operations=(*SPELLED_GELU.operations[:2], operation("Mul", "t1 t0", "t2")),
)


class TestElementwise(KernelFamilyTests):
    family_name = "elementwise"
    cases: Mapping[str, Workload] = {
        "GELU as networks write it": SPELLED_GELU,
        "a quotient for Erf and another": QUOTIENT_READ_AGAIN,
        "a divisor too large for Erf": replace(QUOTIENT_READ_AGAIN, scalars=(1e20, 1.0, 0.5)),
        "one image row per channel": prelu((1, 12, 112, 112), (12, 1, 1)),
        "short rows": prelu((1, 40, 7, 7), (40, 1, 1)),
        "three channels last": prelu((2, 100, 3), (3,)),
        "seven channels last": prelu((2, 100, 7), (7,)),
        "gaps in the slope": prelu((2, 3, 4, 5, 6), (3, 1, 5, 1)),
        "one number": prelu((), ()),
        "one element of rank 3": prelu((1, 1, 1), (1,)),
        "odd length": make((100_003,), operation("Mish", "x0")),
        "shorter than a vector": make((13,), operation("Sigmoid", "x0")),
        "prime rows": make((17, 1, 101), operation("Erf", "x0")),
        "gated chain": GATED,
        "gates made first": make(
            (2, 24, 5, 7),
            operation("Mul", "x1 s0", "t0"),
            operation("Tanh", "t0", "t1"),
            operation("Add", "x0 t1", "t2"),
            operation("Add", "t2 t0", "t3"),
            operation("Tanh", "x2", "t4"),
            operation("Add", "t3 t4", "t5"),
            others=(plain(2, 24, 1, 1), plain(1, 24, 1, 1)),
            scalars=(0.3,),
        ),
        "chosen by a mask of rows": make(
            (2, 3, 5, 37),
            operation("Where", "x1 x0 x2"),
            others=(plain(2, 1, 5, 37, dtype="bool"), plain(37)),
        ),
        "chosen by two masks": make(
            (4, 33),
            operation("And", "x1 x2", "t0"),
            operation("Where", "t0 s0 x0", "t1"),
            others=(plain(4, 1, dtype="bool"), plain(33, dtype="bool")),
            scalars=(-3.5,),
        ),
    }

    @classmethod
    def all_cases(cls) -> Mapping[str, Workload]:
        return {**cls.cases, **blocked_cases()}


def blocked_cases() -> Mapping[str, Workload]:
    block = block_size()
    if not block:
        return {}
    channels = 3 * block
    data = blocked(1, channels, 19, 23)
    small = blocked(2, block, 3, 3)
    gate = operation("ReorderOutput", "x1", "r9", domain=NCHWC_DOMAIN, channels=channels)
    return {
        "blocked slope": between_reorders(
            "elementwise",
            (data, plain(channels, 1, 1, constant=True)),
            (operation("PRelu", "r0 x1"),),
        ),
        "blocked slope of one block": between_reorders(
            "elementwise",
            (small, plain(block, 1, 1, constant=True)),
            (operation("PRelu", "r0 x1"),),
        ),
        "blocked spatial mask": between_reorders(
            "elementwise", (data, plain(1, 1, 19, 23)), (operation("Mul", "r0 x1"),)
        ),
        "blocked gate": between_reorders(
            "elementwise",
            (data, blocked(1, channels, 1, 1)),
            (gate, operation("Mul", "r0 r9"), operation("Mish", "t0", "t1")),
        ),
    }


SHAPE = (3, 5, 17)
PATTERNS = list(itertools.product((0, 1), repeat=3))


def shape_of(pattern: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(extent if full else 1 for extent, full in zip(SHAPE, pattern, strict=True))


@pytest.mark.parametrize(
    ("left", "right"), few_every_day(list(itertools.product(PATTERNS, PATTERNS)), 12)
)
def test_every_broadcast_pattern(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    shapes = [shape_of(left), shape_of(right)]
    output = broadcast(shapes)
    assert output is not None
    workload = Workload(
        op_type="elementwise",
        inputs=tuple(plain(*shape) for shape in shapes),
        operations=(operation("Sub", "x0 x1"),),
        output=plain(*output),
    )
    kernel = CompiledKernel(workload, guessed_schedules(workload)[0])
    inputs = random_inputs(workload, SEED)
    np.testing.assert_array_equal(kernel.run(inputs), inputs["x0"] - inputs["x1"])


@pytest.mark.parametrize("rank", range(6))
def test_every_rank(rank: int) -> None:
    shape = (2, 3, 1, 5, 7)[:rank]
    workload = make(shape, operation("Add", "x0 x1"), others=(plain(*shape[1:]),))
    run = run_baseline(workload, random_inputs(workload, SEED))
    np.testing.assert_array_equal(CompiledKernel(workload).run(run.inputs), run.result)


# Operators that do not amplify an error much, so that a chain of them is well conditioned.
SMOOTH = ("Sigmoid", "Tanh", "Mish", "Softplus", "Erf", "HardSwish", "Relu", "Elu", "Selu", "Abs")
PAIRED = ("Add", "Sub", "Max", "Min", "Mean")


@st.composite
def chains(draw: st.DrawFn) -> Workload:
    """Return a random acyclic chain of 1 to 8 operators over up to 3 inputs."""
    rank = draw(st.integers(1, 4))
    output = tuple(draw(st.sampled_from((1, 2, 3, 5, 8, 17))) for _ in range(rank))
    inputs = [output]
    for _ in range(draw(st.integers(0, 2))):
        kept = draw(st.integers(0, rank))
        full = [draw(st.booleans()) for _ in range(kept)]
        dims = output[rank - kept :]
        inputs.append(tuple(e if f else 1 for e, f in zip(dims, full, strict=True)))
    refs = [f"x{i}" for i in range(len(inputs))]
    operations: list[Operation] = []
    for number in range(draw(st.integers(1, 8))):
        # every second operator at least reads the newest value, so that little is unused
        first = f"t{number - 1}" if number else "x0"
        second = draw(st.sampled_from(refs))
        name = f"t{number}"
        if draw(st.booleans()):
            operations.append(operation(draw(st.sampled_from(SMOOTH)), first, name))
        else:
            operations.append(operation(draw(st.sampled_from(PAIRED)), f"{first} {second}", name))
        refs.append(name)
    return Workload(
        op_type="elementwise",
        inputs=tuple(plain(*shape) for shape in inputs),
        operations=tuple(operations),
        output=plain(*output),
    )


@settings(max_examples=40, derandomize=True)
@given(workload=chains(), data=st.data())
def test_random_chain_computes_what_onnx_runtime_does(workload: Workload, data: Any) -> None:
    """Special values included: what one operator makes of them, the next one must see."""
    family, target = get_family("elementwise"), kernel_target()
    assert family.supports(workload).reason == ""
    configurations = family.space(workload, target).configurations()
    chosen = data.draw(st.sampled_from(configurations))
    kernel = CompiledKernel(workload, family.schedule(workload, chosen, target))
    for feed in (random_inputs(workload, SEED), special_inputs(workload, SEED)):
        run = run_baseline(workload, feed)
        assert_close(workload, kernel.run(run.inputs), run.result, str(chosen))


def test_long_chain_compiles_in_linear_size() -> None:
    operations = [operation("Mish", "x0", "t0")]
    operations += [operation("Mish", f"t{i}", f"t{i + 1}") for i in range(39)]
    workload = make((4, 50), *operations)
    run = run_baseline(workload, random_inputs(workload, SEED))
    assert_close(workload, CompiledKernel(workload).run(run.inputs), run.result, "40 times Mish")


def test_short_rows_are_vectorised_across_their_ends_first() -> None:
    workload = prelu((2, 100, 3), (3,))
    family, target = get_family("elementwise"), kernel_target()
    guess = Configuration(family.space(workload, target).first_guesses[0])
    assert guess["inner"] == "flat"
    assert any(isinstance(s, Fuse) for s in family.schedule(workload, guess, target).steps)


def test_small_workload_stays_on_one_thread() -> None:
    space = get_family("elementwise").space(prelu((1, 8, 7, 7), (8, 1, 1)), kernel_target())
    assert all(configuration["tasks"] == 1 for configuration in space.configurations())


def test_large_workload_is_shared_out_first() -> None:
    space = get_family("elementwise").space(prelu((1, 64, 112, 112), (64, 1, 1)), kernel_target())
    assert int(space.first_guesses[0]["tasks"]) >= 2


def test_operator_without_a_rule_is_refused() -> None:
    workload = make((4, 4), operation("MatMul", "x0 x0"))
    assert get_family("elementwise").supports(workload).reason == "MatMul is not element-wise"


def test_pipeline_of_an_unsupported_workload_is_a_bug_of_the_caller() -> None:
    workload = make((4, 4), operation("Exp", "x0"))
    broken = Workload(
        op_type="elementwise",
        inputs=workload.inputs,
        operations=workload.operations,
        output=plain(2, 8),
    )
    with pytest.raises(ValueError, match="not supported"):
        get_family("elementwise").pipeline(broken)
