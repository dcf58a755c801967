"""The nine networks the onnx package ships, as torch modules that run their nodes one by one.

Their results in float64, and their form for torch.compile, come from here; the ONNX file is theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import tests_path  # noqa: F401
import torch
from onnx import numpy_helper
from support.contracts.networks import shipped_network
from torch import Tensor, nn
from torch.nn import functional

_MOST_SPREAD = 2.0

Attributes = Mapping[str, Any]
Compute = Callable[[Attributes, list[Tensor]], Tensor]
Step = tuple[Compute, Attributes, tuple[str, ...], str]


class OnnxModule(nn.Module):
    """Runs the nodes of a graph in order; knows the operators of the nine networks."""

    def __init__(self, model: onnx.ModelProto) -> None:
        super().__init__()
        self.input = model.graph.input[0].name
        self.output = model.graph.output[0].name
        self.buffers_of: dict[str, str] = {}
        shapes = {}
        for index, tensor in enumerate(model.graph.initializer):
            values = numpy_helper.to_array(tensor)
            if values.dtype == np.int64:
                shapes[tensor.name] = tuple(map(int, values))
            else:
                self.buffers_of[tensor.name] = f"weight_{index}"
                self.register_buffer(f"weight_{index}", torch.from_numpy(values.copy()))
        self.steps = [_step(node, shapes) for node in model.graph.node]

    def forward(self, image: Tensor) -> Tensor:
        """(1, 3, 224, 224) to class probabilities or scores."""
        values = {name: getattr(self, buffer) for name, buffer in self.buffers_of.items()}
        values[self.input] = image
        for compute, attributes, inputs, output in self.steps:
            values[output] = compute(attributes, [values[name] for name in inputs])
        return values[self.output]


def _step(node: onnx.NodeProto, shapes: Mapping[str, tuple[int, ...]]) -> Step:
    """Return a node as plain values, which torch.compile can look through."""
    attributes = {a.name: _plain(onnx.helper.get_attribute_value(a)) for a in node.attribute}
    inputs = [name for name in node.input if name and name not in shapes]
    if node.op_type == "Reshape":
        attributes["shape"] = shapes[node.input[1]]
    return _OPERATORS[node.op_type], attributes, tuple(inputs), node.output[0]


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, Sequence) else value


def shipped(name: str) -> OnnxModule:
    """Return a network by the name of its file as a module."""
    return OnnxModule(shipped_model(name))


def shipped_model(name: str) -> onnx.ModelProto:
    """Return a network with the weights of `shipped_network`, its scores held to ordinary size.

    Where random weights make scores so large that softmax is 1 for one class and 0 for all
    others, every error would be hidden: the last matrix is divided by what is too much.
    """
    model = shipped_network(name)
    last, scorer = model.graph.node[-1], model.graph.node[-2]
    if last.op_type == "Softmax" and scorer.op_type == "Gemm":
        module = OnnxModule(model)
        module.output = scorer.output[0]
        image = torch.randn(1, 3, 224, 224, generator=torch.Generator().manual_seed(0))
        with torch.inference_mode():
            spread = float(module(image).std())
        for tensor in model.graph.initializer:
            if tensor.name in scorer.input[1:] and spread > _MOST_SPREAD:
                values = numpy_helper.to_array(tensor) * np.float32(_MOST_SPREAD / spread)
                tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    return model


def _conv(attributes: Attributes, x: list[Tensor]) -> Tensor:
    pads = attributes.get("pads", (0, 0, 0, 0))
    bias = x[2] if len(x) > 2 else None
    return functional.conv2d(
        x[0],
        x[1],
        bias,
        tuple(attributes.get("strides", (1, 1))),
        tuple(pads[:2]),
        groups=attributes.get("group", 1),
    )


def _gemm(attributes: Attributes, x: list[Tensor]) -> Tensor:
    return functional.linear(x[0], x[1] if attributes.get("transB") else x[1].T, x[2])


def _max_pool(attributes: Attributes, x: list[Tensor]) -> Tensor:
    top, left, bottom, right = attributes.get("pads", (0, 0, 0, 0))
    padded = functional.pad(x[0], (left, right, top, bottom), value=float("-inf"))
    return functional.max_pool2d(
        padded, tuple(attributes["kernel_shape"]), tuple(attributes["strides"])
    )


def _average_pool(attributes: Attributes, x: list[Tensor]) -> Tensor:
    """Mean of what lies inside the image: ONNX counts no padding unless told to."""
    top, left, bottom, right = attributes.get("pads", (0, 0, 0, 0))
    window = tuple(attributes["kernel_shape"]), tuple(attributes.get("strides", (1, 1)))
    padding = (left, right, top, bottom)
    inside = functional.avg_pool2d(functional.pad(torch.ones_like(x[0]), padding), *window)
    return functional.avg_pool2d(functional.pad(x[0], padding), *window) / inside


def _lrn(attributes: Attributes, x: list[Tensor]) -> Tensor:
    return functional.local_response_norm(
        x[0], attributes["size"], attributes["alpha"], attributes["beta"], attributes["bias"]
    )


def _batch_norm(attributes: Attributes, x: list[Tensor]) -> Tensor:
    scale, shift, mean, variance = x[1:]
    return functional.batch_norm(
        x[0], mean, variance, scale, shift, eps=attributes.get("epsilon", 1e-5)
    )


def _unsqueeze(attributes: Attributes, x: list[Tensor]) -> Tensor:
    result = x[0]
    for axis in attributes["axes"]:
        result = result.unsqueeze(axis)
    return result


def _softmax(attributes: Attributes, x: list[Tensor]) -> Tensor:
    """Before opset 13 softmax runs over everything from the axis on."""
    rows = x[0].flatten(attributes.get("axis", 1))
    return functional.softmax(rows, -1).reshape(x[0].shape)


def _reshape(attributes: Attributes, x: list[Tensor]) -> Tensor:
    """An extent of 0 is that of the input."""
    shape = [extent or x[0].shape[axis] for axis, extent in enumerate(attributes["shape"])]
    return x[0].reshape(shape)


_OPERATORS: dict[str, Compute] = {
    "Add": lambda _, x: x[0] + x[1],
    "AveragePool": _average_pool,
    "BatchNormalization": _batch_norm,
    "Concat": lambda attributes, x: torch.cat(x, attributes["axis"]),
    "Conv": _conv,
    "Dropout": lambda _, x: x[0],
    "Gemm": _gemm,
    "GlobalAveragePool": lambda _, x: x[0].mean((2, 3), keepdim=True),
    "LRN": _lrn,
    "MaxPool": _max_pool,
    "Mul": lambda _, x: x[0] * x[1],
    "Relu": lambda _, x: torch.relu(x[0]),
    "Reshape": _reshape,
    "Softmax": _softmax,
    "Sum": lambda _, x: sum(x[1:], x[0]),
    "Transpose": lambda attributes, x: x[0].permute(*attributes["perm"]),
    "Unsqueeze": _unsqueeze,
}
