"""Kernels for any number of rows compute what ONNX Runtime does, whatever the number."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.engine.cpu import open_session
from support.engine.offline import first_guess
from support.engine.open_rows import opened, parsed

from aoe.device.compiler import (
    RowBlock,
    RowKernel,
    build_library,
    compile_kernel,
    kernel_table,
    row_kernel,
)
from aoe.device.toolchain import Toolchain
from aoe.graph.open_rows import OpenRows, find_open_rows
from aoe.graph.rewrite import Replacement, rewrite
from aoe.ort.sessions import session_options
from aoe.target import Target

_EXTENTS = {"N": 3, "S": 5}
_BLOCKS = {16: 10.0, 7: 4.5, 4: 4.0, 1: 2.0}
_NETS = {
    "chain": ("float[N,S,24] x", "t = Mul(x, b) u = Add(t, x) y = Sigmoid(u)", "float[24] b"),
    "softmax": ("float[N,S,24] x", "y = Softmax(x)", ""),
    "norm": ("float[N,S,24] x", "y = LayerNormalization(x, g, b)", "float[24] g, float[24] b"),
    "mean": ("float[N,S,24] x", "y = ReduceMean <axes = [2]> (x)", ""),
    "product": (
        "float[N,S,24] x",
        "t = MatMul(x, w) u = Add(t, b) y = Relu(u)",
        "float[24,40] w, float[40] b",
    ),
    "gemm": ("float[N,24] x", "y = Gemm(x, w, b)", "float[24,40] w, float[40] b"),
    "inner": ("float[N,6,24] x", "y = Add(x, b)", "float[6,24] b"),
}


class _Net:
    """A network with a kernel for any number of rows in it, and the same without."""

    def __init__(self, name: str, folder: Path, target: Target, toolchain: Toolchain) -> None:
        inputs, body, weights = _NETS[name]
        model = parsed(inputs, body, weights=weights)
        graph, shapes, parts = opened(model, _EXTENTS)
        region = parts.regions[-1]
        rows = find_open_rows(region, shapes)
        assert isinstance(rows, OpenRows)
        self.kernel = _kernel_of(rows, target)
        objects = [compile_kernel(part, target, folder) for part in self.kernel.parts]
        library = build_library(
            [self.kernel], objects, target=target, toolchain=toolchain, file=folder / "rows.so"
        )
        replaced = Replacement(region=region, kernel=self.kernel.name, shape=shapes[region.output])
        tuned = rewrite(graph, [replaced])
        self.tuned = _session(tuned.SerializeToString(), library)
        self.default = _session(model.SerializeToString())

    def shape(self, batch: int, length: int) -> tuple[int, ...]:
        """Return the shape of `x` with so many rows."""
        inner = self.kernel.shapes[0][self.kernel.open_rank :]
        lead = (batch * length,) if self.kernel.open_rank == 1 else (batch, length)
        return (*lead, *inner)

    def agrees(self, shape: tuple[int, ...], seed: int = 0) -> bool:
        x = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
        found, expected = (one.run(None, {"x": x})[0] for one in (self.tuned, self.default))
        assert found.shape == expected.shape
        return bool(np.allclose(found, expected, rtol=1e-4, atol=1e-5))


def _session(model: bytes, library: Path | None = None) -> ort.InferenceSession:
    return open_session(model, session_options(threads=2, optimize=False, library=library))


def _kernel_of(rows: OpenRows, target: Target) -> RowKernel:
    blocks = []
    for count, us in _BLOCKS.items():
        workload = rows.of(count)
        assert workload is not None
        source = first_guess(replace(rows.region, workload=workload), target)
        blocks.append(RowBlock(rows=count, source=source, us=us))
    region = rows.region.workload
    return row_kernel(
        blocks,
        open_rank=rows.open_rank,
        open_inputs=rows.open_inputs,
        shapes=[spec.shape for spec in (*region.inputs, region.output)],
    )


@pytest.fixture(scope="module", params=_NETS)
def net(
    request: pytest.FixtureRequest,
    target: Target,
    toolchain: Toolchain,
    tmp_path_factory: pytest.TempPathFactory,
) -> _Net:
    return _Net(request.param, tmp_path_factory.mktemp("rows"), target, toolchain)


def test_every_number_of_rows_is_right(net: _Net) -> None:
    # every way to cut: none, single rows, blocks with less, the same and more left over
    for count in (0, 1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 19, 31, 33, 47, 63, 64, 65, 127):
        assert net.agrees(net.shape(1, count)), count


@given(st.integers(1, 9), st.integers(1, 40), st.integers(0, 99))
def test_leading_dimensions_of_any_extents_are_right(
    net: _Net, batch: int, length: int, seed: int
) -> None:
    assert net.agrees(net.shape(batch, length), seed)


def test_special_values_stay_in_their_rows(net: _Net) -> None:
    x = np.random.default_rng(1).standard_normal(net.shape(1, 23)).astype(np.float32)
    flat = x.reshape(23, -1)
    flat[3, 5], flat[17, 0], flat[22, 1] = np.nan, np.inf, -np.inf
    found, expected = (one.run(None, {"x": x})[0] for one in (net.tuned, net.default))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_blocks_keep_their_weights_once(
    target: Target, toolchain: Toolchain, tmp_path: Path
) -> None:
    net = _Net("product", tmp_path, target, toolchain)
    table = kernel_table([net.kernel], target)
    forms = [line for line in table.splitlines() if "static const aoe_packing" in line]
    assert len(forms) == 1
