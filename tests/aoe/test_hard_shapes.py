"""Every family over shapes that hurt: the first kernel of each computes what ONNX Runtime does.

Extents are prime or 1, channels 1, 3, 17 and 60, strides larger than filters, padding odd or larger
than what it pads. Inputs lie at addresses that are multiples of four bytes only, they and the
result between pages nobody may touch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from support.engine.first_guesses import FirstGuesses, small_net
from support.tiers import chosen_every_day

from aoe.ort.guarded import GuardedRuns
from aoe.ort.sessions import random_feed

_OPSET = 17
_CHAIN = ("Softplus", "Tanh")
Shape = tuple[int, ...]
Make = Callable[[], onnx.ModelProto]


def _normal(*shape: int) -> Any:
    rng = np.random.default_rng([*shape])
    return (rng.standard_normal(shape) / np.sqrt(max(1, np.prod(shape[1:])))).astype(np.float32)


def _net(
    op_type: str,
    shape: Shape,
    *weights: Any,
    chain: Sequence[str] = (),
    before: Sequence[str] = (),
    opset: int = _OPSET,
    **attributes: Any,
) -> Make:
    """Return what makes a model of one operator on `x`, constants behind it, in a chain."""

    def make() -> onnx.ModelProto:
        names = [f"w{number}" for number in range(len(weights))]
        made = [*before, op_type, *chain]
        values = ["x", *(f"t{number}" for number in range(len(made) - 1)), "y"]
        nodes = []
        for number, name in enumerate(made):
            is_it = number == len(before)
            inputs = [values[number], *(names if is_it else ())]
            given = attributes if is_it else {}
            nodes.append(helper.make_node(name, inputs, [values[number + 1]], name, **given))
        return small_net(nodes, {"x": shape}, dict(zip(names, weights, strict=True)), opset=opset)

    return make


def _conv(image: Shape, filters: Shape, **attributes: Any) -> Make:
    return _net("Conv", image, _normal(*filters), chain=_CHAIN, **attributes)


def _transposed(image: Shape, filters: Shape, **attributes: Any) -> Make:
    bias = _normal(filters[1] * attributes.get("group", 1))
    return _net("ConvTranspose", image, _normal(*filters), bias, chain=_CHAIN, **attributes)


def _pads(*around: int) -> list[int]:
    return list(around)


_CONVOLUTIONS: Mapping[str, Make] = {
    "1 to 17 channels": _conv((1, 1, 7, 13), (17, 1, 3, 3), pads=_pads(1, 1, 1, 1)),
    "3 to 60 channels": _conv((1, 3, 13, 7), (60, 3, 3, 3), pads=_pads(1, 1, 1, 1)),
    "17 to 3 channels": _conv((1, 17, 11, 5), (3, 17, 3, 3), pads=_pads(1, 1, 1, 1)),
    "60 to 1 channels": _conv((1, 60, 5, 31), (1, 60, 1, 1)),
    "60 to 60 channels": _conv((1, 60, 17, 17), (60, 60, 3, 3), pads=_pads(1, 1, 1, 1)),
    "one pixel": _conv((2, 17, 1, 1), (17, 17, 3, 3), pads=_pads(1, 1, 1, 1)),
    "one row": _conv((1, 3, 1, 19), (17, 3, 3, 3), pads=_pads(1, 1, 1, 1)),
    "stride 2 over 1x1": _conv((1, 60, 13, 7), (17, 60, 1, 1), strides=[2, 2]),
    "stride 3 over 2x2": _conv((1, 3, 17, 11), (17, 3, 2, 2), strides=[3, 3]),
    "stride 5 over 3x3": _conv((1, 17, 23, 19), (3, 17, 3, 3), strides=[5, 5]),
    "strides that differ": _conv((1, 17, 23, 19), (3, 17, 3, 3), strides=[4, 1]),
    "odd padding": _conv((1, 3, 7, 11), (17, 3, 3, 5), pads=_pads(2, 0, 1, 3)),
    "padding larger than the filter": _conv((1, 3, 5, 7), (17, 3, 3, 3), pads=_pads(4, 5, 3, 4)),
    "17 groups": _conv((1, 17, 7, 13), (17, 1, 3, 3), pads=_pads(1, 1, 1, 1), group=17),
    "60 channels in 4 groups": _conv(
        (1, 60, 7, 5), (60, 15, 3, 3), pads=_pads(0, 1, 1, 0), group=4
    ),
    "3 groups to 6": _conv((1, 3, 7, 13), (6, 1, 3, 3), pads=_pads(1, 1, 1, 1), group=3),
    "3x1": _conv((1, 17, 29, 19), (17, 17, 3, 1), pads=_pads(1, 0, 1, 0)),
    "1x3": _conv((1, 17, 11, 29), (17, 17, 1, 3), pads=_pads(0, 1, 0, 1)),
    "dilated": _conv((1, 17, 23, 13), (3, 17, 3, 3), pads=_pads(3, 2, 3, 2), dilations=[3, 2]),
    "1-D, one channel": _conv((1, 1, 101), (17, 1, 3), pads=_pads(1, 1)),
    "1-D, stride 3 over 1": _conv((3, 17, 31), (60, 17, 1), strides=[3]),
    "3-D": _conv((1, 3, 19, 5, 7), (17, 3, 3, 3, 3), pads=_pads(1, 1, 1, 1, 1, 1)),
    "3-D, stride 2 over 1": _conv((1, 17, 3, 5, 7), (3, 17, 1, 1, 1), strides=[2, 2, 2]),
    "3-D, flat filter": _conv((1, 3, 3, 17, 13), (17, 3, 1, 3, 3), pads=_pads(0, 1, 1, 0, 1, 1)),
}
_TRANSPOSED: Mapping[str, Make] = {
    "filter as large as the stride, 1-D": _transposed((1, 17, 13), (17, 3, 3), strides=[3]),
    "filter as large as the stride": _transposed((1, 3, 7, 5), (3, 17, 2, 2), strides=[2, 2]),
    "filter as large as the stride, 3-D": _transposed(
        (1, 17, 3, 2, 5), (17, 3, 2, 2, 2), strides=[2, 2, 2]
    ),
    "stride 3 over 1": _transposed((1, 3, 13), (3, 17, 1), strides=[3]),
    "stride 3 over 2x2": _transposed((1, 17, 5, 7), (17, 3, 2, 2), strides=[3, 3]),
    "one pixel": _transposed((1, 60, 1, 1), (60, 17, 5, 3), strides=[2, 2]),
    "in groups": _transposed((1, 6, 7, 5), (6, 17, 3, 3), strides=[2, 2], group=3),
    "padding": _transposed(
        (1, 1, 11, 7), (1, 3, 4, 4), strides=[2, 2], pads=_pads(1, 0, 2, 1), output_padding=[1, 0]
    ),
}
_PRODUCTS: Mapping[str, Make] = {
    "depth 1": _net("MatMul", (17, 1), _normal(1, 60)),
    "one column": _net("MatMul", (13, 60), _normal(60, 1)),
    "one row": _net("MatMul", (1, 60), _normal(60, 17)),
    "one of all": _net("MatMul", (1, 1), _normal(1, 1)),
    "batches": _net("MatMul", (3, 1, 7, 17), _normal(17, 31), chain=_CHAIN),
    "factors and summand": _net(
        "Gemm",
        (17, 7),
        _normal(17, 3).T.copy(),
        _normal(7, 1),
        transA=1,
        transB=1,
        alpha=0.5,
        beta=2.0,
    ),
}
_OVER_CHANNELS: Mapping[str, Make] = {
    f"{op_type} of {channels} channels": _net(
        op_type, (2, channels, 7, 11), *weights(channels), **attributes
    )
    for channels in (1, 3, 17, 60)
    for op_type, weights, attributes in (
        ("InstanceNormalization", lambda c: (_normal(c), _normal(c)), {}),
        ("LRN", lambda c: (), {"size": 5}),
        ("Softmax", lambda c: (), {"axis": 1}),
        ("LogSoftmax", lambda c: (), {"axis": 1}),
        ("GlobalAveragePool", lambda c: (), {}),
        ("PRelu", lambda c: (np.abs(_normal(c, 1, 1)),), {}),
    )
}
_ROWS: Mapping[str, Make] = {
    f"{op_type} of rows of {columns}": _net(
        op_type, (3, 5, columns), *weights(columns), **attributes
    )
    for columns in (1, 3, 17, 60)
    for op_type, weights, attributes in (
        ("LayerNormalization", lambda n: (1 + _normal(n), _normal(n)), {"axis": -1}),
        ("Softmax", lambda n: (), {"axis": -1}),
        ("ReduceL2", lambda n: (), {"axes": [-1]}),
        ("ReduceLogSumExp", lambda n: (), {"axes": [0, 2]}),
        ("CumSum", lambda n: (np.array(2),), {"reverse": 1}),
    )
}
_WINDOWS: Mapping[str, Make] = {
    "stride 3 over 2x2": _net("MaxPool", (1, 17, 13, 11), kernel_shape=[2, 2], strides=[3, 3]),
    "stride 2 over 1x1": _net("AveragePool", (1, 3, 7, 5), kernel_shape=[1, 1], strides=[2, 2]),
    "a window larger than the image": _net(
        "AveragePool", (1, 17, 2, 3), kernel_shape=[5, 5], pads=_pads(2, 2, 2, 2)
    ),
    "1-D": _net("MaxPool", (1, 60, 31), kernel_shape=[3], pads=_pads(1, 0), strides=[2]),
    "3-D": _net("LpPool", (1, 3, 5, 7, 3), kernel_shape=[2, 3, 1], p=2),
}
_MOVES: Mapping[str, Make] = {
    "primes turned": _net("Transpose", (7, 13, 17), perm=[2, 0, 1]),
    "ones turned": _net("Transpose", (1, 17, 1, 13), perm=[3, 2, 1, 0], before=["Exp"]),
    "a slice backwards": _net(
        "Slice", (3, 17, 5), *(np.array([n]) for n in (15, 0, 1, -3)), chain=["Exp"]
    ),
    "padding by reflection": _net(
        "Pad", (1, 3, 5, 7), np.array([0, 0, 4, 1, 0, 0, 2, 6]), mode="reflect", chain=["Exp"]
    ),
    "tiles": _net("Tile", (1, 3, 1, 7), np.array([3, 1, 5, 2]), chain=["Exp"]),
    "expanded": _net("Expand", (17, 1, 1), np.array([3, 17, 1, 13]), chain=["Exp"]),
    "depth to space": _net("DepthToSpace", (1, 27, 1, 5), blocksize=3, chain=["Exp"]),
    "space to depth": _net("SpaceToDepth", (3, 1, 2, 14), blocksize=2, chain=["Exp"]),
    "resized by 3": _net(
        "Resize", (1, 17, 1, 5), _normal(0), np.array([1, 1, 3, 3], np.float32), mode="linear"
    ),
    "resized cubically": _net(
        "Resize",
        (1, 3, 7, 5),
        _normal(0),
        _normal(0),
        np.array([1, 3, 11, 13]),
        mode="cubic",
    ),
    "elements gathered": _net("GatherElements", (3, 17, 1), np.full((3, 5, 1), -1), axis=1),
    "elements scattered": _net(
        "ScatterElements", (17, 3), np.full((5, 3), -1), _normal(5, 3), axis=0, reduction="add"
    ),
    "a grid outside": _net(
        "GridSample", (1, 3, 1, 1), 9 * _normal(1, 3, 5, 2), mode="linear", opset=20
    ),
}
_CASES: Mapping[str, tuple[str, Make]] = {
    f"{family}: {label}": (family, make)
    for family, group in (
        ("convolution", _CONVOLUTIONS),
        ("plain_convolution", _TRANSPOSED),
        ("matmul", _PRODUCTS),
        ("", {**_OVER_CHANNELS, **_ROWS}),
        ("pooling", _WINDOWS),
        ("", _MOVES),
    )
    for label, make in group.items()
}

_LEFT = frozenset(
    {
        "convolution: 60 to 1 channels",
        "convolution: stride 2 over 1x1",
        "convolution: 17 groups",
        "convolution: 3 groups to 6",
        "matmul: one of all",
        *(
            f": {name} of rows of 1"
            for name in ("LayerNormalization", "Softmax", "ReduceL2", "CumSum")
        ),
    }
)
"""What no family computes, or not with its chain: there is nothing to gain."""


_EVERYDAY = (
    "convolution: padding larger than the filter",
    "plain_convolution: padding",
    "matmul: batches",
    ": CumSum of rows of 17",
    "pooling: a window larger than the image",
    ": a slice backwards",
)


@pytest.mark.parametrize("label", chosen_every_day(_CASES, _EVERYDAY))
def test_shape_that_hurts_is_computed_within_its_tensors(label: str, models: FirstGuesses) -> None:
    family, make = _CASES[label]
    kernels, before, after = models.sessions(make())
    assert any(family in name for name in kernels) is (label not in _LEFT), kernels
    feed = random_feed(before, 5)
    (expected,) = before.run(None, feed)
    if not kernels:
        return
    checks = GuardedRuns([feed], expected)
    for _ in range(2):
        np.testing.assert_allclose(checks.run(after, 0), expected, rtol=2e-3, atol=2e-5)


_EMPTY: Sequence[Make] = (
    _conv((0, 3, 7, 5), (17, 3, 3, 3)),
    _transposed((0, 3, 7), (3, 17, 2), strides=[2]),
    _net("MatMul", (0, 17), _normal(17, 3), chain=_CHAIN),
    _net("MatMul", (3, 0), np.zeros((0, 17), np.float32), chain=_CHAIN),
    _net("Softmax", (3, 0), axis=-1),
    _net("Softmax", (3, 0, 5), axis=0),
    _net("LayerNormalization", (0, 17), _normal(17), axis=-1),
    _net("InstanceNormalization", (0, 17, 5), _normal(17), _normal(17)),
    _net("ReduceSum", (3, 0, 5), np.array([1])),
    _net("ReduceMax", (0, 5), axes=[1]),
    _net("CumSum", (3, 0), np.array(1)),
    _net("MaxPool", (0, 3, 5, 5), kernel_shape=[2, 2]),
    _net("Transpose", (3, 0, 5), perm=[2, 1, 0], chain=["Exp"]),
    _net("Pad", (0, 3), np.array([1, 0, 2, 0]), chain=["Exp"]),
    _net("Slice", (3, 5), *(np.array([n]) for n in (2, 2, 0)), chain=["Exp"]),
    _net("GatherElements", (3, 5), np.zeros((0, 5), np.int64), axis=0),
    _net("Exp", (3, 0, 5), chain=_CHAIN),
)


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(make, marks=() if at == 3 else pytest.mark.slow)
        for at, make in enumerate(_EMPTY)
    ],
    ids=lambda make: make().graph.node[0].op_type,
)
def test_tensor_without_elements_is_what_onnx_runtime_makes_of_it(
    make: Make, models: FirstGuesses
) -> None:
    models.compare(make())
