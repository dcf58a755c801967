"""Layouts: Transposes, padding, and signals computed as images."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx

from aoe.graph.model_graph import ModelGraph, attributes_of, subgraphs
from aoe.graph.protos import copied, set_attribute
from aoe.graph.rewrites.editing import Rewriting, refuse
from aoe.graph.rewrites.matching import (
    UNARY,
    attribute,
    integers_of,
    is_op,
    maker,
    nodes_of,
    number_of,
    only_reader,
    shape_of,
    value_of,
)
from aoe.graph.rewrites.protocol import Finding, RewriteRule

# ---- Transposes: through a Reshape, behind what comes next, into the product that reads them ----

_THROUGH = "transpose-through-reshape"
_SUNK = "transpose-behind-elementwise"
_INTO = "transpose-into-product"


def find_between_reshapes(graph: ModelGraph) -> Iterator[Finding]:
    """Yield a swap of the last axes that is done in three dimensions for no reason."""
    for index, node in nodes_of(graph, "Transpose"):
        first = graph.producer.get(node.input[0])
        last = only_reader(graph, node.output[0])
        if attribute(node, "perm", ()) != (0, 2, 1) or first is None or last is None:
            continue
        before, after = graph.nodes[first], graph.nodes[last]
        if not (is_op(before, "Reshape") and is_op(after, "Reshape")):
            continue
        whole, rows = shape_of(graph, before.input[0]), shape_of(graph, before.output[0])
        result = shape_of(graph, after.output[0])
        if whole is None or rows is None or result is None or len(whole) < 4:
            continue
        if rows[1:] != whole[-2:] or result != (*whole[:-2], whole[-1], whole[-2]):
            why = f"{whole}, {rows} and {result} are more than a swap of the last axes"
            yield refuse(graph, _THROUGH, [first, index, last], why)
            continue
        rewriting = Rewriting(graph, _THROUGH, [index, last])
        order = [*range(len(whole) - 2), len(whole) - 1, len(whole) - 2]
        rewriting.add("Transpose", [before.input[0]], after.output[0], perm=order)
        yield rewriting.finish()


def find_sinkable(graph: ModelGraph) -> Iterator[Finding]:
    """Yield Transposes that one element-wise operator reads."""
    for index, node in nodes_of(graph, "Transpose"):
        reader = only_reader(graph, node.output[0])
        source = shape_of(graph, node.input[0])
        if reader is None or source is None:
            continue
        behind = graph.nodes[reader]
        order = attribute(node, "perm", tuple(range(len(source)))[::-1])
        if len(behind.output) != 1 or not is_op(behind, *UNARY, "Add", "Mul", "Sub", "Div"):
            continue
        if only_reader(graph, behind.output[0]) is None:
            continue
        if not _leads_to_transpose(graph, behind.output[0]):
            continue
        rewriting = Rewriting(graph, _SUNK, [index, reader])
        inputs = [
            _turned_back(graph, rewriting, name, node.output[0], node.input[0], order)
            for name in behind.input
        ]
        if None in inputs:
            why = f"{behind.name} reads something else that is as large"
            yield refuse(graph, _SUNK, [index, reader], why)
            continue
        made = rewriting.copy(behind, [name for name in inputs if name is not None])
        rewriting.add("Transpose", [made], behind.output[0], perm=order)
        yield rewriting.finish()


def _leads_to_transpose(graph: ModelGraph, name: str) -> bool:
    """Return True if a chain of single readers ends in a Transpose that this one may meet."""
    for _ in range(8):
        reader = only_reader(graph, name)
        if reader is None:
            return False
        node = graph.nodes[reader]
        if is_op(node, "Transpose"):
            return True
        if not is_op(node, *UNARY, "Add", "Mul", "Sub", "Div"):
            return False
        name = node.output[0]
    return False


def _turned_back(
    graph: ModelGraph,
    rewriting: Rewriting,
    name: str,
    turned: str,
    source: str,
    order: tuple[int, ...],
) -> str | None:
    """Return an input as it is read in front of the Transpose, None if it cannot be."""
    if name == turned:
        return source
    value = value_of(graph, name)
    if value is None or value.ndim > len(order):
        return None
    if value.size == 1:
        return name if value.ndim <= 1 else None
    wide = value.reshape((1,) * (len(order) - value.ndim) + value.shape)
    return rewriting.constant(wide.transpose(np.argsort(order)), "turned")


def find_before_products(graph: ModelGraph) -> Iterator[Finding]:
    """Yield matrix products that read a Transpose of the last two axes."""
    for index, node in nodes_of(graph, "MatMul"):
        turned = [_swaps(graph, name) for name in node.input]
        if not any(turned) or shape_of(graph, node.output[0]) is None:
            continue
        rewriting = Rewriting(graph, _INTO, [index])
        inputs = [before or name for before, name in zip(turned, node.input, strict=True)]
        rewriting.add(
            "FusedMatMul",
            inputs,
            node.output[0],
            domain="com.microsoft",
            alpha=1.0,
            transA=int(bool(turned[0])),
            transB=int(bool(turned[1])),
        )
        yield rewriting.finish()


def _swaps(graph: ModelGraph, name: str) -> str:
    """Return the input of a Transpose of the last two axes, empty for another node."""
    node, shape = maker(graph, name), shape_of(graph, name)
    if node is None or shape is None or not is_op(node, "Transpose") or len(shape) < 2:
        return ""
    rank = len(shape)
    order = attribute(node, "perm", tuple(range(rank))[::-1])
    return str(node.input[0]) if order == (*range(rank - 2), rank - 1, rank - 2) else ""


THROUGH_RULE = RewriteRule(
    name=_THROUGH,
    what="Reshape, Transpose, Reshape that swap the last two axes become one Transpose",
    needs="known shapes; nobody else reads the Transpose",
    find=find_between_reshapes,
)
SUNK_RULE = RewriteRule(
    name=_SUNK,
    what="Transpose in front of element-wise operators moves behind them, up to the next one",
    needs="one reader each; other inputs are constants; a Transpose follows, to be joined with it",
    find=find_sinkable,
)
INTO_RULE = RewriteRule(
    name=_INTO,
    what="Transposes of the last two axes go into the MatMul that reads them (FusedMatMul)",
    needs="float32, known shapes",
    tolerance=1e-5,
    find=find_before_products,
)


# ---- Padding: as part of the window that reads it, or as a choice of rows and columns ----

_INTO_WINDOW = "pad-into-window"
_AS_GATHER = "mirrored-pad-as-gather"
_MODES = {"reflect": "reflect", "edge": "edge"}


def find_zeros(graph: ModelGraph) -> Iterator[Finding]:
    """Yield Pads with zeros that one Conv reads."""
    for index, node in nodes_of(graph, "Pad"):
        reader = only_reader(graph, node.output[0])
        if reader is None or not is_op(graph.nodes[reader], "Conv"):
            continue
        conv = graph.nodes[reader]
        pads = _pads(graph, node)
        if isinstance(pads, str):
            yield refuse(graph, _INTO_WINDOW, [index, reader], pads)
            continue
        before, behind = pads
        value = _value(graph, node)
        if attribute(node, "mode", "constant") != "constant" or value != 0:
            yield refuse(graph, _INTO_WINDOW, [index, reader], "it does not pad with zeros")
        elif any(before[:2] + behind[:2]) or min(before + behind) < 0:
            yield refuse(graph, _INTO_WINDOW, [index, reader], "it pads other axes, or cuts off")
        elif attribute(conv, "auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
            yield refuse(graph, _INTO_WINDOW, [index, reader], "the Conv pads by a rule of its own")
        else:
            own = attribute(conv, "pads", (0,) * (len(before) - 2) * 2)
            total = [one + other for one, other in zip(own, before[2:] + behind[2:], strict=True)]
            wide = copied(conv)
            set_attribute(wide, "auto_pad", None)
            set_attribute(wide, "pads", total)
            rewriting = Rewriting(graph, _INTO_WINDOW, [index, reader])
            rewriting.copy(wide, [node.input[0], *conv.input[1:]], conv.output[0])
            yield rewriting.finish()


def find_mirrored(graph: ModelGraph) -> Iterator[Finding]:
    """Yield Pads that repeat rows and columns of their input."""
    for index, node in nodes_of(graph, "Pad"):
        mode = attribute(node, "mode", "constant")
        shape = shape_of(graph, node.input[0])
        if mode not in _MODES:
            continue
        pads = _pads(graph, node)
        if shape is None or isinstance(pads, str):
            why = pads if isinstance(pads, str) else "its shape is not known"
            yield refuse(graph, _AS_GATHER, [index], why)
            continue
        before, behind = pads
        axes = [at for at in range(len(shape)) if before[at] or behind[at]]
        if not axes or min(before + behind) < 0:
            yield refuse(graph, _AS_GATHER, [index], "it pads nothing, or cuts off")
            continue
        rewriting = Rewriting(graph, _AS_GATHER, [index])
        made = node.input[0]
        for axis in reversed(axes):
            extents = (before[axis], behind[axis])
            rows = np.pad(np.arange(shape[axis]), extents, mode=_MODES[mode])  # type: ignore[call-overload]
            output = node.output[0] if axis == axes[0] else ""
            indices = rewriting.constant(rows.astype(np.int64), "rows")
            made = rewriting.add("Gather", [made, indices], output, axis=axis)
        yield rewriting.finish()


def _pads(graph: ModelGraph, node: onnx.NodeProto) -> tuple[tuple[int, ...], tuple[int, ...]] | str:
    """Return the padding before and behind each axis, or the reason why it is unknown."""
    pads = integers_of(graph, node, "pads", 1)
    shape = shape_of(graph, node.input[0])
    if len(node.input) > 3 and node.input[3]:
        return "it names its axes"
    if shape is None or not pads or len(pads) != 2 * len(shape):
        return "how much it pads is not constant"
    return pads[: len(shape)], pads[len(shape) :]


def _value(graph: ModelGraph, node: onnx.NodeProto) -> float | None:
    if len(node.input) > 2 and node.input[2]:
        return number_of(graph, node.input[2])
    return float(attribute(node, "value", 0.0))


ZERO_PAD_RULE = RewriteRule(
    name=_INTO_WINDOW,
    what="Pad with zeros in front of a Conv becomes padding of the Conv",
    needs="constant pads of height and width, none negative; the Conv alone reads it",
    tolerance=1e-5,
    find=find_zeros,
)
MIRRORED_PAD_RULE = RewriteRule(
    name=_AS_GATHER,
    what="Pad by reflection or by the edge becomes a Gather for each padded axis",
    needs="constant pads, none negative; known shapes",
    find=find_mirrored,
)


# ---- One-dimensional convolutions as two-dimensional ones of height 1, over whole chains ----
# ONNX Runtime has its blocked layout, and the fusions that go with it, for two dimensions only.

_LIFTED_NAME = "convolution-1d-as-2d"
_WINDOWED = ("Conv", "ConvTranspose")
_POOLS = ("MaxPool", "AveragePool")
_BROADCASTING = ("Add", "Sub", "Mul", "Div", "PRelu", "Max", "Min", "Clip")
_PER_CHANNEL = ("BatchNormalization", "InstanceNormalization")
_PER_AXIS = {"kernel_shape": 1, "strides": 1, "dilations": 1, "output_padding": 0}


def find_flat(graph: ModelGraph) -> Iterator[Finding]:
    """Yield the connected pieces of a graph that compute on (batch, channels, time)."""
    members = {index for index, node in enumerate(graph.nodes) if _fits(graph, node)}
    for index, node in nodes_of(graph, "Conv"):
        shape = shape_of(graph, node.input[0])
        if index not in members and shape is not None and len(shape) == 3:
            yield refuse(graph, _LIFTED_NAME, [index], "its weights are not constant")
    while members:
        piece = _connected(graph, members)
        members -= piece
        if any(is_op(graph.nodes[index], "Conv") for index in piece):
            yield _lifted(graph, sorted(piece))


def _fits(graph: ModelGraph, node: onnx.NodeProto) -> bool:
    shape = shape_of(graph, node.output[0]) if len(node.output) == 1 else None
    if shape is None or len(shape) != 3 or any(True for _ in subgraphs(node)):
        return False
    if is_op(node, *_BROADCASTING):
        return all(_is_readable(graph, name) for name in node.input if name)
    if is_op(node, "Concat"):
        return all(_is_flat(graph, name) for name in node.input)
    if not node.input or not _is_flat(graph, node.input[0]):
        return False
    if is_op(node, *_WINDOWED):
        return value_of(graph, node.input[1]) is not None and not _lacks_window(node)
    if is_op(node, *_PER_CHANNEL):
        return not attribute(node, "training_mode", 0)
    return is_op(node, *_POOLS, *UNARY)


def _is_flat(graph: ModelGraph, name: str) -> bool:
    """Return True for a tensor over (batch, channels, time)."""
    return len(shape_of(graph, name) or ()) == 3


def _lacks_window(node: onnx.NodeProto) -> bool:
    return is_op(node, "ConvTranspose") and bool(attribute(node, "output_shape", ()))


def _is_readable(graph: ModelGraph, name: str) -> bool:
    if value_of(graph, name) is not None:
        return True
    shape = shape_of(graph, name)
    return shape is not None and len(shape) in (0, 3)


def _connected(graph: ModelGraph, members: set[int]) -> set[int]:
    found, waiting = set(), [min(members)]
    while waiting:
        index = waiting.pop()
        if index in found:
            continue
        found.add(index)
        node = graph.nodes[index]
        near = [graph.producer.get(name) for name in node.input if name]
        near += [at for name in node.output for at in graph.consumers.get(name, ())]
        waiting += [at for at in near if at is not None and at in members]
    return found


def _lifted(graph: ModelGraph, piece: list[int]) -> Finding:
    rewriting = Rewriting(graph, _LIFTED_NAME, piece)
    lifting = _Lifting(graph, rewriting, set(piece))
    for index in piece:
        lifting.lift(graph.nodes[index])
    return rewriting.finish()


class _Lifting:
    """The piece while it is written again."""

    def __init__(self, graph: ModelGraph, rewriting: Rewriting, piece: set[int]) -> None:
        self._graph = graph
        self._rewriting = rewriting
        self._piece = piece
        self._lifted: dict[str, str] = {}

    def lift(self, node: onnx.NodeProto) -> None:
        """Add a node in four dimensions, and what brings its result back if others read it."""
        wide = copied(node)
        if is_op(node, *_WINDOWED, *_POOLS):
            self._widen_window(wide)
        if is_op(node, "Concat"):  # counted from either end
            set_attribute(wide, "axis", (0, 1, 3)[attribute(node, "axis", 0)])
        inputs = [self._read(node, at) for at in range(len(node.input))]
        made = self._rewriting.copy(wide, inputs)
        name = node.output[0]
        self._lifted[name] = made
        outside = set(self._graph.consumers.get(name, ())) - self._piece
        if outside or name in self._graph.output_names:
            shape = shape_of(self._graph, name)
            assert shape is not None  # known of everything that is lifted
            self._rewriting.reshape(made, shape, name)

    def _read(self, node: onnx.NodeProto, at: int) -> str:
        name = str(node.input[at])
        if not name or (at and _is_parameter(node, at)):
            return name
        if name in self._lifted:
            return self._lifted[name]
        value = value_of(self._graph, name)
        if value is not None:
            if value.ndim < 2:
                return name
            return self._rewriting.constant(np.expand_dims(value, -2), "lifted")
        shape = shape_of(self._graph, name)
        if not shape:
            return name
        made = self._rewriting.reshape(name, (*shape[:2], 1, shape[2]))
        self._lifted[name] = made
        return made

    def _widen_window(self, wide: onnx.NodeProto) -> None:
        given = attributes_of(wide)
        for name, neutral in _PER_AXIS.items():
            if name in given:
                set_attribute(wide, name, [neutral, *given[name]])
        if "pads" in given:
            before, behind = given["pads"]
            set_attribute(wide, "pads", [0, before, 0, behind])


def _is_parameter(node: onnx.NodeProto, at: int) -> bool:
    """Return True for an input that is the same in any number of dimensions.

    Numbers of each channel, such as a bias somebody computes, and bounds are not lifted.
    """
    is_bias = at == 2 and is_op(node, *_WINDOWED)
    return is_bias or is_op(node, *_PER_CHANNEL, "Clip")


LIFT_RULE = RewriteRule(
    name=_LIFTED_NAME,
    what="Chains of Convs over (batch, channels, time) are computed as images of height 1",
    needs="constant weights; known shapes; what a MaxPool makes of NaN may change",
    tolerance=1e-4,
    find=find_flat,
    is_divisible=True,
)
