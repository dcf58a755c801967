"""Element-wise operators of levels: every level, and every pair of levels, beside ONNX Runtime."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.contracts.kernels import CompiledKernel, kernel_target, operation, plain

from aoe.device.registry import default_device
from aoe.graph.workload_model import workload_model
from aoe.kernels.elementwise_ops import ELEMENTWISE_OPS
from aoe.kernels.registry import get_family
from aoe.operators import MICROSOFT_DOMAIN, OPERATORS
from aoe.operators.facts import Signature
from aoe.ort.sessions import session_options
from aoe.schedule import Configuration, Schedule
from aoe.workload import AttributeValue, TensorSpec, Workload

Array = np.ndarray[Any, Any]
SCALE = plain()
PARAMETERS = [
    # scales and zero points of both operands and of the result: ties, ends of the range, odd ones
    (0.05, 128, 0.05, 128, 0.1, 128),
    (0.05, 128, 0.05, 127, 0.1, 127),
    (0.02, 0, 0.03, 255, 0.04, 3),
    (0.013, 7, 0.027, 19, 0.0007, 101),
]


def _workload(
    op_type: str, shape: tuple[int, ...], operands: int, dtype: str, **attributes: AttributeValue
) -> Workload:
    levels, zero = plain(*shape, dtype=dtype), TensorSpec(shape=(), dtype=dtype)
    read = [one for _ in range(operands) for one in (levels, SCALE, zero)]
    inputs = " ".join(f"x{number}" for number in range(len(read) + 2))
    return Workload(
        op_type="elementwise",
        inputs=(*read, SCALE, zero),
        operations=(operation(op_type, inputs, domain=MICROSOFT_DOMAIN, **attributes),),
        output=levels,
    )


def _feed(workload: Workload, levels: list[Array], parameters: list[float]) -> dict[str, Array]:
    given, numbers = iter(levels), iter(parameters)
    feed = {}
    for number, spec in enumerate(workload.inputs):
        if spec.shape:
            feed[f"x{number}"] = next(given)
            continue
        value = next(numbers)
        if spec.dtype == "int8":
            value -= 128
        feed[f"x{number}"] = np.array(value).astype(spec.dtype)
    return feed


def _check_equal(
    workload: Workload, feed: dict[str, Array], schedule: Schedule | None = None
) -> None:
    assert get_family(workload.op_type).supports(workload).reason == ""
    options = session_options(threads=1, optimize=False)
    model = workload_model(workload, seed=1)
    session = default_device().open_session(model.SerializeToString(), options)
    expected = session.run(None, feed)[0]
    np.testing.assert_array_equal(CompiledKernel(workload, schedule).run(feed), expected)


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("op_type", ["QLinearAdd", "QLinearMul"])
def test_all_pairs_of_levels_are_what_onnx_runtime_makes_of_them(op_type: str, dtype: str) -> None:
    every = np.arange(256).astype(dtype)
    left, right = (np.ascontiguousarray(one) for one in np.meshgrid(every, every))
    workload = _workload(op_type, (256, 256), 2, dtype)
    for parameters in PARAMETERS:
        _check_equal(workload, _feed(workload, [left, right], [*parameters]))


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("op_type", ["QLinearLeakyRelu", "QLinearSigmoid"])
def test_every_level_is_what_onnx_runtime_makes_of_it(op_type: str, dtype: str) -> None:
    attributes = {"alpha": 0.13} if op_type == "QLinearLeakyRelu" else {}
    workload = _workload(op_type, (256,), 1, dtype, **attributes)
    for scale, zero, _, _, result_scale, result_zero in PARAMETERS:
        parameters = [scale, zero, result_scale / 10, result_zero]
        _check_equal(workload, _feed(workload, [np.arange(256).astype(dtype)], parameters))


def test_levels_made_without_a_zero_point_are_of_the_type_that_is_read() -> None:
    whole = _workload("QLinearAdd", (256,), 2, "uint8")
    alone = replace(whole.operations[0], inputs=whole.operations[0].inputs[:7])
    workload = replace(whole, inputs=whole.inputs[:7], operations=(alone,))
    every = np.arange(256).astype(np.uint8)
    _check_equal(workload, _feed(workload, [every, every[::-1]], [0.03, 128, 0.02, 3, 0.01]))


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_numbers_beyond_all_levels_become_the_first_and_the_last(dtype: str) -> None:
    zero = TensorSpec(shape=(), dtype=dtype)
    workload = Workload(
        op_type="elementwise",
        inputs=(plain(9), zero),
        scalars=(0.5,),
        operations=(operation("QuantizeLinear", "x0 s0 x1", "y0"),),
        output=plain(9, dtype=dtype),
    )
    numbers = [3e38, 1e8, 2e6, 127.25, 0.25, -0.75, -1e8, -3e38, -np.inf]
    for point in (np.iinfo(dtype).min, 3, np.iinfo(dtype).max):
        feed = {"x0": np.array(numbers, np.float32), "x1": np.array(point, dtype)}
        _check_equal(workload, feed)


POINTS = {
    "GELU": (
        ("Div", "t0 s1"),
        ("Erf", "t1"),
        ("Add", "t2 s2"),
        ("Mul", "t0 t3"),
        ("Mul", "t4 s3"),
    ),
    "SiLU": (("Sigmoid", "t0"), ("Mul", "t0 t1")),
    **{name: ((name, "t0"),) for name in ("HardSwish", "HardSigmoid", "Tanh", "LeakyRelu", "Exp")},
}
_SCALARS = (0.05, 2.0**0.5, 1.0, 0.5, 0.031)


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("name", POINTS)
def test_chain_of_every_level_is_looked_up_as_onnx_runtime_computes_it(
    name: str, dtype: str
) -> None:
    levels, zero = plain(17, 256, dtype=dtype), TensorSpec(shape=(), dtype=dtype)
    chain = [
        operation(op_type, inputs, f"t{at}")
        for at, (op_type, inputs) in enumerate(POINTS[name], start=1)
    ]
    workload = Workload(
        op_type="elementwise",
        inputs=(levels, zero, zero),
        scalars=_SCALARS,
        operations=(
            operation("DequantizeLinear", "x0 s0 x1", "t0"),
            *chain,
            operation("QuantizeLinear", f"t{len(chain)} s4 x2", "y0"),
        ),
        output=levels,
    )
    space = get_family("elementwise").space(workload, kernel_target())
    guess = Configuration(space.first_guesses[0])
    assert guess["algorithm"] == "table"
    schedule = get_family("elementwise").schedule(workload, guess, kernel_target())
    every, ends = np.tile(np.arange(256), (17, 1)).astype(dtype), np.iinfo(dtype)
    for read, made in ((ends.min, ends.max), (ends.max, ends.min), (3, 7)):
        feed = {"x0": every, "x1": np.array(read, dtype), "x2": np.array(made, dtype)}
        _check_equal(workload, feed, schedule)


def test_few_levels_and_levels_of_several_tensors_are_computed() -> None:
    few = _workload("QLinearSigmoid", (256,), 1, "uint8")
    pair = _workload("QLinearAdd", (64, 256), 2, "uint8")
    for workload in (few, pair):
        space = get_family("elementwise").space(workload, kernel_target())
        assert "algorithm" not in space.first_guesses[0]


def test_every_element_wise_operator_of_levels_is_tested_here() -> None:
    tested = {"QLinearAdd", "QLinearMul", "QLinearLeakyRelu", "QLinearSigmoid"}
    of_levels = {key for key in ELEMENTWISE_OPS if OPERATORS[key].signature is Signature.LEVELS}
    assert of_levels == {(MICROSOFT_DOMAIN, name) for name in tested}
