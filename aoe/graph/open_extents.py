"""Regions whose extents are open and that one kernel computes, whatever these are.

A family says what the dimensions of a region count (`Role`): rows, what is summed up, batches. The
region has open extents if, by the names of these, its tensors agree in each of them. Its kernel is
made of blocks, each by the schedule of an ordinary workload of fixed shape with so many rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from itertools import takewhile
from typing import TypeVar

from aoe.graph.extents import OpenShape, find_shape_at, is_closed, shape_at
from aoe.graph.model_graph import ModelGraph
from aoe.graph.regions import Region
from aoe.graph.stored_layouts import StoredLayout, read_from, whole_layout, written_to
from aoe.kernels.family import Role
from aoe.kernels.registry import OPEN_EXTENTS, classify
from aoe.operators.extents import Extent
from aoe.workload import TensorSpec, Workload, workload_to_json

Found = TypeVar("Found")
_MOST_SUMMED, _LEAST_SUMMED = 512, 4
"""In the workload of a block, of what has the extent of its rows or an open one of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRegion:
    """A region with open extents."""

    # The region, with what moves its tensors; its workload is one without, in one of the shapes the
    # region may have.
    region: Region
    shapes: tuple[OpenShape, ...]  # Of the inputs and the result of the workload, with names
    roles: tuple[tuple[Role, ...], ...]  # Of their dimensions
    layouts: tuple[StoredLayout, ...]  # Where these lie in the inputs and the result of the region
    stored: tuple[OpenShape, ...]  # Shapes of these, with names

    @property
    def rows_dimension(self) -> int:
        """Dimension of the result that counts its rows."""
        return self.roles[-1].index(Role.ROWS)

    def block_rows(self, most: int) -> tuple[int, ...]:
        """Return the numbers of rows of its blocks for up to `most` rows, the largest first."""
        family = OPEN_EXTENTS[self.region.workload.op_type]
        return tuple(rows for rows in family.rows if rows <= most) if self.are_open else (1,)

    @property
    def rows_extent(self) -> Extent:
        """Name of the number of rows, or that number."""
        return self.shapes[-1][self.rows_dimension]

    @property
    def are_open(self) -> bool:
        """True if there may be any number of rows."""
        return isinstance(self.rows_extent, str)

    def follows_from(self, extents: Mapping[str, int]) -> bool:
        """True if all shapes are known where open extents are these."""
        return all(find_shape_at(shape, extents) is not None for shape in self.shapes)

    @property
    def facts(self) -> object:
        """JSON that is the same for equal operators."""
        layouts = [[astuple(one) for one in layout] for layout in self.layouts]
        return [self.shapes, self.stored, layouts, workload_to_json(self.region.workload)]

    def rows(self, extents: Mapping[str, int]) -> int:
        """Return the number of rows where open extents are these."""
        return shape_at(self.shapes[-1], extents)[self.rows_dimension]

    def of(self, rows: int) -> Workload | None:
        """Return the workload of a block, of a single batch; None if no kernel computes it."""

        def extent(most: int, name: str, role: Role) -> int:
            if role is Role.SUMMED:
                is_rows = name == self.rows_extent
                return max(_LEAST_SUMMED, rows if is_rows else min(most, _MOST_SUMMED))
            return rows if role is Role.ROWS else 1

        return self._with_extents(rows, extent)

    def at(self, rows: int, extents: Mapping[str, int]) -> Workload | None:
        """Return the workload of so many rows where other open extents are these.

        None if no kernel computes it, as for `of`.
        """

        def extent(most: int, name: str, role: Role) -> int:
            known = rows if name == self.rows_extent else shape_at((name,), extents)[0]
            return max(_LEAST_SUMMED, known) if role is Role.SUMMED else known

        return self._with_extents(rows, extent)

    def _with_extents(
        self, rows: int, extent_of: Callable[[int, str, Role], int]
    ) -> Workload | None:
        workload = self.region.workload

        def extent(most: int, name: Extent, role: Role) -> int:
            return extent_of(most, name, role) if isinstance(name, str) else most

        def shaped(spec: TensorSpec, shape: OpenShape, roles: tuple[Role, ...]) -> TensorSpec:
            if Role.CLOSED not in roles and all(one == 1 for one in shape):
                return replace(spec, shape=())  # no loop steps through its one element
            return replace(spec, shape=tuple(map(extent, spec.shape, shape, roles)))

        if any(self._steps_past(number, rows) for number in range(len(workload.inputs))):
            return None
        specs = [
            shaped(spec, shape, roles)
            for spec, shape, roles in zip(_tensors(workload), self.shapes, self.roles, strict=True)
        ]
        found = classify(replace(workload, inputs=tuple(specs[:-1]), output=specs[-1]))
        return None if isinstance(found, str) or found.op_type != workload.op_type else found

    def _steps_past(self, number: int, rows: int) -> bool:
        """True for an input whose innermost loop is over an open extent it has one element for.

        A kernel reads its innermost dimension in steps of 1: `(n, 1, 1, 1)` beside any number of
        heads has that of the heads, and of the rows in a block of a single one.
        """
        shape, roles = self.shapes[number], self.roles[number]
        if Role.CLOSED in roles or all(one == 1 for one in shape):
            return False
        ones = takewhile(lambda at: shape[at] == 1, range(-1, -len(shape), -1))
        return any(
            isinstance(self.shapes[-1][at], str)
            and (roles[at] is Role.BATCH or (roles[at] is Role.ROWS and rows == 1))
            for at in ones
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedRegion:
    """A region of a model with open extents that has none: its kernel is that of a fixed shape."""

    region: Region

    def follows_from(self, extents: Mapping[str, int]) -> bool:
        """Return True: there is nothing open."""
        return True

    @property
    def facts(self) -> object:
        """JSON that is the same for equal operators."""
        return workload_to_json(self.region.workload)

    def block_rows(self, most: int) -> tuple[int, ...]:
        """Return the number of rows of its one block, which is everything."""
        return (1,)

    def rows(self, extents: Mapping[str, int]) -> int:
        """Return 1, whatever open extents are."""
        return 1

    def of(self, rows: int) -> Workload | None:
        """Return its workload."""
        return self.region.workload if rows == 1 else None


def named_extents(shape: Sequence[int], roles: Sequence[Role]) -> OpenShape:
    """Return a shape of a workload with names for what a kernel for open extents reads.

    Extents of 1 have none: they may stand for any number.

    >>> named_extents((2, 1, 17, 64), (Role.BATCH, Role.BATCH, Role.ROWS, Role.CLOSED))
    ('batch -4', 1, 'rows', 64)
    """
    names = {Role.ROWS: "rows", Role.SUMMED: "summed"}
    return tuple(
        extent
        if role is Role.CLOSED or extent == 1
        else names.get(role, f"batch {at - len(shape)}")
        for at, (extent, role) in enumerate(zip(shape, roles, strict=True))
    )


def find_closed_region(region: Region, shapes: Mapping[str, OpenShape]) -> ClosedRegion | None:
    """Return a region whose tensors have one shape in every run, None if that is not proven."""
    known = _proven_shapes(region, shapes)
    return ClosedRegion(region=region) if known and all(map(is_closed, known)) else None


def _proven_shapes(region: Region, shapes: Mapping[str, OpenShape]) -> tuple[OpenShape, ...]:
    """Return the shapes of the inputs and the result of a region, none where one is not proven."""
    tensors = zip((*region.inputs, region.output), _tensors(region.workload), strict=True)
    found = [shapes.get(name, spec.shape if spec.constant else None) for name, spec in tensors]
    known = tuple(shape for shape in found if shape is not None)
    return known if len(known) == len(found) else ()


def find_open_region(
    graph: ModelGraph, region: Region, shapes: Mapping[str, OpenShape]
) -> OpenRegion | str:
    """Return a region whose extents a kernel reads at run time, or why there is no such kernel.

    Args:
        graph: The model in one of its shapes.
        region: Of it.
        shapes: Of the tensors of the model, as far as they are proven; constants may be left out.
    """
    workload, family = region.workload, OPEN_EXTENTS.get(region.workload.op_type)
    roles = None if family is None else family.roles(workload)
    if roles is None:
        return "no kernel family computes its open extents"
    known = _proven_shapes(region, shapes)
    if all(map(is_closed, known)):
        return "no open extent of its tensors is proven"
    if problem := _contradiction(known, roles):
        return problem
    found_region = OpenRegion(
        region=region,
        shapes=known,
        roles=roles,
        layouts=tuple(whole_layout(len(shape)) for shape in known),
        stored=known,
    )
    for number in range(len(known)):
        if Role.CLOSED in roles[number]:
            found_region = _where_it_lies(graph, found_region, number, shapes)
    return found_region


def _where_it_lies(
    graph: ModelGraph, found: OpenRegion, number: int, shapes: Mapping[str, OpenShape]
) -> OpenRegion:
    """Return a region that reads an input, or writes its result, where moves around it do."""
    region, workload = found.region, found.region.workload
    is_result = number == len(region.inputs)
    if not is_result and region.inputs[number] not in shapes:
        return found  # a constant, which nothing moves
    if is_result:
        tensor = written_to(graph, region.output, shapes)
    else:
        tensor = read_from(graph, region.inputs[number], shapes)
        turned = OPEN_EXTENTS[workload.op_type].turned(workload, number)
        # keys by columns are keys by rows, read the other way round
        if not tensor.is_innermost and turned is not None:
            tensor, workload = tensor.turned(), turned
    has_changed = workload is not region.workload
    others = [name for at, name in enumerate(region.inputs) if at != number]
    is_read_twice = tensor.name in others or tensor.name not in shapes
    if not tensor.nodes or not tensor.is_innermost or is_read_twice:
        return found
    shape, roles = found.shapes[number], found.roles[number]
    if has_changed:
        shape, roles = _turned(shape), _turned(roles)
    inputs = list(region.inputs)
    if not is_result:
        inputs[number] = tensor.name
    return replace(
        found,
        region=replace(
            region,
            nodes=tuple(sorted({*region.nodes, *tensor.nodes})),
            inputs=tuple(inputs),
            output=tensor.name if is_result else region.output,
            workload=workload,
        ),
        shapes=_with(found.shapes, number, shape),
        roles=_with(found.roles, number, roles),
        layouts=_with(found.layouts, number, tensor.layout),
        stored=_with(found.stored, number, shapes[tensor.name]),
    )


def _turned(dimensions: tuple[Found, ...]) -> tuple[Found, ...]:
    *others, one, other = dimensions
    return (*others, other, one)


def _with(items: tuple[Found, ...], number: int, item: Found) -> tuple[Found, ...]:
    return (*items[:number], item, *items[number + 1 :])


def _tensors(workload: Workload) -> tuple[TensorSpec, ...]:
    return (*workload.inputs, workload.output)


def _contradiction(shapes: tuple[OpenShape, ...], roles: tuple[tuple[Role, ...], ...]) -> str:
    """Return a sentence on extents tensors do not agree in by their names, "" for none."""
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
