"""What stands around a place of a model: a kernel does the same between the same neighbours."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from aoe.graph.model_graph import ModelGraph, attributes_of
from aoe.graph.regions import Region
from aoe.operators import op_key

_DIGITS = 16
"""Of the SHA-256, in hexadecimal: a model has a few hundred places."""
_PLAIN = (bool, int, float, str)


def surroundings_of(graph: ModelGraph, region: Region) -> str:
    """Return a digest of the nodes a place reads from and of those that read it.

    A node is its operator, its attributes and its shapes: one with another kernel size is another.
    """
    inside = set(region.nodes)
    before = [
        _words(graph, graph.producer.get(name))
        for name in region.inputs
        if name not in graph.initializers
    ]
    readers = graph.consumers.get(region.output, ())
    after = sorted(_words(graph, reader) for reader in readers if reader not in inside)
    text = json.dumps([before, after, region.output in graph.output_names])
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


def _words(graph: ModelGraph, index: int | None) -> str:
    """Return what a node is, the empty string for an input of the model."""
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
