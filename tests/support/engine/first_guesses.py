"""Models taken as a run takes them, with the first guess of every family, against themselves."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper
from onnxruntime import InferenceSession

from aoe.device.toolchain import Toolchain
from aoe.entry.onnx_file import load_onnx
from aoe.errors import RunError
from aoe.om.file import FALLBACK, LIBRARY, MODEL
from aoe.ort.sessions import random_feed, session_options
from aoe.target import Target
from support.engine.cpu import open_session
from support.engine.models import make_model
from support.engine.offline import write_parts

OLDEST_OPSET = 7


class FirstGuesses:
    """Puts kernels into models and compares what they compute.

    Args:
        root: Empty folder.
        target: Of the kernels.
        toolchain: Links them.
    """

    def __init__(self, root: Path, target: Target, toolchain: Toolchain) -> None:
        self._root = root
        self._target = target
        self._toolchain = toolchain
        self._done = 0
        (root / "objects").mkdir()

    def compare(self, model: onnx.ModelProto) -> int:
        """Fail if a model with kernels computes something else; return how many there are."""
        kernels, before, after = self.sessions(model)
        feed = random_feed(before, 5)
        for found, expected in zip(after.run(None, feed), before.run(None, feed), strict=True):
            assert found.dtype == expected.dtype
            np.testing.assert_allclose(
                found.astype(np.float64), expected.astype(np.float64), rtol=2e-3, atol=1e-5
            )
        return len(kernels)

    def sessions(
        self, model: onnx.ModelProto
    ) -> tuple[tuple[str, ...], InferenceSession, InferenceSession]:
        """Return the names of a model's kernels, and sessions of it without and with them."""
        folder = self._root / str(self._done)
        self._done += 1
        folder.mkdir()
        onnx.save(model, folder / "net.onnx")
        manifest = write_parts(
            load_onnx(folder / "net.onnx", {}).proto,
            folder / "parts",
            self._target,
            self._toolchain,
            kept_in=self._root / "objects",
        )
        before = open_session(
            folder / "parts" / FALLBACK, session_options(threads=1, optimize=True)
        )
        library = folder / "parts" / LIBRARY if manifest.kernels else None
        options = session_options(threads=1, optimize=False, library=library)
        after = open_session(folder / "parts" / MODEL, options)
        return tuple(kernel.name for kernel in manifest.kernels), before, after


def _loads(opset: int) -> bool:
    node = helper.make_node("Relu", ["x"], ["y"])
    proto = make_model([node], {"x": [1]}, {"y": [1]}, opset=opset, ir_version=8)
    try:
        open_session(proto.SerializeToString(), session_options(threads=1, optimize=False))
    except RunError:
        return False
    return True


@cache
def newest_opset() -> int:
    """Return the newest version of ONNX's operators that ONNX Runtime loads."""
    return max(filter(_loads, range(OLDEST_OPSET, onnx.defs.onnx_opset_version() + 1)))


def small_net(
    nodes: list[onnx.NodeProto],
    inputs: Mapping[str, tuple[int, ...]],
    weights: Mapping[str, Any] = {},
    *,
    opset: int = OLDEST_OPSET,
    kind: int = TensorProto.FLOAT,
) -> onnx.ModelProto:
    """Return a model whose result is `y`, all tensors of its ends of one type."""
    return make_model(
        nodes,
        inputs,
        ["y"],
        weights={name: np.asarray(value) for name, value in weights.items()},
        opset=opset,
        ir_version=8,
        types=dict.fromkeys((*inputs, "y"), kind),
    )
