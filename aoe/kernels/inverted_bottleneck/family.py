"""A convolution in groups with the pointwise one in front of it, as one kernel."""

from __future__ import annotations

from aoe.kernels.family import KernelTarget, Pipeline, PlannedFamily, Support
from aoe.kernels.inverted_bottleneck import tiles
from aoe.kernels.inverted_bottleneck.shape import BottleneckShape, read_expansion
from aoe.kernels.inverted_bottleneck.stages import expansion_pipeline
from aoe.kernels.tiled_products import GROUP, IMAGE, SCOPE
from aoe.operators import BLOCKED_CONVOLUTION
from aoe.schedule import Choice, Knob, Schedule, Space, Values
from aoe.workload import Workload


class InvertedBottleneck(PlannedFamily[BottleneckShape]):
    """y = chain(grouped(chain(x * w + bias)) + bias), blocked: an inverted residual's first half.

    Mobile networks expand the channels, filter each of them, and project them back. What is between
    is several times larger than what is read; ONNX Runtime writes it to memory and reads it again.
    Here some blocks of channels of it are made, and filtered while they are in the caches.
    """

    name = "expanded_convolution"
    anchors = frozenset({BLOCKED_CONVOLUTION})

    def plan(self, workload: Workload) -> BottleneckShape | Support:
        """Plan a pointwise convolution and one in groups behind it, or tell why not."""
        return read_expansion(workload)

    def pipeline_of(self, plan: BottleneckShape, algorithm: str) -> Pipeline:
        """Return the algorithm of the workload's precision.

        Raises:
            ValueError: it is asked for by another name.
        """
        expected = _algorithm(plan)
        if algorithm not in ("", expected):
            raise ValueError(
                f"expanded_convolution: no such algorithm (got {algorithm}, expected {expected!r})"
            )
        return expansion_pipeline(plan)

    def space_of(self, plan: BottleneckShape, target: KernelTarget) -> Space:
        """Return register tiles, and what a task and what is kept between the stages are."""
        offered = tiles.choices(plan, target)
        knobs = (
            *(Knob(name, numbers) for name, numbers in offered.items()),
            Knob(tiles.COPY, tiles.copies(plan)),
            Knob(SCOPE, (GROUP, IMAGE)),
        )

        def legal(values: Values) -> bool:
            return tiles.fits(values, plan, target)

        best: dict[tuple[Choice, Choice], dict[str, Choice]] = {}
        for guess in tiles.ranked(plan, target):
            best.setdefault((guess[SCOPE], guess[tiles.COPY]), guess)
        return Space(knobs=knobs, constraint=legal, first_guesses=tuple(best.values()))

    def schedule_of(self, plan: BottleneckShape, values: Values, target: KernelTarget) -> Schedule:
        steps = tiles.expansion_steps(values, plan, target)
        return Schedule(tuple(steps), algorithm=_algorithm(plan))


def _algorithm(expansion: BottleneckShape) -> str:
    """Return the name schedules have: that of the products of the first convolution."""
    return "direct_bf16" if expansion.in_pairs else ""
