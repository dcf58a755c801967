"""Models with attention tuned for a range of batch and length: the attention is our kernel."""

from __future__ import annotations

from pathlib import Path
from zipfile import ZipFile

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import numpy_helper
from support.engine.open_rows import parsed

import aoe

pytestmark = pytest.mark.slow
_LAYERS = 2
_MASKS = {"encoder": "float", "encoder that chooses": "bool"}
_WEIGHTS = ("wq", "wk", "wv", "wo")
_RANGES = {
    "encoder": "x:1~2,1~48,64;mask:1~2,1,1,1~48",
    "decoder": "x:1~2,1~48,64",
    "encoder that chooses": "x:1~2,1~48,64;mask:1~2,1,1,1~48",
    "decoder with a cache": "x:1,1,64;pk:1,4,1~256,16;pv:1,4,1~256,16",
}
_CACHED = """k{0}n = Concat <axis = 2> (pk, k{0}r) k{0} = Transpose <perm = [0, 1, 3, 2]> (k{0}n)
v{0} = Concat <axis = 2> (pv, v{0}r)"""
_CAUSAL = """
from = Shape <start = 1, end = 2> (x) square = Concat <axis = 0> (from, from)
ones = Expand (low, square) above = Trilu <upper = 1> (ones, first) mask = Mul (above, one)
"""


def _layer(number: int, x: str, kind: str) -> str:
    """Return a layer as PyTorch writes it: heads split by Reshape and Transpose, a residual."""
    parts, is_cached = [], "cache" in kind
    turned = "0, 2, 1, 3" if is_cached else "0, 2, 3, 1"
    for name, perm in (("q", "0, 2, 1, 3"), ("k", turned), ("v", "0, 2, 1, 3")):
        own = f"{name}{number}"
        made = f"{own}r" if is_cached and name != "q" else own
        parts += [
            f"{own}a = MatMul ({x}, w{name}) {own}b = Add ({own}a, bias)",
            f"{own}c = Reshape ({own}b, split) {made} = Transpose <perm = [{perm}]> ({own}c)",
        ]
    parts += [_CACHED.format(number)] if is_cached else []
    masked = "Identity (t{0})" if is_cached else "Add (t{0}, mask)"
    masked = "Where (mask, t{0}, far)" if "chooses" in kind else masked
    made = "y" if number == _LAYERS else f"x{number}"
    return " ".join(
        [
            *parts,
            f"s{number} = MatMul (q{number}, k{number}) t{number} = Mul (s{number}, scale)",
            f"u{number} = {masked.format(number)} p{number} = Softmax (u{number})",
            f"a{number} = MatMul (p{number}, v{number})",
            f"h{number} = Transpose <perm = [0, 2, 1, 3]> (a{number})",
            f"j{number} = Reshape (h{number}, join) o{number} = MatMul (j{number}, wo)",
            f"r{number} = Add (o{number}, {x}) {made} = LayerNormalization (r{number}, bias)",
        ]
    )


def _model(kind: str) -> onnx.ModelProto:
    body = _CAUSAL if kind == "decoder" else ""
    for number in range(1, _LAYERS + 1):
        body += _layer(number, "x" if number == 1 else f"x{number - 1}", kind)
    inputs = "float[N,S,64] x" + (f", {_MASKS[kind]}[N,1,1,S] mask" if kind in _MASKS else "")
    if "cache" in kind:
        inputs = "float[1,1,64] x, float[1,4,P,16] pk, float[1,4,P,16] pv"
    weights = ", ".join([*(f"float[64,64] {name}" for name in _WEIGHTS), "float[64] bias"])
    model = parsed(inputs, body, weights=weights)
    constants = {
        "split": np.array([0, 0, 4, 16]),
        "join": np.array([0, 0, 64]),
        "first": np.array(1),
        "scale": np.array(0.25, np.float32),
        "one": np.array(1.0, np.float32),
        "low": np.array(-1e4, np.float32),
        "far": np.array(-np.inf, np.float32),
    }
    for name, value in constants.items():
        model.graph.initializer.append(numpy_helper.from_array(value, name))
    return model


class _Tuned:
    """A model file, and what a run without measuring made of it with records of another one."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind, self.model = kind, folder / "model.onnx"
        onnx.save(_model(kind), self.model)
        (folder / "bank").mkdir()
        for out, options in (("out", {"trials": 1}), ("found", {"lookup_only": True})):
            result = aoe.tune(
                self.model,
                bank=folder / "bank",
                job_type="opat",
                input_shape=_RANGES[kind],
                accept_busy=True,
                output=folder / out,
                **options,
            )
        assert result.om_file is not None
        self.om_file = result.om_file

    @property
    def operators(self) -> list[str]:
        """Types of the nodes of the tuned model."""
        with ZipFile(self.om_file) as parts:
            graph = onnx.load_from_string(parts.read("model.onnx")).graph
        return [node.op_type for node in graph.node]

    def inputs(self, batch: int, length: int) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(batch + length)
        if "cache" in self.kind:
            kept = {name: rng.standard_normal((1, 4, length, 16)) for name in ("pk", "pv")}
            drawn = {"x": rng.standard_normal((1, 1, 64)), **kept}
            return {name: values.astype(np.float32) for name, values in drawn.items()}
        found = {"x": rng.standard_normal((batch, length, 64)).astype(np.float32)}
        if self.kind in _MASKS:
            is_kept = rng.random((batch, 1, 1, length)) > 0.3
            is_kept[..., 0] = True
            added = np.where(is_kept, 0.0, -np.inf).astype(np.float32)
            found["mask"] = is_kept if "chooses" in self.kind else added
        return found


@pytest.fixture(scope="module", params=_RANGES)
def tuned(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> _Tuned:
    return _Tuned(request.param, tmp_path_factory.mktemp("run"))


def test_attention_of_every_layer_is_one_kernel_for_open_extents(tuned: _Tuned) -> None:
    kernels = [name for name in tuned.operators if name.startswith("attention_extents_")]
    assert len(kernels) == _LAYERS
    assert len(set(kernels)) == 1  # layers of one shape share it
    assert "Softmax" not in tuned.operators


def test_every_shape_is_right_within_the_range_and_beyond(tuned: _Tuned) -> None:
    default, session = ort.InferenceSession(tuned.model), aoe.load(tuned.om_file)
    for shape in [(1, 1), (2, 48), (1, 5), (2, 7), (1, 16), (2, 17), (1, 31), (3, 100), (1, 257)]:
        inputs = tuned.inputs(*shape)
        found, expected = (one.run(None, inputs)[0] for one in (session, default))
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4, err_msg=str(shape))
