"""Plain and transposed convolutions of shapes nobody has chosen, with any legal schedule.

The default tries some, `pytest -m slow` hundreds.
"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from support.contracts.kernels import (
    SEED,
    CompiledKernel,
    assert_close,
    kernel_target,
    operation,
    run_baseline,
)
from support.engine.conv_nchw_shapes import conv_nchw, transposed_convolution
from support.engine.convolutions import SILU

from aoe.graph.workload_model import random_inputs
from aoe.kernels.algorithms import allowed_space
from aoe.kernels.registry import get_family
from aoe.workload import Precision, Workload

_CHAINS = ((), SILU, (operation("Neg", "t0", "t1"),))
_MOST_ALONG = {1: 60, 2: 17, 3: 8}
_SOME, _MANY = 8, 300


def _drawn(rng: random.Random) -> Workload:
    axes = rng.choice([1, 2, 2, 3])
    groups = rng.choice([1, 1, 1, 2, 3])
    read, written = groups * rng.choice([1, 2, 5, 17, 32]), groups * rng.choice([1, 3, 8, 16, 20])
    size = [rng.randint(1, _MOST_ALONG[axes]) for _ in range(axes)]
    kernel = [rng.randint(1, 5 if axes < 3 else 3) for _ in range(axes)]
    stride, batch = rng.choice([1, 1, 2, 3]), rng.choice([1, 1, 2])
    chain = rng.choice(_CHAINS)
    if rng.random() < 0.4:
        more = rng.choice([0, 0, 1]) if stride > 1 else 0
        pads = [rng.randint(0, extent - 1) // 2 for extent in (*kernel, *kernel)]
        return transposed_convolution(
            (batch, read, *size),
            (read, written // groups, *kernel),
            stride=stride,
            pads=pads,
            more=more,
            group=groups,
            bias=rng.random() < 0.6,
            chain=chain,
        )
    dilation = rng.choice([1, 1, 2, 9])
    reach = [dilation * (extent - 1) for extent in kernel]
    pads = [rng.randint(0, one) for one in (*reach, *reach)]
    for at, one in enumerate(reach):
        size[at] = max(size[at], one + 1 - pads[at] - pads[at + axes])
    return conv_nchw(
        (batch, read, *size),
        (written, read // groups, *kernel),
        stride=stride,
        dilation=dilation,
        pads=pads,
        group=groups,
        bias=rng.random() < 0.6,
        chain=chain,
    )


def _try(number: int) -> bool:
    """Compare one with ONNX Runtime; return False if there is no kernel for it."""
    rng = random.Random(f"plain convolution {number}")
    workload = _drawn(rng)
    workload = replace(workload, precision=rng.choice([*Precision][:3]))
    family, target = get_family("plain_convolution"), kernel_target()
    space = allowed_space(family, workload, target) if family.supports(workload) else None
    if space is None:
        return False
    chosen = next(replace(space, first_guesses=()).draw(rng))
    kernel = CompiledKernel(workload, family.schedule(workload, chosen, target))
    run = run_baseline(workload, random_inputs(workload, SEED + number))
    assert_close(workload, kernel.run(run.inputs), run.result, f"{number}: {chosen}", share=1.0)
    return True


def test_convolutions_of_any_shape_are_computed() -> None:
    tried, number = 0, 0
    while tried < _SOME:
        tried += _try(number)
        number += 1


@pytest.mark.slow
def test_many_convolutions_of_any_shape_are_computed() -> None:
    for number in range(_SOME, _SOME + _MANY):
        _try(number)
