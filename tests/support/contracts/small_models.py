"""Small ONNX models, written node by node, with seeded weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = np.ndarray[Any, Any]
_IR_VERSION = 8


class SmallModel:
    """A model while it is written.

    Args:
        opset: Of ONNX's own operators.
        seed: Of the weights.
    """

    def __init__(self, *, opset: int = 17, seed: int = 7) -> None:
        self._opset = opset
        self._rng = np.random.default_rng(seed)
        self._inputs: list[onnx.ValueInfoProto] = []
        self._constants: list[onnx.TensorProto] = []
        self._nodes: list[onnx.NodeProto] = []
        self._domains = {""}

    def input(self, *shape: int, dtype: int = TensorProto.FLOAT) -> str:
        """Add an input and return its name."""
        name = f"x{len(self._inputs)}"
        self._inputs.append(helper.make_tensor_value_info(name, dtype, shape))
        return name

    def weight(self, *shape: int) -> str:
        """Add normally distributed float32 values, of a size that keeps sums around one."""
        scale = 1 / math.sqrt(math.prod(shape[1:]) or 1)
        return self.constant((self._rng.standard_normal(shape) * scale).astype(np.float32))

    def positive(self, *shape: int) -> str:
        """Add float32 values in 0.5..1.5."""
        return self.constant(self._rng.uniform(0.5, 1.5, shape).astype(np.float32))

    def constant(self, value: Array | Sequence[int] | float) -> str:
        """Add a constant; lists of integers are int64, numbers float32."""
        array = np.asarray(value)
        if not isinstance(value, np.ndarray):
            array = array.astype(np.float32 if isinstance(value, float) else np.int64)
        name = f"c{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(array, name))
        return name

    def op(self, op_type: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """Add a node with one result and return the result's name."""
        return self.ops(op_type, *inputs, outputs=1, domain=domain, **attributes)[0]

    def ops(
        self, op_type: str, *inputs: str, outputs: int, domain: str = "", **attributes: Any
    ) -> list[str]:
        """Add a node with several results and return their names."""
        number = len(self._nodes)
        made = [f"t{number}_{at}" for at in range(outputs)]
        self._domains.add(domain)
        self._nodes.append(
            helper.make_node(
                op_type, inputs, made, name=f"{op_type}_{number}", domain=domain, **attributes
            )
        )
        return made

    def conv(self, x: str, before: int, after: int, kernel: int = 1, **attributes: Any) -> str:
        """Add a 2-D Conv with a bias, padded to the same extents."""
        groups = attributes.get("group", 1)
        weight = self.weight(after, before // groups, kernel, kernel)
        attributes.setdefault("pads", [kernel // 2] * 4)
        shape = [kernel, kernel]
        return self.op("Conv", x, weight, self.weight(after), kernel_shape=shape, **attributes)

    def batch_norm(self, x: str, channels: int) -> str:
        """Add a BatchNormalization."""
        scale, variance = self.positive(channels), self.positive(channels)
        bias, mean = self.weight(channels), self.weight(channels)
        return self.op("BatchNormalization", x, scale, bias, mean, variance)

    def silu(self, x: str) -> str:
        """Add Sigmoid and Mul."""
        return self.op("Mul", x, self.op("Sigmoid", x))

    def model(self, *outputs: str) -> onnx.ModelProto:
        """Return the checked model; its outputs are float32 unless ONNX infers another type."""
        graph = helper.make_graph(
            self._nodes,
            "small",
            self._inputs,
            [helper.make_empty_tensor_value_info(name) for name in outputs],
            self._constants,
        )
        imports = [
            helper.make_opsetid(domain, 1 if domain else self._opset)
            for domain in sorted(self._domains)
        ]
        proto = helper.make_model(graph, opset_imports=imports, ir_version=_IR_VERSION)
        type_results(proto)
        return proto


def type_results(proto: onnx.ModelProto) -> None:
    """Fill in type and shape of a model's results, in place, and check it if that was possible."""
    del proto.graph.value_info[:]
    inferred = onnx.shape_inference.infer_shapes(proto).graph
    known = {value.name: value for value in (*inferred.value_info, *inferred.output)}
    for value in proto.graph.output:
        tensor = known[value.name].type.tensor_type if value.name in known else None
        if tensor is not None and tensor.elem_type:
            value.CopyFrom(known[value.name])
        else:
            value.type.tensor_type.elem_type = TensorProto.FLOAT
    if all(value.type.tensor_type.HasField("shape") for value in proto.graph.output):
        onnx.checker.check_model(proto)
