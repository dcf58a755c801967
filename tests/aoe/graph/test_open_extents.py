"""Attention whose extents are open: proven by names, and read where exporters' moves read it."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from support.engine.open_rows import attention_of, opened, parsed

from aoe.graph.open_extents import OpenRegion, find_closed_region, find_open_region
from aoe.graph.stored_layouts import StoredDimension

_LARGEST = {"N": 3, "S": 40, "K": 50, "L": 50, "D": 8}
_PLAIN = "s = MatMul(q, k) p = Softmax(s) y = MatMul(p, v)"
_JOINED = """qs = Reshape(q, heads) ks = Reshape(k, heads) vs = Reshape(v, heads)
qt = Transpose <perm = [0, 2, 1, 3]> (qs) kt = Transpose <perm = [0, 2, 3, 1]> (ks)
vt = Transpose <perm = [0, 2, 1, 3]> (vs) s = MatMul(qt, kt) p = Softmax(s) r = MatMul(p, vt)
m = Transpose <perm = [0, 2, 1, 3]> (r) y = Reshape(m, all)"""
_ROWS_OF_24 = "float[N,S,24] q, float[N,S,24] k, float[N,S,24] v"


def _model(inputs: str, body: str) -> onnx.ModelProto:
    model = parsed(inputs, body)
    for name, shape in (("heads", [0, 0, 3, 8]), ("all", [0, 0, 24])):
        model.graph.initializer.append(numpy_helper.from_array(np.array(shape), name))
    return model


def _found(model: onnx.ModelProto) -> OpenRegion | str:
    graph, shapes, parts = opened(model, _LARGEST)
    return find_open_region(graph, attention_of(graph, parts), shapes)


def _region(inputs: str, body: str) -> OpenRegion:
    found = _found(_model(inputs, body))
    assert isinstance(found, OpenRegion), found
    return found


def test_blocks_are_workloads_of_one_batch_and_so_many_queries() -> None:
    found = _region("float[N,3,S,8] q, float[N,3,8,S] k, float[N,3,S,20] v", _PLAIN)
    assert found.block_rows(40) == (16, 4, 3, 2, 1)
    blocks = {rows: found.of(rows) for rows in (1, 16)}
    shapes = {rows: [one.shape for one in made.inputs] for rows, made in blocks.items() if made}
    assert shapes[16] == [(1, 3, 16, 8), (1, 3, 8, 16), (1, 3, 16, 20)]
    assert shapes[1][1] == (1, 3, 8, 4)  # attention to a single key is none
    assert found.rows({"N": 2, "S": 33}) == 33


@pytest.mark.parametrize(
    ("inputs", "weights"),
    [
        ("float[N,3,8,K] k, float[N,3,K,20] v", "float[1,3,16,8] q"),
        ("float[N,3,S,8] q", "float[1,3,8,16] k, float[1,3,16,20] v"),
    ],
)
def test_queries_or_keys_may_be_constants(inputs: str, weights: str) -> None:
    found = _found(parsed(inputs, _PLAIN, weights=weights))
    assert isinstance(found, OpenRegion), found
    assert found.region.inputs == ("q", "k", "v") and found.of(found.block_rows(40)[0]) is not None


def test_keys_of_a_cache_have_an_extent_of_their_own() -> None:
    found = _region("float[N,3,S,8] q, float[N,3,8,K] k, float[N,3,K,20] v", _PLAIN)
    made = found.of(5)
    assert made is not None
    assert [one.shape for one in made.inputs] == [(1, 3, 5, 8), (1, 3, 8, 50), (1, 3, 50, 20)]


def test_single_query_of_a_growing_cache_has_one_block() -> None:
    found = _region("float[1,3,1,8] q, float[1,3,8,K] k, float[1,3,K,20] v", _PLAIN)
    assert found.block_rows(1) == (1,)
    assert found.follows_from({"K": 7}) and not found.follows_from({"N": 7})


@pytest.mark.parametrize(
    ("inputs", "told"),
    [
        ("float[N,3,S,8] q, float[N,3,8,K] k, float[N,3,L,20] v", "K and L"),
        ("float[N,3,S,D] q, float[N,3,D,S] k, float[N,3,S,20] v", "D is open"),
        ("float[2,3,40,8] q, float[2,3,8,40] k, float[2,3,40,20] v", "no open extent"),
    ],
)
def test_extents_that_are_not_proven_are_left_alone(inputs: str, told: str) -> None:
    found = _found(_model(inputs, _PLAIN))
    assert isinstance(found, str)
    assert told in found


def test_heads_are_read_and_written_where_they_lie() -> None:
    found = _region(_ROWS_OF_24, _JOINED)
    assert found.region.inputs == ("q", "k", "v")
    assert found.region.output == "y"
    assert found.stored == (("N", "S", 24),) * 4
    heads = (StoredDimension(2, 3, 8), StoredDimension(1), StoredDimension(2, 8))
    assert found.layouts == ((StoredDimension(0), *heads),) * 4
    first, *_ = found.region.workload.operations
    assert first.attributes["transB"] == 1  # keys are read by rows, which lie side by side


def test_queries_by_columns_are_read_behind_their_transpose() -> None:
    body = f"q = Transpose <perm = [0, 2, 3, 1]> (x) {_PLAIN}"
    found = _region("float[N,8,3,S] x, float[N,3,8,S] k, float[N,3,S,20] v", body)
    assert found.region.inputs == ("q", "k", "v")
    assert found.layouts[0] == tuple(map(StoredDimension, range(4)))


def test_results_others_read_are_made_as_they_were() -> None:
    model = _model(_ROWS_OF_24, _JOINED)
    model.graph.output.append(helper.make_tensor_value_info("m", onnx.TensorProto.FLOAT, None))
    found = _found(model)
    assert isinstance(found, OpenRegion)
    assert found.region.output == "m"
    assert found.stored[-1] == ("N", "S", 3, 8)


def test_cached_keys_are_joined_to_a_sum_of_extents() -> None:
    body = f"k = Concat <axis = 3> (kp, kn) v = Concat <axis = 2> (vp, vn) {_PLAIN}"
    kept = "float[N,3,8,P] kp, float[N,3,P,20] vp"
    added = "float[N,3,S,8] q, float[N,3,8,S] kn, float[N,3,S,20] vn"
    graph, shapes, parts = opened(_model(f"{kept}, {added}", body), {"N": 2, "S": 7, "P": 30})
    (region,) = (one for one in parts.regions if one.workload.op_type == "attention")
    found = find_open_region(graph, region, shapes)
    assert isinstance(found, OpenRegion), found
    assert found.shapes[1] == ("N", 3, 8, "P + S")
    assert found.follows_from({"N": 1, "S": 2, "P": 3}) and not found.follows_from({"S": 2})


def test_regions_of_one_shape_in_every_run_are_told_from_open_ones() -> None:
    body = "t = MatMul(x, w) u = Relu(t) v = Softmax(past) y = Concat <axis = 1> (u, v)"
    model = parsed("float[1,1,24] x, float[1,P,24] past", body, weights="float[24,24] w")
    _, shapes, parts = opened(model, {"P": 30})
    closed = {one.output: find_closed_region(one, shapes) for one in parts.regions}
    assert closed["u"] is not None
    assert closed["u"].of(1) == closed["u"].region.workload
    assert closed["v"] is None


@pytest.mark.parametrize(
    ("heads", "mask", "rows"),
    [
        ("3", "N,1,1,S", (16, 4, 1)),
        ("3", "N,1,1,1", (16, 4)),
        ("K", "N,1,1,1", ()),
        ("K", "1,1,1,1", (16, 4, 1)),
        ("K", "N,1,S,1", (16, 4, 1)),
    ],
)
def test_operands_of_one_element_for_an_open_innermost_loop_are_left_alone(
    heads: str, mask: str, rows: tuple[int, ...]
) -> None:
    inputs = f"float[N,{heads},S,8] q, float[N,{heads},8,S] k, float[N,{heads},S,20] v"
    body = "s = MatMul(q, k) t = Mul(s, m) p = Softmax(t) y = MatMul(p, v)"
    found = _region(f"{inputs}, float[{mask}] m", body)
    assert tuple(one for one in (16, 4, 1) if found.of(one) is not None) == rows
