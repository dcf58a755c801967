"""Regions of convolutional networks whose batch, rows and columns are open.

The workload has the shapes of one point, and says which axes a kernel takes any extents along. The
proof is symbolic: what an open extent must be, by the operations, is what the model says it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from aoe.graph.extents import OpenShape, find_shape_at, is_closed
from aoe.graph.regions import Region
from aoe.kernels.halide.open_extents import extent_relations
from aoe.kernels.halide.shapes import infer_shapes
from aoe.kernels.registry import classify
from aoe.operators.extents import stepped
from aoe.workload import TensorSpec, Workload

LEAST_OPEN = 2
"""Of an open extent where a kernel is measured: one of 1 looks like one that is broadcast."""
_RANK, _CHANNELS = 4, 1


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenImages:
    """A region that computes images of any size."""

    region: Region  # The region
    workload: Workload  # In its kernel family, with the shapes of a point and its open axes


def find_open_images(
    region: Region, shapes: Mapping[str, OpenShape], extents: Mapping[str, int]
) -> OpenImages | str:
    """Return a region that computes images of any size, or why it is none.

    Args:
        region: Of the graph in one of its shapes.
        shapes: Of the tensors of the model, as far as they are proven; constants may be left out.
        extents: Of open dimensions at the point its kernel is measured at.
    """
    named = [*zip(region.inputs, region.workload.inputs, strict=True)]
    named.append((region.output, region.workload.output))
    specs = [_opened(spec, shapes.get(name), extents) for name, spec in named]
    problems = [spec for spec in specs if isinstance(spec, str)]
    if problems:
        return problems[0]
    *inputs, output = (spec for spec in specs if isinstance(spec, TensorSpec))
    if not output.open:
        return "no open extent of the result is proven"
    workload = replace(region.workload, inputs=tuple(inputs), output=output)
    if isinstance(problem := infer_shapes(workload), str):
        return problem
    relations = extent_relations(workload)
    if isinstance(relations, str):
        return relations
    for one in relations:
        steps, source = one.steps, shapes[region.inputs[one.source]][one.source_axis]
        wanted = stepped(source, times=steps.times, plus=steps.plus, over=steps.over)
        if shapes[named[one.tensor][0]][one.axis] != wanted:
            return "an input has other open extents than the result"
    found = classify(workload)
    return found if isinstance(found, str) else OpenImages(region=region, workload=found)


def _opened(
    spec: TensorSpec, shape: OpenShape | None, extents: Mapping[str, int]
) -> TensorSpec | str:
    """Return a tensor with its open axes and its shape at a point, or why it has none."""
    if shape is None:
        return spec if spec.constant else "an extent of an input is not proven"
    if is_closed(shape):
        return spec
    made = find_shape_at(shape, extents)
    axes = tuple(axis for axis, extent in enumerate(shape) if isinstance(extent, str))
    if made is None:
        return "its extents follow from no input alone"
    if len(shape) != _RANK or _CHANNELS in axes:
        return "open extents of what is no image"
    if any(made[axis] < LEAST_OPEN for axis in axes):
        return "an open extent of 1 where kernels are measured"
    return replace(spec, shape=made, open=axes)


def find_fixed_images(
    region: Region, shapes: Mapping[str, OpenShape], extents: Mapping[str, int]
) -> Workload | None:
    """Return a region as an ordinary workload of one size, None where no family computes it.

    Args:
        region: Of the graph in one of its shapes; see `find_open_images`.
        shapes: Of the tensors of the model.
        extents: Of its open dimensions.
    """
    named = [*zip(region.inputs, region.workload.inputs, strict=True)]
    named.append((region.output, region.workload.output))
    specs = [_fixed(spec, shapes.get(name), extents) for name, spec in named]
    *inputs, output = (spec for spec in specs if spec is not None)
    if len(inputs) < len(region.inputs):
        return None
    found = classify(replace(region.workload, inputs=tuple(inputs), output=output))
    return None if isinstance(found, str) else found


def _fixed(
    spec: TensorSpec, shape: OpenShape | None, extents: Mapping[str, int]
) -> TensorSpec | None:
    """Return a tensor with its shape at a point, None where that is not known or empty."""
    if shape is None or is_closed(shape):
        return spec
    made = find_shape_at(shape, extents)
    return replace(spec, shape=made) if made is not None and min(made) > 0 else None
