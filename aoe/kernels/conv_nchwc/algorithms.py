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
from aoe.kernels.conv_nchwc.winograd.transforms import (
    F2,
    F2_STRIDE_2,
    F3,
    F4,
    F4_STRIDE_2,
    F4_TAPS_5,
    F4_TAPS_7,
    single_column,
    single_row,
    square,
)
from aoe.kernels.tiled_products import TiledAlgorithm
from aoe.workload import Precision

TILES = "direct_tiles"
"""The algorithm that, on CPUs which have it, leaves other sums of bfloat16 nothing to win."""

ALGORITHMS: Mapping[str, TiledAlgorithm[ConvolutionPlan]] = {
    "winograd_4x4": Winograd(transforms=square(F4), guesses=2),
    "winograd_2x2": Winograd(transforms=square(F2), guesses=1),
    "winograd_3x3": Winograd(transforms=square(F3), guesses=1, is_for_phases=True, pools=False),
    "winograd_4x4_stride_2": Winograd(transforms=square(F4_STRIDE_2), guesses=2),
    "winograd_2x2_stride_2": Winograd(transforms=square(F2_STRIDE_2), guesses=1),
    f"winograd_4x4_{STREAMED}": StreamedWinograd(transforms=square(F4), guesses=1),
    f"winograd_2x2_{STREAMED}": StreamedWinograd(transforms=square(F2), guesses=1),
    "winograd_4x4_taps_5": Winograd(transforms=square(F4_TAPS_5), guesses=2),
    "winograd_1x4": Winograd(transforms=single_row(F4), guesses=2, pools=False),
    "winograd_4x1": Winograd(transforms=single_column(F4), guesses=2, pools=False),
    "winograd_1x4_taps_5": Winograd(transforms=single_row(F4_TAPS_5), guesses=2, pools=False),
    "winograd_4x1_taps_5": Winograd(transforms=single_column(F4_TAPS_5), guesses=2, pools=False),
    "winograd_1x4_taps_7": Winograd(transforms=single_row(F4_TAPS_7), guesses=2, pools=False),
    "winograd_4x1_taps_7": Winograd(transforms=single_column(F4_TAPS_7), guesses=2, pools=False),
    "direct": Direct(precision=Precision.FLOAT32, guesses=2),
    "depthwise": Depthwise(guesses=4),
    "direct_bf16": Direct(precision=Precision.BFLOAT16, guesses=3),
    TILES: MatrixTiles(guesses=4),
}
"""By the name a schedule has; the first that computes a workload is its default."""
