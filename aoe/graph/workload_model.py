"""A workload as an ONNX model: what ONNX Runtime computes for it, and inputs to compare on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from aoe.graph.protos import copied, refill, value_info
from aoe.kernels.halide.shapes import infer_shapes
from aoe.operators import (
    MOVED_DTYPES,
    OPERATORS,
    RESULT_NUMBER,
    STORED_DTYPES,
    OperatorFacts,
    OperatorKind,
    Shape,
    Specials,
    facts_of,
    op_key,
)
from aoe.operators.axes import SOFTMAX_OF_LEVELS
from aoe.operators.element_types import (
    BIAS,
    BOOLEAN,
    FLOAT16,
    FLOAT32,
    LEVELS,
    element_types,
)
from aoe.operators.quantised import MEASURED_LEVELS
from aoe.workload import KERNEL_DOMAIN, Operation, Workload

Array = np.ndarray[Any, Any]

RESULT = "y"
_IR_VERSION = 10  # read by every ONNX Runtime since 1.18
_OLDEST_OPSET = 7
"""Opset below which ONNX Runtime runs nothing. Source: its list of supported opsets."""

_FINITE_SPECIALS = (0.0, -0.0, 1e-40, -1e-40, 0.5, -0.5, 1.5, -1.5, 2.5, -2.5, 1.0, -1.0, 3.0, -3.0)
_LARGE_SPECIALS = (88.0, -88.0, 100.0, -100.0, 1e-20, -1e-20, 1e20, -1e20, 3e38, -3e38)
_NON_FINITE = (np.nan, np.inf, -np.inf)
_SPECIAL_SHARE = 0.4
"""Share of special values among the elements of an input."""
_SPARSE_SPECIALS = 24
"""Special values in an input whose elements influence each other."""
_MOST_DRAWN = 4_194_301
"""Elements of an input that are drawn; larger ones repeat them. To draw 100 million, the weights of
a large matrix product, takes seconds. A prime, so that no two rows are the same."""
_MODERATE_MAX = 50.0
"""Largest special value of operators that are compared on moderate ones."""


_MOVED_SPREAD = 20.0
"""Of numbers that are only moved: none of them beyond a byte, not even a signed one."""
_SCALE, _LEVEL = "scale", "level"
"""Kinds of inputs of operators that compute with levels; the third one is a bias."""
_MEAN_SCALE = 40 / 74**2
"""Products of two levels, each 74 from zero on average, come to 40 levels of the result."""
_STEEPER, _FINER = 10.0, 0.5
"""Factors of the scales of a softmax: exponents span 18, the largest results are 200 levels."""
_BIAS_SPREAD = 20_000.0


def workload_model(
    workload: Workload,
    *,
    seed: int,
    store: Callable[[Array, str], onnx.TensorProto] = numpy_helper.from_array,
) -> onnx.ModelProto:
    """Return the model ONNX Runtime runs as the baseline of `workload`.

    Inputs are `x0`, `x1`, ..., the result is `y`. Constant inputs are initializers with seeded
    values, so the model is to be loaded with graph optimisations off.

    Args:
        workload: What is computed.
        seed: Of the values of constants.
        store: Makes an initializer of the values of a constant and its name; large ones may go
            into a file.
    """
    values = constant_values(workload, seed)
    inputs, initializers = [], []
    for number, spec in enumerate(workload.inputs):
        name = f"x{number}"
        if spec.constant:
            initializers.append(store(values[name], name))
        else:
            inputs.append(value_info(name, spec))
    shaped = _read_as(workload, lambda facts: facts.channel_values)  # one for each channel
    for number, scalar in enumerate(workload.scalars):
        shape = (1,) if f"s{number}" in shaped else ()
        value = np.full(shape, scalar, dtype=np.float32)
        initializers.append(numpy_helper.from_array(value, f"s{number}"))
    nodes: list[onnx.NodeProto] = []
    types = element_types(workload)
    shapes = {f"x{number}": spec.shape for number, spec in enumerate(workload.inputs)}
    for operation in workload.operations:
        node, constants = operation_node(operation, types, shapes)
        if operation.output == workload.result:
            node.output[-1] = RESULT
        initializers += constants
        known = next((one for one in nodes if _is_same_operator(one, node)), None)
        if known is None:
            nodes.append(node)
        else:  # another of its results
            _add_result(known, node)
    for node in nodes:
        _name_results(node)
    output = value_info(RESULT, workload.output)
    graph = helper.make_graph(nodes, workload.op_type, inputs, [output], initializers)
    domains = {operation.domain for operation in workload.operations} - {""}
    opsets = [helper.make_opsetid("", max(workload.opset, _OLDEST_OPSET))]
    opsets += [helper.make_opsetid(domain, 1) for domain in sorted(domains)]
    model: onnx.ModelProto = helper.make_model(
        graph, opset_imports=opsets, ir_version=_IR_VERSION, producer_name="aoe"
    )
    return model


def candidate_model(
    baseline: onnx.ModelProto, kernel_name: str, workload: Workload
) -> onnx.ModelProto:
    """Return the baseline model with its operators replaced by one kernel node.

    Args:
        baseline: See `workload_model`.
        kernel_name: Operator of the kernel in the domain `aoe`.
        workload: What both compute.
    """
    model = copied(baseline)
    inputs = [f"x{i}" for i in range(len(workload.inputs))]
    node = helper.make_node(kernel_name, inputs, [RESULT], domain=KERNEL_DOMAIN)
    refill(model.graph.node, [node])
    kept = [tensor for tensor in model.graph.initializer if tensor.name in inputs]
    refill(model.graph.initializer, kept)
    model.opset_import.append(helper.make_opsetid(KERNEL_DOMAIN, 1))
    return model


def constant_values(workload: Workload, seed: int) -> Mapping[str, Array]:
    """Return the values the constants of `workload_model` have, by name."""
    return _values(workload, seed, constant=True)


def random_inputs(
    workload: Workload, seed: int, most_drawn: int = _MOST_DRAWN
) -> Mapping[str, Array]:
    """Return seeded values of the inputs that are not constant, by name: of their type and shape.

    Standard normal; positive or away from zero where an operator needs it; indices anywhere from
    the first to the last element, counted from either end. One factor of a sum of products is
    scaled, so that sums are standard normal too, as they are in networks: a chain behind larger
    ones would be timed on exponentials that underflow.
    """
    return _values(workload, seed, constant=False, most_drawn=most_drawn)


def special_inputs(workload: Workload, seed: int) -> Mapping[str, Array]:
    """Return inputs sprinkled with values on which implementations part company.

    NaN, infinities, signed zeros, denormals, exact integers and halves, very large and very small
    magnitudes; for LRN only those that ONNX Runtime's running sum survives, and only finite
    and moderate ones for products in bfloat16, which rounds 3.39e38 up to infinity.
    """
    values = dict(random_inputs(workload, seed))
    specials, sparse = _specials(workload)
    moved = all(facts_of(item).kind is OperatorKind.MOVEMENT for item in workload.operations)
    for number, name in enumerate(values):
        rng = np.random.default_rng([seed, 1000 + number])
        dtype = values[name].dtype
        if dtype.name in (MOVED_DTYPES if moved else LEVELS):
            bits = np.frombuffer(rng.bytes(values[name].nbytes), dtype)
            values[name] = bits.reshape(values[name].shape)
        elif dtype.kind == "f":
            values[name] = _sprinkled(values[name], specials, rng, sparse=sparse)
    return values


def _sprinkled(
    values: Array, specials: Sequence[float], rng: np.random.Generator, *, sparse: bool
) -> Array:
    """Return float values with special ones at random places."""
    flat = values.reshape(-1).copy()
    share = int(np.ceil(_SPECIAL_SHARE * flat.size))
    count = min(share, _SPARSE_SPECIALS if sparse else share)
    places = rng.choice(flat.size, size=count, replace=False)
    with np.errstate(over="ignore"):  # float16 has no 1e20
        flat[places] = rng.permutation(np.resize(specials, count)).astype(flat.dtype)
    return flat.reshape(values.shape)


def _specials(workload: Workload) -> tuple[tuple[float, ...], bool]:
    """Return special values, and whether one of them reaches many results."""
    wanted = {facts_of(operation).specials for operation in workload.operations}
    moderate = tuple(value for value in _LARGE_SPECIALS if abs(value) <= _MODERATE_MAX)
    if Specials.MODERATE in wanted or workload.precision.is_lower:
        return _FINITE_SPECIALS + moderate, True
    if Specials.SUMMED in wanted:
        return _NON_FINITE + _FINITE_SPECIALS + moderate, True
    return _NON_FINITE + _FINITE_SPECIALS + _LARGE_SPECIALS, Specials.FEW in wanted


def _values(
    workload: Workload, seed: int, *, constant: bool, most_drawn: int = _MOST_DRAWN
) -> dict[str, Array]:
    """Return values of the inputs: of the constant ones, or of all others."""
    positive = _read_as(workload, lambda facts: facts.positive)
    nonzero = _read_as(workload, lambda facts: facts.nonzero)
    scales, indexed = _scales(workload), indexed_extents(workload)
    quantised = _quantised_roles(workload)
    values = {}
    for number, spec in enumerate(workload.inputs):
        if spec.constant is not constant:
            continue
        name = f"x{number}"
        rng = np.random.default_rng([seed, number])
        if name in indexed:
            drawn = rng.integers(-indexed[name], indexed[name], spec.shape)
            values[name] = drawn.astype(spec.dtype)
            continue
        array = rng.standard_normal(min(spec.size, most_drawn))
        if name in quantised:
            drawn = _quantised_values(array, quantised[name], spec.dtype, scales.get(name, 1.0))
            values[name] = np.resize(drawn, spec.shape)
            continue
        if spec.dtype == BOOLEAN:
            values[name] = np.resize(array > 0.0, spec.shape)
            continue
        if name in positive:
            array = np.abs(array) + 0.1
        elif name in nonzero:
            array += np.copysign(0.5, array)
        stored = spec.dtype in MOVED_DTYPES | STORED_DTYPES
        if stored and spec.dtype != FLOAT16:
            array = np.abs(np.rint(array * _MOVED_SPREAD))
        made = spec.dtype if stored else FLOAT32
        drawn = np.asarray(array * scales.get(name, 1.0)).astype(made)
        values[name] = np.resize(drawn, spec.shape)
    return values


def _quantised_roles(workload: Workload) -> dict[str, str]:
    """Return the roles of inputs of operators on levels, by reference."""
    found = {}
    for operation in workload.operations:
        quantised = facts_of(operation).quantised
        if quantised is None:
            continue
        for at, ref in enumerate(operation.inputs):
            if at in quantised.scales:
                found[ref] = _SCALE
            elif at == quantised.bias:
                found[ref] = BIAS
            elif at in quantised.levels | quantised.zero_points:
                found[ref] = _LEVEL
    return found


def _quantised_values(normal: Array, role: str, dtype: str, factor: float) -> Array:
    """Return values of an input of an operator of levels, drawn from normal ones.

    Levels are uniform over all of their type, scales such that results seldom saturate.
    """
    uniform = normal - np.floor(normal)
    if role == _SCALE:
        return np.asarray(_MEAN_SCALE * (0.5 + uniform) * factor, np.float32)
    if role == BIAS:
        return np.asarray(np.rint(_BIAS_SPREAD * normal), BIAS)
    least = np.iinfo(dtype).min
    return np.asarray(np.floor(uniform * 256) + least, np.int64).astype(dtype)


def indexed_extents(workload: Workload) -> dict[str, int]:
    """Return the inputs that hold indices, by reference, and how many elements they count.

    Of indices that are moved to several tables, the fewest.
    """
    shapes = infer_shapes(workload)
    if isinstance(shapes, str):
        return {}
    makers = {operation.output: operation for operation in workload.operations}
    found: dict[str, int] = {}
    for operation in workload.operations:
        for at in facts_of(operation).indices:
            if at >= len(operation.inputs):
                continue
            ref = operation.inputs[at]
            while ref in makers:
                ref = makers[ref].inputs[0]
            count = facts_of(operation).indexed(operation, shapes[operation.inputs[0]])
            found[ref] = min(count, found.get(ref, count))
    return found


def _scales(workload: Workload) -> dict[str, float]:
    """Return by how much second factors of products are smaller, and scales of a softmax differ."""
    shapes = infer_shapes(workload)
    if isinstance(shapes, str):
        return {}
    summed = {
        operation.inputs[at]: facts_of(operation).summed(operation, shapes[operation.inputs[0]])
        for operation in workload.operations
        if facts_of(operation).kind is OperatorKind.PRODUCT
        for at in facts_of(operation).factors
    }
    factors = {name: count**-0.5 for name, count in summed.items()}
    for operation in workload.operations:
        if op_key(operation) == SOFTMAX_OF_LEVELS:
            factors |= {operation.inputs[1]: _STEEPER, operation.inputs[3]: _FINER}
    return factors


def _read_as(workload: Workload, role: Callable[[OperatorFacts], Collection[int]]) -> set[str]:
    """Return the references read at the positions that have a role in their operators."""
    return {
        operation.inputs[at]
        for operation in workload.operations
        for at in role(facts_of(operation))
        if at < len(operation.inputs)
    }


def _constants(
    operation: Operation, types: Mapping[str, str], shapes: Mapping[str, Shape]
) -> list[tuple[int, onnx.TensorProto]]:
    """Return the inputs that are attributes of an operation, by their position.

    A zero point has the shape of its scale, which QGemm insists on.
    """
    quantised = facts_of(operation).quantised
    operands = quantised.operands if quantised else ()
    levels = {zero: (levels, scale) for levels, scale, zero in operands}
    found = []
    for constant in facts_of(operation).constants:
        value, shape = operation.attributes.get(constant.name), None
        if constant.position in levels:
            read = dict(enumerate(operation.inputs))
            of_levels, of_scale = (read.get(at, "") for at in levels[constant.position])
            dtype, shape = types[of_levels], shapes.get(of_scale, ())
        elif operation.domain or _has_attribute(operation, constant.name):
            continue  # other constants that become attributes are inputs of ONNX's own operators
        else:
            dtype = constant.dtype
        if value is not None:
            array = np.array(value, dtype=dtype)
            array = array if shape is None else np.full(shape, array)
            name = f"{operation.output}_{constant.name}"
            found.append((constant.position, numpy_helper.from_array(array, name)))
    return found


def _has_attribute(operation: Operation, name: str) -> bool:
    """Return True if ONNX has `name` as an attribute in the operation's version."""
    schema = onnx.defs.get_schema(operation.op_type, operation.version, operation.domain)
    return name in schema.attributes


def operation_node(
    operation: Operation,
    types: Mapping[str, str] = MappingProxyType({}),
    shapes: Mapping[str, Shape] = MappingProxyType({}),
) -> tuple[onnx.NodeProto, list[onnx.TensorProto]]:
    """Return an operation as a node between references, and the constants it reads besides.

    Args:
        operation: Of a workload.
        types: Element types by reference, for operators of levels.
        shapes: Shapes of their scales, by reference.
    """
    constants = dict(_constants(operation, types, shapes))
    made = {tensor.name.removeprefix(f"{operation.output}_") for tensor in constants.values()}
    attributes: dict[str, Any] = {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in operation.attributes.items()
        if value != () and name not in made and name != RESULT_NUMBER
    }
    inputs = list(operation.inputs)
    for position, tensor in constants.items():
        inputs += [""] * (position + 1 - len(inputs))
        inputs[position] = tensor.name
    node = helper.make_node(
        operation.op_type,
        inputs,
        [*_in_front(operation), operation.output],
        name=operation.output,
        domain=operation.domain,
        **attributes,
    )
    return node, list(constants.values())


def _is_same_operator(one: onnx.NodeProto, other: onnx.NodeProto) -> bool:
    """Return True for two nodes that compute the same, of which each has a result of its own."""
    same = op_key(one) == op_key(other) == MEASURED_LEVELS
    return same and list(one.input) == list(other.input)


def _add_result(node: onnx.NodeProto, other: onnx.NodeProto) -> None:
    """Give a node the result that another one like it has."""
    results = [*node.output, *[""] * (len(other.output) - len(node.output))]
    results[len(other.output) - 1] = other.output[-1]
    refill(node.output, results)


def _name_results(node: onnx.NodeProto) -> None:
    """Name the results nobody reads of an operator that has to make them all."""
    if op_key(node) == MEASURED_LEVELS:
        every = (*node.output, *[""] * (OPERATORS[MEASURED_LEVELS].results - len(node.output)))
        refill(node.output, [one or f"{node.name}_{at}_unread" for at, one in enumerate(every)])


def _in_front(operation: Operation) -> list[str]:
    """Return the results of an operator in front of the one that is meant, which nobody reads."""
    place = operation.attributes.get(RESULT_NUMBER, 0)
    return [""] * place if isinstance(place, int) else []
