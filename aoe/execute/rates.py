"""Peak rates of the machine, and pairs of the same code that show its noise."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from aoe.device.protocol import Device
from aoe.execute.idle_gate import QuietPairs
from aoe.execute.samplers import paired_samplers
from aoe.kernels.roofline import MachineRates
from aoe.measurement import Measurement, MeasurePolicy, measured
from aoe.ort.sessions import bound_run

if TYPE_CHECKING:
    import onnxruntime as ort

_SIDE = 768
"""Of square matrices: 450 million multiply-adds, 7 MiB, a few milliseconds."""
_STREAM_ELEMENTS = 1 << 20
"""4 MiB read and 4 MiB written: past the second-level cache of a core, not past the third."""
FLOAT_BYTES = 4
STREAM_BYTES = 2 * FLOAT_BYTES * _STREAM_ELEMENTS
"""Bytes the element-wise operator reads and writes."""
_OPSET, _IR_VERSION = 13, 8
_RUNS = 12
_TWICE_SIDE = 256


def measure_rates(device: Device, options: ort.SessionOptions) -> MachineRates:
    """Return the best of a few runs of a matrix product and of an element-wise operator.

    Args:
        device: Loads and times them.
        options: Of their sessions, with the threads of the run.
    """
    return MachineRates(
        multiply_adds_per_us=_product_rate(device, options),
        bytes_per_us=stream_rate(device, options, elements=_STREAM_ELEMENTS),
    )


def _product_rate(device: Device, options: ort.SessionOptions) -> float:
    """Return the multiply-adds of a microsecond."""
    product = helper.make_node("MatMul", ["x", "weights"], ["y"])
    weights = np.full((_SIDE, _SIDE), 0.5, np.float32)
    return _SIDE**3 / _shortest_us(device, options, [product], (_SIDE, _SIDE), weights)


def stream_rate(
    device: Device, options: ort.SessionOptions, *, elements: int, times: int = 1
) -> float:
    """Return the bytes an element-wise operator reads and writes in a microsecond.

    Args:
        device: Loads and times it.
        options: Of the session, with the threads; they must not take operators out.
        elements: Of the float32 tensor it reads, and of the one it writes.
        times: Operators behind each other, so that small tensors take long enough.
    """
    names = ["x", *(f"t{number}" for number in range(1, times)), "y"]
    chain = [helper.make_node("Neg", [read], [written]) for read, written in pairwise(names)]
    moved = 2 * FLOAT_BYTES * elements * times
    return moved / _shortest_us(device, options, chain, (elements,))


def compare_itself(
    device: Device, options: ort.SessionOptions, pairs: QuietPairs, policy: MeasurePolicy
) -> Measurement:
    """Return pairs of a matrix product against itself: what they show is the machine's.

    Args:
        device: Loads and times it.
        options: Of its session.
        pairs: Takes the samples.
        policy: How many.
    """
    session = device.open_session(_twice().SerializeToString(), options)
    feed = {name: np.full((_TWICE_SIDE, _TWICE_SIDE), 0.5, np.float32) for name in "ab"}
    runs = [bound_run(session, feed) for _ in range(2)]
    samplers = paired_samplers(device.timer, runs[0], runs[1], policy.sample_min_us)
    # what wall time shows of the machine is asked for
    return measured(*pairs.take(*samplers, policy, spins=True))


def _twice() -> onnx.ModelProto:
    shape = (_TWICE_SIDE, _TWICE_SIDE)
    a, b, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "aby")
    product = helper.make_node("MatMul", ["a", "b"], ["y"])
    return _model(helper.make_graph([product], "aa", [a, b], [y]))


def _model(graph: onnx.GraphProto) -> onnx.ModelProto:
    opset = helper.make_opsetid("", _OPSET)
    return helper.make_model(graph, opset_imports=[opset], ir_version=_IR_VERSION)


def _shortest_us(
    device: Device,
    options: ort.SessionOptions,
    nodes: list[onnx.NodeProto],
    shape: tuple[int, ...],
    weights: np.ndarray[tuple[int, ...], np.dtype[np.float32]] | None = None,
) -> float:
    constants = [] if weights is None else [numpy_helper.from_array(weights, "weights")]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "xy")
    model = _model(helper.make_graph(nodes, "rate", [x], [y], constants))
    session = device.open_session(model.SerializeToString(), options)
    run = bound_run(session, {"x": np.full(shape, 0.5, np.float32)})
    sample = device.timer(run, repeats=1)
    # neighbours lengthen a run, nothing shortens it
    return min(sample() for _ in range(_RUNS))
