"""The ways a convolution is computed, of which the search chooses one."""

from __future__ import annotations

from collections.abc import Mapping

from aoe.kernels.algorithms import STREAMED
from aoe.kernels.conv_nchwc.depthwise import Depthwise
from aoe.kernels.conv_nchwc.matrix_tiles import MatrixTiles
from aoe.kernels.conv_nchwc.register_tiles import Direct
from aoe.kernels.conv_nchwc.shape import ConvolutionPlan
from aoe.kernels.conv_nchwc.winograd.streamed_tiles import StreamedWinograd
from aoe.kernels.conv_nchwc.winograd.tiles import Winograd
from aoe.kernels.conv_nchwc.winograd.transforms import F2, F2_STRIDE_2, F3, F4, F4_STRIDE_2
from aoe.kernels.tiled_products import TiledAlgorithm
from aoe.workload import Precision

TILES = "direct_tiles"
"""The algorithm that, on CPUs which have it, leaves other sums of bfloat16 nothing to win."""

ALGORITHMS: Mapping[str, TiledAlgorithm[ConvolutionPlan]] = {
    "winograd_4x4": Winograd(transforms=F4, guesses=2),
    "winograd_2x2": Winograd(transforms=F2, guesses=1),
    "winograd_3x3": Winograd(transforms=F3, guesses=1, is_for_phases=True, pools=False),
    "winograd_4x4_stride_2": Winograd(transforms=F4_STRIDE_2, guesses=2),
    "winograd_2x2_stride_2": Winograd(transforms=F2_STRIDE_2, guesses=1),
    f"winograd_4x4_{STREAMED}": StreamedWinograd(transforms=F4, guesses=1),
    f"winograd_2x2_{STREAMED}": StreamedWinograd(transforms=F2, guesses=1),
    "direct": Direct(precision=Precision.FLOAT32, guesses=2),
    "depthwise": Depthwise(guesses=4),
    "direct_bf16": Direct(precision=Precision.BFLOAT16, guesses=3),
    TILES: MatrixTiles(guesses=4),
}
"""By the name a schedule has; the first that computes a workload is its default."""
