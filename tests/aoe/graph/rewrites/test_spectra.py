from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from support.contracts.rewrites import MakeModel, Refused, RewriteRuleTests
from support.contracts.small_models import SmallModel


def dft(
    *shape: int, axis: int = 1, opset: int = 17, length: int = 0, **attributes: int
) -> onnx.ModelProto:
    model = SmallModel(opset=opset)
    x = model.input(*shape)
    inputs = [x]
    if length:
        inputs.append(model.constant(np.array(length)))
    if opset < 20:
        made = model.op("DFT", *inputs, axis=axis, **attributes)
    else:
        inputs += [""] * (2 - len(inputs))
        made = model.op("DFT", *inputs, model.constant(np.array(axis)), **attributes)
    return model.model(model.op("Neg", made))


def stft(
    *shape: int, step: int = 4, size: int = 16, window: bool = True, onesided: int = 1
) -> onnx.ModelProto:
    model = SmallModel()
    x, stride = model.input(*shape), model.constant(np.array(step))
    inputs = [x, stride]
    inputs.append(model.constant(np.hanning(size).astype(np.float32)) if window else "")
    inputs.append(model.constant(np.array(size)))
    return model.model(model.op("Neg", model.op("STFT", *inputs, onesided=onesided)))


class TestDftRule(RewriteRuleTests):
    rule_name = "dft-as-product"
    matching: Mapping[str, MakeModel] = {
        "real": lambda: dft(2, 12, 1),
        "one side": lambda: dft(2, 16, 1, onesided=1),
        "complex": lambda: dft(2, 9, 2),
        "inverse": lambda: dft(2, 9, 2, inverse=1),
        "inner axis": lambda: dft(2, 6, 5, 1, axis=1),
        "axis as an input": lambda: dft(2, 6, 7, 1, axis=2, opset=20),
    }
    refused: Mapping[str, Refused] = {
        "filled up": (lambda: dft(2, 12, 1, length=16), "filled up"),
        "long": (lambda: dft(1, 4097, 1), "longer than"),
    }
    odd_values = False


class TestStftRule(RewriteRuleTests):
    rule_name = "stft-as-convolution"
    matching: Mapping[str, MakeModel] = {
        "window": lambda: stft(2, 64, 1),
        "no window": lambda: stft(1, 50, 1, window=False, step=7),
        "both sides": lambda: stft(2, 40, 1, onesided=0),
    }
    refused: Mapping[str, Refused] = {
        "complex": (lambda: stft(2, 40, 2, onesided=0), "complex"),
    }
    odd_values = False


class TestDftStagesRule(RewriteRuleTests):
    rule_name = "dft-in-stages"
    matching: Mapping[str, MakeModel] = {
        "real": lambda: dft(2, 120, 1),
        "one side": lambda: dft(2, 256, 1, onesided=1),
        "one side, odd": lambda: dft(3, 225, 1, onesided=1),
        "complex": lambda: dft(2, 100, 2),
        "inverse": lambda: dft(2, 105, 2, inverse=1),
        "inner axis": lambda: dft(2, 128, 3, 1, axis=1),
        "axis as an input": lambda: dft(2, 3, 128, 1, axis=-2, opset=20),
        "filled up": lambda: dft(2, 100, 1, length=128, onesided=1),
        "cut": lambda: dft(2, 150, 2, length=120),
    }
    refused: Mapping[str, Refused] = {
        "short": (lambda: dft(2, 16, 1), "short"),
        "prime": (lambda: dft(2, 101, 1), "prime"),
        "twice a prime": (lambda: dft(2, 202, 1), "no factors near its root"),
        "long": (lambda: dft(1, 8194, 1), "more than"),
    }
    odd_values = False


class TestStftStagesRule(RewriteRuleTests):
    rule_name = "stft-in-stages"
    matching: Mapping[str, MakeModel] = {
        "window": lambda: stft(2, 512, 1, size=128, step=32),
        "no window": lambda: stft(1, 1000, 1, window=False, size=200, step=80),
        "both sides, step without a common factor": lambda: stft(
            2, 301, 1, size=100, step=7, onesided=0
        ),
        "frames far apart": lambda: stft(1, 1001, 1, size=144, step=200),
    }
    refused: Mapping[str, Refused] = {
        "complex": (lambda: stft(2, 400, 2, size=128, onesided=0), "complex"),
        "prime": (lambda: stft(1, 400, 1, size=127), "prime"),
    }
    odd_values = False
