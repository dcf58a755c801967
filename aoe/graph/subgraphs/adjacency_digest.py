"""Digest of the nodes adjacent to an occurrence: a kernel does the same between equal ones."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Container, Iterable, Sequence
from typing import Any

from aoe.graph.model_graph import ModelGraph, attributes_of
from aoe.graph.regions import Region
from aoe.graph.subgraphs.segment import Segment
from aoe.operators import op_key

_DIGITS = 16
"""Of the SHA-256, in hexadecimal: a model has a few hundred places."""
_PLAIN = (bool, int, float, str)


def adjacency_of(graph: ModelGraph, region: Region) -> str:
    """Return a digest of the nodes a region reads from and of the nodes that read it.

    A node is its operator, its attributes and its shapes: one with another kernel size is another.
    """
    after, is_output = _after(graph, region.output, set(region.nodes))
    return _digest([_before(graph, region.inputs), after, is_output])


def adjacency_of_segment(graph: ModelGraph, segment: Segment) -> str:
    """Return a digest of the nodes a subgraph reads from and of the nodes that read its results.

    Args:
        graph: The whole it was cut out of.
        segment: The subgraph.
    """
    inside = set(segment.nodes)
    after = [_after(graph, name, inside) for name in segment.outputs]
    return _digest([_before(graph, segment.inputs), after])


def _before(graph: ModelGraph, inputs: Iterable[str]) -> list[str]:
    return [
        _words(graph, graph.producer.get(name)) for name in inputs if name not in graph.initializers
    ]


def _after(graph: ModelGraph, output: str, inside: Container[int]) -> tuple[list[str], bool]:
    """Return the nodes outside that read a result, and whether the model gives it out."""
    readers = graph.consumers.get(output, ())
    after = sorted(_words(graph, reader) for reader in readers if reader not in inside)
    return after, output in graph.output_names


def _digest(parts: Sequence[object]) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:_DIGITS]


def _words(graph: ModelGraph, index: int | None) -> str:
    """Return a node's operator and attributes as text, empty for an input of the model."""
    if index is None:
        return ""
    node = graph.nodes[index]
    attributes = {
        name: str(value) for name, value in attributes_of(node).items() if _is_plain(value)
    }
    shapes = [_shape(graph, name) for name in (*node.input, *node.output)]
    return json.dumps([*op_key(node), sorted(attributes.items()), shapes])


def _shape(graph: ModelGraph, name: str) -> str:
    info = graph.find_info(name) if name else None
    return f"{info.dtype}{list(info.shape)}" if info is not None else ""


def _is_plain(value: Any) -> bool:
    return isinstance(value, _PLAIN) or (isinstance(value, tuple) and all(map(_is_plain, value)))
