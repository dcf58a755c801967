"""Subgraphs and their strategies in words: those of CANN and, by the names of passes, ours."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from aoebank.formats.text.json_text import dumps_compact
from aoebank.formats.text.member_words import joined, value_text
from aoebank.model.json_value import JsonValue

_OP_NAME = re.compile(r'"op"\s*:\s*"([^"\\]{1,40})"')
_INPUT = re.compile(r'"in"\s*:\s*\[\[([0-9]+(?:, ?[0-9]+)*)\]')
# what this project's engine calls its passes, see docs/formats.md; any other name is told as it is
_KERNEL = re.compile(r"kernel\.([a-z0-9_]+)\.[a-z]+")
_RULE = re.compile(r"[A-Za-z0-9_.-]+@[0-9]{1,6}")
_PLAIN, _CHUNKS = "layout.plain", "chunks"


def subgraph_words(workload: JsonValue) -> str:
    """Return the operators of a subgraph, each with how often it is in it, and what it reads.

    >>> struct = [{"op": "Conv2D", "in": [[1, 4, 56, 56, 16], [-1]]}, {"op": "Relu"}]
    >>> subgraph_words({"feature": [{"struct": struct}]})
    'Conv2D + Relu: 1x4x56x56x16'
    """
    text = dumps_compact(workload)
    counts = Counter(_OP_NAME.findall(text))
    names = (f"{name} x{number}" if number > 1 else name for name, number in counts.items())
    read = _INPUT.search(text)
    shape = f": {joined([*map(int, read[1].split(','))])}" if read else ""
    return f"{' + '.join(names) or 'subgraph'}{shape}"


def partition_words(strategy: JsonValue) -> Iterator[str]:
    """Yield what is done to a subgraph in short, then pass by pass with the nodes it takes.

    >>> group = {"cut": [1, 1, 1], "ubPass": {"fold_scale@1": [0, 1], "kernel.rows.tile": [2]}}
    >>> print(*partition_words({"group": [group]}), sep="\\n")
    fold_scale@1, rows kernel for 1
      fold_scale@1: nodes 0, 1
      kernel.rows.tile: nodes 2
    """
    match strategy:
        case {"group": [Mapping() as only]}:
            yield _group_words(only)
            yield from _pass_lines(only)
        case {"group": [Mapping(), *_] as groups} if all(isinstance(g, Mapping) for g in groups):
            told = [_group_words(group) for group in groups if isinstance(group, Mapping)]
            yield f"{len(groups)} groups: {'; '.join(dict.fromkeys(told))}"
            for number, words in enumerate(told, 1):
                yield f"  group {number}: {words}"
        case _:
            return
    match strategy:
        case {"modelName": str(model)} if model:
            yield f"of model {value_text(model)}"


def _passes(group: Mapping[str, JsonValue]) -> Mapping[str, Sequence[JsonValue]]:
    passes = group.get("ubPass")
    members = passes.items() if isinstance(passes, Mapping) else ()
    return {name: nodes for name, nodes in members if isinstance(nodes, list)}


def _group_words(group: Mapping[str, JsonValue]) -> str:
    """Return the passes over the nodes of a group, in one line."""
    done = Counter(_pass_words(name, nodes) for name, nodes in _passes(group).items())
    words = [f"{number} x {word}" if number > 1 else word for word, number in done.items()]
    cut, fused = group.get("cut"), group.get("fusionType")
    if not words and isinstance(fused, list) and any(fused):
        words.append(f"{sum(map(bool, fused))} of {len(fused)} nodes fused")
    pieces = [one for one in cut if type(one) is int] if isinstance(cut, list) else []
    if _CHUNKS not in _passes(group) and max(pieces, default=1) > 1:
        words.append(f"batch in {max(pieces)} pieces")
    return ", ".join(words) or "as it is"


def _pass_words(name: str, nodes: Sequence[JsonValue]) -> str:
    kind = name.partition("#")[0]  # the second place of the same pass has a number behind it
    if kernel := _KERNEL.fullmatch(kind):
        return f"{kernel[1]} kernel for {len(nodes)}"
    if kind == _PLAIN:
        return "plain layout"
    if kind == _CHUNKS:
        return f"batch in {'+'.join(map(value_text, nodes))}"
    return kind if _RULE.fullmatch(kind) else f"{value_text(name)} for {len(nodes)}"


def _pass_lines(group: Mapping[str, JsonValue]) -> Iterator[str]:
    for name, nodes in _passes(group).items():
        if name not in (_PLAIN, _CHUNKS):
            numbers = ", ".join(map(value_text, nodes))
            yield f"  {name if name.isascii() else value_text(name)}: nodes {numbers}"
