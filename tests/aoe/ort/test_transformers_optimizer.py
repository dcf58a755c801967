from __future__ import annotations

import math

import onnx
import pytest

from aoe.ort.transformers_optimizer import is_optimizer_installed, transformer_forms
from aoe.testing.rewrites import assert_equal, feed_of, run_model
from aoe.testing.small_models import SmallModel


def encoder() -> onnx.ModelProto:
    """A feed-forward block with its activation and its normalisation spelled out."""
    model = SmallModel()
    x = model.input(1, 6, 16)
    made = model.op("Add", model.op("MatMul", x, model.weight(16, 16)), model.weight(16))
    erf = model.op("Erf", model.op("Div", made, model.constant(math.sqrt(2))))
    made = model.op("Mul", made, model.op("Add", erf, model.constant(1.0)))
    made = model.op("Add", model.op("Mul", made, model.constant(0.5)), x)
    distance = model.op("Sub", made, model.op("ReduceMean", made, axes=[-1]))
    variance = model.op("ReduceMean", model.op("Pow", distance, model.constant(2.0)), axes=[-1])
    root = model.op("Sqrt", model.op("Add", variance, model.constant(1e-5)))
    made = model.op("Mul", model.op("Div", distance, root), model.positive(16))
    return model.model(model.op("Add", made, model.weight(16)))


def images() -> onnx.ModelProto:
    model = SmallModel()
    return model.model(model.op("Relu", model.conv(model.input(1, 4, 5, 5), 4, 4)))


@pytest.mark.skipif(not is_optimizer_installed(), reason="needs onnxruntime.transformers")
@pytest.mark.filterwarnings("ignore")
def test_forms_fuse_and_keep_the_result() -> None:
    model = encoder()
    before = model.SerializeToString(deterministic=True)
    forms = list(transformer_forms(model))
    assert "SkipLayerNormalization" in {name for form in forms for name in form.fused}
    assert model.SerializeToString(deterministic=True) == before
    feed = feed_of(model)
    expected = run_model(model, feed, optimize=False)
    for form in forms:
        assert_equal(expected, run_model(form.proto, feed, optimize=True), 1e-4, form.model_type)


@pytest.mark.skipif(not is_optimizer_installed(), reason="needs onnxruntime.transformers")
@pytest.mark.filterwarnings("ignore")
def test_what_is_no_transformer_has_no_forms() -> None:
    assert not list(transformer_forms(images()))


def test_without_the_optimizer_there_are_no_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aoe.ort.transformers_optimizer.is_optimizer_installed", lambda: False)
    assert not list(transformer_forms(encoder()))
