"""Caches as the rest of a model leaves them before an operator runs.

Measured alone, again and again, an operator finds its weights in the caches, and a kernel that
reads four times the weights looks as fast as one that does not; in the model they come from
memory. So before each call the caches are left as a model leaves them: everything else it touches
in one inference has passed through them, and last, the operator's inputs have been computed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper

from aoe.graph.protos import value_info
from aoe.ort.sessions import BoundRun
from aoe.workload import Workload

Array = np.ndarray[Any, Any]

BALLAST_BYTES_MAX = 64 << 20
"""More than that changes nothing: twice the third-level cache that 8 cores of a server share."""
LIGHT_BALLAST_BYTES = 4 << 20
"""Around an operator without weights to speak of: activations of a model stay in the third-level
cache, whose memory is used again and again; what is to be pushed out is the second level."""
_FEW_CONSTANT_BYTES = 64 << 10
_CALLS, _LIGHT_CALLS = 4, 16
"""Calls a sample has at most: what has to be done before each of them takes longer than they do."""
_BALLAST, _FLOAT_BYTES, _OPSET = "ballast", 4, 13


class ColdCache:
    """Inputs and the result of a workload, in the caches as in the middle of a model.

    Attributes:
        calls_max: Most calls of a sample, as `restore` is due before each of them.

    Args:
        open_session: Loads a model that runs on the threads the operator runs on.
        workload: The operator.
        feed: Its inputs by name, `x0`, `x1`, ...; constants not among them.
        result: What it computes of them.
        bytes_around: What one inference of the model reads and writes besides.
    """

    def __init__(
        self,
        *,
        open_session: Callable[[bytes], ort.InferenceSession],
        workload: Workload,
        feed: Mapping[str, Array],
        result: Array,
        bytes_around: int,
    ) -> None:
        self._inputs = {name: ort.OrtValue.ortvalue_from_numpy(feed[name]) for name in feed}
        self._result = ort.OrtValue.ortvalue_from_numpy(result)
        computed = {
            f"x{number}": feed[f"x{number}"]
            for number, spec in enumerate(workload.inputs)
            if not spec.constant
        }
        is_light = _constant_bytes(workload) <= _FEW_CONSTANT_BYTES
        self.calls_max = _LIGHT_CALLS if is_light else _CALLS
        most = LIGHT_BALLAST_BYTES if is_light else BALLAST_BYTES_MAX
        half = min(bytes_around, most) // 2  # as much is written as is read
        ballast = np.zeros(max(1, half // _FLOAT_BYTES), np.float32)
        written = ort.OrtValue.ortvalue_from_numpy(ballast.copy())
        self._run = _computing(
            open_session,
            {_BALLAST: ballast, "y": result, **computed},
            {_BALLAST: written, "y": self._result, **self._inputs},
        )

    def restore(self) -> None:
        """Let the rest of the model pass through the caches, then compute the inputs."""
        self._run()

    def result(self) -> Array:
        """Return the result of the last run of any session."""
        found: Array = self._result.numpy()
        return found

    def bind(self, session: ort.InferenceSession) -> Callable[[], object]:
        """Return a run of a session on the inputs, which writes the result, `y`."""
        binding = session.io_binding()
        taken = {value.name for value in session.get_inputs()}
        for name, value in self._inputs.items():
            if name in taken:
                binding.bind_ortvalue_input(name, value)
        binding.bind_ortvalue_output(session.get_outputs()[0].name, self._result)
        return BoundRun(session, binding, [self])


class CacheBallast:
    """Data that passes through the caches before a part runs, in place of the rest of a model.

    Attributes:
        calls_max: Most calls of a sample, as `pass_through` is due before each of them.

    Args:
        open_session: Loads a model that runs on the threads the part runs on.
        bytes_around: What one inference of the model reads and writes besides.
    """

    calls_max = _CALLS

    def __init__(
        self, open_session: Callable[[bytes], ort.InferenceSession], bytes_around: int
    ) -> None:
        half = min(bytes_around, BALLAST_BYTES_MAX) // 2  # as much is written as is read
        source = np.zeros(max(1, half // _FLOAT_BYTES), np.float32)
        written = ort.OrtValue.ortvalue_from_numpy(source.copy())
        self._run = _computing(open_session, {_BALLAST: source}, {_BALLAST: written})

    def pass_through(self) -> None:
        """Leave the caches as the rest of the model would."""
        self._run()


def _constant_bytes(workload: Workload) -> int:
    return _FLOAT_BYTES * sum(spec.size for spec in workload.inputs if spec.constant)


def _computing(
    open_session: Callable[[bytes], ort.InferenceSession],
    wanted: Mapping[str, Array],
    targets: Mapping[str, ort.OrtValue],
) -> BoundRun:
    """Return a bound run that writes arrays, in their order, into memory of the same name."""
    sources = {name: -_bits(array) for name, array in wanted.items()}
    session = open_session(_model(sources).SerializeToString())
    binding = session.io_binding()
    held = {name: ort.OrtValue.ortvalue_from_numpy(array) for name, array in sources.items()}
    for name, value in held.items():
        bits = sources[name]
        binding.bind_ortvalue_input(f"{name}_source", value)
        binding.bind_output(name, "cpu", 0, bits.dtype, bits.shape, targets[name].data_ptr())
    return BoundRun(session, binding, [*held.values(), *targets.values()])


def _bits(array: Array) -> Array:
    """Return the bytes of an array as a row of integers that ONNX Runtime negates.

    It has no `Neg` of booleans, halves and most integers; bytes are negated for each of them, and
    an array of rank 0 is a row of one.
    """
    row = np.ascontiguousarray(array).reshape(-1)
    return row.view(np.int8 if row.nbytes % _FLOAT_BYTES else np.int32)


def _model(sources: Mapping[str, Array]) -> onnx.ModelProto:
    """Return one element-wise operator for each array, in their order."""
    graph = helper.make_graph(
        [helper.make_node("Neg", [f"{name}_source"], [name]) for name in sources],
        "surroundings",
        [value_info(f"{name}_source", array) for name, array in sources.items()],
        [value_info(name, array) for name, array in sources.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=8)
