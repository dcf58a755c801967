"""`SessionOptions` of a program: kept for tuned models, or a reason against tuned models."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper

from aoe.errors import RunError
from aoe.folders.scratch import ScratchFolder
from aoe.graph.model_graph import subgraphs
from aoe.graph.weights import point_into
from aoe.ort.sessions import OpenSession

_COPIED_OPTIONS = (
    *("enable_cpu_mem_arena", "enable_mem_pattern", "enable_mem_reuse", "enable_profiling"),
    *("execution_mode", "execution_order", "inter_op_num_threads", "use_per_session_threads"),
    "use_deterministic_compute",
)
_COPIED_ENTRIES = (
    *("session.intra_op.allow_spinning", "session.inter_op.allow_spinning"),
    *("session.intra_op.spin_duration_us", "session.inter_op.spin_duration_us"),
    *("session.intra_op.spin_backoff_max", "session.inter_op.spin_backoff_max"),
    *("session.intra_op_thread_affinities", "session.force_spinning_stop"),
    *("session.dynamic_block_base", "session.set_denormal_as_zero"),
    *("session.use_env_allocators", "session.use_device_allocator_for_initializers"),
    *("session.disable_prepacking", "session.prepack.enable_parallel"),
    *("mlas.disable_kleidiai", "mlas.qnbit.force_fp32", "mlas.use_lut_gemm"),
)
"""Entries that hold while a session computes, whatever graph it has."""
_GRAPH_ENTRIES = (
    *("optimization.disable_specified_optimizers", "optimization.enable_gelu_approximation"),
    *("optimization.enable_cast_chain_elimination", "optimization.minimal_build_optimizations"),
    *("session.disable_quant_qdq", "session.disable_double_qdq_remover"),
    *("session.disable_qdq_constant_folding", "session.enable_quant_qdq_cleanup"),
    *("session.qdqisint8allowed", "session.x64quantprecision"),
    *("session.enable_dq_matmulnbits_fusion", "session.qdq_matmulnbits_accuracy_level"),
    *("session.qdq_matmulnbits_block_size", "session.gqa_value_layout"),
    *("session.load_model_format", "session.model_external_initializers_file_folder_path"),
)
"""Entries that change which graph is computed: the tuned one was made without them."""
_UNSET = ("", "0")
_WEIGHT_NOT_THERE = "Failed to find existing initializer"
"""ONNX Runtime's words where `add_external_initializers` gives a weight of another model."""


def adjusting(given: ort.SessionOptions | None) -> Callable[[ort.SessionOptions], None]:
    """Return a function that copies options of a session to sessions of tuned models."""

    def adjust(options: ort.SessionOptions) -> None:
        if given is None:
            return
        for name in _COPIED_OPTIONS:
            setattr(options, name, getattr(given, name))
        options.profile_file_prefix = f"{given.profile_file_prefix}_tuned"
        for entry in _COPIED_ENTRIES:
            value = _entry(given, entry)
            if value is not None:
                options.add_session_config_entry(entry, value)

    return adjust


def reason_against_tuned_models(
    given: ort.SessionOptions | None,
    named: Mapping[str, object],
    proto: onnx.ModelProto | None,
    *,
    locations: Sequence[str],
    open_session: OpenSession,
) -> str:
    """Name an option that no tuned model can have; the empty string if there is none.

    Args:
        given: The options; they are as before afterwards.
        named: Arguments of the session besides them.
        proto: The model, weights in other files not read; None where it is unknown.
        locations: Those files, as the model names them.
        open_session: How the device loads a model.
    """
    for name in ("disabled_optimizers", "read_config_from_model"):
        if named.get(name):
            return f"{name} is given, and tuned models are made without"
    if given is None:
        return ""
    level, everything = given.graph_optimization_level, ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    if level != everything:
        return f"graph_optimization_level is {level.name}, and tuned models need {everything.name}"
    for entry in _GRAPH_ENTRIES:
        if (value := _entry(given, entry)) not in (None, *_UNSET):
            return f"its options set {entry} to {value!r}"
    if proto is None:
        return ""
    reason = _given_weights(given, proto, open_session)
    files = (location for location in locations if _gives_file(given, location, open_session))
    return reason or next((f"its options give the file {file!r}" for file in files), "")


def _entry(options: ort.SessionOptions, name: str) -> str | None:
    try:
        return str(options.get_session_config_entry(name))
    except RuntimeError:  # it has none
        return None


def _given_weights(
    given: ort.SessionOptions, proto: onnx.ModelProto, open_session: OpenSession
) -> str:
    """Name weights that come from the options instead of the model, or the empty string.

    Options do not list their weights. ONNX Runtime refuses a second tensor of the same name, so
    each name is tried on a copy, which it makes for each session.
    """
    try:
        with _without_files(given):
            session = open_session(_tiny_model().SerializeToString(), given)
    except RunError as error:
        if _WEIGHT_NOT_THERE in str(error):
            return "its options give weights (add_external_initializers)"
        return f"its options are for no other model: {error}"
    copy = session.get_session_options()
    some = ort.OrtValue.ortvalue_from_numpy(np.zeros(1, np.float32))
    for name in sorted(set(_weight_names([proto.graph]))):
        try:
            copy.add_initializer(name, some)
        except RuntimeError:
            return f"its options give the weight {name!r} (add_initializer)"
    return ""


def _weight_names(graphs: Iterable[onnx.GraphProto]) -> Iterator[str]:
    for graph in graphs:
        yield from (tensor.name for tensor in graph.initializer)
        for node in graph.node:
            yield from _weight_names(subgraphs(node))


def _gives_file(given: ort.SessionOptions, location: str, open_session: OpenSession) -> bool:
    """True if options give a file of weights: it is found in an empty folder."""
    with ScratchFolder("online") as folder, _without_files(given):
        onnx.save(_tiny_model(location), folder / "model.onnx")
        try:
            open_session(folder / "model.onnx", given)
        except RunError:
            return False
        return True


@contextmanager
def _without_files(options: ort.SessionOptions) -> Iterator[None]:
    """Let sessions with these options write no file, and say nothing."""
    names = ("enable_profiling", "optimized_model_filepath", "log_severity_level")
    before = [getattr(options, name) for name in names]
    for name, quiet in zip(names, (False, "", 4), strict=True):
        setattr(options, name, quiet)
    try:
        yield
    finally:
        for name, value in zip(names, before, strict=True):
            setattr(options, name, value)


def _tiny_model(location: str = "") -> onnx.ModelProto:
    """Return a model of one byte, which lies in a file if one is named."""
    value = helper.make_tensor("aoe.byte", TensorProto.UINT8, [1], [0])
    if location:
        value = point_into(location, value, 0, 1)
    output = helper.make_tensor_value_info("y", TensorProto.UINT8, [1])
    node = helper.make_node("Identity", ["aoe.byte"], ["y"])
    graph = helper.make_graph([node], "tiny", [], [output], [value])
    opset = helper.make_opsetid("", 17)
    return helper.make_model(graph, ir_version=8, opset_imports=[opset])
