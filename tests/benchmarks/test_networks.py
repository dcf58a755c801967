"""The networks of the suite: known without torch, built as published, exported soundly."""

from __future__ import annotations

import ast
import importlib
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from networks.network import Draw, NetworkInput, sample_inputs
from networks.registry import NETWORKS

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks" / "networks"
PUBLISHED = [name for name, network in NETWORKS.items() if network.parameters]


def _functions(file: str) -> set[str]:
    tree = ast.parse((FOLDER / f"{file}.py").read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("name", NETWORKS)
def test_line_of_the_registry_names_a_function(name: str) -> None:
    network = NETWORKS[name]
    file, function = network.builder.split(":")
    assert ("shipped" if network.is_shipped else function) in _functions(file)


def test_titles_are_unique() -> None:
    titles = Counter(network.title for network in NETWORKS.values())
    assert titles.most_common(1)[0][1] == 1


def test_inputs_are_seeded_and_as_described() -> None:
    network = NETWORKS["bert6"]
    inputs = sample_inputs(network, seed=3)
    again = sample_inputs(network, seed=3)
    assert {name: values.shape for name, values in inputs.items()} == {
        "tokens": (1, 128),
        "mask": (1, 128),
    }
    assert all(np.array_equal(inputs[name], again[name]) for name in inputs)
    assert not np.array_equal(inputs["tokens"], sample_inputs(network, seed=4)["tokens"])
    assert inputs["tokens"].min() >= 0 and inputs["tokens"].max() < 30522
    assert inputs["mask"][0, :96].all() and not inputs["mask"][0, 96:].any()


def test_batch_repeats_the_first_dimension_only() -> None:
    network = NETWORKS["resnet18"]
    assert sample_inputs(network, seed=0, batch=4)["image"].shape == (4, 3, 224, 224)


def test_default_draw_is_normal() -> None:
    assert NetworkInput(name="x", shape=(1,)).draw is Draw.NORMAL


@pytest.mark.parametrize("name", PUBLISHED)
def test_network_has_as_many_parameters_as_published(name: str) -> None:
    torch = pytest.importorskip("torch")
    file, function = NETWORKS[name].builder.split(":")
    with torch.device("meta"):
        module = getattr(importlib.import_module(f"networks.{file}"), function)()
    count = sum(parameter.numel() for parameter in module.parameters())
    assert count == NETWORKS[name].parameters


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "operators", "shape"),
    [
        ("espcn", {"Conv": 4, "Relu": 3, "DepthToSpace": 1}, (1, 1, 672, 672)),
        ("lstm_tagger", {"Gather": 1, "LSTM": 2, "MatMul": 1}, (1, 64, 17)),
    ],
)
def test_exported_network_computes_what_torch_does(
    name: str, operators: dict[str, int], shape: tuple[int, ...]
) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    from comparison.preparation import export, run_module
    from comparison.prepared import relative_error
    from networks.building import build_module

    module = build_module(name)
    inputs = sample_inputs(NETWORKS[name], seed=5)
    model = export(module, inputs)
    found = Counter(node.op_type for node in model.graph.node)
    assert {operator: found[operator] for operator in operators} == operators
    (exact,) = run_module(module.double(), inputs)
    assert exact.dtype == np.float64 and exact.shape == shape
    assert 0.05 < np.abs(exact).max() < 100
    assert relative_error(_run(model, inputs), exact) < 1e-5


def test_shipped_network_computes_what_its_file_does() -> None:
    pytest.importorskip("torch")
    from comparison.preparation import run_module
    from comparison.prepared import relative_error
    from networks.building import build_module
    from support.contracts.networks import shipped_network

    inputs = sample_inputs(NETWORKS["light_squeezenet"], seed=5)
    (exact,) = run_module(build_module("light_squeezenet").double(), inputs)
    assert relative_error(_run(shipped_network("squeezenet"), inputs), exact) < 1e-5


def test_scores_of_a_shipped_network_do_not_saturate() -> None:
    pytest.importorskip("torch")
    from comparison.preparation import run_module
    from networks.building import build_module
    from networks.shipped import shipped_model

    inputs = sample_inputs(NETWORKS["light_shufflenet"], seed=5)
    (found,) = run_module(build_module("light_shufflenet"), inputs)
    assert found.sum() == pytest.approx(1, abs=1e-5)
    assert found.max() < 0.9
    assert np.allclose(_run(shipped_model("shufflenet"), inputs), found, atol=1e-6)


def test_statistics_are_those_of_what_arrives() -> None:
    torch = pytest.importorskip("torch")
    from networks.building import calibrate_statistics, draw_weights

    module = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8, affine=False))
    draw_weights(module, seed=1)
    images = torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    calibrate_statistics(module, (images,))
    assert not module[1].training and module[1].momentum == 0.1
    found = module(images).detach()
    torch.testing.assert_close(found.mean((0, 2, 3)), torch.zeros(8), atol=1e-4, rtol=0)
    torch.testing.assert_close(found.var((0, 2, 3)), torch.ones(8), atol=1e-3, rtol=0)


def test_weights_follow_the_seed_alone() -> None:
    torch = pytest.importorskip("torch")
    from networks.building import draw_weights

    drawn = []
    for seed in (1, 1, 2):
        layer = torch.nn.Linear(5, 5)
        draw_weights(layer, seed=seed)
        drawn.append(layer.weight.detach())
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


@pytest.mark.parametrize("kind", ["Conv1d", "BatchNorm2d"])
def test_layer_may_ask_for_small_weights(kind: str) -> None:
    torch = pytest.importorskip("torch")
    from networks.building import draw_weights

    drawn = []
    for gain in (1.0, 0.25):
        layer = torch.nn.Conv1d(4, 4, 3) if kind == "Conv1d" else torch.nn.BatchNorm2d(4)
        layer.gain = gain
        draw_weights(layer, seed=1)
        drawn.append(layer.weight.detach())
    torch.testing.assert_close(drawn[0] * 0.25, drawn[1])


def _run(model: Any, inputs: dict[str, Any]) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return session.run(None, inputs)[0]
