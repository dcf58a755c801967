"""Point functions of 8-bit levels: a table of 256 results, and look-ups in it.

Whatever a chain computes of one tensor of levels has 256 results. They are made in every call,
since scales and zero points are inputs: 16 vectors of the chain. A look-up then takes less than any
chain: with AVX-512 VBMI a function of the glue looks 64 levels up in registers.
"""

from __future__ import annotations

from collections.abc import Sequence

import halide as hl

from aoe.kernels.halide.chain import build_chain
from aoe.kernels.math.elements import element_type, loaded, stored
from aoe.operators.element_types import LEVELS, element_types
from aoe.workload import Operation, Workload

ENTRIES = 256
_LANES = 16


def is_point_function(workload: Workload, chain: Sequence[Operation], source: str) -> bool:
    """Return True if a chain makes levels of one tensor of levels, and of single numbers.

    Args:
        workload: What is computed; the chain makes its result.
        chain: The operations.
        source: Reference of the tensor.
    """
    types = element_types(workload)
    if not chain or {types[source], workload.output.dtype} - LEVELS:
        return False
    made = {source, *(operation.output for operation in chain)}
    read = {ref for operation in chain for ref in operation.inputs if ref} - made
    return all(ref.startswith("s") or _is_number(workload, ref) for ref in read)


def _is_number(workload: Workload, ref: str) -> bool:
    return ref.startswith("x") and workload.inputs[int(ref[1:])].size == 1


def table_of(
    workload: Workload,
    chain: Sequence[Operation],
    source: str,
    arguments: Sequence[hl.ImageParam],
) -> hl.Func:
    """Return the bytes of the results of all levels, by the bits of a level.

    Args:
        workload: What is computed.
        chain: Operations that make its result of the levels `source` and of single numbers.
        source: Reference of the levels.
        arguments: Buffers of the inputs; those of single numbers have no dimensions.
    """
    at, table, types = hl.Var("at"), hl.Func("table"), element_types(workload)
    level = hl.reinterpret(element_type(types[source]), hl.cast(hl.UInt(8), at))
    read = {source: loaded(level, types[source])} | {
        ref: loaded(arguments[int(ref[1:])][()], types[ref])
        for operation in chain
        for ref in operation.inputs
        if ref.startswith("x") and ref != source
    }
    values: dict[str, hl.Expr] = {}
    for ref, value in read.items():
        function = hl.Func(f"{ref}_of_table")  # operators take plain values
        function[at] = value
        values[ref] = hl.Expr(function[at])
    known = build_chain(chain, values, workload.scalars, (at,), types)
    table[at] = hl.reinterpret(hl.UInt(8), stored(known[workload.result], workload.output.dtype))
    table.bound(at, 0, ENTRIES).compute_root().vectorize(at, _LANES)
    return table


def looked_up(
    name: str,
    levels: hl.Func | hl.ImageParam,
    table: hl.Func,
    loops: Sequence[hl.Var],
    dtype: str,
) -> hl.Func:
    """Return the stage that looks levels up; see `aoe_look_up` in `glue/tables.c`."""
    found = hl.Func(name)
    found.define_extern(
        "aoe_look_up",
        [hl.ExternFuncArgument(levels), hl.ExternFuncArgument(table)],
        [element_type(dtype)],
        list(loops),
        hl.NameMangling.C,
    )
    found.compute_root()  # steps place it closer
    return found


def looked_up_rows(
    name: str,
    operands: Sequence[tuple[hl.Func | hl.ImageParam, hl.Func]],
    loops: tuple[hl.Var, hl.Var, hl.Var],
    dtype: str,
) -> hl.Func:
    """Return the stage that looks up parts of rows, one behind the other.

    Args:
        name: Of the stage.
        operands: Levels and table of each part.
        loops: Inside a row, over rows, and over groups of them.
        dtype: Element type of the result.
    """
    found = hl.Func(name)
    found.define_extern(
        f"aoe_look_up_{len(operands)}",
        [hl.ExternFuncArgument(read) for operand in operands for read in operand],
        [element_type(dtype)],
        list(loops),
        hl.NameMangling.C,
    )
    found.compute_root()
    return found
