"""`--input_shape`: how it is read, and how it meets the model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper
from support.engine.models import Shape, chain_model, make_model, onnx_shape

from aoe.entry.input_shapes import fix_input_shapes, parse_input_shape
from aoe.errors import ModelImportError, OptionError
from aoe.ort.inputs import parse_inputs, read_input_sets


@pytest.mark.parametrize("text", [None, "", "  ", ";", " ; "])
def test_nothing_given_is_no_shape(text: str | None) -> None:
    assert parse_input_shape(text) == {}


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("input:1,3,224,224", {"input": (1, 3, 224, 224)}),
        ("a:1;b:2,3", {"a": (1,), "b": (2, 3)}),
        (" a : 1 , 2 ; ", {"a": (1, 2)}),
        ("x:0:1,8", {"x:0": (1, 8)}),
        ("scope/in:0:16", {"scope/in:0": (16,)}),
        ("scalar:", {"scalar": ()}),
        ("empty:0,3", {"empty": (0, 3)}),
        (f"long:{2**63 - 1}", {"long": (2**63 - 1,)}),
    ],
)
def test_shapes_are_read_by_name(text: str, shapes: dict[str, tuple[int, ...]]) -> None:
    assert parse_input_shape(text) == shapes


@pytest.mark.parametrize(
    "text",
    ["1,3,224,224", "input", "input:1,x", "input:1,,3", f"input:{2**63}", "input:-1", ":1,3"],
)
def test_what_is_no_shape_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(OptionError, match="--input_shape: not a name with extents") as caught:
        parse_input_shape(text)
    assert repr(text) in str(caught.value)
    assert "1,3,224,224" in str(caught.value.hint)
    assert caught.value.exit_code == 2


def test_the_same_input_twice_is_refused() -> None:
    with pytest.raises(OptionError, match=r"input given twice \(got a\)"):
        parse_input_shape("a:1;b:2;a:3")


@given(
    st.dictionaries(
        st.text("abcXYZ019_/.:", min_size=1).filter(lambda name: name.strip() == name),
        st.lists(st.integers(1, 10**6), max_size=5).map(tuple),
        max_size=4,
    )
)
def test_written_shapes_are_read_back(shapes: dict[str, tuple[int, ...]]) -> None:
    text = ";".join(f"{name}:{','.join(map(str, shape))}" for name, shape in shapes.items())
    assert parse_input_shape(text) == shapes


def test_open_dimensions_are_fixed() -> None:
    model = chain_model(["Exp"], ("n", 3, "h", None))
    fix_input_shapes(model, {"x": (2, 3, 8, 9)})
    assert onnx_shape(model.graph.input[0]) == (2, 3, 8, 9)


def test_zero_is_an_extent_like_any_other() -> None:
    model = chain_model(["Exp"], (0, 3))
    fix_input_shapes(model, {})
    assert onnx_shape(model.graph.input[0]) == (0, 3)


def test_minus_one_in_a_model_means_open() -> None:
    with pytest.raises(ModelImportError, match="not static"):
        fix_input_shapes(chain_model(["Exp"], (-1, 3)), {})


@pytest.mark.parametrize("open_extent", [0, -1])
def test_zero_and_minus_one_in_a_model_give_way_to_an_extent(open_extent: int) -> None:
    model = chain_model(["Exp"], (open_extent, 3))
    fix_input_shapes(model, {"x": (2, 3)})
    assert onnx_shape(model.graph.input[0]) == (2, 3)


def test_input_without_any_shape_takes_the_given_one() -> None:
    model = make_model(chain_model(["Exp"]).graph.node, {"x": None}, ["y"])
    fix_input_shapes(model, {"x": (2, 3)})
    assert onnx_shape(model.graph.input[0]) == (2, 3)


def test_input_without_any_shape_can_be_made_a_scalar() -> None:
    model = make_model(chain_model(["Exp"]).graph.node, {"x": None}, ["y"])
    fix_input_shapes(model, {"x": ()})
    assert onnx_shape(model.graph.input[0]) == ()


def test_scalar_input_needs_no_shape() -> None:
    fix_input_shapes(chain_model(["Exp"], ()), {})


def test_open_shape_without_option_names_the_input_and_the_option_to_give() -> None:
    model = chain_model(["Exp"], ("batch", 3, None, 224))
    with pytest.raises(ModelImportError, match=r"input x: .*not static.*batch,3,\?,224") as caught:
        fix_input_shapes(model, {})
    assert caught.value.hint == '--input_shape="x:1,3,1,224"'


def test_hint_has_every_open_input_and_the_extents_that_are_given() -> None:
    inputs = {"ids": ("batch", "length"), "mask": ("batch", "length"), "kind": ("batch", None)}
    model = make_model([helper.make_node("Sum", list(inputs), ["y"])], inputs, ["y"])
    with pytest.raises(ModelImportError, match="input mask: its shape is not static") as caught:
        fix_input_shapes(model, {"ids": (2, 128)})
    assert caught.value.hint == '--input_shape="ids:2,128;mask:2,128;kind:2,1"'


def test_absent_shape_without_option_is_refused() -> None:
    model = make_model(chain_model(["Exp"]).graph.node, {"x": None}, ["y"])
    with pytest.raises(ModelImportError, match="got no shape"):
        fix_input_shapes(model, {})


def test_unknown_name_lists_the_inputs_there_are() -> None:
    with pytest.raises(ModelImportError, match="no such input") as caught:
        fix_input_shapes(chain_model(["Exp"], ("n", 4)), {"data": (1, 4)})
    assert "got data" in str(caught.value)
    assert "x:n,4" in str(caught.value)


def test_wrong_rank_says_both() -> None:
    with pytest.raises(ModelImportError, match=r"got 3 extents, expected 2: n,4"):
        fix_input_shapes(chain_model(["Exp"], ("n", 4)), {"x": (1, 4, 4)})


def test_extent_that_contradicts_the_model_is_refused() -> None:
    with pytest.raises(ModelImportError, match=r"fixed extent.*got 1,5, expected n,4"):
        fix_input_shapes(chain_model(["Exp"], ("n", 4)), {"x": (1, 5)})


def test_repeating_a_fixed_extent_is_fine() -> None:
    model = chain_model(["Exp"], (1, 4))
    fix_input_shapes(model, {"x": (1, 4)})
    assert onnx_shape(model.graph.input[0]) == (1, 4)


def _with_default(shape: Shape | None) -> onnx.ModelProto:
    node = helper.make_node("Add", ["x", "bias"], ["y"])
    weights = {"bias": np.ones((1, 4), np.float32)}
    return make_model([node], {"x": (2, 4), "bias": shape}, ["y"], weights=weights)


@pytest.mark.parametrize("shape", [None, ("n", 4), (1, 4)])
def test_input_with_a_default_has_its_shape(shape: Shape | None) -> None:
    model = _with_default(shape)
    fix_input_shapes(model, {})
    assert onnx_shape(model.graph.input[1]) == (1, 4)


def test_shape_that_contradicts_the_default_is_refused() -> None:
    with pytest.raises(ModelImportError, match=r"bias has a fixed extent.*got 2,4, expected 1,4"):
        fix_input_shapes(_with_default(("n", 4)), {"bias": (2, 4)})


# ---- shapes of given arrays ----


def test_open_shape_is_that_of_the_array_it_is_given(tmp_path: Path) -> None:
    arrays = {"x": np.zeros((2, 3), np.float32), "a/b": np.zeros((4, 3), np.float32)}
    for name, array in arrays.items():
        np.save(tmp_path / f"{name.replace('/', '_')}.npy", array)
    files = [str(tmp_path / f"{name}.npy") for name in ("x", "a_b")]
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"]), helper.make_node("Exp", ["a/b"], ["z"])]
    for (arrays_of,) in (read_input_sets(tmp_path), parse_inputs(files)):
        model = make_model(
            nodes,
            {"x": ("n", 3), "a/b": None},
            ["y", "z"],
            weights={"w": np.zeros((3, 3), np.float32)},
        )
        fix_input_shapes(model, {}, arrays_of)
        assert [onnx_shape(value) for value in model.graph.input] == [(2, 3), (4, 3)]


def test_shape_that_is_said_goes_before_that_of_an_array(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((2, 3), np.float32))
    model = chain_model(["Exp"], ("n", 3))
    fix_input_shapes(model, {"x": (5, 3)}, read_input_sets(tmp_path)[0])
    assert onnx_shape(model.graph.input[0]) == (5, 3)


@pytest.mark.parametrize(
    ("shape", "words"), [((2,), "another rank"), ((2, 4), "has a fixed extent in the model")]
)
def test_array_that_contradicts_the_model_is_named(
    tmp_path: Path, shape: tuple[int, ...], words: str
) -> None:
    np.save(tmp_path / "x.npy", np.zeros(shape, np.float32))
    model = chain_model(["Exp"], ("n", 3))
    with pytest.raises(ModelImportError, match=rf"input x: .*x\.npy: .*{words}"):
        fix_input_shapes(model, {}, read_input_sets(tmp_path)[0])
