"""Transformers as exporters write them, and random ones."""

from __future__ import annotations

import math
import random

import numpy as np
import onnx

from support.contracts.small_models import SmallModel

_MASKED = -1e4
_MASK = 16
"""Rows and columns of the causal mask of which each block takes what it needs."""


def encoder(
    *,
    batch: int = 1,
    rows: int = 6,
    heads: int = 2,
    size: int = 4,
    spelled: bool = False,
    divisor: float | None = None,
    constant_weights: bool = True,
    seed: int = 7,
) -> onnx.ModelProto:
    """Return attention of a BERT without a mask, its residual and its feed-forward part.

    Args:
        batch: Of (batch, rows, heads * size) numbers, normalised first.
        rows: See `batch`.
        heads: See `batch`.
        size: See `batch`.
        spelled: True for normalisations of single operators.
        divisor: Of the scores, None for the root of `size`.
        constant_weights: False for projections by an input.
        seed: Of the weights.
    """
    model = SmallModel(seed=seed)
    width = heads * size
    x = _normalized(model, model.input(batch, rows, width), width, spelled=spelled)
    weight = model.weight(width, width) if constant_weights else model.input(width, width)
    turns = ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
    parts = []
    for number, turn in enumerate(turns):
        own = weight if number == 0 else model.weight(width, width)
        made = model.op("Add", model.op("MatMul", x, own), model.weight(width))
        apart = model.op("Reshape", made, model.constant([batch, rows, heads, size]))
        parts.append(model.op("Transpose", apart, perm=turn))
    query, key, value = parts
    root = model.constant(math.sqrt(size) if divisor is None else divisor)
    scores = model.op("Div", model.op("MatMul", query, key), root)
    made = model.op("MatMul", model.op("Softmax", scores, axis=-1), value)
    made = model.op("Transpose", made, perm=[0, 2, 1, 3])
    made = model.op("Reshape", made, model.constant([batch, rows, width]))
    made = model.op(
        "Add", model.op("MatMul", made, model.weight(width, width)), model.weight(width)
    )
    made = _normalized(model, model.op("Add", made, x), width, spelled=spelled)
    return model.model(_fed_forward(model, made, width))


def decoder(
    *, batch: int = 1, rows: int = 6, heads: int = 2, size: int = 4, seed: int = 7
) -> onnx.ModelProto:
    """Return a block of GPT-2: one projection for all, and a causal mask cut from a larger one.

    Args:
        batch: Of (batch, rows, heads * size) numbers.
        rows: See `batch`.
        heads: See `batch`.
        size: See `batch`.
        seed: Of the weights.
    """
    model = SmallModel(seed=seed)
    width = heads * size
    x = model.input(batch, rows, width)
    flat = model.op("Reshape", _normalized(model, x, width), model.constant([-1, width]))
    whole = model.op("Gemm", flat, model.weight(width, 3 * width), model.weight(3 * width))
    whole = model.op("Reshape", whole, model.constant([batch, rows, 3 * width]))
    thirds = model.ops("Split", whole, model.constant([width] * 3), outputs=3, axis=2)
    turns = ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
    query, key, value = (
        model.op(
            "Transpose",
            model.op("Reshape", third, model.constant([batch, rows, heads, size])),
            perm=turn,
        )
        for third, turn in zip(thirds, turns, strict=True)
    )
    scores = model.op("Div", model.op("MatMul", query, key), model.constant(math.sqrt(size)))
    masked = model.op("Where", _causal(model, scores), scores, model.constant(_MASKED))
    made = model.op("MatMul", model.op("Softmax", masked, axis=-1), value)
    made = model.op("Transpose", made, perm=[0, 2, 1, 3])
    made = model.op("Reshape", made, model.constant([batch, rows, width]))
    made = model.op("Reshape", made, model.constant([-1, width]))
    made = model.op("Gemm", made, model.weight(width, width), model.weight(width))
    made = model.op("Reshape", made, model.constant([batch, rows, width]))
    total = model.op("Add", x, made)
    inner = _fed_forward(model, _normalized(model, total, width), width)
    return model.model(model.op("Add", total, inner))


def random_transformer(seed: int) -> onnx.ModelProto:
    """Return an encoder or a decoder of drawn extents."""
    rng = random.Random(seed)
    extents = {
        "batch": rng.choice([1, 1, 2]),
        "rows": rng.randint(2, _MASK),
        "heads": rng.choice([1, 2, 3, 4]),
        "size": rng.choice([4, 8, 16]),
    }
    if rng.random() < 0.4:
        return decoder(**extents, seed=seed)
    return encoder(**extents, spelled=rng.random() < 0.5, seed=seed)


def _causal(model: SmallModel, scores: str) -> str:
    """Add what cuts the mask to the extents of the scores, as PyTorch traces it."""
    zero, one = model.constant([0]), model.constant([1])
    extents = model.op("Shape", scores)
    ends = [([-1], [2**31]), ([-2], [-1])]
    columns, rows = (
        model.op(
            "Squeeze",
            model.op("Slice", extents, model.constant(first), model.constant(last), zero),
            zero,
        )
        for first, last in ends
    )
    begin = model.op("Unsqueeze", model.op("Sub", columns, rows), zero)
    end = model.op("Unsqueeze", columns, zero)
    mask = model.constant(np.tril(np.ones((1, 1, _MASK, _MASK), np.bool_)))
    kept = model.op("Slice", mask, begin, end, model.constant([2]), one)
    return model.op("Slice", kept, zero, end, model.constant([3]), one)


def _normalized(model: SmallModel, x: str, width: int, *, spelled: bool = False) -> str:
    scale, bias = model.positive(width), model.weight(width)
    if not spelled:
        return model.op("LayerNormalization", x, scale, bias, axis=-1)
    distance = model.op("Sub", x, model.op("ReduceMean", x, axes=[-1]))
    variance = model.op("ReduceMean", model.op("Pow", distance, model.constant(2.0)), axes=[-1])
    root = model.op("Sqrt", model.op("Add", variance, model.constant(1e-5)))
    return model.op("Add", model.op("Mul", model.op("Div", distance, root), scale), bias)


def _fed_forward(model: SmallModel, x: str, width: int) -> str:
    """Add two products with GELU between them, spelled out."""
    made = model.op(
        "Add", model.op("MatMul", x, model.weight(width, 2 * width)), model.weight(2 * width)
    )
    erf = model.op("Erf", model.op("Div", made, model.constant(math.sqrt(2))))
    made = model.op("Mul", made, model.op("Add", erf, model.constant(1.0)))
    made = model.op("Mul", made, model.constant(0.5))
    return model.op("MatMul", made, model.weight(2 * width, width))
