"""Chains of element-wise operators: are they supported, and what do they compute?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import halide as hl

from aoe.kernels.elementwise_ops import ELEMENTWISE_OPS
from aoe.kernels.family import SUPPORTED, Pipeline, Support
from aoe.kernels.halide.iteration import Iteration
from aoe.kernels.math.elements import element_type, loaded, rounded, stored
from aoe.kernels.math.functions import constant, erf, power_of_constant, tanh_of_softplus
from aoe.operators import Rounding, facts_of, is_reorder, op_key
from aoe.operators.element_types import (
    BOOLEAN,
    FLOAT32,
    element_types,
    misread,
    read_types,
    result_type,
)
from aoe.workload import Operation, Workload
from aoebank import plural

RESULT = "y"
"""Stage name of the result in every family."""


_NO_TYPES: Mapping[str, str] = MappingProxyType({})


def check_chain(operations: Iterable[Operation], types: Mapping[str, str] = _NO_TYPES) -> Support:
    """Check that a chain may hold every operation, used in a supported way.

    Args:
        operations: In topological order.
        types: Element types of what comes from elsewhere, by reference; float32 if not given.
    """
    known = dict(types)
    last = None
    for operation in operations:
        last = operation
        if is_reorder(operation):
            continue
        reason = _refusal(operation, known)
        if reason:
            return Support(reason)
    if last is not None and known.get(last.output) == BOOLEAN:
        return Support(f"{last.op_type} makes booleans, kernels return float32")
    return SUPPORTED


def check_around(workload: Workload, anchor: Operation, chain: Iterable[Operation]) -> Support:
    """Check the chain around an operation, and the element types that operation reads."""
    types = element_types(workload)
    checked = check_chain(chain, types)
    return checked and Support(misread(anchor, read_types(anchor, types)))


def _refusal(operation: Operation, types: dict[str, str]) -> str:
    """Return the reason why `operation` is not supported; note its result's type in `types`."""
    rule = ELEMENTWISE_OPS.get(op_key(operation))
    name = operation.op_type
    if rule is None:
        return f"{name} is not element-wise"
    facts = facts_of(operation)
    if not operation.domain and operation.version < facts.since:
        return f"{name} version {operation.version} broadcasts by other rules"
    least, most = facts.inputs
    if not least <= len(operation.inputs) <= most or "" in operation.inputs[:least]:
        return f"{name} with {plural(len(operation.inputs), 'input')}"
    given = read_types(operation, types)
    types[operation.output] = result_type(operation, given)
    return misread(operation, given) or rule.refuse(operation)


WRITTEN_OUT_CYCLES = 12
"""Cycles of a chain up to which it is written out for each result of a register tile."""
_ERF_DIVISORS = 0.5, 2.0
"""Least and largest divisor in front of an Erf whose powers its coefficients take in; GELU has the
root of 2."""


def build_chain(
    operations: Iterable[Operation],
    values: Mapping[str, hl.Expr],
    scalars: Sequence[float],
    variables: Sequence[hl.Var],
    types: Mapping[str, str] = _NO_TYPES,
) -> dict[str, hl.Expr]:
    """Return the value of every reference, each result being an inlined function of its own.

    Args:
        operations: Operations to compute, in topological order.
        values: Values of references that are known already.
        scalars: Values of `s0`, `s1`, ...
        variables: Loop variables, innermost first.
        types: Element types of the references; float32 if not given.
    """
    known, made = dict(values), dict(types)
    known |= {f"s{i}": constant(value) for i, value in enumerate(scalars)}
    softened: dict[str, hl.Expr] = {}
    divided: dict[str, tuple[hl.Expr, float]] = {}
    for operation in operations:
        if op_key(operation) == ("", "Softplus"):
            softened[operation.output] = known[operation.inputs[0]]
        function = hl.Func(operation.output)
        if op_key(operation) == ("", "Tanh") and operation.inputs[0] in softened:
            # Mish as networks write it: one exponential instead of two and a logarithm
            expression = tanh_of_softplus(softened[operation.inputs[0]])
        elif op_key(operation) == ("", "Erf") and operation.inputs[0] in divided:
            # GELU as networks write it: the one division is that of the Erf
            expression = erf(*divided[operation.inputs[0]])
        else:
            expression = _expression(operation, known, scalars)
        made[operation.output] = result_type(operation, read_types(operation, made))
        divisor = _erf_divisor(operation, scalars)
        if divisor and made[operation.output] == FLOAT32:
            divided[operation.output] = known[operation.inputs[0]], divisor
        expression = in_type(operation, expression, made[operation.output])
        function[tuple(variables)] = expression
        known[operation.output] = hl.Expr(function[tuple(variables)])
    return known


def _erf_divisor(operation: Operation, scalars: Sequence[float]) -> float:
    """Return the divisor of `operation`, if an Erf behind it can take that in; 0 if not."""
    if op_key(operation) != ("", "Div") or not operation.inputs[1].startswith("s"):
        return 0.0
    divisor = scalars[int(operation.inputs[1][1:])]
    low, high = _ERF_DIVISORS
    return divisor if low <= divisor <= high else 0.0


def in_type(operation: Operation, value: hl.Expr, dtype: str) -> hl.Expr:
    """Return a result of an operation, computed in float32, as it is in its element type."""
    facts = facts_of(operation)
    chosen = facts.rounding is Rounding.EXACT and not facts.signature.converts
    return value if chosen or dtype in (BOOLEAN, FLOAT32) else rounded(value, dtype)


def _expression(
    operation: Operation, known: Mapping[str, hl.Expr], scalars: Sequence[float]
) -> hl.Expr:
    key = op_key(operation)
    inputs = [known[ref] if ref else hl.Expr() for ref in operation.inputs]
    if is_reorder(operation):
        return inputs[0]
    if key == ("", "Pow") and operation.inputs[1].startswith("s"):
        return power_of_constant(inputs[0], scalars[int(operation.inputs[1][1:])])
    return ELEMENTWISE_OPS[key].build(inputs, operation.attributes, operation.version)


def estimate_cycles(operations: Iterable[Operation]) -> int:
    """Return the rough cost of one vector of a chain's results, in cycles of one core."""
    total = 0
    for operation in operations:
        if is_reorder(operation):
            continue
        scalar_power = operation.op_type == "Pow" and operation.inputs[1].startswith("s")
        rule = ELEMENTWISE_OPS.get(op_key(operation))
        total += rule.cycles // (4 if scalar_power else 1) if rule else 0
    return total


@dataclass(frozen=True, slots=True, kw_only=True)
class Operands:
    """Buffers a kernel reads, and the values of references made of their elements."""

    iteration: Iteration  # The loop nest of the result
    variables: tuple[hl.Var, ...]  # Its loop variables, innermost first
    arguments: tuple[hl.ImageParam, ...]  # Buffers, one per workload input
    # The element of each input that one iteration takes, and what is computed of them already, by
    # reference.
    values: Mapping[str, hl.Expr]


def read_operands(workload: Workload, iteration: Iteration) -> Operands:
    """Return the inputs of `workload` as they are read in a loop nest."""
    variables = tuple(hl.Var(axis.name) for axis in reversed(iteration.axes))
    arguments = tuple(
        hl.ImageParam(element_type(spec.dtype), len(operand), f"x{i}")
        for i, (spec, operand) in enumerate(zip(workload.inputs, iteration.operands, strict=True))
    )
    outermost_first = tuple(reversed(variables))
    values = {
        f"x{i}": _loaded(
            f"x{i}",
            argument[tuple(outermost_first[at] for at in reversed(operand))],
            workload.inputs[i].dtype,
            variables,
        )
        for i, (argument, operand) in enumerate(zip(arguments, iteration.operands, strict=True))
    }
    return Operands(iteration=iteration, variables=variables, arguments=arguments, values=values)


def _loaded(ref: str, element: hl.Expr, dtype: str, variables: Sequence[hl.Var]) -> hl.Expr:
    """Return the number an element stands for, as a plain value (see `elementwise_ops`)."""
    if dtype == FLOAT32:
        return element
    function = hl.Func(f"{ref}_loaded")
    function[tuple(variables)] = loaded(element, dtype)
    return hl.Expr(function[tuple(variables)])


def chain_pipeline(
    workload: Workload,
    operands: Operands,
    operations: Iterable[Operation],
    stages: Mapping[str, Any] = MappingProxyType({}),
    loops: Mapping[str, tuple[tuple[str, int], ...]] = MappingProxyType({}),
) -> Pipeline:
    """Return a pipeline whose result is computed in one function, by a chain of operations.

    Args:
        workload: What is computed.
        operands: What the chain starts from.
        operations: The chain; it makes the result of `workload`, or is empty and has it already.
        stages: Functions behind the operands, by name.
        loops: Their loops.
    """
    variables, iteration = operands.variables, operands.iteration
    types = element_types(workload)
    values = build_chain(operations, operands.values, workload.scalars, variables, types)
    output = hl.Func(RESULT)
    output[variables] = stored(values[workload.result], workload.output.dtype)
    nest = tuple((axis.name, axis.extent) for axis in reversed(iteration.axes))
    return Pipeline(
        output=output,
        stages={RESULT: output, **stages},
        arguments=operands.arguments,
        argument_extents=iteration.argument_extents,
        output_extents=iteration.extents,
        loops={RESULT: nest, **loops},
    )
