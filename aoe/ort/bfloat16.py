"""Tensors of bfloat16 in and out of sessions, as arrays of `ml_dtypes.bfloat16`.

ONNX Runtime's `run` takes and gives NumPy's own types alone; its values of type bfloat16 share the
memory of arrays of 16 bits.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnxruntime as ort
from onnx import TensorProto

BFLOAT16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
BFLOAT16_TENSOR = "tensor(bfloat16)"
Array = np.ndarray[Any, Any]


def needs_values(session: ort.InferenceSession) -> bool:
    """Return True if a session has inputs or outputs of bfloat16."""
    values = (*session.get_inputs(), *session.get_outputs())
    return any(value.type == BFLOAT16_TENSOR for value in values)


def ort_value(array: Array) -> ort.OrtValue:
    """Return an array as ONNX Runtime's value, which shares its memory; the array has to stay."""
    if array.dtype != BFLOAT16:
        return ort.OrtValue.ortvalue_from_numpy(array)
    bits = np.ascontiguousarray(array).view(np.uint16)
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, TensorProto.BFLOAT16)


def array_of_value(value: ort.OrtValue) -> Any:
    """Return a copy of what a value of ONNX Runtime holds."""
    if value.data_type() != BFLOAT16_TENSOR:
        return value.numpy()
    shape = value.shape()
    data = ctypes.string_at(value.data_ptr(), BFLOAT16.itemsize * math.prod(shape))
    return np.frombuffer(bytearray(data), np.uint16).view(BFLOAT16).reshape(shape)


def run_on_values(
    session: ort.InferenceSession,
    names: Sequence[str] | None,
    feed: Mapping[str, Array | ort.OrtValue],
    options: ort.RunOptions | None = None,
) -> list[Any]:
    """Compute outputs of a session, some of which or of whose inputs are of bfloat16."""
    values = {
        name: one if isinstance(one, ort.OrtValue) else ort_value(np.asarray(one))
        for name, one in feed.items()
    }
    wanted = names or [value.name for value in session.get_outputs()]
    return [array_of_value(one) for one in session.run_with_ort_values(wanted, values, options)]


def as_bfloat16(array: Array) -> Array:
    """Return an array of a NumPy file, which knows no bfloat16 but its two bytes."""
    is_raw = array.dtype.kind == "V" and array.dtype.itemsize == BFLOAT16.itemsize
    return array.view(BFLOAT16) if is_raw else array


def widened(array: Any) -> Any:
    """Return results of bfloat16 as float32, which holds them all and NumPy computes with."""
    is_narrow = isinstance(array, np.ndarray) and array.dtype == BFLOAT16
    return array.astype(np.float32) if is_narrow else array
