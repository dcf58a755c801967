"""Element types that operators read and make.

Kernels compute in float32. What is float16 is rounded to it where an operator makes it, so that it
is what an operator of float16 would have made of the same values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aoe.operators.facts import (
    KERNEL_DTYPES,
    RESULT_NUMBER,
    STORED_DTYPES,
    OperatorKind,
    QuantisedInputs,
    Rounding,
    Signature,
    op_key,
)
from aoe.operators.table import OPERATORS, facts_of
from aoe.workload import Operation, Workload

FLOAT32, FLOAT16, BOOLEAN = "float32", "float16", "bool"
LEVELS = frozenset({"int8", "uint8"})
"""Integers that stand for numbers: see QuantizeLinear."""
BIAS = "int32"
"""Type of the biases of operators that compute with levels."""
_CHOOSING = frozenset({OperatorKind.MOVEMENT, OperatorKind.REORDER, OperatorKind.WINDOW})
"""Operators that copy elements if they round none: moves, and the largest of a window."""
_CLIP_INPUTS = 3
_CAST_TO = {1: FLOAT32, 10: FLOAT16}
_MEASURED = ("uint8", FLOAT32, "uint8")
"""Types of the results of DynamicQuantizeLinear."""
_QUANTIZED_TO = {0: "uint8", 2: "uint8", 3: "int8"}
"""By ONNX's numbers of types. Source: onnx.proto, TensorProto.DataType."""


def element_types(workload: Workload) -> Mapping[str, str]:
    """Return the element type of every reference of a workload, as far as it can be told."""
    found = {f"x{number}": spec.dtype for number, spec in enumerate(workload.inputs)}
    for operation in workload.operations:
        if op_key(operation) in OPERATORS:
            found[operation.output] = result_type(operation, read_types(operation, found))
    return found


def read_types(operation: Operation, known: Mapping[str, str]) -> tuple[str, ...]:
    """Return the types of what an operation reads, empty for omitted inputs.

    Args:
        operation: Of a workload.
        known: Types by reference; float32 where it has none.
    """
    return tuple(known.get(ref, FLOAT32) if ref else "" for ref in operation.inputs)


def result_type(operation: Operation, given: Sequence[str]) -> str:
    """Return the type of a result by the types of the inputs; empty if no kernel makes it."""
    signature = facts_of(operation).signature
    if signature.makes_boolean:
        return BOOLEAN
    attributes = operation.attributes
    if signature is Signature.CAST:
        return _CAST_TO.get(_code(attributes.get("to", 0)), "")
    if signature is Signature.QUANTIZE:
        zero_point = given[2] if len(given) > 2 else ""
        return zero_point or _QUANTIZED_TO.get(_code(attributes.get("output_dtype", 0)), "")
    if signature is Signature.DEQUANTIZE:
        return given[1] if len(given) > 1 else ""
    if signature is Signature.MEASURED:
        return _MEASURED[_code(attributes.get(RESULT_NUMBER, 0))]
    quantised = facts_of(operation).quantised
    if quantised is not None and quantised.makes_sums:
        return BIAS
    if quantised is not None:
        read = dict(enumerate(given))
        scale, zero = (read.get(at) for at in quantised.result)
        # without a zero point levels are of the type that is read
        return (zero or given[quantised.operands[0][0]]) if scale else FLOAT32
    numbers = [dtype for dtype in given if dtype not in ("", BOOLEAN)]
    return numbers[0] if numbers else FLOAT32


def misread(operation: Operation, given: Sequence[str]) -> str:
    """Return the reason why a kernel cannot compute an operation of such types; empty if it can."""
    facts, name = facts_of(operation), operation.op_type
    for position, dtype in enumerate(given):
        wants = facts.signature.reads_boolean(position)
        if dtype and (dtype == BOOLEAN) != wants:
            return f"{name} reads {'a number' if wants else 'a boolean'} as input {position}"
    made = result_type(operation, given)
    makes_sums = facts.quantised is not None and facts.quantised.makes_sums
    if made not in {BOOLEAN, *KERNEL_DTYPES, *STORED_DTYPES} and not makes_sums:
        return f"{name} makes {made or 'another type'}, kernels compute in float32"
    numbers = [dtype for dtype in given if dtype not in ("", BOOLEAN)]
    if name == "Clip" and made == FLOAT16 and len(numbers) < _CLIP_INPUTS:
        return f"{name} of {made} to all its numbers, without infinities"
    levels = [dtype for dtype in numbers if dtype in LEVELS]
    match facts.signature:
        case Signature.DEQUANTIZE:
            fits = [dtype in LEVELS for dtype in given] == [True, False, True][: len(given)]
            fits &= len(set(levels)) == 1 and given[1] == FLOAT32
        case Signature.QUANTIZE:
            fits = list(given[:2]) == [FLOAT32] * 2 and made in LEVELS
            fits &= len(given) < 3 or given[2] in LEVELS
        case Signature.CAST:
            fits = made not in LEVELS
        case Signature.MEASURED:
            fits = list(given) == [FLOAT32]
        case Signature.LEVELS:
            fits = facts.quantised is not None and _fits_levels(facts.quantised, given)
        case _:
            chooses = facts.kind in _CHOOSING and facts.rounding is Rounding.EXACT
            fits = len(set(numbers)) < 2 and (chooses or not levels)
    return "" if fits else f"{name} of {' and '.join(numbers)}, kernels compute in float32"


def _fits_levels(quantised: QuantisedInputs, given: Sequence[str]) -> bool:
    """Return True if levels, scales, zero points and bias have types kernels compute with."""
    read = dict(enumerate(given))
    pairs = [(read.get(levels), read.get(zero)) for levels, _, zero in quantised.operands]
    return (
        all(levels in LEVELS and zero in (levels, "", None) for levels, zero in pairs if levels)
        and all(read.get(at) in (FLOAT32, "", None) for at in quantised.scales)
        and read.get(quantised.result[1]) in (*LEVELS, "", None)
        and read.get(quantised.bias) in (BIAS, "", None)
    )


def _code(value: object) -> int:
    return value if isinstance(value, int) else -1
