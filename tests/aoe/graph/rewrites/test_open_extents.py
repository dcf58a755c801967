"""Rotary embeddings as exporters write them are computed in front of the Transpose of the heads."""

from __future__ import annotations

from itertools import product

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from support.engine.cpu import open_session
from support.engine.open_rows import opened, parsed

from aoe.graph.open_rows import OpenRows, find_open_rows
from aoe.ort.open_shapes import infer_open_tensors, with_proven_reshapes

_INPUTS = "float[N,S,3,16] x, float[N,S,16] c, float[N,S,16] s"
_OWN_COSINES = "float[N,S,3,16] x, float[N,3,S,16] cs, float[N,S,16] s"
_TURN = "t = Transpose <perm = [0, 2, 1, 3]> (x) cs = Unsqueeze(c, i1) sn = Unsqueeze(s, i1)"
_SLICES = "a = Slice(t, i0, i8, i3) b = Slice(t, i8, i99, i3)"
_REST = "m = Neg(b) r = Concat <axis = -1> (m, a) u = Mul(t, cs) v = Mul(r, sn)"
_ROTARY = f"{_TURN} {_SLICES} {_REST} y = Add(u, v)"
_SPLIT = _ROTARY.replace(_SLICES, "a, b = Split <axis = 3> (t, i8_8)")


def _maker(model: onnx.ModelProto, name: str) -> str:
    return next(node.op_type for node in model.graph.node if name in node.output)


def _agree(model: onnx.ModelProto, changed: onnx.ModelProto) -> None:
    sessions = [ort.InferenceSession(one.SerializeToString()) for one in (model, changed)]
    rng = np.random.default_rng(0)
    for batch, length in ((1, 1), (2, 5), (3, 17)):
        extents = {"N": batch, "S": length}
        arrays = {
            one.name: rng.standard_normal([extents.get(at, at) for at in one.shape], np.float32)
            for one in sessions[0].get_inputs()
        }
        expected, result = (session.run(None, arrays)[0] for session in sessions)
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("body", [_ROTARY, _SPLIT])
def test_each_token_of_a_batch_becomes_a_row(body: str) -> None:
    model = parsed(_INPUTS, body)
    changed = with_proven_reshapes(model)
    assert _maker(changed, "y") == "Transpose"
    graph, shapes, parts = opened(changed, {"N": 2, "S": 5})
    found = [find_open_rows(graph, region, shapes) for region in parts.regions]
    rows = [one for one in found if isinstance(one, OpenRows) and one.region.output != "m"]
    makes = [[graph.nodes[index].op_type for index in one.region.nodes] for one in rows]
    assert [one.lead for one in rows] == [("N", "S")]
    assert makes[0][1:] == ["Concat", "Mul", "Mul", "Add"]
    _agree(model, changed)


def test_queries_and_keys_share_their_cosines() -> None:
    keys = "kt = Transpose <perm = [0, 2, 1, 3]> (k) ka, kb = Split <axis = 3> (kt, i8_8)"
    turned = "kr = Concat <axis = 3> (kb, ka) ku = Mul(kt, cs) kv = Mul(kr, sn) kw = Add(ku, kv)"
    scores = "kx = Transpose <perm = [0, 1, 3, 2]> (kw) y = MatMul(q, kx)"
    body = f"{_ROTARY.replace('y =', 'q =')} {keys} {turned} {scores}"
    model = parsed(f"{_INPUTS}, float[N,S,3,16] k", body)
    changed = with_proven_reshapes(model)
    assert [_maker(changed, name) for name in ("q", "kw")] == ["Transpose", "Transpose"]
    _agree(model, changed)


_IN_BRANCHES = """z = If(p) <
then_branch = g () => (float[N,3,S,16] e) { e = Relu(t) },
else_branch = h () => (float[N,3,S,16] f) { f = Neg(v) }> y = Add(w, z)"""


@pytest.mark.parametrize(
    ("inputs", "body"),
    [
        (_INPUTS, f"{_TURN} {_SLICES} {_REST} w = Add(u, v) z = Softmax(t) y = Add(w, z)"),
        (f"{_INPUTS}, bool p", f"{_TURN} {_SLICES} {_REST} w = Add(u, v) {_IN_BRANCHES}"),
        (_INPUTS, f"{_TURN} {_SLICES} {_REST} w = Add(u, v) z = Softmax(v) y = Add(w, z)"),
        (_INPUTS, f"{_TURN} u = Mul(t, cs) y = Add(u, sn)"),
        (_OWN_COSINES, _ROTARY.replace(" cs = Unsqueeze(c, i1)", "")),
        (_INPUTS, _ROTARY.replace("i3)", "i2)").replace("i99", "i16")),  # of the length
    ],
)
def test_what_others_read_or_heads_do_not_share_stays(inputs: str, body: str) -> None:
    model = parsed(inputs, body)
    changed = with_proven_reshapes(model)
    assert [node.op_type for node in changed.graph.node] == [
        node.op_type for node in model.graph.node
    ]


# ---- Convolutions of signals as images of one row and products of rows: the same numbers ----

_SILU = "s = Sigmoid(d) m = Mul(d, s)"
_MODULE = f"""t = Transpose <perm = [0, 2, 1]> (x) e = Conv <kernel_shape = [1]> (t, w, b)
p, q = Split <axis = 1> (e, i64_64) g = Sigmoid(q) h = Mul(p, g)
d = Conv <kernel_shape = [7], pads = [3, 3], group = 64> (h, f, c) {_SILU}
l = Conv <kernel_shape = [1]> (m, u) y = Transpose <perm = [0, 2, 1]> (l)"""
_MODULE_WEIGHTS = "float[128,64,1] w, float[128] b, float[64,1,7] f, float[64] c, float[64,64,1] u"
_STEM = """a = Conv <kernel_shape = [3], pads = [1, 1]> (x, w, b) r = Relu(a)
d = Conv <kernel_shape = [3], pads = [2, 1], strides = [2], dilations = [2]> (r, u)
v = Div(d, k) e = Erf(v) o = Add(e, n) m = Mul(o, d) t = Transpose <perm = [0, 2, 1]> (m)
y = Add(t, c)"""
_STEM_WEIGHTS = (
    "float[64,80,3] w, float[64] b, float[96,64,3] u, float[1] k, float[1] n, float[96] c"
)
_PLAIN = {  # what is written as it was
    "few channels": (
        "y = Conv <kernel_shape = [3]> (x, w)",
        "float[N,64,S] x",
        "float[32,64,3] w",
    ),
    "groups": (
        "y = Conv <kernel_shape = [3], group = 4> (x, w)",
        "float[N,64,S] x",
        "float[64,16,3] w",
    ),
    "pads by a rule": (
        'y = Conv <kernel_shape = [3], auto_pad = "SAME_UPPER"> (x, w)',
        "float[N,64,S] x",
        "float[64,64,3] w",
    ),
    "a length that is known": (
        "y = Conv <kernel_shape = [3]> (x, w)",
        "float[N,64,9] x",
        "float[64,64,3] w",
    ),
    "an image": (
        "y = Conv <kernel_shape = [3, 3]> (x, w)",
        "float[N,64,S,T] x",
        "float[64,64,3,3] w",
    ),
}


def _operators(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


def _assert_same(model: onnx.ModelProto, changed: onnx.ModelProto, shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)
    sessions = [ort.InferenceSession(one.SerializeToString()) for one in (model, changed)]
    expected, found = (session.run(None, {"x": x}) for session in sessions)
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


def test_positions_of_a_conformer_stay_rows_but_for_the_convolution_of_each_channel() -> None:
    model = parsed("float[N,S,64] x", _MODULE, weights=_MODULE_WEIGHTS)
    changed = with_proven_reshapes(model)
    found = [one for one in _operators(changed) if one != "Identity"]
    rows = ["Transpose", "MatMul", "Add", "Split", "Sigmoid", "Mul"]
    image = ["Unsqueeze", "Transpose", "Conv", "Sigmoid", "Mul", "Transpose", "Squeeze"]
    assert found == [*rows, *image, "Transpose", "MatMul"]
    for batch, length in product((1, 2), (1, 2, 3, 7, 16, 31, 64)):
        _assert_same(model, changed, (batch, length, 64))
    shapes = infer_open_tensors(changed, open_session)
    assert shapes["y"].shape == ("N", "S", 64)


def test_two_convolutions_and_what_is_between_are_one_image() -> None:
    model = parsed("float[N,80,S] x", _STEM, weights=_STEM_WEIGHTS)
    changed = with_proven_reshapes(model)
    found = _operators(changed)
    assert found.count("Unsqueeze") == found.count("Squeeze") == 1
    assert found.index("Unsqueeze") < found.index("Relu") < found.index("Mul")
    for length in (2, 3, 16, 17, 61):
        _assert_same(model, changed, (2, 80, length))
    shapes = infer_open_tensors(changed, open_session)
    assert shapes["y"].shape == ("N", "(S)//2", 96)


@pytest.mark.parametrize("name", ["e", "h", "d", "m", "l"])
def test_what_others_read_has_the_shape_it_had(name: str) -> None:
    model = parsed("float[N,S,64] x", _MODULE, weights=_MODULE_WEIGHTS)
    model.graph.output.append(onnx.ValueInfoProto(name=name))
    model.graph.output[-1].type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    _assert_same(model, with_proven_reshapes(model), (2, 9, 64))


def test_versions_whose_squeezes_read_no_axes_are_left_alone() -> None:
    model = parsed("float[N,80,S] x", _STEM, weights=_STEM_WEIGHTS, opset=12)
    assert "Unsqueeze" not in _operators(with_proven_reshapes(model))


@pytest.mark.parametrize("name", _PLAIN)
def test_what_gains_nothing_stays_as_it_is(name: str) -> None:
    body, inputs, weights = _PLAIN[name]
    model = parsed(inputs, body, weights=weights)
    assert _operators(with_proven_reshapes(model)) == ["Conv"]


def test_special_values_stay_where_they_are() -> None:
    model = parsed("float[N,S,64] x", _MODULE, weights=_MODULE_WEIGHTS)
    changed = with_proven_reshapes(model)
    x = np.random.default_rng(0).standard_normal((1, 40, 64)).astype(np.float32)
    x[0, 5, 3], x[0, 30, 7], x[0, 20, 1] = np.nan, np.inf, -0.0
    expected, found = (
        ort.InferenceSession(one.SerializeToString()).run(None, {"x": x})[0]
        for one in (model, changed)
    )
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
