"""The family of normalisations along the last axes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from aoe.kernels.registry import get_family
from aoe.operators import MICROSOFT_DOMAIN
from aoe.testing.kernels import CompiledKernel, KernelFamilyTests, operation, plain
from aoe.workload import AttributeValue, Operation, TensorSpec, Workload


def make(
    shape: tuple[int, ...],
    *after: Operation,
    size: int | None = None,
    others: tuple[TensorSpec, ...] = (),
    **attributes: AttributeValue,
) -> Workload:
    axis = attributes.get("axis", -1)
    assert isinstance(axis, int)
    parameter = plain(*shape[axis:], constant=True)
    return Workload(
        op_type="layer_normalization",
        inputs=(plain(*shape), parameter, parameter, *others),
        operations=(operation("LayerNormalization", "x0 x1 x2", "t0", **attributes), *after),
        output=plain(*shape),
    )


def make_skip(op_type: str, parameters: int, *after: Operation) -> Workload:
    shape, row = (2, 5, 100), plain(100, constant=True)
    references = " ".join(f"x{number}" for number in range(2 + parameters))
    anchor = operation(op_type, references, "t0", domain=MICROSOFT_DOMAIN, epsilon=1e-6)
    return Workload(
        op_type="layer_normalization",
        inputs=(plain(*shape), plain(*shape), *(row,) * parameters),
        operations=(anchor, *after),
        output=plain(*shape),
    )


def root_mean_square(op_type: str, version: int) -> Workload:
    return Workload(
        op_type="layer_normalization",
        inputs=(plain(3, 7, 60), plain(60, constant=True)),
        operations=(operation(op_type, "x0 x1", "t0", version=version, axis=-1, epsilon=1e-6),),
        output=plain(3, 7, 60),
    )


def computed() -> Workload:
    """Return a residual sum, its normalisation, and a chain that reads both."""
    shape, row = (1, 33, 96), plain(96, constant=True)
    return Workload(
        op_type="layer_normalization",
        inputs=(plain(*shape), row, plain(*shape), row, row),
        operations=(
            operation("Add", "x0 x1", "t0"),
            operation("Add", "t0 x2", "t1"),
            operation("LayerNormalization", "t1 x3 x4", "t2"),
            operation("Sigmoid", "t2", "t3"),
            operation("Mul", "t1 t3", "t4"),
        ),
        output=plain(*shape),
    )


class TestLayerNormalization(KernelFamilyTests):
    family_name = "layer_normalization"
    cases: Mapping[str, Workload] = {
        "rows of a network": make((1, 37, 384)),
        "odd rows, chain behind": make(
            (3, 5, 197),
            operation("Gelu", "t0", "t1"),
            operation("Add", "t1 x3", "t2"),
            others=(plain(3, 5, 197),),
        ),
        "two axes, one row": make((6, 17), axis=0, epsilon=1e-3),
        "short rows": make((4, 3, 7)),
        "computed rows": computed(),
        "sum of two": make_skip("SkipLayerNormalization", 2),
        "sum of two and a bias": make_skip(
            "SkipLayerNormalization", 3, operation("Relu", "t0", "t1")
        ),
        "root mean square": root_mean_square("SimplifiedLayerNormalization", 1),
        "root mean square, of ONNX": root_mean_square("RMSNormalization", 23),
        "root mean square of a sum": make_skip("SkipSimplifiedLayerNormalization", 2),
    }


def test_large_mean_costs_no_digits() -> None:
    workload = make((4, 1000), epsilon=1e-12)
    rng = np.random.default_rng(1)
    x = (rng.standard_normal((4, 1000)) + 1e4).astype(np.float32)
    one, none = np.ones(1000, np.float32), np.zeros(1000, np.float32)
    wide = x.astype(np.float64)
    centred = wide - wide.mean(axis=1, keepdims=True)
    expected = centred / np.sqrt((centred**2).mean(axis=1, keepdims=True))
    made = CompiledKernel(workload).run({"x0": x, "x1": one, "x2": none})
    assert np.max(np.abs(made - expected)) < 6e-4  # half an ulp of the mean is 5e-4


def test_row_of_equal_elements_is_the_bias() -> None:
    workload = make((2, 50))
    x, scale = np.full((2, 50), 0.5, np.float32), np.full(50, 7, np.float32)
    bias = np.arange(50, dtype=np.float32)
    made = CompiledKernel(workload).run({"x0": x, "x1": scale, "x2": bias})
    np.testing.assert_array_equal(made, np.stack([bias, bias]))


def _named(op_type: str, *inputs: TensorSpec, **attributes: AttributeValue) -> Workload:
    references = " ".join(f"x{number}" for number in range(len(inputs)))
    return Workload(
        op_type="layer_normalization",
        inputs=inputs,
        operations=(operation(op_type, references, "t0", **attributes),),
        output=inputs[0],
    )


@pytest.mark.parametrize(
    ("workload", "reason"),
    [
        (_named("Relu", plain(2, 3)), "no operator of this family"),
        (
            _named("LayerNormalization", plain(2, 3), plain(3), plain(3), axis=2),
            "axis 2 of a tensor of rank 2",
        ),
        (
            _named("LayerNormalization", plain(2, 1), plain(1), plain(1)),
            "LayerNormalization of a single element",
        ),
        (
            _named("LayerNormalization", plain(2, 3), plain(3), plain(3), stash_type=16),
            "LayerNormalization with statistics of another type",
        ),
        (
            replace(
                computed(),
                inputs=(plain(1, 33, 96), plain(96), plain(1, 33, 96), plain(33, 1), plain(96)),
                operations=(
                    *computed().operations[:2],
                    operation("LayerNormalization", "t1 x3 x4", "t2", axis=1),
                    *computed().operations[3:],
                ),
            ),
            "LayerNormalization over axes that broadcasting tells apart",
        ),
    ],
)
def test_refusal_says_why(workload: Workload, reason: str) -> None:
    assert get_family("layer_normalization").supports(workload).reason == reason
