"""A tuned model beside the imported one, as one HTML page that needs nothing else."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import onnx

from aoe.om.file import Manifest
from aoe.profiling.comparing import ComparedProfiles
from aoe.report.charts import draw_nodes
from aoe.report.graphs.alignment import AlignedNodes, Change, aligned, computed_tensors, runs
from aoe.report.quantities import time_text
from aoe.report.tuned_model import threads_text
from aoebank import Markup, element, html_page, pages

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
    times = {} if compared is None else times_of(groups, compared)
    return html_page(
        f"{manifest.name}: before and after tuning",
        pages.page_header(manifest.name, _subtitle(manifest)),
        pages.tiles(_tiles(manifest, before, after, groups, compared)),
        Markup('<section class="heads"><div>Imported</div><div>Tuned</div></section>'),
        *_groups(groups, times, manifest),
    )


def _subtitle(manifest: Manifest) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in manifest.versions.items())
    return f"Tuned for {manifest.soc_version}, {threads_text(manifest)}; {versions}"


def _tiles(
    manifest: Manifest,
    before: onnx.ModelProto,
    after: onnx.ModelProto,
    groups: Sequence[AlignedNodes],
    compared: ComparedProfiles | None,
) -> Iterator[tuple[str, str, str]]:
    changed = Counter(group.change for group in groups for _ in group.before)
    forms = sum(len(use.op_names) for use in manifest.subgraphs)
    kernels = sum(len(use.op_names) for use in manifest.kernels)
    nodes = f"{len(before.graph.node)} to {len(after.graph.node)}"
    yield nodes, "nodes, imported and tuned", ""
    yield str(changed[Change.SAME]), "nodes left as they are", ""
    yield f"{forms}", f"in another form, {len(manifest.subgraphs)} distinct", ""
    yield f"{kernels}", f"kernels, {len(manifest.kernels)} distinct", "good" if kernels else ""
    if compared is not None:
        time = times_text((compared.before.model_us, compared.after.model_us))
        yield time, f"Time of a run with {threads_text(manifest)}", ""


def _groups(
    groups: Sequence[AlignedNodes], times: Mapping[int, Times], manifest: Manifest
) -> Iterator[Markup]:
    """Yield all groups in their order, with what they take as far as that is known."""
    at = 0
    for run in runs(groups):
        found = [times[place] for place in range(at, at + len(run)) if place in times]
        both = (sum(before for before, _ in found), sum(now for _, now in found))
        yield from _run(run, manifest, f"; {times_text(both)}" if found else "")
        at += len(run)


def _run(run: Sequence[AlignedNodes], manifest: Manifest, time: str) -> Iterator[Markup]:
    if run[0].change is Change.SAME:
        nodes = [node for group in run for node in group.before]
        counted = Counter(node.op_type for node in nodes)
        words = ", ".join(f"{count} {name}" for name, count in counted.items())
        said = element("summary", f"{len(nodes)} as they are: {words}{time}")
        names = (element("li", f"{node.op_type} {node.name}") for node in nodes)
        yield element("details", said, element("ol", *names), class_="same")
        return
    (group,) = run
    sides = (
        element("div", Markup(draw_nodes(group.before, gone=True, label="imported nodes"))),
        element("div", Markup(draw_nodes(group.after, gone=False, label="tuned nodes"))),
    )
    what = element("p", _what(group, manifest) + time)
    kind = group.change.name.lower()
    yield element("section", what, element("div", *sides, class_="sides"), class_=f"pair {kind}")


def _what(group: AlignedNodes, manifest: Manifest) -> str:
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
