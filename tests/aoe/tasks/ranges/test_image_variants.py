"""One kernel for images of any size made of several: which part computes which size."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper
from support.engine.built_kernels import linked
from support.engine.cpu import open_session

from aoe.device.compiler import KernelSource, image_kernel
from aoe.device.toolchain import Toolchain
from aoe.kernels.family import KernelTarget
from aoe.kernels.registry import get_family
from aoe.ort.sessions import session_options
from aoe.schedule import Configuration
from aoe.target import Target
from aoe.workload import Operation, TensorSpec, Workload

Array = np.ndarray
_SWITCH, _FIXED = 600, (1, 8, 9, 11)
_CHANNELS = 8
_PARTS = {"Neg": lambda x: -x, "Abs": np.abs, "Ceil": np.ceil}
"""Operators that tell the parts of a kernel apart: for small images, for large ones, and for one
size. Parts of a real kernel compute the same."""


def _source(op_type: str, target: Target, shape: tuple[int, ...], *, is_open: bool) -> KernelSource:
    spec = TensorSpec(shape=shape, open=(0, 2, 3) if is_open else ())
    operations = (Operation(op_type=op_type, version=13, inputs=("x0",), output="t0"),)
    workload = Workload(op_type="elementwise", inputs=(spec,), operations=operations, output=spec)
    family, facts = get_family("elementwise"), KernelTarget.of(target)
    guess = Configuration(family.space(workload, facts).first_guesses[0])
    return KernelSource.of(workload, family.schedule(workload, guess, facts))


def _model(name: str) -> onnx.ModelProto:
    infos = [
        helper.make_tensor_value_info(one, TensorProto.FLOAT, ["n", _CHANNELS, "h", "w"])
        for one in "xy"
    ]
    node = helper.make_node(name, ["x"], ["y"], domain="aoe")
    graph = helper.make_graph([node], "parts", infos[:1], infos[1:])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("aoe", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


@pytest.fixture(scope="module")
def session(
    target: Target, toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory
) -> ort.InferenceSession:
    folder = tmp_path_factory.mktemp("parts")
    point = (2, _CHANNELS, 16, 16)
    kernel = image_kernel(
        {
            0: _source("Neg", target, point, is_open=True),
            _SWITCH: _source("Abs", target, point, is_open=True),
        },
        [_source("Ceil", target, _FIXED, is_open=False)],
    )
    library = linked([kernel], target=target, toolchain=toolchain, file=folder / "parts.so")
    options = session_options(threads=2, optimize=False, library=library)
    return open_session(_model(kernel.name).SerializeToString(), options)


def _expected(x: Array) -> Array:
    if x.shape == _FIXED:
        return _PARTS["Ceil"](x)
    return _PARTS["Abs" if x.size >= _SWITCH else "Neg"](x)


@pytest.mark.parametrize("batch", [1, 2])
def test_each_size_is_computed_by_its_part(session: ort.InferenceSession, batch: int) -> None:
    rng = np.random.default_rng(batch)
    for rows in range(1, 13):
        for columns in range(1, 13):
            x = rng.standard_normal((batch, _CHANNELS, rows, columns)).astype(np.float32)
            found = session.run(None, {"x": x})[0]
            np.testing.assert_array_equal(found, _expected(x), err_msg=f"{rows}x{columns}")


def test_switch_is_at_its_number_of_elements(session: ort.InferenceSession) -> None:
    for rows, columns in ((25, 3), (3, 25), (74, 1), (1, 76)):  # 600, 600, 592, 608 elements
        x = np.random.default_rng(rows).standard_normal((1, _CHANNELS, rows, columns))
        found = session.run(None, {"x": x.astype(np.float32)})[0]
        np.testing.assert_array_equal(found, _expected(x.astype(np.float32)))


def test_special_values_and_no_images(session: ort.InferenceSession) -> None:
    for shape in (_FIXED, (2, _CHANNELS, 3, 3), (1, _CHANNELS, 31, 17)):
        x = np.resize(np.array([np.nan, np.inf, -np.inf, -0.0, 1.5], np.float32), shape)
        found = session.run(None, {"x": x})[0]
        np.testing.assert_array_equal(found, _expected(x))
        np.testing.assert_array_equal(np.signbit(found), np.signbit(_expected(x)))
    found = session.run(None, {"x": np.zeros((0, _CHANNELS, 9, 11), np.float32)})[0]
    assert found.shape == (0, _CHANNELS, 9, 11)


def test_other_channels_are_refused(session: ort.InferenceSession) -> None:
    with pytest.raises(Exception, match=r"INVALID_ARGUMENT|another shape"):
        session.run(None, {"x": np.zeros((1, _CHANNELS + 1, 9, 11), np.float32)})


def test_one_schedule_without_fixed_sizes_is_an_ordinary_kernel(target: Target) -> None:
    source = _source("Neg", target, (2, _CHANNELS, 16, 16), is_open=True)
    assert image_kernel({0: source}) == source
