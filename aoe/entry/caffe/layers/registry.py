"""Layers by type. To add one, write a function in a file beside this one, and its line here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from aoe.entry.caffe.layers import (
    activations,
    detection,
    joining,
    normalization,
    shaping,
    windows,
)
from aoe.entry.caffe.scope import CaffeBlob, LayerScope

_MANY = 2**31


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerRule:
    """Conversion of one type of layer."""

    # Adds the nodes of a layer and returns its tops.
    convert: Callable[[LayerScope], tuple[CaffeBlob, ...]]
    param: str = ""  # Field of the layer with its parameters, empty if it has none
    bottoms: tuple[int, int] = (1, 1)  # Least and most blobs it reads
    tops: tuple[int, int] = (1, 1)  # Least and most blobs it makes; 0 for as many as it reads
    note: str = ""  # What a reader of the table has to know


_CONVOLUTION = "convolution_param"
_FORK = "of forks"
_DEPTHWISE = LayerRule(convert=windows.convolution, param=_CONVOLUTION, note=_FORK)


def _on_all_bottoms(convert: Callable[[LayerScope], tuple[CaffeBlob, ...]]) -> LayerRule:
    note = "1-D, 2-D and 3-D, groups, dilation, several bottoms"
    return LayerRule(
        convert=convert, param=_CONVOLUTION, bottoms=(1, _MANY), tops=(0, 0), note=note
    )


LAYERS: Mapping[str, LayerRule] = {
    "AbsVal": LayerRule(convert=activations.elementwise("Abs")),
    "ArgMax": LayerRule(convert=shaping.arg_max, param="argmax_param"),
    "Axpy": LayerRule(convert=joining.axpy, bottoms=(3, 3), note=_FORK),
    "BNLL": LayerRule(convert=activations.elementwise("Softplus")),
    "BatchNorm": LayerRule(
        convert=normalization.batch_norm, param="batch_norm_param", note="trained statistics"
    ),
    "Bias": LayerRule(convert=normalization.bias, param="bias_param", bottoms=(1, 2)),
    "Clip": LayerRule(convert=activations.clip, param="clip_param"),
    "Concat": LayerRule(convert=joining.concat, param="concat_param", bottoms=(1, _MANY)),
    "Convolution": _on_all_bottoms(windows.convolution),
    "ConvolutionDepthwise": _DEPTHWISE,
    "Crop": LayerRule(convert=shaping.crop, param="crop_param", bottoms=(2, 2)),
    "Deconvolution": _on_all_bottoms(windows.deconvolution),
    "DepthwiseConvolution": _DEPTHWISE,
    "DetectionOutput": LayerRule(
        convert=detection.detection_output,
        param="detection_output_param",
        bottoms=(3, 3),
        note="SSD's, with shared locations",
    ),
    "Dropout": LayerRule(convert=activations.dropout, param="dropout_param", note="passes on"),
    "ELU": LayerRule(convert=activations.elu, param="elu_param"),
    "Eltwise": LayerRule(convert=joining.eltwise, param="eltwise_param", bottoms=(2, _MANY)),
    "Exp": LayerRule(convert=activations.exp, param="exp_param"),
    "Flatten": LayerRule(convert=shaping.flatten, param="flatten_param"),
    "InnerProduct": LayerRule(convert=joining.inner_product, param="inner_product_param"),
    "Interp": LayerRule(
        convert=shaping.interp, param="interp_param", note="DeepLab's, corners aligned"
    ),
    "LRN": LayerRule(convert=normalization.lrn, param="lrn_param", note="both regions"),
    "Log": LayerRule(convert=activations.log, param="log_param"),
    "MVN": LayerRule(convert=normalization.mvn, param="mvn_param"),
    "Normalize": LayerRule(convert=normalization.normalize, param="norm_param", note="SSD's"),
    "PReLU": LayerRule(convert=activations.prelu, param="prelu_param"),
    "Permute": LayerRule(convert=shaping.permute, param="permute_param", note="SSD's"),
    "Pooling": LayerRule(
        convert=windows.pooling, param="pooling_param", tops=(1, 2), note="MAX and AVE, 2-D"
    ),
    "Power": LayerRule(convert=activations.power, param="power_param"),
    "PriorBox": LayerRule(
        convert=detection.prior_box, param="prior_box_param", bottoms=(2, 2), note="SSD's"
    ),
    "ReLU": LayerRule(convert=activations.relu, param="relu_param"),
    "ReLU6": LayerRule(convert=activations.relu6, note=_FORK),
    "Reduction": LayerRule(convert=shaping.reduction, param="reduction_param"),
    "Reshape": LayerRule(convert=shaping.reshape, param="reshape_param"),
    "Scale": LayerRule(convert=normalization.scale, param="scale_param", bottoms=(1, 2)),
    "ShuffleChannel": LayerRule(
        convert=shaping.shuffle_channel, param="shuffle_channel_param", note=_FORK
    ),
    "Sigmoid": LayerRule(convert=activations.elementwise("Sigmoid"), param="sigmoid_param"),
    "Slice": LayerRule(convert=joining.cut, param="slice_param", tops=(1, _MANY)),
    "Softmax": LayerRule(convert=shaping.softmax, param="softmax_param"),
    "Split": LayerRule(convert=activations.split, tops=(1, _MANY), note="passes on"),
    "Swish": LayerRule(convert=activations.swish, param="swish_param"),
    "TanH": LayerRule(convert=activations.elementwise("Tanh"), param="tanh_param"),
    "Threshold": LayerRule(convert=activations.threshold, param="threshold_param"),
    "Tile": LayerRule(convert=shaping.tile, param="tile_param"),
}

WAYS_OUT: Mapping[str, str] = {
    "Proposal": "cut the net before it: what it reads becomes outputs",
    "Python": "only the program that trained the net knows what it does: cut the net before it",
}
"""Ways around layers that are not converted, by type."""
