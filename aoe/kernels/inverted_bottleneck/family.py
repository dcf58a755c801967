"""A convolution in groups with the pointwise one in front of it, as one kernel."""

from __future__ import annotations

from aoe.kernels.family import KernelTarget, Pipeline, Support, support_of, supported
from aoe.kernels.inverted_bottleneck import tiles
from aoe.kernels.inverted_bottleneck.shape import BottleneckShape, read_expansion
from aoe.kernels.inverted_bottleneck.stages import expansion_pipeline
from aoe.kernels.tiled_products import GROUP, IMAGE, SCOPE
from aoe.operators import BLOCKED_CONVOLUTION
from aoe.schedule import Choice, Configuration, Knob, Schedule, Space, Values
from aoe.workload import Workload


class InvertedBottleneck:
    """y = chain(grouped(chain(x * w + bias)) + bias), blocked: an inverted residual's first half.

    Mobile networks expand the channels, filter each of them, and project them back. What is between
    is several times larger than what is read; ONNX Runtime writes it to memory and reads it again.
    Here some blocks of channels of it are made, and filtered while they are in the caches.
    """

    name = "expanded_convolution"
    anchors: frozenset[tuple[str, str]] = frozenset({BLOCKED_CONVOLUTION})

    def supports(self, workload: Workload) -> Support:
        """Tell whether the workload is a pointwise convolution and one in groups behind it."""
        return support_of(read_expansion(workload))

    def pipeline(self, workload: Workload, algorithm: str = "") -> Pipeline:
        """Return the algorithm of the workload's precision.

        Raises:
            ValueError: it is asked for by another name.
        """
        expansion = supported(workload, read_expansion(workload))
        expected = _algorithm(expansion)
        if algorithm not in ("", expected):
            raise ValueError(
                f"expanded_convolution: no such algorithm (got {algorithm}, expected {expected!r})"
            )
        return expansion_pipeline(expansion)

    def space(self, workload: Workload, target: KernelTarget) -> Space:
        """Return register tiles, and what a task and what is kept between the stages are."""
        expansion = supported(workload, read_expansion(workload))
        offered = tiles.choices(expansion, target)
        knobs = (
            *(Knob(name, numbers) for name, numbers in offered.items()),
            Knob(tiles.COPY, tiles.copies(expansion)),
            Knob(SCOPE, (GROUP, IMAGE)),
        )

        def legal(values: Values) -> bool:
            return tiles.fits(values, expansion, target)

        best: dict[tuple[Choice, Choice], dict[str, Choice]] = {}
        for guess in tiles.ranked(expansion, target):
            best.setdefault((guess[SCOPE], guess[tiles.COPY]), guess)
        return Space(knobs=knobs, constraint=legal, first_guesses=tuple(best.values()))

    def schedule(
        self, workload: Workload, configuration: Configuration, target: KernelTarget
    ) -> Schedule:
        """Return the steps of a configuration."""
        expansion = supported(workload, read_expansion(workload))
        steps = tiles.expansion_steps(configuration, expansion, target)
        return Schedule(tuple(steps), algorithm=_algorithm(expansion))


def _algorithm(expansion: BottleneckShape) -> str:
    """Return the name schedules have: that of the products of the first convolution."""
    return "direct_bf16" if expansion.in_pairs else ""
