from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from support.contracts.rewrites import Array, MakeModel, Refused, RewriteRuleTests
from support.contracts.small_models import SmallModel


def waves(
    size: int, *, kinds: tuple[str, ...] = ("cos", "sin"), window: bool = True, scale: float = 1.0
) -> Array:
    """Return the weights of a transform of frames, as exporters of speech networks write them."""
    turns = np.outer(np.arange(size // 2 + 1), np.arange(size)) * (2 * np.pi / size)
    made = np.concatenate([np.cos(turns) if kind == "cos" else -np.sin(turns) for kind in kinds])
    gains = np.full((len(made), 1), 2 * scale)
    gains[:: size // 2] /= 2  # as in an inverse: bin 0, and the last one, count once
    shape = np.hanning(size + 1)[:-1] if window else np.ones(size)
    found: Array = (made * gains * shape).astype(np.float32)[:, None]
    return found


def analysis(
    samples: int,
    weights: Array,
    *,
    step: int = 40,
    batch: int = 1,
    bias: bool = False,
    opset: int = 17,
    **attributes: object,
) -> onnx.ModelProto:
    model = SmallModel(opset=opset)
    inputs = [model.input(batch, 1, samples), model.constant(weights)]
    if bias:
        inputs.append(model.weight(len(weights)))
    return model.model(model.op("Neg", model.op("Conv", *inputs, strides=[step], **attributes)))


def synthesis(
    frames: int,
    weights: Array,
    *,
    step: int = 40,
    batch: int = 1,
    **attributes: object,
) -> onnx.ModelProto:
    model = SmallModel()
    inputs = [model.input(batch, len(weights), frames), model.constant(weights)]
    made = model.op("ConvTranspose", *inputs, strides=[step], **attributes)
    return model.model(model.op("Neg", made))


def _spoilt(weights: Array) -> Array:
    spoilt = weights.copy()
    spoilt[7, 0, 9] += 1e-3 * np.abs(weights).max()
    return spoilt


class TestWaveConvolutionRule(RewriteRuleTests):
    rule_name = "wave-convolution-in-stages"
    matching: Mapping[str, MakeModel] = {
        "both kinds": lambda: analysis(900, waves(160)),
        "cosines, padded": lambda: analysis(
            500, waves(128, kinds=("cos",)), step=32, batch=2, pads=[64, 64]
        ),
        "sines": lambda: analysis(700, waves(200, kinds=("sin",)), step=50),
        "no window, odd length": lambda: analysis(600, waves(225, window=False), step=45),
    }
    refused: Mapping[str, Refused] = {
        "other weights": (lambda: analysis(900, _spoilt(waves(160))), "no waves"),
        "another number": (lambda: analysis(900, waves(160)[:50]), "no transform"),
        "bias": (lambda: analysis(900, waves(160), bias=True), "bias"),
        "prime": (lambda: analysis(900, waves(127)), "prime"),
        "dilated": (lambda: analysis(900, waves(160), dilations=[2]), "dilated"),
        "old": (lambda: analysis(900, waves(160), opset=11), "opset 11"),
    }
    odd_values = False


class TestWaveSynthesisRule(RewriteRuleTests):
    rule_name = "wave-synthesis-in-stages"
    matching: Mapping[str, MakeModel] = {
        "both kinds": lambda: synthesis(9, waves(160, scale=1 / 160)),
        "cosines, cut": lambda: synthesis(
            7, waves(128, kinds=("cos",)), step=32, batch=2, pads=[64, 60]
        ),
        "sines": lambda: synthesis(5, waves(200, kinds=("sin",)), step=100),
        "frames beside each other": lambda: synthesis(4, waves(120), step=120),
    }
    refused: Mapping[str, Refused] = {
        "other weights": (lambda: synthesis(9, _spoilt(waves(160))), "no waves"),
        "broken steps": (lambda: synthesis(9, waves(160), step=60), "whole steps"),
        "more at the end": (lambda: synthesis(9, waves(160), output_padding=[3]), "output_padding"),
    }
    odd_values = False
