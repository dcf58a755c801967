"""Concatenations of levels beside ONNX Runtime: every level of every tensor, at both ends."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Any

import numpy as np
import onnx
import pytest
from support.contracts.kernels import (
    SEED,
    CompiledKernel,
    KernelFamilyTests,
    guessed_schedules,
    operation,
    plain,
)

from aoe.device.registry import default_device
from aoe.graph.workload_model import workload_model
from aoe.operators import MICROSOFT_DOMAIN
from aoe.ort.sessions import session_options
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
