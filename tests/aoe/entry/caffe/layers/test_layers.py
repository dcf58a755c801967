"""Every layer against its definition in NumPy, on odd sizes, pads and strides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support.caffe.layer_cases import IMAGE, LAYER_CASES, case_layer, detections
from support.caffe.model_files import Array, Param, TestLayer, TestNet, Word, caffemodel, prototxt
from support.caffe.reference import REFERENCE, run_layer

from aoe.entry.caffe.files import convert_network
from aoe.entry.caffe.layers.registry import LAYERS
from aoe.entry.caffe.network import parse_network
from aoe.entry.caffe.weights import parse_weights

Shape = tuple[int, ...]
_RNG = np.random.default_rng(7)


def _computed(layer: TestLayer, shapes: dict[str, Shape], feed: dict[str, Array]) -> list[Array]:
    net = TestNet(inputs=shapes, layers=(layer,))
    stored = parse_weights(caffemodel(net), "w") if layer.blobs else {}
    model = convert_network(parse_network(prototxt(net), "p"), shapes, stored, "p")
    onnx.checker.check_model(model, full_check=True)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    names = {value.name for value in model.graph.input}
    results = session.run(None, {name: feed[name] for name in names})
    said = [tuple(d.dim_value for d in v.type.tensor_type.shape.dim) for v in model.graph.output]
    for result, shape in zip(results, said, strict=True):  # 0 where the data decides
        assert result.shape == tuple(map(lambda f, s: s or f, result.shape, shape))
    by_name = dict(zip([v.name for v in model.graph.output], results, strict=True))
    return [by_name[top] for top in layer.tops]


def _check(
    kind: str,
    param: Param | None = None,
    *,
    shapes: tuple[Shape, ...] = (IMAGE,),
    weights: tuple[Shape, ...] = (),
    tops: int = 1,
    positive: bool = False,
    feed: list[Array] | None = None,
    tolerance: float = 2e-5,
) -> list[Array]:
    """Compare a layer with its definition; return what it computes."""
    layer = case_layer(kind, param or {}, shapes=shapes, weights=weights, tops=tops)
    arrays = feed or [_RNG.standard_normal(shape).astype(np.float32) for shape in shapes]
    if positive:
        arrays = [np.abs(array) + np.float32(0.1) for array in arrays]
    named = dict(zip(layer.bottoms, arrays, strict=True))
    found = _computed(layer, dict(zip(layer.bottoms, shapes, strict=True)), named)
    wanted = run_layer(layer, [array.astype(np.float64) for array in arrays])
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)
    return found


def test_every_layer_has_a_definition_to_be_held_to() -> None:
    assert set(REFERENCE) == set(LAYERS)


@pytest.mark.parametrize(
    ("kind", "param", "more"),
    LAYER_CASES,
    ids=[f"{n}-{kind}" for n, (kind, _, _) in enumerate(LAYER_CASES)],
)
def test_layer_computes_what_its_definition_says(
    kind: str, param: dict[str, Any], more: dict[str, Any]
) -> None:
    _check(kind, param, **more)


def test_every_layer_is_tried_here() -> None:
    assert {kind for kind, _, _ in LAYER_CASES} == set(LAYERS)


def test_batch_norm_with_a_factor_of_nought_has_no_statistics(tmp_path: Path) -> None:
    x = _RNG.standard_normal(IMAGE).astype(np.float32)
    blobs = (np.ones(6, np.float32), np.ones(6, np.float32), np.zeros(1, np.float32))
    layer = TestLayer(type="BatchNorm", name="b", bottoms=("x",), tops=("y",), blobs=blobs)
    (found,) = _computed(layer, {"x": IMAGE}, {"x": x})
    np.testing.assert_allclose(found, x / np.sqrt(1e-5), rtol=1e-5)


def test_arg_max_takes_the_last_of_equals_as_caffe_does() -> None:
    equal = np.zeros((2, 5, 1, 1), np.float32)
    (found,) = _check("ArgMax", {"top_k": 2}, shapes=((2, 5, 1, 1),), feed=[equal])
    assert found.tolist() == [[[[4.0], [3.0]]]] * 2


def test_prior_boxes_are_cut_to_whole_pixels() -> None:
    shapes = ((1, 3, 2, 2), (1, 3, 30, 30))
    layer = TestLayer(
        type="PriorBox",
        name="p",
        bottoms=("x0", "x1"),
        tops=("y",),
        param_name="prior_box_param",
        param={"min_size": 9.9},
    )
    feed = {"x0": np.zeros(shapes[0], np.float32), "x1": np.zeros(shapes[1], np.float32)}
    (found,) = _computed(layer, {"x0": shapes[0], "x1": shapes[1]}, feed)
    assert found[0, 0, 2] - found[0, 0, 0] == pytest.approx(9 / 30)


_DETECTION = {"num_classes": 3, "code_type": Word("CENTER_SIZE")}


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"keep_top_k": 4},
        {"nms_param": {"nms_threshold": 0.45, "top_k": 3}},
        {"nms_param": {"nms_threshold": 0.0}, "background_label_id": 2},
        {"background_label_id": -1, "keep_top_k": 100, "confidence_threshold": 0.7},
        {"variance_encoded_in_target": True, "nms_param": {"top_k": 400}, "keep_top_k": 1},
    ],
)
@pytest.mark.parametrize("images", [1, 3])
def test_detections_are_those_of_the_definition(
    seed: int, more: dict[str, Any], images: int
) -> None:
    shapes = ((images, 4 * 17), (images, 3 * 17), (1, 2, 4 * 17))
    _check("DetectionOutput", _DETECTION | more, shapes=shapes, feed=detections(seed, shapes))


@pytest.mark.parametrize("code", ["CORNER", "CORNER_SIZE"])
def test_box_that_ends_before_it_begins_overlaps_none(code: str) -> None:
    corners = [0, 0, 1, 1, 0.95, 0.95, 0.05, 0.05, 0.05, 0.05, 0.95, 0.95]
    priors = np.float32([corners, [0.1] * 12])[None]
    scores = np.float32([[0, 0.9, 0, 0.8, 0, 0.7]])
    feed = [np.zeros((1, 12), np.float32), scores, priors]
    shapes = tuple(array.shape for array in feed)
    param = {"num_classes": 2, "code_type": Word(code)}
    (found,) = _check("DetectionOutput", param, shapes=shapes, feed=feed)
    assert found[0, 0, :, 2].tolist() == pytest.approx([0.9, 0.8])  # the last is in the first


@pytest.mark.parametrize("images", [1, 2])
def test_no_detection_is_a_row_of_its_own(images: int) -> None:
    param = _DETECTION | {"confidence_threshold": 2.0, "keep_top_k": 5}
    shapes = ((images, 8), (images, 6), (1, 2, 8))
    (found,) = _check("DetectionOutput", param, shapes=shapes, feed=detections(1, shapes))
    assert found.tolist() == [[[[float(image), *[-1.0] * 6] for image in range(images)]]]


# ---- Caffe's rules for windows ----

_EXTENT, _KERNEL, _STRIDE = st.integers(1, 12), st.integers(1, 5), st.integers(1, 4)


@given(
    st.tuples(_EXTENT, _EXTENT),
    st.tuples(_KERNEL, _KERNEL),
    st.tuples(_STRIDE, _STRIDE),
    st.tuples(st.integers(0, 4), st.integers(0, 4)),
    st.sampled_from([Word("MAX"), Word("AVE")]),
)
def test_pooling_follows_the_ceil_rule(
    extents: Shape, kernel: Shape, stride: Shape, pad: Shape, how: Word
) -> None:
    for n, k, s, p in zip(extents, kernel, stride, pad, strict=True):
        assume(p < k < n + 2 * p + s)
        last = -(-(n + 2 * p - k) // s) * s
        assume(any(pad) or last < n)  # Caffe reads beyond the image there
        assume(last - s * (last >= n + p) < n + p)
    param = {
        "pool": how,
        "kernel_h": kernel[0],
        "kernel_w": kernel[1],
        "stride_h": stride[0],
        "stride_w": stride[1],
        "pad_h": pad[0],
        "pad_w": pad[1],
    }
    _check("Pooling", param, shapes=((1, 2, *extents),))


@pytest.mark.parametrize(
    ("extent", "kernel", "stride", "pad", "windows"),
    [
        (5, 2, 2, 0, 3),  # ceil((5 - 2) / 2) + 1
        (6, 3, 2, 0, 3),
        (7, 3, 2, 0, 3),
        (4, 2, 2, 1, 3),  # ceil gives 3, the last begins at 3 < 4 + 1
        (3, 2, 2, 1, 2),  # ceil gives 3, the last would begin at 3 >= 3 in the padding
        (112, 3, 2, 0, 56),
        (3, 4, 2, 0, 1),  # ceil(-1 / 2) + 1: a window that is larger than the image
        (1, 5, 3, 1, 1),  # ceil(-2 / 3) + 1
    ],
)
def test_pooling_windows_are_counted_as_published(
    extent: int, kernel: int, stride: int, pad: int, windows: int
) -> None:
    param = {"kernel_size": kernel, "stride": stride, "pad": pad}
    (found,) = _check("Pooling", param, shapes=((1, 1, extent, extent),))
    assert found.shape[2:] == (windows, windows)


def test_average_does_not_count_what_lies_beyond_the_padding() -> None:
    ones = np.ones((1, 1, 4, 4), np.float32)
    param = {"pool": Word("AVE"), "kernel_size": 3, "stride": 2, "pad": 1}
    (found,) = _check("Pooling", param, shapes=((1, 1, 4, 4),), feed=[ones])
    # the last window begins at 3 and ends at 5, the end of the padding: 1 of 2 x 2 is inside
    assert found[0, 0, 0, 0] == pytest.approx(4 / 9)
    assert found[0, 0, 2, 2] == pytest.approx(1 / 4)


@given(
    st.tuples(_EXTENT, _EXTENT),
    st.tuples(st.integers(1, 4), st.integers(1, 4)),
    st.tuples(_STRIDE, _STRIDE),
    st.tuples(st.integers(0, 3), st.integers(0, 3)),
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
    st.integers(1, 3),
    st.sampled_from(["Convolution", "Deconvolution"]),
)
def test_convolutions_of_any_geometry(
    extents: Shape,
    kernel: Shape,
    stride: Shape,
    pad: Shape,
    dilation: Shape,
    group: int,
    kind: str,
) -> None:
    for n, k, s, p, d in zip(extents, kernel, stride, pad, dilation, strict=True):
        reach = d * (k - 1) + 1
        assume(reach <= n + 2 * p if kind == "Convolution" else s * (n - 1) + reach > 2 * p)
    ins, outs = 2 * group, 3 * group
    shape = (outs, 2, *kernel) if kind == "Convolution" else (ins, 3, *kernel)
    param = {
        "num_output": outs,
        "kernel_size": list(kernel),
        "stride": list(stride),
        "pad": list(pad),
        "dilation": list(dilation),
        "group": group,
    }
    _check(kind, param, shapes=((1, ins, *extents),), weights=(shape, (outs,)), tolerance=1e-4)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=5), st.data())
def test_flatten_and_permute_of_any_rank(shape: list[int], data: st.DataObject) -> None:
    axes = st.integers(0, len(shape) - 1)
    first = data.draw(axes)
    last = data.draw(st.integers(first, len(shape) - 1))
    _check("Flatten", {"axis": first, "end_axis": last}, shapes=(tuple(shape),))
    order = data.draw(st.lists(axes, unique=True))
    _check("Permute", {"order": order} if order else {}, shapes=(tuple(shape),))
