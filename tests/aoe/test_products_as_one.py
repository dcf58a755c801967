"""What gets in the way of two products that become one kernel: other readers, odd ends, sharing.

The first guess of every family is put into each model; whether both become one or stay apart, it
computes what it did.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from support.contracts.kernels import block_size
from support.engine.first_guesses import FirstGuesses
from support.engine.subgraphs import NetworkBuilder
from support.tiers import chosen_every_day

from aoe.ort.sessions import run_session

_EXTENTS = (13, 7)
Make = Callable[[], onnx.ModelProto]


class _Mobile(NetworkBuilder):
    """A pointwise convolution, one of each channel behind it, and a pointwise one again."""

    def expanded(self, x: str, before: int, wide: int, act: str = "Relu") -> str:
        """Add the first of them and its activation."""
        return self.activated(self.conv(x, before, wide, 1), act)

    def activated(self, x: str, act: str) -> str:
        """Add an activation; HardSwish of two operators."""
        if act == "HardSwish":
            gate = self.node("HardSigmoid", [x], alpha=1 / 6, beta=0.5)
            return self.node("Mul", [x, gate])
        if act == "Clip":
            ends = [self.constant(np.array(value, np.float32)) for value in (0, 6)]
            return self.node("Clip", [x, *ends])
        return self.node(act, [x])

    def filtered(self, x: str, channels: int, **attributes: Any) -> str:
        """Add the second of them."""
        pads = {} if "auto_pad" in attributes else {"pads": [1] * 4}
        given: dict[str, Any] = {"kernel_shape": [3, 3], **pads, **attributes}
        weights = self.weights(channels, 1, *given["kernel_shape"])
        bias = self.scales(channels)[1]
        return self.node("Conv", [x, weights, bias], group=channels, **given)


def _model(
    net: NetworkBuilder, results: Sequence[str], channels: int = 16, batch: int = 1
) -> onnx.ModelProto:
    return net.model_of("x", (batch, channels, *_EXTENTS), results)


def _plain(
    *, channels: int = 16, wide: int = 48, act: str = "Relu", batch: int = 1, **attributes: Any
) -> Make:
    def make() -> onnx.ModelProto:
        net = _Mobile(batch=batch)
        first = net.expanded("x", channels, wide, act)
        second = net.activated(net.filtered(first, wide, **attributes), act)
        return _model(net, [net.conv(second, wide, channels, 1)], channels, batch)

    return make


def _between_is_a_result() -> onnx.ModelProto:
    net = _Mobile()
    first = net.expanded("x", 16, 32)
    return _model(net, [net.conv(net.filtered(first, 32), 32, 16, 1), first])


def _sums_are_a_result() -> onnx.ModelProto:
    """What lies in front of the activation is given back; behind it both go on."""
    net = _Mobile()
    sums = net.conv("x", 16, 32, 1)
    first = net.activated(sums, "HardSwish")
    return _model(net, [net.conv(net.filtered(first, 32), 32, 16, 1), sums])


def _two_readers() -> onnx.ModelProto:
    net = _Mobile()
    first = net.expanded("x", 16, 32)
    parts = [net.filtered(first, 32), net.filtered(first, 32, kernel_shape=[5, 5], pads=[2] * 4)]
    return _model(net, [net.conv(net.node("Add", parts), 32, 16, 1)])


def _gate_of_the_first() -> onnx.ModelProto:
    net = _Mobile()
    first = net.expanded("x", 16, 32)
    gate = net.node("Sigmoid", [net.conv(net.mean(first), 32, 32, 1)])
    return _model(net, [net.node("Mul", [net.filtered(first, 32), gate])])


def _input_is_added() -> onnx.ModelProto:
    net = _Mobile()
    x = net.conv("x", 16, 32)
    second = net.filtered(net.expanded(x, 32, 32), 32)
    return _model(net, [net.conv(net.node("Add", [second, x]), 32, 16, 1)])


def _between_is_added() -> onnx.ModelProto:
    net = _Mobile()
    first = net.expanded("x", 16, 32)
    second = net.node("Relu", [net.node("Add", [net.filtered(first, 32), first])])
    return _model(net, [net.conv(second, 32, 16, 1)])


def _in_a_row() -> onnx.ModelProto:
    net = _Mobile()
    x = "x"
    for _ in range(2):
        x = net.filtered(net.expanded(x, 16, 16), 16)
    return _model(net, [x])


def _weights_may_be_replaced() -> onnx.ModelProto:
    net = _Mobile()
    first = net.expanded("x", 16, 32)
    proto = _model(net, [net.conv(net.filtered(first, 32), 32, 16, 1)])
    node = next(one for one in proto.graph.node if one.op_type == "Conv")
    tensor = next(one for one in proto.graph.initializer if one.name == node.input[1])
    value = helper.make_tensor_value_info(tensor.name, TensorProto.FLOAT, tuple(tensor.dims))
    proto.graph.input.append(value)
    return proto


_EXPANSIONS: Mapping[str, Make] = {
    "as it is": _plain(),
    "channels that fill no block": _plain(channels=24, wide=60),
    "prime channels": _plain(channels=17, wide=34),
    "stride 2, zeros at the end only": _plain(strides=[2, 2], pads=[0, 0, 1, 1], act="Clip"),
    "zeros at the beginning only": _plain(pads=[2, 2, 0, 0], act="HardSwish"),
    "padding by rule": _plain(auto_pad="SAME_LOWER", strides=[2, 2]),
    "no padding": _plain(kernel_shape=[5, 3], pads=[0] * 4),
    "filter larger than the image": _plain(kernel_shape=[9, 9], pads=[4] * 4),
    "dilated beyond the image": _plain(dilations=[14, 8], pads=[14, 8, 14, 8]),
    "dilated, to one side": _plain(dilations=[1, 5], pads=[1, 7, 1, 0]),
    "stride beyond the filter": _plain(kernel_shape=[2, 2], strides=[3, 3], pads=[0] * 4),
    "three images": _plain(batch=3, act="HardSwish"),
    "what lies between is a result": _between_is_a_result,
    "sums are a result": _sums_are_a_result,
    "two filters of one image": _two_readers,
    "a gate of the first": _gate_of_the_first,
    "the input is added": _input_is_added,
    "what lies between is added": _between_is_added,
    "two in a row": _in_a_row,
    "weights may be replaced": _weights_may_be_replaced,
}


class _Heads(NetworkBuilder):
    """Attention of (batch, heads, steps, 8)."""

    def attention(self, query: str, key: str, value: str, order: Sequence[int] = ()) -> list[str]:
        """Add one; return scores, weights and result."""
        turned = self.node("Transpose", [key], perm=list(order or (0, 1, 3, 2)))
        scores = self.node("MatMul", [query, turned])
        half = self.constant(np.array(0.35, np.float32))
        scores = self.node("Mul", [scores, half])
        weights = self.node("Softmax", [scores], axis=-1)
        return [scores, weights, self.node("MatMul", [weights, value])]


def _attended(parts: Sequence[int], *, steps: int = 9, keys: int = 12, batch: int = 1) -> Make:
    """Return an attention that gives back some of scores, weights and result."""

    def make() -> onnx.ModelProto:
        net = _Heads()
        made = net.attention("x", "k", "v")
        found = [net.node("Tanh", [made[at]]) if at == 2 else made[at] for at in parts]
        return _of_heads(net, found, {"x": steps, "k": keys, "v": keys}, batch)

    return make


def _of_heads(
    net: NetworkBuilder, results: Sequence[str], steps: Mapping[str, int], batch: int = 1
) -> onnx.ModelProto:
    proto = net.model_of("x", (batch, 2, steps["x"], 8), results)
    for name, count in list(steps.items())[1:]:
        value = helper.make_tensor_value_info(name, TensorProto.FLOAT, (batch, 2, count, 8))
        proto.graph.input.append(value)
    return proto


def _of_itself(count: int) -> Make:
    """Return an attention whose queries, keys and values are one tensor."""

    def make() -> onnx.ModelProto:
        net = _Heads()
        return _of_heads(net, net.attention("x", "x", "x")[2:], {"x": count})

    return make


def _keys_are_values(count: int) -> Make:
    def make() -> onnx.ModelProto:
        net = _Heads()
        return _of_heads(net, net.attention("x", "k", "k")[2:], {"x": count, "k": 21})

    return make


def _one_key_for_two() -> onnx.ModelProto:
    net = _Heads()
    first = net.attention("x", "k", "v")[2]
    second = net.attention(first, "k", "v")[2]
    return _of_heads(net, [net.node("Add", [first, second])], {"x": 2, "k": 19, "v": 19})


def _with_a_cache(count: int) -> Make:
    """Return a step of decoding: keys and values that were put together are results, too."""

    def make() -> onnx.ModelProto:
        net = _Heads()
        key, value = (net.node("Concat", [name, "x"], axis=2) for name in "kv")
        made = net.attention("x", key, value)[2]
        return _of_heads(net, [made, key, value], {"x": count, "k": 31, "v": 31})

    return make


def _masked(shape: Sequence[int], value: float) -> Make:
    """Return an attention whose mask is computed, and may leave a query without keys."""

    def make() -> onnx.ModelProto:
        net = _Heads()
        mask = np.zeros(shape, np.float32)
        mask[..., 5:] = value
        scores = net.node("MatMul", ["x", net.node("Transpose", ["k"], perm=[0, 1, 3, 2])])
        scores = net.node("Add", [net.constant(mask), scores])
        made = net.node("MatMul", [net.node("Softmax", [scores], axis=3), "v"])
        return _of_heads(net, [made], {"x": shape[-2] if len(shape) > 2 else 2, "k": 12, "v": 12})

    return make


def _softmax_of_another_axis() -> onnx.ModelProto:
    net = _Heads()
    scores = net.node("MatMul", ["x", net.node("Transpose", ["k"], perm=[0, 1, 3, 2])])
    made = net.node("MatMul", [net.node("Softmax", [scores], axis=2), "v"])
    return _of_heads(net, [made], {"x": 9, "k": 12, "v": 12})


_ATTENTIONS: Mapping[str, Make] = {
    "as it is": _attended([2]),
    "one query": _attended([2], steps=1, keys=33),
    "two queries, batch of 3": _attended([2], steps=2, keys=17, batch=3),
    "three queries": _attended([2], steps=3, keys=17),
    "one key": _attended([2], steps=1, keys=1),
    "scores are a result": _attended([2, 0]),
    "weights are a result": _attended([2, 1], steps=2),
    "of itself": _of_itself(9),
    "one step of itself": _of_itself(2),
    "keys are values": _keys_are_values(9),
    "keys are values of one query": _keys_are_values(1),
    "keys of two": _one_key_for_two,
    "with a cache, one step": _with_a_cache(1),
    "with a cache, two steps": _with_a_cache(2),
    "mask of all": _masked((1, 1, 9, 12), -1e4),
    "mask of keys, infinite": _masked((1, 2, 2, 12), -np.inf),
    "softmax of another axis": _softmax_of_another_axis,
}
_CASES: Mapping[str, tuple[str, Make]] = {
    **{f"convolutions: {name}": ("convolution", make) for name, make in _EXPANSIONS.items()},
    **{f"attention: {name}": ("", make) for name, make in _ATTENTIONS.items()},
}


_EVERYDAY = ("convolutions: two filters of one image", "attention: scores are a result")


@pytest.mark.parametrize("label", chosen_every_day(_CASES, _EVERYDAY))
def test_model_computes_the_same(label: str, models: FirstGuesses) -> None:
    family, make = _CASES[label]
    kernels, before, after = models.sessions(make())
    if family and block_size():
        assert any(family in name for name in kernels), kernels
    rng = np.random.default_rng(5)
    feeds = [
        {
            value.name: (scale * rng.standard_normal(value.shape)).astype(np.float32)
            for value in before.get_inputs()
        }
        for scale in (1.0, 30.0)
    ]
    for feed in feeds:
        pairs = zip(run_session(before, feed), run_session(after, feed), strict=True)
        for expected, found in pairs:
            scale = np.abs(expected).max()
            np.testing.assert_allclose(found, expected, rtol=2e-3, atol=3e-5 * scale)
