from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import TensorProto
from support.contracts.rewrites import MakeModel, Refused, RewriteRuleTests
from support.contracts.small_models import SmallModel


def mean(
    *shape: int, axes: tuple[int, ...] = (2, 3), keepdims: int = 1, opset: int = 17
) -> onnx.ModelProto:
    model = SmallModel(opset=opset)
    x = model.input(*shape)
    if opset < 18:
        return model.model(model.op("ReduceMean", x, axes=axes, keepdims=keepdims))
    return model.model(model.op("ReduceMean", x, model.constant(axes), keepdims=keepdims))


def changing_axes() -> onnx.ModelProto:
    model = SmallModel(opset=18)
    x, axes = model.input(1, 2, 3, 4), model.input(2, dtype=TensorProto.INT64)
    return model.model(model.op("Relu", model.op("ReduceMean", x, axes)))


class TestMeanRule(RewriteRuleTests):
    rule_name = "mean-to-global-pool"
    matching: Mapping[str, MakeModel] = {
        "kept": lambda: mean(1, 16, 7, 7),
        "dropped": lambda: mean(2, 5, 3, 9, keepdims=0),
        "from behind": lambda: mean(1, 16, 5, 1, axes=(-1, -2), opset=18),
        "one dimension": lambda: mean(1, 3, 33, axes=(2,)),
    }
    refused: Mapping[str, Refused] = {
        "channels": (lambda: mean(1, 16, 7, 7, axes=(1, 2, 3)), "axes"),
        "rows": (lambda: mean(1, 16, 7, 7, axes=(2,)), "axes"),
        "changing axes": (changing_axes, "not known"),
    }


def power(exponent: float, before: str = "Identity", *, of_one: bool = False) -> onnx.ModelProto:
    model = SmallModel()
    x = model.input(1) if of_one else model.input(3, 5)
    if of_one:
        exponents = model.constant(np.full((1, 1), exponent, np.float32))
        return model.model(model.op("Pow", x, exponents))
    if before == "Add":
        x = model.op("Add", model.op("Mul", x, x), model.constant(1e-3))
    elif before != "Identity":
        x = model.op(before, x)
    return model.model(model.op("Neg", model.op("Pow", x, model.constant(exponent))))


class TestPowerRule(RewriteRuleTests):
    rule_name = "power-as-product"
    matching: Mapping[str, MakeModel] = {
        "square": lambda: power(2.0),
        "cube": lambda: power(3.0),
        "fourth": lambda: power(4.0),
        "reciprocal": lambda: power(-1.0),
        "root": lambda: power(0.5, "Abs"),
        "reciprocal root": lambda: power(-0.5, "Add"),
    }
    refused: Mapping[str, Refused] = {
        "another": (lambda: power(1.7), "exponent is 1.7"),
        "root of anything": (lambda: power(0.5), "minus infinity"),
        "broadcasting": (lambda: power(2.0, of_one=True), "broadcasts"),
    }


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
