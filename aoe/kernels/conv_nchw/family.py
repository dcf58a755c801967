"""Convolutions of plain tensors, transposed or not, with the chain behind them."""

from __future__ import annotations

from aoe.kernels.algorithms import KNOB
from aoe.kernels.conv_nchw import algorithms
from aoe.kernels.conv_nchw.result import check_plain_arguments
from aoe.kernels.conv_nchw.shape import ConvNchwPlan, read_plain
from aoe.kernels.family import KernelTarget, Pipeline, Support, supported
from aoe.kernels.tiled_products import tiled_space
from aoe.operators.products import PLAIN_CONVOLUTIONS
from aoe.schedule import Configuration, Schedule, Space
from aoe.workload import Workload


class ConvNchw:
    """y = chain(activation(x * w + bias + sum)) of one, two or three axes, not in blocks.

    ONNX Runtime gathers the elements each result reads and multiplies matrices; what gains is
    not to gather, and products of bfloat16 where they are allowed.
    """

    name = "plain_convolution"
    anchors = PLAIN_CONVOLUTIONS

    def supports(self, workload: Workload) -> Support:
        """Tell whether the workload is one convolution of plain tensors and a chain."""
        plan = read_plain(workload)
        return plan if isinstance(plan, Support) else check_plain_arguments(plan)

    def pipeline(self, workload: Workload, algorithm: str = "") -> Pipeline:
        """Return the algorithm called `algorithm`; by default the first of its precision."""
        plan = _plan(workload)
        name = algorithm or algorithms.algorithms_of(plan)[0]
        if name not in algorithms.ALGORITHMS:
            known = ", ".join(algorithms.ALGORITHMS)
            raise ValueError(f"{self.name}: no such algorithm (got {name}, expected {known})")
        return algorithms.ALGORITHMS[name].pipeline(plan)

    def space(self, workload: Workload, target: KernelTarget) -> Space:
        """Return what a vector holds, the register tile, and what a task copies."""
        plan = _plan(workload)
        names = algorithms.algorithms_of(plan)
        offered = {name: algorithms.ALGORITHMS[name] for name in names}
        return tiled_space(offered, plan, target, algorithms.first_guesses(plan, target))

    def schedule(
        self, workload: Workload, configuration: Configuration, target: KernelTarget
    ) -> Schedule:
        """Return the steps of a configuration."""
        name = str(configuration[KNOB])
        steps = algorithms.ALGORITHMS[name].steps(configuration, _plan(workload), target)
        return Schedule(tuple(steps), algorithm=name)


def _plan(workload: Workload) -> ConvNchwPlan:
    return supported(workload, read_plain(workload))
