"""Fusion limits of a model, and what runs here instead."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper
from support.engine.models import make_model
from support.engine.profiles import make_operator_profile

from aoe.graph.fusing import StopReason
from aoe.profiling.fusion import fusion_limits


def _residual() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], "conv"),
        helper.make_node("Add", ["a", "x"], ["b"], "add"),
        helper.make_node("Relu", ["b"], ["y"], "relu"),
    ]
    weights = {"w": np.zeros((4, 4, 1, 1), np.float32)}
    return make_model(nodes, {"x": (1, 4, 8, 8)}, ["y"], weights=weights)


def test_limit_is_named_with_the_node_it_stopped_at_and_what_runs_here() -> None:
    together = make_operator_profile(
        "c", op_names=("conv", "add", "relu"), op_types=("Conv", "Add", "Relu"), median_us=7.0
    )
    first, second = fusion_limits(_residual(), [together])
    assert (first.fusion_class, first.op_names) == ("conv_elementwise", ("conv",))
    assert (first.stop, first.stopped_at, first.stopped_type) == (StopReason.INPUTS, "add", "Add")
    assert (first.without_limits, first.runs_as, first.goes_on_here) == (3, 1, True)
    assert first.median_us == 7.0
    assert (second.fusion_class, second.op_names) == ("elementwise_chain", ("add", "relu"))


def test_operators_that_run_apart_are_counted() -> None:
    apart = [make_operator_profile(name, median_us=2.0) for name in ("conv", "add", "relu")]
    first, second = fusion_limits(_residual(), apart)
    assert (first.runs_as, first.goes_on_here) == (1, False)
    assert (second.runs_as, second.median_us) == (2, 4.0)


def test_model_that_was_not_run_has_its_limits_all_the_same() -> None:
    first, _ = fusion_limits(_residual(), [])
    assert (first.runs_as, first.goes_on_here, first.median_us) == (0, False, 0.0)
