"""Sessions and their inputs."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper
from support.engine.cpu import open_session
from support.engine.models import Shape, chain_model, conv_net, make_model

from aoe.errors import RunError
from aoe.folders.scratch import ScratchFolder
from aoe.ort.sessions import (
    BoundRun,
    bound_run,
    newest_ir_version,
    plain_run,
    random_feed,
    run_session,
    session_options,
)


def _session(kinds: dict[str, int], shape: Shape) -> object:
    nodes = [helper.make_node("Identity", [name], [f"{name}_y"]) for name in kinds]
    model = make_model(
        nodes,
        dict.fromkeys(kinds, shape),
        [f"{name}_y" for name in kinds],
        types=kinds | {f"{name}_y": kind for name, kind in kinds.items()},
    )
    return open_session(model.SerializeToString(), session_options(threads=1, optimize=False))


_KINDS = {
    "float32": TensorProto.FLOAT,
    "float64": TensorProto.DOUBLE,
    "float16": TensorProto.FLOAT16,
    "int64": TensorProto.INT64,
    "int32": TensorProto.INT32,
    "int16": TensorProto.INT16,
    "int8": TensorProto.INT8,
    "uint8": TensorProto.UINT8,
    "uint16": TensorProto.UINT16,
    "uint32": TensorProto.UINT32,
    "uint64": TensorProto.UINT64,
    "bool": TensorProto.BOOL,
}


def test_inputs_of_every_type_are_made_up_and_accepted() -> None:
    session = _session(_KINDS, (2, 3))
    feed = random_feed(session, 0)
    assert {name: str(array.dtype) for name, array in feed.items()} == {n: n for n in _KINDS}
    assert all(array.shape == (2, 3) for array in feed.values())
    assert not feed["int64"].any()
    assert np.std(feed["float32"]) > 0
    run_session(session, feed)


def test_inputs_depend_on_the_seed_only() -> None:
    session = _session({"float32": TensorProto.FLOAT}, (8,))
    first, again, other = (random_feed(session, seed)["float32"] for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_scalar_input_is_made_up() -> None:
    assert random_feed(_session({"float32": TensorProto.FLOAT}, ()), 0)["float32"].shape == ()


@pytest.mark.parametrize("shape", [("n", 3), (None,)])
def test_open_shape_cannot_be_made_up(shape: Shape) -> None:
    with pytest.raises(RunError, match="input float32: no random value") as caught:
        random_feed(_session({"float32": TensorProto.FLOAT}, shape), 0)
    assert "--input" in str(caught.value.hint)


@pytest.mark.parametrize("kind", ["float32", "int64"])
@pytest.mark.parametrize("shape", [(2**62,), (2**40, 2**40)])
def test_shape_that_fits_into_no_memory_is_refused(kind: str, shape: Shape) -> None:
    with pytest.raises(RunError, match=f"input {kind}: .*does not fit into the memory") as caught:
        random_feed(_session({kind: _KINDS[kind]}, shape), 0)
    assert "--input_shape" in str(caught.value.hint)


def test_empty_input_is_made_up() -> None:
    session = _session({"float32": TensorProto.FLOAT}, (0, 3))
    feed = random_feed(session, 0)
    assert feed["float32"].shape == (0, 3)
    run_session(session, feed)
    bound_run(session, feed)()


def test_strings_cannot_be_made_up() -> None:
    with pytest.raises(RunError, match=r"got tensor\(string\)"):
        random_feed(_session({"s": TensorProto.STRING}, (1,)), 0)


def test_file_that_is_no_model_is_a_run_error_by_its_name(tmp_path: Path) -> None:
    file = tmp_path / "broken.onnx"
    file.write_bytes(b"nonsense")
    with pytest.raises(RunError, match=r"broken\.onnx: ONNX Runtime cannot load it"):
        open_session(file, session_options(threads=1, optimize=False))


def _one_node(kind: int, opset: int) -> bytes:
    value = partial(helper.make_tensor_value_info, elem_type=kind, shape=[1])
    graph = helper.make_graph(
        [helper.make_node("Exp", ["x"], ["y"], name="my_exp")], "g", [value("x")], [value("y")]
    )
    imports = [helper.make_opsetid("", opset)]
    model: bytes = helper.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString()
    return model


def test_model_of_a_later_opset_is_refused_with_the_latest_one() -> None:
    model = _one_node(TensorProto.FLOAT, 99)
    with pytest.raises(RunError, match=r"this opset yet \(got 99, expected at most \d+\)"):
        open_session(model, session_options(threads=1, optimize=False))


def test_model_of_a_later_ir_version_is_refused_with_the_latest_one() -> None:
    model = onnx.ModelProto.FromString(_one_node(TensorProto.FLOAT, 17))
    model.ir_version = 99
    expected = rf"this IR version yet \(got 99, expected at most {newest_ir_version()}\)"
    with pytest.raises(RunError, match=expected) as caught:
        open_session(model.SerializeToString(), session_options(threads=1, optimize=False))
    assert "model.ir_version = " in caught.value.hint


def test_operator_nothing_computes_at_this_opset_is_not_said_to_lack_types() -> None:
    node = helper.make_node("Swish", ["x"], ["y"], name="my_swish")
    model = make_model([node], {"x": (2, 8)}, {"y": (2, 8)}, opset=26, ir_version=10)
    with pytest.raises(RunError, match=r"no kernel of Swish\(24\), .* node 'my_swish'") as caught:
        open_session(model.SerializeToString(), session_options(threads=1, optimize=False))
    assert "opset 24" in caught.value.hint and "float" not in caught.value.hint


def test_file_of_our_own_is_not_named(tmp_path: Path) -> None:
    with ScratchFolder("test", tmp_path) as folder:
        file = folder / "bare.onnx"
        file.write_bytes(_one_node(TensorProto.FLOAT, 17).replace(b"Exp", b"Xyz"))
        with pytest.raises(RunError, match=r"model: .*Xyz") as caught:
            open_session(file, session_options(threads=1, optimize=False))
    assert file.name not in str(caught.value) and str(tmp_path) not in str(caught.value)


@pytest.mark.parametrize("name", ["x", "y"])
def test_values_no_array_can_hold_are_named_with_their_type(name: str) -> None:
    node = {
        "x": helper.make_node("DequantizeLinear", ["x", "s"], ["y"]),
        "y": helper.make_node("QuantizeLinear", ["x", "s"], ["y"], output_dtype=TensorProto.INT4),
    }
    model = make_model(
        [node[name]],
        {"x": (2, 8)},
        {"y": (2, 8)},
        weights={"s": np.array(0.1, np.float32)},
        opset=21,
        ir_version=10,
        types={name: TensorProto.INT4},
    )
    session = open_session(model.SerializeToString(), session_options(threads=1, optimize=False))
    with pytest.raises(RunError, match=rf"put {name}: .*got tensor\(int4\)") as caught:
        run_session(session, random_feed(session, 0))
    assert "tensor of float" in caught.value.hint and ".npy" not in caught.value.hint


def test_operator_without_code_for_its_types_is_named_with_its_node() -> None:
    model = _one_node(TensorProto.BFLOAT16, 17)
    with pytest.raises(RunError, match=r"no Exp\(13\) for the types of node 'my_exp'") as caught:
        open_session(model, session_options(threads=1, optimize=False))
    assert "float32" in (caught.value.hint or "")


@pytest.mark.parametrize(
    "array", [np.ones((1, 2), np.float32), np.ones((2, 3), np.float64), np.ones((2, 3), object)]
)
def test_wrong_input_is_a_run_error(array: np.ndarray) -> None:  # type: ignore[type-arg]
    session = _session({"float32": TensorProto.FLOAT}, (2, 3))
    with pytest.raises(RunError, match="ONNX Runtime cannot run it"):
        run_session(session, {"float32": array})


def test_bound_run_computes_the_same_into_the_same_memory() -> None:
    options = session_options(threads=2, optimize=True)
    session = open_session(conv_net().SerializeToString(), options)
    feed = random_feed(session, 5)
    run = bound_run(session, feed)
    assert isinstance(run, BoundRun)
    expected = run_session(session, feed)[0]
    for _ in range(3):
        run()
        assert np.array_equal(run.binding.copy_outputs_to_cpu()[0], expected)


def test_plain_run_makes_its_results_anew() -> None:
    session = open_session(
        conv_net().SerializeToString(), session_options(threads=2, optimize=True)
    )
    feed = random_feed(session, 5)
    run = plain_run(session, feed)
    first, second = run(), run()
    assert isinstance(first, list) and isinstance(second, list)
    np.testing.assert_array_equal(first[0], run_session(session, feed)[0])
    np.testing.assert_array_equal(second[0], first[0])
    assert not np.shares_memory(first[0], second[0])
    with pytest.raises(RunError, match="ONNX Runtime cannot run it"):
        plain_run(session, {name: array[:, :1] for name, array in feed.items()})()


def test_strings_are_run_without_binding() -> None:
    session = _session({"s": TensorProto.STRING}, (2,))
    (found,) = bound_run(session, {"s": np.array(["a", "bc"], object)})()  # type: ignore[misc]
    assert list(found) == ["a", "bc"]


def test_results_that_are_no_arrays_or_empty_are_bound_too() -> None:
    nodes = [
        helper.make_node("SequenceConstruct", ["x", "x"], ["many"]),
        helper.make_node("NonZero", ["zero"], ["places"]),
        helper.make_node("Mul", ["x", "nothing"], ["zero"]),
    ]
    nodes = [nodes[0], nodes[2], nodes[1]]
    element = helper.make_tensor_type_proto(TensorProto.FLOAT, [4])
    model = make_model(
        nodes,
        {"x": [4]},
        ["places"],
        weights={"nothing": np.zeros(4, np.float32)},
        types={"places": TensorProto.INT64},
    )
    sequence = helper.make_sequence_type_proto(element)
    model.graph.output.append(helper.make_value_info("many", sequence))
    session = open_session(model.SerializeToString(), session_options(threads=1, optimize=False))
    run = bound_run(session, random_feed(session, 0))
    for _ in range(2):
        run()


def test_result_of_another_shape_than_declared_is_run_without_binding() -> None:
    """ONNX Runtime warns of it, but takes no memory of that shape, its own neither."""
    nodes = [helper.make_node("Compress", ["x", "keep"], ["y"], axis=0)]
    types = {"keep": TensorProto.BOOL}
    model = make_model(nodes, {"x": [4], "keep": [4]}, {"y": [4]}, types=types)
    session = open_session(model.SerializeToString(), session_options(threads=1, optimize=False))
    run = bound_run(session, random_feed(session, 0))
    for _ in range(2):
        (found,) = run()  # type: ignore[misc]
        assert found.shape == (0,)


def test_run_that_fails_later_is_a_run_error() -> None:
    nodes = [helper.make_node("Gather", ["x", "at"], ["y"])]
    model = make_model(nodes, {"x": [4], "at": [1]}, ["y"], types={"at": TensorProto.INT64})
    session = open_session(model.SerializeToString(), session_options(threads=1, optimize=False))
    run = bound_run(session, random_feed(session, 0))
    assert isinstance(run, BoundRun)
    beyond = ort.OrtValue.ortvalue_from_numpy(np.array([7]))
    run.binding.bind_ortvalue_input("at", beyond)
    with pytest.raises(RunError, match="ONNX Runtime cannot run it"):
        run()


def test_optimising_is_off_when_the_graph_is_run_as_written(tmp_path: Path) -> None:
    model = chain_model(["Identity", "Identity", "Exp"])
    sizes = []
    for optimize in (False, True):
        options = session_options(threads=1, optimize=optimize)
        options.optimized_model_filepath = str(tmp_path / f"{optimize}.onnx")
        open_session(model.SerializeToString(), options)
        sizes.append((tmp_path / f"{optimize}.onnx").stat().st_size)
    assert sizes[0] > sizes[1]


# ---- one timed sample ----
