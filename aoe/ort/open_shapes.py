"""Shapes of a model with open extents, proven by the names of these.

ONNX Runtime infers shapes when it loads a model, and carries the names of open extents along. It
loses them where a shape is computed: `Shape`, `Gather`, `Concat` in front of a Reshape, an Expand
or a Resize, a Range up to an extent. What these compute is followed here, for lists of extents
alone; `open_images` follows the images of convolutions. What follows from either is told to the
inference, until nothing new is found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np
import onnx
from onnx import helper, numpy_helper, shape_inference

from aoe.folders.scratch import ScratchFolder
from aoe.graph.extents import (
    OpenShape,
    difference_of,
    find_shape_at,
    is_closed,
    least_of,
    sum_of,
    value_at_ones,
)
from aoe.graph.model_graph import TensorInfo, attributes_of
from aoe.graph.protos import refill, set_attribute
from aoe.graph.rewrite import drop_unused_initializers, live_nodes
from aoe.graph.rewrites.open_extents import compute_signals_as_images, sink_transposes
from aoe.graph.rewrites.preparation import prepared
from aoe.operators.extents import Extent, stepped, steps_of
from aoe.ort.extent_lists import Known, Shapes, Values, followed_values, is_extent
from aoe.ort.open_images import PartialShape, follow_images
from aoe.ort.sessions import OpenSession
from aoe.ort.static_shapes import bare_model, element_type, load_outputs

_MADE_UP = "unk__"
"""Begins names that ONNX's inference makes up for extents that follow from nothing."""
_SCALES, _SIZES = 2, 3
"""Inputs of a Resize. Source: ONNX, Resize."""
_PADDED_AXES = 3
"""Input of a Pad that says the axes its pads are of. Source: ONNX, Pad, version 18."""
_TO_THE_END = 2**31 - 1
"""End of a Slice from which on exporters mean all of what is left."""
_MOST_ROUNDS = 64
"""A mask that each layer makes of its own extents takes a round for each layer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTensor:
    """Element type (NumPy spelling) and shape of a tensor, a name for each open extent."""

    dtype: str
    shape: OpenShape


Tensors = Mapping[str, OpenTensor]
Declared = Sequence[onnx.ValueInfoProto]
Inferred = Mapping[str, tuple[str, PartialShape]]
"""Element types and shapes of tensors, as far as these are known."""


def infer_open_tensors(proto: onnx.ModelProto, open_session: OpenSession) -> dict[str, OpenTensor]:
    """Return inputs and node results whose extents are all known or have a name.

    Args:
        proto: A model whose open input extents have names.
        open_session: Loads a model on the device it is for.

    Raises:
        RunError: ONNX Runtime cannot load the model.
    """
    made = [name for node in proto.graph.node for name in node.output if name]

    def loaded(declared: Declared) -> Inferred:
        with ScratchFolder("shapes") as folder:
            values = load_outputs(bare_model(proto, folder, declared), made, folder, open_session)
        return {one.name: (element_type(one), tuple(one.shape)) for one in values if one.shape}

    return _with_computed(proto, _with_images(proto, loaded))


def _with_images(
    proto: onnx.ModelProto, infer: Callable[[Declared], Inferred]
) -> Callable[[Tensors], dict[str, OpenTensor]]:
    """Return an inference, given tensors that are known, which follows images through a model.

    Args:
        proto: A model whose open input extents have names.
        infer: Infers types and shapes from what is declared.
    """
    images: dict[str, OpenShape] = {}

    def inferred(known: Tensors) -> dict[str, OpenTensor]:
        given, types = _inputs(proto), dict[str, str]()
        shapes: dict[str, PartialShape] = {name: one.shape for name, one in given.items()}
        for _ in range(_MOST_ROUNDS):
            declared = [_float(name, shape) for name, shape in images.items()]
            for name, (dtype, shape) in infer([*_declared(known), *declared]).items():
                types[name], shapes[name] = dtype, shape
            found = follow_images(proto.graph, shapes)
            if found.keys() <= images.keys():
                break
            images.update(found)
        shapes |= images
        tensors = {
            name: OpenTensor(dtype=dtype, shape=whole)
            for name, dtype in types.items()
            if (whole := _whole(shapes[name]))
        }
        return {**given, **tensors, **known}

    return inferred


def _whole(shape: PartialShape) -> OpenShape:
    """Return a shape whose extents are all known or have a name; else that of nothing."""
    found = tuple(extent for extent in shape if isinstance(extent, int | str))
    return found if len(found) == len(shape) else ()


def tensors_at(tensors: Tensors, extents: Mapping[str, int]) -> dict[str, TensorInfo]:
    """Return the tensors whose extents are known where open dimensions have these."""
    return {
        name: TensorInfo(dtype=tensor.dtype, shape=shape)
        for name, tensor in tensors.items()
        if (shape := find_shape_at(tensor.shape, extents)) is not None
    }


_OF_ANY_RANK = ("Gather", "Squeeze", "Size")
"""Operators that may give a scalar, of which no shape is kept."""


def first_unproven(graph: onnx.GraphProto, tensors: Tensors) -> onnx.NodeProto | None:
    """Return the node at which the proof of extents ends, None if it ends at none.

    Args:
        graph: In topological order.
        tensors: Whose extents are proven, by name.
    """
    values = followed_values(graph, {name: one.shape for name, one in tensors.items()})
    known = {*tensors, *values, *(tensor.name for tensor in graph.initializer)}
    node: onnx.NodeProto
    for node in graph.node:
        is_list = node.op_type in _OF_ANY_RANK or node.op_type.startswith("Reduce")
        if is_list or node.domain or known.issuperset(filter(None, node.output)):
            continue
        if known.issuperset(filter(None, node.input)) or node.op_type in _RESHAPED:
            return node
    return None


def with_proven_reshapes(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model whose Reshapes and Resizes have constant shapes and scales where proven.

    0 stands for an extent that is that of the input at the same place, -1 for one that follows
    from the others. Nothing computes such a shape any more, and what is behind is proven as well.
    A Transpose of the last two dimensions between two Reshapes, which fold the others into one and
    unfold them again, becomes one of all dimensions; a product with weights between such Reshapes,
    a product of all dimensions. A Transpose in front of a rotary embedding goes behind it, and
    convolutions of signals become those of images of one row, or products of rows. What nobody
    reads any more goes.

    Args:
        proto: A model whose open input extents have names.
    """
    changed = prepared(proto)  # exporters write constants as nodes
    for _ in range(_MOST_ROUNDS):
        shapes = {name: tensor.shape for name, tensor in _inferred_by_onnx(changed).items()}
        unfolded = _unfold_transposes(changed, shapes) + _unfold_products(changed, shapes)
        if unfolded + _make_constant(changed, shapes) + _make_scales(changed, shapes) == 0:
            break
    sink_transposes(changed.graph, shapes, followed_values(changed.graph, shapes))
    compute_signals_as_images(changed, shapes)
    results = [value.name for value in changed.graph.output]
    refill(changed.graph.node, live_nodes(changed.graph.node, results))
    drop_unused_initializers(changed.graph)
    return changed


def _inferred_by_onnx(proto: onnx.ModelProto) -> dict[str, OpenTensor]:
    named: dict[str, OpenTensor] = {}

    def inferred(declared: Declared) -> Inferred:
        with ScratchFolder("reshapes") as folder:
            bare = bare_model(proto, folder, declared)
            found = shape_inference.infer_shapes(bare, data_prop=True).graph
        values = [*found.value_info, *found.output]
        named.update({one.name: whole for one in values if (whole := _open_tensor(one))})
        return {one.name: known for one in values if (known := _as_far_as_known(one))}

    followed = _with_images(proto, inferred)

    def with_made_up_names(known: Tensors) -> dict[str, OpenTensor]:
        found = followed(known)
        return named | found

    return _with_computed(proto, with_made_up_names)


def _make_constant(proto: onnx.ModelProto, shapes: Shapes) -> int:
    """Give Reshapes constant shapes, in place; return for how many that was possible."""
    constants, count = {tensor.name for tensor in proto.graph.initializer}, 0
    for node in proto.graph.node:
        if node.op_type != "Reshape" or node.domain or node.input[1] in constants:
            continue
        said = constant_shape(shapes.get(node.input[0]), shapes.get(node.output[0]))
        if said is not None:
            name = f"{node.output[0]}/shape"
            tensor = numpy_helper.from_array(np.array(said, dtype=np.int64), name)
            proto.graph.initializer.append(tensor)
            node.input[1] = name
            set_attribute(node, "allowzero", None)
            count += 1
    return count


def _make_scales(proto: onnx.ModelProto, shapes: Shapes) -> int:
    """Give Resizes to computed sizes constant scales, in place; return for how many."""
    constants, count = {tensor.name for tensor in proto.graph.initializer}, 0
    for node in proto.graph.node:
        if _sizes(node) in {"", *constants}:
            continue
        factors = _factors(shapes.get(node.input[0], ()), shapes.get(node.output[0], ()))
        if factors:
            name = f"{node.output[0]}/scales"
            tensor = numpy_helper.from_array(np.array(factors, dtype=np.float32), name)
            proto.graph.initializer.append(tensor)
            refill(node.input, [*node.input[:_SCALES], name])
            count += 1
    return count


def _sizes(node: onnx.NodeProto) -> str:
    """Return the input with the extents of all a Resize makes; empty where there is none."""
    if node.op_type != "Resize" or node.domain or len(node.input) <= _SIZES:
        return ""
    said = attributes_of(node)
    is_whole = (
        "axes" not in said
        and said.get("keep_aspect_ratio_policy", "stretch") == "stretch"
        and said.get("coordinate_transformation_mode") != "tf_crop_and_resize"
    )
    return node.input[_SIZES] if is_whole else ""


def _factors(given: OpenShape, made: OpenShape) -> list[int]:
    """Return the whole numbers a shape is multiplied by, nothing where none are proven.

    >>> _factors(("n", 8, "8*h", "w"), ("n", 8, "16*h", "3*w")), _factors(("(h)//2",), ("h",))
    ([1, 1, 2, 3], [])
    """
    found = []
    for one, other in zip(given, made, strict=False):
        inner, outer = steps_of(one), steps_of(other)
        ratio = other // (one or 1) if isinstance(one, int) and isinstance(other, int) else 0
        factor = ratio or outer.times * inner.over // (inner.times * outer.over)
        if factor < 1 or stepped(one, times=factor) != other:
            return []
        found.append(factor)
    return found if len(given) == len(made) else []


def _unfold_transposes(proto: onnx.ModelProto, shapes: Shapes) -> int:
    """Make Reshape, Transpose, Reshape one Transpose, in place; return how often."""
    makers = {name: node for node in proto.graph.node for name in node.output}
    count = 0
    for node in proto.graph.node:
        if node.op_type != "Reshape" or node.domain:
            continue
        turn = makers.get(node.input[0])
        fold = makers.get(turn.input[0]) if turn is not None else None
        if turn is None or fold is None:
            continue
        if (turn.op_type, fold.op_type) != ("Transpose", "Reshape") or fold.domain:
            continue
        if [list(one.ints) for one in turn.attribute if one.name == "perm"] != [[0, 2, 1]]:
            continue
        given, folded, made = (
            shapes.get(name) for name in (fold.input[0], *fold.output, *node.output)
        )
        if given is None or folded is None or made is None or len(given) < 3:
            continue
        rank = len(given)
        if folded[1:] == given[-2:] and made == (*given[:-2], given[-1], given[-2]):
            node.op_type = "Transpose"
            refill(node.input, [fold.input[0]])
            axes = [*range(rank - 2), rank - 1, rank - 2]
            refill(node.attribute, [helper.make_attribute("perm", axes)])
            count += 1
    return count


def _unfold_products(proto: onnx.ModelProto, shapes: Shapes) -> int:
    """Make Reshape, MatMul with weights, Reshape one MatMul, in place; return how often.

    So dense layers of TensorFlow are written where batch and length are open.
    """
    makers = {name: node for node in proto.graph.node for name in node.output}
    weights = {one.name: tuple(one.dims) for one in proto.graph.initializer if len(one.dims) == 2}
    count = 0
    for node in proto.graph.node:
        if node.op_type != "Reshape" or node.domain:
            continue
        product = makers.get(node.input[0])
        if product is None or product.op_type != "MatMul" or product.input[1] not in weights:
            continue
        fold = makers.get(product.input[0])
        if fold is None or fold.op_type != "Reshape" or fold.domain:
            continue
        given, made = shapes.get(fold.input[0]), shapes.get(node.output[0])
        width, columns = weights[product.input[1]]
        if given and made == (*given[:-1], columns) and given[-1] == width:
            node.op_type = "MatMul"
            refill(node.input, [fold.input[0], product.input[1]])
            set_attribute(node, "allowzero", None)
            count += 1
    return count


def constant_shape(given: OpenShape | None, made: OpenShape | None) -> list[int] | None:
    """Return the constant second input of a Reshape, None where no constant is proven.

    >>> constant_shape(("n", "s", 768), ("n", "s", 12, 64))
    [0, 0, 12, 64]
    >>> constant_shape(("n", 12, "s", 64), ("n", "s", 768))
    [0, -1, 768]
    """
    if given is None or made is None or 0 in made:  # 0 would mean "copied"
        return None
    said: list[int] = []
    for axis, extent in enumerate(made):
        if isinstance(extent, int):
            said.append(extent)
        elif axis < len(given) and given[axis] == extent:
            said.append(0)
        elif -1 not in said:
            said.append(-1)
        else:
            return None
    return said


def _with_computed(
    proto: onnx.ModelProto, inferred: Callable[[Tensors], dict[str, OpenTensor]]
) -> dict[str, OpenTensor]:
    """Infer shapes until none that is computed becomes known by them that was not."""
    known: dict[str, OpenTensor] = {}
    for _ in range(_MOST_ROUNDS):
        found = inferred(known)
        computed = _computed_tensors(proto.graph, found)
        if computed == known:
            break
        known = computed
    return found


def _computed_tensors(graph: onnx.GraphProto, tensors: Tensors) -> dict[str, OpenTensor]:
    """Return Ranges by steps of 1, tensors of computed extents, and what is joined to sums."""
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    values, found = followed_values(graph, shapes), dict[str, OpenTensor]()
    constants = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        if node.domain:
            continue
        if node.op_type == "Range":
            start, limit, step = (values.get(name) for name in node.input)
            if step == [1] and start and limit and start[0] is not None and limit[0] is not None:
                length = difference_of(limit[0], start[0])
                if length is not None and is_extent(length):
                    found[node.output[0]] = OpenTensor(dtype="int64", shape=(length,))
        elif node.op_type == "ConstantOfShape":
            filled = _filled(node, values.get(node.input[0], []))
            if filled is not None:
                found[node.output[0]] = filled
        elif node.op_type == "Concat":
            joined = _joined([tensors.get(name) for name in node.input], node)
            if joined is not None:
                found[node.output[0]] = joined
        elif node.op_type in _RESHAPED:
            name = node.input[0]
            given = _constant(constants[name]) if name in constants else tensors.get(name)
            shape = None if given is None else _RESHAPED[node.op_type](node, given.shape, values)
            if given is not None and shape is not None:
                found[node.output[0]] = replace(given, shape=shape)
    return found


def _constant(tensor: onnx.TensorProto) -> OpenTensor:
    return OpenTensor(dtype=_dtype(tensor.data_type), shape=tuple(tensor.dims))


def _filled(node: onnx.NodeProto, told: Values) -> OpenTensor | None:
    """Return the tensor of one value that has the extents it is told, None for closed ones."""
    shape, value = _whole(told), attributes_of(node).get("value")
    if is_closed(shape) or not all(map(is_extent, shape)):
        return None  # the inference knows numbers
    kind = value.data_type if value is not None else onnx.TensorProto.FLOAT
    return OpenTensor(dtype=_dtype(kind), shape=shape)


def _expand(node: onnx.NodeProto, given: OpenShape, values: Known) -> OpenShape | None:
    return _expanded(given, values.get(node.input[1]))


def _slice(node: onnx.NodeProto, given: OpenShape, values: Known) -> OpenShape | None:
    """Return the shape of a part of a tensor along one axis, from and up to extents."""
    names = (*node.input[1:], "", "", "", "")[:4]  # attributes before version 10
    start, end, axes, step = map(values.get, names)
    if any(name and name not in values for name in names):
        return None
    if not start or not end or len(start) > 1 or step not in ([1], None):
        return None
    axis, first, last = (axes or [0])[0], start[0], end[0]
    if not isinstance(axis, int) or first is None or last is None:
        return None
    at = axis % len(given)
    length = _length(given[at], first, last)
    return None if length is None else (*given[:at], length, *given[at + 1 :])


def _length(extent: Extent, first: Extent, last: Extent) -> Extent | None:
    """Return the number of elements from one on up to another one, None if not known.

    A model that asks a table for more than there are fails where it adds them to what has the
    extent: the kernels made of this proof check extents as they read tensors. A start that is
    negative in every run counts from the end of the table.

    >>> _length("(2*s-1)", 0, "s"), _length("2*s", 1, 1 << 62)
    ('s', '(2*s-1)')
    >>> _length(399, "(-1*s+200)", "s + 199"), _length("s", 0, "2*s")
    ('(2*s-1)', None)
    >>> _length(512, "(-1*s)", 1 << 62), _length(399, -5, "s"), _length(512, 0, "s + 600")
    (None, None, None)
    """
    is_table = isinstance(extent, int)
    if isinstance(last, int):
        if last < _TO_THE_END:
            return None
        last = extent
    elif not is_table and not is_extent(difference_of(extent, last)):
        return None
    begin = value_at_ones(first) if is_table else least_of(first)
    if begin is None or begin < 0:
        return None
    length = difference_of(last, first)
    if isinstance(extent, int) and length is not None and (least_of(length) or 0) > extent:
        return None
    is_new = isinstance(length, str) or not is_table  # the inference knows numbers
    return length if is_new and is_extent(length) else None


def _pad(node: onnx.NodeProto, given: OpenShape, values: Known) -> OpenShape | None:
    pads = values.get(node.input[1], []) if len(node.input) > 1 else []
    if len(pads) != 2 * len(given) or is_closed(given) or len(node.input) > _PADDED_AXES:
        return None
    around = zip(given, pads[: len(given)], pads[len(given) :], strict=True)
    made = [
        None if before is None or behind is None else sum_of(one, before, behind)
        for one, before, behind in around
    ]
    return _whole(made) if all(map(is_extent, made)) else None


def _reshape(node: onnx.NodeProto, given: OpenShape, values: Known) -> OpenShape | None:
    """Return the shape a Reshape is told, -1 resolved; None where the inference needs no help."""
    told = values.get(node.input[1]) or [None]
    if is_closed(given) or 0 in told[len(given) :]:
        return None
    made = [given[at] if one == 0 else one for at, one in enumerate(told)]
    known = [one for one in made if one is not None and one != -1]
    rest = Counter(one for one in given if isinstance(one, str))
    rest.subtract(one for one in known if isinstance(one, str))
    number, of = (prod(one for one in two if isinstance(one, int)) for two in (given, known))
    if min(rest.values()) < 0 or of == 0 or number % of:
        return None
    missing: list[Extent] = [*rest.elements(), *([number // of] if number != of else [])] or [1]
    if len(missing) > 1 or (-1 not in made and missing != [1]):
        return None
    shape = tuple(missing[0] if one == -1 else one for one in made if one is not None)
    return shape if len(shape) == len(made) else None


def _resize(node: onnx.NodeProto, given: OpenShape, values: Known) -> OpenShape | None:
    return _whole(values.get(_sizes(node), [])) or None


_RESHAPED = {
    "Expand": _expand,
    "Pad": _pad,
    "Reshape": _reshape,
    "Resize": _resize,
    "Slice": _slice,
}
"""Operators that give what they read an open extent; one more is a line."""


def _joined(parts: Sequence[OpenTensor | None], node: onnx.NodeProto) -> OpenTensor | None:
    """Return the tensor a Concat joins to an open extent, None where that is not proven."""
    first, *others = parts
    (axis,) = (attribute.i for attribute in node.attribute if attribute.name == "axis")
    if first is None or not others:
        return None
    extents: list[Extent] = []
    for one in parts:
        if one is None or len(one.shape) != len(first.shape):
            return None
        extents.append(one.shape[axis])
    total = sum_of(*extents)
    if total is None or isinstance(total, int):
        return None  # the inference knows numbers
    at = axis % len(first.shape)
    return replace(first, shape=(*first.shape[:at], total, *first.shape[at + 1 :]))


def _expanded(given: OpenShape, wanted: Values | None) -> OpenShape | None:
    """Return the shape of a tensor that is expanded, None where that is not proven.

    >>> _expanded((1, "s"), ["n", 1]), _expanded((), ["s", "s"]), _expanded(("s",), ["n"])
    (('n', 's'), ('s', 's'), None)
    """
    if wanted is None or len(given) > len(wanted):
        return None
    made: list[Extent] = []
    for one, other in zip((1,) * (len(wanted) - len(given)) + given, wanted, strict=True):
        if other is None or (one != other and 1 not in (one, other)):
            return None
        made.append(other if one == 1 else one)
    return tuple(made)


def _dtype(onnx_type: int) -> str:
    return str(np.dtype(helper.tensor_dtype_to_np_dtype(onnx_type)).name)


def _declared(known: Tensors) -> Sequence[onnx.ValueInfoProto]:
    """Return declarations of tensors whose shape is proven."""
    return [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(np.dtype(tensor.dtype)), tensor.shape
        )
        for name, tensor in known.items()
    ]


def _float(name: str, shape: OpenShape) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)


def _inputs(proto: onnx.ModelProto) -> Tensors:
    found = {value.name: _open_tensor(value) for value in proto.graph.input}
    return {name: tensor for name, tensor in found.items() if tensor is not None}


def _as_far_as_known(value: onnx.ValueInfoProto) -> tuple[str, PartialShape] | None:
    """Return the declared type and shape, None for extents whose names ONNX has made up."""
    kind = value.type.tensor_type
    if not kind.elem_type or not kind.HasField("shape"):
        return None
    names = [dim.dim_param for dim in kind.shape.dim]
    known = [None if one.startswith(_MADE_UP) else one for one in names]
    numbers = [dim.dim_value if dim.HasField("dim_value") else None for dim in kind.shape.dim]
    shape = [one or number for one, number in zip(known, numbers, strict=True)]
    return _dtype(kind.elem_type), shape


def _open_tensor(value: onnx.ValueInfoProto) -> OpenTensor | None:
    """Return the declared type and shape, None if an extent has neither a number nor a name."""
    kind = value.type.tensor_type
    if not kind.elem_type or not kind.HasField("shape"):
        return None
    shape = [dim.dim_param or dim.dim_value for dim in kind.shape.dim]
    if not all(dim.dim_param or dim.HasField("dim_value") for dim in kind.shape.dim):
        return None
    return OpenTensor(dtype=_dtype(kind.elem_type), shape=tuple(shape))
