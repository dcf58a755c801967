"""A tuned model beside the imported one, as one HTML page that needs nothing else.

Nodes of both graphs are aligned in topological order. A tensor that is made in both, under its name
or as ONNX Runtime calls it in its blocked layout, leads from one to the other, and so does what a
node of ONNX Runtime's, or a kernel, is known to compute; nodes between two such tensors on either
side belong together.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from enum import StrEnum
from types import MappingProxyType

import onnx

from aoe.graph.origins import Origins
from aoe.graph.rewrite import inline_kernels
from aoe.om.file import Manifest
from aoe.profiling.comparing import ComparedProfiles
from aoe.report.pages import page
from aoe.report.quantities import time_text
from aoe.workload import KERNEL_DOMAIN

Times = tuple[float, float]
"""In us, before and now."""
_RULE = re.compile(r"([A-Za-z0-9_.-]+)@[0-9]+")


def render_graphs(
    manifest: Manifest,
    before: onnx.ModelProto,
    after: onnx.ModelProto,
    compared: ComparedProfiles | None = None,
) -> str:
    """Return the page: figures, then both graphs in their order with what became of each node.

    Args:
        manifest: Of the tuned model.
        before: The imported model.
        after: The tuned one; without weights, as both are read only.
        compared: Where the time of both goes; None leaves times out.
    """
    formed = {name for use in manifest.subgraphs for name in use.op_names}
    groups = aligned(
        before.graph.node,
        after.graph.node,
        is_optimized=bool(manifest.kernels),
        formed=formed,
        computed=computed_tensors(before, after) if manifest.kernels else {},
    )
    return page(
        "graphs.html",
        manifest=manifest,
        counts={
            "before": len(before.graph.node),
            "after": len(after.graph.node),
            "same": sum(len(one.before) for one in groups if one.change is Change.SAME),
            "formed": sum(len(use.op_names) for use in manifest.subgraphs),
            "kernels": sum(len(use.op_names) for use in manifest.kernels),
        },
        time=times_text((compared.before.model_us, compared.after.model_us)) if compared else "",
        runs=_told_runs(groups, times_of(groups, compared) if compared else {}, manifest),
    )


def _told_runs(
    groups: Sequence[AlignedNodes], times: Mapping[int, Times], manifest: Manifest
) -> Iterator[tuple[list[AlignedNodes], str]]:
    """Yield all groups in their order with what became of them, and their time if it is known."""
    at = 0
    for run in runs(groups):
        found = [times[place] for place in range(at, at + len(run)) if place in times]
        both = (sum(before for before, _ in found), sum(now for _, now in found))
        words = _same_text(run) if run[0].change is Change.SAME else _change_text(run[0], manifest)
        yield run, f"{words}; {times_text(both)}" if found else words
        at += len(run)


def _same_text(run: Sequence[AlignedNodes]) -> str:
    counted = Counter(node.op_type for group in run for node in group.before)
    words = ", ".join(f"{count} {name}" for name, count in counted.items())
    return f"{counted.total()} as they are: {words}"


def _change_text(group: AlignedNodes, manifest: Manifest) -> str:
    """Return the change of nodes in words: rules, kernels, or the kind of change."""
    rules = (_RULE.findall(use.strategy) for use in manifest.subgraphs)
    forms = [
        rule
        for rule in dict.fromkeys(rule for found in rules for rule in found)
        if any(f"/{rule}/" in f"{node.name}/" for node in group.after)
    ]
    kernels = [
        f"kernel {use.name}"
        for use in manifest.kernels
        if any(node.op_type == use.name for node in group.after)
    ]
    return "; ".join([*forms, *kernels]) or group.change.value


def times_of(groups: Sequence[AlignedNodes], compared: ComparedProfiles) -> Mapping[int, Times]:
    """Return the time of each group by its place; operators of two groups are the last one's.

    Args:
        groups: All nodes of the model.
        compared: Where its time went before tuning and where it goes now.
    """
    place = {node.name: at for at, group in enumerate(groups) for node in group.after}
    place |= {node.name: at for at, group in enumerate(groups) for node in group.before}
    found: dict[int, Times] = {}
    for one in compared.operators:
        own = [*one.op_names, *(operator.name for operator in (*one.before, *one.after))]
        at = max((place[name] for name in own if name in place), default=None)
        if at is not None:
            before_us, now_us = found.get(at, (0.0, 0.0))
            found[at] = (before_us + one.before_us, now_us + one.after_us)
    return found


def times_text(times: Times) -> str:
    """Return both times in words."""
    before_us, now_us = times
    return f"{time_text(before_us)} \N{RIGHTWARDS ARROW} {time_text(now_us)}"


_BLOCKED_SUFFIX = "_nchwc"


class Change(StrEnum):
    """Change of aligned nodes by tuning."""

    SAME = "same"
    HOST = "by ONNX Runtime"
    FORM = "other form"
    KERNEL = "kernel"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlignedNodes:
    """Nodes that stand for each other."""

    before: tuple[onnx.NodeProto, ...]  # Of the imported graph
    after: tuple[onnx.NodeProto, ...]  # Of the tuned one
    change: Change  # What became of them


def aligned(
    before: Sequence[onnx.NodeProto],
    after: Sequence[onnx.NodeProto],
    *,
    is_optimized: bool,
    formed: Collection[str] = (),
    computed: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> tuple[AlignedNodes, ...]:
    """Return all nodes of two graphs in groups, in order.

    Args:
        before: Nodes of the imported graph, topological.
        after: Those of the tuned one.
        is_optimized: True if the tuned graph is what ONNX Runtime made of it: it has fused and
            moved nodes, too.
        formed: Names of imported nodes at the end of subgraphs in another form.
        computed: See `computed_tensors`; what is not known leads by the tensor's own name. Nodes
            that are computed together stand together, wherever the imported graph has them.
    """
    before = _together(before, [computed.get(node.name, ()) for node in after])
    names = [_result(node) for node in before]
    others = [computed[node.name][-1] if node.name in computed else _result(node) for node in after]
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


def computed_tensors(
    before: onnx.ModelProto, after: onnx.ModelProto
) -> Mapping[str, Sequence[str]]:
    """Return the imported tensors each node of an optimised graph stands for, by the node's name.

    In its blocked layout ONNX Runtime gives tensors names of its own.

    Args:
        before: The imported model.
        after: What ONNX Runtime made of it, with kernels.
    """
    spelled_out = inline_kernels(after)
    origins, nodes = Origins(before, spelled_out.proto), spelled_out.proto.graph.node
    found = {
        name: [_result(one) for at in parts for one in origins.fused(nodes[at])]
        for name, parts in spelled_out.parts.items()
    }
    return {name: tensors for name, tensors in found.items() if tensors}


def _together(
    nodes: Sequence[onnx.NodeProto], computed: Sequence[Sequence[str]]
) -> list[onnx.NodeProto]:
    """Return imported nodes in the order in which they are computed; others stay in front of one.

    Args:
        nodes: The imported ones.
        computed: The tensors each tuned node stands for, in its order.
    """
    place = {name: number for number, names in enumerate(computed) for name in names}
    places: list[int] = []
    following = len(computed)
    for node in reversed(nodes):
        following = place.get(_result(node), following)
        places.append(following)
    ordered = sorted(zip(reversed(places), range(len(nodes)), strict=True))
    return [nodes[number] for _, number in ordered]


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
