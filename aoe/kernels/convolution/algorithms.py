"""The ways a convolution is computed, of which the search chooses one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from aoe.kernels.convolution import depthwise, matrix_tiles, register_tiles
from aoe.kernels.convolution.direct import direct_pipeline
from aoe.kernels.convolution.shape import ConvolutionPlan
from aoe.kernels.convolution.winograd import streamed_tiles, tiles
from aoe.kernels.convolution.winograd.stages import check_winograd, winograd_pipeline
from aoe.kernels.convolution.winograd.streamed import streamed_pipeline
from aoe.kernels.convolution.winograd.transforms import F2, F4, Transforms
from aoe.kernels.family import SUPPORTED, KernelTarget, Pipeline, Support
from aoe.schedule import Choice, Step
from aoe.workload import Precision

Values = Mapping[str, Choice]
TILES = "direct_tiles"
"""The algorithm that, on CPUs which have it, leaves other sums of bfloat16 nothing to win."""


class ConvolutionAlgorithm(Protocol):
    """One way to compute a convolution and its chain."""

    def supports(self, plan: ConvolutionPlan) -> Support:
        """Tell whether it computes a convolution, and could gain."""

    def is_available(self, target: KernelTarget) -> bool:
        """Tell whether a CPU has the instructions."""

    def pipeline(self, plan: ConvolutionPlan) -> Pipeline:
        """Return it, not scheduled."""

    def choices(self, plan: ConvolutionPlan, target: KernelTarget) -> dict[str, tuple[int, ...]]:
        """Return what may be chosen for the numbers of a configuration, rising."""

    def fits(self, values: Values, plan: ConvolutionPlan, target: KernelTarget) -> bool:
        """Return True if a configuration is worth a trial."""

    def ranked(self, plan: ConvolutionPlan, target: KernelTarget) -> Iterator[dict[str, Choice]]:
        """Yield configurations that fit, the most promising first."""

    def steps(self, values: Values, plan: ConvolutionPlan, target: KernelTarget) -> Iterator[Step]:
        """Yield the steps of a configuration."""


@dataclass(frozen=True, slots=True)
class Winograd:
    """Fewer products on transformed tiles, 3 x 3 filters with stride 1."""

    transforms: Transforms

    def supports(self, plan: ConvolutionPlan) -> Support:
        """See `ConvolutionAlgorithm`."""
        return check_winograd(plan.shape)

    def is_available(self, target: KernelTarget) -> bool:
        """See `ConvolutionAlgorithm`."""
        return True

    def pipeline(self, plan: ConvolutionPlan) -> Pipeline:
        """See `ConvolutionAlgorithm`."""
        return winograd_pipeline(plan, self.transforms)

    def choices(self, plan: ConvolutionPlan, target: KernelTarget) -> dict[str, tuple[int, ...]]:
        """See `ConvolutionAlgorithm`."""
        return tiles.choices(plan.shape, self.transforms)

    def fits(self, values: Values, plan: ConvolutionPlan, target: KernelTarget) -> bool:
        """See `ConvolutionAlgorithm`."""
        return tiles.fits(values, plan.shape, self.transforms, target)

    def ranked(self, plan: ConvolutionPlan, target: KernelTarget) -> Iterator[dict[str, Choice]]:
        """See `ConvolutionAlgorithm`."""
        return tiles.ranked(plan.shape, self.transforms, target)

    def steps(self, values: Values, plan: ConvolutionPlan, target: KernelTarget) -> Iterator[Step]:
        """See `ConvolutionAlgorithm`."""
        return tiles.winograd_steps(values, plan, self.transforms, target)


@dataclass(frozen=True, slots=True)
class StreamedWinograd:
    """The same, with weights transformed where they are used: for small images of many channels."""

    transforms: Transforms

    def supports(self, plan: ConvolutionPlan) -> Support:
        """See `ConvolutionAlgorithm`."""
        return check_winograd(plan.shape)

    def is_available(self, target: KernelTarget) -> bool:
        """See `ConvolutionAlgorithm`."""
        return True

    def pipeline(self, plan: ConvolutionPlan) -> Pipeline:
        """See `ConvolutionAlgorithm`."""
        return streamed_pipeline(plan, self.transforms)

    def choices(self, plan: ConvolutionPlan, target: KernelTarget) -> dict[str, tuple[int, ...]]:
        """See `ConvolutionAlgorithm`."""
        return streamed_tiles.choices(plan.shape, self.transforms)

    def fits(self, values: Values, plan: ConvolutionPlan, target: KernelTarget) -> bool:
        """See `ConvolutionAlgorithm`."""
        return streamed_tiles.fits(values, plan.shape, self.transforms, target)

    def ranked(self, plan: ConvolutionPlan, target: KernelTarget) -> Iterator[dict[str, Choice]]:
        """See `ConvolutionAlgorithm`."""
        return streamed_tiles.ranked(plan.shape, self.transforms, target)

    def steps(self, values: Values, plan: ConvolutionPlan, target: KernelTarget) -> Iterator[Step]:
        """See `ConvolutionAlgorithm`."""
        return streamed_tiles.streamed_steps(values, plan, self.transforms, target)


@dataclass(frozen=True, slots=True)
class Direct:
    """Every product once; in float32 no faster than the host, so only for the sake of a chain."""

    precision: Precision

    def supports(self, plan: ConvolutionPlan) -> Support:
        """See `ConvolutionAlgorithm`."""
        is_lower = self.precision is Precision.BFLOAT16
        if plan.shape.is_depthwise:
            return Support("a depthwise Conv has one product for each value of a filter")
        if is_lower and plan.shape.is_stem and plan.shape.dilations[1] > 1:
            return Support("Conv of a plain image with dilated filters has no pairs")
        if is_lower or plan.epilogue.cycles or plan.shape.groups > 1:
            return SUPPORTED
        return Support("a direct convolution without a chain behind it gains nothing")

    def is_available(self, target: KernelTarget) -> bool:
        """See `ConvolutionAlgorithm`."""
        return self.precision is not Precision.BFLOAT16 or target.bf16_dot

    def pipeline(self, plan: ConvolutionPlan) -> Pipeline:
        """See `ConvolutionAlgorithm`."""
        return direct_pipeline(plan, self.precision)

    def choices(self, plan: ConvolutionPlan, target: KernelTarget) -> dict[str, tuple[int, ...]]:
        """See `ConvolutionAlgorithm`."""
        return register_tiles.choices(plan.shape, target)

    def fits(self, values: Values, plan: ConvolutionPlan, target: KernelTarget) -> bool:
        """See `ConvolutionAlgorithm`."""
        return register_tiles.fits(values, plan.shape, target)

    def ranked(self, plan: ConvolutionPlan, target: KernelTarget) -> Iterator[dict[str, Choice]]:
        """See `ConvolutionAlgorithm`."""
        return register_tiles.ranked(plan, self.precision, target)

    def steps(self, values: Values, plan: ConvolutionPlan, target: KernelTarget) -> Iterator[Step]:
        """See `ConvolutionAlgorithm`."""
        return register_tiles.direct_steps(values, plan, self.precision, target)


@dataclass(frozen=True, slots=True)
class Depthwise:
    """A filter for each channel: channels are what a vector holds."""

    def supports(self, plan: ConvolutionPlan) -> Support:
        """See `ConvolutionAlgorithm`."""
        return SUPPORTED if plan.shape.is_depthwise else Support("Conv that sums up channels")

    def is_available(self, target: KernelTarget) -> bool:
        """See `ConvolutionAlgorithm`."""
        return True

    def pipeline(self, plan: ConvolutionPlan) -> Pipeline:
        """See `ConvolutionAlgorithm`."""
        return direct_pipeline(plan, Precision.FLOAT32)

    def choices(self, plan: ConvolutionPlan, target: KernelTarget) -> dict[str, tuple[int, ...]]:
        """See `ConvolutionAlgorithm`."""
        return depthwise.choices(plan.shape, target)

    def fits(self, values: Values, plan: ConvolutionPlan, target: KernelTarget) -> bool:
        """See `ConvolutionAlgorithm`."""
        return depthwise.fits(values, plan.shape, target)

    def ranked(self, plan: ConvolutionPlan, target: KernelTarget) -> Iterator[dict[str, Choice]]:
        """See `ConvolutionAlgorithm`."""
        return depthwise.ranked(plan.shape, target)

    def steps(self, values: Values, plan: ConvolutionPlan, target: KernelTarget) -> Iterator[Step]:
        """See `ConvolutionAlgorithm`."""
        return depthwise.depthwise_steps(values, plan, target)


@dataclass(frozen=True, slots=True)
class MatrixTiles:
    """Every product once, in bfloat16, summed in the CPU's matrix tiles."""

    def supports(self, plan: ConvolutionPlan) -> Support:
        """See `ConvolutionAlgorithm`."""
        return matrix_tiles.check_matrix_tiles(plan.shape)

    def is_available(self, target: KernelTarget) -> bool:
        """See `ConvolutionAlgorithm`."""
        return target.bf16_tiles

    def pipeline(self, plan: ConvolutionPlan) -> Pipeline:
        """See `ConvolutionAlgorithm`."""
        return matrix_tiles.matrix_tiles_pipeline(plan)

    def choices(self, plan: ConvolutionPlan, target: KernelTarget) -> dict[str, tuple[int, ...]]:
        """See `ConvolutionAlgorithm`."""
        return matrix_tiles.choices(plan.shape)

    def fits(self, values: Values, plan: ConvolutionPlan, target: KernelTarget) -> bool:
        """See `ConvolutionAlgorithm`."""
        return matrix_tiles.fits(values, plan.shape)

    def ranked(self, plan: ConvolutionPlan, target: KernelTarget) -> Iterator[dict[str, Choice]]:
        """See `ConvolutionAlgorithm`."""
        return matrix_tiles.ranked(plan.shape, target)

    def steps(self, values: Values, plan: ConvolutionPlan, target: KernelTarget) -> Iterator[Step]:
        """See `ConvolutionAlgorithm`."""
        return matrix_tiles.matrix_tiles_steps(values, target)


ALGORITHMS: Mapping[str, ConvolutionAlgorithm] = {
    "winograd_4x4": Winograd(F4),
    "winograd_2x2": Winograd(F2),
    "winograd_4x4_streamed": StreamedWinograd(F4),
    "winograd_2x2_streamed": StreamedWinograd(F2),
    "direct": Direct(Precision.FLOAT32),
    "depthwise": Depthwise(),
    "direct_bf16": Direct(Precision.BFLOAT16),
    TILES: MatrixTiles(),
}
"""By the name a schedule has; the first that computes a workload is its default."""
GUESSES = {
    "winograd_4x4": 2,
    "winograd_2x2": 1,
    "winograd_4x4_streamed": 1,
    "winograd_2x2_streamed": 1,
    "direct": 2,
    "depthwise": 4,
    "direct_bf16": 3,
    TILES: 4,
}
"""First guesses of each: seven at most where all are offered that are of one precision."""
