"""The resizing family."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from support.contracts.kernels import (
    SEED,
    CompiledKernel,
    KernelFamilyTests,
    assert_close,
    block_size,
    blocked,
    guessed_schedules,
    operation,
    plain,
    run_baseline,
)

from aoe.graph.workload_model import random_inputs
from aoe.kernels.registry import get_family
from aoe.workload import NCHWC_DOMAIN, AttributeValue, Operation, TensorSpec, Workload


def make(
    given: tuple[int, ...],
    result: tuple[int, ...],
    *after: Operation,
    others: tuple[TensorSpec, ...] = (),
    mode: str = "linear",
    **attributes: AttributeValue,
) -> Workload:
    attributes.setdefault("sizes", result)
    resize = operation("Resize", "x0", "t0", mode=mode, **attributes)
    return Workload(
        op_type="resizing",
        inputs=(plain(*given), *others),
        operations=(resize, *after),
        output=plain(*result),
    )


def upsampled(
    given: TensorSpec, output: TensorSpec, factor: int, *after: Operation, coordinates: str
) -> Workload:
    upsample = operation(
        "Upsample",
        "x0",
        "t0",
        domain=NCHWC_DOMAIN,
        mode="linear",
        scales=(1, 1, factor, factor),
        coordinate_transformation_mode=coordinates,
    )
    return Workload(
        op_type="resizing", inputs=(given,), operations=(upsample, *after), output=output
    )


class TestResizing(KernelFamilyTests):
    family_name = "resizing"
    cases: Mapping[str, Workload] = {
        "twice as large, chain": make(
            (1, 3, 5, 19),
            (1, 3, 10, 38),
            operation("PRelu", "t0 x1", "t1"),
            operation("Add", "t1 x2", "t2"),
            others=(plain(3, 1, 1), plain(1, 3, 10, 38)),
        ),
        "odd sizes, corners aligned": make(
            (2, 3, 7, 11), (2, 3, 9, 37), coordinate_transformation_mode="align_corners"
        ),
        "cubic, three times": make(
            (1, 2, 6, 9),
            (1, 2, 18, 27),
            mode="cubic",
            cubic_coeff_a=-0.5,
            coordinate_transformation_mode="asymmetric",
        ),
        "cubic, smaller": make((1, 2, 17, 40), (1, 2, 6, 21), mode="cubic"),
        "voxels": make(
            (1, 2, 3, 4, 5),
            (1, 2, 6, 4, 18),
            coordinate_transformation_mode="pytorch_half_pixel",
        ),
    }

    @classmethod
    def all_cases(cls) -> Mapping[str, Workload]:
        b = block_size()
        if not b:
            return cls.cases
        image, reorder = blocked(1, 2 * b, 3, 5), {"domain": NCHWC_DOMAIN, "channels": b + 3}
        return {
            **cls.cases,
            "blocked": upsampled(image, blocked(1, 2 * b, 12, 20), 4, coordinates="align_corners"),
            "blocked, plain behind": upsampled(
                image,
                plain(1, b + 3, 24, 40),
                8,
                operation("ReorderOutput", "t0", "t1", **reorder),  # type: ignore[arg-type]
                coordinates="half_pixel",
            ),
        }


_PARTLY = "voxels"
"""Not all of its dimensions are resized."""


@pytest.mark.parametrize("label", sorted({*TestResizing.all_cases()} - {_PARTLY}))
def test_nan_is_kept_where_onnx_runtime_multiplies_it_by_zero(label: str) -> None:
    workload = TestResizing.all_cases()[label]
    kernel = CompiledKernel(workload, guessed_schedules(workload)[0])
    for seed in range(3):
        feed = dict(random_inputs(workload, seed))
        x = feed["x0"].copy()
        x[np.random.default_rng(seed).random(x.shape) < 0.08] = np.nan
        run = run_baseline(workload, {**feed, "x0": x})
        assert np.isnan(run.result).any()
        assert_close(workload, kernel.run(run.inputs), run.result, f"{label} with NaN")


def test_only_columns_or_only_rows_are_resized() -> None:
    for given, result in (((3, 7), (3, 21)), ((7, 20), (14, 20))):
        workload = make(given, result, coordinate_transformation_mode="asymmetric")
        assert get_family("resizing").supports(workload).reason == ""
        x = random_inputs(workload, SEED)["x0"]
        axis = int(result[0] != given[0]) ^ 1
        places = np.arange(result[axis]) * given[axis] / result[axis]
        lower = np.floor(places).astype(int)
        upper = np.minimum(lower + 1, given[axis] - 1)
        part = (places - lower).reshape((-1, 1) if axis == 0 else (1, -1))
        expected = x.take(lower, axis) * (1 - part) + x.take(upper, axis) * part
        assert np.allclose(CompiledKernel(workload).run({"x0": x}), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({"antialias": 1}, "weights that depend on the border"),
        ({"mode": "cubic", "exclude_outside": 1}, "weights that depend on the border"),
        ({"coordinate_transformation_mode": "half_pixel_symmetric"}, "coordinates: half_pixel_"),
        ({"mode": "nearest"}, "0 interpolations, 1 resizes"),
        ({"sizes": (1, 2, 1, 8)}, "a dimension of one result"),
        ({"sizes": (2, 4, 8, 16), "axes": (0, 1, 2, 3)}, "4 dimensions are resized"),
    ],
)
def test_what_is_not_interpolated_here_says_why(
    attributes: dict[str, AttributeValue], reason: str
) -> None:
    sizes = attributes.get("sizes", (1, 2, 8, 8))
    assert isinstance(sizes, tuple)
    workload = make((1, 2, 4, 4), tuple(map(int, sizes)), **attributes)  # type: ignore[arg-type]
    assert get_family("resizing").supports(workload).reason.startswith(reason)
