"""Tensors at the edge of memory: whoever leaves them dies, or is told."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper
from support.engine.cpu import open_session
from support.engine.models import chain_model, make_model

from aoe.errors import RunError
from aoe.ort.guarded import GuardedRuns, GuardedTensor
from aoe.ort.sessions import session_options

_HARM = """
import ctypes, sys
import numpy as np
from aoe.ort.guarded import GuardedTensor
tensor = GuardedTensor(np.zeros({shape}, np.float32), read_only={read_only})
place = ctypes.cast(tensor.array.ctypes.data, ctypes.POINTER(ctypes.c_float))
{harm}
print("alive")
"""
_PAGE = mmap.PAGESIZE // 4
"""Elements of a page."""


def _session(model: object) -> ort.InferenceSession:
    source = model.SerializeToString()  # type: ignore[attr-defined]
    return open_session(source, session_options(threads=1, optimize=False))


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12, dtype=np.float32).reshape(3, 4),
        np.arange(24, dtype=np.float64).reshape(2, 3, 4).transpose(2, 0, 1),
        np.array([1.5, -0.0, np.inf], np.float16),
        np.array(7, np.int64),
        np.array([True, False, True]),
        np.zeros((0, 4), np.float32),
        np.arange(3 * _PAGE, dtype=np.float32),
    ],
    ids=lambda array: f"{array.dtype}{list(array.shape)}",
)
@pytest.mark.parametrize("read_only", [False, True])
def test_array_is_as_it_was_and_ends_where_its_memory_ends(
    array: np.ndarray,  # type: ignore[type-arg]
    read_only: bool,
) -> None:
    tensor = GuardedTensor(array, read_only=read_only)
    np.testing.assert_array_equal(tensor.array, array)
    assert (tensor.array.dtype, tensor.array.shape) == (array.dtype, array.shape)
    assert tensor.array.flags.c_contiguous
    assert (tensor.array.ctypes.data + array.nbytes) % mmap.PAGESIZE == 0
    assert tensor.is_intact()


@pytest.mark.parametrize(
    ("shape", "read_only", "harm"),
    [
        (5, False, "place[5] = 1"),
        (5, True, "print(place[5])"),
        (5, True, "place[0] = 1"),
        (_PAGE, False, "place[-1] = 1"),
        (_PAGE, False, f"place[{_PAGE} + 7] = 1"),
    ],
)
def test_who_leaves_it_is_ended(shape: int, read_only: bool, harm: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _HARM.format(shape=shape, read_only=read_only, harm=harm)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == -11, done.stderr
    assert done.stdout == ""


def test_run_computes_what_any_other_does() -> None:
    session = _session(chain_model(["Exp", "Neg"], (3, 5)))
    feeds = [{"x": np.full((3, 5), value, np.float32)} for value in (0.5, -2.0)]
    expected = [session.run(None, feed)[0] for feed in feeds]
    runs = GuardedRuns(feeds, expected[0])
    for number in (0, 1, 0):
        np.testing.assert_array_equal(runs.run(session, number), expected[number])
    np.testing.assert_array_equal(runs.feeds[1]["x"], feeds[1]["x"])


def test_inputs_and_results_of_every_type_are_bound() -> None:
    kinds = {"a": TensorProto.INT64, "b": TensorProto.FLOAT16, "c": TensorProto.UINT8}
    nodes = [
        helper.make_node("Cast", ["a"], ["a_h"], to=TensorProto.FLOAT16),
        helper.make_node("Cast", ["c"], ["c_h"], to=TensorProto.FLOAT16),
        helper.make_node("Sum", ["a_h", "b", "c_h"], ["y"]),
    ]
    model = make_model(
        nodes, dict.fromkeys(kinds, (2, 2)), ["y"], types={**kinds, "y": TensorProto.FLOAT16}
    )
    feed = {
        "a": np.arange(4).reshape(2, 2),
        "b": np.ones((2, 2), np.float16),
        "c": np.full((2, 2), 3, np.uint8),
    }
    runs = GuardedRuns([feed], np.empty((2, 2), np.float16))
    np.testing.assert_array_equal(runs.run(_session(model), 0), [[4, 5], [6, 7]])


def test_what_is_not_computed_is_not_what_was_there_before() -> None:
    tensor = GuardedTensor(np.ones(3, np.float32))
    tensor.clear()
    assert np.isnan(tensor.array).all()
    counts = GuardedTensor(np.ones(3, np.int64))
    counts.clear()
    assert (counts.array == -1).all()
    assert counts.is_intact()


def test_result_of_another_shape_is_an_error() -> None:
    session = _session(chain_model(["Exp"], (3, 5)))
    runs = GuardedRuns([{"x": np.zeros((3, 5), np.float32)}], np.empty((5, 3), np.float32))
    with pytest.raises(RunError, match="ONNX Runtime cannot run it"):
        runs.run(session, 0)


def test_too_little_memory_is_one_message() -> None:
    more_than_addresses = np.broadcast_to(np.float32(0), (1 << 46,))
    with pytest.raises(RunError, match=r"no memory to check it in: .*\(got 281474976710656 bytes"):
        GuardedTensor(more_than_addresses)
