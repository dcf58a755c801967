"""Scales, zero points and axes of a quantised model that a quantiser should not have written.

ONNX Runtime finds a wrong type when it loads a model, a wrong axis when it computes it without
optimisations, and a scale of 0 or NaN never: results are what is left of them. All of that is told
when the model is read, with the operator it is found at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper
from onnx.external_data_helper import uses_external_data

from aoe.errors import ModelImportError
from aoe.graph.rewrites.matching import attribute
from aoe.operators.element_types import LEVELS
from aoebank import plural

_QUANTIZE, _DEQUANTIZE = "QuantizeLinear", "DequantizeLinear"
_PARAMETERS: Mapping[str, tuple[tuple[int, int, int], ...]] = {
    _QUANTIZE: ((-1, 1, 2),),
    _DEQUANTIZE: ((0, 1, 2),),
    "QLinearConv": ((0, 1, 2), (3, 4, 5), (-1, 6, 7)),
    "QLinearMatMul": ((0, 1, 2), (3, 4, 5), (-1, 6, 7)),
    "QGemm": ((0, 1, 2), (3, 4, 5), (-1, 7, 8)),
    "QLinearAdd": ((0, 1, 2), (3, 4, 5), (-1, 6, 7)),
    "QLinearMul": ((0, 1, 2), (3, 4, 5), (-1, 6, 7)),
    "DynamicQuantizeMatMul": ((1, 2, 3),),
    "MatMulIntegerToFloat": ((0, 2, 4), (1, 3, 5)),
    # zero points are packed as the weights are
    "MatMulNBits": ((-1, 2, -1),),
    **dict.fromkeys(
        (
            *("QLinearAveragePool", "QLinearGlobalAveragePool", "QLinearLeakyRelu"),
            *("QLinearSigmoid", "QLinearSoftmax"),
        ),
        ((0, 1, 2), (-1, 3, 4)),
    ),
}
"""Inputs with integers, their scale and their zero point; -1 for the result, or no input."""
_MAY_BE_ZERO = frozenset({"MatMulNBits"})
"""Operators with a scale for each block of weights: a block of zeros has 0."""
_AXIS = 1
"""Axis of DequantizeLinear and QuantizeLinear where none is given."""
_MOST_READ = 1 << 20
"""Elements of a scale that is looked at: more are blocks of weights."""
_PRODUCTS_OF_BLOCKS = frozenset({"MatMul", "Gemm"})
"""Operators ONNX Runtime computes with weights of 4 bits."""
_NARROW = frozenset({"int4", "uint4", "int2", "uint2"})
_MOST_TOLD = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterFault:
    """Something wrong with the parameters of one operator."""

    where: str  # Operator type and name
    problem: str  # In words
    got: str
    expected: str
    way_out: str
    is_refused: bool = False  # True where ONNX Runtime does not load the model

    def __str__(self) -> str:
        found = f"{self.where}: {self.problem} (got {self.got}, expected {self.expected})"
        return f"{found}; {self.way_out}"


def check_quantised_parameters(proto: onnx.ModelProto, where: str) -> str:
    """Return a warning about the quantised operators of a model, empty if there is none.

    Args:
        proto: The model.
        where: What names it in messages.

    Raises:
        ModelImportError: ONNX Runtime refuses an operator.
    """
    found = list(_faults(proto.graph))
    for fault in found:
        if fault.is_refused:
            raise ModelImportError(
                f"{where}: {fault.where}",
                fault.problem,
                got=fault.got,
                expected=fault.expected,
                hint=fault.way_out,
            )
    told = [*dict.fromkeys(map(str, found))]
    rest = len(told) - _MOST_TOLD
    more = [f"{plural(rest, 'further operator')} likewise"] if rest > 0 else []
    return "; ".join((*told[:_MOST_TOLD], *more, *_without_kernels(proto.graph)))


def _faults(graph: onnx.GraphProto) -> Iterator[ParameterFault]:
    constants = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        for operand in _PARAMETERS.get(node.op_type, ()):
            integers, scale, zero = (_constant(node, at, constants) for at in operand)
            name = f"{node.op_type} {node.name or node.output[0]}"
            yield from _of_types(node, name, integers, zero)
            yield from _of_scale(name, scale, may_be_zero=node.op_type in _MAY_BE_ZERO)
            yield from _of_extents(node, name, integers, scale, zero)


def _constant(
    node: onnx.NodeProto, at: int, constants: Mapping[str, onnx.TensorProto]
) -> onnx.TensorProto | None:
    return constants.get(node.input[at]) if 0 <= at < len(node.input) else None


def _of_types(
    node: onnx.NodeProto,
    name: str,
    integers: onnx.TensorProto | None,
    zero: onnx.TensorProto | None,
) -> Iterator[ParameterFault]:
    if zero is None:
        return
    got = _type_name(zero.data_type)
    if integers is not None and integers.data_type != zero.data_type:
        yield ParameterFault(
            where=name,
            problem="the zero point has another type than the integers",
            got=got,
            expected=_type_name(integers.data_type),
            way_out="write both with one type: a zero point is one of the integers",
            is_refused=True,
        )
    elif got in ("int32", "float", "int64") and (
        node.op_type != _DEQUANTIZE or (integers is None and got != "int32")
    ):  # sums of products are int32, dequantised with a zero point of 0
        yield ParameterFault(
            where=name,
            problem="the zero point has a type that no tensor is quantised to",
            got=got,
            expected="uint8 or int8, from opset 21 on also 16 or 4 bits",
            way_out="quantise the model again, or write the zero point as uint8 or int8",
            is_refused=True,
        )


def _of_scale(
    name: str, scale: onnx.TensorProto | None, *, may_be_zero: bool
) -> Iterator[ParameterFault]:
    if scale is None or uses_external_data(scale) or prod(scale.dims) > _MOST_READ:
        return
    values = np.atleast_1d(numpy_helper.to_array(scale)).astype(np.float64).ravel()
    wrong = ~np.isfinite(values) | ((values == 0) & (not may_be_zero))
    if wrong.any():
        first = float(values[wrong][0])
        of = f" in {int(wrong.sum())} of {values.size} values" if values.size > 1 else ""
        yield ParameterFault(
            where=name,
            problem="a scale stands for no distance of numbers",
            got=f"{first:g}{of}",
            expected=f"finite numbers{'' if may_be_zero else ' other than 0'}",
            way_out="computed as ONNX Runtime does; quantise again with inputs that reach it, or "
            "leave this operator in float32",
        )


def _of_extents(
    node: onnx.NodeProto,
    name: str,
    integers: onnx.TensorProto | None,
    scale: onnx.TensorProto | None,
    zero: onnx.TensorProto | None,
) -> Iterator[ParameterFault]:
    """Yield what is wrong with scales and zero points of several values."""
    if scale is None or (prod(scale.dims) == 1 and (zero is None or prod(zero.dims) == 1)):
        return
    as_before = "computed as ONNX Runtime does, which may refuse it with fewer optimisations"
    if zero is not None and list(zero.dims) != list(scale.dims):
        yield ParameterFault(
            where=name,
            problem="scale and zero point are not for the same parts of the tensor",
            got=f"a scale of shape {list(scale.dims)}, a zero point of {list(zero.dims)}",
            expected="equal shapes",
            way_out=f"{as_before}; repeat the zero point for each channel",
        )
    if integers is None or node.op_type not in (_QUANTIZE, _DEQUANTIZE):
        return
    axis, shape = int(attribute(node, "axis", _AXIS)), list(integers.dims)
    if not -len(shape) <= axis < len(shape):
        yield ParameterFault(
            where=name,
            problem="axis is out of range",
            got=str(axis),
            expected=f"{-len(shape)} to {len(shape) - 1}",
            way_out=f"{as_before}; set axis to that of the output channels",
        )
    elif len(scale.dims) == 1 and scale.dims[0] not in (1, shape[axis]):
        yield ParameterFault(
            where=name,
            problem=f"the scale does not go with axis {axis}",
            got=plural(scale.dims[0], "value"),
            expected=f"{shape[axis]}, one for each part",
            way_out=f"{as_before}; set axis to that of the output channels",
        )


def _without_kernels(graph: onnx.GraphProto) -> Iterator[str]:
    """Yield types no operator computes with: what is quantised to them is dequantised again."""
    constants = {tensor.name: tensor for tensor in graph.initializer}
    readers = {name: node.op_type for node in graph.node for name in node.input}
    counts: dict[str, int] = {}
    for node in graph.node:
        dtype = _quantised_to(node, constants)
        is_product = readers.get(node.output[0]) in _PRODUCTS_OF_BLOCKS if node.output else False
        if dtype and dtype not in LEVELS and not (dtype in _NARROW and is_product):
            counts[dtype] = counts.get(dtype, 0) + 1
    for dtype, count in counts.items():
        yield (
            f"{plural(count, 'tensor')} of {dtype}: there is no kernel that computes with it, so "
            "it is dequantised in every run; quantise to uint8 activations and int8 weights"
        )


def _quantised_to(node: onnx.NodeProto, constants: Mapping[str, onnx.TensorProto]) -> str:
    """Return the type a node quantises to, or dequantises weights of; empty for other nodes."""
    if node.op_type == _QUANTIZE:
        zero = _constant(node, 2, constants)
        kind = zero.data_type if zero is not None else int(attribute(node, "output_dtype", 0))
        return _type_name(kind or TensorProto.UINT8)
    weights = _constant(node, 0, constants) if node.op_type == _DEQUANTIZE else None
    # biases are int32
    is_bias = weights is not None and weights.data_type == TensorProto.INT32
    return "" if weights is None or is_bias else _type_name(weights.data_type)


def _type_name(kind: Any) -> str:
    return str(TensorProto.DataType.Name(kind)).lower()
