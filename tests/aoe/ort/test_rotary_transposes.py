"""Rotary embeddings as exporters write them are computed in front of the Transpose of the heads."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from support.engine.open_rows import opened, parsed

from aoe.graph.open_rows import OpenRows, find_open_rows
from aoe.ort.open_shapes import with_proven_reshapes

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


@pytest.mark.parametrize(
    ("inputs", "body"),
    [
        (_INPUTS, f"{_TURN} {_SLICES} {_REST} w = Add(u, v) z = Softmax(t) y = Add(w, z)"),
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
