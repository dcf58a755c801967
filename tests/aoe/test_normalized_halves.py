"""Normalisations of float16: what ONNX Runtime computes of them, kernels read and make, too."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from support.engine.first_guesses import FirstGuesses, newest_opset, small_net
from support.engine.offline import regions_of, view_of
from support.tiers import chosen_every_day

from aoe.target import Target

_IMAGE = (2, 12, 9, 7)
_ROWS = (2, 10, 48)


def _halves(count: int, size: int) -> list[np.ndarray[tuple[int, ...], np.dtype[np.float16]]]:
    rng = np.random.default_rng(7)
    return [rng.uniform(0.5, 1.5, size).astype(np.float16) for _ in range(count)]


def _net(
    op_type: str,
    shape: tuple[int, ...],
    names: str,
    *,
    opset: int = 17,
    domain: str = "",
    **at: int,
) -> onnx.ModelProto:
    """Return a normalisation of channels or rows, and a chain behind it."""
    size = shape[1] if len(shape) == 4 else shape[-1]
    weights = dict(zip(names.split(), _halves(len(names.split()), size), strict=True))
    nodes = [
        helper.make_node(op_type, ["x", *weights], ["n"], "norm", **at),
        helper.make_node("Sigmoid", ["n"], ["i"], "sigmoid"),
        helper.make_node("Mul", ["n", "i"], ["y"], "swish"),
    ]
    return small_net(nodes, {"x": shape}, weights, opset=opset, kind=TensorProto.FLOAT16)


def _instance() -> onnx.ModelProto:
    return _net("InstanceNormalization", _IMAGE, "scale bias")


def _group() -> onnx.ModelProto:
    return _net("GroupNormalization", _IMAGE, "scale bias", opset=21, num_groups=3)


def _batch() -> onnx.ModelProto:
    return _net("BatchNormalization", _IMAGE, "scale bias mean variance")


def _layer() -> onnx.ModelProto:
    return _net("LayerNormalization", _ROWS, "scale bias", axis=-1)


def _root_mean() -> onnx.ModelProto:
    return _net("RMSNormalization", _ROWS, "scale", opset=23, axis=-1)


def _skipped() -> onnx.ModelProto:
    scale, bias = _halves(2, _ROWS[-1])
    nodes = [
        helper.make_node(
            "SkipLayerNormalization",
            ["x", "z", "scale", "bias"],
            ["n"],
            "norm",
            domain="com.microsoft",
            epsilon=1e-5,
        ),
        helper.make_node("Tanh", ["n"], ["y"], "tanh"),
    ]
    proto = small_net(
        nodes,
        {"x": _ROWS, "z": _ROWS},
        {"scale": scale, "bias": bias},
        opset=17,
        kind=TensorProto.FLOAT16,
    )
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return proto


CASES: dict[str, tuple[Callable[[], onnx.ModelProto], str]] = {
    "instance": (_instance, "instance_normalization"),
    "group": (_group, "instance_normalization"),
    "batch": (_batch, "elementwise"),
    "layer": (_layer, "layer_normalization"),
    "root mean": (_root_mean, "layer_normalization"),
    "skip layer": (_skipped, "layer_normalization"),
}


@pytest.mark.parametrize("case", chosen_every_day(CASES, ["layer"]))
def test_normalisation_of_float16_is_computed_by_a_kernel(
    case: str, models: FirstGuesses, tmp_path: Path, target: Target
) -> None:
    make, family = CASES[case]
    model = make()
    if max(entry.version for entry in model.opset_import) > newest_opset():
        pytest.skip(f"onnxruntime knows opsets up to {newest_opset()}")
    assert models.compare(model) > 0
    regions = regions_of(view_of(onnx.shape_inference.infer_shapes(model), tmp_path, target))
    (found,) = [region for region in regions if region.workload.op_type == family]
    given = {spec.dtype for spec in found.workload.inputs if not spec.constant}
    assert given == {"float16"}
