"""What a movement reads, as Halide expressions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import halide as hl

from aoe.kernels.math.functions import constant
from aoe.kernels.movement.moves import Fill, Read, Source
from aoe.kernels.movement.places import Bound, KeptInside, Made, Position
from aoe.workload import Workload

Values = Mapping[str, hl.Expr]

_ELEMENTS = {
    "float32": hl.Float(32),
    "float16": hl.UInt(16),  # its bits: nothing is computed
    "int16": hl.Int(16),
    "uint16": hl.UInt(16),
    "int8": hl.Int(8),
    "uint8": hl.UInt(8),
}


def read_arguments(workload: Workload) -> tuple[hl.ImageParam, ...]:
    """Return the buffers of a kernel, each in one dimension."""
    return tuple(
        hl.ImageParam(_ELEMENTS[spec.dtype], 1, f"x{number}")
        for number, spec in enumerate(workload.inputs)
    )


def position_variables(variables: Values, made: Mapping[str, Made]) -> Values:
    """Return every variable of a position: the given ones, and what is made of them."""
    known = dict(variables)
    for name, made_of in made.items():
        if isinstance(made_of, KeptInside):
            known[name] = _kept_inside(made_of, known)
        else:
            known[name] = _expression(made_of.place, known) // made_of.divisor
    return known


def element(
    source: Source,
    arguments: Sequence[hl.ImageParam],
    variables: Values,
    scalars: Sequence[float],
) -> hl.Expr:
    """Return an element, read or chosen.

    Args:
        source: Where it comes from.
        arguments: Buffers of all workload inputs.
        variables: From `position_variables`.
        scalars: Of the workload.
    """
    match source:
        case Read(number, address):
            return arguments[number][_expression(address, variables)]
        case Fill(ref):
            return constant(scalars[int(ref[1:])] if ref else 0.0)
    place = _expression(source.place, variables)
    within = hl.likely((place >= source.low) & (place < source.high))
    inside, outside = (
        element(part, arguments, variables, scalars) for part in (source.inside, source.outside)
    )
    return hl.select(within, inside, outside)


def _expression(place: Position, variables: Values) -> hl.Expr:
    total = hl.i32(place.offset)
    for name, coefficient in place.terms:
        total = total + variables[name] * coefficient
    return total


def _kept_inside(kept: KeptInside, variables: Values) -> hl.Expr:
    at, last = _expression(kept.place, variables), kept.extent - 1
    inside = hl.likely((at >= 0) & (at <= last))
    if kept.bound is Bound.REFLECT:
        before = hl.max(at, -at)
        behind = last - before
        at = hl.select(inside, at, last - hl.max(behind, -behind))
    elif kept.bound is Bound.WRAP:
        at = hl.select(inside, at, hl.select(at < 0, at + kept.extent, at - kept.extent))
    return hl.clamp(hl.likely(at), 0, last)
