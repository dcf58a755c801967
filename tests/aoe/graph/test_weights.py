"""Weights outside the models: stored once, read back bit by bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from support.engine.cpu import open_session
from support.engine.models import Array, conv_net, make_model, matmul_net

from aoe.graph.weights import WeightStore, array_of, load_written, place_of, share_places
from aoe.ort.sessions import random_feed, session_options


def _stored(folder: Path, *models: onnx.ModelProto) -> list[Path]:
    files = []
    with WeightStore(folder / "weights.bin") as store:
        for number, model in enumerate(models):
            file = folder / f"{number}.onnx"
            file.write_bytes(store.externalize(model).SerializeToString())
            files.append(file)
    return files


def _weights(model: onnx.ModelProto) -> dict[str, Array]:
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}


def test_model_with_external_weights_gives_identical_bits(tmp_path: Path) -> None:
    model = conv_net()
    (file,) = _stored(tmp_path, model)
    options = session_options(threads=1, optimize=True)
    inside = open_session(model.SerializeToString(), options)
    outside = open_session(file, session_options(threads=1, optimize=True))
    feed = random_feed(inside, 3)
    assert np.array_equal(outside.run(None, feed)[0], inside.run(None, feed)[0])


def test_everything_but_the_weights_is_kept(tmp_path: Path) -> None:
    model = conv_net()
    model.doc_string, model.producer_name, model.model_version = "doc", "me", 7
    helper.set_model_props(model, {"key": "value"})
    (file,) = _stored(tmp_path, model)
    found = onnx.load(str(file))
    assert found.metadata_props == model.metadata_props
    assert (found.doc_string, found.producer_name, found.model_version) == ("doc", "me", 7)
    assert found.ir_version == model.ir_version
    assert found.opset_import == model.opset_import
    assert found.graph.node == model.graph.node
    assert found.graph.input == model.graph.input
    for name, array in _weights(model).items():
        assert np.array_equal(_weights(found)[name], array)


def test_equal_data_of_several_models_is_stored_once(tmp_path: Path) -> None:
    model = matmul_net(width=64)
    _stored(tmp_path, model)
    once = (tmp_path / "weights.bin").stat().st_size
    _stored(tmp_path, model, model, matmul_net(width=64))
    assert (tmp_path / "weights.bin").stat().st_size == once


def test_small_tensors_stay_inside(tmp_path: Path) -> None:
    weights = {
        "small": np.ones(256, np.float32),
        "large": np.ones(257, np.float32),
    }
    nodes = [helper.make_node("Exp", ["x"], ["y"])]
    (file,) = _stored(tmp_path, make_model(nodes, {"x": [1]}, ["y"], weights=weights))
    proto = onnx.load(str(file), load_external_data=False)
    places = {tensor.name: tensor.data_location for tensor in proto.graph.initializer}
    assert places == {"small": TensorProto.DEFAULT, "large": TensorProto.EXTERNAL}


def test_data_is_aligned(tmp_path: Path) -> None:
    weights = {f"w{n}": np.full(301 + n, n, np.float32) for n in range(4)}
    nodes = [helper.make_node("Exp", ["x"], ["y"])]
    (file,) = _stored(tmp_path, make_model(nodes, {"x": [1]}, ["y"], weights=weights))
    proto = onnx.load(str(file), load_external_data=False)
    for tensor in proto.graph.initializer:
        entries = {entry.key: entry.value for entry in tensor.external_data}
        assert entries["location"] == "weights.bin"
        assert int(entries["offset"]) % 64 == 0
        assert int(entries["length"]) == 4 * tensor.dims[0]
    assert all(np.array_equal(_weights(onnx.load(str(file)))[n], w) for n, w in weights.items())


@pytest.mark.parametrize(
    "dtype", ["float32", "float64", "float16", "int64", "int8", "uint8", "bool"]
)
@pytest.mark.parametrize("raw", [True, False])
def test_every_way_to_write_a_tensor_is_read(tmp_path: Path, dtype: str, raw: bool) -> None:
    array = (np.arange(2000) % 2).astype(dtype)
    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    values = array.tobytes() if raw else array.reshape(-1)
    tensor = helper.make_tensor("w", kind, [2000], values, raw=raw)
    model = make_model([helper.make_node("Exp", ["x"], ["y"])], {"x": [1]}, ["y"])
    model.graph.initializer.append(tensor)
    (file,) = _stored(tmp_path, model)
    assert np.array_equal(_weights(onnx.load(str(file)))["w"], array)


@pytest.mark.parametrize("kind", [TensorProto.INT4, TensorProto.UINT4])
@pytest.mark.parametrize("raw", [True, False])
def test_elements_of_half_a_byte_stay_two_in_one(tmp_path: Path, kind: int, raw: bool) -> None:
    tensor = helper.make_tensor("w", kind, [4001], [number % 8 for number in range(4001)])
    values = numpy_helper.to_array(tensor)
    if raw:
        tensor = numpy_helper.from_array(values, "w")
    model = make_model([helper.make_node("Exp", ["x"], ["y"])], {"x": [1]}, ["y"])
    model.graph.initializer.append(tensor)
    (file,) = _stored(tmp_path, model)
    light = onnx.load(str(file), load_external_data=False).graph.initializer[0]
    assert {entry.key: entry.value for entry in light.external_data}["length"] == "2001"
    assert np.array_equal(_weights(onnx.load(str(file)))["w"], values)


def test_strings_stay_inside(tmp_path: Path) -> None:
    tensor = helper.make_tensor("w", TensorProto.STRING, [300], [b"abcdefgh"] * 300)
    model = make_model([helper.make_node("Exp", ["x"], ["y"])], {"x": [1]}, ["y"])
    model.graph.initializer.append(tensor)
    (file,) = _stored(tmp_path, model)
    assert onnx.load(str(file)).graph.initializer[0] == tensor


def test_the_given_model_is_not_touched(tmp_path: Path) -> None:
    model = conv_net()
    before = model.SerializeToString()
    _stored(tmp_path, model)
    assert model.SerializeToString() == before


def test_data_that_differs_in_the_middle_alone_is_stored_twice(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    one = rng.standard_normal(9000).astype(np.float32)
    other = one.copy()
    other[4500] += 1
    model = make_model([], {}, [], weights={"one": one, "other": other, "again": one})
    (file,) = _stored(tmp_path, model)
    light = onnx.load(str(file), load_external_data=False)
    offsets = {t.name: place.offset for t in light.graph.initializer if (place := place_of(t))}
    assert offsets["one"] == offsets["again"] != offsets["other"]
    for name, expected in (("one", one), ("other", other), ("again", one)):
        np.testing.assert_array_equal(_weights(onnx.load(str(file)))[name], expected)


def test_model_settled_in_a_store_is_written_into_it_no_second_time(tmp_path: Path) -> None:
    model = conv_net()
    with WeightStore(tmp_path / "weights.bin") as store:
        expected = store.externalize(model)
        once = (tmp_path / "weights.bin").stat().st_size
        settled = store.settled(model)
        assert store.externalize(settled) == expected
        place = place_of(next(t for t in settled.graph.initializer if place_of(t)))
        assert place is not None and place.file == tmp_path / "weights.bin"
        assert (tmp_path / "weights.bin").stat().st_size == once
    found = {tensor.name: array_of(tensor) for tensor in settled.graph.initializer}
    for name, array in _weights(model).items():
        np.testing.assert_array_equal(found[name], array)


def test_models_can_be_read_before_the_store_is_closed(tmp_path: Path) -> None:
    model = conv_net()
    with WeightStore(tmp_path / "weights.bin") as store:
        file = tmp_path / "now.onnx"
        file.write_bytes(store.externalize(model).SerializeToString())
        assert _weights(onnx.load(str(file))).keys() == _weights(model).keys()


def _settled(folder: Path, **arrays: Array) -> onnx.ModelProto:
    """Return a model in memory whose weights lie in a file of their own."""
    folder.mkdir()
    model = make_model([], {}, [], weights=arrays)
    (file,) = _stored(folder, model)
    return load_written(file, whole=False)


def test_equal_weights_are_shared_by_name_or_by_contents_and_others_are_not(
    tmp_path: Path,
) -> None:
    rng = np.random.default_rng(0)
    kept, moved, other, late = (rng.standard_normal(500).astype(np.float32) for _ in range(4))
    changed = late.copy()
    changed[-1] += 1
    original = _settled(tmp_path / "a", kept=kept, moved=moved, late=late)
    made = _settled(tmp_path / "b", kept=kept, renamed=moved, late=changed, new=other)
    share_places(made, original)
    weights = "weights.bin"
    places = {t.name: place_of(t) for t in made.graph.initializer}
    files = {name: place.file for name, place in places.items() if place is not None}
    assert files["kept"] == files["renamed"] == tmp_path / "a" / weights
    assert files["late"] == files["new"] == tmp_path / "b" / weights
    found = {tensor.name: array_of(tensor) for tensor in made.graph.initializer}
    for name, expected in (("kept", kept), ("renamed", moved), ("late", changed), ("new", other)):
        np.testing.assert_array_equal(found[name], expected)
