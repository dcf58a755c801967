"""Inputs and outputs of bfloat16: made up, given in files and in memory, and what is computed."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from aoe.errors import OptionError
from aoe.ort.inputs import ModelInputs, input_specs, parse_inputs, save_input_sets
from aoe.ort.sessions import bound_run, random_feed, run_session, run_within

_VALUES = np.array([[1, -2.5, np.nan], [np.inf, 3e38, 1e-39]], np.float32)
_ARRAY = _VALUES.astype(ml_dtypes.bfloat16)


def _proto() -> onnx.ModelProto:
    """A model that gives its input back, as bfloat16 and as float32."""
    node = helper.make_node
    graph = helper.make_graph(
        [
            node("Cast", ["x"], ["wide"], to=TensorProto.FLOAT),
            node("Cast", ["wide"], ["y"], to=TensorProto.BFLOAT16),
        ],
        "bfloat16",
        [helper.make_tensor_value_info("x", TensorProto.BFLOAT16, [2, 3])],
        [
            helper.make_tensor_value_info("y", TensorProto.BFLOAT16, [2, 3]),
            helper.make_tensor_value_info("wide", TensorProto.FLOAT, [2, 3]),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture
def session() -> ort.InferenceSession:
    return ort.InferenceSession(_proto().SerializeToString(), providers=["CPUExecutionProvider"])


def test_a_run_takes_such_arrays_and_gives_float32_that_holds_them(
    session: ort.InferenceSession,
) -> None:
    for found in (run_session(session, {"x": _ARRAY}), run_within(session, {"x": _ARRAY}, 60)):
        assert found is not None
        assert [array.dtype for array in found] == [np.float32] * 2
        for array in found:
            np.testing.assert_array_equal(array, _ARRAY.astype(np.float32))
    bound_run(session, {"x": _ARRAY})()


def test_inputs_are_made_up_in_their_type(session: ort.InferenceSession) -> None:
    made = random_feed(session, 0)["x"]
    assert made.dtype == ml_dtypes.bfloat16
    assert made.shape == (2, 3)
    assert len(np.unique(made.astype(np.float32))) == 6
    run_session(session, {"x": made})


def test_files_hold_them_as_two_bytes(tmp_path: Path, session: ort.InferenceSession) -> None:
    np.save(tmp_path / "x.npy", _ARRAY)
    sets = parse_inputs([f"x:{tmp_path / 'x.npy'}"])
    (feed,) = ModelInputs(sets=sets).feeds(session)
    np.testing.assert_array_equal(feed["x"].view(np.uint16), _ARRAY.view(np.uint16))
    ModelInputs(sets=sets).check(_proto())
    folder = tmp_path / "saved"
    folder.mkdir()
    (saved,) = save_input_sets({"x": _ARRAY}, folder)
    np.testing.assert_array_equal(
        saved.load(input_specs(session), 0)["x"].view(np.uint16), _ARRAY.view(np.uint16)
    )


def test_arrays_of_another_type_are_refused_by_name(
    tmp_path: Path, session: ort.InferenceSession
) -> None:
    np.save(tmp_path / "x.npy", _VALUES)
    sets = parse_inputs([f"x:{tmp_path / 'x.npy'}"])
    with pytest.raises(OptionError, match=r"got float32, expected bfloat16"):
        next(ModelInputs(sets=sets).feeds(session))
