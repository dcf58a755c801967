"""Offline optimisation and the profile: what ONNX Runtime really runs here, node by node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper
from support.engine.cpu import CPU, open_session
from support.engine.models import chain_model, conv_net, make_model

from aoe.errors import RunError
from aoe.ort.blocking import nchwc_block
from aoe.ort.inputs import ModelInputs, parse_inputs
from aoe.ort.profile import profile_model
from aoe.ort.sessions import random_feed, session_options


def _optimized(folder: Path, name: str = "o.onnx") -> onnx.ModelProto:
    return CPU.optimize(conv_net(), folder / name, threads=2)


def test_optimised_model_computes_the_same(tmp_path: Path) -> None:
    optimized = _optimized(tmp_path)
    first = open_session(conv_net().SerializeToString(), session_options(threads=2, optimize=True))
    second = open_session(optimized.SerializeToString(), session_options(threads=2, optimize=False))
    feed = random_feed(first, 1)
    assert np.array_equal(first.run(None, feed)[0], second.run(None, feed)[0])


def test_node_names_are_distinct_and_the_model_s_own_names_stay(tmp_path: Path) -> None:
    names = [node.name for node in _optimized(tmp_path).graph.node]
    assert len(set(names)) == len(names)
    assert {"prelu0", "lrn1"} <= set(names)


def test_nodes_without_names_get_distinct_ones(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "x"], ["a"]),
        helper.make_node("MatMul", ["x", "a"], ["b"]),
        helper.make_node("MatMul", ["a", "b"], ["c"]),
        helper.make_node("MatMul", ["c", "a"], ["y"], name="MatMul_x"),
    ]
    model = make_model(nodes, {"x": [4, 4]}, ["y"])
    names = [node.name for node in CPU.optimize(model, tmp_path / "o.onnx", threads=1).graph.node]
    assert len(set(names)) == 4


def test_optimising_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    first, second = _optimized(tmp_path, "a.onnx"), _optimized(tmp_path, "b.onnx")
    assert first.SerializeToString(deterministic=True) == (
        second.SerializeToString(deterministic=True)
    )


def test_model_onnxruntime_refuses_is_a_run_error(tmp_path: Path) -> None:
    nodes = [helper.make_node("NoSuchOperator", ["x"], ["y"], domain="nowhere")]
    model = make_model(nodes, {"x": [4]}, ["y"], domains={"nowhere": 1})
    with pytest.raises(RunError, match=r"ONNX Runtime cannot load it.*NoSuchOperator"):
        CPU.optimize(model, tmp_path / "o.onnx", threads=1)


def test_block_size_is_known_here_and_zero_where_there_is_no_such_layout() -> None:
    assert nchwc_block(open_session) in (0, 4, 8, 16, 32)

    def refuse(model: object, options: object) -> ort.InferenceSession:
        raise RunError("model", "no such operator")

    assert nchwc_block(refuse) == 0


class _FullDisk:
    """A session on a disk that takes half of its profile."""

    def __init__(self, session: ort.InferenceSession) -> None:
        self._session = session

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def end_profiling(self) -> str:
        trace = Path(self._session.end_profiling())
        trace.write_text(trace.read_text()[: trace.stat().st_size // 2])
        return str(trace)


def test_profile_a_full_disk_has_cut_is_a_run_error(tmp_path: Path) -> None:
    def opened(model: Any, options: Any) -> Any:
        return _FullDisk(open_session(model, options))

    with pytest.raises(RunError, match=r"has not written its profile to the end") as caught:
        profile_model(_optimized(tmp_path), tmp_path, opened, threads=1, runs=3)
    assert "make room in" in str(caught.value.__notes__)
    assert not list(tmp_path.glob("ort_profile*"))


def test_profile_has_the_time_of_every_node(tmp_path: Path) -> None:
    optimized = _optimized(tmp_path)
    profile = profile_model(optimized, tmp_path, open_session, threads=2, runs=3)
    assert set(profile.node_us) == {node.name for node in optimized.graph.node}
    assert all(us >= 0 for us in profile.node_us.values())
    assert sum(profile.node_us.values()) > 0
    assert profile.model_us > 0


def test_profile_has_the_shortest_times_and_one_run_in_order(tmp_path: Path) -> None:
    optimized = _optimized(tmp_path)
    profile = profile_model(optimized, tmp_path, open_session, threads=1, runs=3)
    assert all(profile.node_min_us[name] <= us for name, us in profile.node_us.items())
    assert profile.model_min_us <= profile.model_us
    assert {run.node for run in profile.timeline} == set(profile.node_us)
    assert len(profile.timeline) == len(profile.node_us)
    starts = [run.start_us for run in profile.timeline]
    assert starts == sorted(starts)
    assert starts[0] >= 0


def test_profile_of_a_file_is_that_of_its_model(tmp_path: Path) -> None:
    file = tmp_path / "m.onnx"
    optimized = _optimized(tmp_path)
    file.write_bytes(optimized.SerializeToString())
    of_file = profile_model(file, tmp_path, open_session, threads=1, runs=1)
    of_model = profile_model(optimized, tmp_path, open_session, threads=1, runs=1)
    assert of_file.node_us.keys() == of_model.node_us.keys()


def test_profile_leaves_no_trace_file_behind(tmp_path: Path) -> None:
    profile_model(chain_model(["Exp"]), tmp_path, open_session, threads=1, runs=1)
    assert list(tmp_path.iterdir()) == []


def test_model_that_refuses_made_up_inputs_asks_for_real_ones(tmp_path: Path) -> None:
    nodes = [helper.make_node("Div", ["x", "divisor"], ["y"], "division")]
    types = dict.fromkeys(["x", "divisor", "y"], TensorProto.INT64)
    model = make_model(nodes, {"x": [4], "divisor": [4]}, ["y"], types=types)
    with pytest.raises(RunError, match=r"ONNX Runtime cannot run it: .*[Dd]ivi") as caught:
        profile_model(model, tmp_path, open_session, threads=1, runs=1)
    assert "--input" in caught.value.hint
    np.save(tmp_path / "d.npy", np.ones(4, np.int64))
    given = ModelInputs(sets=parse_inputs([f"divisor:{tmp_path / 'd.npy'}", "random"]))
    assert profile_model(model, tmp_path, open_session, threads=1, runs=1, inputs=given).node_us
