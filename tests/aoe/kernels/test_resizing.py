"""The resizing family."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

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

Array = np.ndarray[Any, Any]


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


def of_levels(
    given: tuple[int, ...],
    result: tuple[int, ...],
    coordinates: str = "half_pixel",
    *,
    dtype: str = "uint8",
    steps: tuple[float, float] = (0.05, 0.05),
    zeros: tuple[int, int] = (3, 3),
) -> tuple[Workload, dict[str, Array]]:
    """Return a linear Resize between DequantizeLinear and QuantizeLinear, and its zero points."""
    zero = TensorSpec(shape=(), dtype=dtype)
    workload = Workload(
        op_type="resizing",
        inputs=(plain(*given, dtype=dtype), zero, zero),
        operations=(
            operation("DequantizeLinear", "x0 s0 x1", "t0"),
            operation(
                "Resize",
                "t0",
                "t1",
                mode="linear",
                sizes=result,
                coordinate_transformation_mode=coordinates,
            ),
            operation("QuantizeLinear", "t1 s1 x2", "t2"),
        ),
        output=plain(*result, dtype=dtype),
        scalars=steps,
    )
    return workload, {f"x{at}": np.array(one, dtype) for at, one in enumerate(zeros, start=1)}


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
        "levels, channels last": of_levels((1, 5, 7, 21), (1, 10, 14, 21))[0],
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


_WITHOUT_NAN = {"voxels", "levels, channels last"}
"""Not all dimensions of the one are resized, and the other has no NaN."""


@pytest.mark.parametrize("label", sorted({*TestResizing.all_cases()} - _WITHOUT_NAN))
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


@pytest.mark.parametrize(("coordinates", "factor"), [("asymmetric", 2), ("half_pixel", 3)])
def test_infinity_at_the_end_of_a_row_stays(coordinates: str, factor: int) -> None:
    result = (1, 2, 4 * factor, 20 * factor)
    workload = make((1, 2, 4, 20), result, coordinate_transformation_mode=coordinates)
    x = random_inputs(workload, SEED)["x0"].copy()
    x[..., 1, -1], x[..., 3, -1], x[..., 3, 2] = np.inf, -np.inf, np.inf
    run = run_baseline(workload, {"x0": x})
    assert np.isinf(run.result[..., -1]).any()
    for schedule in guessed_schedules(workload):
        found = CompiledKernel(workload, schedule).run(run.inputs)
        assert_close(workload, found, run.result, f"{coordinates}, {factor} times")


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize(("extent", "scale", "made"), [(10, 0.7, 7), (20, 1.9, 38), (15, 2.8, 42)])
def test_extents_are_rounded_down_in_float32_as_in_onnx_runtime(
    mode: str, extent: int, scale: float, made: int
) -> None:
    scales = (1.0, 1.0, 2.0, float(np.float32(scale)))
    resize = operation("Resize", "x0", "t0", mode=mode, scales=scales)
    workload = Workload(
        op_type="resizing",
        inputs=(plain(1, 2, 5, extent),),
        operations=(resize,),
        output=plain(1, 2, 10, made),
    )
    shorter = replace(workload, output=plain(1, 2, 10, made - 1))  # as ONNX infers it, in float64
    assert not get_family("resizing").supports(shorter)
    assert get_family("resizing").supports(workload).reason == ""
    run = run_baseline(workload, random_inputs(workload, SEED))
    assert run.result.shape == workload.output.shape
    assert_close(workload, CompiledKernel(workload).run(run.inputs), run.result, f"by {scale}")


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


_EVERY = np.arange(256)


def _neighbours(extent: int, made: int, coordinates: str) -> tuple[Array, ...]:
    """Return both neighbours of each result along an axis, and their weights, in float32."""
    one, half = np.float32(1), np.float32(0.5)
    at, scale = np.arange(made, dtype=np.float32), np.float32(made / extent)
    place = {
        "half_pixel": (at + half) / scale - half,
        "asymmetric": at / scale,
        "align_corners": at * np.float32(extent - 1) / np.float32(max(made - 1, 1)),
    }[coordinates].clip(0, extent - 1)
    first = place.astype(int)
    second = np.minimum(first + 1, extent - 1)
    part = np.where(first == second, half, place - first.astype(np.float32))
    return first, second, (one - part).astype(np.float32), part.astype(np.float32)


def _resized(
    levels: Array, made: tuple[int, ...], along: tuple[int, int], coordinates: str, **terms: Any
) -> Array:
    """Return the levels of a linear Resize, each operator rounded to float32, by NumPy alone."""
    steps, zeros, dtype = terms["steps"], terms["zeros"], levels.dtype
    step, made_step = map(np.float32, steps)
    image = (levels.astype(np.float32) - np.float32(zeros[0])) * step
    image = np.moveaxis(image, along, (-2, -1))
    rows, columns = (_neighbours(levels.shape[at], made[at], coordinates) for at in along)
    total: Any = None
    for row, high in zip(rows[:2], rows[2:], strict=True):
        for column, wide in zip(columns[:2], columns[2:], strict=True):
            term = high[:, None] * wide * image[..., row, :][..., column]
            total = term if total is None else total + term
    counted = np.rint(total / made_step) + np.float32(zeros[1])
    info = np.iinfo(dtype)
    return np.moveaxis(counted.clip(info.min, info.max).astype(dtype), (-2, -1), along)


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("coordinates", ["half_pixel", "asymmetric", "align_corners"])
@pytest.mark.parametrize(
    ("given", "made", "along"),
    [
        ((1, 9, 11, 24), (1, 18, 22, 24), (1, 2)),
        ((2, 5, 7, 3), (2, 7, 4, 3), (1, 2)),
        ((1, 3, 6, 13), (1, 3, 12, 26), (2, 3)),
    ],
)
def test_levels_between_two_pixels_are_those_of_onnx_runtime_and_numpy(
    dtype: str,
    coordinates: str,
    given: tuple[int, ...],
    made: tuple[int, ...],
    along: tuple[int, int],
) -> None:
    lowest = np.iinfo(dtype).min
    for steps, zeros in (
        ((0.05, 0.05), (lowest + 3, lowest + 3)),
        ((0.013, 0.02), (lowest, lowest + 255)),
        ((0.5, 0.0007), (lowest + 255, lowest)),
    ):
        terms: dict[str, Any] = {"steps": steps, "zeros": zeros}
        workload, feed = of_levels(given, made, coordinates, dtype=dtype, **terms)
        drawn = np.random.default_rng(SEED).permuted(np.resize(_EVERY, np.prod(given)))
        feed["x0"] = (drawn + lowest).astype(dtype).reshape(given)
        assert get_family("resizing").supports(workload).reason == ""
        found = CompiledKernel(workload, guessed_schedules(workload)[0]).run(feed)
        np.testing.assert_array_equal(found, run_baseline(workload, feed).result)
        expected = _resized(feed["x0"], made, along, coordinates, **terms)
        np.testing.assert_array_equal(found, expected)


def test_levels_of_cubic_interpolation_and_scales_of_channels_are_left_to_others() -> None:
    workload, _ = of_levels((1, 5, 7, 3), (1, 10, 14, 3))
    dequantize, resize, quantize = workload.operations
    cubic = replace(resize, attributes={**resize.attributes, "mode": "cubic"})
    refused = replace(workload, operations=(dequantize, cubic, quantize))
    assert "linearly" in get_family("resizing").supports(refused).reason
    volume, _ = of_levels((1, 3, 4, 5, 2), (1, 6, 8, 10, 2))
    assert "volumes" in get_family("resizing").supports(volume).reason
    scales = replace(dequantize, inputs=("x0", "x3", "x1"))
    of_channels = replace(
        workload,
        inputs=(*workload.inputs, TensorSpec(shape=(3,), constant=True)),
        operations=(scales, resize, quantize),
    )
    assert not get_family("resizing").supports(of_channels)


def test_extents_that_stay_are_not_interpolated() -> None:
    resize = operation("Resize", "x0", "t0", mode="linear", scales=(1.0, 1.0, 1.3, 1.0))
    image = plain(1, 2, 3, 4)
    workload = Workload(op_type="resizing", inputs=(image,), operations=(resize,), output=image)
    assert "ONNX Runtime copies" in get_family("resizing").supports(workload).reason
    made = run_baseline(workload, random_inputs(workload, SEED))
    np.testing.assert_array_equal(made.result, made.inputs["x0"])
