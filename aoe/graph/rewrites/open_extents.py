"""Rules for open extents, applied to every model of a range: rotary embeddings and signals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod

import numpy as np
import onnx
from onnx import helper, numpy_helper

from aoe.graph.extents import OpenShape
from aoe.graph.model_graph import attributes_of, names_read
from aoe.graph.protos import copied, refill, rename_tensors, set_attribute
from aoe.graph.rewrites.matching import is_elementwise
from aoe.operators import op_key
from aoe.operators.extents import Extent

# ---- Rotary embeddings of heads, computed in front of the Transpose of heads and length ----
# Exporters put heads in front of the length, then turn the halves of each head by the cosines of
# its position, which all heads share: (batch, heads, length, size) by (batch, 1, length, size).
# With the length in front each token is a row with cosines of its own, whatever batch and length
# are.

_PERM = (0, 2, 1, 3)
_OF_EACH_POSITION = ("Add", "Mul", "Neg", "Sub")

Shapes = Mapping[str, OpenShape]
Values = Mapping[str, Sequence[Extent | None]]
Shared = Mapping[str, onnx.NodeProto]
"""What makes tensors all heads share, by their names: Unsqueezes of the heads."""


def sink_transposes(graph: onnx.GraphProto, shapes: Shapes, values: Values) -> int:
    """Move Transposes behind the rotary embeddings that alone read them, in place.

    Args:
        graph: In topological order.
        shapes: Of its tensors, as far as they are proven.
        values: Elements of its lists of integers, likewise.

    Returns:
        How many have been moved.
    """
    shared = {
        node.output[0]: node
        for node in graph.node
        if node.op_type == "Unsqueeze"
        and _axes_of(node, 1, values) in ((1,), (-3,))
        and len(shapes.get(node.output[0], ())) == len(_PERM)
    }
    turns = [
        (node.input[0], node.output[0])
        for node in graph.node
        if node.op_type == "Transpose" and attributes_of(node).get("perm") == _PERM
    ]
    embeddings = [(*turn, _embedding(graph, turn[1], shared, values)) for turn in turns]
    found = [one for one in embeddings if one[2]]
    for source, turned, members in found:
        _sink(graph, source, turned, members, shared)
    return len(found)


def _axes_of(node: onnx.NodeProto, at: int, values: Values) -> tuple[Extent | None, ...]:
    """Return the axes an input of a node names; () where that is none, or not known."""
    return tuple(values.get(node.input[at], ())) if len(node.input) > at else ()


def _embedding(
    graph: onnx.GraphProto, turned: str, shared: Shared, values: Values
) -> list[onnx.NodeProto]:
    """Return the nodes that make one tensor of a tensor only they read; [] if nothing is turned."""
    made, members = {turned}, list[onnx.NodeProto]()
    for node in graph.node:
        if not made.isdisjoint(node.input) and _joins(node, made, shared, values):
            made.update(node.output)
            members.append(node)
    read = {value.name for value in graph.output}
    outside = (node for node in graph.node if made.isdisjoint(node.output))
    read.update(name for node in outside for name in names_read(node))
    rotates = any(node.op_type == "Concat" for node in members)
    return members if rotates and made & read == {members[-1].output[0]} else []


def _joins(node: onnx.NodeProto, made: set[str], shared: Shared, values: Values) -> bool:
    """Return True for a node that computes heads and positions apart, each head the same."""
    others = set(node.input) - made
    if node.domain:
        return False
    if node.op_type in _OF_EACH_POSITION:
        return others <= shared.keys()
    if node.op_type == "Slice":
        return _axes_of(node, 3, values) in ((-1,), (3,))
    is_move = node.op_type == "Split" or (node.op_type == "Concat" and not others)
    return is_move and attributes_of(node).get("axis", 0) in (-1, 3)


def _sink(
    graph: onnx.GraphProto,
    source: str,
    turned: str,
    members: Sequence[onnx.NodeProto],
    shared: Shared,
) -> None:
    """Compute nodes of the source of a Transpose, and transpose what they make, in place."""
    made, last = {name for node in members for name in node.output}, members[-1].output[0]
    names, nodes = {turned: source, last: f"{last}/length_first"}, list[onnx.NodeProto]()
    for node in graph.node:
        if node.output[0] == turned:
            continue
        if node.output[0] in made:
            for name in [one for one in node.input if one in shared and one not in names]:
                names[name] = f"{name}/of/{last}"
                nodes.append(behind := copied(shared[name]))
                axes, behind.name = f"{names[name]}/axes", names[name]
                behind.input[1], behind.output[0] = axes, names[name]
                graph.initializer.append(numpy_helper.from_array(np.array([2], np.int64), axes))
            rename_tensors(node, names)
        nodes.append(node)
        if node.output[0] == names[last]:
            nodes.append(helper.make_node("Transpose", [names[last]], [last], last, perm=_PERM))
    refill(graph.node, nodes)
    refill(graph.value_info, [one for one in graph.value_info if one.name not in made - {last}])


# ---- Convolutions of signals of open length, written as ONNX Runtime computes them faster ----
# Its blocked layout, and kernels for open extents, are for images. So a convolution of a signal
# becomes one of an image of a single row, and a pointwise one beside a Transpose of channels and
# length the product of each position with its weights. What stands between Unsqueezes and
# Transposes, activations and gates, is computed in front of them, until they meet their inverse: a
# Conformer's positions stay rows up to the convolution of each channel, and Whisper's two stay in
# the blocked layout.
#
# Conformer's module of 256 channels by filters of 31 took ONNX Runtime 1.5 to 3.9 times as long as
# it does so for 400 to 1 positions, Whisper's two convolutions 1.2 to 1.3 times for 100 to 3000
# frames (one thread of a loaded Xeon with AVX-512, CPU time).

_BLOCK, _LEAST_CHANNELS = 16, 64
"""Channels are whole blocks, or ONNX Runtime computes in the plain layout. With 16 an image takes
up to 1.4 times as long as a signal of few positions, with 80 and more 1.05 times at most."""
_AXES_AS_INPUT = 13
"""Version of ONNX from which on Squeeze and Unsqueeze read their axes."""
_ROW, _BATCH_ROW = 2, 1
"""Dimension of an image that is its only row, with channels in front and behind."""
_SWAP, _CHANNELS_LAST, _CHANNELS_FIRST = (0, 2, 1), (0, 2, 3, 1), (0, 3, 1, 2)
Nodes = list[onnx.NodeProto]


def compute_signals_as_images(proto: onnx.ModelProto, shapes: Mapping[str, OpenShape]) -> int:
    """Rewrite convolutions of signals of open length, in place; return how many.

    Args:
        proto: In topological order, its constants initializers.
        shapes: Of its tensors, as far as they are proven.
    """
    graph, signals = proto.graph, _Signals(proto.graph)
    found = [node for node in graph.node if signals.is_convolution(node, shapes)]
    versions = [one.version for one in proto.opset_import if one.domain in ("", "ai.onnx")]
    if not found or max(versions, default=0) < _AXES_AS_INPUT:
        return 0
    for node in found:
        signals.replace(node, signals.product(node) or signals.image(node))
    signals.move_views()
    return len(found)


class _Signals:
    """The graph while it is changed."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        self._graph = graph
        self._constants = {tensor.name: tensor for tensor in graph.initializer}
        self._views: set[str] = set()
        """Results of the Squeezes and Transposes put behind what was rewritten."""
        self._makers = {name: node for node in graph.node for name in node.output}

    # ---- convolutions ----

    def is_convolution(self, node: onnx.NodeProto, shapes: Mapping[str, OpenShape]) -> bool:
        """True for a convolution of a signal of open length that ONNX Runtime would block."""
        if op_key(node) != ("", "Conv") or node.input[1] not in self._constants:
            return False
        said, weights = attributes_of(node), self._constants[node.input[1]].dims
        given = shapes.get(node.input[0], ())
        if len(weights) != 3 or len(given) != 3 or not isinstance(given[2], str):
            return False
        if said.get("auto_pad", "NOTSET") not in ("NOTSET", ""):
            return False
        made, read = weights[0], weights[1] * (group := said.get("group", 1))
        is_blocked = not any(one % _BLOCK or one < _LEAST_CHANNELS for one in (made, read))
        return is_blocked and group in ((1, made) if weights[1] == 1 else (1,))

    def image(self, node: onnx.NodeProto) -> Nodes:
        """Return the convolution of an image of one row, between Unsqueeze and Squeeze."""
        (made,), (x, weights, *bias) = node.output, filter(None, node.input)
        channels, inner, taps = self._constants[weights].dims
        said = attributes_of(node)
        convolution = helper.make_node(
            "Conv",
            [f"{made}/signal", self._shaped(weights, (channels, inner, 1, taps)), *bias],
            [f"{made}/image"],
            f"{node.name}/image",
            group=said.get("group", 1),
            kernel_shape=[1, taps],
            strides=[1, *said.get("strides", (1,))],
            dilations=[1, *said.get("dilations", (1,))],
            pads=[at for end in said.get("pads", (0, 0)) for at in (0, end)],
        )
        return [
            self._lifted(x, f"{made}/signal", _ROW),
            convolution,
            self._flat(f"{made}/image", made, _ROW),
        ]

    def product(self, node: onnx.NodeProto) -> Nodes:
        """Return a pointwise convolution beside a Transpose as a product of rows; [] for others."""
        (made,), x = node.output, node.input[0]
        taps, said = self._constants[node.input[1]].dims[2], attributes_of(node)
        if taps > 1 or said.get("group", 1) > 1 or any(said.get("pads", ())):
            return []
        if any(step > 1 for step in said.get("strides", ())):
            return []
        turn, read = self._makers.get(x), self._readers(made)
        if turn is not None and _is_swap(turn):
            return [*self._rows(node, turn.input[0], f"{made}/rows"), self._turned(made)]
        if len(read) != 1 or not _is_swap(read[0]) or self._is_result(made):
            return []
        self.replace(read[0], [])
        (behind,) = read[0].output
        front = helper.make_node("Transpose", [x], [f"{behind}/turned"], perm=_SWAP)
        return [front, *self._rows(node, f"{behind}/turned", behind)]

    def _rows(self, node: onnx.NodeProto, x: str, made: str) -> Nodes:
        """Return the product of rows with the weights of a pointwise convolution, and its bias."""
        _, weights, *bias = filter(None, node.input)
        channels, inner, _ = self._constants[weights].dims
        turned, product = f"{made}/weights", f"{made}/product" if bias else made
        nodes = [  # ONNX Runtime turns constants once
            helper.make_node(
                "Transpose", [self._shaped(weights, (channels, inner))], [turned], perm=(1, 0)
            ),
            helper.make_node("MatMul", [x, turned], [product], f"{node.name}/product"),
        ]
        if bias:
            nodes.append(helper.make_node("Add", [product, *bias], [made], f"{node.name}/bias"))
        return nodes

    def _shaped(self, name: str, dims: Sequence[int]) -> str:
        """Return the name of a constant with the elements of another one in another shape."""
        made = f"{name}/{len(dims)}d"
        if made not in self._constants:
            tensor = copied(self._constants[name])
            tensor.name, tensor.dims[:] = made, dims
            self._graph.initializer.append(tensor)
            self._constants[made] = tensor
        return made

    # ---- moves ----

    def move_views(self) -> None:
        """Move each Squeeze and Transpose behind what reads it, as long as one can be.

        A move depends on what is made before it alone, so no node is looked at a second time.
        """
        left, moved = [*reversed(self._graph.node)], Nodes()
        while left:
            node = left.pop()
            nodes = self._cancelled(node) or self._swapped(node) or self._sunk(node)
            self._makers.update({name: one for one in nodes for name in one.output})
            left += reversed(nodes)
            moved += [] if nodes else [node]
        refill(self._graph.node, moved)

    def _cancelled(self, node: onnx.NodeProto) -> Nodes:
        """Return an Unsqueeze of a Squeeze of the same row as what was squeezed."""
        view = self._makers.get(node.input[0]) if node.input else None
        if view is None or (node.op_type, view.op_type) != ("Unsqueeze", "Squeeze"):
            return []
        if view.output[0] not in self._views or node.input[1] != view.input[1]:
            return []
        return [helper.make_node("Identity", [view.input[0]], list(node.output))]

    def _swapped(self, node: onnx.NodeProto) -> Nodes:
        """Return a Transpose beside an Unsqueeze or a Squeeze of the row as one of an image."""
        view = self._makers.get(node.input[0]) if node.input else None
        if view is None:
            return []
        x, made = view.input[0], node.output[0]
        if _is_swap(node) and view.op_type == "Squeeze" and view.output[0] in self._views:
            if view.input[1] != _axes(_ROW):
                return []
            turn = helper.make_node("Transpose", [x], [f"{made}/image"], perm=_CHANNELS_LAST)
            return [turn, self._flat(f"{made}/image", made, _BATCH_ROW)]
        if _is_swap(view) and node.op_type == "Unsqueeze" and node.input[1] == _axes(_ROW):
            lifted = self._lifted(x, f"{made}/rows", _BATCH_ROW)
            turn = helper.make_node("Transpose", [f"{made}/rows"], [made], perm=_CHANNELS_FIRST)
            return [lifted, turn]
        return []

    def _sunk(self, node: onnx.NodeProto) -> Nodes:
        """Return an operator of views as one of what is viewed, with the views behind it."""
        views = [name for name in node.input if name in self._views]
        makers = [maker for name in views if (maker := self._makers.get(name)) is not None]
        others = [name for name in node.input if name and name not in self._views]
        kinds = {(maker.op_type, *maker.input[1:]) for maker in makers}
        if len(kinds) != 1 or len(makers) != len(views):
            return []
        sources = {maker.output[0]: maker.input[0] for maker in makers}
        inner = copied(node)
        inner.input[:] = [sources.get(name, name) for name in node.input]
        inner.output[:] = [f"{name}/viewed" for name in node.output]
        if node.op_type == "Split" and _is_swap(makers[0]):
            if attributes_of(node).get("axis", 0) not in (1, -2):
                return []
            set_attribute(inner, "axis", 2)
        elif not is_elementwise(node) or not all(map(self._is_single, others)):
            return []
        return [inner, *self._views_like(makers[0], inner.output, node.output)]

    def _views_like(
        self, maker: onnx.NodeProto, given: Sequence[str], made: Sequence[str]
    ) -> Iterator[onnx.NodeProto]:
        """Yield the same views of other tensors."""
        for source, name in zip(given, made, strict=True):
            view = copied(maker)
            view.name, view.input[0], view.output[0] = f"{name}/view", source, name
            self._views.add(name)
            yield view

    def _lifted(self, x: str, made: str, axis: int) -> onnx.NodeProto:
        return helper.make_node("Unsqueeze", [x, self._axis(axis)], [made], made)

    def _flat(self, x: str, made: str, axis: int) -> onnx.NodeProto:
        self._views.add(made)
        return helper.make_node("Squeeze", [x, self._axis(axis)], [made], f"{made}/view")

    def _turned(self, made: str) -> onnx.NodeProto:
        self._views.add(made)
        return helper.make_node("Transpose", [f"{made}/rows"], [made], f"{made}/view", perm=_SWAP)

    def _axis(self, axis: int) -> str:
        name = _axes(axis)
        if name not in self._constants:
            tensor = numpy_helper.from_array(np.array([axis], np.int64), name)
            self._graph.initializer.append(tensor)
            self._constants[name] = tensor
        return name

    # ---- the graph ----

    def replace(self, node: onnx.NodeProto, nodes: Sequence[onnx.NodeProto]) -> None:
        """Put nodes in the place of one."""
        every = list(self._graph.node)
        at = next(index for index, one in enumerate(every) if one.output == node.output)
        refill(self._graph.node, [*every[:at], *nodes, *every[at + 1 :]])
        self._makers = {name: one for one in self._graph.node for name in one.output}

    def _readers(self, name: str) -> Nodes:
        return [node for node in self._graph.node if name in names_read(node)]

    def _is_result(self, name: str) -> bool:
        return any(value.name == name for value in self._graph.output)

    def _is_single(self, name: str) -> bool:
        tensor = self._constants.get(name)
        return tensor is not None and prod(tensor.dims) == 1 and len(tensor.dims) <= 3


def _axes(axis: int) -> str:
    return f"signal/axis_{axis}"


def _is_swap(node: onnx.NodeProto) -> bool:
    """True for a Transpose of channels and length."""
    is_transpose = op_key(node) == ("", "Transpose")
    return is_transpose and attributes_of(node).get("perm") == _SWAP
