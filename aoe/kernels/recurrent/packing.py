"""How weights of a recurrent operator lie: panels of 16 hidden elements, all of their gates."""

from __future__ import annotations

from dataclasses import dataclass

import halide as hl

from aoe.kernels.family import PackedInput
from aoe.kernels.math.functions import constant, to_bfloat16
from aoe.kernels.recurrent.shape import PANEL, Recurrence

_INFINITE = 0x7F800000
_LARGEST, _QUIET_NAN = 0x7F7F, 0x7FC0
"""High halves of float32."""
Place = tuple[hl.Expr | hl.Var | int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedWeights:
    """Constant weights as a kernel reads them.

    Float32 lie over (PANEL, gates, depth, panels, directions), zeros behind the last element.
    In bfloat16 two neighbours along the depth share a word: its low half is the first of them, and
    the second one is the whole word, read as float32.

    Attributes:
        argument: The buffer.
        extents: Its extents, innermost first.
        packing: What makes it.
        depth: Elements summed up.
        is_rounded: True for bfloat16.
    """

    argument: hl.ImageParam
    extents: tuple[int, ...]
    packing: PackedInput
    depth: int
    is_rounded: bool

    def pair(self, place: Place, at: hl.Expr | int) -> tuple[hl.Expr, hl.Expr]:
        """Return the weights of elements 2 `at` and 2 `at` + 1 of the depth.

        Args:
            place: Element of its panel, gate, panel, direction.
            at: Which pair.
        """
        lane, gate, panel, direction = place
        if not self.is_rounded:
            first, second = (
                self.argument[lane, gate, 2 * at + half, panel, direction] for half in (0, 1)
            )
            return first, second
        word = self.argument[lane, gate, at, panel, direction]
        low = hl.reinterpret(hl.UInt(32), word) << hl.u32(16)
        return hl.reinterpret(hl.Float(32), low), word


def pack_weights(
    of: Recurrence, number: int, depth: int, *, room: int, rounded: bool
) -> PackedWeights:
    """Return the weights of an input of a recurrent operator.

    Args:
        of: The operator.
        number: Of the input, over (directions, gates x hidden, depth).
        depth: Elements summed up.
        room: Elements there is room for, behind the last of them zeros; padded to whole pairs.
        rounded: True to keep them in bfloat16.
    """
    lane, gate, at, panel, direction = (hl.Var(name) for name in ("l", "g", "k", "p", "d"))
    raw = hl.ImageParam(hl.Float(32), 3, "weights")
    element = panel * PANEL + lane

    def value(k: hl.Expr) -> hl.Expr:
        row = gate * of.hidden + hl.clamp(element, 0, of.hidden - 1)
        read = raw[hl.clamp(k, 0, depth - 1), row, direction]
        return hl.select((element < of.hidden) & (k < depth), read, constant(0.0))

    pairs = -(-room // 2)
    packed = hl.Func("packed")
    made = _word(value(2 * at), value(2 * at + 1)) if rounded else value(hl.Expr(at))
    packed[lane, gate, at, panel, direction] = made
    packed.compute_root().vectorize(lane, PANEL)
    extents = (
        PANEL,
        of.cell.gates,
        pairs if rounded else 2 * pairs,
        of.panels,
        of.directions,
    )
    return PackedWeights(
        argument=hl.ImageParam(hl.Float(32), len(extents), f"x{number}"),
        extents=extents,
        packing=PackedInput(
            output=packed,
            argument=raw,
            argument_extents=(depth, of.cell.gates * of.hidden, of.directions),
        ),
        depth=depth,
        is_rounded=rounded,
    )


def _word(first: hl.Expr, second: hl.Expr) -> hl.Expr:
    """Return a float32 that is about `second`, and whose low half is `first` in bfloat16.

    Of the numbers with that half it is the nearest one, so that it is as far off as bfloat16 may
    be: half a step. Infinities and NaN become NaN.
    """
    half = hl.reinterpret(hl.UInt(16), to_bfloat16(first))
    low, bits = hl.cast(hl.UInt(32), half), hl.reinterpret(hl.UInt(32), second)
    size = (bits & hl.u32(0x7FFFFFFF)) + hl.u32(0x8000)
    nearest = hl.select(size >= low, (size - low) >> hl.u32(16), hl.u32(0))
    is_finite = (bits & hl.u32(_INFINITE)) != hl.u32(_INFINITE)
    high = hl.select(is_finite, hl.min(nearest, hl.u32(_LARGEST)), hl.u32(_QUIET_NAN))
    sign = (bits >> hl.u32(16)) & hl.u32(0x8000)
    return hl.reinterpret(hl.Float(32), ((sign | high) << hl.u32(16)) | low)


def bias_extents(of: Recurrence) -> tuple[int, ...]:
    """Return the extents of the packed bias: one more where a gate keeps both of its apart."""
    return PANEL, of.cell.gates + of.cell.keeps_apart, of.panels, of.directions


def pack_bias(of: Recurrence) -> PackedInput:
    """Return the biases of the gates: that of the input and that of the hidden state, added up.

    Where the last gate keeps both apart, the second one is behind the last gate.
    """
    lane, gate, panel, direction = (hl.Var(name) for name in ("l", "g", "p", "d"))
    raw = hl.ImageParam(hl.Float(32), 2, "bias")
    gates, element = of.cell.gates, panel * PANEL + lane
    inside = hl.clamp(element, 0, of.hidden - 1)

    def value(number: hl.Expr) -> hl.Expr:
        return raw[number * of.hidden + inside, direction]

    both = value(hl.clamp(gate, 0, gates - 1)) + value(gates + hl.clamp(gate, 0, gates - 1))
    if of.cell.keeps_apart:
        alone = value(hl.select(gate < gates, hl.Expr(gate), hl.i32(2 * gates - 1)))
        both = hl.select(gate < gates - 1, both, alone)
    packed = hl.Func("packed")
    packed[lane, gate, panel, direction] = hl.select(element < of.hidden, both, constant(0.0))
    packed.compute_root().vectorize(lane, PANEL)
    return PackedInput(
        output=packed,
        argument=raw,
        argument_extents=(2 * gates * of.hidden, of.directions),
    )
