"""Concatenations of levels beside ONNX Runtime: every level of every tensor, at both ends."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from support.contracts.kernels import (
    SEED,
    CompiledKernel,
    KernelFamilyTests,
    guessed_schedules,
    operation,
    plain,
)
from support.engine.models import make_model
from support.engine.offline import regions_of, view_of

from aoe.device.registry import default_device
from aoe.graph.workload_model import workload_model
from aoe.operators import MICROSOFT_DOMAIN
from aoe.ort.sessions import session_options
from aoe.target import Target
from aoe.workload import Operation, TensorSpec, Workload

Array = np.ndarray[Any, Any]


def concatenated(
    *shapes: tuple[int, ...], axis: int = -1, dtype: str = "uint8", behind: Operation | None = None
) -> Workload:
    """Return a QLinearConcat, with an operation behind it or none."""
    scale, zero = plain(constant=True), TensorSpec(shape=(), dtype=dtype, constant=True)
    operands = [one for shape in shapes for one in (plain(*shape, dtype=dtype), scale, zero)]
    made = list(shapes[0])
    made[axis] = sum(shape[axis] for shape in shapes)
    refs = " ".join(f"x{at}" for at in range(2 + len(operands)))
    concat = operation("QLinearConcat", refs, domain=MICROSOFT_DOMAIN, axis=axis)
    return Workload(
        op_type="quantised_concat",
        inputs=(scale, zero, *operands),
        operations=(concat,) if behind is None else (concat, behind),
        output=plain(*made, dtype=dtype),
    )


class TestQuantisedConcat(KernelFamilyTests):
    family_name = "quantised_concat"
    cases: Mapping[str, Workload] = {
        "channels of pixels": concatenated((1, 9, 7, 64), (1, 9, 7, 24), (1, 9, 7, 130)),
        "signed, channels in front": concatenated((2, 3, 5, 7), (2, 4, 5, 7), axis=1, dtype="int8"),
        "groups of rows": concatenated((1, 33, 29, 64), (1, 33, 29, 120)),
        "four rows": concatenated((1, 5), (3, 5), (2, 5), (7, 5), axis=0),
    }
    refused = (
        (concatenated(*((3, 4),) * 5), "of 5 tensors"),
        (
            concatenated((3, 4), (3, 4), behind=operation("Identity", "t0", "t1")),
            "with a chain",
        ),
    )


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_every_level_is_what_onnx_runtime_and_numpy_make_of_it(dtype: str) -> None:
    workload, ends = concatenated((3, 256), (3, 256), (3, 256), dtype=dtype), np.iinfo(dtype)
    every = np.tile(np.arange(256), (3, 1)).astype(dtype)
    scales, points = (0.1, 0.1, 0.037, 2.0), (ends.max, ends.max, 3, ends.min)
    numbers = count()
    feed: dict[str, Array] = {}
    for scale, point in zip(scales, points, strict=True):
        if feed.keys() >= {"x1"}:
            feed[f"x{next(numbers)}"] = every
        feed[f"x{next(numbers)}"] = np.array(scale, np.float32)
        feed[f"x{next(numbers)}"] = np.array(point, dtype)
    model = workload_model(workload, seed=SEED)
    for tensor in model.graph.initializer:
        tensor.CopyFrom(onnx.numpy_helper.from_array(feed[tensor.name], tensor.name))
    options = session_options(threads=1, optimize=False)
    session = default_device().open_session(model.SerializeToString(), options)
    expected = session.run(None, {f"x{at}": every for at in (2, 5, 8)})[0]
    found = []
    for scale, point in zip(scales[1:], points[1:], strict=True):
        numbers_of = (every - np.float32(point)) * np.float32(scale)
        levels = np.rint(numbers_of / np.float32(scales[0])) + ends.max
        found.append(np.clip(levels, ends.min, ends.max))
    actual = CompiledKernel(workload, guessed_schedules(workload)[0]).run(feed)
    np.testing.assert_array_equal(actual, expected)
    np.testing.assert_array_equal(actual, np.concatenate(found, axis=1))


def test_quantised_softmax_and_concatenation_of_a_model_are_regions(
    tmp_path: Path, target: Target
) -> None:
    numbers = {"s": np.float32(0.05), "z": np.uint8(7), "ps": np.float32(1 / 255)}
    nodes = [
        helper.make_node("QLinearAdd", [*"xszmszsz"], ["a"], domain=MICROSOFT_DOMAIN),
        helper.make_node(
            "QLinearSoftmax", ["a", "s", "z", "ps", "z"], ["p"], domain=MICROSOFT_DOMAIN, opset=13
        ),
        helper.make_node(
            "QLinearConcat",
            ["s", "z", "p", "ps", "z", "x", "s", "z"],
            ["y"],
            domain=MICROSOFT_DOMAIN,
            axis=-1,
        ),
    ]
    levels = TensorProto.UINT8
    model = make_model(
        nodes,
        {"x": (2, 30, 40), "m": (40,)},
        ["y"],
        weights={name: np.array(value) for name, value in numbers.items()},
        types={"x": levels, "m": levels, "y": levels},
    )
    found = [
        (region.workload.op_type, [item.op_type for item in region.workload.operations])
        for region in regions_of(view_of(model, tmp_path, target))
    ]
    assert found == [
        ("softmax_rows", ["QLinearAdd", "QLinearSoftmax"]),
        ("quantised_concat", ["QLinearConcat"]),
    ]
