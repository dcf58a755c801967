"""ONNX Runtime's own graph optimisation, done ahead of time and written down."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import onnx
from onnx import helper

from aoe.errors import RunError
from aoe.graph.canonical_form import make_canonical
from aoe.graph.model_graph import attributes_of
from aoe.graph.rewrites.always import ALWAYS, rewritten, write_tokens_as_images
from aoe.graph.weights import SMALL_BYTES, is_outside, load_written, place_of, share_places
from aoe.operators import BLOCKED_CONVOLUTION, op_key
from aoe.ort.optimizers import ALL_OR_NOTHING, Optimizations, broken_at, mark, optimizations_of
from aoe.ort.sessions import NO_PACKING, OpenSession, session_options, session_source

_WEIGHTS_SUFFIX = ".weights"
_WEIGHTS_FILE = "session.optimized_model_external_initializers_file_name"
_WEIGHTS_LEAST = "session.optimized_model_external_initializers_min_size_in_bytes"


def optimize_offline(
    proto: onnx.ModelProto,
    file: Path,
    open_session: OpenSession,
    *,
    threads: int,
    tokens_as_images: bool = True,
) -> onnx.ModelProto:
    """Return the graph ONNX Runtime really runs, blocked layouts included.

    Rewriters that break the model are left out; `marked` tells which, and where it breaks. Rules
    that always help stand in front of it (`aoe/graph/rewrites/always.py`).

    Args:
        proto: A model with static input shapes.
        file: Where ONNX Runtime writes the optimised model; in a directory of the caller's. Where
            the model has its weights outside, those of the optimised one stay beside this file,
            and have to be there as long as the model is.
        open_session: Loads a model on the device it is optimised for.
        threads: Intra-op threads of the session.
        tokens_as_images: False to leave matrix products of tokens what they are.

    Raises:
        RunError: ONNX Runtime cannot load the model.
    """
    options = session_options(threads=threads, optimize=True)
    options.optimized_model_filepath = str(file)
    spelled = rewritten(proto, *ALWAYS)
    if tokens_as_images:
        spelled = write_tokens_as_images(spelled)
    weights = file.with_name(file.name + _WEIGHTS_SUFFIX)
    if is_outside(spelled):
        options.add_session_config_entry(_WEIGHTS_FILE, weights.name)
        options.add_session_config_entry(_WEIGHTS_LEAST, str(SMALL_BYTES))
        options.add_session_config_entry(NO_PACKING, "1")  # nothing is run
    session = open_session(session_source(spelled, options), options)
    optimized = load_written(file, whole=not is_outside(spelled))
    if is_outside(spelled):
        _drop_twins(optimized, spelled, weights)
    _write_filter_extents(optimized)
    make_canonical(optimized, spelled)
    mark(optimized, _told(spelled, optimizations_of(session), open_session))
    return optimized


def _write_filter_extents(proto: onnx.ModelProto) -> None:
    """Write the extents of filters that blocked convolutions in groups leave to their weights.

    A blocked convolution in groups that says none is the form in which ONNX Runtime leaves a
    BatchNormalization: its filters are single values, and are left.
    """
    weights = {tensor.name: tensor.dims for tensor in proto.graph.initializer}
    for node in proto.graph.node:
        said = attributes_of(node)
        if op_key(node) != BLOCKED_CONVOLUTION or "kernel_shape" in said:
            continue
        extents = weights.get(node.input[1], ())[2:]
        if said.get("group", 1) > 1 and any(extent > 1 for extent in extents):
            node.attribute.append(helper.make_attribute("kernel_shape", list(extents)))


def _told(proto: onnx.ModelProto, found: Optimizations, open_session: OpenSession) -> Optimizations:
    """Add to what breaks a model where it does; not of a model too large to be opened often."""
    if found.are_all or is_outside(proto):
        return found

    def opens(part: onnx.ModelProto) -> bool:
        return is_fully_optimized(part, open_session)

    return replace(found, broken_at=broken_at(proto, opens))


def is_fully_optimized(proto: onnx.ModelProto, open_session: OpenSession) -> bool:
    """True if a model can be opened with all optimisations; nothing is computed."""
    options = session_options(threads=1, optimize=True)
    options.add_session_config_entry(NO_PACKING, "1")
    options.add_session_config_entry(ALL_OR_NOTHING, "1")
    try:
        open_session(session_source(proto, options), options)
    except RunError:
        return False
    return True


def _drop_twins(optimized: onnx.ModelProto, original: onnx.ModelProto, weights: Path) -> None:
    """Remove the weights ONNX Runtime has written where none of them is another than before."""
    share_places(optimized, original)
    places = map(place_of, optimized.graph.initializer)
    if not any(place is not None and place.file == weights.absolute() for place in places):
        weights.unlink(missing_ok=True)
