"""First guesses of Winograd's register tiles: what is walked again and again stays in a cache."""

from __future__ import annotations

import pytest
from support.contracts.kernels import block_size
from support.engine.convolutions import convolution

from aoe.kernels.conv_nchwc.family import Convolution
from aoe.kernels.family import KernelTarget

pytestmark = pytest.mark.skipif(block_size() != 16, reason="counts blocks of 16 channels")


def first_of_image(channels: int, size: int, l1_bytes: int) -> tuple[object, ...]:
    """Return blocks, columns and rows of tiles of the first guess for the image as a whole."""
    workload = convolution((size, size), blocks=(channels // 16, channels // 16))
    target = KernelTarget(vector_lanes=16, threads=1, l1_bytes=l1_bytes)
    for guess in Convolution().space(workload, target).first_guesses:
        if guess["algorithm"] == "winograd_4x4" and guess["scope"] == "image":
            return guess["blocks"], guess["across"], guess["down"]
    raise AssertionError("no guess for the image")


def test_one_block_of_weights_leaves_room_for_all_tiles() -> None:
    """256 channels of 16 tiles and of 16 weights are 32 KiB."""
    assert first_of_image(256, 14, 48 << 10) == (1, 4, 4)
    blocks, *_ = first_of_image(256, 14, 32 << 10)
    assert blocks != 1


def test_of_tiles_with_as_many_sums_a_flat_one_is_guessed() -> None:
    assert first_of_image(64, 56, 48 << 10) == (2, 14, 1)


@pytest.mark.parametrize(("channels", "size"), [(256, 20), (128, 40), (64, 80)])
def test_tiles_that_divide_rows_of_five_are_guessed(channels: int, size: int) -> None:
    _, across, down = first_of_image(channels, size, 48 << 10)
    assert 5 in (across, down)


@pytest.mark.parametrize(("channels", "size"), [(256, 14), (128, 28), (64, 56), (256, 20)])
def test_16_registers_hold_few_sums_rather_than_tiles_that_are_not_there(
    channels: int, size: int
) -> None:
    """Eight sums are enough for two products a cycle, of which each takes four."""
    workload = convolution((size, size), blocks=(channels // 16, channels // 16))
    target = KernelTarget(vector_lanes=8, threads=1, l1_bytes=32 << 10)
    first = Convolution().space(workload, target).first_guesses[0]
    assert first["algorithm"] == "winograd_4x4"
    assert -(-size // 4) % int(first["across"]) == 0


def test_register_tiles_fit_the_last_group_of_rows_too() -> None:
    """Seven rows of tiles are no groups of four: tiles of two rows would leave one empty."""
    workload = convolution((28, 28), blocks=(4, 4))
    target = KernelTarget(vector_lanes=16, threads=1, l1_bytes=32 << 10)
    first = Convolution().space(workload, target).first_guesses[0]
    assert (first["blocks"], first["across"], first["down"]) == (2, 7, 1)
