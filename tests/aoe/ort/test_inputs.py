"""Inputs from files: what fits is used, what does not is one clear error."""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from support.engine.cpu import open_session
from support.engine.models import chain_model, make_model

from aoe.errors import AoeError, OptionError, RunError
from aoe.ort.bfloat16 import BFLOAT16
from aoe.ort.inputs import (
    MADE_UP,
    InputSet,
    ModelInputs,
    parse_inputs,
    read_input_sets,
    save_input_sets,
)
from aoe.ort.sessions import random_feed, session_options

_NODES = [
    helper.make_node("Gather", ["a/table", "x:0"], ["rows"]),
    helper.make_node("Cast", ["text"], ["number"], to=TensorProto.FLOAT),
    helper.make_node("Add", ["rows", "number"], ["y"]),
]
_TYPES = {"x:0": TensorProto.INT64, "text": TensorProto.STRING}
_MODEL = make_model(_NODES, {"a/table": (3, 2), "x:0": (2,), "text": (1,)}, ["y"], types=_TYPES)
_GOOD: dict[str, Any] = {
    "a/table": np.arange(6, dtype=np.float32).reshape(3, 2),
    "x:0": np.array([2, 1]),
    "text": np.array(["0.5"]),
}


def _session(model: Any = _MODEL) -> Any:
    return open_session(model.SerializeToString(), session_options(threads=1, optimize=False))


def _save(folder: Path, arrays: Mapping[str, Any] = _GOOD) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in arrays.items():
        np.save(folder / f"{name.replace('/', '_')}.npy", array)
    return folder


def _assert_good(feed: Mapping[str, Any]) -> None:
    assert list(feed) == list(_GOOD)
    for name, array in _GOOD.items():
        assert np.array_equal(feed[name], array)


# ---- --input ----


@pytest.mark.parametrize("mark", [":", "="])
def test_named_files_are_the_inputs_though_names_hold_colons(tmp_path: Path, mark: str) -> None:
    _save(tmp_path)
    texts = [f"{name}{mark}{tmp_path / name.replace('/', '_')}.npy" for name in _GOOD]
    inputs = ModelInputs(sets=parse_inputs(texts))
    inputs.check(_MODEL)
    feed = inputs.first(_session())
    _assert_good(feed)
    assert np.array_equal(_session().run(None, feed)[0], _GOOD["a/table"][[2, 1]] + 0.5)


def test_nameless_files_are_the_inputs_not_named_in_their_order(tmp_path: Path) -> None:
    _save(tmp_path)
    texts = [
        str(tmp_path / "a_table.npy"),
        f"x:0:{tmp_path / 'x:0.npy'}",
        str(tmp_path / "text.npy"),
    ]
    _assert_good(ModelInputs(sets=parse_inputs(texts)).first(_session()))


def test_random_stands_for_the_inputs_without_a_file(tmp_path: Path) -> None:
    model = make_model(
        [helper.make_node("Div", ["x", "by"], ["y"])],
        {"x": (4,), "by": (4,)},
        ["y"],
    )
    np.save(tmp_path / "by.npy", np.full(4, 2, np.float32))
    texts = [f"by:{tmp_path / 'by.npy'}"]
    with pytest.raises(OptionError, match="without a value") as caught:
        ModelInputs(sets=parse_inputs(texts)).check(model)
    assert "--input random" in str(caught.value.hint)
    sets = parse_inputs([*texts, "random"])
    first, other = (ModelInputs(sets=sets, seed=seed).first(_session(model)) for seed in (1, 2))
    assert first["by"].tolist() == other["by"].tolist() == [2.0] * 4
    assert first["x"].tolist() != other["x"].tolist()


def test_others_are_made_up_in_the_shapes_that_are_asked_for(tmp_path: Path) -> None:
    node = helper.make_node("Concat", ["x", "z"], ["y"], axis=0)
    session = _session(make_model([node], {"x": ("n", 2), "z": ("m", 2)}, ["y"]))
    np.save(tmp_path / "x.npy", np.ones((3, 2), np.float32))
    sets = parse_inputs([f"x:{tmp_path / 'x.npy'}", "random"])
    feed = ModelInputs(sets=sets, shapes={"z": (4, 2)}).first(session)
    assert (feed["x"].shape, feed["z"].shape) == ((3, 2), (4, 2))


@pytest.mark.parametrize("texts", [[], ["random"]])
def test_without_files_inputs_are_made_up_as_ever(texts: list[str]) -> None:
    assert parse_inputs(texts) == ()
    session = _session(chain_model(["Exp"], (2, 3)))
    found = list(ModelInputs(sets=parse_inputs(texts), seed=3).feeds(session))
    assert len(found) == 1
    assert np.array_equal(found[0]["x"], random_feed(session, 3)["x"])


def test_an_input_given_twice_is_an_error() -> None:
    with pytest.raises(OptionError, match="given twice"):
        parse_inputs(["x:a.npy", "x:b.npy"])


# ---- what does not fit ----


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"x:0": np.array([2.0, 1.0])}, r"element type \(got float64, expected int64\)"),
        ({"a/table": np.ones((3, 2), ">f4")}, r"element type \(got >f4, expected float32\)"),
        ({"text": np.array([1])}, r"element type \(got int64, expected str\)"),
        ({"a/table": np.ones((2, 3), np.float32)}, r"shape \(got \(2, 3\), expected \(3, 2\)\)"),
        ({"x:0": np.array(1)}, r"shape \(got \(\), expected \(2,\)\)"),
        ({"z": np.array(1)}, r"no such input \(got z, expected \['a/table', 'x:0', 'text'\]\)"),
    ],
)
def test_what_does_not_fit_is_named_before_and_at_the_run(
    tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    inputs = ModelInputs(sets=read_input_sets(_save(tmp_path, _GOOD | changes)))
    with pytest.raises(OptionError, match=words):
        inputs.check(_MODEL)
    with pytest.raises(OptionError, match=words):
        inputs.first(_session())


@pytest.mark.parametrize("content", [b"", b"text", b"\x93NUMPY\x01\x00", b"PK\x03\x04damaged"])
def test_file_that_is_no_array_is_named(tmp_path: Path, content: bytes) -> None:
    _save(tmp_path)
    (tmp_path / "text.npy").write_bytes(content)
    with pytest.raises(RunError, match=r"text\.npy: not a NumPy array file"):
        ModelInputs(sets=read_input_sets(tmp_path)).check(_MODEL)


def test_damaged_array_of_an_archive_is_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "set.npz", **_GOOD)
    (given,) = read_input_sets(tmp_path / "set.npz")
    with zipfile.ZipFile(tmp_path / "set.npz", "w") as archive:
        archive.writestr("text.npy", "damaged")
    for name in ("text", "x:0"):
        with pytest.raises(RunError, match=rf"set\.npz\[{name}\]: not a NumPy array file"):
            given.files[name].load()


def test_ranges_are_taken_from_no_nan_of_bfloat16(tmp_path: Path) -> None:
    x = make_model(
        [helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT)],
        {"x": (2,)},
        ["y"],
        types={"x": TensorProto.BFLOAT16},
    )
    folder = _save(tmp_path, {"x": np.array([1, np.nan], BFLOAT16)})
    inputs = ModelInputs(sets=read_input_sets(folder))
    inputs.check(x)
    with pytest.raises(OptionError, match=r"has NaN, .*got 1 NaN in 2 values"):
        inputs.check(x, without_nan=True)


def test_text_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    _save(tmp_path, _GOOD | {"text": np.array([b"\xae"])})
    with pytest.raises(RunError, match=r"text\.npy: not a NumPy array file: 'utf-8'"):
        ModelInputs(sets=read_input_sets(tmp_path)).check(_MODEL)


def test_text_of_fixed_width_bytes_is_text(tmp_path: Path) -> None:
    _save(tmp_path, _GOOD | {"text": np.array([b"0.5"])})
    _assert_good(ModelInputs(sets=read_input_sets(tmp_path)).first(_session()))


def test_file_of_pickled_objects_is_refused(tmp_path: Path) -> None:
    _save(tmp_path)
    np.save(tmp_path / "text.npy", np.array([{}], object), allow_pickle=True)
    with pytest.raises(RunError, match="not a NumPy array file") as caught:
        ModelInputs(sets=read_input_sets(tmp_path)).check(_MODEL)
    assert "allow_pickle" not in str(caught.value)
    assert "dtype=str" in str(caught.value.hint)


def test_element_type_numpy_does_not_have_is_named(tmp_path: Path) -> None:
    model = make_model(
        [helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT)],
        {"x": (1,)},
        ["y"],
        types={"x": TensorProto.FLOAT8E4M3FN},
    )
    folder = _save(tmp_path, {"x": np.zeros(1, np.float32)})
    with pytest.raises(OptionError, match=r"no such element type \(got tensor\(float8e4m3fn\)"):
        ModelInputs(sets=read_input_sets(folder)).check(model)


def test_initializer_that_is_listed_as_an_input_needs_no_file(tmp_path: Path) -> None:
    weights = {"w": np.ones((4, 2), np.float32)}
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    model = make_model(nodes, {"x": (3, 4), "w": (4, 2)}, ["y"], weights=weights)
    folder = _save(tmp_path, {"x": np.ones((3, 4), np.float32)})
    inputs = ModelInputs(sets=read_input_sets(folder))
    inputs.check(model)
    assert list(inputs.first(_session(model))) == ["x"]


# ---- several sets ----


def test_folders_and_archives_are_sets_in_the_order_of_their_names(tmp_path: Path) -> None:
    for number, name in enumerate(("b", "a")):
        _save(tmp_path / name, _GOOD | {"text": np.array([str(number)])})
    np.savez(tmp_path / "c.npz", **(_GOOD | {"text": np.array(["2"])}))
    (tmp_path / ".hidden").mkdir()
    (tmp_path / "notes.txt").write_text("")
    inputs = ModelInputs(sets=read_input_sets(tmp_path))
    inputs.check(_MODEL)
    assert [feed["text"][0] for feed in inputs.feeds(_session())] == ["1", "0", "2"]


def test_one_folder_of_arrays_or_one_archive_is_one_set(tmp_path: Path) -> None:
    folder = _save(tmp_path / "set")
    np.savez(tmp_path / "set.npz", **_GOOD)
    for path in (folder, tmp_path / "set.npz"):
        (feed,) = ModelInputs(sets=read_input_sets(path)).feeds(_session())
        _assert_good(feed)


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ((), "no arrays there"),
        (("a/x.txt",), "no arrays there"),
        (("x.npy", "a/x.npy"), "side by side"),
        (("a.npz",), "not an .npz file"),
    ],
)
def test_directory_without_clear_sets_is_an_error(
    tmp_path: Path, files: tuple[str, ...], words: str
) -> None:
    for name in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(OptionError, match=words):
        read_input_sets(tmp_path)


def test_directory_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"--inputs .*gone: no such directory"):
        read_input_sets(tmp_path / "gone")


# ---- arrays in memory ----


def test_arrays_in_memory_become_files(tmp_path: Path) -> None:
    texts = np.array(["0.5"], object)  # as ONNX Runtime returns strings
    sets = save_input_sets([_GOOD, _GOOD | {"text": texts}], tmp_path)
    for feed in ModelInputs(sets=sets).feeds(_session()):
        _assert_good(feed)


def test_arrays_reach_the_model_in_c_order(tmp_path: Path) -> None:
    turned = np.asfortranarray(_GOOD["a/table"])
    (given,) = save_input_sets(_GOOD | {"a/table": turned}, tmp_path)
    feed = ModelInputs(sets=(given,)).first(_session())
    assert feed["a/table"].flags.c_contiguous
    _assert_good(feed)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([], "no arrays by input name"),
        ({}, "no arrays by input name"),
        ([np.ones(1)], "no arrays by input name"),
        ({"x": object()}, "no array ONNX Runtime takes"),
        ({"x": np.array(["a", 1], object)}, "no array ONNX Runtime takes"),
        ({"x": [[1], [2, 3]]}, "input x: no array: "),
    ],
)
def test_what_is_no_array_is_an_error(tmp_path: Path, given: Any, words: str) -> None:
    with pytest.raises(AoeError, match=words):
        save_input_sets(given, tmp_path)


def test_sets_can_be_sent_to_another_process(tmp_path: Path) -> None:
    given: InputSet
    (given,) = read_input_sets(_save(tmp_path))
    inputs = ModelInputs(sets=(given,), seed=4)
    assert pickle.loads(pickle.dumps(inputs)) == inputs
    assert ModelInputs() == MADE_UP
