"""Which regions compute rows, whatever their number: proven from the names of open extents."""

from __future__ import annotations

import pytest
from support.engine.open_rows import opened, parsed

from aoe.graph.open_rows import OpenRows, find_open_rows

_EXTENTS = {"N": 3, "S": 5, "M": 5}


def _only(
    inputs: str, body: str, weights: str = "", opset: int = 17, **extents: int
) -> OpenRows | str:
    """Return what is found of the region that makes `y`."""
    model = parsed(inputs, body, weights=weights, opset=opset)
    graph, shapes, parts = opened(model, _EXTENTS | extents)
    found = [region for region in parts.regions if region.output == "y"]
    return find_open_rows(graph, found[0], shapes) if found else "no shape of y is proven"


@pytest.mark.parametrize(
    ("inputs", "body", "weights", "shapes"),
    [
        ("float[N,S,8] x", "y = Exp(x)", "", [(7, 8), (7, 8)]),
        ("float[N,S] x", "y = Exp(x)", "", [(7,), (7,)]),
        ("float[N,S,8] x, float[N,S,8] z", "t = Mul(x, z) y = Sigmoid(t)", "", [(7, 8)] * 3),
        ("float[N,S,8] x", "y = Add(x, b)", "float[8] b", [(7, 8), (8,), (7, 8)]),
        ("float[N,S,8] x", "y = Add(x, b)", "float[1,1,8] b", [(7, 8), (1, 8), (7, 8)]),
        ("float[N,6,8] x", "y = Add(x, b)", "float[6,8] b", [(7, 6, 8), (6, 8), (7, 6, 8)]),
        ("float[N,S,8] x", "y = Softmax <axis = 2> (x)", "", [(7, 8), (7, 8)]),
        ("float[N,6,8] x", "y = Softmax <axis = 1> (x)", "", [(7, 6, 8), (7, 6, 8)]),
        ("float[N,S,8] x", "y = MatMul(x, w)", "float[8,4] w", [(7, 8), (8, 4), (7, 4)]),
        (
            "float[N,8] x",
            "y = Gemm(x, w, b)",
            "float[8,4] w, float[4] b",
            [(7, 8), (8, 4), (4,), (7, 4)],
        ),
        (
            "float[N,S,8] x",
            "y = LayerNormalization <axis = 2> (x, g)",
            "float[8] g",
            [(7, 8), (8,), (7, 8)],
        ),
        ("float[N,S,8] x", "y = ReduceMean <axes = [2], keepdims = 0> (x)", "", [(7, 8), (7,)]),
        ("float[N,S,8] x", "y = Pad(x, i0_0_1_0_0_3)", "", [(7, 8), (7, 12)]),
        ("float[N,S,8] x", "y = Slice(x, i1, i7, i2, i2)", "", [(7, 8), (7, 3)]),
        (
            "float[N,S,8] x, float[N,S,4] z",
            "y = Concat <axis = 2> (x, z)",
            "",
            [(7, 8), (7, 4), (7, 12)],
        ),
        ("float[N,S,8] x", "y = Gather <axis = -1> (x, i2_4)", "", [(7, 8), (7, 2)]),
        (
            "float[N,S,2,8] x",
            "y = Transpose <perm = [0, 1, 3, 2]> (x)",
            "",
            [(7, 2, 8), (7, 8, 2)],
        ),
        (
            "float[N,8,3,3] x",
            "y = DepthToSpace <blocksize = 2> (x)",
            "",
            [(7, 8, 3, 3), (7, 2, 6, 6)],
        ),
        (
            "float[N,S,2,8] x, float[N,S,1,8] c",
            "a, b = Split <axis = 3> (x, i4_4) r = Concat <axis = 3> (b, a) y = Mul(r, c)",
            "",
            [(7, 2, 8), (7, 1, 8), (7, 2, 8)],
        ),
        (
            "float[N,S,8] x",
            "a, b = Split <axis = 2> (x, i4_4) s = Sigmoid(b) y = Mul(a, s)",
            "",
            [(7, 8), (7, 4)],
        ),
    ],
)
def test_open_dimensions_in_front_are_rows(
    inputs: str, body: str, weights: str, shapes: list[tuple[int, ...]]
) -> None:
    found = _only(inputs, body, weights)
    assert isinstance(found, OpenRows)
    workload = found.of(7)
    assert workload is not None
    assert [spec.shape for spec in (*workload.inputs, workload.output)] == shapes


@pytest.mark.parametrize(("axis", "is_found"), [(3, True), (2, True), (-1, True), (1, False)])
def test_softmax_over_all_dimensions_from_its_axis_on_is_one_of_rows(
    axis: int, *, is_found: bool
) -> None:
    found = _only("float[N,S,2,8] x", f"y = Softmax <axis = {axis}> (x)", opset=12)
    assert isinstance(found, OpenRows) == is_found
    default = _only("float[N,S,8] x", "y = Softmax (x)", opset=12)
    assert isinstance(default, str)


def test_rows_are_counted_by_all_leading_dimensions() -> None:
    found = _only("float[N,S,8] x", "y = Exp(x)")
    assert isinstance(found, OpenRows)
    assert (found.open_rank, found.lead, found.open_inputs) == (2, ("N", "S"), (True,))
    assert found.rows({"N": 4, "S": 9}) == 36


@pytest.mark.parametrize(
    ("inputs", "body", "weights"),
    [
        ("float[N,S,8] x", "y = Softmax <axis = 1> (x)", ""),
        ("float[N,S,8] x", "y = ReduceMean <axes = [1]> (x)", ""),
        ("float[N,S,8] x", "y = ReduceMean (x)", ""),
        ("float[N,8,S] x", "y = Softmax <axis = 2> (x)", ""),
        ("float[N,S,8] x", "y = LayerNormalization <axis = 1> (x, g)", "float[5,8] g"),
        ("float[N,8] x", "y = Gemm <transA = 1> (x, w)", "float[3,4] w"),
        ("float[N,S,8] x, float[N,8,4] z", "y = MatMul(x, z)", ""),
        ("float[N,S,8] x, float[S,8] z", "y = Add(x, z)", ""),
        ("float[N,S,8] x, float[N,1,8] z", "y = Add(x, z)", ""),
        ("float[N,S,8] x, float[N,M,8] z", "y = Add(x, z)", ""),
        ("float[N,S,8] x", "y = Transpose <perm = [1, 0, 2]> (x)", ""),
        ("float[N,S,8] x", "y = Transpose <perm = [0, 2, 1]> (x)", ""),
        ("float[N,S,8] x", "y = Gather <axis = 0> (x, i1_2)", ""),
        ("float[N,S,8] x", "y = Slice(x, i0, i5, i1)", ""),  # all of S, where it is 5
        ("float[N,S,8] x", "y = Slice(x, i1, i3)", ""),
        ("float[N,S,8] x", "y = Concat <axis = 1> (x, x)", ""),
        ("float[N,S,8] x", "y = Pad(x, i0_1_0_0_1_0)", ""),
        ("float[N,8,S,4] x", "y = DepthToSpace <blocksize = 2> (x)", ""),
        ("float[N,8,S] x", "a, b = Split <axis = 1> (x, i4_4) y = Mul(a, b)", ""),
    ],
)
def test_what_mixes_rows_or_has_others_is_left_alone(inputs: str, body: str, weights: str) -> None:
    assert isinstance(_only(inputs, body, weights), str)


def test_extents_that_agree_by_chance_prove_nothing() -> None:
    # S and M are both 5 in the shape the graph is looked at
    found = _only("float[N,S,8] x, float[N,M,8] z", "y = Mul(x, z)")
    assert found == "no shape of y is proven"


def test_reshape_keeps_rows_where_its_names_say_so() -> None:
    inputs = "float[N,S,2,16] x, float[N,S,2,8] z, float[N,S,8,2] w"
    body = """a, b = Split <axis = 3> (x, i8_8) m = Shape(z) r = Reshape(a, m)
        t = Transpose <perm = [0, 1, 3, 2]> (r) s = Shape(w) u = Reshape(t, s) y = Add(u, w)"""
    assert isinstance(_only(inputs, body, N=5), OpenRows)
    turned = inputs.replace("[N,S,2,8] z", "[S,N,2,8] z")  # N and S are 5 by chance
    assert _only(turned, body, N=5) == "Reshape does not compute each row for itself"


def test_fixed_shapes_have_no_rows() -> None:
    found = _only("float[3,5,8] x", "y = Exp(x)")
    assert found == "no open extent of the result is proven"
