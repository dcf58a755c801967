"""Types and shapes a model has in every run, proven without running it.

ONNX Runtime infers shapes when it loads a model, also those of its own operators and layouts. Its
answer starts here from the graph inputs and the constants alone: what the file claims about the
tensors between them is taken out first, since nothing keeps a file from claiming wrongly, and
what one run shows may be another in the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import onnx
from onnx import TensorProto, helper

from aoe.folders.scratch import ScratchFolder
from aoe.graph.model_graph import TensorInfo, subgraphs
from aoe.graph.weights import SMALL_BYTES, brought_in, bytes_of, point_into, without_initializers
from aoe.ort.sessions import NO_PACKING, OpenSession, session_options

if TYPE_CHECKING:
    import onnxruntime as ort

_NUMPY_NAMES = {"float": "float32", "double": "float64"}  # others are spelled as NumPy does
_SHAPE_TYPES = (TensorProto.INT64, TensorProto.INT32)
_RANK = "/rank"


def infer_tensors(proto: onnx.ModelProto, open_session: OpenSession) -> dict[str, TensorInfo]:
    """Return type and shape of the node results whose shape is the same in every run.

    Args:
        proto: A model with static input shapes, as ONNX Runtime is to run it.
        open_session: Loads a model on the device it is for.

    Raises:
        RunError: ONNX Runtime cannot load the model.
    """
    made = [name for node in proto.graph.node for name in node.output if name]
    if not made:
        return {}
    with ScratchFolder("shapes") as folder:
        bare = bare_model(proto, folder)
        found = _load(bare, made, folder, open_session)
        # ONNX Runtime spells "no shape" as it spells the shape of a scalar
        doubtful = [name for name, info in found.items() if info.shape == ()]
        scalars = _scalars(bare, doubtful, folder, open_session)
    return {name: info for name, info in found.items() if info.shape or name in scalars}


def _scalars(
    bare: onnx.ModelProto, names: Sequence[str], folder: Path, open_session: OpenSession
) -> set[str]:
    """Return the scalars among `names`: the shape of their shape is known, and is 0."""
    if not names:
        return set()
    asked = onnx.ModelProto()
    asked.CopyFrom(bare)
    asked.graph.node.extend(helper.make_node("Shape", [name], [name + _RANK]) for name in names)
    ranks = _load(asked, [name + _RANK for name in names], folder, open_session)
    return {name for name in names if name + _RANK in ranks and ranks[name + _RANK].shape == (0,)}


def _load(
    bare: onnx.ModelProto, names: Sequence[str], folder: Path, open_session: OpenSession
) -> dict[str, TensorInfo]:
    """Return type and shape of results that ONNX Runtime knows to be static, or without a shape."""
    found = {}
    for value in load_outputs(bare, names, folder, open_session):
        static = all(isinstance(extent, int) for extent in value.shape)
        if static and value.type.startswith("tensor("):
            info = TensorInfo(dtype=element_type(value), shape=tuple(value.shape))
            found[value.name] = info
    return found


def element_type(value: ort.NodeArg) -> str:
    """Return the element type of a tensor in NumPy's spelling."""
    dtype: str = value.type.removeprefix("tensor(").removesuffix(")")
    return _NUMPY_NAMES.get(dtype, dtype)


def load_outputs(
    bare: onnx.ModelProto, names: Sequence[str], folder: Path, open_session: OpenSession
) -> Sequence[ort.NodeArg]:
    """Return the types and shapes ONNX Runtime infers for results when it loads a model."""
    del bare.graph.output[:]
    bare.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in names)
    file = folder / "bare.onnx"
    file.write_bytes(bare.SerializeToString())
    options = session_options(threads=1, optimize=False)
    options.add_session_config_entry(NO_PACKING, "1")
    outputs: Sequence[ort.NodeArg] = open_session(file, options).get_outputs()
    return outputs


def bare_model(
    proto: onnx.ModelProto, folder: Path, declared: Sequence[onnx.ValueInfoProto] = ()
) -> onnx.ModelProto:
    """Return a copy that claims nothing about inner tensors and whose weights weigh nothing.

    Values matter where they are shapes: those of integers and of small tensors stay. All other
    weights read one file of zeros, which takes no room.

    Args:
        proto: The model.
        folder: Where the file of zeros goes.
        declared: What is known of inner tensors after all.
    """
    bare = without_initializers(proto)
    _forget_claims(bare.graph)
    bare.graph.value_info.extend(declared)
    zeros, longest = folder / "zeros", 0
    for tensor in proto.graph.initializer:
        length = bytes_of(tensor)
        if length > SMALL_BYTES and tensor.data_type not in _SHAPE_TYPES:
            tensor, longest = point_into(zeros.name, tensor, 0, length), max(longest, length)
        else:
            tensor = brought_in(tensor)
        bare.graph.initializer.append(tensor)
    with zeros.open("wb") as sink:
        sink.truncate(longest)
    return bare


def _forget_claims(graph: onnx.GraphProto) -> None:
    """Drop declared shapes of everything but the graph's inputs, of subgraphs' inputs too."""
    del graph.value_info[:]
    for node in graph.node:
        for inner in subgraphs(node):
            _forget_claims(inner)
            for value in (*inner.input, *inner.output):
                if value.type.HasField("tensor_type"):
                    value.type.tensor_type.ClearField("shape")
