"""Kernels for signals of any length: convolutions of images of one row, as these are optimised."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
from support.engine.built_kernels import linked
from support.engine.cpu import CPU, open_session
from support.engine.open_rows import parsed
from support.tiers import few_every_day

from aoe.device.compiler import KernelSource
from aoe.device.toolchain import Toolchain
from aoe.graph.model_graph import ModelGraph
from aoe.graph.open_images import OpenImages, find_open_images
from aoe.graph.regions import partition
from aoe.graph.rewrite import Replacement, rewrite
from aoe.kernels.algorithms import KNOB
from aoe.kernels.family import KernelTarget
from aoe.kernels.registry import FUSIBLE, anchors, classify, get_family
from aoe.ort.open_shapes import infer_open_tensors, tensors_at, with_proven_reshapes
from aoe.ort.sessions import session_options
from aoe.target import Target
from aoe.tuner.search.book import opening

_POINT = {"N": 2, "S": 34}


@dataclass(frozen=True, kw_only=True)
class _Form:
    """A convolution and the chain behind it."""

    body: str  # Of the network
    weights: str  # Its own
    algorithm: str  # Of its kernel
    inputs: str = "float[N,64,S] x"  # One, whose channels are in front of the length or behind it


_FORMS = {
    "each channel": _Form(
        body="""t = Transpose <perm = [0, 2, 1]> (x)
        d = Conv <kernel_shape = [31], pads = [15, 15], group = 64> (t, f, c) s = Sigmoid(d)
        m = Mul(d, s) y = Transpose <perm = [0, 2, 1]> (m)""",
        weights="float[64,1,31] f, float[64] c",
        algorithm="depthwise",
        inputs="float[N,S,64] x",
    ),
    "all channels": _Form(
        body="d = Conv <kernel_shape = [3], pads = [1, 1]> (x, f, c) s = Sigmoid(d) y = Mul(d, s)",
        weights="float[64,64,3] f, float[64] c",
        algorithm="direct",
    ),
    "strides": _Form(
        body="""d = Conv <kernel_shape = [3], pads = [1, 1], strides = [2]> (x, f, c)
        s = Sigmoid(d) y = Mul(d, s)""",
        weights="float[64,64,3] f, float[64] c",
        algorithm="direct",
    ),
}


class _Net:
    """A network with a kernel for signals of any length in it, and as it was written."""

    def __init__(self, form: _Form, folder: Path, target: Target, toolchain: Toolchain) -> None:
        model = parsed(form.inputs, form.body, weights=form.weights)
        proto = CPU.optimize(with_proven_reshapes(model), folder / "optimized.onnx", threads=1)
        tensors = infer_open_tensors(proto, open_session)
        shapes = {name: tensor.shape for name, tensor in tensors.items()}
        graph = ModelGraph(proto, tensors_at(tensors, _POINT), block=CPU.channel_block())
        parts = partition(graph, fusible=FUSIBLE, anchors=anchors(), classify=classify)
        (region,) = (one for one in parts.regions if one.workload.op_type == "convolution")
        found = find_open_images(region, shapes, _POINT)
        assert isinstance(found, OpenImages), found
        family, facts = get_family("convolution"), KernelTarget.of(target)
        guesses = opening(family.space(found.workload, facts), ())
        guess = next(one for one in guesses if dict(one).get(KNOB, "") == form.algorithm)
        source = KernelSource.of(found.workload, family.schedule(found.workload, guess, facts))
        library = linked([source], target=target, toolchain=toolchain, file=folder / "signals.so")
        replaced = Replacement(region=region, kernel=source.name, shape=shapes[region.output])
        options = session_options(threads=2, optimize=False, library=library)
        self.is_last, self.shape = form.inputs.endswith("64] x"), shapes["y"]
        self._tuned = open_session(rewrite(graph, [replaced]).SerializeToString(), options)
        self._default = ort.InferenceSession(model.SerializeToString())

    def assert_same(self, x: np.ndarray) -> None:
        """Compare both on (batch, length, channels)."""
        given = x if self.is_last else np.ascontiguousarray(np.swapaxes(x, 1, 2))
        found, expected = (one.run(None, {"x": given})[0] for one in (self._tuned, self._default))
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3, err_msg=str(x.shape))


@pytest.fixture(scope="module", params=few_every_day(_FORMS, 2))
def net(
    request: pytest.FixtureRequest,
    target: Target,
    toolchain: Toolchain,
    tmp_path_factory: pytest.TempPathFactory,
) -> _Net:
    folder = tmp_path_factory.mktemp("signals")
    return _Net(_FORMS[request.param], folder, target, toolchain)


def test_every_length_is_right(net: _Net) -> None:
    rng = np.random.default_rng(0)
    for length in (*range(1, 40), 61, 64, 65, 127, 128, 257):
        net.assert_same(rng.standard_normal((1 + length % 3, length, 64)).astype(np.float32))


def test_shape_is_proven_through_reorders_too(net: _Net) -> None:
    assert net.shape in (("N", "S", 64), ("N", 64, "S"), ("N", 64, "(S+1)//2"))
    assert (net.shape[-1] == 64) is net.is_last


def test_special_values_stay_where_they_are(net: _Net) -> None:
    x = np.random.default_rng(1).standard_normal((2, 67, 64)).astype(np.float32)
    x[0, 11, 5], x[1, 50, 7], x[0, 0, 0] = np.nan, np.inf, -0.0
    net.assert_same(x)
