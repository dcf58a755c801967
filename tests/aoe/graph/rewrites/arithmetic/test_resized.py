from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from support.contracts.rewrites import MakeModel, Refused, RewriteRuleTests
from support.contracts.small_models import SmallModel


def resized(
    *scales: float,
    coordinates: str = "half_pixel",
    rounding: str = "round_prefer_floor",
    mode: str = "nearest",
    by_sizes: bool = False,
) -> onnx.ModelProto:
    model = SmallModel()
    shape = (1, 2, 3, 5, 4)[: len(scales)]
    x = model.input(*shape)
    inputs = [x, "", model.constant(np.array(scales, np.float32))]
    if by_sizes:
        sizes = [round(a * b) for a, b in zip(shape, scales, strict=True)]
        inputs = [x, "", "", model.constant(sizes)]
    made = model.op(
        "Resize",
        *inputs,
        mode=mode,
        nearest_mode=rounding,
        coordinate_transformation_mode=coordinates,
    )
    return model.model(model.op("Relu", made))


ALIGNED = "align_corners"


class TestPlainResizeRule(RewriteRuleTests):
    rule_name = "resize-to-blocked-form"
    matching: Mapping[str, MakeModel] = {
        "two": lambda: resized(1, 1, 2, 2),
        "three and four": lambda: resized(1, 1, 3, 4, rounding="round_prefer_ceil"),
        "by sizes": lambda: resized(1, 1, 2, 3, by_sizes=True),
    }
    refused: Mapping[str, Refused] = {
        "done": (lambda: resized(1, 1, 2, 2, coordinates="asymmetric", rounding="floor"), ""),
        "no whole factor": (lambda: resized(1, 1, 1.5, 2), "scales are"),
        "aligned": (lambda: resized(1, 1, 2, 2, coordinates=ALIGNED), "takes other elements"),
        "linear": (lambda: resized(1, 1, 2, 2, mode="linear"), ""),
    }


class TestVolumeResizeRule(RewriteRuleTests):
    rule_name = "resize-volume-as-images"
    matching: Mapping[str, MakeModel] = {
        "all": lambda: resized(1, 1, 2, 2, 2, coordinates="asymmetric", rounding="floor"),
        "depth": lambda: resized(1, 1, 3, 1, 1),
    }
    refused: Mapping[str, Refused] = {
        "image": (lambda: resized(1, 1, 2, 2), ""),
        "channels": (lambda: resized(1, 2, 2, 2, 2), "channels"),
        "aligned": (lambda: resized(1, 1, 2, 2, 2, coordinates=ALIGNED), "takes other elements"),
    }
