"""A tuned model beside the imported one, as one HTML page that needs nothing else."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import onnx

from aoe.om.file import Manifest
from aoe.profiling.comparing import ComparedProfiles
from aoe.report.alignment import AlignedNodes, Change, aligned, computed_tensors, runs
from aoe.report.pages import page
from aoe.report.quantities import time_text

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
