"""Kernels ONNX Runtime has itself, as operators of the optimised graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from aoe.graph.protos import copied, refill
from aoe.graph.workload_model import constant_values, operation_node
from aoe.kernels.host_products import HOST_INT4, HOST_NARROW_INT8, hosted_product
from aoe.kernels.matmul.shape import MatrixProduct
from aoe.operators import MICROSOFT_DOMAIN
from aoe.workload import Operation, Workload

# ---- Weights as levels, in the forms ONNX Runtime's own operators read ----

Array = np.ndarray[Any, Any]

BLOCK, BITS = 32, 4
"""Weights that share a scale, and bits of each of them."""
_LEAST_DISTANCE = np.finfo(np.float32).smallest_normal


def levels_in_columns(matrix: Array, most: int) -> tuple[Array, Array]:
    """Return levels (depth, columns) int8 and the distance between levels per column, float32.

    Args:
        matrix: (depth, columns) float32.
        most: Largest level, and the lowest one with its sign.
    """
    distances = _checked(np.abs(matrix).max(axis=0) / np.float32(most))
    return _levels_of(matrix, distances[None, :], -most, most).astype(np.int8), distances


def levels_in_blocks(matrix: Array) -> tuple[Array, Array]:
    """Return levels (columns, blocks, bytes) uint8, two to a byte, and a scale for each block.

    The largest value of a block, with its sign, is 8 levels below zero. A column with a
    block that holds a NaN or an infinity comes out as NaN. Source: G. Gerganov et al., ggml (Q4_0).

    Args:
        matrix: (depth, columns) float32.
    """
    depth, columns = matrix.shape
    blocks, lowest = -(-depth // BLOCK), -(1 << (BITS - 1))
    padded = np.zeros((blocks * BLOCK, columns), np.float32)
    padded[:depth] = matrix
    values = padded.reshape(blocks, BLOCK, columns).transpose(2, 0, 1)
    place = np.abs(values).argmax(axis=-1)[..., None]
    scales = _checked(np.take_along_axis(values, place, -1) / np.float32(lowest))
    levels = (_levels_of(values, scales, lowest, -lowest - 1) - lowest).astype(np.uint8)
    return levels[..., 0::2] | (levels[..., 1::2] << BITS), scales.reshape(-1)


def _checked(distances: Array) -> Array:
    """Return distances of levels: NaN for what holds no finite numbers, 0 for what is too small."""
    found = np.where(np.abs(distances) < _LEAST_DISTANCE, np.float32(0), distances)
    return np.where(np.isfinite(found), found, np.float32(np.nan)).astype(np.float32)


def _levels_of(values: Array, distances: Array, low: int, high: int) -> Array:
    """Return the nearest levels, half to even; 0 where there is no distance between them."""
    usable = np.isfinite(distances) & (distances != 0)
    quotients = values / np.where(usable, distances, np.float32(1))
    return np.where(usable, np.rint(np.clip(quotients, low, high)), np.float32(0))


# ---- A matrix product with its chain as nodes of ONNX Runtime's operators of lower precision ----


_SUMMED_IN_INT8 = 4
"""The `accuracy_level` of MatMulNBits that quantises rows to 8 bits."""
_LEVELS, _NARROW_LEVELS = 127, 63
"""Largest level of weights of 8 and of 7 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostOperators:
    """Nodes and constants that take the place of a product and its chain."""

    nodes: tuple[onnx.NodeProto, ...]  # In topological order
    # Quantised weights and small constants the nodes read.
    initializers: tuple[onnx.TensorProto, ...]


def host_operators(
    workload: Workload,
    algorithm: str,
    weights: Array,
    *,
    inputs: Sequence[str],
    output: str,
    name: str,
    doc_string: str = "",
) -> HostOperators:
    """Return a workload as nodes of ONNX Runtime's own operators.

    Args:
        workload: One that `hosted_product` knows.
        algorithm: One of its hosted ones.
        weights: Values of the right matrix, as the workload reads it.
        inputs: Names of the workload's inputs.
        output: Name of its result.
        name: Of the product's node; other names begin with it.
        doc_string: Of the product's node.
    """
    product = hosted_product(workload)
    if product is None:
        raise ValueError(f"{workload.op_type}: no product of weights in integers")
    names = {f"x{at}": given for at, given in enumerate(inputs)}
    names |= {"": "", product.chain.result: output}
    bias = _bias_of(product)
    made: list[onnx.NodeProto] = []
    constants = [
        numpy_helper.from_array(np.array(value, np.float32), f"s{at}")
        for at, value in enumerate(product.chain.scalars)
    ]
    for operation in product.chain.operations:
        if operation.output == product.product:
            matrix = weights.T if product.right_turned else weights
            node, quantised = _product_node(product, algorithm, matrix, bias)
            node.doc_string = doc_string
            constants += quantised
        elif operation is not bias:
            node, small = operation_node(operation)
            constants += small
        else:
            continue
        made.append(node)
    for node in made:
        _rename(node, names, name)
    read = {read for node in made for read in node.input}
    initializers = []
    for tensor in constants:
        tensor.name = f"{name}/{tensor.name}"
        initializers += [tensor] if tensor.name in read else []
    return HostOperators(nodes=tuple(made), initializers=tuple(initializers))


def _rename(node: onnx.NodeProto, names: Mapping[str, str], prefix: str) -> None:
    """Give references of a workload their names in a model, in place."""
    for refs in (node.input, node.output):
        refs[:] = [names.get(ref, f"{prefix}/{ref}") for ref in refs]
    node.name = f"{prefix}/{node.name}" if node.name else prefix


def _bias_of(product: MatrixProduct) -> Operation | None:
    """Return the Add of a constant row right behind a product: both operators have an input for it.

    None if there is no such operation, or somebody else reads the bare product.
    """
    readers = [one for one in product.chain.operations if product.product in one.inputs]
    if len(readers) != 1 or readers[0].op_type != "Add":
        return None
    (other,) = [ref for ref in readers[0].inputs if ref != product.product] or [""]
    specs = {f"x{at}": spec for at, spec in enumerate(product.workload.inputs)}
    is_row = other in specs and specs[other].constant and specs[other].dtype == "float32"
    return readers[0] if is_row and specs[other].shape == (product.columns.extent,) else None


def _product_node(
    product: MatrixProduct, algorithm: str, matrix: Array, bias: Operation | None
) -> tuple[onnx.NodeProto, list[onnx.TensorProto]]:
    """Return the product and its quantised weights, under the references of the workload."""
    left = f"x{product.left}"
    output, added = product.product, []
    if bias is not None:
        output = bias.output
        added = [ref for ref in bias.inputs if ref != product.product]
    if algorithm == HOST_INT4:
        levels, scales = levels_in_blocks(matrix)
        inputs = [left, "levels", "scales", *(["", "", *added] if added else [])]
        depth, columns = matrix.shape
        node = helper.make_node(
            "MatMulNBits",
            inputs,
            [output],
            domain=MICROSOFT_DOMAIN,
            K=depth,
            N=columns,
            bits=BITS,
            block_size=BLOCK,
            accuracy_level=_SUMMED_IN_INT8,
        )
        return node, _named(levels=levels, scales=scales)
    most = _NARROW_LEVELS if algorithm == HOST_NARROW_INT8 else _LEVELS
    levels, scales = levels_in_columns(matrix, most)
    zeros = np.zeros(len(scales), np.int8)
    node = helper.make_node(
        "DynamicQuantizeMatMul",
        [left, "levels", "scales", "zeros", *added],
        [output],
        domain=MICROSOFT_DOMAIN,
    )
    return node, _named(levels=levels, scales=scales, zeros=zeros)


def _named(**arrays: Array) -> list[onnx.TensorProto]:
    return [numpy_helper.from_array(array, name) for name, array in arrays.items()]


def import_microsoft(proto: onnx.ModelProto) -> None:
    """Import the domain of the operators where a model does not yet, in place."""
    if all(entry.domain != MICROSOFT_DOMAIN for entry in proto.opset_import):
        proto.opset_import.append(helper.make_opsetid(MICROSOFT_DOMAIN, 1))


def hosted_model(
    baseline: onnx.ModelProto,
    workload: Workload,
    algorithm: str,
    seed: int,
    *,
    store: Callable[[Array, str], onnx.TensorProto] = numpy_helper.from_array,
) -> onnx.ModelProto:
    """Return the baseline model with its operators replaced by ONNX Runtime's of lower precision.

    Args:
        baseline: Model of the workload.
        workload: One with a product they compute.
        algorithm: Which of them.
        seed: Of the baseline's constants.
        store: Makes an initializer of an array and its name.
    """
    model = copied(baseline)
    inputs = [f"x{i}" for i in range(len(workload.inputs))]
    product = hosted_product(workload)
    assert product is not None  # its schedule has been checked
    weights = constant_values(workload, seed)[f"x{product.right}"]
    made = host_operators(workload, algorithm, weights, inputs=inputs, output="y", name="hosted")
    refill(model.graph.node, made.nodes)
    read = {name for node in made.nodes for name in node.input}
    kept = [tensor for tensor in model.graph.initializer if tensor.name in read]
    refill(model.graph.initializer, kept)
    for tensor in made.initializers:
        model.graph.initializer.append(store(numpy_helper.to_array(tensor), tensor.name))
    import_microsoft(model)
    return model
