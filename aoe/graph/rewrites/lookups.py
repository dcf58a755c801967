"""Rules for look-ups in tables: embeddings of recommenders."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import prod

import numpy as np
import onnx

from aoe.graph.model_graph import ModelGraph
from aoe.graph.rewrites.editing import Rewriting, refuse
from aoe.graph.rewrites.matching import (
    Array,
    Shape,
    any_shape_of,
    attribute,
    integers_of,
    is_op,
    nodes_of,
    value_of,
)
from aoe.graph.rewrites.protocol import Finding, RewriteRule
from aoe.graph.walking import without_reshapes

# ---- One look-up for many tables that are read side by side ----
# A recommender reads a row of each of some dozen tables, and puts the rows side by side. For each
# table that is a column of numbers, a Gather, a change of shape: three nodes for a row of 64
# numbers. As one table with all rows it is one Gather, in front of which the numbers are shifted.
#
# 64 users, 26 tables of 10,000 rows of 64: 162 us as written, 66 so, 51 of them the Gather; 9 us
# are what keeps numbers an error that no table has (onnxruntime 1.32, one thread of a busy Xeon of
# family 6, model 167, medians of 60, 2026-11-29).

_JOINED = "tables-joined"
_LEAST_TABLES = 4
"""Fewer have no more nodes than what takes their place."""
_MOST_BYTES = 512 << 20
"""Of all tables: they are copied."""
_INTEGERS = ("int32", "int64")
_BOUNDS = ("starts", "ends", "axes", "steps")


@dataclass(frozen=True, slots=True, kw_only=True)
class _LookUp:
    """Rows of one table, in the order of their numbers, as an input of a Concat."""

    nodes: tuple[int, ...]  # Indices of the Gather and of what changes its shape
    table: Array  # (rows, width)
    numbers: str  # Name of the numbers of the rows, or of the tensor of which they are a column
    column: int | None  # The column; None for all of it
    dtype: str  # Of the numbers
    shape: Shape  # Of the input of the Concat: (count, 1, width) or (count, width)


def find_tables(graph: ModelGraph) -> Iterator[Finding]:
    """Yield Concats of the rows of several tables."""
    for index, node in nodes_of(graph, "Concat"):
        found = [_look_up(graph, name) for name in node.input]
        runs = _runs(graph, index, found)
        if not runs:
            continue
        gone = [item for first, last in runs for item in found[first:last] if item is not None]
        nodes = [index, *(at for item in gone for at in item.nodes)]
        size = sum(item.table.nbytes for item in gone)
        if size > _MOST_BYTES:
            why = f"tables of {size >> 20} MiB, more than {_MOST_BYTES >> 20}"
            yield refuse(graph, _JOINED, nodes, why)
            continue
        rewriting = Rewriting(graph, _JOINED, nodes)
        inputs, at = list[str](), 0
        for first, last in runs:
            inputs += node.input[at:first]
            some = [item for item in found[first:last] if item is not None]
            is_all = last - first == len(node.input)
            inputs.append(_joined(graph, rewriting, some, node.output[0] if is_all else ""))
            at = last
        inputs += node.input[at:]
        if len(inputs) > 1:
            rewriting.copy(node, inputs, node.output[0])
        yield rewriting.finish()


def _runs(
    graph: ModelGraph, concat: int, found: Sequence[_LookUp | None]
) -> tuple[tuple[int, int], ...]:
    """Return first and last but one of the inputs of a Concat that become one look-up each."""
    node = graph.nodes[concat]
    runs, at = [], 0
    for key, some in groupby(found, _kind):
        count = len(list(some))
        rank = 0 if key is None else len(key[0])
        if count >= _LEAST_TABLES and rank and attribute(node, "axis", 0) in (1, 1 - rank):
            runs.append((at, at + count))
        at += count
    return tuple(runs)


def _kind(found: _LookUp | None) -> tuple[Shape, str, str] | None:
    """Return shape, index type and table type of a look-up: joined look-ups share all three."""
    return None if found is None else (found.shape, found.dtype, found.table.dtype.name)


def _look_up(graph: ModelGraph, name: str) -> _LookUp | None:
    """Return the look-up in a constant table that makes a tensor, None if there is none."""
    made, nodes = without_reshapes(graph, name)
    at = graph.producer.get(made)
    shape = any_shape_of(graph, name)
    if at is None or shape is None or not is_op(graph.nodes[at], "Gather"):
        return None
    gather = graph.nodes[at]
    asked = graph.find_info(gather.input[1])
    table = value_of(graph, gather.input[0])
    is_alone = graph.consumers.get(gather.input[0], ()) == (at,)
    if table is None or table.ndim != 2 or attribute(gather, "axis", 0) != 0 or not is_alone:
        return None
    if asked is None or asked.dtype not in _INTEGERS or 0 in (*asked.shape, *table.shape):
        return None
    count, width = prod(asked.shape), table.shape[1]
    if shape not in ((count, 1, width), (count, width)):
        return None
    numbers, column = _column(graph, without_reshapes(graph, gather.input[1])[0], count)
    return _LookUp(
        nodes=(*nodes, at),
        table=table,
        numbers=numbers,
        column=column,
        dtype=asked.dtype,
        shape=shape,
    )


def _column(graph: ModelGraph, name: str, count: int) -> tuple[str, int | None]:
    """Return the matrix of which a tensor of `count` numbers is a column, and which column."""
    at = graph.producer.get(name)
    node = None if at is None else graph.nodes[at]
    whole = None if node is None else any_shape_of(graph, node.input[0])
    if node is None or whole is None or len(whole) != 2 or whole[0] != count:
        return name, None
    column = _column_of(graph, node, name, whole[1])
    return (name, None) if column is None else (node.input[0], column)


def _column_of(graph: ModelGraph, node: onnx.NodeProto, name: str, columns: int) -> int | None:
    """Return the column a node takes of a matrix, None if it takes none or more than one."""
    found: int | None = None
    if is_op(node, "Gather") and attribute(node, "axis", 0) in (1, -1):
        value = value_of(graph, node.input[1])
        found = int(value.reshape(-1)[0]) if value is not None and value.size == 1 else None
        found = found + columns if found is not None and found < 0 else found
    elif is_op(node, "Slice"):
        starts, ends, axes, steps = (
            integers_of(graph, node, key, at) for at, key in enumerate(_BOUNDS, 1)
        )
        is_one = axes in ((1,), (-1,)) and steps in ((), (1,)) and starts and starts[0] >= 0
        found = starts[0] if is_one and starts and ends == (starts[0] + 1,) else None
    elif is_op(node, "Split") and attribute(node, "axis", 0) in (1, -1):
        found = list(node.output).index(name) if len(node.output) == columns else None
        shape = any_shape_of(graph, name)
        found = found if shape is not None and shape[1] == 1 else None
    return found if found is not None and found < columns else None


def _joined(graph: ModelGraph, rewriting: Rewriting, found: Sequence[_LookUp], output: str) -> str:
    """Add one look-up in the place of several, and return the name of its result."""
    dtype = np.dtype(found[0].dtype)
    rows = np.array([item.table.shape[0] for item in found], dtype)
    first = np.concatenate([[0], np.cumsum(rows[:-1])]).astype(dtype)
    numbers = _numbers(graph, rewriting, found)
    # a number below 0 counts from the end of its own table
    shifted = rewriting.add("Add", [numbers, rewriting.constant(first, "first")])
    wrapped = rewriting.add("Add", [numbers, rewriting.constant(first + rows, "behind")])
    zero = rewriting.constant(np.zeros((), dtype), "zero")
    is_below = rewriting.add("Less", [numbers, zero])
    place = rewriting.add("Where", [is_below, wrapped, shifted])
    # and one that its table does not have, which is an error, is not a row of another table
    least = rewriting.constant(-rows - 1, "least")
    is_large = rewriting.add("Less", [least, numbers])
    is_small = rewriting.add("Less", [numbers, rewriting.constant(rows, "rows")])
    exists = rewriting.add("And", [is_large, is_small])
    nowhere = rewriting.constant(np.array(rows.sum(), dtype), "nowhere")
    place = rewriting.add("Where", [exists, place, nowhere])
    table = rewriting.constant(np.concatenate([item.table for item in found]), "table")
    if len(found[0].shape) == 3:
        return rewriting.add("Gather", [table, place], output, axis=0)
    made = rewriting.add("Gather", [table, place], axis=0)
    count, width = found[0].shape
    return rewriting.reshape(made, (count, len(found) * width), output)


def _numbers(graph: ModelGraph, rewriting: Rewriting, found: Sequence[_LookUp]) -> str:
    """Return the numbers of rows, (count, tables)."""
    count, tensors = found[0].shape[0], {item.numbers for item in found}
    columns = [item.column for item in found]
    if len(tensors) == 1 and None not in columns:
        (whole,) = tensors
        if any_shape_of(graph, whole) == (count, len(found)) and columns == [*range(len(found))]:
            return whole
        chosen = rewriting.integers([column or 0 for column in columns], "columns")
        return rewriting.add("Gather", [whole, chosen], axis=1)
    parts = []
    for item in found:
        name = item.numbers
        if item.column is not None:
            name = rewriting.add(
                "Gather", [name, rewriting.integers([item.column], "column")], axis=1
            )
        elif any_shape_of(graph, name) != (count, 1):
            name = rewriting.reshape(name, (count, 1), what="apart")
        parts.append(name)
    return rewriting.add("Concat", parts, axis=1)


TABLES_RULE = RewriteRule(
    name=_JOINED,
    what="Rows of several tables side by side become rows of one table",
    needs=f"at least {_LEAST_TABLES} constant tables of one width, of {_MOST_BYTES >> 20} MiB at"
    " most, which nobody else reads",
    find=find_tables,
    op_types=("Gather", "Concat"),
)
