"""A tuned model beside the imported one, as one HTML page that needs nothing else."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from html import escape

import onnx

from aoe.om.file import Manifest
from aoe.report.graphs.alignment import AlignedNodes, Change, aligned, computed_tensors, runs
from aoe.report.graphs.drawing import draw_nodes
from aoe.report.graphs.style import GRAPH_STYLE
from aoe.report.timelines.style import STYLE
from aoe.report.tuned_model import threads_text

_RULE = re.compile(r"([A-Za-z0-9_.-]+)@[0-9]+")


def render_graphs(manifest: Manifest, before: onnx.ModelProto, after: onnx.ModelProto) -> str:
    """Return the page: figures, then both graphs in their order with what became of each node.

    Args:
        manifest: Of the tuned model.
        before: The imported model.
        after: The tuned one; without weights, as both are read only.
    """
    formed = {name for use in manifest.subgraphs for name in use.op_names}
    groups = aligned(
        before.graph.node,
        after.graph.node,
        is_optimized=bool(manifest.kernels),
        formed=formed,
        computed=computed_tensors(before, after) if manifest.kernels else {},
    )
    body = [
        f"<h1>{escape(manifest.name)}</h1>",
        f"<p>{escape(_subtitle(manifest))}</p>",
        *_cards(manifest, before, after, groups),
        '<section class="heads"><div>Imported</div><div>Tuned</div></section>',
        *(part for run in runs(groups) for part in _run(run, manifest)),
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
) -> Iterator[str]:
    changed = Counter(group.change for group in groups for _ in group.before)
    forms = sum(len(use.op_names) for use in manifest.subgraphs)
    kernels = sum(len(use.op_names) for use in manifest.kernels)
    yield '<div class="cards">'
    yield _card("Nodes", f"{len(before.graph.node)} &rarr; {len(after.graph.node)}", "")
    yield _card("Left as they are", str(changed[Change.SAME]), "nodes of the imported model")
    yield _card("In another form", f"{forms}", _kinds(len(manifest.subgraphs), "distinct"))
    yield _card("Kernels", f"{kernels}", _kinds(len(manifest.kernels), "distinct"))
    yield "</div>"


def _kinds(number: int, word: str) -> str:
    return f"places, {number} {word}"


def _card(label: str, value: str, note: str) -> str:
    return (
        f'<div class="card"><div class="label">{escape(label)}</div>'
        f'<div class="value">{value}</div><div class="note">{escape(note)}</div></div>'
    )


def _run(run: Sequence[AlignedNodes], manifest: Manifest) -> Iterator[str]:
    if run[0].change is Change.SAME:
        nodes = [node for group in run for node in group.before]
        counted = Counter(node.op_type for node in nodes)
        words = ", ".join(f"{count} {name}" for name, count in counted.items())
        yield f'<details class="same"><summary>{len(nodes)} as they are: {escape(words)}</summary>'
        rows = "".join(f"<li>{escape(f'{node.op_type} {node.name}')}</li>" for node in nodes)
        yield f"<ol>{rows}</ol></details>"
        return
    (group,) = run
    yield f'<section class="pair {group.change.name.lower()}">'
    yield f"<p>{escape(_what(group, manifest))}</p><div class='sides'>"
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
