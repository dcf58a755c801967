"""`aoe demo`: the network it tunes computes something that depends on its weights and its input."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, numpy_helper
from support.contracts.rewrites import run_model

from aoe.cli.demo import with_drawn_weights


def _network_of_constants() -> onnx.ModelProto:
    """A convolution and two products in the form of the onnx package's networks, IR 3 included."""
    nodes, shapes = [], []
    for name, shape in {
        "w0": (4, 3, 3, 3),
        "b0": (4,),
        "w1": (8, 4 * 6 * 6),
        "b1": (8,),
        "w2": (5, 8),
        "b2": (5,),
    }.items():
        shapes.append(numpy_helper.from_array(np.array(shape, np.int64), f"{name}_shape"))
        value = numpy_helper.from_array(np.array([0.02], np.float32), "value")
        nodes.append(helper.make_node("ConstantOfShape", [f"{name}_shape"], [name], value=value))
    # AlexNet's Reshape has its shape from a weight, which callers may not override: the extents of
    # all behind it would be open, and nothing of it tuned.
    shapes.append(numpy_helper.from_array(np.array([1, -1], np.int64), "rows"))
    nodes += [
        helper.make_node("Conv", ["x", "w0", "b0"], ["c"]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Reshape", ["r", "rows"], ["f"]),
        helper.make_node("Gemm", ["f", "w1", "b1"], ["g"], transB=1),
        helper.make_node("Gemm", ["g", "w2", "b2"], ["h"], transB=1),
        helper.make_node("Softmax", ["h"], ["y"]),
    ]
    image = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, (1, 3, 8, 8))
    result = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, (1, 5))
    inputs = [image] + [
        helper.make_tensor_value_info(tensor.name, onnx.TensorProto.INT64, tensor.dims)
        for tensor in shapes
    ]
    graph = helper.make_graph(nodes, "constants", inputs, [result], shapes)
    return helper.make_model(graph, ir_version=3, opset_imports=[helper.make_opsetid("", 9)])


def test_weights_of_the_demo_make_results_that_differ_by_class_and_by_image() -> None:
    shipped = _network_of_constants()
    model = with_drawn_weights(shipped)
    onnx.checker.check_model(model)
    assert [value.name for value in model.graph.input] == ["x"]
    assert model == with_drawn_weights(shipped)  # the same weights in every run
    rng = np.random.default_rng(1)
    images = [rng.standard_normal((1, 3, 8, 8), np.float32) for _ in range(2)]
    first, second = (run_model(model, {"x": image}, optimize=True)[0] for image in images)
    assert np.ptp(first) > 0.01
    assert np.abs(first - second).max() > 0.01
    constant = run_model(shipped, {"x": images[0]}, optimize=True)[0]
    assert np.ptp(constant) < 1e-6  # what the package ships cannot tell a right kernel from a wrong
