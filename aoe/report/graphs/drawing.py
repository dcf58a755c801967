"""Nodes as SVG: boxes in their order, lines from who makes a tensor to who reads it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import onnx

from aoe.workload import KERNEL_DOMAIN
from aoebank import pages

WIDTH = 500
_BOX, _STEP, _LEFT, _TOP = 30, 44, 78, 14
_LANE, _LANES = 11, 6
_CHARACTERS = 44
_SHORTEST = 8


def draw_nodes(nodes: Sequence[onnx.NodeProto], gone: bool, label: str) -> str:
    """Return an `<svg>` element.

    Args:
        nodes: In topological order.
        gone: True if they are not in the tuned model.
        label: What is drawn, for who cannot see it.
    """
    height = _TOP * 2 + max(0, len(nodes) - 1) * _STEP + _BOX
    size = f'viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
    parts = [
        f'<svg class="nodes" {size} role="img" aria-label="{pages.escape(label)}">',
        *_lines(nodes),
        *(_box(node, number, gone=gone) for number, node in enumerate(nodes)),
        "</svg>",
    ]
    return "\n".join(parts)


def _lines(nodes: Sequence[onnx.NodeProto]) -> Iterator[str]:
    makers = {name: at for at, node in enumerate(nodes) for name in node.output if name}
    lane = 0
    for at, node in enumerate(nodes):
        sources = {makers[name] for name in node.input if name in makers}
        if at - 1 in sources:
            x = _LEFT + 24
            yield f'<path class="edge" d="M{x} {_y(at - 1) + _BOX}V{_y(at)}"/>'
        for source in sorted(sources - {at - 1}):
            lane = lane % _LANES + 1
            x, top, bottom = _LEFT - lane * _LANE, _y(source) + _BOX / 2, _y(at) + _BOX / 2
            yield f'<path class="edge" d="M{_LEFT} {top}H{x}V{bottom}H{_LEFT}"/>'


def _box(node: onnx.NodeProto, number: int, *, gone: bool) -> str:
    kind = "kernel" if node.domain == KERNEL_DOMAIN else "gone" if gone else "new"
    y = _y(number)
    operator = f"{node.domain.rpartition('.')[2]}:{node.op_type}" if node.domain else node.op_type
    inputs = ", ".join(filter(None, node.input))
    title = f"{node.name}\n{operator}({inputs}) -> {', '.join(filter(None, node.output))}"
    name = node.name.removesuffix(f"_{node.op_type}")  # as kernels are called after their operator
    shown = _end_of(operator, _CHARACTERS - _SHORTEST)
    name = _end_of(name, _CHARACTERS - len(shown))
    return (
        f'<g class="{kind}"><title>{pages.escape(title)}</title>'
        f'<rect x="{_LEFT}" y="{y}" width="{WIDTH - _LEFT - 8}" height="{_BOX}" rx="5"/>'
        f'<text x="{_LEFT + 10}" y="{y + 20}"><tspan class="op">{pages.escape(shown)}</tspan>'
        f'<tspan class="of" dx="8">{pages.escape(name)}</tspan></text></g>'
    )


def _end_of(text: str, room: int) -> str:
    """Return the end of a text, which says more than its beginning, where there is no room."""
    return text if len(text) <= room else f"…{text[1 - room :]}"


def _y(number: int) -> int:
    return _TOP + number * _STEP
