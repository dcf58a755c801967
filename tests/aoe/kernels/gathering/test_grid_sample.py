"""The family of grids that say where an image is read."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

import numpy as np
import onnx.reference
import onnxruntime
import pytest
from support.contracts.kernels import (
    SEED,
    Array,
    CompiledKernel,
    KernelFamilyTests,
    assert_close,
    guessed_schedules,
    operation,
    plain,
    run_baseline,
)
from support.tiers import few_every_day

from aoe.graph.model_graph import ModelGraph, TensorInfo
from aoe.graph.regions import partition
from aoe.graph.workload_model import workload_model
from aoe.kernels.registry import FUSIBLE, anchors, classify
from aoe.workload import Operation, TensorSpec, Workload

NAME = "grid_sample"
MODES = ("nearest", "linear", "cubic")
SAME_GRIDS_SINCE = (1, 31)
"""Release of ONNX Runtime from which NaN in a grid means what it means here."""
BORDERS = ("zeros", "border", "reflection")


def make(
    data: tuple[int, ...],
    grid: tuple[int, ...],
    *after: Operation,
    mode: str = "linear",
    padding_mode: str = "zeros",
    align_corners: int = 0,
    version: int = 20,
    others: tuple[TensorSpec, ...] = (),
) -> Workload:
    anchor = operation(
        "GridSample",
        "x0 x1",
        version=version,
        mode=mode,
        padding_mode=padding_mode,
        align_corners=align_corners,
    )
    return Workload(
        op_type=NAME,
        inputs=(plain(*data), plain(data[0], *grid, len(grid)), *others),
        operations=(anchor, *after),
        output=plain(*data[:2], *grid),
    )


class TestGridSample(KernelFamilyTests):
    family_name = NAME
    cases: Mapping[str, Workload] = {
        **{
            f"{mode}, {border}": make(
                (2, 3, 7, 9), (5, 11), mode=mode, padding_mode=border, align_corners=number % 2
            )
            for number, (mode, border) in enumerate(product(MODES, BORDERS))
        },
        "opset 16": make((1, 5, 8, 8), (4, 4), mode="bilinear", version=16),
        "opset 16, cubic": make((1, 5, 8, 8), (4, 4), mode="bicubic", version=16),
        "many channels, long rows": make((1, 40, 16, 16), (30, 70)),
        "one channel": make((3, 1, 13, 6), (1, 37), padding_mode="border"),
        "an image of one element": make((2, 4, 1, 1), (3, 5), padding_mode="reflection"),
        "a row": make((2, 4, 1, 17), (3, 5), mode="cubic", padding_mode="reflection"),
        "a volume": make((2, 3, 4, 5, 6), (3, 2, 7)),
        "a volume, reflected": make((1, 2, 4, 5, 6), (2, 3, 9), padding_mode="reflection"),
        "a volume, the nearest": make((1, 2, 3, 5, 2), (2, 3, 4), mode="nearest"),
        "chain behind": make(
            (2, 3, 7, 9),
            (5, 11),
            operation("Mul", "t0 x2", "t1"),
            operation("Sigmoid", "t1", "t2"),
            others=(plain(3, 1, 1, constant=True),),
        ),
        "chain that tells rows apart": make(
            (2, 3, 7, 9), (5, 11), operation("Add", "t0 x2", "t1"), others=(plain(5, 1),)
        ),
    }
    refused = (
        (make((1, 2, 4, 4, 4), (2, 2, 2), mode="cubic"), "cubic interpolation of a volume"),
        (
            make((1, 2, 1, 4), (2, 2), padding_mode="reflection", align_corners=1),
            "reflection between the ends",
        ),
        (make((1, 2, 4, 4), (1, 1)), "one result"),
        (make((1, 2, 4, 4), (2, 2), mode="lanczos"), "there is not"),
        (
            make((1, 2, 4, 4), (4, 4), operation("Add", "t0 x0", "t1")),
            "read by the chain, too",
        ),
        (
            Workload(
                op_type=NAME,
                inputs=(plain(1, 2, 4, 4, dtype="uint8"), plain(1, 3, 3, 2)),
                operations=(operation("GridSample", "x0 x1", version=20, mode="nearest"),),
                output=plain(1, 2, 3, 3, dtype="uint8"),
            ),
            "GridSample of float32 and uint8",
        ),
    )


def _special_grid(shape: tuple[int, ...]) -> Array:
    rng = np.random.default_rng(SEED)
    grid = rng.uniform(-1.5, 1.5, shape).astype(np.float32)
    values = (np.nan, np.inf, -np.inf, 1e9, -1e9, 3e38, -3e38, -1.0, 1.0, 0.0, -0.0, 1e-40)
    places = rng.choice(grid.size, size=3 * len(values), replace=False)
    grid.reshape(-1)[places] = np.resize(values, len(places))
    return grid


@pytest.mark.parametrize(
    ("mode", "border", "corners"),
    few_every_day([*product(MODES, BORDERS, (0, 1))], 4),
    ids=lambda value: str(value),
)
def test_whatever_a_grid_holds_only_the_image_is_read(mode: str, border: str, corners: int) -> None:
    workload = make((1, 2, 7, 9), (12, 11), mode=mode, padding_mode=border, align_corners=corners)
    feed = {"x0": np.full((1, 2, 7, 9), 3.0, np.float32), "x1": _special_grid((1, 12, 11, 2))}
    found = CompiledKernel(workload, guessed_schedules(workload)[0]).run(feed)
    assert (np.abs(found) <= 3.0 * 2).all()
    if tuple(map(int, onnxruntime.__version__.split(".")[:2])) >= SAME_GRIDS_SINCE:
        assert_close(workload, found, run_baseline(workload, feed).result, "special grid")


@pytest.mark.parametrize("mode", few_every_day(MODES))
def test_special_values_of_an_image_come_out_where_onnx_runtime_has_them(mode: str) -> None:
    for border in BORDERS:
        workload = make((1, 2, 6, 5), (8, 9), mode=mode, padding_mode=border)
        rng = np.random.default_rng(SEED)
        data = rng.standard_normal((1, 2, 6, 5)).astype(np.float32)
        data[0, 0, 2, 3], data[0, 1, 0, 0], data[0, 1, 5, 4] = np.nan, np.inf, -np.inf
        grid = rng.uniform(-1.5, 1.5, (1, 8, 9, 2)).astype(np.float32)
        run = run_baseline(workload, {"x0": data, "x1": grid})
        assert_close(workload, CompiledKernel(workload).run(run.inputs), run.result, border)


@pytest.mark.parametrize(
    ("mode", "border", "corners"),
    few_every_day([*product(MODES, BORDERS, (0, 1))], 5),
    ids=lambda value: str(value),
)
def test_onnx_reference_agrees(mode: str, border: str, corners: int) -> None:
    if (mode, border) == ("cubic", "border"):
        pytest.skip("the reference moves the pixel into the image, ONNX Runtime each neighbour")
    workload = make((1, 2, 6, 5), (4, 7), mode=mode, padding_mode=border, align_corners=corners)
    rng = np.random.default_rng(SEED)
    feed = {
        "x0": rng.standard_normal((1, 2, 6, 5)).astype(np.float32),
        "x1": rng.uniform(-1.4, 1.4, (1, 4, 7, 2)).astype(np.float32),
    }
    reference = onnx.reference.ReferenceEvaluator(workload_model(workload, seed=SEED))
    expected = reference.run(None, feed)[0]
    np.testing.assert_allclose(CompiledKernel(workload).run(feed), expected, rtol=1e-4, atol=1e-5)


def test_a_grid_and_the_chain_behind_become_one_region() -> None:
    workload = make((1, 3, 8, 8), (4, 4), operation("Relu", "t0", "t1"))
    proto = workload_model(workload, seed=SEED)
    info = {"t0": TensorInfo(dtype="float32", shape=(1, 3, 4, 4))}
    info["y"] = info["t0"]
    graph = ModelGraph(proto, info, block=0)
    cut = partition(graph, fusible=FUSIBLE, anchors=anchors(), classify=classify)
    assert [region.workload.op_type for region in cut.regions] == [NAME]
    assert len(cut.regions[0].nodes) == 2
