"""What `SessionOptions` carry holds for tuned models, or the session stays with ONNX Runtime."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument
from support.engine.online import EXTENT, Script, adding, rows, tuned_file

import aoe
from aoe.graph.weights import point_into

PLAIN, TUNED, GIVEN = 1.0, 2.0, 7.0
Options = ort.SessionOptions


@pytest.fixture(autouse=True)
def _own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep converted models apart from those of other tests, and the built-in bank out."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("AOE_BUILT_IN_BANK", "off")


@pytest.fixture
def script(tmp_path: Path) -> Script:
    """Return a script that always has a tuned model."""
    tuned = tuned_file(tmp_path, TUNED)
    return Script(lambda asked: tuned)


def _value(session: Any) -> float:
    return float(session.run(None, rows())[0][0, 0])


ROW = ort.OrtValue.ortvalue_from_numpy(np.full(EXTENT, GIVEN, np.float32))
"""A weight that options give; they do not keep it themselves."""


def _outside(model: onnx.ModelProto) -> onnx.ModelProto:
    """Let the weight of a model lie in a file, which is not there."""
    weight = model.graph.initializer[0]
    weight.CopyFrom(point_into("w.bin", weight, 0, 4 * EXTENT))
    return model


def _opened(script: Script, model: Any, options: Options, bank: Path, reason: str) -> Any:
    """Return a session that says why it has no tuned model, and is not converted."""
    with pytest.warns(aoe.FallbackWarning, match=reason):
        session = script.session_class()(model, options, bank=bank)
    assert reason in session.fallback_reason
    assert not script.asked and not session.forms
    return session


def test_added_initializer_is_what_is_computed_with(script: Script, bank: Path) -> None:
    options = Options()
    options.add_initializer("c", ROW)
    assert _value(_opened(script, adding(PLAIN), options, bank, "weight 'c'")) == GIVEN


def test_initializer_no_model_has_changes_nothing(script: Script, bank: Path) -> None:
    options = Options()
    options.add_initializer("another", ROW)
    session = script.session_class()(adding(PLAIN), options, bank=bank)
    assert (_value(session), session.fallback_reason) == (TUNED, "")


def test_external_initializers_are_what_is_computed_with(
    script: Script, bank: Path, tmp_path: Path
) -> None:
    options = Options()
    options.add_external_initializers(["c"], [ROW])
    onnx.save(_outside(adding(PLAIN)), tmp_path / "m.onnx")
    for model in (_outside(adding(PLAIN)), tmp_path / "m.onnx"):
        session = _opened(script, model, options, bank, "add_external_initializers")
        assert _value(session) == GIVEN


def test_file_in_memory_is_what_is_computed_with(
    script: Script, bank: Path, tmp_path: Path
) -> None:
    options, content = Options(), np.full(EXTENT, GIVEN, np.float32).tobytes()
    options.add_external_initializers_from_files_in_memory(["w.bin"], [content], [len(content)])
    model = tmp_path / "m.onnx"
    onnx.save(_outside(adding(PLAIN)), model)
    (tmp_path / "w.bin").write_bytes(np.full(EXTENT, PLAIN, np.float32).tobytes())
    assert _value(_opened(script, model, options, bank, "file 'w.bin'")) == GIVEN


def test_weights_in_a_file_of_their_own_are_tuned(
    script: Script, bank: Path, tmp_path: Path
) -> None:
    model = tmp_path / "m.onnx"
    onnx.save(_outside(adding(PLAIN)), model)
    (tmp_path / "w.bin").write_bytes(np.full(EXTENT, PLAIN, np.float32).tobytes())
    assert _value(script.session_class()(model, Options(), bank=bank)) == TUNED


def _level(options: Options) -> None:
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (_level, "graph_optimization_level is ORT_ENABLE_EXTENDED"),
        (
            lambda options: options.add_session_config_entry(
                "optimization.enable_gelu_approximation", "1"
            ),
            "optimization.enable_gelu_approximation to '1'",
        ),
    ],
)
def test_other_graph_is_computed_by_onnx_runtime(
    script: Script, bank: Path, change: Callable[[Options], None], reason: str
) -> None:
    options = Options()
    change(options)
    assert _value(_opened(script, adding(PLAIN), options, bank, reason)) == PLAIN


def test_disabled_optimizers_leave_the_model_to_onnx_runtime(script: Script, bank: Path) -> None:
    with pytest.warns(aoe.FallbackWarning, match="disabled_optimizers"):
        session = script.session_class()(
            adding(PLAIN), bank=bank, disabled_optimizers=["ConstantFolding"]
        )
    assert _value(session) == PLAIN


def test_options_of_computing_hold_for_the_tuned_model(script: Script, bank: Path) -> None:
    options = Options()
    options.execution_mode = ort.ExecutionMode.ORT_PARALLEL
    options.inter_op_num_threads = 2
    entries = {"session.set_denormal_as_zero": "1", "session.dynamic_block_base": "4"}
    for name, value in entries.items():
        options.add_session_config_entry(name, value)
    session = script.session_class()(adding(PLAIN), options, bank=bank)
    (tuned,) = session.substitutes.all()
    found = tuned.get_session_options()
    assert (found.execution_mode, found.inter_op_num_threads) == (options.execution_mode, 2)
    assert {name: found.get_session_config_entry(name) for name in entries} == entries


def test_shapes_are_those_the_options_override(script: Script, bank: Path) -> None:
    options = Options()
    options.add_free_dimension_override_by_name("N", 1)
    session = script.session_class()(adding(PLAIN, batch="N"), options, bank=bank)
    assert _value(session) == TUNED
    assert [asked.shapes for asked in script.asked] == [{"x": (1, EXTENT)}]


def test_call_the_options_forbid_is_no_shape_to_tune(bank: Path) -> None:
    script = Script(lambda asked: None)
    options = Options()
    options.add_free_dimension_override_by_name("N", 3)
    model = adding(PLAIN, batch="N")
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "M"
    with script.session_class()(model, options, bank=bank) as session:
        with pytest.raises(InvalidArgument):
            session.run(None, rows(2))
        session.run(None, rows(3))
        session.wait_for_tuning()
    assert [asked.shapes for asked in script.asked] == [{"x": (3, EXTENT)}]


def test_options_are_left_as_they_were(script: Script, bank: Path, tmp_path: Path) -> None:
    options = Options()
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "profile")
    session = script.session_class()(adding(PLAIN), options, bank=bank)
    assert options.optimized_model_filepath == str(tmp_path / "optimized.onnx")
    assert options.enable_profiling and Path(options.optimized_model_filepath).is_file()
    session.end_profiling()
    assert len(list(tmp_path.glob("profile*.json"))) == 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ort.InferenceSession(adding(PLAIN).SerializeToString(), options)
