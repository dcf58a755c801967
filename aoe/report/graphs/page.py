"""A tuned model beside the imported one, as one HTML page that needs nothing else."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from html import escape

import onnx

from aoe.om.file import Manifest
from aoe.profiling.comparing import ComparedProfiles
from aoe.report.graphs.alignment import AlignedNodes, Change, aligned, computed_tensors, runs
from aoe.report.graphs.drawing import draw_nodes
from aoe.report.graphs.style import GRAPH_STYLE
from aoe.report.graphs.times import Times, times_of, times_text
from aoe.report.timelines.style import STYLE
from aoe.report.tuned_model import threads_text

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
    body = [
        f"<h1>{escape(manifest.name)}</h1>",
        f"<p>{escape(_subtitle(manifest))}</p>",
        *_cards(manifest, before, after, groups, compared),
        '<section class="heads"><div>Imported</div><div>Tuned</div></section>',
        *_groups(groups, times, manifest),
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(manifest.name)}: before and after tuning</title>\n"
        f"<style>{STYLE}{GRAPH_STYLE}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(body)
        + "\n</main>\n</body>\n</html>\n"
    )


def _subtitle(manifest: Manifest) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in manifest.versions.items())
    return f"Tuned for {manifest.soc_version}, {threads_text(manifest)}; {versions}"


def _cards(
    manifest: Manifest,
    before: onnx.ModelProto,
    after: onnx.ModelProto,
    groups: Sequence[AlignedNodes],
    compared: ComparedProfiles | None,
) -> Iterator[str]:
    changed = Counter(group.change for group in groups for _ in group.before)
    forms = sum(len(use.op_names) for use in manifest.subgraphs)
    kernels = sum(len(use.op_names) for use in manifest.kernels)
    yield '<div class="cards">'
    yield _card("Nodes", f"{len(before.graph.node)} &rarr; {len(after.graph.node)}", "")
    yield _card("Left as they are", str(changed[Change.SAME]), "nodes of the imported model")
    yield _card("In another form", f"{forms}", _kinds(len(manifest.subgraphs), "distinct"))
    yield _card("Kernels", f"{kernels}", _kinds(len(manifest.kernels), "distinct"))
    if compared is not None:
        time = times_text((compared.before.model_us, compared.after.model_us))
        yield _card("Time of a run", time, f"with {threads_text(manifest)}")
    yield "</div>"


def _kinds(number: int, word: str) -> str:
    return f"places, {number} {word}"


def _card(label: str, value: str, note: str) -> str:
    return (
        f'<div class="card"><div class="label">{escape(label)}</div>'
        f'<div class="value">{value}</div><div class="note">{escape(note)}</div></div>'
    )


def _groups(
    groups: Sequence[AlignedNodes], times: Mapping[int, Times], manifest: Manifest
) -> Iterator[str]:
    """Yield all groups in their order, with what they take as far as that is known."""
    at = 0
    for run in runs(groups):
        found = [times[place] for place in range(at, at + len(run)) if place in times]
        both = (sum(before for before, _ in found), sum(now for _, now in found))
        yield from _run(run, manifest, f"; {times_text(both)}" if found else "")
        at += len(run)


def _run(run: Sequence[AlignedNodes], manifest: Manifest, time: str) -> Iterator[str]:
    if run[0].change is Change.SAME:
        nodes = [node for group in run for node in group.before]
        counted = Counter(node.op_type for node in nodes)
        words = ", ".join(f"{count} {name}" for name, count in counted.items())
        said = escape(f"{len(nodes)} as they are: {words}{time}")
        yield f'<details class="same"><summary>{said}</summary>'
        rows = "".join(f"<li>{escape(f'{node.op_type} {node.name}')}</li>" for node in nodes)
        yield f"<ol>{rows}</ol></details>"
        return
    (group,) = run
    yield f'<section class="pair {group.change.name.lower()}">'
    yield f"<p>{escape(_what(group, manifest) + time)}</p><div class='sides'>"
    yield f"<div>{draw_nodes(group.before, gone=True, label='imported nodes')}</div>"
    yield f"<div>{draw_nodes(group.after, gone=False, label='tuned nodes')}</div>"
    yield "</div></section>"


def _what(group: AlignedNodes, manifest: Manifest) -> str:
    """Return what was done with nodes: the rules their new names tell, kernels, or the kind."""
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
