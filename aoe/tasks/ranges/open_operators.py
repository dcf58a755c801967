"""Operators of a range of shapes: those whose rows are open, and those whose images have any size.

A kernel for any number of rows computes them in blocks. A block is an ordinary workload of fixed
shape: it is looked up, searched, measured and recorded as every other operator. A kernel of images
takes its extents from each call. It is looked up and searched at one point of the range, which its
workload says; see `image_points` for the others.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import onnx

from aoe.bank.operators import key_of
from aoe.graph.extents import OpenShape
from aoe.graph.model_graph import ModelGraph, attributes_of
from aoe.graph.open_extents import (
    ClosedRegion,
    OpenRegion,
    find_closed_region,
    find_open_region,
)
from aoe.graph.open_images import LEAST_OPEN, OpenImages, find_open_images
from aoe.graph.open_rows import OpenRows, find_open_rows
from aoe.graph.regions import Refusal, Region, unfuse
from aoe.kernels.registry import FUSIBLE, anchors, classify
from aoe.operators.extents import pads_by_extent
from aoe.ort.profile import ModelProfile
from aoe.tasks.operators.operators import FoundOperators, Operator
from aoe.workload import Operation, Workload
from aoebank import plural

_GROWTH = 4
_GROWTH_OF_HEAVY = 2
_HEAVY_BYTES = 16 << 20
"""Weights that come from memory for each block: what counts is how few blocks there are."""
_PADDING = 1.1
"""Of the time of a block that is filled up; `AOE_PADDING` of `kernels/glue/row_cuts.c`."""
_LARGEST = 256
"""A block of more rows computes no row faster: the weights of a product have been reused enough,
and there are two tasks and more for each core."""

ROWS_POWER = 0.75
"""Of the number of rows in the time of a block, where nothing was measured: few rows take longer
than their share."""
_BLOCK_S = 0.3
"""To measure a block as it goes into its kernel, short calls and no constants."""
_BLOCK_CALLS = 20
"""The same in calls: both sides, what warms them up, the comparison of results."""

RowsFound = OpenRows | OpenRegion | ClosedRegion
"""A region as rows, with open extents of other kinds, or with none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowOperator:
    """Equal occurrences of a model that compute rows."""

    rows: RowsFound  # The first of them
    regions: tuple[Region, ...]  # All of them
    op_names: tuple[str, ...]  # Node at the end of each
    share: float  # Part of the model's time at the shape the model was profiled in
    # Workloads by their number of rows, the largest first; the last one has one row.
    blocks: Mapping[int, Workload]
    # Rows of blocks that are there for frequent shapes alone.
    frequent: frozenset[int] = frozenset()
    # Rows of points of the range for which no block of their own is worth a search.
    cut_rows: frozenset[int] = frozenset()

    def operators(self) -> Iterator[Operator]:
        """Yield its blocks as operators to tune; together they have its share of the time."""
        for rows, workload in self.blocks.items():
            share = self.share / len(self.blocks)
            yield Operator(
                workload=workload,
                key=key_of(workload),
                regions=self.regions,
                op_names=tuple(self._named(name, rows) for name in self.op_names),
                share=share,
                default_us=0.0,
            )

    def measuring_s(self, model_us: float, extents: Mapping[str, int]) -> float:
        """Return the seconds to measure all of its blocks as they go into their kernel.

        Args:
            model_us: Time of the model at the shape it was profiled in.
            extents: Of the open dimensions there.
        """
        here_us = self.share * model_us / len(self.regions)
        here = max(1, self.rows.rows(extents))
        seconds = 0.0
        for rows, block in zip(self.blocks, self.operators(), strict=True):
            call_us = here_us * (rows / here) ** ROWS_POWER
            seconds += _BLOCK_S + block.setting_up_s + _BLOCK_CALLS * call_us / 1e6
        return seconds

    def _named(self, name: str, rows: int) -> str:
        is_whole = isinstance(self.rows, ClosedRegion)
        return name if is_whole else f"{name}, {plural(rows, 'row')}"


def block_rows(most: int, weight_bytes: int = 0) -> tuple[int, ...]:
    """Return the numbers of rows blocks have for up to `most` rows, the largest first.

    Args:
        most: Rows.
        weight_bytes: Of the constants each block reads.

    >>> block_rows(4096), block_rows(5), block_rows(64, 80 << 20)
    ((256, 64, 16, 4, 1), (4, 1), (64, 32, 16, 8, 4, 2, 1))
    """
    growth = _GROWTH_OF_HEAVY if weight_bytes >= _HEAVY_BYTES else _GROWTH
    found = [1]
    while found[-1] * growth <= min(most, _LARGEST):
        found.append(found[-1] * growth)
    return tuple(reversed(found))


def find_row_operators(
    graph: ModelGraph,
    found: FoundOperators,
    profile: ModelProfile,
    shapes: Mapping[str, OpenShape],
    largest: Mapping[str, int],
) -> tuple[list[RowOperator], list[Refusal]]:
    """Return the operators of a model whose rows are open, and why others are left alone.

    What is fused and computes no rows is taken apart, and its parts are looked at.

    Args:
        graph: The model in one of its shapes.
        found: Its operators in that shape.
        profile: Where its time goes there.
        shapes: Of its tensors, with names for open extents.
        largest: Extents of open dimensions at the largest shape.
    """
    refusals = list(found.refusals)
    groups: dict[str, list[RowsFound]] = {}
    for region in _regions(found):
        for one in _open(graph, region, shapes):
            if isinstance(one, Refusal):
                refusals.append(one)
            elif not one.follows_from(largest):
                reason = "its open extents follow from no input alone"
                refusals.append(_refusal(graph, one.region, reason))
            else:
                groups.setdefault(json.dumps(one.facts), []).append(one)
    operators = []
    for equal in groups.values():
        most = max(one.rows(largest) for one in equal)
        workloads = _blocks(equal[0], most)
        if 1 not in workloads:
            reason = "no kernel family computes one row of it"
            refusals += [_refusal(graph, one.region, reason) for one in equal]
            continue
        nodes = [graph.nodes[index] for one in equal for index in one.region.nodes]
        operators.append(
            RowOperator(
                rows=equal[0],
                regions=tuple(one.region for one in equal),
                op_names=tuple(graph.nodes[one.region.nodes[-1]].name for one in equal),
                share=profile.share_of(nodes),
                blocks=workloads,
            )
        )
    operators.sort(key=lambda one: -one.share)
    regions = [region for one in operators for region in one.regions]
    computed = {graph.nodes[index].name for region in regions for index in region.nodes}
    return operators, [one for one in refusals if one.node not in computed]


def _blocks(rows: RowsFound, most: int) -> dict[int, Workload]:
    """Return the workloads of blocks by their number of rows, for up to `most` rows."""
    if isinstance(rows, OpenRows):
        constants = (spec for spec in rows.region.workload.inputs if spec.constant)
        counts = block_rows(
            most, sum(spec.size * np.dtype(spec.dtype).itemsize for spec in constants)
        )
    else:
        counts = rows.block_rows(most)
    found = {count: rows.of(count) for count in counts}
    return {count: workload for count, workload in found.items() if workload is not None}


def _regions(found: FoundOperators) -> list[Region]:
    return [region for one in (*found.fused, *found.operators) for region in one.regions]


def _open(
    graph: ModelGraph, region: Region, shapes: Mapping[str, OpenShape]
) -> Iterator[RowsFound | Refusal]:
    """Yield a region with open extents or rows, or its parts, or why it has none."""
    closed = find_closed_region(region, shapes)
    found: RowsFound | str = closed or find_open_region(graph, region, shapes)
    if isinstance(found, str):
        found = find_open_rows(graph, region, shapes)
    if not isinstance(found, str):
        yield found
    elif region.may_be_unfused:
        parts = unfuse(graph, region, fusible=FUSIBLE, anchors=anchors(), classify=classify)
        yield from parts.refusals
        for part in parts.regions:
            if part.nodes != region.nodes:
                yield from _open(graph, part, shapes)
    else:
        yield _refusal(graph, region, found)


def _refusal(graph: ModelGraph, region: Region, reason: str) -> Refusal:
    name = graph.nodes[region.nodes[-1]].name
    return Refusal(node=name, op_type=region.workload.op_type, reason=reason)


# ---- blocks ----


class TimedRows(Protocol):
    """A number of rows, and the microseconds one call for them takes."""

    @property
    def rows(self) -> int:
        """Number of rows."""
        ...

    @property
    def us(self) -> float:
        """Time of the call."""
        ...


def expected_us(blocks: Sequence[TimedRows], rows: int) -> float:
    """Return the time of rows in blocks, as the kernel cuts them: see `aoe_cut_rows` of the glue.

    Args:
        blocks: The largest first; the last one has one row.
        rows: How many.
    """
    if rows <= 0 or not blocks:
        return 0.0
    first, *others = blocks
    if not others:
        return rows / first.rows * first.us
    smaller = expected_us(others, rows)
    if rows < first.rows:
        return min(smaller, _PADDING * first.us)
    rest = expected_us(others, rows % first.rows)
    one_more = first.us if rows % first.rows else 0.0
    return min(smaller, rows // first.rows * first.us + min(one_more, rest))


def interpolated_us(times: Mapping[int, float], rows: int) -> float:
    """Return the time of rows from those of some numbers of rows, between them on a line.

    Beyond the largest one, time grows with the rows; `times` has that of one row.
    """
    known = sorted(times)
    above = next((one for one in known if one >= rows), None)
    if above is None:
        return times[known[-1]] * rows / known[-1]
    if above == rows or above == known[0]:
        return times[above]
    below = known[known.index(above) - 1]
    part = (rows - below) / (above - below)
    return times[below] + part * (times[above] - times[below])


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageOperators:
    """Operators of images in a model."""

    operators: tuple[Operator, ...]  # Those whose images have any size, by falling share of time
    left: FoundOperators  # All others


def find_image_operators(
    graph: ModelGraph,
    found: FoundOperators,
    profile: ModelProfile,
    shapes: Mapping[str, OpenShape],
    extents: Mapping[str, int],
) -> ImageOperators:
    """Return the operators of a model whose images have any size, and what is left.

    What is fused and has no such kernel is taken apart where a part of it has one.

    Args:
        graph: The model in one of its shapes.
        found: Its operators in that shape.
        profile: Where its time goes at the point.
        shapes: Of its tensors, with names for open extents.
        extents: Of open dimensions at the point.
    """
    apart = {name: max(extent, LEAST_OPEN) for name, extent in extents.items()}
    groups: dict[str, list[OpenImages]] = {}
    left, refusals = list[Operator](), list(found.refusals)
    for operator in (*found.fused, *found.operators):
        for region in operator.regions:
            parts = [*_parts(graph, region, shapes, apart)]
            is_found = any(isinstance(made, OpenImages) for _, made in parts)
            for part, made in parts if is_found else [(region, parts[0][1])]:
                if isinstance(made, OpenImages):
                    groups.setdefault(key_of(made.workload), []).append(made)
                elif part.workload.blocked:  # which nothing else takes
                    name = graph.nodes[part.nodes[-1]].name
                    op_type = part.workload.op_type
                    refusals.append(Refusal(node=name, op_type=op_type, reason=made))
                else:
                    left.append(replace(operator, workload=part.workload, regions=(part,)))
    operators = [_operator(graph, profile, key, equal) for key, equal in groups.items()]
    return ImageOperators(
        operators=tuple(sorted(operators, key=lambda one: (-one.share, one.key))),
        left=FoundOperators(fused=(), operators=tuple(left), refusals=tuple(refusals)),
    )


def _parts(
    graph: ModelGraph,
    region: Region,
    shapes: Mapping[str, OpenShape],
    extents: Mapping[str, int],
) -> Iterator[tuple[Region, OpenImages | str]]:
    """Yield a region with its open images or why it has none; of one that has none, its parts."""
    found = (
        "padding that depends on the extents of the image"
        if any(_pads_by_extent(graph, graph.nodes[index]) for index in region.nodes)
        else find_open_images(region, shapes, extents)
    )
    parts: tuple[Region, ...] = ()
    if isinstance(found, str) and region.may_be_unfused:
        cut = unfuse(graph, region, fusible=FUSIBLE, anchors=anchors(), classify=classify)
        parts = cut.regions
    if not parts or any(part.nodes == region.nodes for part in parts):
        yield region, found
        return
    for part in parts:
        yield from _parts(graph, part, shapes, extents)


def _pads_by_extent(graph: ModelGraph, node: onnx.NodeProto) -> bool:
    """True for a node whose workload holds the padding of one size of the image alone."""
    weights = graph.find_info(node.input[1]) if len(node.input) > 1 else None
    attributes = attributes_of(node)
    if "auto_pad" not in attributes:
        return False
    operation = Operation(
        op_type=node.op_type, domain=node.domain, inputs=(), output="t0", attributes=attributes
    )
    return pads_by_extent(operation, weights.shape[2:] if weights is not None else ())


def _operator(
    graph: ModelGraph, profile: ModelProfile, key: str, equal: list[OpenImages]
) -> Operator:
    regions = tuple(one.region for one in equal)
    nodes = [graph.nodes[index] for region in regions for index in region.nodes]
    return Operator(
        workload=equal[0].workload,
        key=key,
        regions=regions,
        op_names=tuple(graph.nodes[region.nodes[-1]].name for region in regions),
        share=profile.share_of(nodes),
        default_us=profile.us_of(nodes),
    )
