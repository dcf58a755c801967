from __future__ import annotations

from collections.abc import Mapping

import onnx
from support.contracts.rewrites import MakeModel, Refused, RewriteRuleTests
from support.contracts.small_models import SmallModel


def c2f(*, parts: tuple[int, ...] = (16, 16), bias: bool = True) -> onnx.ModelProto:
    model = SmallModel()
    x = model.input(1, 16, 9, 7)
    if bias:
        made = model.conv(x, 16, sum(parts))
    else:
        made = model.op("Conv", x, model.weight(sum(parts), 16, 3, 3), kernel_shape=[3, 3])
    whole = model.silu(made)
    split = model.ops("Split", whole, model.constant(parts), outputs=len(parts), axis=1)
    return model.model(*split)


def per_channel() -> onnx.ModelProto:
    model = SmallModel()
    x = model.input(2, 6, 5, 3)
    made = model.op("PRelu", model.conv(x, 6, 10, 3), model.positive(10, 1, 1))
    made = model.batch_norm(model.op("Mul", made, model.weight(1, 10, 1, 1)), 10)
    made = model.op("Clip", made, model.constant(0.0), model.constant(6.0))
    return model.model(*model.ops("Split", made, model.constant([4, 6]), outputs=2, axis=-3))


def one_dimensional() -> onnx.ModelProto:
    model = SmallModel()
    x = model.input(2, 6, 11)
    made = model.op("Conv", x, model.weight(8, 6, 3), strides=[2])
    return model.model(*model.ops("Split", made, model.constant([5, 3]), outputs=2, axis=1))


def grouped_split() -> onnx.ModelProto:
    model = SmallModel()
    x = model.input(1, 8, 5, 5)
    made = model.conv(x, 8, 8, 3, group=8)
    return model.model(*model.ops("Split", made, model.constant([4, 4]), outputs=2, axis=1))


def shared_split() -> onnx.ModelProto:
    model = SmallModel()
    x = model.input(1, 8, 5, 5)
    made = model.conv(x, 8, 8)
    split = model.ops("Split", made, model.constant([4, 4]), outputs=2, axis=1)
    return model.model(*split, model.op("Relu", made))


def gated() -> onnx.ModelProto:
    model = SmallModel()
    x, gate = model.input(1, 8, 5, 5), model.input(1, 8, 1, 1)
    made = model.op("Mul", model.conv(x, 8, 8), gate)
    return model.model(*model.ops("Split", made, model.constant([4, 4]), outputs=2, axis=1))


def split_rows() -> onnx.ModelProto:
    model = SmallModel()
    made = model.conv(model.input(1, 8, 6, 5), 8, 8)
    return model.model(*model.ops("Split", made, model.constant([3, 3]), outputs=2, axis=2))


def changing_weights() -> onnx.ModelProto:
    model = SmallModel()
    made = model.op("Conv", model.input(1, 4, 6, 5), model.input(8, 4, 1, 1))
    return model.model(*model.ops("Split", made, model.constant([4, 4]), outputs=2, axis=1))


class TestSplitRule(RewriteRuleTests):
    rule_name = "convolution-split"
    matching: Mapping[str, MakeModel] = {
        "c2f": c2f,
        "uneven": lambda: c2f(parts=(3, 1, 20)),
        "without bias": lambda: c2f(bias=False),
        "constants per channel": per_channel,
        "one dimension": one_dimensional,
    }
    refused: Mapping[str, Refused] = {
        "grouped_split": (grouped_split, "groups"),
        "shared_split": (shared_split, "is read by"),
        "gated": (gated, "broadcasts"),
        "of rows": (split_rows, ""),
        "changing weights": (changing_weights, "not constant"),
    }


def joined(*channels: int, kernel: int = 1, rank: int = 4) -> onnx.ModelProto:
    model = SmallModel()
    parts = [model.input(2, count, 5, 7) for count in channels]
    made = model.conv(model.op("Concat", *parts, axis=1), sum(channels), 12, kernel)
    return model.model(model.op("Relu", made))


def behind_chain() -> onnx.ModelProto:
    model = SmallModel()
    parts = [model.input(1, count, 6, 6) for count in (8, 24)]
    whole = model.op("Relu", model.batch_norm(model.op("Concat", *parts, axis=-3), 32))
    weight = model.weight(16, 32, 1, 1)
    return model.model(model.op("Conv", whole, weight))


def shared_join() -> onnx.ModelProto:
    model = SmallModel()
    whole = model.op("Concat", model.input(1, 4, 6, 6), model.input(1, 4, 6, 6), axis=1)
    return model.model(model.conv(whole, 8, 4), model.op("Relu", whole))


def joined_rows() -> onnx.ModelProto:
    model = SmallModel()
    whole = model.op("Concat", model.input(1, 4, 3, 6), model.input(1, 4, 3, 6), axis=2)
    return model.model(model.conv(whole, 4, 4))


def grouped_join() -> onnx.ModelProto:
    model = SmallModel()
    whole = model.op("Concat", model.input(1, 4, 3, 6), model.input(1, 4, 3, 6), axis=1)
    return model.model(model.conv(whole, 8, 4, group=2))


class TestJoinedRule(RewriteRuleTests):
    rule_name = "concat-convolution-sum"
    matching: Mapping[str, MakeModel] = {
        "two": lambda: joined(16, 16),
        "uneven": lambda: joined(3, 1, 8, kernel=3),
        "behind batch normalisation": behind_chain,
    }
    refused: Mapping[str, Refused] = {
        "many": (lambda: joined(*[4] * 9), "9 parts"),
        "shared_join": (shared_join, "is read by"),
        "rows": (joined_rows, "no channels"),
        "grouped_join": (grouped_join, "2 groups"),
    }


def narrow(*channels: int, shared: bool = False, groups: int = 1) -> onnx.ModelProto:
    model = SmallModel()
    x = model.input(1, 16, 6, 5)
    parts = [model.silu(model.conv(x, 16, count, 3)) for count in channels]
    parts[0] = model.op("Div", parts[0], model.positive(channels[0], 1, 1))
    whole = model.op("Concat", *parts, axis=1)
    made = model.op("Relu", model.batch_norm(whole, sum(channels)))
    made = model.conv(made, sum(channels), 16, group=groups)
    return model.model(made, model.op("Relu", parts[0])) if shared else model.model(made)


class TestWidenRule(RewriteRuleTests):
    rule_name = "channels-to-whole-blocks"
    matching: Mapping[str, MakeModel] = {
        "two": lambda: narrow(28, 32),
        "uneven": lambda: narrow(13, 30, 31),
    }
    refused: Mapping[str, Refused] = {
        "whole": (lambda: narrow(16, 32), ""),
        "shared": (lambda: narrow(28, 32, shared=True), "read by others"),
        "too few": (lambda: narrow(2, 3), "would become 32"),
        "grouped": (lambda: narrow(28, 32, groups=2), "2 groups"),
    }
    odd_values = False


def shuffled(
    *, groups: int = 3, depthwise: bool = False, last_groups: int = 1, batch: int = 2
) -> onnx.ModelProto:
    model = SmallModel()
    x = model.input(batch, 12, 5, 7)
    apart = model.op("Reshape", x, model.constant([batch, groups, 12 // groups, 5, 7]))
    turned = model.op("Transpose", apart, perm=[0, 2, 1, 3, 4])
    made = model.op("Reshape", turned, model.constant([batch, 12, 5, 7]))
    made = model.op("PRelu", made, model.positive(12, 1, 1))
    if depthwise:
        made = model.conv(made, 12, 12, 3, group=12)
        made = model.batch_norm(made, 12)
    return model.model(model.conv(made, 12, 8, group=last_groups))


def other_order() -> onnx.ModelProto:
    model = SmallModel()
    x = model.input(1, 12, 6, 6)
    apart = model.op("Reshape", x, model.constant([1, 3, 4, 6, 6]))
    turned = model.op("Transpose", apart, perm=[0, 2, 1, 4, 3])
    made = model.op("Reshape", turned, model.constant([1, 12, 6, 6]))
    return model.model(model.conv(made, 12, 8))


class TestShuffleRule(RewriteRuleTests):
    rule_name = "shuffle-into-weights"
    matching: Mapping[str, MakeModel] = {
        "pointwise": shuffled,
        "through depthwise": lambda: shuffled(groups=4, depthwise=True),
    }
    refused: Mapping[str, Refused] = {
        "grouped": (lambda: shuffled(last_groups=2), "groups, whose channels"),
        "grouped behind depthwise": (
            lambda: shuffled(depthwise=True, last_groups=4),
            "groups, whose channels",
        ),
        "another order": (other_order, ""),
    }


def several_filters(
    count: int = 2, *, groups: int = 1, chain: str = "Relu", stride: int = 1, shared: bool = False
) -> onnx.ModelProto:
    model = SmallModel()
    x, channels = model.op("Relu", model.input(2, 6, 9, 7)), 6 * count
    made = model.conv(x, 6, channels, 3, group=6, strides=[stride] * 2)
    wide = made
    if chain == "constants":
        made = model.op("PRelu", model.batch_norm(made, channels), model.positive(channels, 1, 1))
    elif chain:
        made = model.silu(made) if chain == "SiLU" else model.op(chain, made)
    result = model.conv(made, channels, 8, group=groups)
    return model.model(result, *([model.op("Neg", wide)] if shared else []))


def several_filters_of_a_signal() -> onnx.ModelProto:
    model = SmallModel()
    x = model.input(1, 5, 12)
    made = model.op("Conv", x, model.weight(15, 1, 4), group=5, strides=[2])
    return model.model(model.op("Conv", made, model.weight(4, 15, 1), model.weight(4)))


class TestFiltersRule(RewriteRuleTests):
    rule_name = "channel-filters-apart"
    matching: Mapping[str, MakeModel] = {
        "two": several_filters,
        "three, stride": lambda: several_filters(3, stride=2, chain="SiLU"),
        "four, constants": lambda: several_filters(4, chain="constants"),
        "signal": several_filters_of_a_signal,
    }
    refused: Mapping[str, Refused] = {
        "one": (lambda: several_filters(1), ""),
        "five": (lambda: several_filters(5), "5 filters"),
        "grouped": (lambda: several_filters(groups=2), "groups, whose channels"),
        "shared": (lambda: several_filters(shared=True), "is read by"),
    }


def in_groups(
    groups: int, read: int, made: int | None = None, *, kernel: int = 3, stride: int = 1
) -> onnx.ModelProto:
    model = SmallModel()
    before, after = groups * read, groups * (made or read)
    x = model.op("Relu", model.input(2, before, 5, 6))
    made_of = model.conv(x, before, after, kernel, group=groups, strides=[stride] * 2)
    return model.model(model.op("Relu", made_of))


class TestGroupsRule(RewriteRuleTests):
    rule_name = "groups-to-whole-blocks"
    odd_values = False
    matching: Mapping[str, MakeModel] = {
        "8": lambda: in_groups(4, 8),
        "24, stride": lambda: in_groups(2, 24, stride=2),
        "8 of 16": lambda: in_groups(6, 16, 8, kernel=1),
    }
    refused: Mapping[str, Refused] = {
        "whole": (lambda: in_groups(2, 16), ""),
        "depthwise": (lambda: in_groups(16, 1), ""),
        "one": (lambda: in_groups(1, 8), ""),
        "odd": (lambda: in_groups(5, 8), "5 groups are no multiple of 2"),
        "narrow": (lambda: in_groups(8, 4), "4 groups of 4 channels"),
    }
