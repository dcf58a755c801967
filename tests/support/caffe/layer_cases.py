"""Every layer with parameters that show what it does: odd sizes, pads, strides and axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from aoe.entry.caffe.layers.registry import LAYERS
from support.caffe.model_files import Array, Param, TestLayer, Word

Shape = tuple[int, ...]
IMAGE: Shape = (2, 6, 7, 9)
"""Shape of a bottom, unless a case says otherwise."""


def case_layer(
    kind: str,
    param: Param,
    *,
    shapes: tuple[Shape, ...] = (IMAGE,),
    weights: tuple[Shape, ...] = (),
    tops: int = 1,
    positive: bool = False,
    feed: Sequence[Array] | None = None,
) -> TestLayer:
    """Return a layer that reads x0, x1, ... and makes y0, y1, ...; the rest is about its input."""
    rng = np.random.default_rng(7)
    blobs = tuple(rng.standard_normal(shape).astype(np.float32) for shape in weights)
    if kind == "BatchNorm":
        blobs = (blobs[0], np.abs(blobs[1]) + np.float32(0.1), blobs[2])
    return TestLayer(
        type=kind,
        name="tested",
        bottoms=tuple(f"x{n}" for n in range(len(shapes))),
        tops=tuple(f"y{n}" for n in range(tops)),
        param_name=LAYERS[kind].param if param else "",
        param=param,
        blobs=blobs,
    )


_CODES = ("CORNER", "CENTER_SIZE", "CORNER_SIZE")
_SSD_SHAPES = ((2, 48), (2, 36, 1, 1), (1, 2, 48))


def detections(seed: int, shapes: Sequence[Shape] = _SSD_SHAPES) -> list[Array]:
    """Return locations, confidences and prior boxes of a detector with overlapping boxes."""
    rng = np.random.default_rng(seed)
    priors = shapes[2][-1] // 4
    least = rng.uniform(0, 0.6, (priors, 2))
    corners = np.concatenate((least, least + rng.uniform(0.1, 0.4, (priors, 2))), axis=1)
    prior = np.stack((corners.ravel(), np.tile([0.1, 0.1, 0.2, 0.2], priors)))[None]
    found = (rng.normal(0, 0.1, shapes[0]), rng.uniform(0, 1, shapes[1]), prior)
    return [array.astype(np.float32) for array in found]


LAYER_CASES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("AbsVal", {}, {}),
    ("ArgMax", {}, {}),
    ("ArgMax", {"top_k": 3}, {}),
    ("ArgMax", {"top_k": 3, "out_max_val": True}, {}),
    ("ArgMax", {"top_k": 2, "out_max_val": True}, {"shapes": ((3, 7),)}),
    ("ArgMax", {"top_k": 2, "axis": 1}, {}),
    ("ArgMax", {"top_k": 2, "axis": -1, "out_max_val": True}, {}),
    ("Axpy", {}, {"shapes": ((2, 6), IMAGE, IMAGE)}),
    ("Axpy", {}, {"shapes": ((2, 6, 1, 1), IMAGE, IMAGE)}),
    ("BNLL", {}, {}),
    ("BatchNorm", {}, {"weights": ((6,), (6,), (1,))}),
    ("BatchNorm", {"eps": 0.01, "use_global_stats": True}, {"weights": ((6,), (6,), (1,))}),
    ("BatchNorm", {}, {"weights": ((6,), (6,), (1,)), "shapes": ((3, 6),)}),
    ("Bias", {}, {"weights": ((6,),)}),
    ("Bias", {"axis": 0, "num_axes": 2}, {"weights": ((2, 6),)}),
    ("Bias", {}, {"shapes": (IMAGE, (6, 7))}),
    ("Clip", {"min": -0.5, "max": 1.0}, {}),
    ("Concat", {}, {"shapes": (IMAGE, (2, 1, 7, 9), (2, 3, 7, 9))}),
    ("Concat", {"axis": -1}, {"shapes": (IMAGE, (2, 6, 7, 1))}),
    ("Concat", {"concat_dim": 0}, {"shapes": (IMAGE, IMAGE)}),
    (
        "Convolution",
        {"num_output": 4, "kernel_size": 3, "group": 2, "pad": 1, "stride": 2},
        {"weights": ((4, 3, 3, 3), (4,))},
    ),
    (
        "Convolution",
        {"num_output": 5, "kernel_h": 1, "kernel_w": 4, "pad_h": 0, "pad_w": 2, "bias_term": False},
        {"weights": ((5, 6, 1, 4),)},
    ),
    (
        "Convolution",
        {"num_output": 2, "kernel_size": [3, 2], "dilation": [2, 3], "stride_h": 1, "stride_w": 2},
        {"weights": ((2, 6, 3, 2), (2,)), "shapes": (IMAGE, IMAGE), "tops": 2},
    ),
    (
        "Convolution",
        {"num_output": 3, "kernel_size": 3, "pad": 1, "stride": 2},
        {"weights": ((3, 2, 3), (3,)), "shapes": ((2, 2, 11),)},
    ),
    (
        "Convolution",
        {"num_output": 3, "kernel_size": 2, "pad": [0, 1, 1]},
        {"weights": ((3, 2, 2, 2, 2), (3,)), "shapes": ((1, 2, 3, 4, 5),)},
    ),
    (
        "ConvolutionDepthwise",
        {"num_output": 6, "kernel_size": 3, "pad": 1},
        {"weights": ((6, 1, 3, 3), (6,))},
    ),
    ("Crop", {}, {"shapes": (IMAGE, (2, 6, 4, 5))}),
    ("Crop", {"axis": 1, "offset": [2, 1, 3]}, {"shapes": (IMAGE, (1, 3, 4, 5))}),
    ("Crop", {"axis": -2, "offset": 2}, {"shapes": (IMAGE, (2, 6, 4, 5))}),
    (
        "Deconvolution",
        {"num_output": 4, "kernel_size": 4, "stride": 2, "pad": 1, "group": 2},
        {"weights": ((6, 2, 4, 4), (4,))},
    ),
    (
        "Deconvolution",
        {"num_output": 3, "kernel_size": 3, "stride": 3, "dilation": 2, "bias_term": False},
        {"weights": ((6, 3, 3, 3),)},
    ),
    ("DepthwiseConvolution", {"kernel_size": 3}, {"weights": ((6, 1, 3, 3), (6,))}),
    *(
        (
            "DetectionOutput",
            {
                "num_classes": 3,
                "code_type": Word(code),
                "nms_param": {"nms_threshold": 0.3, "top_k": 5},
                "keep_top_k": 6,
                "confidence_threshold": 0.2,
            },
            {"shapes": _SSD_SHAPES, "feed": detections(number)},
        )
        for number, code in enumerate(_CODES)
    ),
    ("Dropout", {"dropout_ratio": 0.7}, {}),
    ("ELU", {}, {}),
    ("ELU", {"alpha": 0.3}, {}),
    ("Eltwise", {}, {"shapes": (IMAGE,) * 3}),
    ("Eltwise", {"coeff": [1.0, -0.5, 2.0]}, {"shapes": (IMAGE,) * 3}),
    ("Eltwise", {"operation": Word("PROD")}, {"shapes": (IMAGE,) * 3}),
    ("Eltwise", {"operation": Word("MAX")}, {"shapes": (IMAGE,) * 2}),
    ("Eltwise", {"operation": Word("MIN")}, {"shapes": (IMAGE,) * 2}),
    ("Exp", {}, {}),
    ("Exp", {"base": 2.0, "scale": -0.5, "shift": 0.25}, {}),
    ("Exp", {"base": 1.0}, {}),
    ("Flatten", {}, {}),
    ("Flatten", {"axis": -3, "end_axis": 2}, {}),
    ("InnerProduct", {"num_output": 5}, {"weights": ((5, 378), (5,))}),
    (
        "InnerProduct",
        {"num_output": 5, "axis": -2, "transpose": True, "bias_term": False},
        {"weights": ((63, 5),)},
    ),
    ("InnerProduct", {"num_output": 1}, {"weights": ((1, 4), (1,)), "shapes": ((3, 4),)}),
    ("Interp", {"height": 15, "width": 5}, {}),
    ("Interp", {"zoom_factor": 3}, {}),
    ("Interp", {"shrink_factor": 2, "zoom_factor": 4, "pad_beg": -1, "pad_end": -1}, {}),
    ("LRN", {}, {}),
    ("LRN", {"local_size": 3, "alpha": 0.01, "beta": 0.5, "k": 2.0}, {}),
    ("LRN", {"local_size": 3, "norm_region": Word("WITHIN_CHANNEL"), "k": 3.0}, {}),
    ("LRN", {"local_size": 5, "norm_region": Word("WITHIN_CHANNEL"), "alpha": 0.1}, {}),
    ("Log", {}, {"positive": True}),
    ("Log", {"base": 10.0, "scale": 2.0, "shift": 1.0}, {"positive": True}),
    ("MVN", {}, {}),
    ("MVN", {"across_channels": True, "eps": 0.1}, {}),
    ("MVN", {"normalize_variance": False}, {}),
    ("Normalize", {}, {"weights": ((),)}),
    ("Normalize", {"across_spatial": False, "channel_shared": False}, {"weights": ((6,),)}),
    ("PReLU", {}, {"weights": ((6,),)}),
    ("PReLU", {"channel_shared": True}, {"weights": ((1,),)}),
    ("PReLU", {}, {"weights": ((6,),), "shapes": ((3, 6),)}),
    ("Permute", {"order": [0, 2, 3, 1]}, {}),
    ("Permute", {"order": [2]}, {}),
    ("Pooling", {"kernel_size": 2, "stride": 2, "round_mode": Word("FLOOR")}, {}),
    ("Pooling", {"global_pooling": True}, {}),
    ("Pooling", {"global_pooling": True, "pool": Word("AVE")}, {}),
    ("Power", {"power": 2.0, "scale": 0.5, "shift": 1.0}, {}),
    ("Power", {"power": -0.75}, {"positive": True}),
    ("Power", {"scale": 0.0, "shift": 3.0, "power": 2.0}, {}),
    ("Power", {"power": 0.0}, {}),
    (
        "PriorBox",
        {
            "min_size": 30,
            "max_size": 60,
            "aspect_ratio": [2.0, 3.0],
            "step": 16.0,
            "variance": [0.1, 0.1, 0.2, 0.2],
        },
        {"shapes": ((1, 3, 5, 4), (1, 3, 70, 90))},
    ),
    (
        "PriorBox",
        {
            "min_size": [9, 20],
            "aspect_ratio": 2.0,
            "flip": False,
            "clip": True,
            "img_h": 40,
            "img_w": 60,
            "offset": 0.25,
        },
        {"shapes": ((1, 3, 5, 4), (1, 3, 70, 90))},
    ),
    ("ReLU", {}, {}),
    ("ReLU", {"negative_slope": 0.1}, {}),
    ("ReLU6", {}, {}),
    ("Reduction", {}, {}),
    ("Reduction", {"operation": Word("ASUM"), "axis": 2, "coeff": 0.5}, {}),
    ("Reduction", {"operation": Word("SUMSQ"), "axis": 1}, {}),
    ("Reduction", {"operation": Word("MEAN"), "axis": -1, "coeff": 2.0}, {}),
    ("Reshape", {"shape": {"dim": [0, -1, 9]}}, {}),
    ("Reshape", {"shape": {"dim": [3, -1]}, "axis": 1, "num_axes": 2}, {}),
    ("Reshape", {"shape": {"dim": [1]}, "axis": -1, "num_axes": 0}, {}),
    ("Reshape", {"shape": {"dim": [0, 21, 3]}, "axis": 1}, {}),
    ("Scale", {"bias_term": True}, {"weights": ((6,), (6,))}),
    ("Scale", {"axis": 2, "num_axes": -1}, {"weights": ((7, 9),)}),
    ("Scale", {"num_axes": 0}, {"weights": ((),)}),
    ("Scale", {"axis": 0}, {"shapes": (IMAGE, (2, 6))}),
    ("Scale", {"bias_term": True}, {"shapes": (IMAGE, (6,)), "weights": ((6,),)}),
    ("ShuffleChannel", {"group": 3}, {}),
    ("Sigmoid", {}, {}),
    ("Slice", {"slice_point": [1, 4]}, {"tops": 3}),
    ("Slice", {}, {"tops": 3}),
    ("Slice", {"slice_dim": 3}, {"tops": 3}),
    ("Slice", {"axis": -2, "slice_point": 2}, {"tops": 2}),
    ("Softmax", {}, {}),
    ("Softmax", {"axis": -1}, {}),
    ("Split", {}, {"tops": 3}),
    ("Swish", {}, {}),
    ("Swish", {"beta": 2.0}, {}),
    ("TanH", {}, {}),
    ("Threshold", {"threshold": 0.25}, {}),
    ("Tile", {"tiles": 3}, {}),
    ("Tile", {"tiles": 2, "axis": -1}, {}),
]
