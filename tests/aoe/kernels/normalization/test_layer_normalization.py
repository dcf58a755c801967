"""The family of normalisations along the last axes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from support.contracts.kernels import (
    CompiledKernel,
    KernelFamilyTests,
    block_size,
    blocked,
    operation,
    plain,
)

from aoe.kernels.family import KernelTarget
from aoe.kernels.registry import get_family
from aoe.operators import MICROSOFT_DOMAIN
from aoe.workload import NCHWC_DOMAIN, AttributeValue, Operation, TensorSpec, Workload


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


def turned(
    shape: tuple[int, ...],
    *after: Operation,
    others: tuple[TensorSpec, ...] = (),
    perm: tuple[int, ...] = (),
    op_type: str = "LayerNormalization",
) -> Workload:
    """Return a Transpose that puts channels last, their normalisation as `t1`, and a chain."""
    rank, channels = len(shape), plain(shape[1], constant=True)
    references, version = ("t0 x1 x2", 17) if op_type == "LayerNormalization" else ("t0 x1", 23)
    return Workload(
        op_type="layer_normalization",
        inputs=(plain(*shape), *(channels,) * (len(references.split()) - 1), *others),
        operations=(
            operation("Transpose", "x0", "t0", perm=perm or (0, *range(2, rank), 1)),
            operation(op_type, references, "t1", version=version, axis=-1, epsilon=1e-6),
            *after,
        ),
        output=plain(shape[0], *shape[2:], shape[1]),
    )


def turned_back(shape: tuple[int, ...], op_type: str = "LayerNormalization") -> Workload:
    """Return the same with a Transpose behind it that puts the channels back."""
    rank = len(shape)
    back = operation("Transpose", "t1", "t2", perm=(0, rank - 1, *range(1, rank - 1)))
    return replace(turned(shape, back, op_type=op_type), output=plain(*shape))


def in_blocks(shape: tuple[int, ...], channels: int, *after: Operation) -> Workload:
    """Return blocks of channels that become rows, their normalisation as `t1`, and a chain."""
    made = plain(shape[0], *shape[2:], channels)
    parameter = plain(channels, constant=True)
    reorder = operation(
        "ReorderOutput", "x0", "t0", domain=NCHWC_DOMAIN, channels=channels, channels_last=1
    )
    return Workload(
        op_type="layer_normalization",
        inputs=(blocked(*shape), parameter, parameter, *((made,) if after else ())),
        operations=(reorder, operation("LayerNormalization", "t0 x1 x2", "t1"), *after),
        output=made,
    )


def _named(op_type: str, *inputs: TensorSpec, **attributes: AttributeValue) -> Workload:
    references = " ".join(f"x{number}" for number in range(len(inputs)))
    return Workload(
        op_type="layer_normalization",
        inputs=inputs,
        operations=(operation(op_type, references, "t0", **attributes),),
        output=inputs[0],
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
        "planes become rows, chain behind": turned(
            (2, 20, 5, 7),
            operation("Gelu", "t1", "t2"),
            operation("Add", "t2 x3", "t3"),
            others=(plain(2, 5, 7, 20),),
        ),
        "a line becomes rows": turned((1, 32, 41)),
        "pixels told apart": turned(
            (2, 8, 6, 9), operation("Add", "t1 x3", "t2"), others=(plain(9, 1),)
        ),
        "planes stay planes": turned_back((2, 17, 5, 7)),
        "lines stay lines": turned_back((3, 6, 11)),
        "planes of one image": turned_back((1, 24, 9, 9), "RMSNormalization"),
        "planes of one pixel": turned_back((5, 24, 1, 1)),
    }
    refused = (
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
        (
            turned((2, 12, 12, 12), perm=(0, 3, 1, 2)),
            "Transpose that does not put channels last",
        ),
        (turned((2, 6, 4, 4)), "6 planes are not turned in squares"),
        (turned((1, 8, 2, 3)), "8 planes are not turned in squares"),
        (
            turned((1, 8, 4, 4), operation("Add", "t1 t0", "t2")),
            "what Transpose makes is read again",
        ),
        (
            replace(
                turned((2, 8, 3, 3), operation("Transpose", "t1", "t2", perm=(0, 2, 1, 3))),
                output=plain(2, 3, 3, 8),
            ),
            "Transpose of what is normalised that does not put channels back",
        ),
    )

    @classmethod
    def all_cases(cls) -> Mapping[str, Workload]:
        if not block_size():
            return cls.cases
        chain = (operation("Sigmoid", "t1", "t2"), operation("Mul", "t2 x3", "t3"))
        return {
            **cls.cases,
            "blocks become rows": in_blocks((2, 3 * block_size(), 5, 7), 3 * block_size(), *chain),
            "blocks with padding": in_blocks((1, 2 * block_size(), 4, 6), 2 * block_size() - 4),
            "blocks of one pixel": in_blocks((4, 2 * block_size(), 1, 1), 2 * block_size()),
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


def test_squares_of_half_the_lanes_are_turned_first() -> None:
    target = KernelTarget(vector_lanes=16, threads=2)
    guesses = get_family("layer_normalization").space(turned((1, 192, 28, 28)), target)
    assert [guess["side"] for guess in guesses.first_guesses[:2]] == [8, 8]
