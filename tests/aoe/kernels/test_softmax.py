"""The two families of softmax: over columns, and over rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from support.contracts.kernels import (
    SEED,
    CompiledKernel,
    KernelFamilyTests,
    alone_in_blocks,
    guessed_schedules,
    kernel_target,
    operation,
    plain,
)

from aoe.device.registry import default_device
from aoe.graph.workload_model import random_inputs, workload_model
from aoe.kernels.registry import get_family
from aoe.operators import MICROSOFT_DOMAIN
from aoe.ort.sessions import session_options
from aoe.workload import AttributeValue, Operation, TensorSpec, Workload

Array = np.ndarray[Any, Any]


def make(
    shape: tuple[int, ...],
    axis: AttributeValue,
    *after: Operation,
    op_type: str = "Softmax",
    version: int = 13,
    others: tuple[TensorSpec, ...] = (),
    family: str = "softmax",
) -> Workload:
    return Workload(
        op_type=family,
        inputs=(plain(*shape), *others),
        operations=(operation(op_type, "x0", "t0", version=version, axis=axis), *after),
        output=plain(*shape),
    )


LAST = "the reduced axis is the last"


class TestSoftmax(KernelFamilyTests):
    family_name = "softmax"
    share = 1 / 16  # sums of positive terms lose less than sums may
    cases: Mapping[str, Workload] = {
        "channels of an image": make((1, 21, 56, 56), 1),
        "log, channels of an image": make((1, 21, 33, 33), 1, op_type="LogSoftmax"),
        "axis in the middle": make((2, 7, 5, 30), 2),
        "negative axis": make((4, 3, 17), -2),
        "columns of a matrix": make((5, 100), 0),
        "few columns": make((1, 100, 7), 1),
        "long axis": make((2, 300, 33), 1),
        "log, long axis": make((2, 300, 33), 1, op_type="LogSoftmax"),
        "two classes": make((1, 2, 16, 650), 1),
        "axis of one": make((3, 1, 20), 1),
        "chain behind": make(
            (2, 6, 9, 10),
            1,
            operation("Mul", "t0 x1", "t1"),
            operation("Softplus", "t1", "t2"),
            others=(plain(9, 1, constant=True),),
        ),
    }
    refused = (
        (make((2, 3), 1), LAST),
        (make((2, 3), -1), LAST),
        (make((2, 3, 1, 1), 1), LAST),
        (make((2, 3, 4), 3), "axis 3 of a tensor of rank 3"),
        (
            make((2, 3, 4), 1, version=11),
            "version 11 reduces all axes from 1 to the last",
        ),
        (alone_in_blocks(family_name, operation("Softmax", "x0", axis=1)), "the blocked layout"),
    )


def rows(
    shape: tuple[int, ...], axis: int = -1, op_type: str = "Softmax", version: int = 13
) -> Workload:
    return make(shape, axis, op_type=op_type, version=version, family="softmax_rows")


def attention(mask: tuple[int, ...], *before: Operation, op_type: str = "Softmax") -> Workload:
    """Return scores divided, masked, their softmax, and a factor."""
    shape = (2, 3, 17, 49)
    return Workload(
        op_type="softmax_rows",
        inputs=(plain(*shape), plain(*mask)),
        scalars=(8.0, -10000.0, 0.0),
        operations=(
            operation("Div", "x0 s0", "t0"),
            *before,
            operation(op_type, before[-1].output, "t8", axis=-1),
            operation("Mul", "t8 s0", "t9"),
        ),
        output=plain(*shape),
    )


def with_condition(workload: Workload) -> Workload:
    """Return a workload whose mask holds booleans."""
    x, mask = workload.inputs
    return replace(workload, inputs=(x, replace(mask, dtype="bool")))


def of_levels(
    shape: tuple[int, ...], dtype: str = "uint8", *, axis: int = -1, opset: int = 13
) -> Workload:
    """Return a QLinearSoftmax."""
    scale, zero = plain(constant=True), TensorSpec(shape=(), dtype=dtype, constant=True)
    levels = plain(*shape, dtype=dtype)
    made = operation(
        "QLinearSoftmax", "x0 x1 x2 x3 x4", domain=MICROSOFT_DOMAIN, axis=axis, opset=opset
    )
    return Workload(
        op_type="softmax_rows",
        inputs=(levels, scale, zero, scale, zero),
        operations=(made,),
        output=levels,
    )


def masked_levels() -> Workload:
    """Return the softmax of levels of scores and a mask, as quantisers write attention."""
    alone = of_levels((2, 3, 17, 49))
    scale, zero = alone.inputs[1:3]
    mask = plain(2, 1, 1, 49, dtype="uint8")
    add = operation("QLinearAdd", "x0 x1 x2 x5 x6 x7 x8 x9", "t0", domain=MICROSOFT_DOMAIN)
    softmax = replace(alone.operations[0], inputs=("t0", "x8", "x9", "x3", "x4"))
    return replace(
        alone,
        inputs=(*alone.inputs, mask, scale, zero, scale, zero),
        operations=(add, softmax),
    )


class TestRowSoftmax(KernelFamilyTests):
    family_name = "softmax_rows"
    share = 1 / 16  # sums of positive terms lose less than sums may
    cases: Mapping[str, Workload] = {
        "rows of attention": rows((2, 3, 5, 197)),
        "one long row": rows((3000,)),
        "two classes": rows((1, 300, 2)),
        "log, rows of classes": rows((7, 100), op_type="LogSoftmax"),
        "all axes but the first": rows((4, 5, 6), axis=1, version=11),
        "axes of one behind": rows((2, 30, 1, 1), axis=1),
        "levels": of_levels((2, 3, 5, 197)),
        "signed levels, all axes but the first": of_levels((4, 5, 6), "int8", axis=1, opset=11),
        "levels of scores, masked": masked_levels(),
        "scale and mask": attention((2, 1, 1, 49), operation("Add", "t0 x1", "t1")),
        "scale and chosen scores, log": attention(
            (17, 49),
            operation("Greater", "x1 s2", "t1"),
            operation("Where", "t1 t0 s1", "t2"),
            op_type="LogSoftmax",
        ),
        "scores where a mask says so": with_condition(
            attention((3, 1, 49), operation("Where", "x1 t0 s1", "t1"))
        ),
    }
    refused = (
        (rows((2, 3, 4), axis=1), "Softmax over an axis that is not the last"),
        (rows((2, 3, 4), axis=3), "axis 3 of a tensor of rank 3"),
        (rows((2, 3, 1)), "Softmax of a single element"),
        (alone_in_blocks(family_name, operation("Softmax", "x0", axis=-1)), "the blocked layout"),
    )


@pytest.mark.parametrize(
    ("workload", "axis"), [(make((1, 20_000, 16), 1), 1), (rows((2, 20_000)), -1)]
)
def test_long_sums_keep_their_accuracy(workload: Workload, axis: int) -> None:
    x = random_inputs(workload, SEED)["x0"]
    wide = np.exp(x.astype(np.float64))
    expected = wide / wide.sum(axis=axis, keepdims=True)
    assert np.max(np.abs(CompiledKernel(workload).run({"x0": x}) / expected - 1)) < 2e-6


def test_masked_elements_are_exactly_zero() -> None:
    workload = make((1, 8, 16), 1)
    x = random_inputs(workload, SEED)["x0"].copy()
    x[0, 3] = -np.inf
    assert np.all(CompiledKernel(workload).run({"x0": x})[0, 3] == 0)


def test_row_of_masked_elements_is_nan_as_in_onnx_runtime() -> None:
    workload = rows((4, 40))
    x = random_inputs(workload, SEED)["x0"].copy()
    x[:, 3], x[1] = -np.inf, -np.inf
    made = CompiledKernel(workload).run({"x0": x})
    assert np.all(made[[0, 2, 3], 3] == 0)
    assert np.all(np.isnan(made[1]))  # no element is left to choose from


def _as_onnx_runtime_does(workload: Workload, feed: dict[str, Array]) -> Array:
    model = workload_model(workload, seed=SEED)
    for tensor in model.graph.initializer:
        tensor.CopyFrom(onnx.numpy_helper.from_array(feed[tensor.name], tensor.name))
    options = session_options(threads=1, optimize=False)
    session = default_device().open_session(model.SerializeToString(), options)
    found: Array = session.run(None, {"x0": feed["x0"]})[0]
    return found


@pytest.mark.parametrize("length", [2, 6, 128, 197])
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_softmax_of_levels_is_onnx_runtimes_and_numpys_of_the_same_integers(
    dtype: str, length: int
) -> None:
    workload, ends = of_levels((999, length), dtype), np.iinfo(dtype)
    schedule = guessed_schedules(workload)[0]
    kernel, rng = CompiledKernel(workload, schedule), np.random.default_rng(SEED)
    levels = rng.integers(ends.min, ends.max, (999, length), endpoint=True).astype(dtype)
    levels[:3] = [[ends.min], [ends.max], [3]]  # all results of a row are equal
    off = 0
    for scale, made in ((0.1, 1 / 255), (0.02, 1 / 256), (0.6, 0.004), (2.0, 1 / 100)):
        numbers = (scale, ends.max, made, ends.min)
        feed = {"x0": levels} | {
            f"x{at}": np.array(value, workload.inputs[at].dtype)
            for at, value in enumerate(numbers, start=1)
        }
        expected = _as_onnx_runtime_does(workload, feed)
        peak = levels.max(axis=1, keepdims=True)
        grown = np.exp((levels - peak.astype(float)) * np.float32(scale))
        whole = np.floor(np.float32(1) / np.float32(made))
        exact = np.rint(grown * whole / grown.sum(axis=1, keepdims=True)) + ends.min
        actual = kernel.run(feed)
        np.testing.assert_array_equal(actual[:3], expected[:3])
        off += int(np.count_nonzero(actual != expected) + np.count_nonzero(actual != exact))
        assert np.abs(actual.astype(int) - expected).max() <= 1
    assert off <= 2 * levels.size // 10_000


@pytest.mark.parametrize("workload", [make((1, 4, 16), 1), rows((2, 4))])
def test_large_inputs_do_not_overflow(workload: Workload) -> None:
    x = np.full(workload.output.shape, 3e38, dtype=np.float32)
    np.testing.assert_array_equal(CompiledKernel(workload).run({"x0": x}), 0.25)


def test_long_axis_is_not_kept_where_it_would_not_fit_the_stack() -> None:
    workload = make((1, 20_000, 64), 1)
    space = get_family("softmax").space(workload, kernel_target())
    assert all(c["exponentials"] == "again" for c in space.configurations())
