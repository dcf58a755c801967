"""Whole runs on models of float16 and bfloat16 that may be computed in float32."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from support.engine.scripted_runs import ScriptedRuns

import aoe
from aoe import TuneResult
from aoe.errors import AoeError
from aoe.execute.messages import ModelPart
from aoe.om.file import FALLBACK, LIBRARY, MODEL, WEIGHTS, read_manifest

_RNG = np.random.default_rng(0)


def _net(kind: int = TensorProto.FLOAT16) -> onnx.ModelProto:
    """Return two products with a GELU in parts between them."""
    node = helper.make_node

    def weights(name: str, *shape: int) -> onnx.TensorProto:
        values = _RNG.standard_normal(shape).astype(np.float32) / 8
        return helper.make_tensor(name, kind, shape, values.reshape(-1))

    graph = helper.make_graph(
        [
            node("MatMul", ["x", "w"], ["a"], "first"),
            node("Relu", ["a"], ["r"], "relu"),
            node("MatMul", ["r", "v"], ["p"], "second"),
            node("Softmax", ["p"], ["y"], "softmax"),
        ],
        "net",
        [helper.make_tensor_value_info("x", kind, [512, 64])],
        [helper.make_tensor_value_info("y", kind, [512, 32])],
        [weights("w", 64, 48), weights("v", 48, 32)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _tune(
    runs: ScriptedRuns, root: Path, model: onnx.ModelProto, mode: str = "force_fp32", **options: Any
) -> TuneResult:
    file = root / "net.onnx"
    onnx.save(model, file)
    return runs.tune(
        file,
        output=root / "out",
        bank=root / "bank",
        precision_mode=mode,
        trials=2,
        cache_mode="disable",
        **{"job_type": "opat", **options},
    )


def _part(result: TuneResult, name: str) -> onnx.ModelProto:
    assert result.om_file is not None
    with zipfile.ZipFile(result.om_file) as file:
        return onnx.load_from_string(file.read(name))


def _types(proto: onnx.ModelProto) -> set[int]:
    return {tensor.data_type for tensor in proto.graph.initializer if len(tensor.dims) == 2}


def test_the_model_is_tuned_in_float32_and_falls_back_to_what_was_given(tmp_path: Path) -> None:
    runs = ScriptedRuns()
    result = _tune(runs, tmp_path, _net())
    assert result.om_file is not None
    assert result.speedup == pytest.approx(1.5, rel=0.01)
    assert read_manifest(result.om_file).kernels
    tuned, fallback = _part(result, MODEL), _part(result, FALLBACK)
    assert _types(tuned) == {TensorProto.FLOAT}
    assert _types(fallback) == {TensorProto.FLOAT16}
    assert [node.op_type for node in fallback.graph.node] == ["MatMul", "Relu", "MatMul", "Softmax"]
    for proto in (tuned, fallback):
        ends = (*proto.graph.input, *proto.graph.output)
        assert {value.type.tensor_type.elem_type for value in ends} == {TensorProto.FLOAT16}
    assert sum(node.op_type == "Cast" for node in tuned.graph.node) <= 2


def test_the_default_mode_keeps_the_types(tmp_path: Path) -> None:
    runs = ScriptedRuns()
    _tune(runs, tmp_path, _net(), "must_keep_origin_dtype")
    assert not runs.runners[0].asked("run_model")


def test_a_form_that_computes_something_else_is_not_used(tmp_path: Path) -> None:
    runs, told = ScriptedRuns(), list[str]()

    def results(part: ModelPart) -> list[Any]:
        is_form = part.model.name == "1.onnx"
        return [np.array([1, 0.5 * is_form, 3], np.float16)]

    runs.results = results
    result = _tune(runs, tmp_path, _net(), progress=lambda event: told.append(event.text))
    assert any("in float32 it computes something else, cosine 0.98" in text for text in told)
    assert any(tensor == TensorProto.FLOAT16 for tensor in _types(_part(result, FALLBACK)))
    assert not any("against the imported one" in text for text in told)


def test_values_that_only_float16_cannot_hold_do_not_count_against_float32(tmp_path: Path) -> None:
    runs, told = ScriptedRuns(), list[str]()

    def results(part: ModelPart) -> list[Any]:
        last = 5 if part.model.name == "1.onnx" else np.nan
        return [np.array([1, np.inf, last], np.float16)]

    runs.results = results
    _tune(runs, tmp_path, _net(), progress=lambda event: told.append(event.text))
    assert any("infinities or NaN of 1 values that float32 holds" in text for text in told)
    assert any("in float32: cosine 1 to the model as written" in text for text in told)


@pytest.mark.parametrize("job_type", ["opat", "sgat", "sgat,opat"])
def test_the_model_as_written_stays_where_it_is_faster(job_type: str, tmp_path: Path) -> None:
    runs = ScriptedRuns()
    runs.model = lambda baseline, tuned: 0.8 if baseline.model.name == FALLBACK else 1.5
    result = _tune(runs, tmp_path, _net(), job_type=job_type)
    assert result.om_file is not None
    assert not read_manifest(result.om_file).kernels
    assert _part(result, MODEL) == _part(result, FALLBACK)
    with zipfile.ZipFile(result.om_file) as file:
        sizes = {one.filename: one.file_size for one in file.infolist()}
    # neither kernels nor weights of the form in float32
    assert LIBRARY not in sizes
    assert sizes[WEIGHTS] < 2 * (64 * 48 + 48 * 32) + 1024
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert (summary["unchanged"], summary["speedup"]) == (True, 1)


def test_bfloat16_is_tuned_in_float32_alone_and_says_so(tmp_path: Path) -> None:
    runs, told = ScriptedRuns(), list[str]()
    model = _net(TensorProto.BFLOAT16)
    result = _tune(runs, tmp_path, model, progress=lambda event: told.append(event.text))
    assert any("ONNX Runtime computes no bfloat16 on a CPU" in text for text in told)
    assert result.om_file is not None
    fallback = _part(result, FALLBACK)
    assert sum(node.op_type == "Cast" for node in fallback.graph.node) >= 2
    with pytest.raises(AoeError) as caught:
        _tune(ScriptedRuns(), tmp_path, model, "must_keep_origin_dtype")
    assert "--precision_mode=force_fp32" in str(caught.value.hint)


def test_a_tuned_bfloat16_model_takes_and_gives_such_arrays(tmp_path: Path) -> None:
    file, x = tmp_path / "net.onnx", _RNG.standard_normal((512, 64)).astype(ml_dtypes.bfloat16)
    onnx.save(_net(TensorProto.BFLOAT16), file)
    result = aoe.tune(
        file,
        output=tmp_path / "out",
        bank=tmp_path / "bank",
        precision_mode="force_fp32",
        inputs={"x": x},
        trials=1,
        aicore_num=1,
        tuning_time_limit=20,
        job_type="opat",
    )
    assert result.om_file is not None
    (found,) = aoe.load(result.om_file).run(None, {"x": x})
    assert found.dtype == ml_dtypes.bfloat16
    np.testing.assert_allclose(found.astype(np.float32).sum(axis=1), 1, rtol=2e-2)
