"""Regions whose extents are open and that one kernel computes, whatever these are.

A family says what the dimensions of a region count (`Role`): rows, what is summed up, batches. The
region has open extents if, by the names of these, its tensors agree in each of them. Its kernel is
made of blocks, each by the schedule of an ordinary workload of fixed shape with so many rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from aoe.graph.model_graph import Extent, OpenShape, is_closed, shape_at
from aoe.graph.regions import Region
from aoe.kernels.family import Role
from aoe.kernels.registry import OPEN_EXTENTS, classify
from aoe.workload import Layout, TensorSpec, Workload, workload_to_json

_MOST_SUMMED, _LEAST_SUMMED = 512, 4
"""In the workload of a block, of what has the extent of its rows or an open one of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRegion:
    """A region with open extents.

    Attributes:
        region: The region; its workload has one of the shapes the region may have.
        shapes: Of its inputs and its result, with names.
        roles: Of their dimensions.
    """

    region: Region
    shapes: tuple[OpenShape, ...]
    roles: tuple[tuple[Role, ...], ...]

    @property
    def rows_dimension(self) -> int:
        """Dimension of the result that counts its rows."""
        return self.roles[-1].index(Role.ROWS)

    @property
    def are_open(self) -> bool:
        """True if there may be any number of rows."""
        return isinstance(self.shapes[-1][self.rows_dimension], str)

    @property
    def names(self) -> frozenset[str]:
        """Open extents."""
        return frozenset(one for shape in self.shapes for one in shape if isinstance(one, str))

    @property
    def facts(self) -> object:
        """JSON that is the same for equal operators."""
        return [self.shapes, workload_to_json(self.region.workload)]

    def rows(self, extents: Mapping[str, int]) -> int:
        """Return the number of rows where open extents are these."""
        return shape_at(self.shapes[-1], extents)[self.rows_dimension]

    def of(self, rows: int) -> Workload | None:
        """Return the workload of a block, of a single batch; None if no kernel computes it."""
        workload, of_rows = self.region.workload, self.shapes[-1][self.rows_dimension]

        def extent(most: int, name: Extent, role: Role) -> int:
            if not isinstance(name, str):
                return most
            if role is Role.SUMMED:
                return max(_LEAST_SUMMED, rows if name == of_rows else min(most, _MOST_SUMMED))
            return rows if role is Role.ROWS else 1

        specs = [
            replace(spec, shape=tuple(map(extent, spec.shape, shape, roles)))
            for spec, shape, roles in zip(_tensors(workload), self.shapes, self.roles, strict=True)
        ]
        found = classify(replace(workload, inputs=tuple(specs[:-1]), output=specs[-1]))
        return None if isinstance(found, str) or found.op_type != workload.op_type else found


def find_open_region(region: Region, shapes: Mapping[str, OpenShape]) -> OpenRegion | str:
    """Return a region whose extents a kernel reads at run time, or why there is no such kernel.

    Args:
        region: Of the graph in one of its shapes.
        shapes: Of the tensors of the model, as far as they are proven; constants may be left out.
    """
    workload, family = region.workload, OPEN_EXTENTS.get(region.workload.op_type)
    roles = None if family is None else family.roles(workload)
    if roles is None:
        return "no kernel family computes its open extents"
    tensors = zip((*region.inputs, region.output), _tensors(workload), strict=True)
    found = [shapes.get(name, spec.shape if spec.constant else None) for name, spec in tensors]
    known = tuple(shape for shape in found if shape is not None)
    if len(known) < len(found) or is_closed(known[-1]):
        return "no open extent of the result is proven"
    if any(spec.layout is not Layout.PLAIN for spec in _tensors(workload)):
        return "blocked layouts are for fixed shapes"
    if problem := _contradiction(known, roles):
        return problem
    return OpenRegion(region=region, shapes=known, roles=roles)


def _tensors(workload: Workload) -> tuple[TensorSpec, ...]:
    return (*workload.inputs, workload.output)


def _contradiction(shapes: tuple[OpenShape, ...], roles: tuple[tuple[Role, ...], ...]) -> str:
    """Return what extents tensors do not agree in by their names, "" if they agree in all."""
    seen: dict[tuple[Role, int], Extent] = {}
    for shape, counted in zip(shapes, roles, strict=True):
        for at, (extent, role) in enumerate(zip(shape, counted, strict=True)):
            if role is Role.CLOSED and isinstance(extent, str):
                return f"{extent} is open, and known extents are needed there"
            if role is Role.CLOSED or extent == 1:
                continue
            key = (role, at - len(shape) if role is Role.BATCH else 0)
            if seen.setdefault(key, extent) != extent:
                return f"an extent is {seen[key]} and {extent}"
    return ""
