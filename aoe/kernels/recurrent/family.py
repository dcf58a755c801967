"""LSTM, GRU and RNN by constant weights."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from aoe import schedule as sch
from aoe.kernels.algorithms import KNOB, known_algorithm
from aoe.kernels.family import KernelTarget, Pipeline, PlannedFamily, Support
from aoe.kernels.halide.chain import RESULT
from aoe.kernels.halide.tiling import LANE, TASK, guided_space
from aoe.kernels.recurrent.shape import CELLS, PANEL, Recurrence, read_recurrence
from aoe.kernels.recurrent.stages import (
    DEPTH,
    DIRECTION,
    ELEMENT,
    ENTERED,
    GATE,
    IN_PANEL,
    OF_PANEL,
    PANEL_OF_STEP,
    PANELS,
    PHASE,
    ROW,
    STEP_ROW,
    STEPPED,
    SUMMED,
    SUMS,
    WALKED,
    phases_of,
    recurrent_pipeline,
)
from aoe.kernels.tiled_products import register_steps
from aoe.schedule import Knob, Schedule, Space, Step, Values
from aoe.workload import Workload

PANELS_IN_STEPS, ROUNDED_PANELS = "panels", "panels_bf16"
ROWS, PHASES, SHARED = "rows", "phases", "shared"
LOOP, WRITTEN_OUT = "loop", "written_out"
"""Forms of the phases of a step."""
_WRITTEN_OUT_MAX = 24
"""Phases up to which all may be written out: more do not stay in the cache of instructions."""
_ROWS_MAX = 12
_LANES, _ROW_OF_TASK, _PANEL_OF_TASK = "r$i", "row", "r$v"
_PRODUCTS_PER_US = 50_000
"""Products one thread sums up where its factors are at hand, roughly."""
_SHARED_LEAST_US = 20.0
"""Work of all threads below which handing out its parts costs more than it saves."""


class Shared(StrEnum):
    """Work that threads share."""

    NOTHING = "nothing"
    SEQUENCES = "sequences"
    """Directions and rows: no thread waits for another one."""
    STEPS = "steps"
    """Panels of each step, after which all threads wait."""


class Recurrent(PlannedFamily[Recurrence]):
    """All hidden states of a sequence, or the states behind its last step.

    What enters each step by its input is one matrix product, made first. A step is a product of
    one vector by weights that no first-level cache holds: they lie in one gapless stream, 16
    elements of the hidden state with all of their gates after the other. ONNX Runtime walks one
    direction after the other and shares each step among its threads; here a thread walks a whole
    sequence.
    """

    name = "recurrent"
    anchors = frozenset(CELLS)

    def plan(self, workload: Workload) -> Recurrence | Support:
        """Plan one recurrent operator in a usual form, and nothing else, or tell why not."""
        return read_recurrence(workload)

    def pipeline_of(self, plan: Recurrence, algorithm: str) -> Pipeline:
        """Return the algorithm called `algorithm`; by default that of its precision."""
        name = known_algorithm(
            self.name, algorithm or _algorithm_of(plan), (PANELS_IN_STEPS, ROUNDED_PANELS)
        )
        return recurrent_pipeline(plan, rounded=name == ROUNDED_PANELS)

    def space_of(self, plan: Recurrence, target: KernelTarget) -> Space:
        """Return the register tile of what enters, the loops, and what threads share."""
        rows, shared = _row_choices(plan, target), _shared_choices(plan, target)
        short = phases_of(plan) <= _WRITTEN_OUT_MAX
        knobs = (
            Knob(KNOB, (_algorithm_of(plan),)),
            Knob(ROWS, rows),
            Knob(PHASES, (LOOP, WRITTEN_OUT) if short else (LOOP,)),
            Knob(SHARED, shared),
        )
        best, *others = _best_first(plan, shared)
        tried = [(rows[-1], LOOP, best), (rows[-1], WRITTEN_OUT, best)]
        tried += [(rows[-1], LOOP, other) for other in others]
        guesses = [(_algorithm_of(plan), *guess) for guess in tried if guess[1] in knobs[2].choices]
        return guided_space(knobs, guesses)

    def schedule_of(self, plan: Recurrence, values: Values, target: KernelTarget) -> Schedule:
        steps = tuple(_steps(values, plan, target))
        return Schedule(steps, algorithm=str(values[KNOB]))


def _algorithm_of(of: Recurrence) -> str:
    """Return the algorithm for an operator in the precision of its workload."""
    return ROUNDED_PANELS if of.workload.precision.is_lower else PANELS_IN_STEPS


def _row_choices(of: Recurrence, target: KernelTarget) -> tuple[int, ...]:
    """Return the numbers of steps whose sums stay in registers together with the weights."""
    wide = of.cell.gates * max(1, PANEL // target.vector_lanes)
    most = min(_ROWS_MAX, (target.registers - wide - 1) // wide, of.steps * of.rows)
    return tuple(sorted({max(1, most), max(1, most // 2), 1}))


def _shared_choices(of: Recurrence, target: KernelTarget) -> tuple[str, ...]:
    found = [Shared.NOTHING]
    if target.threads > 1 and of.directions * of.rows > 1:
        found.append(Shared.SEQUENCES)
    if target.threads > 1 and of.panels > 1:
        each_us = of.cell.gates * of.hidden * of.hidden * of.rows / _PRODUCTS_PER_US
        if each_us > _SHARED_LEAST_US:
            found.append(Shared.STEPS)
    return tuple(str(one) for one in found)


def _best_first(of: Recurrence, shared: tuple[str, ...]) -> tuple[str, ...]:
    if of.products < _SHARED_LEAST_US * _PRODUCTS_PER_US:
        return shared
    order = [str(one) for one in (Shared.SEQUENCES, Shared.STEPS, Shared.NOTHING)]
    return tuple(sorted(shared, key=order.index))


def _steps(values: Values, of: Recurrence, target: KernelTarget) -> Iterator[Step]:
    """Yield the steps of a configuration."""
    yield sch.Split(RESULT, ELEMENT, ELEMENT, LANE, PANEL, sch.Tail.GUARD)
    yield sch.Vectorize(RESULT, LANE, PANEL)
    yield from _entering_steps(int(values[ROWS]), of)
    yield from _walking_steps(values, of, target)


def _entering_steps(rows: int, of: Recurrence) -> Iterator[Step]:
    gates, together = of.cell.gates, f"{STEP_ROW}_in"
    yield sch.Split(ENTERED, STEP_ROW, STEP_ROW, together, rows, sch.Tail.SHIFT_INWARDS)
    # weights of a panel meet the inputs of a few steps, all gates together
    yield sch.Reorder(ENTERED, (OF_PANEL, GATE, together, STEP_ROW, PANELS, DIRECTION))
    yield from register_steps((ENTERED,), (OF_PANEL, PANEL), {GATE: gates, together: rows})
    # one loop for the threads: a parallel loop inside of another runs on one
    yield sch.Fuse(ENTERED, DIRECTION, PANELS, TASK)
    depth = of.width * of.cell.gates * of.padded * of.steps * of.rows * of.directions
    if depth >= _SHARED_LEAST_US * _PRODUCTS_PER_US:
        yield sch.Parallel(ENTERED, TASK)
    yield sch.ComputeAt(SUMS, ENTERED, STEP_ROW)
    yield sch.Reorder(SUMMED, (OF_PANEL, GATE, STEP_ROW, DEPTH, PANELS, DIRECTION))
    tile = {GATE: gates, STEP_ROW: rows}
    yield from register_steps((SUMS, SUMMED), (OF_PANEL, PANEL), tile)


def _walking_steps(values: Values, of: Recurrence, target: KernelTarget) -> Iterator[Step]:
    shared, lanes = Shared(str(values[SHARED])), min(PANEL, target.vector_lanes)
    pieces = -(-target.threads // of.directions) if shared is Shared.SEQUENCES else 1
    yield sch.Split(STEPPED, ROW, ROW, _ROW_OF_TASK, -(-of.rows // pieces), sch.Tail.GUARD)
    inner, outer = [IN_PANEL, _ROW_OF_TASK, PHASE], [PANEL_OF_STEP, WALKED, ROW, DIRECTION]
    # smaller registers hold a part of a panel: one part after the other
    if lanes < PANEL:
        yield sch.Split(STEPPED, IN_PANEL, IN_PANEL, _LANES, lanes, sch.Tail.GUARD)
        inner = [_LANES, IN_PANEL, _ROW_OF_TASK, PHASE]
    # each thread has the same panels of the weights in every step
    if shared is Shared.STEPS:
        share = -(-of.panels // target.threads)
        yield sch.Split(
            STEPPED, PANEL_OF_STEP, PANEL_OF_STEP, _PANEL_OF_TASK, share, sch.Tail.GUARD
        )
        inner.append(_PANEL_OF_TASK)
    yield sch.Reorder(STEPPED, (*inner, *outer))
    yield sch.Vectorize(STEPPED, inner[0], lanes)
    if values[PHASES] == WRITTEN_OUT:
        yield sch.Unroll(STEPPED, PHASE, phases_of(of))
    if shared is Shared.STEPS:
        yield sch.Parallel(STEPPED, PANEL_OF_STEP)
    # directions and rows never wait for each other: one task walks its whole sequence
    if shared is Shared.SEQUENCES:
        yield sch.Fuse(STEPPED, DIRECTION, ROW, TASK)
        yield sch.Parallel(STEPPED, TASK)
