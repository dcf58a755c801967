"""The convolution family: shapes that hurt, activations, a tensor added, whatever the schedule."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from aoe.graph.workload_model import random_inputs
from aoe.kernels.convolution.family import Convolution
from aoe.kernels.registry import get_family
from aoe.testing.kernels import (
    SEED,
    CompiledKernel,
    KernelFamilyTests,
    block_size,
    blocked,
    kernel_target,
    operation,
    plain,
    run_baseline,
)
from aoe.workload import NCHWC_DOMAIN, AttributeValue, Workload

pytestmark = pytest.mark.skipif(not block_size(), reason="this CPU has no blocked layout")
BLOCK = block_size() or 16


def convolution(
    size: tuple[int, int],
    *,
    batch: int = 1,
    blocks: tuple[int, int] = (1, 1),
    pads: tuple[int, int, int, int] = (1, 1, 1, 1),
    bias: bool = True,
    added: bool = False,
    **attributes: AttributeValue,
) -> Workload:
    """Return a 3x3 convolution of images of `size`, with blocks of channels read and written."""
    height, width = size
    read, written = (BLOCK * count for count in blocks)
    rows, columns = height + pads[0] + pads[2] - 2, width + pads[1] + pads[3] - 2
    output = blocked(batch, written, rows, columns)
    inputs = [blocked(batch, read, height, width), plain(written, read, 3, 3, constant=True)]
    names = "x0 x1"
    if bias:
        names += f" x{len(inputs)}"
        inputs.append(plain(written, constant=True))
    if added:
        names += f"{'' if bias else ' -'} x{len(inputs)}"
        inputs.append(output)
    given: dict[str, AttributeValue] = {
        "kernel_shape": (3, 3),
        "strides": (1, 1),
        "dilations": (1, 1),
        "pads": pads,
        "group": 1,
        **attributes,
    }
    node = operation("Conv", names, "t0", domain=NCHWC_DOMAIN, **given)
    return Workload(op_type="convolution", inputs=tuple(inputs), operations=(node,), output=output)


class TestConvolution(KernelFamilyTests):
    family_name = "convolution"
    share = 1.0
    cases: Mapping[str, Workload] = {
        "even": convolution((8, 8), blocks=(2, 2)),
        "prime image, three blocks": convolution((7, 13), blocks=(3, 1), activation="Relu"),
        "tensor added, batch of 3": convolution((5, 9), batch=3, added=True, activation="Relu"),
        "no bias, tensor added": convolution((6, 6), bias=False, added=True),
        "two rows": convolution((2, 19), blocks=(1, 2)),
        "no padding": convolution((11, 6), pads=(0, 0, 0, 0), bias=False),
        "uneven padding": convolution((9, 8), pads=(2, 0, 1, 2)),
        "activation with parameters": convolution(
            (10, 10), activation="Clip", activation_params=(-0.5, 6.0)
        ),
    }


def test_sums_of_many_channels_stay_within_the_bound() -> None:
    """The error of F(4x4, 3x3) against float64 is a share of the largest result."""
    workload = convolution((14, 14), blocks=(512 // BLOCK, 1), bias=False)
    run = run_baseline(workload, random_inputs(workload, SEED))
    space = get_family("convolution").space(workload, kernel_target())
    x, weights = (np.asarray(run.inputs[name], np.float64) for name in ("x0", "x1"))
    exact = _direct(x, weights)
    for guess in space.first_guesses:
        schedule = get_family("convolution").schedule(
            workload, next(c for c in space.configurations() if dict(c) == guess), kernel_target()
        )
        found = CompiledKernel(workload, schedule).run(run.inputs)
        error = np.abs(found - exact).max() / np.abs(exact).max()
        assert error < (3e-5 if schedule.algorithm == "winograd_4x4" else 3e-6)


def _direct(x: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the convolution in float64, blocked in and out, one pixel of zeros around."""
    batch, channels, height, width = x.shape
    image = x.reshape(batch, channels // BLOCK, height, width, BLOCK)
    image = image.transpose(0, 1, 4, 2, 3).reshape(batch, channels, height, width)
    image = np.pad(image, ((0, 0), (0, 0), (1, 1), (1, 1)))
    out = weights.shape[0]
    filters = weights.reshape(out // BLOCK, channels // BLOCK, 3, 3, BLOCK, BLOCK)
    filters = filters.transpose(0, 5, 1, 4, 2, 3).reshape(out, channels, 3, 3)
    windows = np.lib.stride_tricks.sliding_window_view(image, (3, 3), axis=(2, 3))
    result = np.einsum("nchwij,ocij->nohw", windows, filters)
    result = result.reshape(batch, out // BLOCK, BLOCK, height, width)
    return result.transpose(0, 1, 3, 4, 2).reshape(batch, out, height, width)


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({"strides": (2, 2)}, "result has shape"),
        ({"dilations": (2, 2)}, "dilated"),
        ({"group": 2}, "groups"),
        ({"auto_pad": "SAME_UPPER"}, "automatic padding"),
        ({"activation": "Elu"}, "activation Elu"),
        ({"activation": "Clip"}, "without its parameters"),
    ],
)
def test_what_is_not_computed_is_refused(
    attributes: dict[str, AttributeValue], reason: str
) -> None:
    assert reason in Convolution().supports(convolution((8, 8), **attributes)).reason


def test_weights_have_to_be_constant() -> None:
    known = convolution((8, 8))
    computed = Workload(
        op_type="convolution",
        inputs=(known.inputs[0], plain(*known.inputs[1].shape), *known.inputs[2:]),
        operations=known.operations,
        output=known.output,
    )
    assert "computed weights" in Convolution().supports(computed).reason


def test_unknown_algorithm_is_refused() -> None:
    with pytest.raises(ValueError, match="no such algorithm"):
        Convolution().pipeline(convolution((8, 8)), "winograd_6x6")
