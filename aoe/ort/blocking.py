"""Channels in one block of ONNX Runtime's NCHWc layout."""

from __future__ import annotations

from functools import cache

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper

from aoe.errors import RunError
from aoe.ort.sessions import OpenSession, session_options
from aoe.ort.thread_pools import ThreadPool
from aoe.workload import NCHWC_DOMAIN

_CHANNELS = 64  # a multiple of every block size in use


@cache
def nchwc_block(open_session: OpenSession) -> int:
    """Return the block size, found by reordering numbered channels; 0 if the layout is unused.

    Returns:
        16 with AVX-512, 8 with AVX; platforms without NCHWc kernels give 0.
    """
    shape = [1, _CHANNELS, 1, 2]
    node = helper.make_node("ReorderInput", ["x"], ["y"], domain=NCHWC_DOMAIN, channels_last=0)
    graph = helper.make_graph(
        [node],
        "block",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    opsets = [helper.make_opsetid("", 13), helper.make_opsetid(NCHWC_DOMAIN, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    channels = np.repeat(np.arange(_CHANNELS, dtype=np.float32), 2).reshape(shape)
    session = _find_session(model.SerializeToString(), open_session)
    if session is None:
        return 0
    flat = session.run(None, {"x": channels})[0].reshape(-1)
    run = int(np.argmax(np.diff(flat) < 0)) + 1 if np.any(np.diff(flat) < 0) else 0
    return run if run > 1 else 0


def _find_session(model: bytes, open_session: OpenSession) -> ort.InferenceSession | None:
    """Return a session of either pool, None if this build has no such operator.

    A process with a shared pool takes no session with a pool of its own, and the reverse.
    """
    for pool in (ThreadPool.OWN, ThreadPool.SHARED):
        options = session_options(threads=1, optimize=False, pool=pool)
        try:
            return open_session(model, options)
        except RunError:
            continue
    return None
