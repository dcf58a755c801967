"""Network of a prototxt: inputs and layers of the inference phase, old forms brought up to date.

Source of all names and numbers: `caffe.proto` of BVLC/caffe, and of weiliu89/caffe (branch ssd).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from aoe.entry.caffe.text import Fields, choice, integer, parse_text, text, whole
from aoe.errors import ModelImportError
from aoebank import plural

INT_MAX = 2**31 - 1
"""Caffe's limit for the number of elements of a blob."""

TRAINING = frozenset(
    {
        *("Accuracy", "SoftmaxWithLoss", "EuclideanLoss", "HingeLoss", "SigmoidCrossEntropyLoss"),
        *("MultinomialLogisticLoss", "InfogainLoss", "ContrastiveLoss", "MultiBoxLoss"),
        *("SmoothL1Loss", "DetectionEvaluate", "Silence", "HDF5Output"),
    }
)
"""Layers that judge results or only use them up: a model that is run has no need of them."""

DATA_PARAMETERS = {
    "Input": "input_param",
    "Data": "data_param",
    "ImageData": "image_data_param",
    "MemoryData": "memory_data_param",
    "HDF5Data": "hdf5_data_param",
    "WindowData": "window_data_param",
    "DummyData": "dummy_data_param",
    "AnnotatedData": "data_param",
}
"""Layers whose tops are inputs, with the parameter that may tell their shape."""

_OLD_TYPES = (
    *("AbsVal", "Accuracy", "ArgMax", "BNLL", "Concat", "ContrastiveLoss", "Convolution"),
    *("Data", "Deconvolution", "Dropout", "DummyData", "EuclideanLoss", "Eltwise", "Exp"),
    *("Flatten", "HDF5Data", "HDF5Output", "HingeLoss", "Im2col", "ImageData", "InfogainLoss"),
    *("InnerProduct", "LRN", "MemoryData", "MultinomialLogisticLoss", "MVN", "Pooling", "Power"),
    *("ReLU", "Sigmoid", "SigmoidCrossEntropyLoss", "Silence", "Softmax", "Split", "Slice"),
    *("TanH", "WindowData", "Threshold"),
)
"""Types that `layers { }`, the form before 2015, has as well: there in capitals, `HDF5_DATA`."""
_RENAMED = {"SOFTMAX_LOSS": "SoftmaxWithLoss"}


@dataclass(frozen=True, slots=True, kw_only=True)
class CaffeLayer:
    """A layer as the prototxt has it."""

    name: str  # Its name; weights go by it
    type: str  # As it is called today
    place: str  # File, line, name and type, for errors
    bottoms: tuple[str, ...]  # Names of the blobs it reads
    tops: tuple[str, ...]  # Names of the blobs it makes
    fields: Fields  # All that is written in it


@dataclass(frozen=True, slots=True, kw_only=True)
class CaffeInput:
    """A blob that comes from outside."""

    name: str  # Of the blob
    shape: tuple[int, ...] | None  # None if the prototxt leaves it open
    suggestion: tuple[int, ...]  # Extents to give for an open one, as far as the prototxt has them
    place: str  # For errors


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """The inference phase of a prototxt."""

    inputs: tuple[CaffeInput, ...]  # In the order of the file
    layers: tuple[CaffeLayer, ...]  # Those that compute something, in the order of the file
    names: frozenset[str]  # Names of all layers, of those for training too
    left_out: tuple[CaffeLayer, ...]  # Layers that are of no use when a model is run


def parse_network(content: str, place: str) -> Network:
    """Return the layers of a prototxt that are for inference (`phase: TEST`).

    Args:
        content: The whole text.
        place: What errors call it.

    Raises:
        ModelImportError: not a prototxt, not of a network, or of a form that is too old.
    """
    fields = parse_text(content, place)
    everything = tuple(_layers(fields, place))
    state = fields.message("state")
    kept = [layer for layer in everything if _is_included(layer.fields, state)]
    inputs = [*_inputs_of_the_net(fields, place)]
    for layer in kept:
        if layer.type in DATA_PARAMETERS:
            inputs.extend(_inputs_of(layer))
    return Network(
        inputs=tuple(inputs),
        layers=tuple(
            layer
            for layer in kept
            if layer.type not in DATA_PARAMETERS and layer.type not in TRAINING
        ),
        names=frozenset(layer.name for layer in everything),
        left_out=tuple(layer for layer in kept if layer.type in TRAINING),
    )


def _layers(fields: Fields, place: str) -> Iterator[CaffeLayer]:
    new, old = fields.messages("layer"), fields.messages("layers")
    if new and old:
        raise ModelImportError(
            f"{place}, line {old[0].line}",
            "layers of the new form (layer) and of the old one (layers) in one file",
            hint="Caffe's upgrade_net_proto_text brings a file up to date",
        )
    if not new and not old:
        is_solver = any(name in fields for name in ("net", "train_net", "base_lr"))
        raise ModelImportError(
            place,
            "a solver, not a network" if is_solver else "no layer in it",
            expected="the prototxt of a network",
            hint="give the file its field net names" if is_solver else None,
        )
    for message in new:
        yield _layer(message, message.one("type", text, ""), place)
    for message in old:
        if "layer" in message:
            raise ModelImportError(
                f"{place}, line {message.line}",
                "layers of the oldest form (V0: layers { layer { } }) cannot be read",
                hint="Caffe's upgrade_net_proto_text and upgrade_net_proto_binary bring the files "
                "up to date",
            )
        word = message.one("type", lambda value: value.text, "")
        yield _layer(message, _type_today(word), place)


def _type_today(word: str) -> str:
    """Return a type of the old form by its word today, a word that was none as it is.

    >>> _type_today("INNER_PRODUCT"), _type_today("SOFTMAX_LOSS"), _type_today("InnerProduct")
    ('InnerProduct', 'SoftmaxWithLoss', 'InnerProduct')
    """
    same = (kind for kind in _OLD_TYPES if kind.upper() == word.replace("_", ""))
    return _RENAMED.get(word) or next(same, word)


def _layer(fields: Fields, kind: str, place: str) -> CaffeLayer:
    name = fields.one("name", text, "")
    where = f"{place}, line {fields.line}, layer {name or '?'}"
    if not kind:
        raise ModelImportError(where, "a layer without a type")
    bottoms, tops = fields.every("bottom", text), fields.every("top", text)
    if not all((*bottoms, *tops)):
        raise ModelImportError(f"{where} ({kind})", "a blob without a name")
    return CaffeLayer(
        name=name, type=kind, place=f"{where} ({kind})", bottoms=bottoms, tops=tops, fields=fields
    )


def _is_included(layer: Fields, state: Fields) -> bool:
    """True if a layer is part of the net in the phase TEST.

    Source: Caffe, Net::FilterNet: without rules yes; any `include` that is met, or no `exclude`.
    """
    include, exclude = layer.messages("include"), layer.messages("exclude")
    if include:
        return any(_is_met(rule, state) for rule in include)
    return not any(_is_met(rule, state) for rule in exclude)


def _is_met(rule: Fields, state: Fields) -> bool:
    level = state.one("level", integer, 0)
    stages = set(state.every("stage", text))
    return (
        rule.one("phase", choice("TRAIN", "TEST"), "TEST") == "TEST"
        and rule.one("min_level", integer, level) <= level <= rule.one("max_level", integer, level)
        and stages.issuperset(rule.every("stage", text))
        and stages.isdisjoint(rule.every("not_stage", text))
    )


def _inputs_of_the_net(fields: Fields, place: str) -> Iterator[CaffeInput]:
    """Yield the inputs the file names before its layers, shaped by input_shape or input_dim."""
    names = fields.every("input", text)
    shapes = [_shape(message) for message in fields.messages("input_shape")]
    extents = fields.every("input_dim", integer)
    if shapes and len(shapes) != len(names):
        raise ModelImportError(
            place,
            "input and input_shape",
            got=plural(len(shapes), "shape"),
            expected=str(len(names)),
        )
    if not shapes and extents:
        if len(extents) != 4 * len(names):
            raise ModelImportError(
                place,
                "input_dim: four extents for each input",
                got=f"{len(extents)} extents",
                expected=str(4 * len(names)),
            )
        shapes = [extents[4 * number : 4 * number + 4] for number in range(len(names))]
    for number, name in enumerate(names):
        where = f"{place}, input {name}"
        yield _input(name, shapes[number] if shapes else (), where)


def _inputs_of(layer: CaffeLayer) -> Iterator[CaffeInput]:
    """Yield the tops of a layer that reads data; most know their shape only from the data."""
    param = layer.fields.message(DATA_PARAMETERS[layer.type])
    shapes = [_shape(message) for message in param.messages("shape")]
    if shapes and len(shapes) not in (1, len(layer.tops)):
        raise ModelImportError(
            layer.place, "shapes for its tops", got=len(shapes), expected=f"1 or {len(layer.tops)}"
        )
    batch = param.one("batch_size", whole, 1)
    crop = layer.fields.message("transform_param").one("crop_size", whole, 0)
    for position, top in enumerate(layer.tops):
        shape: Sequence[int] = shapes[position % len(shapes)] if shapes else ()
        if layer.type == "MemoryData":
            image = tuple(param.one(name, whole, 0) for name in ("channels", "height", "width"))
            shape = (batch, *image) if position == 0 else (batch,)
        elif layer.type == "DummyData" and not shapes:
            every = [param.every(name, whole) for name in ("num", "channels", "height", "width")]
            if all(every):
                shape = [extents[min(position, len(extents) - 1)] for extents in every]
        suggestion = (batch, 3, crop or 224, crop or 224) if position == 0 else (batch,)
        yield _input(top, shape, layer.place, suggestion)


def _shape(message: Fields) -> tuple[int, ...]:
    return message.every("dim", integer)


def _input(
    name: str, shape: Sequence[int], place: str, suggestion: tuple[int, ...] = (1, 3, 224, 224)
) -> CaffeInput:
    is_open = not shape or any(extent <= 0 for extent in shape)
    return CaffeInput(
        name=name,
        shape=None if is_open else tuple(shape),
        suggestion=tuple(max(extent, 1) for extent in shape) or suggestion,
        place=place,
    )
