"""A recurrent operator in Halide: what enters all steps, then one step after the other.

    sums         products of the input by its weights, in registers: 16 hidden elements, all of
                 their gates, a few steps
    entered      the same put down
    states       per step: sums of products of the hidden state in front of it, in two ways (even
                 and odd places), and the states they make
    y            all hidden states, or the states behind the last step

A step cannot be a stage of its own, since it reads the stage it is part of. So one definition walks
the steps, and within a step phases: the first ones sum up, the last ones make the states of what
is stored by then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import halide as hl

from aoe.kernels.family import UPDATE, PackedInput, Pipeline
from aoe.kernels.halide.chain import RESULT
from aoe.kernels.math.functions import constant, strict, to_bfloat16
from aoe.kernels.recurrent.shape import PANEL, CellValues, Direction, Recurrence

_INFINITE = 0x7F800000
_LARGEST, _QUIET_NAN = 0x7F7F, 0x7FC0
"""High halves of float32."""
Place = tuple[hl.Expr | hl.Var | int, ...]
SUMS, ENTERED, STATES = "sums", "entered", "states"
SUMMED, STEPPED = f"{SUMS}{UPDATE}", f"{STATES}{UPDATE}"
ELEMENT, ROW, DIRECTION, STEP = "j", "n", "d", "t"
"""Loops of the result."""
OF_PANEL, GATE, PANELS, STEP_ROW = "l", "g", "p", "m"
"""Loops of what enters: an element of its panel, its gate, panels, steps times rows."""
DEPTH = "q$x"
"""Loop over the input of a step, of the update of the sums."""
IN_PANEL, PHASE, PANEL_OF_STEP, WALKED = "r$x", "r$y", "r$z", "r$w"
"""Loops of the steps: an element of its panel, what is done with it, panels, and the steps."""
_WAYS = 2
"""Sums of a gate: products at even and odd places, so that one need not wait for the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedWeights:
    """Constant weights as a kernel reads them.

    Float32 lie over (PANEL, gates, depth, panels, directions), zeros behind the last element.
    In bfloat16 two neighbours along the depth share a word: its low half is the first of them, and
    the second one is the whole word, read as float32.
    """

    argument: hl.ImageParam  # The buffer
    extents: tuple[int, ...]  # Its extents, innermost first
    packing: PackedInput  # What makes it
    depth: int  # Elements summed up
    is_rounded: bool  # True for bfloat16

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
    return PANEL, of.cell.gates + of.cell.keeps_separate, of.panels, of.directions


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
    if of.cell.keeps_separate:
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


def recurrent_pipeline(of: Recurrence, *, rounded: bool) -> Pipeline:
    """Return the algorithm.

    Arguments are the workload's inputs; weights are packed (`PackedWeights`), biases are added up
    and packed.

    Args:
        of: The operator.
        rounded: True for weights in bfloat16; what they are multiplied with stays exact.
    """
    arguments = _arguments(of, rounded=rounded)
    sums = _input_sums(of, arguments)
    entered, place = hl.Func(ENTERED), sums.args()
    entered[place] = sums[place]
    entered.compute_root()
    walk = _Walk(of=of, arguments=arguments, entered=entered)
    states = walk.states()
    output = _result(of, states)
    entering = (
        (OF_PANEL, PANEL),
        (GATE, of.cell.gates),
        (PANELS, of.panels),
        (STEP_ROW, of.steps * of.rows),
        (DIRECTION, of.directions),
    )
    inner = (*entering[:2], *((name, 0) for name, _ in entering[2:]))
    around = ((ROW, of.rows), (DIRECTION, of.directions))
    return Pipeline(
        output=output,
        stages={
            RESULT: output,
            SUMS: sums,
            SUMMED: sums.update(),
            ENTERED: entered,
            STATES: states,
            STEPPED: states.update(1),
        },
        arguments=tuple(arguments.buffers),
        argument_extents=tuple(arguments.extents),
        output_extents=_result_extents(of),
        loops={
            RESULT: tuple(zip(_result_loops(of), _result_extents(of), strict=True)),
            ENTERED: entering,
            SUMS: inner,
            SUMMED: ((DEPTH, _pairs(of.width)), *inner),
            STATES: ((OF_PANEL, PANEL), (PANELS, of.panels), (STEP, of.steps + 1), *around),
            STEPPED: (
                (IN_PANEL, PANEL),
                (PHASE, phases_of(of)),
                (PANEL_OF_STEP, of.panels),
                (WALKED, of.steps),
                *around,
            ),
        },
        packings=arguments.packings,
        in_order={STEPPED: frozenset({PHASE, WALKED})},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _RecurrentArguments:
    """Buffers and extents of a kernel in the order of the inputs, and the packed weights."""

    buffers: Sequence[hl.ImageParam]
    extents: Sequence[tuple[int, ...]]
    packings: Mapping[int, PackedInput]
    weights: PackedWeights
    recurrent: PackedWeights


def _arguments(of: Recurrence, *, rounded: bool) -> _RecurrentArguments:
    weights = pack_weights(of, of.weights, of.width, room=of.width, rounded=rounded)
    recurrent = pack_weights(of, of.recurrent, of.hidden, room=of.padded, rounded=rounded)
    states = (of.hidden, of.rows, of.directions)
    extents: list[tuple[int, ...]] = [states for _ in of.workload.inputs]
    extents[of.data] = (of.width, of.steps * of.rows)
    packings: dict[int, PackedInput] = {}
    for number, packed in ((of.weights, weights), (of.recurrent, recurrent)):
        extents[number], packings[number] = packed.extents, packed.packing
    if of.bias is not None:
        extents[of.bias], packings[of.bias] = bias_extents(of), pack_bias(of)
    buffers = [
        hl.ImageParam(hl.Float(32), len(found), f"x{number}")
        for number, found in enumerate(extents)
    ]
    buffers[of.weights], buffers[of.recurrent] = weights.argument, recurrent.argument
    return _RecurrentArguments(
        buffers=buffers,
        extents=extents,
        packings=packings,
        weights=weights,
        recurrent=recurrent,
    )


def phases_of(of: Recurrence) -> int:
    """Return the phases of a step: one for each panel that is multiplied, then its end."""
    return of.panels + len(of.cell.finish)


def _pairs(count: int) -> int:
    return -(-count // 2)


def _input_sums(of: Recurrence, arguments: _RecurrentArguments) -> hl.Func:
    """Return the sums over (PANEL, gates, panels, steps x rows, directions), biases included."""
    lane, gate, panel, row, direction = place = tuple(
        hl.Var(name) for name in (OF_PANEL, GATE, PANELS, STEP_ROW, DIRECTION)
    )
    data, q = arguments.buffers[of.data], hl.RDom([(0, _pairs(of.width))], "q")
    first, second = arguments.weights.pair((lane, gate, panel, direction), hl.Expr(q.x))
    behind = 2 * q.x + 1
    if of.width % 2:
        inside = hl.likely(behind < of.width)
        value = data[hl.min(hl.likely(behind), of.width - 1), row]
        last = hl.select(inside, value, constant(0.0))
    else:
        last = data[behind, row]
    sums = hl.Func(SUMS)
    if of.bias is None:
        sums[place] = constant(0.0)
    else:
        sums[place] = arguments.buffers[of.bias][lane, gate, panel, direction]
    sums[place] += data[2 * q.x, row] * first + last * second
    sums.bound(lane, 0, PANEL).bound(gate, 0, of.cell.gates)
    return sums.compute_root()  # steps place it closer


@dataclass(frozen=True, slots=True, kw_only=True)
class _Walk:
    """The steps, one after the other."""

    of: Recurrence  # What is computed
    arguments: _RecurrentArguments  # What is read
    entered: hl.Func  # What has entered each step by its input

    def states(self) -> hl.Func:
        """Return sums and states over (PANEL, panels, steps + 1, rows, directions).

        Of each element there are `_WAYS` sums per gate, then the states; states at 0 stand
        in front of the first step.
        """
        cell, of = self.of.cell, self.of
        lane, panel, step, row, direction = (
            hl.Var(name) for name in (OF_PANEL, PANELS, STEP, ROW, DIRECTION)
        )
        number = _WAYS * cell.gates
        states = hl.Func(STATES)
        nothing = [hl.undef(hl.Float(32))] * (number + cell.states)
        states[lane, panel, step, row, direction] = tuple(nothing)
        begun = [self._start(at, lane, panel, row, direction) for at in range(cell.states)]
        zeros = [constant(0.0)] * number
        states[lane, panel, 0, row, direction] = (*zeros, *begun)
        r = hl.RDom([(0, PANEL), (0, phases_of(of)), (0, of.panels), (0, of.steps)], "r")
        here = (r.x, r.z, r.w + 1, row, direction)
        found = [hl.Expr(states[here][at]) for at in range(number + cell.states)]
        sums = self._sums(states, r, row, direction, found)
        made = self._made(states, r, row, direction, found)
        states[here] = (*sums, *made)
        states.bound(lane, 0, PANEL).compute_root()
        states.update(0).vectorize(lane, PANEL)
        # Halide would have to know that a step stays around what it is made of: it keeps the order
        states.update(1).allow_race_conditions()
        return states

    def _start(
        self, at: int, lane: hl.Var, panel: hl.Var, row: hl.Var, direction: hl.Var
    ) -> hl.Expr:
        """Return a state in front of the first step, zeros behind the last element."""
        given, hidden = self.of.starts[at], self.of.hidden
        if given is None:
            return constant(0.0)
        element = panel * PANEL + lane
        value = self.arguments.buffers[given][hl.min(element, hidden - 1), row, direction]
        return hl.select(element < hidden, value, constant(0.0))

    def _sums(
        self, states: hl.Func, r: Any, row: hl.Var, direction: hl.Var, found: Sequence[hl.Expr]
    ) -> list[hl.Expr]:
        """Return the sums of each gate, even places and odd ones."""
        of, pairs = self.of, PANEL // 2
        last = of.panels - 1
        panel = hl.min(hl.likely(hl.Expr(r.y)), last) if last else hl.i32(0)
        factors = [
            hl.Expr(states[k, panel, r.w, row, direction][_WAYS * of.cell.gates])
            for k in range(PANEL)
        ]
        sums = []
        for gate in range(of.cell.gates):
            even, odd = self._beginnings(r, row, direction, gate, found)
            place = (r.x, gate, r.z, direction)
            for at in range(pairs):
                first, second = self.arguments.recurrent.pair(place, panel * pairs + at)
                even = even + factors[2 * at] * first
                odd = odd + factors[2 * at + 1] * second
            sums += [even, odd]
        summing = hl.likely(r.y < of.panels)
        return [hl.select(summing, new, old) for new, old in zip(sums, found, strict=False)]

    def _beginnings(
        self, r: Any, row: hl.Var, direction: hl.Var, gate: int, found: Sequence[hl.Expr]
    ) -> tuple[hl.Expr, hl.Expr]:
        """Return the start of a phase's sums: the inputs, or the sums of the phases before."""
        cell, nothing = self.of.cell, constant(0.0)
        apart = cell.keeps_separate and gate == cell.gates - 1
        begin = self._entered(r, row, direction, gate)
        if apart and self.of.bias is not None:
            begin = self.arguments.buffers[self.of.bias][r.x, cell.gates, r.z, direction]
        elif apart:
            begin = nothing
        if self.of.panels == 1:
            return begin, nothing
        before, is_later = found[_WAYS * gate : _WAYS * gate + _WAYS], hl.likely(r.y > 0)
        return (
            hl.select(is_later, before[0], begin),
            hl.select(is_later, before[1], nothing),
        )

    def _entered(self, r: Any, row: hl.Var, direction: hl.Var, gate: int) -> hl.Expr:
        step = _from_end(self.of, hl.Expr(r.w), direction)
        return hl.Expr(self.entered[r.x, gate, r.z, step * self.of.rows + row, direction])

    def _made(
        self, states: hl.Func, r: Any, row: hl.Var, direction: hl.Var, found: Sequence[hl.Expr]
    ) -> list[hl.Expr]:
        """Return the states: as they are while sums are not complete, then made in parts."""
        of, cell = self.of, self.of.cell
        number = _WAYS * cell.gates
        before = states[r.x, r.z, r.w, row, direction]
        values = CellValues(
            sums=[
                strict(found[_WAYS * gate] + found[_WAYS * gate + 1]) for gate in range(cell.gates)
            ],
            entered=self._entered(r, row, direction, cell.gates - 1),
            before=[hl.Expr(before[number + at]) for at in range(cell.states)],
            kept=found[number:],
        )
        made = list(found[number:])
        for later, finish in enumerate(reversed(cell.finish)):
            phase = phases_of(of) - 1 - later
            for at, new in enumerate(finish(values)):
                if new is None:
                    continue
                if at == 0 and later == 0 and of.hidden % PANEL:
                    # what is behind the last element stays 0, whatever a sum of zeros is
                    new = hl.select(r.z * PANEL + r.x < of.hidden, new, constant(0.0))
                made[at] = hl.select(r.y == phase, new, made[at])
        summing = hl.likely(r.y < of.panels)
        return [hl.select(summing, old, new) for old, new in zip(found[number:], made, strict=True)]


def _from_end(of: Recurrence, step: hl.Expr, direction: hl.Var) -> hl.Expr:
    """Return the place in the sequence of a step, counted from the end in reverse directions."""
    if of.direction is Direction.FORWARD:
        return step
    backwards = of.steps - 1 - step
    if of.direction is Direction.REVERSE:
        return backwards
    return hl.select(direction == 0, step, backwards)


def _result_loops(of: Recurrence) -> tuple[str, ...]:
    return (ELEMENT, ROW, DIRECTION) if of.result else (ELEMENT, ROW, DIRECTION, STEP)


def _result_extents(of: Recurrence) -> tuple[int, ...]:
    last = (of.hidden, of.rows, of.directions)
    return last if of.result else (*last, of.steps)


def _result(of: Recurrence, states: hl.Func) -> hl.Func:
    """Return the result over its loops."""
    variables = tuple(hl.Var(name) for name in _result_loops(of))
    element, row, direction = variables[:3]
    step = hl.i32(of.steps) if of.result else _from_end(of, hl.Expr(variables[3]), direction) + 1
    wanted = _WAYS * of.cell.gates + max(0, of.result - 1)
    output = hl.Func(RESULT)
    found = states[element % PANEL, element / PANEL, step, row, direction]
    output[variables] = hl.Expr(found[wanted])
    return output
