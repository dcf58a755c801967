"""Blocks of networks for sequences: encoders, decoders with a cache, Conformer, RMS norms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from support.network_fuzz.layers import LayerWriter

_HIDDEN = -10000.0
_LOWEST = -np.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceBlocks:
    """Writes blocks one after another; each keeps (batch, steps, width)."""

    net: LayerWriter  # Where to
    steps: int  # Of a sequence
    width: int  # Of a step
    cached: int = 0  # Steps that keys and values of earlier runs are there for; 0 for none
    # Shapes of further inputs, keys and values of earlier runs, by name.
    caches: dict[str, tuple[int, ...]] = field(default_factory=dict)
    # Results that are keys and values for the next run.
    kept: list[str] = field(default_factory=list)

    def encoder(self, x: str) -> str:
        """Attention and products behind each other, normalised in front or behind."""
        net = self.net
        is_front = net.rng.random() < 0.5
        inner = net.layer_norm(x, self.width) if is_front else x
        x = self._added(x, self._attention(inner))
        x = x if is_front else net.layer_norm(x, self.width)
        inner = net.layer_norm(x, self.width) if is_front else x
        return self._added(x, self._feed_forward(inner))

    def decoder(self, x: str) -> str:
        """RMS norms, keys shared by heads and turned by their place, a gated product."""
        net = self.net
        x = self._added(x, self._grouped_attention(net.rms_norm(x, self.width)))
        inner, wide = net.rms_norm(x, self.width), 2 * self.width
        gate, up = (net.node("MatMul", [inner, net.weights(self.width, wide)]) for _ in range(2))
        act = net.rng.choice(["SiLU", "Gelu", "Relu"])
        hidden = net.node("Mul", [net.activated(gate, act, wide), up])
        return self._added(x, net.node("MatMul", [hidden, net.weights(wide, self.width)]))

    def conformer(self, x: str) -> str:
        """A filter over time between two products, gated, with what normalises a batch."""
        net, width = self.net, self.width
        turned = net.transpose(net.layer_norm(x, width), 0, 2, 1)
        whole = net.node("Conv", [turned, net.weights(2 * width, width, 1)], kernel_shape=[1])
        left, right = net.split(whole, (width, width), 1)
        made = net.node("Mul", [left, net.node("Sigmoid", [right])])
        size = net.rng.choice([3, 7, 15, 31])
        pads = [size // 2] * 2 if net.rng.random() < 0.6 else [size - 1, 0]
        made = net.node(
            "Conv", [made, net.weights(width, 1, size)], group=width, kernel_shape=[size], pads=pads
        )
        scale, bias = net.scales(width)
        mean, variance = net.scales(width)[1], net.scales(width)[0]
        made = net.node("BatchNormalization", [made, scale, bias, mean, variance])
        made = net.activated(made, net.rng.choice(["SiLU", "Relu"]), width, 1)
        made = net.node("Conv", [made, net.weights(width, width, 1)], kernel_shape=[1])
        return self._added(x, net.transpose(made, 0, 2, 1))

    def recurrent(self, x: str) -> str:
        """A network that walks the steps, one way or both, as taggers and old vocoders have it."""
        net, rng, each = self.net, self.net.rng, self.net.rng.choice([8, 16, 20])
        kind, gates = rng.choice([("LSTM", 4), ("GRU", 3), ("RNN", 1)])
        direction, ways = rng.choice([("forward", 1), ("reverse", 1), ("bidirectional", 2)])
        inputs = [net.transpose(x, 1, 0, 2), net.weights(ways, gates * each, self.width)]
        inputs.append(net.weights(ways, gates * each, each))
        if rng.random() < 0.7:
            inputs.append(net.weights(ways, 2 * gates * each))
        more = {"linear_before_reset": rng.choice([0, 1])} if kind == "GRU" else {}
        made = net.node(kind, inputs, hidden_size=each, direction=direction, **more)
        rows = net.reshape(net.transpose(made, 2, 0, 1, 3), net.batch, self.steps, ways * each)
        return self._added(x, net.node("MatMul", [rows, net.weights(ways * each, self.width)]))

    def halves(self, x: str) -> str:
        """Operators on float16 in between."""
        return self.net.in_half(x)

    def convolved(self, x: str) -> str:
        """Filters over time, some of them dilated, as in vocoders."""
        net, width = self.net, self.width
        made = net.transpose(x, 0, 2, 1)
        apart, size = net.rng.choice([1, 1, 3, 9, 40]), net.rng.choice([3, 5])
        made = net.node("LeakyRelu", [made], alpha=0.1)
        made = net.node(
            "Conv",
            [made, net.weights(width, width, size), net.scales(width)[1]],
            dilations=[apart],
            kernel_shape=[size],
            pads=[apart * (size - 1) // 2] * 2,
        )
        return self._added(x, net.transpose(made, 0, 2, 1))

    # ---- parts of blocks ----

    def _added(self, x: str, made: str) -> str:
        return self.net.node("Add", [x, made] if self.net.rng.random() < 0.5 else [made, x])

    def _feed_forward(self, x: str) -> str:
        net, wide = self.net, self.width * self.net.rng.choice([2, 3])
        hidden = net.node("MatMul", [x, net.weights(self.width, wide)])
        if net.rng.random() < 0.8:
            hidden = net.node("Add", [net.scales(wide)[1], hidden])
        hidden = net.activated(hidden, net.rng.choice(["Gelu", "Relu", "SiLU", "Tanh"]), wide)
        made = net.node("MatMul", [hidden, net.weights(wide, self.width)])
        return net.node("Add", [made, net.scales(self.width)[1]])

    def _heads(self, x: str, heads: int, each: int) -> str:
        """Add a product that makes heads: (batch, heads, steps, each)."""
        net = self.net
        made = net.node("MatMul", [x, net.weights(self.width, heads * each)])
        if net.rng.random() < 0.6:
            made = net.node("Add", [made, net.scales(heads * each)[1]])
        return net.transpose(net.reshape(made, net.batch, -1, heads, each), 0, 2, 1, 3)

    def _attention(self, x: str) -> str:
        net = self.net
        heads = net.rng.choice([n for n in (1, 2, 4) if self.width % n == 0])
        each = self.width // heads
        query, key, value = (self._heads(x, heads, each) for _ in range(3))
        key, value = self._remembered(key, value, heads, each)
        return self._attended(query, key, value, heads * each, each)

    def _grouped_attention(self, x: str) -> str:
        """Add an attention whose keys some heads have in common."""
        net, each = self.net, 2 * self.net.rng.choice([4, 8, 9])
        shared, groups = net.rng.choice([1, 2]), net.rng.choice([1, 2, 3])
        heads = shared * groups
        query = self._turned(self._heads(x, heads, each), each)
        key = self._turned(self._heads(x, shared, each), each)
        value = self._heads(x, shared, each)
        key, value = self._remembered(key, value, shared, each)
        if groups > 1 and net.rng.random() < 0.6:  # as exporters write it
            steps = self.steps + self.cached
            key, value = (self._expanded(one, shared, groups, steps, each) for one in (key, value))
            return self._attended(query, key, value, heads * each, each)
        if groups > 1:
            query = net.reshape(query, net.batch, shared, groups, self.steps, each)
            key, value = (net.node("Unsqueeze", [one, net.integers(2)]) for one in (key, value))
            return self._attended(query, key, value, heads * each, each, by_groups=groups)
        return self._attended(query, key, value, heads * each, each)

    def _expanded(self, x: str, shared: int, groups: int, steps: int, each: int) -> str:
        net = self.net
        apart = net.node("Unsqueeze", [x, net.integers(2)])
        shape = net.integers(net.batch, shared, groups, steps, each)
        return net.reshape(
            net.node("Expand", [apart, shape]), net.batch, shared * groups, steps, each
        )

    def _turned(self, x: str, each: int) -> str:
        """Add a turn of pairs of numbers by the place of a step."""
        net, half = self.net, each // 2
        places = np.arange(self.cached, self.cached + self.steps)[:, None]
        angles = places / 100.0 ** (np.arange(half) / half)
        angles = np.concatenate([angles, angles], axis=-1).astype(np.float32)
        cosine, sine = (net.constant(values) for values in (np.cos(angles), np.sin(angles)))
        first, second = net.part(x, 0, half, 3), net.part(x, half, each, 3)
        other = net.node("Concat", [net.node("Neg", [second]), first], axis=3)
        left, right = net.node("Mul", [x, cosine]), net.node("Mul", [other, sine])
        return net.node("Add", [left, right])

    def _remembered(self, key: str, value: str, heads: int, each: int) -> tuple[str, str]:
        """Put keys and values of earlier runs in front, and give them back for the next run."""
        if not self.cached:
            return key, value
        found = []
        for made in (key, value):
            name = f"past_{len(self.caches)}"
            self.caches[name] = (self.net.batch, heads, self.cached, each)
            found.append(self.net.node("Concat", [name, made], axis=2))
        self.kept.extend(found)
        return found[0], found[1]

    def _attended(
        self, query: str, key: str, value: str, wide: int, each: int, *, by_groups: int = 0
    ) -> str:
        net = self.net
        order = (0, 1, 2, 4, 3) if by_groups else (0, 1, 3, 2)
        scaled = net.rng.random() < 0.5
        if scaled:
            query = net.node("Mul", [query, net.number(each**-0.5)])
        scores = net.node("MatMul", [query, net.transpose(key, *order)])
        if not scaled:
            scores = net.node("Div", [scores, net.number(each**0.5)])
        scores = self._masked(scores)
        weights = net.node("Softmax", [scores], axis=-1)
        if net.rng.random() < 0.2:
            asked = net.node("IsNaN", [weights])
            weights = net.node("Where", [asked, net.number(0.0), weights])
        mixed = net.node("MatMul", [weights, value])
        if by_groups:
            heads = wide // each
            mixed = net.reshape(mixed, net.batch, heads, self.steps, each)
        rows = net.reshape(net.transpose(mixed, 0, 2, 1, 3), net.batch, self.steps, wide)
        return net.node("MatMul", [rows, net.weights(wide, self.width)])

    def _masked(self, scores: str) -> str:
        """Add what hides keys: those behind a query, or whatever a constant says."""
        net, keys = self.net, self.steps + self.cached
        kind = net.rng.choice(["none", "later", "lowest", "chosen"])
        if kind == "none":
            return scores
        later = np.triu(np.ones((self.steps, keys), bool), k=self.cached + 1)
        if kind == "chosen":
            hidden = net.number(net.rng.choice([_HIDDEN, -3.4e38]))
            return net.node("Where", [net.constant(later), hidden, scores])
        worst = _HIDDEN if kind == "later" else _LOWEST
        mask = np.where(later, worst, 0.0).astype(np.float32)
        order = [scores, net.constant(mask)]
        return net.node("Add", order if net.rng.random() < 0.7 else order[::-1])


Block = Callable[[SequenceBlocks, str], str]
SEQUENCE_BLOCKS: Mapping[str, Block] = {
    "encoder": SequenceBlocks.encoder,
    "decoder": SequenceBlocks.decoder,
    "conformer": SequenceBlocks.conformer,
    "recurrent": SequenceBlocks.recurrent,
    "halves": SequenceBlocks.halves,
    "convolved": SequenceBlocks.convolved,
}
