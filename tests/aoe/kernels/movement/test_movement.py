"""The movement family."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from support.tiers import few_every_day

from aoe.graph.workload_model import random_inputs, special_inputs
from aoe.kernels.registry import get_family
from aoe.workload import NCHWC_DOMAIN, Operation, TensorSpec, Workload

Array = np.ndarray[Any, Any]


def make(
    inputs: Sequence[TensorSpec],
    output: TensorSpec,
    *operations: Operation,
    scalars: tuple[float, ...] = (),
) -> Workload:
    return Workload(
        op_type="movement",
        inputs=tuple(inputs),
        scalars=scalars,
        operations=operations,
        output=output,
    )


def one(
    given: tuple[int, ...], result: tuple[int, ...], op_type: str, **attributes: object
) -> Workload:
    move = operation(op_type, "x0", **attributes)  # type: ignore[arg-type]
    return make([plain(*given)], plain(*result), move)


def _reorder(op_type: str, source: str, result: str, **attributes: int) -> Operation:
    return operation(op_type, source, result, domain=NCHWC_DOMAIN, **attributes)


def typed(workload: Workload, dtype: str) -> Workload:
    """Return the workload on tensors of another type."""
    return replace(
        workload,
        inputs=tuple(replace(spec, dtype=dtype) for spec in workload.inputs),
        output=replace(workload.output, dtype=dtype),
    )


class TestMovement(KernelFamilyTests):
    family_name = "movement"
    cases: Mapping[str, Workload] = {
        "bytes turned": typed(
            one((3, 17, 2, 20), (3, 2, 20, 17), "Transpose", perm=(0, 2, 3, 1)), "uint8"
        ),
        "halves in pieces": typed(
            make(
                [plain(2, 3, 33), plain(2, 9, 33)],
                plain(2, 12, 33),
                operation("Concat", "x0 x1", axis=1),
            ),
            "float16",
        ),
        "turned rows": one((3, 17, 2, 20), (3, 2, 20, 17), "Transpose", perm=(0, 2, 3, 1)),
        "pixel shuffle of 3": one(
            (1, 9, 5, 19), (1, 1, 15, 57), "DepthToSpace", blocksize=3, mode="CRD"
        ),
        "part of a split, turned, scaled": make(
            [plain(4, 9, 3, 2, 20)],
            plain(4, 2, 20, 9),
            operation("Slice", "x0", "t0", starts=(1,), ends=(2,), axes=(2,)),
            operation("Transpose", "t0", "t1", perm=(2, 0, 3, 1, 4)),
            operation("Reshape", "t1", "t2", shape=(4, 2, 9, 20)),
            operation("Transpose", "t2", "t3", perm=(0, 1, 3, 2)),
            operation("Mul", "t3 s0", "t4"),
            scalars=(0.125,),
        ),
        "repeated pixels, chain": make(
            [plain(1, 3, 9, 20), plain(3, 1, 1), plain(1, 3, 18, 40)],
            plain(1, 3, 18, 40),
            operation("Resize", "x0 - -", "t0", mode="nearest", scales=(1.0, 1.0, 2.0, 2.0)),
            operation("PRelu", "t0 x1", "t1"),
            operation("Add", "t1 x2", "t2"),
        ),
        "mirrored border": one(
            (1, 3, 7, 40), (1, 3, 12, 45), "Pad", pads=(0, 0, 2, 3, 0, 0, 3, 2), mode="reflect"
        ),
        "three pieces, chain": make(
            [plain(2, 3, 5, 7), plain(2, 7, 5, 7), plain(2, 1, 5, 7)],
            plain(2, 11, 5, 7),
            operation("Concat", "x0 x1 x2", "t0", axis=1),
            operation("Relu", "t0", "t1"),
        ),
    }

    @classmethod
    def all_cases(cls) -> Mapping[str, Workload]:
        if not block_size():
            return cls.cases
        b = block_size()
        half = b + b // 2
        pieces = make(
            [blocked(1, 2 * b, 3, 7), blocked(1, 2 * b, 3, 7)],
            blocked(1, 3 * b, 3, 7),
            _reorder("ReorderOutput", "x0", "t0", channels=half),
            _reorder("ReorderOutput", "x1", "t1", channels=half),
            operation("Concat", "t0 t1", "t2", axis=1),
            _reorder("ReorderInput", "t2", "t3"),
        )
        padded = make(
            [plain(1, b // 2, 6, 3)],
            blocked(1, b, 3, 6),
            operation("Transpose", "x0", "t0", perm=(0, 1, 3, 2)),
            _reorder("ReorderInput", "t0", "t1"),
        )
        cropped = make(
            [blocked(1, 2 * b, 3, 7)],
            plain(1, 3, half - 1, 7),
            _reorder("ReorderOutput", "x0", "t0", channels=half - 1),
            operation("Transpose", "t0", "t1", perm=(0, 2, 1, 3)),
        )
        return {
            **cls.cases,
            "blocked pieces": pieces,
            "padded channels": padded,
            "cropped channels": cropped,
        }


SINGLE = {
    "three dimensions turned": one((5, 6, 7), (7, 6, 5), "Transpose"),
    "two dimensions": one((33, 18), (18, 33), "Transpose", perm=(1, 0)),
    "six dimensions": one(
        (2, 3, 2, 4, 2, 5), (2, 2, 2, 3, 4, 5), "Transpose", perm=(0, 2, 4, 1, 3, 5)
    ),
    "depth to space": one((2, 12, 3, 5), (2, 3, 6, 10), "DepthToSpace", blocksize=2),
    "space to depth": one((1, 3, 6, 10), (1, 12, 3, 5), "SpaceToDepth", blocksize=2),
    "backwards": one(
        (4, 20), (2, 7), "Slice", starts=(-1, 19), ends=(-9, -21), axes=(0, 1), steps=(-2, -3)
    ),
    "a corner": one((5, 20), (2, 3), "Slice", starts=(-2, 1), ends=(99, 4)),
    "cropped and padded": one((4, 9), (6, 7), "Pad", pads=(2, -1, 0, -1)),
    "edges": one((2, 3, 5), (2, 5, 9), "Pad", pads=(1, 3, 1, 1), axes=(-2, 2), mode="edge"),
    "round the corner": one((3, 8), (6, 13), "Pad", pads=(1, 2, 2, 3), mode="wrap"),
    "tiles": one((1, 3, 4), (2, 3, 12), "Tile", repeats=(2, 1, 3)),
    "expanded": one((3, 1, 4), (2, 3, 5, 4), "Expand", shape=(2, 1, 5, 1)),
    "one of three": one((4, 3, 5), (4, 5), "Gather", axis=1, indices=-1),
    "every other": one((9, 4), (3, 4), "Gather", axis=0, indices=(7, 5, 3)),
    "voxels": one(
        (1, 2, 3, 4, 5),
        (1, 2, 9, 8, 5),
        "Resize",
        mode="nearest",
        sizes=(1, 2, 9, 8, 5),
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    ),
}


@pytest.mark.parametrize("label", few_every_day(SINGLE, 3))
def test_move_is_exact_with_every_payload_and_sign(label: str) -> None:
    workload = SINGLE[label]
    bits = np.random.default_rng(SEED).integers(0, 1 << 32, workload.inputs[0].shape, np.uint32)
    _assert_moved(workload, bits.view(np.float32))


_NARROW = [name for name in SINGLE if SINGLE[name].operations[0].op_type != "Pad"]


@pytest.mark.parametrize(
    ("label", "dtype"),
    few_every_day(
        [
            *((name, "float16") for name in _NARROW),
            *(("two dimensions", dtype) for dtype in ("int8", "int16", "uint16")),
            *((name, "uint8") for name in ("depth to space", "backwards", "voxels")),
        ],
        3,
    ),
)
def test_move_of_narrow_elements_keeps_every_bit(label: str, dtype: str) -> None:
    """ONNX Runtime moves some as float32, and a cast changes what is in a NaN."""
    workload = typed(SINGLE[label], dtype)
    x = special_inputs(workload, SEED)["x0"]
    actual = _moved(workload, x)
    wide = run_baseline(SINGLE[label], {"x0": x.astype(np.float32)}).result
    assert np.array_equal(actual.astype(np.float32), wide, equal_nan=True)
    places = np.arange(x.size, dtype=np.float32).reshape(x.shape)
    taken = run_baseline(SINGLE[label], {"x0": places}).result.astype(np.int64)
    bits = f"u{actual.itemsize}"
    assert np.array_equal(actual.view(bits), x.view(bits).reshape(-1)[taken])


def _moved(workload: Workload, x: Array) -> Array:
    assert get_family("movement").supports(workload).reason == ""
    return CompiledKernel(workload, guessed_schedules(workload)[0]).run({"x0": x})


def _assert_moved(workload: Workload, x: Array) -> None:
    expected = run_baseline(workload, {"x0": x}).result
    assert np.array_equal(_moved(workload, x).view(np.uint32), expected.view(np.uint32))


@pytest.mark.parametrize(
    ("workload", "reason"),
    [
        (typed(SINGLE["edges"], "uint8"), "Pad of uint8"),
        (
            typed(
                make(
                    [plain(4, 9)],
                    plain(9, 4),
                    operation("Transpose", "x0", "t0"),
                    operation("Relu", "t0", "t1"),
                ),
                "uint8",
            ),
            "Relu of uint8, kernels compute in float32",
        ),
        (
            replace(SINGLE["two dimensions"], output=plain(18, 33, dtype="int8")),
            "int8 beside another type",
        ),
        (typed(SINGLE["two dimensions"], "int64"), "a tensor of int64"),
    ],
)
def test_narrow_elements_are_moved_and_nothing_else(workload: Workload, reason: str) -> None:
    assert get_family("movement").supports(workload).reason.startswith(reason)


def test_padding_is_the_constant_of_the_model() -> None:
    workload = make(
        [plain(3, 5)], plain(5, 6), operation("Pad", "x0 - s0", pads=(1, 0, 1, 1)), scalars=(-2.5,)
    )
    feed = random_inputs(workload, SEED)
    actual = CompiledKernel(workload).run(feed)
    assert_close(workload, actual, run_baseline(workload, feed).result, "padded")
    assert actual[0, 0] == actual[4, 5] == -2.5


def test_windows_rolled_and_cut_out_are_one_kernel() -> None:
    """Swin's shifted windows: eight operators that compute nothing."""
    workload = make(
        [plain(1, 8, 12, 20)],
        plain(1, 2, 3, 4, 4, 20),
        operation("Slice", "x0", "t0", starts=(2,), ends=(8,), axes=(1,)),
        operation("Slice", "x0", "t1", starts=(0,), ends=(2,), axes=(1,)),
        operation("Concat", "t0 t1", "t2", axis=1),
        operation("Slice", "t2", "t3", starts=(2,), ends=(12,), axes=(2,)),
        operation("Slice", "t2", "t4", starts=(0,), ends=(2,), axes=(2,)),
        operation("Concat", "t3 t4", "t5", axis=2),
        operation("Reshape", "t5", "t6", shape=(1, 2, 4, 3, 4, 20)),
        operation("Transpose", "t6", "t7", perm=(0, 1, 3, 2, 4, 5)),
    )
    feed = random_inputs(workload, SEED)
    x = np.roll(feed["x0"], (-2, -2), (1, 2)).reshape(1, 2, 4, 3, 4, 20)
    assert np.array_equal(CompiledKernel(workload).run(feed), x.transpose(0, 1, 3, 2, 4, 5))


@pytest.mark.parametrize(
    ("workload", "reason"),
    [
        (make([plain(4, 6)], plain(4, 6), operation("Relu", "x0")), "nothing is moved"),
        (one((4, 6), (24,), "Reshape", shape=(24,)), "only the shape changes"),
        (
            make(
                [plain(4, 6)],
                plain(6, 4),
                operation("Exp", "x0"),
                operation("Transpose", "t0", "t1", perm=(1, 0)),
            ),
            "Transpose of what is computed",
        ),
        (
            one((1, 1, 4, 4), (1, 1, 6, 6), "Resize", mode="nearest", sizes=(1, 1, 6, 6)),
            "resizes 4 to 6, no whole factor",
        ),
        (
            one(
                (1, 1, 3, 4),
                (1, 1, 3, 8),
                "Resize",
                mode="nearest",
                coordinate_transformation_mode="asymmetric",
                nearest_mode="floor",
                scales=(1.0, 1.0, 1.3, 2.0),  # rows 0, 0 and 1 of three
            ),
            "elements are not repeated equally often",
        ),
        (one((4, 6), (6, 4), "Transpose", perm=(1, 1)), "Transpose cannot broadcast (4, 6)"),
        (one((4, 6), (4, 3), "Slice", starts=(0,), ends=(3,), axes=(7,)), "Slice cannot broadcast"),
        (one((4, 6), (3, 6), "Gather", indices=(0, 1, 3)), "gathers elements in no regular order"),
        (
            make(
                [plain(2, 64), plain(4, 64)],
                plain(6, 64),
                operation("Concat", "x0 x1", "t0", axis=0),
                operation("Gather", "t0", "t1", indices=(5, 4, 3, 2, 1, 0)),
            ),
            "a reshape does not keep to the borders",
        ),
        (
            make(
                [plain(3, 64)],
                plain(6, 64),
                operation("Tile", "x0", "t0", repeats=(2, 1)),
                operation("Slice", "t0", "t1", starts=(5,), ends=(-7,), axes=(0,), steps=(-1,)),
            ),
            "a reshape does not keep to the borders",
        ),
        (
            make([plain(4, 2), plain(4, 9)], plain(4, 11), operation("Concat", "x0 x1", axis=1)),
            "pieces of 2 elements in a row",
        ),
        (
            one((2, 3), (4, 3), "Pad", version=2, pads=(2, 0, 0, 0), value=1.5),
            "the padding is no finite constant, or an attribute",
        ),
        (one((2, 3), (4, 3), "Pad", pads=(2, 0, 0, 0), mode="reflect"), "reflect padding of 2"),
    ],
)
def test_what_no_kernel_moves_says_why(workload: Workload, reason: str) -> None:
    assert get_family("movement").supports(workload).reason.startswith(reason)
