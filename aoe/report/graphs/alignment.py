"""Which nodes of a tuned graph stand where which nodes of the imported one stood.

Both are in topological order. A tensor that is made in both, under its name or as ONNX Runtime
calls it in its blocked layout, leads from one to the other; what stands between two such tensors
on either side belongs together.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from enum import StrEnum

import onnx

from aoe.graph.rewrite import KERNEL_DOMAIN

_BLOCKED_SUFFIX = "_nchwc"


class Change(StrEnum):
    """What became of nodes."""

    SAME = "same"
    HOST = "by ONNX Runtime"
    FORM = "other form"
    KERNEL = "kernel"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlignedNodes:
    """Nodes that stand for each other.

    Attributes:
        before: Of the imported graph.
        after: Of the tuned one.
        change: What became of them.
    """

    before: tuple[onnx.NodeProto, ...]
    after: tuple[onnx.NodeProto, ...]
    change: Change


def aligned(
    before: Sequence[onnx.NodeProto],
    after: Sequence[onnx.NodeProto],
    *,
    is_optimized: bool,
    formed: Collection[str] = (),
) -> tuple[AlignedNodes, ...]:
    """Return all nodes of two graphs in groups, in order.

    Args:
        before: Nodes of the imported graph, topological.
        after: Those of the tuned one.
        is_optimized: True if the tuned graph is what ONNX Runtime made of it: it has fused and
            moved nodes, too.
        formed: Names of imported nodes at the end of subgraphs in another form.
    """
    names, others = ([_result(node) for node in nodes] for nodes in (before, after))
    matcher = SequenceMatcher(None, names, others, autojunk=False)
    found = []
    at, other = 0, 0
    for match in matcher.get_matching_blocks():
        for step in range(match.size):
            group = before[at : match.a + step + 1], after[other : match.b + step + 1]
            found.append(_group(*group, is_optimized=is_optimized, formed=formed))
            at, other = match.a + step + 1, match.b + step + 1
    if at < len(before) or other < len(after):
        found.append(_group(before[at:], after[other:], is_optimized=is_optimized, formed=formed))
    return tuple(found)


def _group(
    before: Sequence[onnx.NodeProto],
    after: Sequence[onnx.NodeProto],
    *,
    is_optimized: bool,
    formed: Collection[str],
) -> AlignedNodes:
    is_form = any(node.name in formed for node in before) or not is_optimized
    if any(node.domain == KERNEL_DOMAIN for node in after):
        change = Change.KERNEL
    elif [_operator(node) for node in before] == [_operator(node) for node in after]:
        change = Change.SAME
    else:
        change = Change.FORM if is_form else Change.HOST
    return AlignedNodes(before=tuple(before), after=tuple(after), change=change)


def _operator(node: onnx.NodeProto) -> tuple[str, str, int]:
    return node.domain, node.op_type, len(node.attribute)


def _result(node: onnx.NodeProto) -> str:
    name = next(filter(None, node.output), "")
    return name.removesuffix(_BLOCKED_SUFFIX)


def runs(groups: Sequence[AlignedNodes]) -> Iterator[list[AlignedNodes]]:
    """Yield neighbours of which nothing but their place is worth showing together, others alone."""
    quiet: list[AlignedNodes] = []
    for group in groups:
        if group.change is Change.SAME:
            quiet.append(group)
            continue
        if quiet:
            yield quiet
            quiet = []
        yield [group]
    if quiet:
        yield quiet
