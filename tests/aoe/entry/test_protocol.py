"""The digest of a model: the bytes it would be written to, which are never made."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from support.engine.models import conv_net, make_model, matmul_net

from aoe.entry.protocol import digest_of, written_model


def _with_words() -> onnx.ModelProto:
    """Return a model with texts and notes wherever there may be any."""
    model = conv_net()
    model.doc_string, model.graph.doc_string, model.producer_name = "model", "graph", "é"
    model.metadata_props.add(key="key", value="value")
    model.graph.initializer[0].doc_string = "weight"
    model.graph.value_info.append(helper.make_tensor_value_info("x", TensorProto.FLOAT, [1]))
    return model


def _of_kinds() -> onnx.ModelProto:
    """Return a model with weights of several types, raw and not, large and small."""
    model = make_model([helper.make_node("Exp", ["x"], ["y"])], {"x": [1]}, ["y"])
    for kind in (TensorProto.FLOAT, TensorProto.INT64, TensorProto.FLOAT16, TensorProto.INT4):
        for size in (3, 5000):
            for raw in (False, True):
                values = np.arange(size) % 7
                dtype = helper.tensor_dtype_to_np_dtype(kind)
                content = values.astype(np.uint8)[: (size + 1) // 2].tobytes()
                if kind != TensorProto.INT4:
                    content = values.astype(dtype).tobytes()
                name = f"w{len(model.graph.initializer)}"
                model.graph.initializer.append(
                    helper.make_tensor(
                        name, kind, [size], content if raw else values.tolist(), raw=raw
                    )
                )
    return model


def _torn() -> onnx.ModelProto:
    """Return a model with less data than the shape of a weight says."""
    model = matmul_net(width=64)
    weight = max(model.graph.initializer, key=lambda tensor: len(tensor.raw_data))
    weight.raw_data = weight.raw_data[:-4]
    return model


@pytest.mark.parametrize(
    "make", [conv_net, partial(matmul_net, width=64), _with_words, _of_kinds, _torn]
)
def test_digest_is_that_of_the_written_model(make: Callable[[], onnx.ModelProto]) -> None:
    model = make()
    before = model.SerializeToString(deterministic=True)
    expected = hashlib.sha256(written_model(model, "model")).hexdigest()
    assert digest_of(model, "model") == expected
    assert model.SerializeToString(deterministic=True) == before
