"""ONNX Runtime sessions, set up the same way everywhere."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from threading import Timer
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper

from aoe.errors import RunError
from aoe.folders.scratch import is_scratch
from aoe.graph.protos import copied
from aoe.graph.weights import is_outside, place_of, point_into
from aoe.ort.bfloat16 import (
    BFLOAT16,
    BFLOAT16_TENSOR,
    needs_values,
    ort_value,
    run_on_values,
    widened,
)
from aoe.ort.optimizers import (
    PartlyOptimizedSession,
    known_optimizations,
    open_as_optimized_as_possible,
)
from aoe.ort.thread_pools import ThreadPool

OpenSession = Callable[[bytes | Path, ort.SessionOptions], ort.InferenceSession]
"""How a device loads a model."""

_OPSET_HINT = "export the model with an opset that has it"
_OPERATORS_HINT = "name the library that has the operator: --custom_ops_library=FILE.so"
_UNKNOWN_OPERATORS = {
    "is not a registered function/op": _OPERATORS_HINT,
    "No Op registered for": f"{_OPSET_HINT}, or {_OPERATORS_HINT}",
    "is deprecated in domain_version": f"{_OPSET_HINT}, or with the operator that replaced it",
}
"""What to do about an operator nobody knows, by ONNX Runtime's words for it."""
_NEW_IR = re.compile(r"Unsupported model IR version: (?P<ir>\d+), max supported .*: (?P<most>\d+)")
_NEW_OPSET = re.compile(r"Opset (?P<opset>\d+) is under development.* is till opset (?P<most>\d+)")
_NO_KERNEL = re.compile(
    r"Could not find an implementation for (?P<operator>\S+) node with name '(?P<node>[^']*)'"
)
"""Source: messages of ONNX Runtime 1.31, model.cc, model_load_utils.h and session_state.cc."""
_FROM_FILE = re.compile(r"Load model from .+? failed:")
"""How ONNX Runtime names the file of a model it refuses, which is said in front already."""
_NO_IR_VERSION = 1 << 20
_ANY_VERSION = 2**31 - 1
"""Last version of a kernel that has none. Source: ONNX Runtime's KernelDef."""
_OTHER_FAULTS = ("NO_SUCHFILE", "INVALID_PROTOBUF", "alloc")
"""ONNX Runtime's words for what no other optimisation helps against: no file, no memory."""
_WEIGHTS_FOLDER = "session.model_external_initializers_file_folder_path"
_SPINNING = "session.intra_op.allow_spinning"
NO_PACKING = "session.disable_prepacking"
"""Entry of options: "1" leaves weights where they are, for sessions nothing is computed with."""
_FATAL_LEVEL = 4  # failures arrive as exceptions; the log would repeat them


def session_options(
    *,
    threads: int,
    optimize: bool,
    pool: ThreadPool = ThreadPool.OWN,
    library: Path | None = None,
) -> ort.SessionOptions:
    """Return options for one session.

    Args:
        threads: Intra-op threads, the calling one included.
        optimize: True for every graph optimisation, False to run the graph as it is written.
        pool: Threads that compute.
        library: Kernel library to register.

    Raises:
        RunError: the library cannot be loaded on this machine.
    """
    options = ort.SessionOptions()
    options.log_severity_level = _FATAL_LEVEL
    levels = ort.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimize else levels.ORT_DISABLE_ALL
    if pool is ThreadPool.SHARED:
        options.use_per_session_threads = False
    else:
        options.inter_op_num_threads = 1
        options.intra_op_num_threads = threads
    if pool is ThreadPool.SLEEPING:
        options.add_session_config_entry(_SPINNING, "0")
    if library is not None:
        try:
            options.register_custom_ops_library(str(library))
        except Exception as error:  # onnxruntime raises its own unrelated classes
            raise RunError(str(library), f"kernel library not usable here: {error}") from error
    return options


def session_source(proto: onnx.ModelProto, options: ort.SessionOptions) -> bytes:
    """Return the bytes a session of a model in memory is opened from.

    Weights that lie outside are mapped by the session, whose options then say from where: their
    absolute paths are below the root, the only folder that is above all of them.
    """
    if not is_outside(proto):
        return bytes(proto.SerializeToString())
    options.add_session_config_entry(_WEIGHTS_FOLDER, "/")
    light = copied(proto)
    for tensor in light.graph.initializer:
        place = place_of(tensor)
        if place is not None:
            below = str(place.file.relative_to("/"))
            tensor.CopyFrom(point_into(below, tensor, place.offset, place.length))
    return bytes(light.SerializeToString())


def use_shared_pool(threads: int) -> None:
    """Create the process-wide thread pool; call once, before the first session.

    Sessions that are compared share it: two pools of their own spin against each other, and an
    A/A comparison then reads 0.58 to 1.43.
    """
    ort.set_global_thread_pool_sizes(threads, 1)


def create_session(
    model: bytes | Path, options: ort.SessionOptions, provider: str
) -> ort.InferenceSession:
    """Load a model for an execution provider, without a fall-back to another one.

    Where all optimisations are asked for and one of them breaks the model, or makes it wrong as its
    mark says, the others are applied; `optimizations_of` tells.

    Raises:
        RunError: ONNX Runtime refuses it.
    """
    source = model if isinstance(model, bytes) else str(model)
    known = known_optimizations(source, options)
    try:
        if not known.are_all:
            return PartlyOptimizedSession(source, options, provider, known)
        return ort.InferenceSession(source, options, providers=[provider], enable_fallback=0)
    except Exception as error:
        in_memory = isinstance(model, bytes) or is_scratch(model)
        where = "model" if in_memory else str(model)
        text = str(error).strip()
        if not any(words in text for words in (*_UNKNOWN_OPERATORS, *_OTHER_FAULTS)):
            session = open_as_optimized_as_possible(source, options, provider)
            if session is not None:
                return session
        raise _cannot_load(where, text) from error


def _cannot_load(where: str, text: str) -> RunError:
    """Return the meaning of an error of ONNX Runtime; its own text if it is unknown."""
    if found := _NEW_OPSET.search(text):
        return RunError(
            where,
            "ONNX Runtime does not read this opset yet",
            got=found["opset"],
            expected=f"at most {found['most']}",
            hint="export the model with that opset, or convert it by "
            f"onnx.version_converter.convert_version(model, {found['most']}), or install a newer "
            "onnxruntime",
        )
    if found := _NEW_IR.search(text):
        return RunError(
            where,
            "ONNX Runtime does not read this IR version yet",
            got=found["ir"],
            expected=f"at most {found['most']}",
            hint=f"set model.ir_version = {found['most']} and save the model again, or install a "
            "newer onnxruntime",
        )
    if found := _NO_KERNEL.search(text):
        return _no_kernel(where, found["operator"], found["node"])
    hint = next((hint for words, hint in _UNKNOWN_OPERATORS.items() if words in text), None)
    problem = f"ONNX Runtime cannot load it: {_FROM_FILE.sub('', text)}"
    return RunError(where, problem, hint=hint)


def _no_kernel(where: str, operator: str, node: str) -> RunError:
    """Return the error about an operator that ONNX Runtime knows and does not compute.

    An operator without a kernel of its own runs as the function ONNX defines it by, which ONNX
    Runtime cannot use where the model's opset has newer versions of the operators in that function.
    """
    domain, _, versioned = operator.rpartition(".")
    name, _, version = versioned.removesuffix(")").partition("(")
    if name not in _kernel_versions(domain):
        problem = f"ONNX Runtime has no kernel of {operator}, the operator of node {node!r}"
        if domain:
            hint = "export the model with simpler operators in its place"
            return RunError(where, problem, hint=hint)
        return RunError(
            where,
            f"{problem}, and cannot replace it by others at the opset of the model",
            hint=f"export the model with opset {version}, or with simpler operators in its place",
        )
    return RunError(
        where,
        f"ONNX Runtime has no {operator} for the types of node {node!r} on a CPU",
        hint="few operators compute bfloat16 or float16 on a CPU: --precision_mode=force_fp32 "
        "computes them in float32; or export the model in float32",
    )


@cache
def _kernel_versions(domain: str) -> Mapping[str, tuple[tuple[int, int], ...]]:
    """Return the first and last versions ONNX Runtime has kernels of, by operator of a domain."""
    from onnxruntime.capi.onnxruntime_pybind11_state import get_all_opkernel_def

    found: dict[str, tuple[tuple[int, int], ...]] = {}
    for kernel in get_all_opkernel_def():
        if kernel.domain == domain:
            first, last = kernel.version_range
            found[kernel.op_name] = (*found.get(kernel.op_name, ()), (first, last))
    return found


def has_kernel(op_type: str, version: int) -> bool:
    """True if ONNX Runtime has a kernel of an operator of ONNX, of any element type.

    A kernel without a last version computes its first alone: newer ones may mean something else.
    """
    return any(
        first == version or first < version <= last < _ANY_VERSION
        for first, last in _kernel_versions("").get(op_type, ())
    )


def lacking_operator(error: Exception) -> str | None:
    """Return the operator ONNX Runtime has no kernel of, as it writes it: `Swish(24)`.

    The empty string where it refuses the opset of the model, or its IR version; None where
    something else is wrong.

    Args:
        error: Of `create_session`, or ONNX Runtime's own.
    """
    text = str(error.__cause__ or error)
    if _NEW_OPSET.search(text) or _NEW_IR.search(text):
        return ""
    found = _NO_KERNEL.search(text)
    return found["operator"] if found else None


@cache
def newest_ir_version() -> int | None:
    """Return the newest IR version ONNX Runtime reads, None where it does not say."""
    node = helper.make_node("Identity", ["x"], ["y"])
    x, y = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1]) for name in "xy")
    proto = helper.make_model(helper.make_graph([node], "g", [x], [y]), ir_version=_NO_IR_VERSION)
    try:
        ort.InferenceSession(proto.SerializeToString(), session_options(threads=1, optimize=False))
    except Exception as error:  # onnxruntime raises its own unrelated classes
        found = _NEW_IR.search(str(error))
        return int(found["most"]) if found else None
    return None


def run_session(
    session: ort.InferenceSession, feed: Mapping[str, np.ndarray[Any, Any]]
) -> list[Any]:
    """Compute every output; those of bfloat16 come as float32.

    Raises:
        RunError: ONNX Runtime or a kernel refuses, wrong shapes and types included.
    """
    try:
        return _computed(session, feed)
    except Exception as error:  # onnxruntime raises its own unrelated classes
        raise _cannot_run(session, error) from error


def _computed(
    session: ort.InferenceSession,
    feed: Mapping[str, np.ndarray[Any, Any]],
    options: ort.RunOptions | None = None,
) -> list[Any]:
    if needs_values(session):
        return list(map(widened, run_on_values(session, None, feed, options)))
    return list(session.run(None, dict(feed), options))


def run_within(
    session: ort.InferenceSession, feed: Mapping[str, np.ndarray[Any, Any]], most_s: float
) -> list[Any] | None:
    """Compute every output; None if that takes longer, as a loop that never ends does.

    Raises:
        RunError: ONNX Runtime or a kernel refuses.
    """
    if most_s <= 0:
        return None
    options = ort.RunOptions()
    timer = Timer(most_s, setattr, (options, "terminate", True))
    timer.daemon = True
    timer.start()
    try:
        return _computed(session, feed, options)
    except Exception as error:  # onnxruntime raises its own unrelated classes
        if options.terminate:
            return None
        raise _cannot_run(session, error) from error
    finally:
        timer.cancel()


def _cannot_run(session: ort.InferenceSession, error: Exception) -> RunError:
    for value in session.get_outputs() if "Numpy type" in str(error) else ():
        if numpy_type(value.type) is None:
            return RunError(
                f"output {value.name}",
                "no NumPy array can hold a value of its type",
                got=value.type,
                hint="end the model with a tensor of float: a Cast or DequantizeLinear behind it",
            )
    return RunError("model", f"ONNX Runtime cannot run it: {str(error).strip()}")


_NUMPY_TYPES: dict[str, Any] = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(float16)": np.float16,
    BFLOAT16_TENSOR: BFLOAT16,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(int16)": np.int16,
    "tensor(int8)": np.int8,
    "tensor(uint8)": np.uint8,
    "tensor(uint16)": np.uint16,
    "tensor(uint32)": np.uint32,
    "tensor(uint64)": np.uint64,
    "tensor(bool)": np.bool_,
    "tensor(string)": np.object_,
}


def numpy_type(name: str) -> np.dtype[Any] | None:
    """Return NumPy's element type for ONNX Runtime's, object for strings; None if it has none."""
    known = _NUMPY_TYPES.get(name)
    return None if known is None else np.dtype(known)


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSpec:
    """Name, type and shape an input of a model takes."""

    name: str  # Of the input
    type: str  # Its type in ONNX Runtime's words, `tensor(float)`
    shape: tuple[int | None, ...]  # Its extents, None where they are open

    @property
    def dtype(self) -> np.dtype[Any] | None:
        """NumPy's element type, object for strings; None for what NumPy does not have."""
        return numpy_type(self.type)

    def takes(self, shape: Sequence[int | str]) -> bool:
        """True if an array of that shape fits."""
        return len(shape) == len(self.shape) and all(
            wanted in (None, extent) for wanted, extent in zip(self.shape, shape, strict=True)
        )


def input_specs(session: ort.InferenceSession) -> list[InputSpec]:
    """Return type and shape of the inputs of a session, in their order."""
    return [
        InputSpec(
            name=value.name,
            type=value.type,
            shape=tuple(extent if isinstance(extent, int) else None for extent in value.shape),
        )
        for value in session.get_inputs()
    ]


def random_feed(
    session: ort.InferenceSession,
    seed: int,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
) -> dict[str, np.ndarray[Any, Any]]:
    """Return seeded inputs: standard normal floats, zeros for integers (valid as indices).

    Args:
        session: Of the model.
        seed: Of the values.
        shapes: Of inputs whose shape is open.

    Raises:
        RunError: an input has an element type or an open shape nothing can be made up for, or
            is too large for the memory.
    """
    rng = np.random.default_rng(seed)
    asked = shapes or {}
    specs = [replace(one, shape=asked.get(one.name, one.shape)) for one in input_specs(session)]
    return {spec.name: made_up_array(spec, rng) for spec in specs}


def made_up_array(spec: InputSpec, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """Return one input as `random_feed` makes it.

    Raises:
        RunError: nothing can be made up for it, or it is too large for the memory.
    """
    shape = [extent for extent in spec.shape if extent is not None and extent >= 0]
    if spec.dtype is None or spec.dtype == object or len(shape) < len(spec.shape):
        raise RunError(
            f"input {spec.name}",
            "no random value can be made up for it",
            got=f"{spec.type} {['?' if extent is None else extent for extent in spec.shape]}",
            hint=f"give a file: --input {spec.name}:x.npy"
            if spec.dtype is not None
            else "no NumPy file has such values either: begin the model with a tensor of float, "
            "and a Cast or QuantizeLinear behind it",
        )
    try:
        if spec.dtype == BFLOAT16 or np.issubdtype(spec.dtype, np.floating):
            return rng.standard_normal(shape).astype(spec.dtype)
        return np.zeros(shape, spec.dtype)
    except (MemoryError, ValueError) as error:  # the latter of more elements than NumPy counts
        raise RunError(
            f"input {spec.name}",
            "a tensor of its shape does not fit into the memory",
            got=f"{spec.type} {list(spec.shape)}",
            hint="--input_shape with smaller extents",
        ) from error


def _is_as_declared(value: Any, result: Any) -> bool:
    """True if a result has every extent its model declares."""
    if not isinstance(result, np.ndarray) or len(value.shape) != result.ndim:
        return True  # no shape is declared
    return all(
        not isinstance(extent, int) or extent == found
        for extent, found in zip(value.shape, result.shape, strict=True)
    )


def plain_run(
    session: ort.InferenceSession, feed: Mapping[str, np.ndarray[Any, Any]]
) -> Callable[[], object]:
    """Return a run as a program has it that calls the session: its results are new in each run.

    A kernel that has made a model shorter does not shorten that: a decoder with its cache, which
    returns 13 tensors, is 1.47 times as fast so, and 1.52 times where all are bound to memory that
    lies ready (one thread of a Xeon, CPU time, 2026-11-29).

    Args:
        session: What is run.
        feed: Inputs by name.
    """
    if needs_values(session):
        return partial(run_session, session, feed)
    inputs = dict(feed)

    def run() -> object:
        try:
            return session.run(None, inputs)
        except Exception as error:  # onnxruntime raises its own unrelated classes
            raise _cannot_run(session, error) from error

    return run


@dataclass(frozen=True, slots=True)
class BoundRun:
    """A run of a session on fixed inputs; `held` keeps their memory."""

    session: ort.InferenceSession
    binding: ort.IOBinding
    held: Sequence[Any]

    def __call__(self) -> object:
        """Compute the outputs into the memory they are bound to.

        Raises:
            RunError: ONNX Runtime or a kernel refuses.
        """
        try:
            return self.session.run_with_iobinding(self.binding)
        except Exception as error:  # onnxruntime raises its own unrelated classes
            raise _cannot_run(self.session, error) from error


def bound_run(
    session: ort.InferenceSession,
    feed: Mapping[str, np.ndarray[Any, Any]],
    results: Sequence[Any] | None = None,
) -> Callable[[], object]:
    """Bind inputs and preallocated outputs, so that a run allocates and copies nothing.

    Strings cannot be bound, nor can a result that has not the shape its model declares: with them
    a run is an ordinary one.

    Args:
        session: What is run.
        feed: Inputs by name.
        results: What it computes of them, where that is known; else it is run for them.
    """
    outputs = session.get_outputs()
    results = run_session(session, feed) if results is None else results
    texts = any(array.dtype.kind in "OUS" for array in feed.values())
    if texts or not all(map(_is_as_declared, outputs, results)):
        return partial(run_session, session, feed)
    binding = session.io_binding()
    held: list[Any] = []
    for name, array in feed.items():
        value = ort_value(array)
        binding.bind_ortvalue_input(name, value)
        held.append(value)
    for value, array in zip(outputs, results, strict=True):
        is_plain = isinstance(array, np.ndarray) and array.dtype != object
        if is_plain and value.type != BFLOAT16_TENSOR:
            result = ort.OrtValue.ortvalue_from_numpy(array)
            binding.bind_ortvalue_output(value.name, result)
            held.append(result)
        else:
            binding.bind_output(value.name)
    return BoundRun(session, binding, held)
