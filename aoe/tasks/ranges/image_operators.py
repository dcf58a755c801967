"""Operators whose images have any size, each as one workload with open axes.

A kernel takes its extents from each call. It is looked up and searched at one point of the range,
which its workload says; see `image_points` for the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import onnx

from aoe.bank.operators import key_of
from aoe.graph.extents import OpenShape
from aoe.graph.model_graph import ModelGraph, attributes_of
from aoe.graph.open_images import LEAST_OPEN, OpenImages, find_open_images
from aoe.graph.regions import Refusal, Region, take_apart
from aoe.kernels.registry import FUSIBLE, anchors, classify
from aoe.operators.extents import pads_by_extent
from aoe.ort.profile import ModelProfile
from aoe.tasks.operators.operators import FoundOperators, Operator
from aoe.workload import Operation


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageOperators:
    """What is found in a model.

    Attributes:
        operators: Those whose images have any size, by falling share of time.
        left: All others.
    """

    operators: tuple[Operator, ...]
    left: FoundOperators


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
    if isinstance(found, str) and region.may_be_taken_apart:
        cut = take_apart(graph, region, fusible=FUSIBLE, anchors=anchors(), classify=classify)
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
