"""What follows for open extents inside of a workload."""

from __future__ import annotations

import pytest

from aoe.kernels.halide.open_extents import extent_relations
from aoe.workload import Operation, TensorSpec, Workload

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
