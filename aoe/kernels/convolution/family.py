"""Dense convolution of images: fewer multiplications than the direct form."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from aoe.kernels.convolution import tiles
from aoe.kernels.convolution.result import check_arguments
from aoe.kernels.convolution.shape import ConvolutionPlan, read_convolution
from aoe.kernels.convolution.transforms import F2, F4, Transforms
from aoe.kernels.convolution.winograd import check_winograd, winograd_pipeline
from aoe.kernels.family import KernelTarget, Pipeline, Support, supported
from aoe.operators import BLOCKED_CONVOLUTION
from aoe.schedule import Choice, Configuration, Knob, Schedule, Space
from aoe.workload import Workload

ALGORITHM = "algorithm"
_ALGORITHMS: Mapping[str, Transforms] = {"winograd_4x4": F4, "winograd_2x2": F2}


class Convolution:
    """y = activation(x * w + bias + sum), blocked, filters of 3 x 3, stride 1.

    ONNX Runtime's own blocked convolution runs at the roof of the hardware, so what gains is
    doing less: Winograd's minimal filtering, 2.25 (2 x 2) or 4 (4 x 4) times fewer products.
    """

    name = "convolution"
    anchors: frozenset[tuple[str, str]] = frozenset({BLOCKED_CONVOLUTION})

    def supports(self, workload: Workload) -> Support:
        """Tell whether the workload is one convolution with 3 x 3 filters and stride 1."""
        plan = read_convolution(workload)
        if isinstance(plan, Support):
            return plan
        return check_arguments(plan) and check_winograd(plan.shape)

    def pipeline(self, workload: Workload, algorithm: str = "") -> Pipeline:
        """Return the algorithm called `algorithm`; by default the one with fewest products."""
        return winograd_pipeline(_plan(workload), _transforms(algorithm))

    def space(self, workload: Workload, target: KernelTarget) -> Space:
        """Return algorithm, register tile, and what is kept between the stages."""
        shape = _plan(workload).shape
        offered = [tiles.choices(shape, transforms) for transforms in _ALGORITHMS.values()]
        numbers = {
            name: tuple(sorted({number for choices in offered for number in choices[name]}))
            for name in offered[0]
        }
        knobs = (
            Knob(ALGORITHM, tuple(_ALGORITHMS)),
            *(Knob(name, choices) for name, choices in numbers.items()),
            Knob(tiles.SCOPE, (tiles.GROUP, tiles.IMAGE)),
        )

        def legal(values: Mapping[str, Choice]) -> bool:
            return tiles.fits(values, shape, _ALGORITHMS[str(values[ALGORITHM])], target)

        guesses = [
            {ALGORITHM: name, **guess}
            for name, count in (("winograd_4x4", 4), ("winograd_2x2", 2))
            for guess in _varied(tiles.ranked(shape, _ALGORITHMS[name], target), count)
        ]
        return Space(knobs=knobs, constraint=legal, first_guesses=tuple(guesses))

    def schedule(
        self, workload: Workload, configuration: Configuration, target: KernelTarget
    ) -> Schedule:
        """Return the steps of a configuration."""
        algorithm = str(configuration[ALGORITHM])
        transforms = _ALGORITHMS[algorithm]
        steps = tiles.winograd_steps(configuration, _plan(workload).shape, transforms, target)
        return Schedule(tuple(steps), algorithm=algorithm)


def _plan(workload: Workload) -> ConvolutionPlan:
    return supported(workload, read_convolution(workload))


def _transforms(algorithm: str) -> Transforms:
    if algorithm and algorithm not in _ALGORITHMS:
        known = ", ".join(_ALGORITHMS)
        raise ValueError(f"convolution: no such algorithm (got {algorithm}, expected {known})")
    return _ALGORITHMS.get(algorithm, F4)


def _varied(guesses: Iterator[dict[str, Choice]], count: int) -> list[dict[str, Choice]]:
    """Return the first guesses of both scopes and of several register tiles."""
    taken: list[dict[str, Choice]] = []
    tried: Counter[Choice] = Counter()
    for guess in guesses:
        if len(taken) == count:
            break
        scope = guess[tiles.SCOPE]
        if tried[scope] < -(-count // 2):
            tried[scope] += 1
            taken.append(guess)
    return taken
