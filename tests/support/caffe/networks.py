"""Public networks, written anew from their papers, with random weights and what they compute.

Spatial sizes and the widths of fully connected layers are small, to save time; all else is as
published. Weights are scaled so that activations stay around one through all layers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from support.caffe.model_files import Array, TestLayer, TestNet, Word
from support.caffe.reference import run_layer

_AVE, _MAX = Word("AVE"), Word("MAX")
_PARAMS = {
    "Convolution": "convolution_param",
    "Pooling": "pooling_param",
    "InnerProduct": "inner_product_param",
    "LRN": "lrn_param",
    "Concat": "concat_param",
    "Softmax": "softmax_param",
    "Scale": "scale_param",
    "Permute": "permute_param",
    "Flatten": "flatten_param",
    "Reshape": "reshape_param",
    "PriorBox": "prior_box_param",
    "Dropout": "dropout_param",
    "DetectionOutput": "detection_output_param",
}


@dataclass(frozen=True, kw_only=True)
class KnownNet:
    """A network with an input and what the definitions of its layers make of it."""

    net: TestNet  # The network
    feed: Mapping[str, Array]  # Input by name
    results: Mapping[str, Array]  # What each output is, by name


@dataclass
class _Maker:
    """Adds layers one behind the other and computes each of them at once."""

    size: int
    seed: int
    layers: list[TestLayer] = field(default_factory=list)
    blobs: dict[str, Array] = field(default_factory=dict)
    last: str = "data"

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        self.feed = self.rng.standard_normal((1, 3, self.size, self.size)).astype(np.float32)
        self.blobs["data"] = self.feed.astype(np.float64)

    def add(
        self,
        kind: str,
        name: str,
        *bottoms: str,
        top: str = "",
        weights: Sequence[Array] = (),
        **param: Any,
    ) -> str:
        """Add a layer behind `bottoms`, by default behind the last one; return its top."""
        reads = bottoms or (self.last,)
        layer = TestLayer(
            type=kind,
            name=name,
            bottoms=reads,
            tops=(top or name,),
            param_name=_PARAMS.get(kind, "") if param else "",
            param=param,
            blobs=tuple(blob.astype(np.float32) for blob in weights),
        )
        (self.blobs[layer.tops[0]],) = run_layer(layer, [self.blobs[read] for read in reads])
        self.layers.append(layer)
        self.last = layer.tops[0]
        return self.last

    def conv(
        self,
        name: str,
        outputs: int,
        kernel: int,
        *bottoms: str,
        bias: bool = True,
        group: int = 1,
        **param: int,
    ) -> str:
        """Add a convolution."""
        channels = self.blobs[bottoms[0] if bottoms else self.last].shape[1] // group
        deviation = math.sqrt(2 / (channels * kernel * kernel))
        weights = [self.rng.normal(0, deviation, (outputs, channels, kernel, kernel))]
        weights += [self.rng.normal(0, 0.1, outputs)] * bias
        more: dict[str, Any] = {} if bias else {"bias_term": False}
        more |= {"group": group} if group > 1 else {}
        return self.add(
            *("Convolution", name, *bottoms),
            weights=weights,
            num_output=outputs,
            kernel_size=kernel,
            **more,
            **param,
        )

    def relu(self, name: str) -> str:
        """Add a ReLU in place of the last blob."""
        return self.add("ReLU", name, top=self.last)

    def dense(self, name: str, outputs: int) -> str:
        """Add a fully connected layer."""
        depth = self.blobs[self.last][0].size
        weights = [self.rng.normal(0, math.sqrt(2 / depth), (outputs, depth))]
        weights += [self.rng.normal(0, 0.1, outputs)]
        return self.add("InnerProduct", name, weights=weights, num_output=outputs)

    def norm(self, name: str) -> str:
        """Add BatchNorm and Scale in place of the last blob."""
        channels, factor = self.blobs[self.last].shape[1], 0.875
        statistics = (
            self.rng.normal(0, 0.2, channels) * factor,
            self.rng.uniform(0.5, 1.5, channels) * factor,
            np.asarray([factor]),
        )
        self.add("BatchNorm", f"{name}/bn", top=self.last, weights=statistics)
        affine = (self.rng.uniform(0.5, 1.5, channels), self.rng.normal(0, 0.2, channels))
        return self.add("Scale", f"{name}/scale", top=self.last, weights=affine, bias_term=True)

    def known(self) -> KnownNet:
        """Return what was made."""
        read = [name for layer in self.layers for name in layer.bottoms]
        made = dict.fromkeys(layer.tops[0] for layer in self.layers)
        results = {name: self.blobs[name] for name in made if name not in read}
        net = TestNet(inputs={"data": self.feed.shape}, layers=tuple(self.layers))
        return KnownNet(net=net, feed={"data": self.feed}, results=results)


def alexnet() -> KnownNet:
    """Return AlexNet with grouped convolutions and LRN behind ReLU.

    Source: Krizhevsky, Sutskever, Hinton, NIPS 2012.
    """
    net = _Maker(size=67, seed=1)
    lrn = {"local_size": 5, "alpha": 0.0001, "beta": 0.75}
    net.conv("conv1", 96, 11, stride=4)
    net.relu("relu1")
    net.add("LRN", "norm1", **lrn)
    net.add("Pooling", "pool1", pool=_MAX, kernel_size=3, stride=2)
    net.conv("conv2", 256, 5, pad=2, group=2)
    net.relu("relu2")
    net.add("LRN", "norm2", **lrn)
    net.add("Pooling", "pool2", pool=_MAX, kernel_size=3, stride=2)
    for number, outputs, group in ((3, 384, 1), (4, 384, 2), (5, 256, 2)):
        net.conv(f"conv{number}", outputs, 3, pad=1, group=group)
        net.relu(f"relu{number}")
    net.add("Pooling", "pool5", pool=_MAX, kernel_size=3, stride=2)
    for number in (6, 7):
        net.dense(f"fc{number}", 256)
        net.relu(f"relu{number}")
        net.add("Dropout", f"drop{number}", top=net.last, dropout_ratio=0.5)
    net.dense("fc8", 100)
    net.add("Softmax", "prob")
    return net.known()


def googlenet() -> KnownNet:
    """Return GoogLeNet with its nine Inception modules.

    Source: Szegedy et al., CVPR 2015, table 1.
    """
    net = _Maker(size=64, seed=2)
    lrn = {"local_size": 5, "alpha": 0.0001, "beta": 0.75}
    net.conv("conv1/7x7_s2", 64, 7, pad=3, stride=2)
    net.relu("conv1/relu_7x7")
    net.add("Pooling", "pool1/3x3_s2", pool=_MAX, kernel_size=3, stride=2)
    net.add("LRN", "pool1/norm1", **lrn)
    net.conv("conv2/3x3_reduce", 64, 1)
    net.relu("conv2/relu_3x3_reduce")
    net.conv("conv2/3x3", 192, 3, pad=1)
    net.relu("conv2/relu_3x3")
    net.add("LRN", "conv2/norm2", **lrn)
    net.add("Pooling", "pool2/3x3_s2", pool=_MAX, kernel_size=3, stride=2)
    for name, *widths in (
        ("3a", 64, 96, 128, 16, 32, 32),
        ("3b", 128, 128, 192, 32, 96, 64),
        ("4a", 192, 96, 208, 16, 48, 64),
        ("4b", 160, 112, 224, 24, 64, 64),
        ("4c", 128, 128, 256, 24, 64, 64),
        ("4d", 112, 144, 288, 32, 64, 64),
        ("4e", 256, 160, 320, 32, 128, 128),
        ("5a", 256, 160, 320, 32, 128, 128),
        ("5b", 384, 192, 384, 48, 128, 128),
    ):
        if name in ("4a", "5a"):
            pool = f"pool{int(name[0]) - 1}/3x3_s2"
            net.add("Pooling", pool, pool=_MAX, kernel_size=3, stride=2)
        _inception(net, f"inception_{name}", widths)
    net.add("Pooling", "pool5/7x7_s1", pool=_AVE, kernel_size=2, stride=1)
    net.add("Dropout", "pool5/drop", top=net.last, dropout_ratio=0.4)
    net.dense("loss3/classifier", 100)
    net.add("Softmax", "prob")
    return net.known()


def _inception(net: _Maker, name: str, widths: Sequence[int]) -> None:
    below = net.last
    branches = []
    for outputs, chain in (
        (widths[0], (("1x1", widths[0], 1),)),
        (widths[2], (("3x3_reduce", widths[1], 1), ("3x3", widths[2], 3))),
        (widths[4], (("5x5_reduce", widths[3], 1), ("5x5", widths[4], 5))),
        (widths[5], (("pool", 0, 3), ("pool_proj", widths[5], 1))),
    ):
        net.last = below
        for part, width, kernel in chain:
            if part == "pool":
                net.add("Pooling", f"{name}/pool", kernel_size=3, stride=1, pad=1)
                continue
            net.conv(f"{name}/{part}", width, kernel, pad=kernel // 2)
            net.relu(f"{name}/relu_{part}")
        branches.append(net.last)
        assert net.blobs[net.last].shape[1] == outputs
    net.add("Concat", f"{name}/output", *branches)


def squeezenet() -> KnownNet:
    """Return SqueezeNet 1.0. Source: Iandola et al., arXiv 1602.07360, table 1."""
    net = _Maker(size=67, seed=3)
    net.conv("conv1", 96, 7, stride=2)
    net.relu("relu_conv1")
    net.add("Pooling", "pool1", kernel_size=3, stride=2)
    for number, squeeze, expand in (
        *((2, 16, 64), (3, 16, 64), (4, 32, 128), (5, 32, 128)),
        *((6, 48, 192), (7, 48, 192), (8, 64, 256), (9, 64, 256)),
    ):
        name = f"fire{number}"
        net.conv(f"{name}/squeeze1x1", squeeze, 1)
        below = net.relu(f"{name}/relu_squeeze1x1")
        branches = []
        for kernel in (1, 3):
            part = f"expand{kernel}x{kernel}"
            net.conv(f"{name}/{part}", expand, kernel, below, pad=kernel // 2)
            branches.append(net.relu(f"{name}/relu_{part}"))
        net.add("Concat", f"{name}/concat", *branches)
        if number in (4, 8):
            net.add("Pooling", f"pool{number}", kernel_size=3, stride=2)
    net.add("Dropout", "drop9", top=net.last, dropout_ratio=0.5)
    net.conv("conv10", 100, 1)
    net.relu("relu_conv10")
    net.add("Pooling", "pool10", pool=_AVE, global_pooling=True)
    net.add("Softmax", "prob")
    return net.known()


def mobilenet_ssd() -> KnownNet:
    """Return MobileNet-SSD, with its detections.

    Source: Howard et al., arXiv 1704.04861, table 1; Liu et al., ECCV 2016; the names and the extra
    layers as in chuanqi305's network.
    """
    net = _Maker(size=96, seed=4)

    def block(name: str, outputs: int, kernel: int, **param: int) -> str:
        net.conv(name, outputs, kernel, bias=False, **param)
        net.norm(name)
        return net.relu(f"{name}/relu")

    block("conv0", 32, 3, pad=1, stride=2)
    heads = []
    for number, (outputs, stride) in enumerate(
        (
            *((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2)),
            *((512, 1),) * 5,
            *((1024, 2), (1024, 1)),
        ),
        start=1,
    ):
        channels = net.blobs[net.last].shape[1]
        block(f"conv{number}/dw", channels, 3, pad=1, stride=stride, group=channels)
        block(f"conv{number}", outputs, 1)
        if number in (11, 13):
            heads.append((f"conv{number}", net.last))
    for number, squeeze, outputs in ((14, 256, 512), (15, 128, 256), (16, 128, 256), (17, 64, 128)):
        block(f"conv{number}_1", squeeze, 1)
        heads.append((f"conv{number}_2", block(f"conv{number}_2", outputs, 3, pad=1, stride=2)))
    _mbox(net, heads, classes=21)
    return net.known()


def _mbox(net: _Maker, heads: Sequence[tuple[str, str]], classes: int) -> None:
    parts: dict[str, list[str]] = {"loc": [], "conf": [], "priorbox": []}
    sizes = ((20, 0), (35, 50), (50, 65), (65, 80), (80, 92), (92, 96))
    for (name, blob), (least, most) in zip(heads, sizes, strict=True):
        ratios = [2.0, 3.0] if most else [2.0]
        priors = 6 if most else 3
        for kind, each in (("loc", 4), ("conf", classes)):
            head = f"{name}_mbox_{kind}"
            net.conv(head, priors * each, 1, blob)
            net.add("Permute", f"{head}_perm", order=[0, 2, 3, 1])
            parts[kind].append(net.add("Flatten", f"{head}_flat", axis=1))
        more: dict[str, Any] = {"max_size": most} if most else {}
        box = net.add(
            *("PriorBox", f"{name}_mbox_priorbox", blob, "data"),
            min_size=least,
            aspect_ratio=ratios,
            flip=True,
            clip=False,
            variance=[0.1, 0.1, 0.2, 0.2],
            offset=0.5,
            **more,
        )
        parts["priorbox"].append(box)
    net.add("Concat", "mbox_loc", *parts["loc"], axis=1)
    net.add("Concat", "mbox_conf", *parts["conf"], axis=1)
    net.add("Reshape", "mbox_conf_reshape", shape={"dim": [0, -1, classes]})
    net.add("Softmax", "mbox_conf_softmax", axis=2)
    net.add("Flatten", "mbox_conf_flatten", axis=1)
    net.add("Concat", "mbox_priorbox", *parts["priorbox"], axis=2)
    net.add(
        *("DetectionOutput", "detection_out", "mbox_loc", "mbox_conf_flatten", "mbox_priorbox"),
        num_classes=classes,
        share_location=True,
        background_label_id=0,
        nms_param={"nms_threshold": 0.45, "top_k": 100},
        code_type=Word("CENTER_SIZE"),
        keep_top_k=100,
        confidence_threshold=0.25,
    )


NETWORKS: Mapping[str, Callable[[], KnownNet]] = {
    "alexnet": cache(alexnet),
    "googlenet": cache(googlenet),
    "squeezenet": cache(squeezenet),
    "mobilenet_ssd": cache(mobilenet_ssd),
}
