"""Models of which no kernel is wrong alone: what one hands on, another makes an infinity of."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from onnx import TensorProto
from support.contracts.small_models import SmallModel
from support.engine.first_guesses import FirstGuesses

from aoe.device.toolchain import Toolchain
from aoe.target import Target

_GAP = 95.0
_ROWS, _CLASSES = 12, 40


def test_entropy_divergence_and_log_of_softmax_stay_finite(
    tmp_path: Path, target: Target, toolchain: Toolchain
) -> None:
    """ONNX Runtime keeps denormal exponentials (with AVX-512), and so do kernels."""
    small = SmallModel()
    x, y = small.input(_ROWS, _CLASSES), small.input(_ROWS, _CLASSES)
    halves = small.input(3, 24, 10, dtype=TensorProto.FLOAT16)
    p, q = small.op("Softmax", x, axis=-1), small.op("Softmax", y, axis=-1)
    log_p, log_q = small.op("Log", p), small.op("Log", q)
    classes = small.constant([1])
    entropy = small.op("ReduceSum", small.op("Mul", p, log_p), classes)
    divergence = small.op("ReduceSum", small.op("Mul", p, small.op("Sub", log_p, log_q)), classes)
    log = small.op("Log", small.op("Softmax", halves, axis=1))
    kernels, _, after = FirstGuesses(tmp_path, target, toolchain).sessions(
        small.model(entropy, divergence, log)
    )
    assert len(kernels) >= 5
    rows = np.zeros((_ROWS, _CLASSES), np.float32)
    rows[:, 0] = _GAP
    columns = np.zeros((3, 24, 10), np.float16)
    columns[:, 0] = _GAP
    found = after.run(None, {x: rows, y: rows[:, ::-1].copy(), halves: columns})
    np.testing.assert_allclose(found[0], np.zeros((_ROWS, 1)), atol=1e-37)
    np.testing.assert_allclose(found[1], np.full((_ROWS, 1), _GAP), rtol=1e-3)
    np.testing.assert_allclose(found[2], columns.astype(np.float32) - _GAP, rtol=1e-3)
