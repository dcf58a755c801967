from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import onnx
import pytest
from support.contracts.rewrites import MakeModel, Refused, RewriteRuleTests, rewritten
from support.contracts.small_models import SmallModel

from aoe.device.registry import default_device
from aoe.graph.rewrites.registry import RULES
from aoe.ort.sessions import session_options


def normalized(  # the ways exporters write it
    *,
    axis: int = -1,
    shape: tuple[int, ...] = (2, 5, 16),
    square: str = "Pow",
    root: str = "Div",
    scaled: bool = True,
    opset: int = 17,
    centred: bool = True,
) -> onnx.ModelProto:
    model = SmallModel(opset=opset)
    x = model.input(*shape)
    made = core(model, x, axis=axis, square=square, root=root, opset=opset, centred=centred)
    if scaled:
        extents = [1] * (len(shape) - axis % len(shape) - 1)
        length = shape[axis]
        made = model.op("Mul", made, model.positive(length, *extents))
        if centred:
            made = model.op("Add", model.weight(length, *extents), made)
    return model.model(model.op("Relu", made))


def core(
    model: SmallModel,
    x: str,
    *,
    axis: int = -1,
    square: str = "Pow",
    root: str = "Div",
    opset: int = 17,
    centred: bool = True,
) -> str:
    def mean(name: str) -> str:
        if opset < 18:
            return model.op("ReduceMean", name, axes=[axis])
        return model.op("ReduceMean", name, model.constant([axis]))

    distance = model.op("Sub", x, mean(x)) if centred else x
    second = model.constant(2.0) if square == "Pow" else distance
    variance = mean(model.op(square, distance, second))
    total = model.op("Add", variance, model.constant(1e-3))
    if root == "Pow":
        return model.op("Mul", distance, model.op("Pow", total, model.constant(-0.5)))
    if root == "Reciprocal":
        return model.op("Mul", model.op("Reciprocal", model.op("Sqrt", total)), distance)
    return model.op("Div", distance, model.op("Sqrt", total))


def groups(*, taken_apart: bool = True) -> onnx.ModelProto:
    model = SmallModel()
    x = model.input(2, 12, 5, 4)
    made = core(model, model.op("Reshape", x, model.constant([2, 3, -1])))
    if not taken_apart:
        return model.model(model.op("Relu", made))
    made = model.op("Reshape", made, model.constant([2, 12, 5, 4]))
    return model.model(model.op("Mul", made, model.positive(12, 1, 1)))


class TestLayerRule(RewriteRuleTests):
    rule_name = "layer-norm"
    matching: Mapping[str, MakeModel] = {
        "power": normalized,
        "product": lambda: normalized(square="Mul", root="Reciprocal", shape=(3, 7)),
        "power of the root": lambda: normalized(root="Pow", opset=18),
        "neither scale nor bias": lambda: normalized(scaled=False),
    }
    refused: Mapping[str, Refused] = {
        "old": (lambda: normalized(opset=16), "opset 16"),
        "another axis": (lambda: normalized(axis=1), ""),
        "not centred": (lambda: normalized(centred=False), ""),
    }
    odd_values = False


class TestChannelsRule(RewriteRuleTests):
    rule_name = "layer-norm-of-channels"
    matching: Mapping[str, MakeModel] = {
        "scaled": lambda: normalized(axis=1, shape=(2, 16, 5, 3)),
        "unscaled": lambda: normalized(axis=1, shape=(1, 16, 5, 3), scaled=False),
    }
    refused: Mapping[str, Refused] = {
        "old": (lambda: normalized(axis=1, shape=(2, 16, 5, 3), opset=16), "opset 16"),
        "of rows": (lambda: normalized(axis=2, shape=(2, 16, 5, 3)), ""),
    }
    odd_values = False


class TestRmsRule(RewriteRuleTests):
    rule_name = "rms-norm"
    matching: Mapping[str, MakeModel] = {
        "power": lambda: normalized(centred=False, opset=23),
        "product": lambda: normalized(centred=False, opset=23, square="Mul", root="Reciprocal"),
        "as PyTorch writes it": lambda: normalized(centred=False, opset=18, root="Reciprocal"),
        "before axes were read": lambda: normalized(centred=False, root="Reciprocal"),
        "without a scale": lambda: normalized(centred=False, opset=18, scaled=False),
    }
    refused: Mapping[str, Refused] = {
        "fused as it is": (lambda: normalized(centred=False, opset=18), "fuses it as it is"),
    }
    odd_values = False


@pytest.mark.parametrize("opset", [13, 17, 18, 20])
def test_root_mean_as_pytorch_writes_it_becomes_one_operator_of_onnxruntime(
    opset: int, tmp_path: Path
) -> None:
    """It is left as it is where the Reciprocal of the root is multiplied by."""
    written = normalized(centred=False, opset=opset, root="Reciprocal")
    made, _ = rewritten(written, RULES["rms-norm"])
    assert "SimplifiedLayerNormalization" not in _optimized(written, tmp_path)
    assert "SimplifiedLayerNormalization" in _optimized(made, tmp_path)


def _optimized(model: onnx.ModelProto, folder: Path) -> list[str]:
    options = session_options(threads=1, optimize=True)
    options.optimized_model_filepath = str(folder / "optimized.onnx")
    default_device().open_session(model.SerializeToString(), options)
    return [node.op_type for node in onnx.load(options.optimized_model_filepath).graph.node]


class TestGroupsRule(RewriteRuleTests):
    rule_name = "group-norm"
    matching: Mapping[str, MakeModel] = {"groups": groups}
    refused: Mapping[str, Refused] = {
        "not taken apart": (lambda: groups(taken_apart=False), "not taken apart"),
        "of layers": (normalized, ""),
    }
    odd_values = False
