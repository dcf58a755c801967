"""Convolutions of plain tensors, transposed or not, with the chain behind them."""

from __future__ import annotations

from collections.abc import Mapping

from aoe.kernels.algorithms import KNOB
from aoe.kernels.conv_nchw import algorithms, tiles
from aoe.kernels.conv_nchw.result import check_plain_arguments
from aoe.kernels.conv_nchw.shape import ConvNchwPlan, read_plain
from aoe.kernels.family import KernelTarget, Pipeline, Support, supported
from aoe.operators.products import PLAIN_CONVOLUTIONS
from aoe.schedule import Choice, Configuration, Knob, Schedule, Space
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
        return algorithms.pipeline(plan, name)

    def space(self, workload: Workload, target: KernelTarget) -> Space:
        """Return what a vector holds, the register tile, and what a task copies."""
        plan = _plan(workload)
        names = algorithms.algorithms_of(plan)
        offered = [algorithms.choices(plan, name, target) for name in names]
        numbers = {
            name: tuple(sorted({number for choices in offered for number in choices[name]}))
            for name in offered[0]
        }
        knobs = (
            Knob(KNOB, names),
            *(Knob(name, choices) for name, choices in numbers.items()),
            Knob(tiles.SCOPE, (tiles.GROUP, tiles.IMAGE)),
        )

        def legal(values: Mapping[str, Choice]) -> bool:
            return algorithms.fits(values, plan, target)

        guesses = algorithms.first_guesses(plan, target)
        return Space(knobs=knobs, constraint=legal, first_guesses=guesses)

    def schedule(
        self, workload: Workload, configuration: Configuration, target: KernelTarget
    ) -> Schedule:
        """Return the steps of a configuration."""
        steps = algorithms.steps(configuration, _plan(workload), target)
        return Schedule(tuple(steps), algorithm=str(configuration[KNOB]))


def _plan(workload: Workload) -> ConvNchwPlan:
    return supported(workload, read_plain(workload))
