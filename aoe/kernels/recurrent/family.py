"""LSTM, GRU and RNN by constant weights."""

from __future__ import annotations

from aoe.kernels.algorithms import KNOB, known_algorithm
from aoe.kernels.family import KernelTarget, Pipeline, PlannedFamily, Support
from aoe.kernels.recurrent.cells import CELLS
from aoe.kernels.recurrent.shape import Recurrence, read_recurrence
from aoe.kernels.recurrent.stages import recurrent_pipeline
from aoe.kernels.recurrent.tiles import (
    PANELS_IN_STEPS,
    ROUNDED_PANELS,
    algorithm_of,
    recurrent_space,
    recurrent_steps,
)
from aoe.schedule import Schedule, Space, Values
from aoe.workload import Workload

_ALGORITHMS = (PANELS_IN_STEPS, ROUNDED_PANELS)


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
        name = known_algorithm(self.name, algorithm or algorithm_of(plan), _ALGORITHMS)
        return recurrent_pipeline(plan, rounded=name == ROUNDED_PANELS)

    def space_of(self, plan: Recurrence, target: KernelTarget) -> Space:
        """Return the register tile of what enters, the loops, and what threads share."""
        return recurrent_space(plan, target)

    def schedule_of(self, plan: Recurrence, values: Values, target: KernelTarget) -> Schedule:
        steps = tuple(recurrent_steps(values, plan, target))
        return Schedule(steps, algorithm=str(values[KNOB]))
