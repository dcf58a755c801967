from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from support.contracts.rewrites import (
    MakeModel,
    Refused,
    RewriteRuleTests,
    feed_of,
    rewritten,
    run_model,
)
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


def branches(
    kernels: Sequence[int] = (3, 1),
    *,
    channels: tuple[int, int] = (8, 8),
    groups: int = 1,
    stride: int = 1,
    identity: str = "",
    last: str = "",
    **attributes: Any,
) -> onnx.ModelProto:
    """A sum of convolutions of one tensor; `identity` adds the tensor itself in that form."""
    model = SmallModel()
    x = model.op("Relu", model.input(2, channels[0], 7, 9))
    terms = []
    for number, kernel in enumerate(kernels):
        made = model.conv(x, *channels, kernel, group=groups, strides=[stride] * 2, **attributes)
        terms.append(model.batch_norm(made, channels[1]) if number % 2 else made)
    if identity:
        terms.append(x if identity == "plain" else model.batch_norm(x, channels[0]))
    total = model.op("Sum", *terms) if last == "Sum" else terms[0]
    for term in terms[1:] if last != "Sum" else ():
        total = model.op("Add", total, term)
    if last == "Gelu":  # a quotient and a product read the sum
        root = model.op("Erf", model.op("Div", total, model.constant(2**0.5)))
        half = model.op("Mul", total, model.op("Add", root, model.constant(1.0)))
        return model.model(model.op("Mul", half, model.constant(0.5)))
    return model.model(model.op("Relu", total))


def of_one_axis() -> onnx.ModelProto:
    model = SmallModel()
    x = model.input(2, 6, 11)
    made = [
        model.op("Conv", x, model.weight(6, 3, extent), group=2, pads=[extent // 2] * 2)
        for extent in (5, 1, 3)
    ]
    return model.model(model.op("Add", model.op("Add", made[0], x), model.op("Add", *made[1:])))


def of_rows_and_columns(*, square: bool = True) -> onnx.ModelProto:
    """ACNet: a square filter, a row and a column."""
    model = SmallModel()
    x = model.input(1, 4, 8, 6)
    windows = (((1, 3), [0, 1, 0, 1]), ((3, 1), [1, 0, 1, 0]))
    terms = [model.op("Conv", x, model.weight(6, 4, *size), pads=pads) for size, pads in windows]
    if square:
        terms.append(model.conv(x, 4, 6, 3))
    return model.model(model.op("Sum", *terms))


def of_even_windows() -> onnx.ModelProto:
    """The smaller filter reads places of the larger one that are not in its middle."""
    model = SmallModel()
    x = model.input(1, 4, 8, 6)
    large = model.op("Conv", x, model.weight(6, 4, 4, 4), pads=[1, 2, 2, 1])
    small = model.op("Conv", x, model.weight(6, 4, 2, 2), pads=[1, 0, 0, 1])
    return model.model(model.op("Add", small, large))


def of_dilated_windows(*, wide: int = 2) -> onnx.ModelProto:
    model = SmallModel()
    x = model.input(1, 4, 9, 9)
    large = model.conv(x, 4, 4, 5, pads=[2] * 4)
    small = model.conv(x, 4, 4, 3, pads=[wide] * 4, dilations=[wide] * 2)
    return model.model(model.op("Add", small, large))


def mixer() -> onnx.ModelProto:
    """RepMixer of FastViT: x + scale * (branches(x) - normalised x), the scale a channel."""
    model = SmallModel()
    x = model.op("Add", model.input(1, 6, 8, 8), model.input(1, 6, 8, 8))
    mixed = model.op("Add", model.conv(x, 6, 6, 3, group=6), model.batch_norm(x, 6))
    mixed = model.op("Add", mixed, model.conv(x, 6, 6, 1, group=6))
    changed = model.op("Sub", mixed, model.batch_norm(x, 6))
    scaled = model.op("Mul", model.weight(6, 1, 1), changed)
    return model.model(model.op("Add", x, scaled))


def with_constants_among() -> onnx.ModelProto:
    """Constants are added, subtracted, multiplied and divided by, and zeros take channels away."""
    model = SmallModel()
    x = model.input(1, 4, 5, 6)
    one = model.op("Div", model.conv(x, 4, 4, 3), model.positive(1, 4, 1, 1))
    other = model.op("Mul", model.op("Sub", model.weight(4, 1, 1), x), model.constant(0.5))
    total = model.op("Add", model.op("Sub", one, other), model.weight(1))
    return model.model(model.op("Mul", total, model.constant(np.zeros((4, 1, 1), np.float32))))


def of_one_place() -> onnx.ModelProto:
    """Filters of other strides that make as many results: of the first place alone."""
    model = SmallModel()
    x = model.input(1, 4, 2, 2)
    made = [model.conv(x, 4, 4, 2, strides=[step] * 2, pads=[0] * 4) for step in (1, 2)]
    return model.model(model.op("Add", *made))


def over_the_image() -> onnx.ModelProto:
    """A factor for each column is none for each channel."""
    model = SmallModel()
    x = model.input(1, 4, 5, 4)
    return model.model(model.op("Add", model.conv(x, 4, 4, 3), model.op("Mul", x, model.weight(4))))


def of_computed_weights() -> onnx.ModelProto:
    model = SmallModel()
    x, weight = model.input(1, 4, 5, 5), model.input(4, 4, 1, 1)
    return model.model(model.op("Add", model.op("Conv", x, weight), x))


def of_automatic_padding() -> onnx.ModelProto:
    model = SmallModel()
    x = model.input(1, 4, 5, 5)
    made = model.op("Conv", x, model.weight(4, 4, 3, 3), auto_pad="SAME_UPPER")
    return model.model(model.op("Add", made, x))


def without_end() -> onnx.ModelProto:
    model = SmallModel()
    x = model.input(1, 4, 5, 5)
    large = model.constant(np.full((4, 1, 1), 3e38, np.float32))
    return model.model(model.op("Mul", model.op("Add", model.conv(x, 4, 4, 3), x), large))


class TestParallelRule(RewriteRuleTests):
    rule_name = "parallel-branches-merged"
    odd_values = False
    matching: Mapping[str, MakeModel] = {
        "RepVGG": lambda: branches(identity="normalised"),
        "identity": lambda: branches((3,), identity="plain"),
        "depthwise": lambda: branches((7, 3), groups=8, identity="normalised"),
        "groups": lambda: branches((3, 1, 3), groups=2, identity="plain", last="Sum"),
        "several filters a channel": lambda: branches((7, 3), channels=(8, 16), groups=8, stride=2),
        "stride": lambda: branches((1, 5, 3), channels=(6, 10), stride=2),
        "one axis": of_one_axis,
        "rows and columns": of_rows_and_columns,
        "even windows": of_even_windows,
        "dilated": of_dilated_windows,
        "mixer": mixer,
        "GELU behind": lambda: branches(last="Gelu"),
        "constants": with_constants_among,
    }
    refused: Mapping[str, Refused] = {
        "rows and columns alone": (lambda: of_rows_and_columns(square=False), "does not"),
        "other taps": (lambda: of_dilated_windows(wide=3), "does not"),
        "other stride": (of_one_place, "other places"),
        "broadcast": (lambda: branches((3,), channels=(1, 8), identity="plain"), "keeps them"),
        "automatic": (of_automatic_padding, "pads as SAME_UPPER"),
        "one branch": (lambda: branches((3,)), ""),
        "columns": (over_the_image, ""),
        "computed": (of_computed_weights, ""),
        "overflow": (without_end, "not finite"),
    }

    def test_what_is_not_finite_stays_so(self) -> None:
        original = of_rows_and_columns()
        model, _ = rewritten(original, self.rule)
        feed = feed_of(original, special=(np.nan, np.inf, -np.inf, 0.0))
        (expected,), (actual,) = (run_model(one, feed, optimize=True) for one in (original, model))
        assert np.isfinite(expected).any() and not np.isfinite(expected).all()
        assert (np.isfinite(expected) == np.isfinite(actual)).all()

    def test_weights_are_summed_once(self) -> None:
        """One convolution is left, whose weights are those of a sum in float64."""
        original = branches(identity="plain")
        model, rounds = rewritten(original, self.rule)
        kinds = [node.op_type for node in model.graph.node]
        assert (rounds, kinds) == (1, ["Relu", "Conv", "Relu"])
        largest = next(node for node in original.graph.node if node.op_type == "Conv")
        assert model.graph.node[1].name == largest.name  # under which the user knows it
