"""Shapes of models with open extents, proven by names; Reshapes that say theirs as constants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime as ort
import pytest
from support.engine.cpu import open_session

from aoe.graph.extents import shape_at
from aoe.graph.rewrites.preparation import prepared
from aoe.ort.extent_lists import followed_values
from aoe.ort.open_shapes import (
    constant_shape,
    first_unproven,
    infer_open_tensors,
    tensors_at,
    with_proven_reshapes,
)

_HEADS = """
    zero = Constant <value = int64[1] {0}> ()
    one = Constant <value = int64[1] {1}> ()
    rest = Constant <value = int64[2] {2, 4}> ()
    shape = Shape (x)
    n = Gather <axis = 0> (shape, zero)
    s = Slice (shape, one, two)
    wanted = Concat <axis = 0> (n, s, rest)
    heads = Reshape (x, wanted)
    turned = Transpose <perm = [0, 2, 1, 3]> (heads)
"""
_WEIGHTS = "int64[1] two = {2}, int64[1] minus = {-1}, int64[1] four = {4}"


def _model(body: str, inputs: str = "float[N,S,8] x") -> onnx.ModelProto:
    text = (
        f'<ir_version: 9, opset_import: ["": 18]> g ({inputs}) => (float y) <{_WEIGHTS}> '
        f"{{ {body} }}"
    )
    model = onnx.parser.parse_model(text)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    return model


def _agree(one: onnx.ModelProto, other: onnx.ModelProto, shapes: Sequence[tuple[int, ...]]) -> bool:
    sessions = [ort.InferenceSession(model.SerializeToString()) for model in (one, other)]
    feeds = [{"x": np.random.default_rng(0).standard_normal(s).astype(np.float32)} for s in shapes]
    return all(
        np.array_equal(*(session.run(None, feed)[0] for session in sessions)) for feed in feeds
    )


def _shapes(model: onnx.ModelProto) -> dict[str, tuple[Any, ...]]:
    return {
        name: one.shape for name, one in infer_open_tensors(prepared(model), open_session).items()
    }


def _computed(model: onnx.ModelProto) -> int:
    """Return how many Reshapes have a shape that is computed."""
    constants = {tensor.name for tensor in model.graph.initializer}
    return sum(n.op_type == "Reshape" and n.input[1] not in constants for n in model.graph.node)


def test_heads_are_told_apart_and_put_together_by_constants() -> None:
    body = f"{_HEADS} back = Transpose <perm = [0, 2, 1, 3]> (turned) y = Reshape (back, shape)"
    model = _model(body)
    changed = with_proven_reshapes(model)
    assert (_computed(model), _computed(changed)) == (2, 0)
    assert _agree(model, changed, [(1, 1, 8), (2, 5, 8), (3, 17, 8), (1, 0, 8)])
    shapes = _shapes(changed)
    assert shapes["heads"] == ("N", "S", 2, 4) and shapes["y"] == ("N", "S", 8)


def test_a_folded_transpose_becomes_one_of_all_dimensions() -> None:
    body = f"""{_HEADS}
        folds = Concat <axis = 0> (minus, s, four)
        folded = Reshape (turned, folds)
        swapped = Transpose <perm = [0, 2, 1]> (folded)
        unfolds = Concat <axis = 0> (n, two, four, s)
        y = Reshape (swapped, unfolds)"""
    model = _model(body)
    changed = with_proven_reshapes(model)
    turns = [node.output[0] for node in changed.graph.node if node.op_type == "Transpose"]
    assert turns == ["turned", "y"]  # what it is made of is read by nobody any more
    assert _agree(model, changed, [(1, 1, 8), (2, 5, 8), (3, 17, 8)])
    assert _shapes(changed)["y"] == ("N", 2, 4, "S")


@pytest.mark.parametrize(("lead", "kind"), [("n, s", "MatMul"), ("s, n", "Reshape")])
def test_a_dense_layer_of_folded_rows_becomes_a_product_of_all_dimensions(
    lead: str, kind: str
) -> None:
    body = f"""zero = Constant <value = int64[1] {{0}}> ()
        one = Constant <value = int64[1] {{1}}> ()
        fold = Constant <value = int64[2] {{-1, 8}}> ()
        columns = Constant <value = int64[1] {{3}}> ()
        shape = Shape (x)
        n = Gather <axis = 0> (shape, zero)
        s = Gather <axis = 0> (shape, one)
        folded = Reshape (x, fold)
        rows = MatMul (folded, w)
        wanted = Concat <axis = 0> ({lead}, columns)
        y = Reshape (rows, wanted)"""
    model = _model(body)
    weights = np.random.default_rng(1).standard_normal((8, 3)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    changed = with_proven_reshapes(model)
    assert [node.op_type for node in changed.graph.node if "y" in node.output] == [kind]
    sessions = [ort.InferenceSession(one.SerializeToString()) for one in (model, changed)]
    for extents in ((1, 1), (2, 5), (3, 17)):
        x = np.random.default_rng(0).standard_normal((*extents, 8)).astype(np.float32)
        found, expected = (session.run(None, {"x": x})[0] for session in sessions)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_what_is_not_proven_stays_computed() -> None:
    model = _model("shape = Shape (z) y = Reshape (x, shape)", "float[N,S,8] x, float[A,B,C] z")
    assert _computed(with_proven_reshapes(model)) == 1


_BY_SHAPE = "high = Slice (around, two, four)"
_BY_FACTOR = "size = Shape (small) both = Slice (size, two, four) high = Mul (both, two)"


def _enlarging(high: str, extents: Sequence[str], more: str = "") -> onnx.ModelProto:
    """Return a network that halves images and enlarges the halves to computed sizes."""
    model = _model(
        f"""zero = Constant <value = int64[1] {{0}}> ()
        small = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x)
        around = Shape (x) shape = Shape (small) lead = Slice (shape, zero, two) {high}
        sizes = Concat <axis = 0> (lead, high)
        large = Resize <mode = "linear"{more}> (small, , , sizes)
        y = Concat <axis = 1> (large, x)""",
        "float[N,3,H,W] x",
    )
    for dim, name in zip(model.graph.input[0].type.tensor_type.shape.dim[2:], extents, strict=True):
        dim.dim_param = name
    return model


@pytest.mark.parametrize("high", [_BY_SHAPE, _BY_FACTOR])
def test_sizes_that_are_multiples_become_scales(high: str) -> None:
    model = _enlarging(high, ("8*H", "6*W"))
    changed = with_proven_reshapes(model)
    (resize,) = (node for node in changed.graph.node if node.op_type == "Resize")
    scales = next(one for one in changed.graph.initializer if one.name == resize.input[2])
    assert onnx.numpy_helper.to_array(scales).tolist() == [1, 1, 2, 2] and len(resize.input) == 3
    assert _agree(model, changed, [(1, 3, 8, 6), (2, 3, 40, 12)])
    assert _shapes(changed)["y"] == ("N", 6, "8*H", "6*W")


def test_sizes_of_images_that_may_be_odd_stay_computed() -> None:
    model = _enlarging(_BY_SHAPE, ("H", "W"))
    changed = with_proven_reshapes(model)
    assert [len(node.input) for node in changed.graph.node if node.op_type == "Resize"] == [4]
    assert _agree(model, changed, [(1, 3, 9, 7), (2, 3, 4, 6)])
    assert _shapes(changed)["large"] == ("N", 3, "H", "W")


@pytest.mark.parametrize("more", ["axes = [0, 1, 3, 2]", 'keep_aspect_ratio_policy = "not_larger"'])
def test_sizes_that_are_no_shape_stay_computed(more: str) -> None:
    changed = with_proven_reshapes(_enlarging(_BY_SHAPE, ("8*H", "6*W"), f", {more}"))
    assert [len(node.input) for node in changed.graph.node if node.op_type == "Resize"] == [4]


def test_positions_up_to_a_length_have_its_name() -> None:
    body = """start = Constant <value = int64 {0}> ()
        step = Constant <value = int64 {1}> ()
        first = Constant <value = int64 {1}> ()
        shape = Shape (x)
        length = Gather <axis = 0> (shape, first)
        places = Range (start, length, step)
        y = Cast <to = 1> (places)"""
    assert _shapes(_model(body))["y"] == ("S",)


def test_tensors_of_extents_that_are_not_named_are_left_out() -> None:
    body = "keep = Cast <to = 9> (x) y = Compress <axis = 0> (x, b)"
    found = infer_open_tensors(prepared(_model(body, "float[N,S,8] x, bool[N] b")), open_session)
    at = tensors_at(found, {"N": 3, "S": 5})
    assert at["keep"].shape == (3, 5, 8) and at["x"].dtype == "float32"
    assert "y" not in at


@pytest.mark.parametrize(
    ("given", "made", "said"),
    [
        (("n", "s", 768), ("n", "s", 12, 64), [0, 0, 12, 64]),
        (("n", 12, "s", 64), ("n", "s", 768), [0, -1, 768]),
        (("n", "s"), ("s", "n"), None),
        (("n", 4), ("n", 0), None),
        (None, ("n",), None),
        ((6, 4), (24,), [24]),
    ],
)
def test_constant_shapes(given: Any, made: Any, said: list[int] | None) -> None:
    assert constant_shape(given, made) == said


def test_lists_of_extents_are_followed_through_their_operators() -> None:
    body = """shape = Shape <start = 1> (x)
        last = Slice (shape, minus, end)
        many = Concat <axis = 0> (last, shape, four)
        same = Squeeze (last)
        y = Cast <to = 1> (many)"""
    model = _model(body.replace("end", "two"))
    shapes: Mapping[str, tuple[Any, ...]] = {"x": ("N", "S", 8)}
    values = followed_values(model.graph, shapes)
    assert values["shape"] == ["S", 8]
    assert values["last"] == [8] and values["same"] == [8]
    assert values["many"] == [8, "S", 8, 4]


def test_expanded_masks_have_the_extents_they_are_expanded_to() -> None:
    body = """one = Constant <value = float[1] {1}> () s = Shape <start = 1, end = 2> (x)
        both = Concat <axis = 0> (s, s) square = Expand (one, both) y = Trilu (square)"""
    found = infer_open_tensors(prepared(_model(body)), open_session)
    assert found["square"].shape == found["y"].shape == ("S", "S")
    assert found["square"].dtype == "float32"


# `torch.zeros_like(tokens)`, as PyTorch's TorchScript exporter writes it.
_ZEROS = """extents = Shape (x) kept = ConstantOfShape <value = int64[1] {0}> (extents)
    plain = ConstantOfShape (extents) tall = Constant <value = int64[2] {3, 4}> ()
    closed = ConstantOfShape (tall) y = Cast <to = 1> (kept)"""


def test_filled_tensors_have_the_extents_they_are_told() -> None:
    model = _model(_ZEROS, "float[N,S] x")
    found = infer_open_tensors(prepared(model), open_session)
    assert found["kept"].shape == found["plain"].shape == found["y"].shape == ("N", "S")
    assert (found["kept"].dtype, found["plain"].dtype) == ("int64", "float32")
    assert found["closed"].shape == (3, 4)
    for shape in ((3, 5), (1, 1), (0, 2)):
        (made,) = ort.InferenceSession(model.SerializeToString()).run(
            None, {"x": np.ones(shape, np.float32)}
        )
        assert made.shape == shape


# `z[:, :n].expand(b, n)` with `b, n = x.shape`, as PyTorch's TorchScript exporter writes it.
_EXPAND = """shape = Shape (x) zero = Constant <value = int64 {0}> ()
    first = Constant <value = int64 {1}> () b = Gather (shape, zero) n = Gather (shape, first)
    none = Constant <value = int64[1] {0}> () one = Constant <value = int64[1] {1}> ()
    upto = Unsqueeze (n, none) types = Constant <value = int64[1,9] {0,1,0,1,0,1,0,1,0}> ()
    part = Slice (types, none, upto, one, one) rows = Unsqueeze (b, none)
    listed = Concat <axis = 0> (rows, LAST) flat = Reshape (listed, minus) rank = Shape (flat)
    ones = ConstantOfShape <value = int64[1] {1}> (rank) less = Constant <value = int64 {-1}> ()
    kept = Mul (ones, less) keeps = Equal (flat, kept) told = Where (keeps, ones, flat)
    wide = Expand (part, told) y = Cast <to = 1> (wide)"""


@pytest.mark.parametrize("last", ["upto", "minus"])
def test_extents_told_to_expand_are_followed_through_where(last: str) -> None:
    """-1 keeps an extent; a number stays, whether it is compared with -1 or not."""
    model = _model(_EXPAND.replace("LAST", last), "float[N,S] x")
    shapes = _shapes(model)
    assert shapes["wide"] == shapes["y"] == ("N", "S")
    (made,) = ort.InferenceSession(model.SerializeToString()).run(
        None, {"x": np.zeros((3, 5), np.float32)}
    )
    assert made.shape == (3, 5)


def test_the_node_at_which_a_proof_ends_is_told() -> None:
    body = (
        """many = NonZero (x) rows = Transpose (many) next = Shape (rows) y = Expand (one, next)"""
    )
    model = prepared(_model(body, "float[N,S] x, float[1,1] one"))
    found = first_unproven(model.graph, infer_open_tensors(model, open_session))
    assert found is not None and found.op_type == "NonZero"
    proven = prepared(_model(_EXPAND.replace("LAST", "upto"), "float[N,S] x"))
    assert first_unproven(proven.graph, infer_open_tensors(proven, open_session)) is None


def test_cache_that_grows_has_the_sum_of_both_lengths() -> None:
    body = """whole = Concat <axis = 1> (past, x) p = Shape <start = 1, end = 2> (past)
        s = Shape <start = 1, end = 2> (x) last = Add (p, s) zero = Constant <value = int64 {0}> ()
        step = Constant <value = int64 {1}> () from = Squeeze (p) to = Squeeze (last)
        places = Range (from, to, step) longer = Concat <axis = 1> (whole, x) y = Relu (longer)"""
    found = infer_open_tensors(
        prepared(_model(body, "float[N,S,8] x, float[N,P,8] past")), open_session
    )
    assert found["whole"].shape == ("N", "P + S", 8)
    assert found["places"].shape == ("S",)
    assert found["y"].shape == ("N", "P + S + S", 8)
    at = tensors_at(found, {"N": 2, "P": 5, "S": 3})
    assert at["y"].shape == (2, 11, 8)


_SOUND = """
    strided = Conv <strides = [2], pads = [1, 1]> (x, filters)
    turned = Transpose <perm = [0, 2, 1]> (strided)
    shape = Shape (x)
    frames = Gather <axis = 0> (shape, second)
    less = Add (frames, minus)
    half = Div (less, two)
    length = Add (one, half)
    first = Slice (table, zero, length, zero, one)
    placed = Add (turned, first)
    rest = Constant <value = int64[2] {2, -1}> ()
    wanted = Concat <axis = 0> (one, length, rest)
    y = Reshape (placed, wanted)
"""


def _sound(body: str) -> onnx.ModelProto:
    head = "".join(
        f"{name} = Constant <value = int64[1] {{{value}}}> ()\n"
        for name, value in {"zero": 0, "one": 1, "second": 2}.items()
    )
    model = _model(head + body, "float[1,3,F] x")
    rng = np.random.default_rng(2)
    for name, shape in {"filters": (4, 3, 3), "table": (9, 4)}.items():
        values = rng.standard_normal(shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(values, name))
    return model


def test_a_signal_is_followed_through_a_stride_to_its_positions_and_heads() -> None:
    model = _sound(_SOUND)
    changed = with_proven_reshapes(model)
    assert (_computed(model), _computed(changed)) == (1, 0)
    assert _agree(model, changed, [(1, 3, frames) for frames in (1, 2, 7, 16, 17, 18)])
    for one in (model, changed):
        shapes = _shapes(one)
        assert shapes["strided"] == (1, 4, "(F+1)//2")
        assert shapes["placed"] == (1, "(F+1)//2", 4)
        assert shapes["y"] == (1, "(F+1)//2", 2, 2)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("(table, zero, length", "(table, one, length"),
        ("half = Div (less, two)", "half = Mul (less, two)"),
        ("wanted = Concat <axis = 0> (one, length", "wanted = Concat <axis = 0> (frames, length"),
    ],
)
def test_rows_and_heads_that_do_not_follow_are_not_claimed(old: str, new: str) -> None:
    assert old in _SOUND
    shapes = _shapes(_sound(_SOUND.replace(old, new)))
    assert shapes.get("y") is None


_SHIFT = """
    shape = Shape <start = 1, end = 2> (x) length = Squeeze (shape)
    before = Sub (longest, length) start = Reshape (before, minus)
    behind = Add (longest, length) last = Sub (behind, one) end = Reshape (last, minus)
    distances = Slice (table, start, end, zeros, ones)
    turned = Transpose <perm = [1, 0]> (distances) scores = MatMul (x, turned)
    padded = Pad (scores, pads)
    twice = Mul (length, two) wide = Reshape (twice, minus) less = Sub (twice, one)
    narrow = Reshape (less, minus) batch = Shape <end = 1> (x)
    folds = Concat <axis = 0> (batch, wide, shape) folded = Reshape (padded, folds)
    later = Slice (folded, ones, most, ones, ones)
    unfolds = Concat <axis = 0> (batch, shape, narrow) unfolded = Reshape (later, unfolds)
    y = Slice (unfolded, zeros, shape, two, ones)
"""
"""Relative positions as PyTorch writes them: scores by distance become scores by key."""


def _shift(body: str = _SHIFT) -> onnx.ModelProto:
    model = _model(body)
    constants = {
        "longest": np.array(9),
        "one": np.array(1),
        "zeros": np.array([0]),
        "ones": np.array([1]),
        "most": np.array([np.iinfo(np.int64).max]),
        "pads": np.array([0, 0, 1, 0, 0, 0]),
        "table": np.random.default_rng(2).standard_normal((17, 8)).astype(np.float32),
    }
    for name, value in constants.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(value, name))
    return model


def test_relative_positions_are_followed_through_their_shift() -> None:
    shapes = _shapes(_shift())
    assert shapes["distances"] == ("(2*S-1)", 8)
    assert shapes["padded"] == ("N", "S", "2*S")
    assert shapes["folded"] == ("N", "2*S", "S")
    assert shapes["unfolded"] == ("N", "S", "(2*S-1)")
    assert shapes["y"] == ("N", "S", "S")
    session = ort.InferenceSession(_shift().SerializeToString())
    for batch, length in ((1, 1), (2, 2), (1, 5), (3, 9)):
        extents = {"N": batch, "S": length}
        (made,) = session.run(None, {"x": np.zeros((batch, length, 8), np.float32)})
        assert made.shape == shape_at(shapes["y"], extents)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("(unfolded, zeros, shape", "(unfolded, zeros, wide"),  # more than there are
        ("(folded, ones, most", "(folded, wide, most"),  # may begin behind the end
        ("(unfolded, zeros, shape", "(unfolded, minus, shape"),
        ("(unfolded, zeros, shape", "(unfolded, zeros, two"),
    ],
)
def test_parts_that_may_be_cut_off_are_not_claimed(old: str, new: str) -> None:
    assert old in _SHIFT
    assert "y" not in _shapes(_shift(_SHIFT.replace(old, new)))


def test_batches_that_are_broadcast_are_not_those_of_the_first_image() -> None:
    body = "strided = Conv <strides = [2]> (x, filters) y = Add (strided, z)"
    model = _model(body, "float[1,3,F] x, float[N,4,G] z")
    values = np.zeros((4, 3, 3), np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(values, "filters"))
    assert "y" not in _shapes(model)


@pytest.mark.parametrize(("extent", "made"), [("5", (1, 4, "(F-4)")), ("K", None)])
def test_filters_that_are_computed_have_their_extents(
    extent: str, made: tuple[Any, ...] | None
) -> None:
    model = _model(
        "filters = Neg (k) y = Conv (x, filters)", f"float[1,3,F] x, float[4,3,{extent}] k"
    )
    assert _shapes(model).get("y") == made


_LENGTH = "shape = Shape <start = 1, end = 2> (x) "
_NO_PROOFS = {
    "a choice that is not followed": f"""{_LENGTH}
        small = Less (shape, four) rows = Where (small, shape, four) y = Expand (e, rows)""",
    "extents that may be equal": f"""{_LENGTH} three = Add (four, minus)
        same = Equal (shape, three) rows = Where (same, four, shape) y = Expand (e, rows)""",
    "a start that counts from the end": f"""{_LENGTH} start = Sub (none, shape)
        y = Slice (table, start, most, none)""",
    "a step that is not followed": f"""{_LENGTH} step = Size (x) steps = Reshape (step, minus)
        y = Slice (table, none, shape, none, steps)""",
    "a fraction of floats": f"""{_LENGTH} f = Cast <to = 1> (shape) t = Cast <to = 1> (two)
        half = Div (f, t) many = Mul (half, t) rows = Cast <to = 7> (many) y = Expand (e, rows)""",
    "a byte": f"""{_LENGTH} small = Cast <to = 2> (shape) rows = Cast <to = 7> (small)
        y = Expand (e, rows)""",
    "a list of two dimensions": """shape = Shape <end = 2> (x) pairs = Unsqueeze (shape, none)
        both = Gather <axis = 0> (pairs, none) rows = Reshape (both, minus) y = Expand (e, rows)""",
}


def _no_proof(body: str) -> onnx.ModelProto:
    model = _model(body)
    constants: Mapping[str, np.ndarray[Any, Any]] = {
        "none": np.array([0]),
        "most": np.array([np.iinfo(np.int64).max]),
        "table": np.zeros((12, 3), np.float32),
        "e": np.zeros(1, np.float32),
    }
    for name, value in constants.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(value, name))
    return model


@pytest.mark.parametrize("body", _NO_PROOFS.values(), ids=_NO_PROOFS)
def test_proven_shapes_are_those_of_a_run(body: str) -> None:
    model = _no_proof(body)
    claimed = _shapes(model).get("y")
    session = ort.InferenceSession(model.SerializeToString())
    for length in (1, 3, 300):
        (made,) = session.run(None, {"x": np.zeros((1, length, 8), np.float32)})
        assert claimed is None or shape_at(claimed, {"N": 1, "S": length}) == made.shape


def test_quotient_of_floats_that_becomes_an_integer_is_followed() -> None:
    body = f"""{_LENGTH} f = Cast <to = 1> (shape) t = Cast <to = 1> (two)
        half = Div (f, t) rows = Cast <to = 7> (half) y = Expand (e, rows)"""
    assert _shapes(_no_proof(body))["y"] == ("(S)//2",)


def test_slice_by_attributes_ends_no_run() -> None:
    model = _model("y = Slice <starts = [0], ends = [2], axes = [1]> (x)")
    model.opset_import[0].version = 9
    assert _shapes(model).get("y", ("N", 8))[0] == "N"
