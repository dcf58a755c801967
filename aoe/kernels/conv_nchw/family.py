"""Convolutions of plain tensors, transposed or not, with the chain behind them."""

from __future__ import annotations

from aoe.kernels.algorithms import known_algorithm
from aoe.kernels.conv_nchw.algorithms import ALGORITHMS, algorithms_of, first_guesses
from aoe.kernels.conv_nchw.result import check_plain_arguments
from aoe.kernels.conv_nchw.shape import ConvNchwPlan, read_plain
from aoe.kernels.family import KernelTarget, Pipeline, PlannedFamily, Support
from aoe.kernels.tiled_products import tiled_schedule, tiled_space
from aoe.operators.products import PLAIN_CONVOLUTIONS
from aoe.schedule import Schedule, Space, Values
from aoe.workload import Workload


class ConvNchw(PlannedFamily[ConvNchwPlan]):
    """y = chain(activation(x * w + bias + sum)) of one, two or three axes, not in blocks.

    ONNX Runtime gathers the elements each result reads and multiplies matrices; what gains is
    not to gather, and products of bfloat16 where they are allowed.
    """

    name = "plain_convolution"
    anchors = PLAIN_CONVOLUTIONS

    def plan(self, workload: Workload) -> ConvNchwPlan | Support:
        """Plan one convolution of plain tensors and a chain, or tell why not."""
        return read_plain(workload)

    def supports(self, workload: Workload) -> Support:
        """Check that there is a plan whose chain reads inputs as the convolution does."""
        plan = self.plan(workload)
        return plan if isinstance(plan, Support) else check_plain_arguments(plan)

    def pipeline_of(self, plan: ConvNchwPlan, algorithm: str) -> Pipeline:
        """Return the algorithm called `algorithm`; by default the first of its precision."""
        name = algorithm or algorithms_of(plan)[0]
        return ALGORITHMS[known_algorithm(self.name, name, ALGORITHMS)].pipeline(plan)

    def space_of(self, plan: ConvNchwPlan, target: KernelTarget) -> Space:
        """Return the choices: vector axis, register tile, and the copy of a task."""
        offered = {name: ALGORITHMS[name] for name in algorithms_of(plan)}
        return tiled_space(offered, plan, target, first_guesses(plan, target))

    def schedule_of(self, plan: ConvNchwPlan, values: Values, target: KernelTarget) -> Schedule:
        return tiled_schedule(ALGORITHMS, plan, values)
