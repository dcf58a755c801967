"""Each action on a small model it is for, and on one it is not for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from support.contracts.small_models import SmallModel
from support.engine.fakes import make_target

from aoe.advice.actions import ACTIONS
from aoe.advice.proposals import Proposal
from aoe.device.registry import default_device
from aoe.graph.model_graph import ModelGraph
from aoe.graph.rewrites.preparation import prepared
from aoe.graph.weights import settle
from aoe.ort.inputs import ModelInputs
from aoe.ort.static_shapes import infer_tensors
from benchmarks.planted_models import PLANTED

Array = np.ndarray[Any, Any]
_BLOCK = 16


def _proposals(model: onnx.ModelProto, **target: Any) -> dict[str, Proposal]:
    proto = prepared(model)
    graph = ModelGraph(proto, infer_tensors(proto, default_device().open_session), block=_BLOCK)
    machine = make_target(**target)
    found = [one for action in ACTIONS for one in action.propose(graph, machine)]
    return {one.action: one for one in found}


def _results(model: onnx.ModelProto) -> list[Array]:
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return [np.asarray(item) for item in session.run(None, ModelInputs(seed=3).first(session))]


def _types(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


def _widths(model: onnx.ModelProto) -> list[tuple[int, ...]]:
    weights = {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}
    return [weights[node.input[1]][:2] for node in model.graph.node if node.op_type == "Conv"]


# ---- channels ----


def test_channels_are_filled_with_zeros_and_results_stay() -> None:
    small = SmallModel()
    x = small.conv(small.input(1, 16, 8, 8), 16, 28, 3)
    x = small.silu(small.batch_norm(x, 28))
    x = small.conv(x, 28, 28, 3, group=28)
    model = small.model(small.conv(x, 28, 16))
    proposal = _proposals(model)["channels-to-a-block"]
    assert proposal.needs_retraining
    assert proposal.op_names == ("Conv_0",)
    assert _widths(proposal.edited) == [(32, 16), (32, 1), (16, 32)]
    np.testing.assert_allclose(_results(proposal.edited)[0], _results(model)[0], atol=1e-5)


def test_convolutions_without_a_bias_may_say_so_by_an_empty_name() -> None:
    small = SmallModel()
    x = small.conv(small.input(1, 16, 8, 8), 16, 28)
    x = small.conv(x, 28, 28, 3, group=28)
    model = small.model(small.conv(x, 28, 16))
    for node in (node for node in model.graph.node if node.op_type == "Conv"):
        node.input[2:] = [""]
    proposal = _proposals(model)["channels-to-a-block"]
    assert _widths(proposal.edited) == [(32, 16), (32, 1), (16, 32)]
    np.testing.assert_allclose(_results(proposal.edited)[0], _results(model)[0], atol=1e-5)


def test_channels_near_the_block_below_are_cut() -> None:
    small = SmallModel()
    x = small.op("Relu", small.conv(small.input(1, 16, 8, 8), 16, 20))
    model = small.model(small.conv(x, 20, 16))
    proposal = _proposals(model)["channels-to-a-block"]
    assert _widths(proposal.edited) == [(16, 16), (16, 16)]
    assert _results(proposal.edited)[0].shape == (1, 16, 8, 8)


def test_convolutions_behind_each_other_change_together() -> None:
    small = SmallModel()
    x = small.conv(small.input(1, 16, 8, 8), 16, 30)
    x = small.conv(small.op("Relu", x), 30, 30)
    model = small.model(small.conv(small.op("Relu", x), 30, 16))
    proposal = _proposals(model)["channels-to-a-block"]
    assert _widths(proposal.edited) == [(32, 16), (32, 32), (16, 32)]
    np.testing.assert_allclose(_results(proposal.edited)[0], _results(model)[0], atol=1e-5)


@pytest.mark.parametrize("reader", ["result", "softmax", "other"])
def test_channels_somebody_else_counts_on_stay(reader: str) -> None:
    small = SmallModel()
    x = small.input(1, 16, 8, 8)
    made = small.conv(x, 16, 28)
    if reader == "softmax":
        made = small.conv(small.op("Softmax", made, axis=1), 28, 16)
    if reader == "other":
        made = small.conv(small.op("Add", made, small.positive(1, 28, 1, 1)), 28, 16)
    assert "channels-to-a-block" not in _proposals(small.model(made))


# ---- activations, resizing, powers ----


def test_smooth_activations_become_cheap_ones() -> None:
    small = SmallModel()
    x = small.silu(small.input(1, 16, 8, 8))
    model = small.model(small.op("Mul", x, small.op("Tanh", small.op("Softplus", x))))
    found = _proposals(model)
    assert _types(found["activation-relu"].edited) == ["Relu", "Relu"]
    assert _types(found["activation-hard-swish"].edited) == ["HardSigmoid", "Mul"] * 2
    assert found["activation-relu"].needs_retraining
    assert np.all(_results(found["activation-relu"].edited)[0] >= 0)


def _resized(scale: float) -> onnx.ModelProto:
    small = SmallModel()
    scales = small.constant(np.array([1, 1, scale, scale], np.float32))
    return small.model(small.op("Resize", small.input(1, 16, 8, 8), "", scales, mode="linear"))


def test_resizing_by_almost_two_becomes_resizing_by_two() -> None:
    proposal = _proposals(_resized(1.95))["integer-resize"]
    assert proposal.needs_retraining
    assert _results(proposal.edited)[0].shape == (1, 16, 16, 16)


def test_sizes_are_rounded_as_ratios_are() -> None:
    small = SmallModel()
    sizes = small.constant([1, 16, 31, 31])
    model = small.model(small.op("Resize", small.input(1, 16, 16, 16), "", "", sizes))
    assert _results(_proposals(model)["integer-resize"].edited)[0].shape == (1, 16, 32, 32)


def _aligned(before: int, after: int) -> onnx.ModelProto:
    small = SmallModel()
    sizes = small.constant([1, 4, after, after])
    x = small.input(1, 4, before, before)
    mode = {"mode": "linear", "coordinate_transformation_mode": "align_corners"}
    return small.model(small.op("Resize", x, "", "", sizes, **mode))


@pytest.mark.parametrize(
    ("extents", "expected", "words"),
    [((175, 350), 351, "175 -> 350 becomes 176 -> 351"), ((40, 78), 79, "40 -> 78 becomes")],
)
def test_gaps_between_elements_decide_where_corners_are_aligned(
    extents: tuple[int, int], expected: int, words: str
) -> None:
    proposal = _proposals(_aligned(*extents))["integer-resize"]
    assert words in proposal.what and proposal.needs_retraining
    assert _results(proposal.edited)[0].shape == (1, 4, expected, expected)


@pytest.mark.parametrize("extents", [(175, 349), (16, 40)])
def test_other_gaps_stay_where_corners_are_aligned(extents: tuple[int, int]) -> None:
    assert "integer-resize" not in _proposals(_aligned(*extents))


@pytest.mark.parametrize("scale", [2.0, 1.5])
def test_other_ratios_stay(scale: float) -> None:
    assert "integer-resize" not in _proposals(_resized(scale))


def test_powers_become_products_and_nothing_is_retrained() -> None:
    small = SmallModel()
    model = small.model(small.op("Pow", small.input(4, 64), small.constant(3.0)))
    proposal = _proposals(model)["power-as-product"]
    assert not proposal.needs_retraining
    assert set(_types(proposal.edited)) == {"Mul"}
    np.testing.assert_allclose(_results(proposal.edited)[0], _results(model)[0], rtol=1e-5)


# ---- batches ----


@pytest.mark.parametrize("opset", [9, 17])
def test_batch_is_split_until_its_tensors_fit(opset: int) -> None:
    small = SmallModel(opset=opset)
    x = small.conv(small.input(4, 16, 16, 16), 16, 16, 3)
    model = small.model(small.op("Relu", x))
    size = 4 * 16 * 16 * 16 * 4
    proposal = _proposals(model, l2_bytes=size // 2, core_num=1)["batch-split"]
    assert _types(proposal.edited).count("Conv") == 2
    np.testing.assert_allclose(_results(proposal.edited)[0], _results(model)[0], atol=1e-6)
    assert "batch-split" not in _proposals(model, l2_bytes=size, core_num=1)
    apart = _proposals(model, l2_bytes=1024, core_num=1)["batch-split"]
    assert _types(apart.edited).count("Conv") == 4


def test_without_a_common_batch_nothing_is_split() -> None:
    small = SmallModel()
    x = small.op("ReduceSum", small.input(4, 64), small.constant([0]), keepdims=1)
    assert "batch-split" not in _proposals(small.model(x), l2_bytes=16, core_num=1)


def test_model_of_several_gib_is_not_put_together_from_parts(tmp_path: Path) -> None:
    """Each part would have packed weights of its own."""
    small = SmallModel()
    model = small.model(small.op("MatMul", small.input(4, 16), small.weight(16, 16)))
    assert set(_proposals(model, l2_bytes=16, core_num=1)) == {"larger-batch", "batch-split"}
    (tensor,) = model.graph.initializer
    (tmp_path / "weights").write_bytes(tensor.raw_data)
    settle(tensor, tmp_path / "weights", 0, len(tensor.raw_data))
    assert _proposals(model, l2_bytes=16, core_num=1) == {}


def test_larger_batch_is_compared_with_as_many_calls() -> None:
    small = SmallModel()
    model = small.model(small.op("Relu", small.conv(small.input(2, 16, 8, 8), 16, 16, 3)))
    proposal = _proposals(model)["larger-batch"]
    assert proposal.baseline is not None
    assert "batches of 8 instead of 2" in proposal.what
    assert _types(proposal.edited) == ["Conv", "Relu"]
    assert _types(proposal.baseline).count("Conv") == 4
    (edited,), (calls,) = _results(proposal.edited), _results(proposal.baseline)
    assert edited.shape == (8, 16, 8, 8)
    np.testing.assert_allclose(edited, calls, atol=1e-6)


# ---- constants ----


def test_what_never_changes_is_computed_once() -> None:
    model = PLANTED["constant"].build()
    proposal = _proposals(model)["constants-once"]
    assert not proposal.needs_retraining
    assert _types(proposal.edited) == ["Add", "Relu"]
    np.testing.assert_array_equal(_results(proposal.edited)[0], _results(model)[0])


def test_constant_that_is_a_result_and_what_is_drawn_stay() -> None:
    small = SmallModel()
    twice = small.op("Mul", small.constant(2.0), small.constant(3.0))
    drawn = small.op("RandomNormal", shape=[4])
    result = small.op("Add", small.input(4), drawn)
    assert "constants-once" not in _proposals(small.model(result, twice))


def test_constants_of_a_constant_that_is_a_result_are_computed_once() -> None:
    small = SmallModel()
    result = small.op("Mul", small.constant(2.0), small.constant(3.0))
    read = small.op("Exp", small.op("Add", result, small.constant(1.0)))
    model = small.model(small.op("Add", small.input(4), read), result)
    proposal = _proposals(model)["constants-once"]
    assert sorted(_types(proposal.edited)) == ["Add", "Mul"]
    for one, other in zip(_results(proposal.edited), _results(model), strict=True):
        np.testing.assert_array_equal(one, other)


# ---- normalisations, opsets ----


def test_layer_norms_lose_their_mean() -> None:
    small = SmallModel()
    x = small.input(4, 64)
    model = small.model(small.op("LayerNormalization", x, small.positive(64), axis=-1))
    proposal = _proposals(model)["normalization-rms"]
    assert proposal.needs_retraining
    assert _types(proposal.edited) == ["SimplifiedLayerNormalization"]
    (value,) = (
        ModelInputs(seed=3)
        .first(ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]))
        .values()
    )
    scale = onnx.numpy_helper.to_array(model.graph.initializer[0])
    expected = value / np.sqrt(np.mean(value**2, axis=-1, keepdims=True) + 1e-5) * scale
    np.testing.assert_allclose(_results(proposal.edited)[0], expected, rtol=1e-4)


def test_channels_are_normalised_by_constants() -> None:
    small = SmallModel()
    scale, bias = small.positive(16), small.weight(16)
    x = small.conv(small.input(1, 16, 8, 8), 16, 16)
    model = small.model(small.op("InstanceNormalization", x, scale, bias))
    proposal = _proposals(model)["normalization-batch"]
    assert proposal.needs_retraining
    assert proposal.op_names == ("InstanceNormalization_1",)
    assert _types(proposal.edited) == ["Conv", "BatchNormalization"]
    assert _results(proposal.edited)[0].shape == (1, 16, 8, 8)


def test_newer_opset_has_one_operator_for_what_is_spelled_out() -> None:
    model = PLANTED["old-opset"].build()
    proposal = _proposals(model)["newer-opset"]
    assert "opset 17" in proposal.what
    assert "LayerNormalization" in _types(proposal.edited)
    assert set(proposal.op_names) <= {node.name for node in model.graph.node}
    np.testing.assert_allclose(_results(proposal.edited)[0], _results(model)[0], atol=1e-4)


def test_large_weights_come_through_another_opset() -> None:
    small = SmallModel(opset=13)
    x = small.op("MatMul", small.input(4, 128), small.weight(128, 128))
    model = small.model(small.op("MatMul", _layer_norm(small, x), small.weight(128, 128)))
    proposal = _proposals(model)["newer-opset"]
    assert [value.name for value in proposal.edited.graph.input] == ["x0"]
    assert _types(proposal.edited) == ["MatMul", "LayerNormalization", "MatMul"]
    np.testing.assert_allclose(_results(proposal.edited)[0], _results(model)[0], atol=1e-4)


def _layer_norm(small: SmallModel, x: str) -> str:
    distance = small.op("Sub", x, small.op("ReduceMean", x, axes=[-1], keepdims=1))
    square = small.op("Mul", distance, distance)
    variance = small.op("ReduceMean", square, axes=[-1], keepdims=1)
    root = small.op("Sqrt", small.op("Add", variance, small.constant(1e-5)))
    return small.op("Mul", small.op("Div", distance, root), small.positive(128))


def test_sound_model_has_no_proposal_but_a_larger_batch() -> None:
    small = SmallModel()
    x = small.op("Relu", small.conv(small.input(1, 16, 8, 8), 16, 32, 3))
    assert set(_proposals(small.model(small.conv(x, 32, 16, 3)))) == {"larger-batch"}
