"""LSTM, GRU and RNN by constant weights."""

from __future__ import annotations

from aoe.kernels.algorithms import KNOB
from aoe.kernels.family import KernelTarget, Pipeline, Support, support_of, supported
from aoe.kernels.recurrent.cells import CELLS
from aoe.kernels.recurrent.shape import read_recurrence
from aoe.kernels.recurrent.stages import recurrent_pipeline
from aoe.kernels.recurrent.tiles import (
    PANELS_IN_STEPS,
    ROUNDED_PANELS,
    algorithm_of,
    recurrent_space,
    recurrent_steps,
)
from aoe.operators import OperatorKey
from aoe.schedule import Configuration, Schedule, Space
from aoe.workload import Workload

_ALGORITHMS = (PANELS_IN_STEPS, ROUNDED_PANELS)


class Recurrent:
    """All hidden states of a sequence, or the states behind its last step.

    What enters each step by its input is one matrix product, made first. A step is a product of
    one vector by weights that no first-level cache holds: they lie in one gapless stream, 16
    elements of the hidden state with all of their gates after the other. ONNX Runtime walks one
    direction after the other and shares each step among its threads; here a thread walks a whole
    sequence.
    """

    name = "recurrent"
    anchors: frozenset[OperatorKey] = frozenset(CELLS)

    def supports(self, workload: Workload) -> Support:
        """Tell whether the workload is one recurrent operator in a usual form, and nothing else."""
        return support_of(read_recurrence(workload))

    def pipeline(self, workload: Workload, algorithm: str = "") -> Pipeline:
        """Return the algorithm called `algorithm`; by default that of its precision."""
        found = supported(workload, read_recurrence(workload))
        name = algorithm or algorithm_of(found)
        if name not in _ALGORITHMS:
            known = ", ".join(_ALGORITHMS)
            raise ValueError(f"recurrent: no such algorithm (got {name}, expected {known})")
        return recurrent_pipeline(found, rounded=name == ROUNDED_PANELS)

    def space(self, workload: Workload, target: KernelTarget) -> Space:
        """Return the register tile of what enters, the loops, and what threads share."""
        return recurrent_space(supported(workload, read_recurrence(workload)), target)

    def schedule(
        self, workload: Workload, configuration: Configuration, target: KernelTarget
    ) -> Schedule:
        """Return the steps of a configuration."""
        found = supported(workload, read_recurrence(workload))
        steps = tuple(recurrent_steps(configuration, found, target))
        return Schedule(steps, algorithm=str(configuration[KNOB]))
