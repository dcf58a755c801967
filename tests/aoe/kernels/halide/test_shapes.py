"""Shape inference, per-channel roles."""

from __future__ import annotations

import pytest

from aoe.kernels.halide.shapes import channel_axes, infer_shapes, reduction_length
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


@pytest.mark.parametrize(
    ("op_type", "version", "attributes", "expected"),
    [
        ("Exp", 13, {}, 1),
        ("LRN", 13, {"size": 7}, 7),
        ("Softmax", 13, {"axis": 1}, 3),
        ("Softmax", 13, {}, 5),
        ("LogSoftmax", 11, {}, 60),
        ("Softmax", 11, {"axis": -2}, 20),
    ],
)
def test_reduction_length_follows_the_operator(
    op_type: str, version: int, attributes: dict[str, int], expected: int
) -> None:
    operation = Operation(
        op_type=op_type, version=version, inputs=("x0",), output="t0", attributes=attributes
    )
    assert reduction_length(make_workload([(2, 3, 4, 5)], [operation], (2, 3, 4, 5))) == expected


def test_reduction_length_of_contradicting_shapes_is_an_error() -> None:
    workload = make_workload([(2, 3)], [make_operation("Exp", "x0")], (3, 2))
    with pytest.raises(ValueError, match="the result has shape"):
        reduction_length(workload)
