from __future__ import annotations

from collections.abc import Mapping

import onnx
from support.contracts.rewrites import MakeModel, Refused, RewriteRuleTests
from support.contracts.small_models import SmallModel


def before(*, kernel: int = 1, pads: int = 0, groups: int = 1) -> onnx.ModelProto:
    model = SmallModel()
    made = model.batch_norm(model.input(2, 12, 6, 5), 12)
    return model.model(model.conv(made, 12, 8, kernel, pads=[pads] * 4, group=groups))


def before_and_shared() -> onnx.ModelProto:
    model = SmallModel()
    made = model.batch_norm(model.input(1, 8, 6, 5), 8)
    return model.model(model.conv(made, 8, 8), model.op("Relu", made))


def between() -> onnx.ModelProto:
    model = SmallModel()
    made = model.batch_norm(model.conv(model.input(1, 8, 6, 5), 8, 8), 8)
    return model.model(model.conv(made, 8, 8))


def behind_sum() -> onnx.ModelProto:
    model = SmallModel()
    x = model.input(2, 8, 6, 5)
    total = model.op("Add", model.conv(x, 8, 12, 3), model.conv(x, 8, 12))
    return model.model(model.op("Relu", model.batch_norm(total, 12)))


def behind_join() -> onnx.ModelProto:
    model = SmallModel()
    x = model.input(1, 8, 8, 8)
    one, other = model.conv(x, 8, 4), model.conv(x, 8, 8, 3)
    whole = model.op("Concat", one, other, axis=1)
    mean = model.op("AveragePool", whole, kernel_shape=[3, 3], pads=[1] * 4, strides=[2, 2])
    return model.model(model.batch_norm(mean, 12))


def behind_residual() -> onnx.ModelProto:
    model = SmallModel()
    x = model.input(1, 8, 8, 8)
    return model.model(model.batch_norm(model.op("Add", model.conv(x, 8, 8), x), 8))


def behind_counted_zeros() -> onnx.ModelProto:
    model = SmallModel()
    made = model.conv(model.input(1, 8, 8, 8), 8, 8)
    mean = model.op("AveragePool", made, kernel_shape=[3, 3], pads=[1] * 4, count_include_pad=1)
    return model.model(model.batch_norm(mean, 8))


class TestBeforeRule(RewriteRuleTests):
    rule_name = "batch-norm-into-next"
    matching: Mapping[str, MakeModel] = {
        "pointwise": before,
        "window": lambda: before(kernel=3),
        "grouped": lambda: before(kernel=2, groups=4),
    }
    refused: Mapping[str, Refused] = {
        "padded": (lambda: before(kernel=3, pads=1), "pads with zeros"),
        "shared": (before_and_shared, ""),
        "between two": (between, ""),
    }


class TestBehindRule(RewriteRuleTests):
    rule_name = "batch-norm-into-makers"
    matching: Mapping[str, MakeModel] = {"sum": behind_sum, "join": behind_join}
    refused: Mapping[str, Refused] = {
        "residual": (behind_residual, "made by no node"),
        "counted zeros": (behind_counted_zeros, "counts zeros"),
    }


def gated(
    *, batch: int = 1, kernel: int = 1, bias: bool = True, turned: bool = False, groups: int = 1
) -> onnx.ModelProto:
    model = SmallModel()
    x = model.input(batch, 12, 6, 5)
    gate = model.op("Sigmoid", model.conv(model.op("GlobalAveragePool", x), 12, 12))
    made = model.op("Mul", *((gate, x) if turned else (x, gate)))
    if bias:
        return model.model(model.conv(made, 12, 8, kernel, group=groups))
    return model.model(model.op("Conv", made, model.weight(8, 12, 1, 1)))


def shared() -> onnx.ModelProto:
    model = SmallModel()
    made = model.op("Mul", model.input(1, 8, 6, 5), model.input(1, 8, 1, 1))
    return model.model(model.conv(made, 8, 8), model.op("Relu", made))


class TestGateRule(RewriteRuleTests):
    rule_name = "gate-into-weights"
    matching: Mapping[str, MakeModel] = {
        "squeeze and excite": gated,
        "turned": lambda: gated(turned=True),
        "without bias": lambda: gated(bias=False),
    }
    refused: Mapping[str, Refused] = {
        "two images": (lambda: gated(batch=2), "2 images"),
        "window": (lambda: gated(kernel=3), "kernel is"),
        "grouped": (lambda: gated(groups=2), "2 groups"),
        "shared": (shared, ""),
    }
    odd_values = False


def transposed(
    size: int = 2, *, stride: int = 0, bias: bool = True, groups: int = 1, **attributes: object
) -> onnx.ModelProto:
    model = SmallModel()
    x = model.input(2, 6, 5, 3)
    inputs = [x, model.weight(6, 4, size, size)]
    if bias:
        inputs.append(model.weight(4 * groups))
    strides = [stride or size] * 2
    made = model.op("ConvTranspose", *inputs, strides=strides, group=groups, **attributes)
    return model.model(model.op("Relu", made))


class TestTransposedRule(RewriteRuleTests):
    rule_name = "transposed-to-pixel-shuffle"
    matching: Mapping[str, MakeModel] = {
        "two": transposed,
        "three without bias": lambda: transposed(3, bias=False),
    }
    refused: Mapping[str, Refused] = {
        "overlapping": (lambda: transposed(3, stride=2), "overlap"),
        "padded": (lambda: transposed(pads=[1, 1, 1, 1]), "pads"),
        "grouped": (lambda: transposed(groups=2), "2 groups"),
        "more at the end": (lambda: transposed(output_padding=[1, 1]), "output_padding"),
    }
