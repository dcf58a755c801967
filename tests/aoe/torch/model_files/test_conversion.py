"""Modules made of model files: whose parameters they have, and what is refused."""

from __future__ import annotations

import sys

import pytest

torch = pytest.importorskip("torch")

import numpy as np  # noqa: E402
import onnx  # noqa: E402
import torch.distributed as dist  # noqa: E402
from onnx import helper, numpy_helper  # noqa: E402
from support.ddp.hashes import hash_in_ddp  # noqa: E402
from support.ddp.loss_models import WIDTHS, make_loss_model, skip_without_converter  # noqa: E402
from support.engine.models import make_model  # noqa: E402

from aoe.entry.outputs import cut_at_outputs  # noqa: E402
from aoe.errors import EngineNotInstalledError, ModelImportError  # noqa: E402
from aoe.torch.model_files.conversion import TrainableModel, is_of_module, trainable_model  # noqa: E402

NAMES = ["first.weight", "first.bias", "last.weight", "last.scale"]


class ScriptModel(torch.nn.Module):
    """The model as a training script writes it."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(*WIDTHS[:2])
        self.last = torch.nn.Module()
        self.last.weight = torch.nn.Parameter(torch.zeros(WIDTHS[1:]))
        self.last.scale = torch.nn.Parameter(torch.zeros(WIDTHS[2]))


def converted(proto: onnx.ModelProto, output: str = "loss") -> TrainableModel:
    """Return the module of a model, cut off at an output."""
    skip_without_converter()
    cut_at_outputs(proto, (output,))
    return trainable_model(proto, "net", "--model=net.onnx")


@pytest.mark.parametrize("opset", [13, 17, 20])
def test_parameters_are_those_of_the_script_in_its_order(opset: int) -> None:
    found = converted(make_loss_model(opset=opset))
    own = [(name, p.shape) for name, p in ScriptModel().named_parameters()]
    assert [name for name, _ in own] == NAMES and not found.caveat
    assert [(name, p.shape) for name, p in found.module.named_parameters()] == own


def test_modelhash_is_that_of_the_training_script() -> None:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        own = hash_in_ddp(ScriptModel())
        assert hash_in_ddp(converted(make_loss_model()).module) == own
    finally:
        dist.destroy_process_group()


def test_loss_and_gradients_are_those_of_the_same_computation_in_torch() -> None:
    found = converted(make_loss_model())
    given, labels = torch.randn(5, WIDTHS[0]), torch.tensor([0, 1, 2, 3, 0])
    loss = found.module(given, labels)
    loss.backward()
    own = {name: p.detach().clone() for name, p in found.module.named_parameters()}
    for value in own.values():
        value.requires_grad_()
    hidden = torch.relu(given @ own[NAMES[0]].T + own[NAMES[1]])
    scores = hidden @ own[NAMES[2]] * own[NAMES[3]]
    expected = torch.nn.functional.cross_entropy(scores, labels)
    expected.backward()
    torch.testing.assert_close(loss, expected)
    for name, parameter in found.module.named_parameters():
        torch.testing.assert_close(parameter.grad, own[name].grad)


def test_mean_of_an_output_that_is_no_scalar_is_the_loss() -> None:
    found = converted(make_loss_model(), "scores")
    assert found.module(torch.randn(3, WIDTHS[0])).ndim == 0


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (("val_3", "last"), "val_3.weight is no parameter"),
        (("onnx::Gemm_7", "last"), "onnx::Gemm_7.weight is no parameter"),
    ],
)
def test_names_an_exporter_made_up_are_a_doubt(names: tuple[str, str], words: str) -> None:
    assert words in converted(make_loss_model(names=names)).caveat


def test_weight_that_is_read_twice_is_one_parameter_and_a_doubt() -> None:
    proto = make_loss_model()
    proto.graph.node[4].input[0] = "more"
    proto.graph.node.insert(4, helper.make_node("Add", ["scores", "last.scale"], ["more"]))
    found = converted(proto)
    assert "last.scale is read in several places" in found.caveat
    assert [name for name, _ in found.module.named_parameters()] == NAMES


def test_batch_normalisation_an_exporter_folded_is_a_doubt() -> None:
    proto = make_loss_model()
    proto.graph.initializer[1].name = proto.graph.node[0].input[2] = "first.weight_bias"
    assert "first.weight_bias is no parameter" in converted(proto).caveat


def test_number_an_exporter_named_is_a_constant() -> None:
    proto = make_loss_model()
    proto.graph.initializer.append(numpy_helper.from_array(torch.ones(1).numpy(), "val_7"))
    proto.graph.node[4].input[0] = "more"
    proto.graph.node.insert(4, helper.make_node("Mul", ["scores", "val_7"], ["more"]))
    found = converted(proto)
    assert not found.caveat
    assert [name for name, _ in found.module.named_parameters()] == NAMES


def test_dropout_with_a_mask_keeps_the_batch() -> None:
    proto = make_loss_model()
    ratio, training = torch.tensor(0.0).numpy(), torch.tensor(True).numpy()
    proto.graph.initializer.append(numpy_helper.from_array(ratio, "ratio"))
    proto.graph.initializer.append(numpy_helper.from_array(training, "training"))
    node = helper.make_node("Dropout", ["scores", "ratio", "training"], ["kept", "mask"])
    proto.graph.node.insert(4, node)
    proto.graph.node[5].input[0] = "kept"
    given = torch.randn(3, WIDTHS[0]), torch.tensor([0, 1, 2])
    plain = converted(make_loss_model()).module.train()(*given)
    torch.testing.assert_close(converted(proto).module.train()(*given), plain)


def test_batch_normalisation_of_a_training_export_is_trained() -> None:
    proto = make_loss_model()
    ones = torch.ones(WIDTHS[2]).numpy()
    for name in ("norm.weight", "norm.bias", "norm.mean", "norm.var"):
        proto.graph.initializer.append(numpy_helper.from_array(ones, name))
    inputs = ["scores", *(one.name for one in proto.graph.initializer[-4:])]
    outputs = ["normal", "new_mean", "new_var"]
    node = helper.make_node("BatchNormalization", inputs, outputs, training_mode=1)
    proto.graph.node.insert(4, node)
    proto.graph.node[5].input[0] = "normal"
    found = converted(proto)
    named = dict(found.module.named_parameters())
    assert [name for name in named if name.startswith("norm")] == ["norm.weight", "norm.bias"]


def test_model_without_weights_is_refused() -> None:
    proto = make_loss_model()
    del proto.graph.initializer[:]
    with pytest.raises(ModelImportError, match="nothing in it can be trained"):
        trainable_model(proto, "net", "--model=net.onnx")


def test_missing_converter_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx2torch", None)
    with pytest.raises(EngineNotInstalledError, match=r"onnx2torch, which is not installed") as got:
        trainable_model(make_loss_model(), "net", "--model=net.onnx")
    assert "pip install 'aoebank[gdat]'" in str(got.value.hint)


def test_operator_the_converter_does_not_know_is_named() -> None:
    proto = make_loss_model()
    proto.graph.node[1].op_type = "Mish"
    proto.opset_import[0].version = 18
    with pytest.raises(ModelImportError, match=r"Mish|older opset"):
        converted(proto)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("layers.0.weight", True), ("scale", True), ("onnx::MatMul_12", False), ("val_3", False)],
)
def test_names_of_modules(name: str, expected: bool) -> None:
    assert is_of_module(name) is expected


def test_extents_that_the_model_computes_are_known_to_its_norms() -> None:
    nodes = [
        helper.make_node("Shape", ["input"], ["extents"], start=0, end=1),
        helper.make_node("Concat", ["extents", "rest"], ["shape"], axis=0),
        helper.make_node("Reshape", ["input", "shape"], ["a"]),
        helper.make_node("LayerNormalization", ["a", "norm.weight", "norm.bias"], ["b"], axis=-1),
        helper.make_node("ReduceMean", ["b"], ["loss"], keepdims=0),
    ]
    weights = {
        "rest": np.array([2, 4], np.int64),
        "norm.weight": np.ones(4, np.float32),
        "norm.bias": np.zeros(4, np.float32),
    }
    found = converted(make_model(nodes, {"input": [5, 8]}, {"loss": []}, weights=weights))
    found.module(torch.randn(5, 8)).backward()
    assert [(name, *p.shape) for name, p in found.module.named_parameters()] == [
        ("norm.weight", 4),
        ("norm.bias", 4),
    ]
