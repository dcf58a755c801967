"""A subgraph alone computes what it does in the whole, and can be put back."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper
from support.contracts.small_models import SmallModel
from support.engine.subgraphs import c2f_network, graph_of, random_network, results_of

from aoe.graph.model_graph import ModelGraph
from aoe.graph.subgraphs.identity import graph_id, normalized_text
from aoe.graph.subgraphs.partition import partition
from aoe.graph.subgraphs.segment import Segment, cut_out
from aoe.graph.subgraphs.splicing import Splice, splice


def segments_of(graph: ModelGraph) -> list[Segment]:
    found = [cut_out(graph, run) for run in partition(graph, ())]
    assert all(isinstance(segment, Segment) for segment in found), found
    return [segment for segment in found if isinstance(segment, Segment)]


@pytest.mark.parametrize("seed", range(8))
def test_model_put_together_from_its_pieces_is_the_same(seed: int) -> None:
    proto = random_network(seed)
    graph = graph_of(proto)
    segments = segments_of(graph)
    again = splice(graph, [Splice(segment=segment, rewrite=segment.proto) for segment in segments])
    onnx.checker.check_model(again)
    for one, other in zip(results_of(proto), results_of(again), strict=True):
        np.testing.assert_array_equal(one, other)


def test_pieces_are_sound_models_with_the_shapes_of_the_whole() -> None:
    for segment in segments_of(graph_of(c2f_network(2))):
        onnx.checker.check_model(segment.proto)
        assert [value.name for value in segment.proto.graph.input] == list(segment.inputs)
        results = results_of(segment.proto)
        for name, result in zip(segment.outputs, results, strict=True):
            info = segment.graph.find_info(name)
            assert info is not None and info.shape == result.shape


def test_equal_blocks_are_one_whatever_they_are_called() -> None:
    segments = segments_of(graph_of(c2f_network(4)))
    ids = [graph_id(segment) for segment in segments]
    assert len(ids) == 5 and len(set(ids[1:4])) == 1 and len(set(ids)) == 3
    assert all(identity.isdigit() and int(identity) < 2**64 for identity in ids)
    proto = c2f_network(4)
    for node in proto.graph.node:
        node.name = f"other/{node.name}"
    again = [graph_id(segment) for segment in segments_of(graph_of(proto))]
    assert again == ids


def test_shapes_and_attributes_make_another_subgraph_and_weights_do_not() -> None:
    (first, *_) = segments_of(graph_of(c2f_network(1)))
    assert normalized_text(first) != normalized_text(
        segments_of(graph_of(c2f_network(1, extent=12)))[0]
    )
    proto = c2f_network(1)
    proto.graph.initializer[0].raw_data = bytes(len(proto.graph.initializer[0].raw_data))
    assert graph_id(segments_of(graph_of(proto))[0]) == graph_id(first)
    for attribute in proto.graph.node[0].attribute:
        if attribute.name == "pads":
            attribute.CopyFrom(helper.make_attribute("pads", [1, 1, 1, 1]))
            assert graph_id(segments_of(graph_of(proto))[0]) == graph_id(first)
            attribute.CopyFrom(helper.make_attribute("pads", [2, 2, 0, 0]))
    assert graph_id(segments_of(graph_of(proto))[0]) != graph_id(first)


def test_scales_make_another_subgraph() -> None:
    ids = set[str]()
    for scale in (2, 3):
        model = SmallModel()
        scales = model.constant(np.array([1, 1, scale, scale], np.float32))
        proto = model.model(model.op("Resize", model.input(1, 4, 8, 8), "", scales))
        ids.update(map(graph_id, segments_of(graph_of(proto))))
    assert len(ids) == 2


def test_identity_is_stable_over_versions() -> None:
    """Banks outlive versions: another number here makes every record of every user a miss."""
    segments = segments_of(graph_of(c2f_network(1)))
    assert [graph_id(segment) for segment in segments] == STABLE


STABLE = ["7568064421049265847", "11066511155269892991"]


def test_tensor_without_a_proven_shape_is_no_border() -> None:
    graph = graph_of(c2f_network(1))
    bare = ModelGraph(graph.proto, {}, block=0)
    found = cut_out(bare, range(3))
    assert isinstance(found, str) and "may differ from run to run" in found


def test_piece_nobody_reads_is_none() -> None:
    proto = c2f_network(1)
    proto.graph.node.append(helper.make_node("Relu", [proto.graph.output[0].name], ["lost"]))
    graph = graph_of(proto)
    assert cut_out(graph, [len(graph.nodes) - 1]) == "nobody reads its results"
