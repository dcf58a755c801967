"""Losses of networks that a script trains with kernels are eager's; the table of the benchmark."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")

import training_losses  # noqa: E402
from networks.published import PUBLISHED  # noqa: E402
from support.training_networks import NETWORKS, train_beside_eager  # noqa: E402
from training import difference, is_passed, table  # noqa: E402

_RECURRENT = ("lstm", "gru")
"""Dynamo leaves modules with nn.RNN and its like to PyTorch (torch 2.13)."""


def _check(name: str, steps: int) -> None:
    found = train_beside_eager(name, steps)
    assert bool(found.graphs) is (name not in _RECURRENT) and [
        one.fused for one in found.optimizers
    ] == [1]
    # rounding grows from step to step, as it does between two numbers of threads
    assert found.tuned == pytest.approx(found.eager, rel=5e-3)
    assert found.tuned[:5] == pytest.approx(found.eager[:5], rel=1e-4)


@pytest.mark.parametrize("name", ["perceptron", "gated"])
def test_losses_of_a_few_steps_are_those_of_eager(name: str) -> None:
    _check(name, 6)


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_losses_of_fifty_steps_are_those_of_eager(name: str) -> None:
    _check(name, 50)


@pytest.mark.slow
@pytest.mark.parametrize("name", PUBLISHED)
def test_published_networks_train_as_near_to_float64_as_eager(name: str, tmp_path: Path) -> None:
    pytest.importorskip("timm")
    pytest.importorskip("transformers")
    steps = {name: training_losses.proof(name, 10, tmp_path)}
    assert training_losses.is_passed({"steps": steps}), steps
    assert steps[name]["used"], steps


def test_shares_are_of_what_eager_is_off() -> None:
    exact, eager = [1.0, 1.0, 1.0], ([1.0, 1.0 + 1e-4, 1.0], [1.0, 1.0, 1.0 - 1e-5])
    same = training_losses.compared_losses(exact, eager, [1.0, 1.0, 1.0 + 8e-4])
    assert same["eager_off"] == pytest.approx(1e-4) and 0.99 < same["loss_share"] < 1.0
    assert training_losses.compared_losses(exact, eager, [1.0 + 1e-4, 1.0, 1.0])["loss_share"] > 9
    weights = {"a": torch.ones(3).double()}
    worse, wrong = ({"a": torch.full((3,), one)} for one in (1 + 1e-6, 1 + 1e-3))
    one = training_losses.compared_gradients(weights, [worse], worse)
    other = training_losses.compared_gradients(weights, [worse], wrong)
    assert one["gradient_share"] < 1 < other["gradient_share"] and other["worst"] == "a"
    assert training_losses.compared_gradients(weights, [worse], {})["gradient_share"] > 1


def test_table_tells_ratios_failures_and_losses() -> None:
    ms = [10.0, 11.0, 10.0, 10.5, 10.0, 10.0]
    eager = {"losses": [2.0, 1.0], "ms": ms, "loss_difference": 0.0}
    ours = {"losses": [2.0, 1.0], "ms": [one / 2 for one in ms], "loss_difference": 1e-6}
    forms = {"eager": eager, "inductor": {"failure": "no compiler"}, "aoe": ours}
    document = {
        "environment": {},
        "options": {"threads": 1, "torch": "2.13", "rounds": 6, "steps": 2},
        "date": "2026-11-29",
        "steps": {"vae": {"title": "VAE", "forms": forms}},
    }
    text = table(document)
    assert "| VAE | 10.0 | failed | 2.00x (2.00 to 2.00) | 1.0e-06 |" in text
    assert "geometric mean 2.00x" in text and is_passed(document)
    assert difference([2.0, 4.0], [2.0, 5.0]) == 0.25
    ours["loss_difference"] = 0.5
    assert not is_passed(document)
    forms["aoe"] = {"failure": "no word"}
    assert not is_passed(document)


def test_losses_and_gradients_that_are_no_numbers_pass_nowhere() -> None:
    assert difference([2.0, 4.0], [2.0, float("nan")]) == float("inf")
    off = training_losses.compared_losses([1.0, 1.0], [[1.0, 1.0 + 1e-4]], [1.0, float("nan")])
    assert off["loss_share"] == float("inf")
    exact = {name: torch.ones(3).double() for name in "ab"}
    found = {"a": torch.ones(3), "b": torch.full((3,), float("nan"))}
    eager = {name: torch.full((3,), 1 + 1e-6) for name in "ab"}
    assert training_losses.compared_gradients(exact, [eager], found)["worst"] == "b"
    row = {"loss_share": 0.5, "gradient_share": 0.5, "used": {"kernel": 1}}
    assert training_losses.is_passed({"steps": {"a": row}})
    assert not training_losses.is_passed({"steps": {"a": {**row, "used": {}}}})
