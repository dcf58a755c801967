"""Copies share the weights of the model they are copies of."""

from __future__ import annotations

import pytest
from support.engine.fakes import make_target

from aoe.advice.actions.registry import ACTIONS
from aoe.advice.actions.weights import with_shared, without_shared
from aoe.device.registry import default_device
from aoe.graph.model_graph import ModelGraph
from aoe.graph.rewrites.preparation import prepared
from aoe.ort.static_shapes import infer_tensors
from benchmarks.planted_models import PLANTED


@pytest.mark.parametrize("name", ["odd-channels", "instance-norm", "constant", "single-rows"])
def test_copy_is_the_same_again_with_the_weights_it_shared(name: str) -> None:
    model = prepared(PLANTED[name].build())
    graph = ModelGraph(model, infer_tensors(model, default_device().open_session), block=16)
    proposals = [one for action in ACTIONS for one in action.propose(graph, make_target())]
    assert proposals
    for proposal in proposals:
        light = without_shared(proposal, graph.initializers)
        for whole, less in (
            (proposal.edited, light.edited),
            (proposal.baseline, light.baseline),
        ):
            if whole is None or less is None:
                assert whole is less
                continue
            restored = with_shared(less, graph.initializers)
            assert list(restored.graph.node) == list(whole.graph.node)
            constants = {tensor.name: tensor for tensor in restored.graph.initializer}
            assert constants == {tensor.name: tensor for tensor in whole.graph.initializer}


def test_copy_lacks_what_it_shares() -> None:
    model = prepared(PLANTED["single-rows"].build())
    graph = ModelGraph(model, {}, block=16)
    (proposal,) = [
        one
        for action in ACTIONS
        for one in action.propose(graph, make_target())
        if one.action == "larger-batch"
    ]
    light = without_shared(proposal, graph.initializers)
    assert not light.edited.graph.initializer
    assert light.edited.ByteSize() < model.ByteSize() / 100
