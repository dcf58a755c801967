"""Rows of several tables side by side: the kernels, and the models they are cut out of."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.reference
import pytest
from onnx import TensorProto
from support.contracts.kernels import (
    SEED,
    CompiledKernel,
    KernelFamilyTests,
    guessed_schedules,
    operation,
    plain,
)
from support.contracts.small_models import SmallModel
from support.engine.first_guesses import FirstGuesses
from support.engine.offline import regions_of, view_of

from aoe.graph.workload_model import random_inputs, workload_model
from aoe.kernels.registry import get_family
from aoe.target import Target
from aoe.workload import Operation, TensorSpec, Workload

Array = np.ndarray[Any, Any]
NAME = "look_ups"


def side_by_side(
    *tables: tuple[int, int],
    users: int = 3,
    bag: int = 1,
    dense: int = 0,
    dtype: str = "int64",
    column: bool = False,
    axis: int = -1,
) -> Workload:
    """Return rows of some tables, and a dense row behind them, as one row.

    Args:
        tables: Rows and width of each.
        users: Rows of the result.
        bag: Rows of a table in a row of the result.
        dense: Columns of the dense row.
        dtype: Of the indices.
        column: True for indices that are columns of one matrix, in the order of the tables.
        axis: Of the Concat.
    """
    inputs = [plain(*shape, constant=True) for shape in tables]
    numbers = (users, len(tables) * bag) if column else (users, bag)
    count = 1 if column else len(tables)
    inputs += [plain(*numbers, dtype=dtype)] * count
    steps, parts = list[Operation](), list[str]()
    for at, (_, width) in enumerate(tables):
        index = f"x{len(tables) + (0 if column else at)}"
        if column:
            ends = {"axes": (1,), "starts": (at * bag,), "ends": ((at + 1) * bag,)}
            steps.append(operation("Slice", index, f"t{at}s", **ends))
            index = f"t{at}s"
        steps.append(operation("Gather", f"x{at} {index}", f"t{at}g", axis=0))
        steps.append(operation("Reshape", f"t{at}g", f"t{at}r", shape=(users, bag * width)))
        parts.append(f"t{at}r")
    if dense:
        parts.append(f"x{len(inputs)}")
        inputs.append(plain(users, dense))
    steps.append(operation("Concat", " ".join(parts), "t", axis=axis))
    columns = sum(bag * width for _, width in tables) + dense
    return Workload(
        op_type=NAME,
        inputs=tuple(inputs),
        operations=tuple(steps),
        output=plain(users, columns),
    )


def _changed(workload: Workload, number: int, spec: TensorSpec) -> Workload:
    inputs = list(workload.inputs)
    inputs[number] = spec
    return Workload(
        op_type=workload.op_type,
        inputs=tuple(inputs),
        operations=workload.operations,
        output=workload.output,
    )


class TestLookUps(KernelFamilyTests):
    family_name = NAME
    cases: Mapping[str, Workload] = {
        "odd widths, a dense row": side_by_side((7, 5), (3, 33), (11, 1), dense=13),
        "columns of int32": side_by_side((5, 64), (9, 64), (4, 64), dtype="int32", column=True),
        "one row": side_by_side((5, 16), (8, 16), users=1, dense=16),
        "a few rows of each": side_by_side((5, 8), (6, 24), bag=3, users=4),
        "columns of a few rows": side_by_side((5, 8), (6, 16), bag=2, users=5, column=True),
        "narrow": side_by_side((5, 1), (6, 2), users=2),
        "many users": side_by_side((100, 64), (200, 32), users=257, column=True),
    }
    refused = (
        (side_by_side((5, 8)), "one look-up alone"),
        (_changed(side_by_side((5, 8), (6, 8)), 1, plain(6, 8)), "a table that is no constant"),
        (
            Workload(
                op_type=NAME,
                inputs=(plain(5, 8, constant=True), plain(3, dtype="int64")),
                operations=(operation("Gather", "x0 x1", axis=0),),
                output=plain(3, 8),
            ),
            "no Concat joins",
        ),
        (side_by_side((5, 1 << 14), (6, 16)), "rows of 16400 columns"),
        (side_by_side(*[(5, 8)] * 63, column=True), "64 tensors are too many"),
    )


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("column", [False, True])
def test_onnx_reference_agrees(dtype: str, column: bool) -> None:
    workload = side_by_side((5, 17), (31, 3), dense=7, users=9, dtype=dtype, column=column)
    feed = random_inputs(workload, SEED)
    assert feed["x2"].min() < 0 < feed["x2"].max()
    model = workload_model(workload, seed=SEED)
    constants = {one.name: onnx.numpy_helper.to_array(one) for one in model.graph.initializer}
    expected = onnx.reference.ReferenceEvaluator(model).run(None, dict(feed))[0]
    for schedule in guessed_schedules(workload):
        found = CompiledKernel(workload, schedule).run({**constants, **feed})
        np.testing.assert_array_equal(found, expected)


def test_each_column_of_indices_is_checked_by_its_own_table() -> None:
    indexed = get_family(NAME).pipeline(side_by_side((5, 4), (9, 4), column=True)).indexed
    assert [(one.offset, one.length, one.strides[0]) for one in indexed] == [(0, 5, 2), (1, 9, 2)]
    (alike,) = get_family(NAME).pipeline(side_by_side((5, 4), (5, 4), column=True)).indexed
    assert (alike.length, alike.counts) == (5, (1, 6))


# ---- models ----

ROWS = (5, 3, 7)
WIDTH = 19


def recommender(
    *,
    users: int = 4,
    taken: str = "Gather",
    dtype: int = TensorProto.INT64,
    read_again: bool = False,
    shared: bool = False,
) -> onnx.ModelProto:
    """Return a model that reads a row of each of three tables and puts them behind a dense one.

    Args:
        users: Rows of the result.
        taken: The operator that takes a column of the numbers; "" where each has its own input.
        dtype: Of the numbers.
        read_again: True if the second row is a result of the model, too.
        shared: True if the first and the last look-up read the same table.
    """
    model = SmallModel()
    numbers = model.input(users, len(ROWS), dtype=dtype) if taken else ""
    columns = list[str]()
    if taken == "Split":
        columns = model.ops("Split", numbers, model.constant([1] * 3), outputs=3, axis=1)
        columns = [model.op("Squeeze", one, model.constant([1])) for one in columns]
    tables = [model.weight(rows, WIDTH) for rows in ROWS]
    tables[2] = tables[0] if shared else tables[2]
    rows = [model.op("Unsqueeze", model.op("Relu", model.input(users, WIDTH)), model.constant([1]))]
    for at, table in enumerate(tables):
        if taken == "Gather":
            number = model.op("Gather", numbers, model.constant(np.array(at)), axis=1)
        else:
            number = columns[at] if columns else model.input(users, dtype=dtype)
        row = model.op("Gather", table, number, axis=0)
        rows.append(model.op("Unsqueeze", row, model.constant([1])))
    results = [model.op("Concat", *rows, axis=1)]
    if read_again:
        results.append(model.op("Neg", rows[2]))
    return model.model(*results)


def _feed(model: onnx.ModelProto, numbers: Array | None = None) -> dict[str, Array]:
    rng, feed = np.random.default_rng(SEED), dict[str, Array]()
    for value in model.graph.input:
        kind = value.type.tensor_type
        shape = [one.dim_value for one in kind.shape.dim]
        if kind.elem_type == TensorProto.FLOAT:
            feed[value.name] = rng.standard_normal(shape).astype(np.float32)
            continue
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        drawn = rng.integers(-3, 3, shape) if numbers is None else numbers
        feed[value.name] = drawn.astype(dtype)
    return feed


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"taken": "Split", "dtype": TensorProto.INT32},
        {"taken": "", "users": 1},
        {"shared": True},
        {"read_again": True},
    ],
    ids=str,
)
def test_model_with_one_kernel_for_its_look_ups_is_right(
    models: FirstGuesses, options: Mapping[str, Any]
) -> None:
    model = recommender(**options)
    kernels, before, after = models.sessions(model)
    assert any(NAME in name for name in kernels)
    feed = _feed(model)
    for found, expected in zip(after.run(None, feed), before.run(None, feed), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("column", range(3))
@pytest.mark.parametrize("is_below", [False, True])
def test_a_number_its_table_does_not_have_stays_an_error(
    models: FirstGuesses, column: int, is_below: bool
) -> None:
    model, numbers = recommender(), np.array([[-5, -3, -7], [4, 2, 6], [0, 0, 0], [1, 1, 1]])
    _, before, after = models.sessions(model)
    feed = _feed(model, numbers)
    np.testing.assert_array_equal(after.run(None, feed)[0], before.run(None, feed)[0])
    numbers[2, column] = -ROWS[column] - 1 if is_below else ROWS[column]
    for session, words in ((before, "out of data bounds"), (after, "index is out of bounds")):
        with pytest.raises(Exception, match=words):
            session.run(None, _feed(model, numbers))


def test_a_row_that_others_read_is_made_outside(tmp_path: Path, target: Target) -> None:
    whole = _region(recommender(), tmp_path / "whole", target)
    less = _region(recommender(read_again=True), tmp_path / "less", target)
    assert [_count(one, "Gather", 2) for one in (whole, less)] == [3, 2]
    assert len(whole.inputs) == 5  # tables, numbers, the dense row: each once
    assert len(_region(recommender(shared=True), tmp_path / "shared", target).inputs) == 4


def test_no_kernel_is_made_for_no_users(tmp_path: Path, target: Target) -> None:
    assert regions_of(view_of(recommender(users=0), tmp_path, target)) == ()


def _region(model: onnx.ModelProto, folder: Path, target: Target) -> Workload:
    folder.mkdir()
    found = [one.workload for one in regions_of(view_of(model, folder, target))]
    (workload,) = [one for one in found if one.op_type == NAME]
    return workload


def _count(workload: Workload, op_type: str, inputs: int) -> int:
    same = [one for one in workload.operations if one.op_type == op_type]
    return sum(len(one.inputs) == inputs for one in same)
