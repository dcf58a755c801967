"""Shape inference, per-channel roles."""

from __future__ import annotations

import pytest

from aoe.kernels.halide.shapes import channel_axes, find_broadcast, infer_shapes
from aoe.workload import Operation, TensorSpec, Workload


def make_workload(
    inputs: list[tuple[int, ...]],
    operations: list[Operation],
    output: tuple[int, ...],
    scalars: tuple[float, ...] = (),
) -> Workload:
    return Workload(
        op_type="elementwise",
        inputs=tuple(TensorSpec(shape=shape) for shape in inputs),
        scalars=scalars,
        operations=tuple(operations),
        output=TensorSpec(shape=output),
    )


def make_operation(op_type: str, *inputs: str, output: str = "t0") -> Operation:
    return Operation(op_type=op_type, version=15, inputs=inputs, output=output)


@pytest.mark.parametrize(
    ("shapes", "expected"),
    [
        ([()], ()),
        ([(3, 1), (4,)], (3, 4)),
        ([(2, 1, 5), (3, 1), ()], (2, 3, 5)),
        ([(2,), (3,)], None),
        ([(2, 3), (3, 2)], None),
        ([(1,), (1, 1)], (1, 1)),
    ],
)
def test_broadcast_follows_numpy(
    shapes: list[tuple[int, ...]], expected: tuple[int, ...] | None
) -> None:
    assert find_broadcast(shapes) == expected


def test_shapes_of_results_are_inferred() -> None:
    workload = make_workload(
        [(2, 3, 4), (3, 1)],
        [make_operation("Exp", "x1"), make_operation("Mul", "x0", "t0", output="t1")],
        (2, 3, 4),
    )
    shapes = infer_shapes(workload)
    assert isinstance(shapes, dict)
    assert (shapes["t0"], shapes["t1"]) == ((3, 1), (2, 3, 4))


def test_contradicting_result_shape_is_a_reason() -> None:
    workload = make_workload([(2, 3)], [make_operation("Exp", "x0")], (3, 2))
    assert infer_shapes(workload) == "the result has shape (2, 3), not (3, 2)"


def test_impossible_broadcast_is_a_reason() -> None:
    workload = make_workload([(2, 3), (4,)], [make_operation("Add", "x0", "x1")], (2, 3))
    assert "cannot broadcast (2, 3) with (4,)" in str(infer_shapes(workload))


def test_normalisation_parameters_run_over_the_channels() -> None:
    workload = make_workload(
        [(2, 3, 4, 5), (3,), (3,), (3,), (3,)],
        [make_operation("BatchNormalization", "x0", "x1", "x2", "x3", "x4")],
        (2, 3, 4, 5),
    )
    shapes = infer_shapes(workload)
    assert not isinstance(shapes, str)
    assert channel_axes(workload, shapes) == {"x1": -3, "x2": -3, "x3": -3, "x4": -3}


def test_parameter_that_is_broadcast_too_is_a_reason() -> None:
    workload = make_workload(
        [(2, 3, 4, 3), (3,)],
        [
            make_operation("BatchNormalization", "x0", "x1", "x1", "x1", "x1"),
            make_operation("Add", "t0", "x1", output="t1"),
        ],
        (2, 3, 4, 3),
    )
    shapes = infer_shapes(workload)
    assert not isinstance(shapes, str)
    assert channel_axes(workload, shapes) == "x1 is a channel parameter and broadcast too"


def test_parameter_of_another_length_is_a_reason() -> None:
    workload = make_workload(
        [(2, 3, 4), (4,)],
        [make_operation("BatchNormalization", "x0", "x1", "x1", "x1", "x1")],
        (2, 3, 4),
    )
    shapes = infer_shapes(workload)
    assert not isinstance(shapes, str)
    assert "per channel" in str(channel_axes(workload, shapes))
