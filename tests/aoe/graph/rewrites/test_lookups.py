"""Look-ups in tables."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from support.contracts.rewrites import (
    MakeModel,
    Refused,
    RewriteRuleTests,
    matches_of,
    rewritten,
    run_model,
    view,
)
from support.contracts.small_models import SmallModel

from aoe.errors import RunError
from aoe.graph.rewrites import lookups
from aoe.graph.rewrites.lookups import TABLES_RULE

ROWS = (5, 3, 7, 4, 6)
WIDTH = 3


def tables(
    count: int = 5,
    *,
    users: int = 4,
    taken: str = "Gather",
    dense: bool = False,
    flat: bool = False,
    dtype: int = TensorProto.INT64,
    widths: tuple[int, ...] = (WIDTH,),
    shared: bool = False,
) -> onnx.ModelProto:
    """Return a model that reads a row of each of some tables and puts the rows side by side.

    Args:
        count: Number of tables.
        users: Rows of the result.
        taken: The operator that takes a column of the numbers; "" where each has its own input.
        dense: True for a computed row in front of those of the tables.
        flat: True for results of two dimensions.
        dtype: Of the numbers.
        widths: Of the tables, from the first again behind the last.
        shared: True if all read one table.
    """
    model = SmallModel()
    numbers = "" if not taken else model.input(users, count, dtype=dtype)
    parts = []
    if taken == "Split":
        parts = model.ops("Split", numbers, model.constant([1] * count), outputs=count, axis=1)
    table = model.weight(ROWS[0], WIDTH)
    rows = []
    for at in range(count):
        if taken == "Gather":
            number = model.op("Gather", numbers, model.constant(np.array(at)), axis=1)
        elif taken == "Slice":
            bounds = ([at], [at + 1], [1])
            number = model.op("Slice", numbers, *map(model.constant, bounds))
            number = model.op("Squeeze", number, model.constant([1]))
        else:
            number = parts[at] if parts else model.input(users, 1, dtype=dtype)
        width = widths[at % len(widths)]
        made = table if shared else model.weight(ROWS[at % len(ROWS)], width)
        row = model.op("Gather", made, number, axis=0)
        if flat:
            row = model.op("Reshape", row, model.constant([users, width]))
        elif taken in ("Gather", "Slice"):
            row = model.op("Unsqueeze", row, model.constant([1]))
        rows.append(row)
    if dense:
        computed = model.op("Relu", model.input(users, WIDTH))
        rows.insert(0, computed if flat else model.op("Unsqueeze", computed, model.constant([1])))
    return model.model(model.op("Concat", *rows, axis=-1 if flat else 1))


class TestTablesRule(RewriteRuleTests):
    rule_name = "tables-joined"
    matching: Mapping[str, MakeModel] = {
        "columns, a row in front": lambda: tables(dense=True),
        "columns": tables,
        "slices": lambda: tables(taken="Slice", dense=True),
        "parts": lambda: tables(taken="Split"),
        "inputs, flat": lambda: tables(taken="", dense=True, flat=True),
        "inputs, int32": lambda: tables(taken="", dtype=TensorProto.INT32),
        "columns, flat": lambda: tables(flat=True),
        "one user": lambda: tables(users=1, dense=True),
        "two widths": lambda: tables(10, flat=True, widths=(2, 2, 2, 2, 2, 4, 4, 4, 4, 4)),
    }
    refused: Mapping[str, Refused] = {
        "three": (lambda: tables(3), ""),
        "widths in turn": (lambda: tables(flat=True, widths=(2, 4)), ""),
        "shared table": (lambda: tables(shared=True), ""),
    }

    @pytest.mark.parametrize("dtype", [TensorProto.INT64, TensorProto.INT32])
    def test_numbers_count_from_both_ends_of_their_own_table(self, dtype: int) -> None:
        original = tables(dtype=dtype)
        model, _ = rewritten(original, TABLES_RULE)
        kind = np.int64 if dtype == TensorProto.INT64 else np.int32
        for numbers in ([-1] * 5, [-rows for rows in ROWS], [rows - 1 for rows in ROWS]):
            feed = {"x0": np.array([numbers] * 4, kind)}
            expected = run_model(original, feed, optimize=False)
            np.testing.assert_array_equal(run_model(model, feed, optimize=True), expected)

    @pytest.mark.parametrize("at", range(len(ROWS)))
    @pytest.mark.parametrize("beyond", [0, -1])
    def test_a_number_its_table_does_not_have_stays_an_error(self, at: int, beyond: int) -> None:
        numbers = np.zeros((4, 5), np.int64)
        numbers[2, at] = ROWS[at] if beyond == 0 else -ROWS[at] - 1
        model, _ = rewritten(tables(), TABLES_RULE)
        with pytest.raises(RunError, match="out of data bounds"):
            run_model(model, {"x0": numbers}, optimize=True)

    def test_numbers_are_read_where_they_lie(self) -> None:
        model, _ = rewritten(tables(), TABLES_RULE)
        assert sum(node.op_type == "Gather" for node in model.graph.node) == 1

    def test_large_tables_are_not_copied(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(lookups, "_MOST_BYTES", 100)
        graph = view(tables())
        assert not matches_of(graph, TABLES_RULE)
        assert "MiB" in next(iter(TABLES_RULE.find(graph))).why  # type: ignore[union-attr]
