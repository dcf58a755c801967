"""What kernels keep besides the weights of a model."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.engine.convolutions import convolution
from support.engine.tuning import guess_of, make_kernel, make_operator

from aoe.device.compiler import KernelSource, RowBlock, row_kernel
from aoe.schedule import Schedule
from aoe.tasks.operators.chosen_kernel import ChosenKernel
from aoe.validation import kernels
from aoe.workload import Workload

WORKLOAD = convolution((14, 14), blocks=(4, 4))
WEIGHT_BYTES = 4 * WORKLOAD.inputs[1].size


def _kernel(workload: Workload, algorithm: str, places: int = 1) -> ChosenKernel:
    plain, _ = guess_of(make_kernel(0).source.workload)
    schedule = Schedule(steps=plain.steps, algorithm=algorithm)
    operator = make_operator(workload, op_names=tuple(f"n{n}" for n in range(places)))
    source = KernelSource(name="kernel", workload=workload, schedule=schedule)
    return replace(
        make_kernel(0), source=source, regions=operator.regions, op_names=operator.op_names
    )


@pytest.mark.parametrize(
    ("algorithm", "places", "ratio"),
    [
        ("winograd_4x4", 1, 3.0),
        ("winograd_4x4", 2, 6.0),
        ("winograd_4x4_streamed", 1, 0.0),
        ("direct", 3, 0.0),
    ],
)
def test_kernel_keeps_what_its_transform_adds_at_each_place(
    algorithm: str, places: int, ratio: float
) -> None:
    kernel = _kernel(WORKLOAD, algorithm, places)
    assert kernels.bytes_kept_beside(kernel) == pytest.approx(ratio * WEIGHT_BYTES)


def test_kernel_without_weights_keeps_nothing() -> None:
    assert kernels.bytes_kept_beside(make_kernel(0)) == 0


@pytest.mark.parametrize(
    ("algorithms", "ratio"), [(("direct", "direct"), 0.0), (("winograd_4x4", "direct"), 4.0)]
)
def test_blocks_of_one_kernel_share_what_their_algorithms_have_in_common(
    algorithms: tuple[str, ...], ratio: float
) -> None:
    plain = _kernel(WORKLOAD, "direct")
    blocks = [
        RowBlock(rows=rows, source=_kernel(WORKLOAD, algorithm).source, us=1.0)
        for rows, algorithm in zip((4, 1), algorithms, strict=True)
    ]
    source = row_kernel(blocks, open_rank=1, open_inputs=[True, False], shapes=[])
    kernel = replace(plain, source=source)
    assert kernels.bytes_kept_beside(kernel) == pytest.approx(ratio * WEIGHT_BYTES)
