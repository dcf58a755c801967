"""Loops of a workload, inferred shapes and the roles of inputs per channel."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aoe.kernels.family import Support
from aoe.kernels.halide.iteration import Axis, Iteration, check_layouts, plan_iteration
from aoe.kernels.halide.open_extents import extent_relations
from aoe.kernels.halide.shapes import channel_axes, infer_shapes, reduction_length
from aoe.workload import NCHWC_DOMAIN, Layout, Operation, TensorSpec, Workload


def plain(*shape: int) -> TensorSpec:
    return TensorSpec(shape=shape)


def blocked(*shape: int) -> TensorSpec:
    return TensorSpec(shape=shape, layout=Layout.BLOCKED, block=16)


def make_sum(inputs: list[TensorSpec], output: TensorSpec) -> Workload:
    refs = tuple(f"x{i}" for i in range(len(inputs)))
    total = Operation(op_type="Sum", version=13, inputs=refs, output="t0")
    return Workload(op_type="elementwise", inputs=tuple(inputs), operations=(total,), output=output)


def planned(workload: Workload, keep: tuple[str, ...] = ()) -> Iteration:
    iteration = plan_iteration(workload, keep)
    assert isinstance(iteration, Iteration), iteration
    return iteration


def axes(iteration: Iteration) -> list[tuple[str, int]]:
    return [(axis.name, axis.extent) for axis in iteration.axes]


def test_unbroadcast_chain_runs_over_one_axis() -> None:
    iteration = planned(make_sum([plain(2, 3, 4, 5), plain(2, 3, 4, 5)], plain(2, 3, 4, 5)))
    assert axes(iteration) == [("nchw", 120)]
    assert iteration.argument_extents == ((120,), (120,))


def test_channel_parameter_splits_channels_from_pixels() -> None:
    iteration = planned(make_sum([plain(1, 64, 112, 112), plain(64, 1, 1)], plain(1, 64, 112, 112)))
    assert axes(iteration) == [("c", 64), ("hw", 12544)]
    assert iteration.operands == ((0, 1), (0,))
    assert iteration.argument_extents == ((12544, 64), (64,))
    assert iteration.extents == (12544, 64)


def test_one_element_operand_has_no_axes() -> None:
    iteration = planned(make_sum([plain(4, 5), plain(1, 1)], plain(4, 5)))
    assert iteration.argument_extents == ((20,), ())


@pytest.mark.parametrize("shape", [(), (1,), (1, 1, 1)])
def test_single_result_runs_over_one_iteration(shape: tuple[int, ...]) -> None:
    iteration = planned(make_sum([plain(*shape)], plain(*shape)))
    assert axes(iteration) == [("one", 1)]
    assert iteration.size == 1


def test_operands_broadcast_against_each_other() -> None:
    iteration = planned(make_sum([plain(3, 1, 5), plain(4, 1)], plain(3, 4, 5)))
    assert [extent for _, extent in axes(iteration)] == [3, 4, 5]
    assert iteration.operands == ((0, 2), (1,))


def test_kept_axis_is_not_merged_and_survives_extent_one() -> None:
    iteration = planned(make_sum([plain(2, 1, 4, 5)], plain(2, 1, 4, 5)), keep=("c",))
    assert axes(iteration) == [("n", 2), ("c", 1), ("hw", 20)]
    assert iteration.argument_extents == ((20, 1, 2),)


def test_blocked_chain_runs_over_one_axis() -> None:
    data = blocked(1, 64, 7, 7)
    assert axes(planned(make_sum([data, data], data))) == [("cohwci", 64 * 49)]


def test_loops_around_a_tile_end_with_that_over_the_tiles() -> None:
    axes = (Axis("n", 2), Axis("c", 6), Axis("hw", 100))
    iteration = Iteration(axes=axes, operands=((0, 1, 2),))
    assert iteration.axis("c") == axes[1]
    around = iteration.around(Axis("hw", 32), ("c", "hw"))
    assert around == (Axis("n", 2), Axis("hw_tile", 4))


def test_blocked_channel_parameter_has_both_channel_axes() -> None:
    data = blocked(1, 64, 7, 7)
    iteration = planned(make_sum([data, plain(64, 1, 1)], data))
    assert axes(iteration) == [("co", 4), ("hw", 49), ("ci", 16)]
    assert iteration.argument_extents == ((16, 49, 4), (16, 4))


def test_blocked_spatial_mask_has_the_pixel_axis() -> None:
    data = blocked(2, 32, 5, 3)
    iteration = planned(make_sum([data, plain(5, 3)], data))
    assert iteration.argument_extents[1] == (15,)


def test_blocked_gate_of_one_pixel_has_batch_and_channels() -> None:
    data = blocked(2, 32, 5, 3)
    iteration = planned(make_sum([data, blocked(2, 32, 1, 1)], data))
    assert axes(iteration) == [("nco", 4), ("hw", 15), ("ci", 16)]
    assert iteration.argument_extents[1] == (16, 4)


def refusal(workload: Workload) -> str:
    found = plan_iteration(workload)
    assert isinstance(found, Support) and not found
    return found.reason


def test_plain_image_in_a_blocked_workload_is_refused() -> None:
    data = blocked(1, 32, 5, 3)
    assert "a plain tensor with channels and pixels" in refusal(
        make_sum([data, plain(1, 32, 5, 3)], data)
    )


def test_blocked_tensor_in_a_plain_workload_is_refused() -> None:
    assert "a blocked tensor in a plain workload" in refusal(
        make_sum([blocked(1, 32, 5, 3)], plain(1, 32, 5, 3))
    )


def test_other_element_types_are_refused() -> None:
    data = replace(plain(3), dtype="float16")
    assert "float16" in refusal(make_sum([data], plain(3)))


def test_more_axes_than_the_glue_describes_are_refused() -> None:
    full = (2,) * 10
    alternating = tuple(2 if i % 2 else 1 for i in range(10))
    assert "too many" in refusal(make_sum([plain(*full), plain(*alternating)], plain(*full)))


@pytest.mark.parametrize(
    ("op_type", "attributes", "reason"),
    [
        ("ReorderOutput", {"channels": 30, "channels_last": 0}, "drops padding"),
        ("ReorderInput", {"channels_last": 1}, "channels-last"),
    ],
)
def test_reorders_that_change_more_than_the_layout_are_refused(
    op_type: str, attributes: dict[str, int], reason: str
) -> None:
    reorder = Operation(
        op_type=op_type,
        domain=NCHWC_DOMAIN,
        inputs=("x0",),
        output="t0",
        attributes=attributes,
    )
    data = blocked(1, 32, 5, 3)
    workload = Workload(op_type="elementwise", inputs=(data,), operations=(reorder,), output=data)
    assert reason in check_layouts(workload).reason


def test_reorder_in_a_plain_workload_is_refused() -> None:
    reorder = Operation(op_type="ReorderOutput", domain=NCHWC_DOMAIN, inputs=("x0",), output="t0")
    workload = Workload(
        op_type="elementwise", inputs=(plain(3),), operations=(reorder,), output=plain(3)
    )
    assert "plain workload" in check_layouts(workload).reason


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


_IMAGES = (2, 16, 8, 8)
_OPEN = TensorSpec(shape=_IMAGES, open=(0, 2, 3))
_GATES = TensorSpec(shape=(2, 16, 1, 1), open=(0,))


def _sum(*inputs: TensorSpec) -> Workload:
    add = Operation(op_type="Add", version=14, inputs=("x0", "x1"), output="t0")
    return Workload(op_type="elementwise", inputs=inputs, operations=(add,), output=_OPEN)


@pytest.mark.parametrize("inputs", [(_OPEN, _OPEN), (_OPEN, _GATES), (_GATES, _OPEN)])
def test_every_open_extent_follows_from_one_of_an_input(inputs: tuple[TensorSpec, ...]) -> None:
    relations = extent_relations(_sum(*inputs))
    assert not isinstance(relations, str)
    places = {(one.tensor, one.axis) for one in relations}
    assert places == {(at, axis) for at, spec in enumerate((*inputs, _OPEN)) for axis in spec.open}
    assert all(one.source_axis == one.axis for one in relations)
    assert all(one.source_axis in inputs[one.source].open for one in relations)


@pytest.mark.parametrize("shape", [_IMAGES, (16, 8, 1), (1, 1, 1, 8)])
def test_a_closed_extent_that_happens_to_agree_proves_nothing(shape: tuple[int, ...]) -> None:
    assert isinstance(extent_relations(_sum(_OPEN, TensorSpec(shape=shape))), str)


def test_what_is_broadcast_over_open_extents_may_be_closed() -> None:
    assert not isinstance(extent_relations(_sum(_OPEN, TensorSpec(shape=(16, 1, 1)))), str)
