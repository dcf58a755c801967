"""Kernels for any number of rows compute what ONNX Runtime does, whatever the number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import numpy_helper
from support.engine.built_kernels import linked
from support.engine.cpu import open_session
from support.engine.models import Array
from support.engine.offline import first_guess
from support.engine.open_rows import opened, parsed
from support.engine.quantised import measured_levels

from aoe.device.compiler import (
    BlockKernel,
    KernelSource,
    RowBlock,
    RowKernel,
    kernel_table,
    row_kernel,
)
from aoe.device.toolchain import Toolchain
from aoe.graph.open_rows import OpenRows, find_open_rows
from aoe.graph.rewrite import Replacement, rewrite
from aoe.kernels.family import KernelTarget
from aoe.kernels.registry import get_family
from aoe.ort.guarded import GuardedRuns
from aoe.ort.sessions import session_options
from aoe.schedule import Configuration
from aoe.target import Target
from aoe.tasks.ranges.row_kernels import open_product

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
    "gated": (
        "float[N,S,24] x",
        "a, b = Split <axis=2> (x, i12_12) s = Sigmoid(b) y = Mul(a, s)",
        "",
    ),
    "rotary": (
        "float[N,S,3,16] x, float[N,S,1,16] c, float[N,S,1,16] s",
        """a = Slice(x, i0, i8, i3) b = Slice(x, i8, i16, i3) r = Concat <axis = 3> (b, a)
        u = Mul(x, c) v = Mul(r, s) y = Add(u, v)""",
        "",
    ),
    "shifted": (
        "float[N,6,5,4] x",
        """a, b = Split <axis = 1> (x, i2_4) c = Concat <axis = 1> (b, a)
        d, e = Split <axis = 2> (c, i2_3) y = Concat <axis = 2> (e, d)""",
        "",
    ),
    "windows": (
        "float[N,6,4,8] x",
        """a, b = Split <axis = 1> (x, i2_4) c = Concat <axis = 1> (b, a)
        w = Reshape(c, i0_2_3_2_2_8) y = Transpose <perm = [0, 1, 3, 2, 4, 5]> (w)""",
        "",
    ),
    "turned": ("float[N,S,6,8] x", "t = Transpose <perm = [0, 1, 3, 2]> (x) y = Exp(t)", ""),
    "depth": ("float[N,8,3,5] x", "y = DepthToSpace <blocksize = 2> (x)", ""),
    "padded": ("float[N,S,24] x", "y = Pad(x, i0_0_1_0_0_3)", ""),
}


class _Net:
    """A network with a kernel for any number of rows in it, and the same without."""

    def __init__(
        self,
        name: str,
        folder: Path,
        target: Target,
        toolchain: Toolchain,
        make: Callable[[OpenRows, Target], BlockKernel] | None = None,
    ) -> None:
        inputs, body, weights = {**_NETS, **_PRODUCTS, **_INTEGERS}[name]
        model = parsed(inputs, body, weights=weights, result=_RESULTS.get(name, "float"))
        graph, shapes, parts = opened(model, _EXTENTS)
        region = parts.regions[-1]
        rows = find_open_rows(graph, region, shapes)
        assert isinstance(rows, OpenRows)
        self.kernel = (make or _kernel_of)(rows, target)
        self.open_rank = rows.open_rank
        library = linked([self.kernel], target=target, toolchain=toolchain, file=folder / "rows.so")
        replaced = Replacement(region=region, kernel=self.kernel.name, shape=shapes[region.output])
        tuned = rewrite(graph, [replaced])
        self.tuned = _session(tuned.SerializeToString(), library)
        self.weights = {one.name: numpy_helper.to_array(one) for one in model.graph.initializer}
        self.default = _session(model.SerializeToString())

    def arrays(self, batch: int, length: int, seed: int = 0) -> dict[str, Array]:
        """Return seeded inputs with so many rows."""
        extents = {"N": batch * length if self.open_rank == 1 else batch, "S": length}
        rng = np.random.default_rng(seed)
        arrays = {}
        for one in self.default.get_inputs():
            shape = [extents.get(at, at) for at in one.shape]
            kind = np.dtype(_INPUTS[one.type])
            is_level = kind != np.float32
            drawn = rng.integers(0, 256, shape) if is_level else rng.standard_normal(shape)
            arrays[one.name] = drawn.astype(kind)
        return arrays

    def run(self, arrays: dict[str, Array]) -> tuple[Array, Array]:
        """Return the result with the kernel, and the one without."""
        found, expected = (one.run(None, arrays)[0] for one in (self.tuned, self.default))
        return found, expected

    def agrees(self, arrays: dict[str, Array]) -> bool:
        found, expected = self.run(arrays)
        assert found.shape == expected.shape
        return bool(np.allclose(found, expected, rtol=1e-4, atol=1e-5))


_PRODUCTS = {
    "residual": (
        "float[N,S,40] z, float[N,S,24] x",
        "t = MatMul(x, w) u = Add(t, b) v = Relu(u) y = Add(v, z)",
        "float[24,40] w, float[40] b",
    ),
    "one batch": ("float[1,S,24] x", "y = MatMul(x, w)", "float[24,37] w"),
    "long chain": (
        "float[N,S,24] x",
        "t = MatMul(x, w) u = Add(t, b) y = com.microsoft.Gelu(u)",
        "float[24,70] w, float[70] b",
    ),
}


_INPUTS = {"tensor(float)": "float32", "tensor(uint8)": "uint8", "tensor(int8)": "int8"}
_LEFT, _RIGHT = "float scale_x, uint8 zero_x", "float scale_w, int8 zero_w"
_MADE = "float scale_y, uint8 zero_y"
_INTEGERS = {
    "QLinearMatMul": (
        "uint8[N,S,96] x",
        "y = QLinearMatMul(x, scale_x, zero_x, w, scale_w, zero_w, scale_y, zero_y)",
        f"int8[96,40] w, {_LEFT}, float scale_w, int8 zero_w, {_MADE}",
    ),
    "QGemm": (
        "uint8[N,96] x",
        """y = com.microsoft.QGemm <alpha = 1.0, transB = 1>
        (x, scale_x, zero_x, w, scale_w, zero_w, b, scale_y, zero_y)""",
        f"int8[40,96] w, {_LEFT}, {_RIGHT}, int32[40] b, {_MADE}",
    ),
    "MatMulIntegerToFloat": (
        "uint8[N,S,100] x",
        """t = com.microsoft.MatMulIntegerToFloat(x, w, scale_x, scale_w, zero_x, zero_w, b)
        y = Relu(t)""",
        f"uint8[100,40] w, {_LEFT}, float scale_w, uint8 zero_w, float[40] b",
    ),
    "DynamicQuantizeMatMul": (
        "float[N,S,96] x",
        "t = com.microsoft.DynamicQuantizeMatMul(x, w, scale_w, zero_w, b) y = Relu(t)",
        "int8[96,40] w, float scale_w, int8 zero_w, float[40] b",
    ),
    "MatMulNBits": (
        "float[N,S,96] x",
        """t = com.microsoft.MatMulNBits <K = 96, N = 40, bits = 4, block_size = 32> (x, w, scale_w)
        y = Relu(t)""",
        "uint8[40,3,16] w, float[120] scale_w",
    ),
    "MatMulNBits in integers": (
        "float[N,S,80] x",
        """t = com.microsoft.MatMulNBits
        <K = 80, N = 40, bits = 8, block_size = 32, accuracy_level = 4> (x, w, scale_w)
        y = Relu(t)""",
        "uint8[40,3,32] w, float[120] scale_w",
    ),
}
"""Products of integers, and by weights in blocks."""
_RESULTS = {"QLinearMatMul": "uint8", "QGemm": "uint8"}


@pytest.mark.parametrize("name", ["product", "gemm", *_PRODUCTS])
def test_product_takes_its_rows_from_each_call(
    name: str, tmp_path: Path, target: Target, toolchain: Toolchain
) -> None:
    net = _Net(name, tmp_path, target, toolchain, make=_open_kernel_of)
    assert len(net.kernel.blocks) > 1
    lengths = ((1, 1), (1, 2), (3, 1), (1, 5), (2, 7), (1, 17), (3, 9), (5, 13), (1, 75), (1, 0))
    for batch, length in lengths:
        assert net.agrees(net.arrays(batch, length)), (batch, length)
    arrays = net.arrays(1, 23, seed=1)
    flat = arrays["x"].reshape(23, -1)
    flat[3, 5], flat[17, 0], flat[22, 1] = np.nan, np.inf, -np.inf
    found, expected = net.run(arrays)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("length", [1, 17, 27, 45, 50, 75])
def test_product_of_any_rows_is_what_numpy_computes(open_net: _Net, length: int) -> None:
    arrays = open_net.arrays(1, length)
    wide = {name: array.astype(np.float64) for name, array in (arrays | open_net.weights).items()}
    expected = np.maximum(wide["x"] @ wide["w"] + wide["b"], 0)
    np.testing.assert_allclose(open_net.run(arrays)[0], expected, rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module")
def open_net(
    target: Target, toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory
) -> _Net:
    return _Net("product", tmp_path_factory.mktemp("open"), target, toolchain, _open_kernel_of)


_INSTRUCTIONS: dict[str, dict[str, bool]] = {
    "tiles": {},
    "dot": {"int8_tiles": False},
    "widened": {"int8_tiles": False, "int8_dot": False},
}
"""What a CPU is not asked for; one without them has the last."""


def _integers_of(
    rows: OpenRows, target: Target, *, without: dict[str, bool], are_open: bool = True
) -> BlockKernel:
    changed: dict[str, Any] = {**without}
    facts = replace(KernelTarget.of(target), **changed)
    blocks = []
    for count, us in _BLOCKS.items():
        workload = rows.of(count)
        assert workload is not None
        family = get_family(workload.op_type)
        guess = Configuration(family.space(workload, facts).first_guesses[0])
        source = KernelSource.of(workload, family.schedule(workload, guess, facts))
        blocks.append(RowBlock(rows=count, source=source, us=us))
    if not are_open:
        return _of_blocks(rows, blocks)
    found = open_product(rows, blocks, lambda *_: "")
    assert found is not None
    return found


@pytest.fixture(scope="module", params=[(name, by) for name in _INTEGERS for by in _INSTRUCTIONS])
def integers(
    request: pytest.FixtureRequest,
    target: Target,
    toolchain: Toolchain,
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[str, _Net]:
    name, by = request.param
    make = partial(_integers_of, without=_INSTRUCTIONS[by])
    return name, _Net(name, tmp_path_factory.mktemp("integers"), target, toolchain, make)


_TAILS = (1, 2, 3, 5, 6, 15, 16, 17, 31, 33, 50)


def test_product_of_integers_takes_its_rows_from_each_call(integers: tuple[str, _Net]) -> None:
    name, net = integers
    for length in _TAILS:
        arrays = net.arrays(1, length, seed=length)
        found, expected = net.run(arrays)
        _assert_same(found, expected)
        _assert_same(found, _by_numpy(name, arrays["x"], net.weights))
    for batch, length in ((2, 9), (3, 1), (1, 0)):
        if net.open_rank == 2:
            _assert_same(*net.run(net.arrays(batch, length)))


def test_no_byte_outside_of_the_rows_is_touched(integers: tuple[str, _Net]) -> None:
    _, net = integers
    for length in _TAILS:
        arrays = net.arrays(1, length)
        expected = net.run(arrays)[1]
        found = GuardedRuns([arrays], expected).run(net.tuned, 0)  # outside is a forbidden page
        _assert_same(found, expected)


def test_levels_at_both_ends_are_summed_exactly(integers: tuple[str, _Net]) -> None:
    name, net = integers
    for value in (0, 255):
        arrays = net.arrays(1, 17)
        is_level = arrays["x"].dtype == np.uint8
        arrays["x"][:] = value if is_level else value * 1e3 - 1e5
        found, expected = net.run(arrays)
        _assert_same(found, expected)
        _assert_same(found, _by_numpy(name, arrays["x"], net.weights))


def test_numbers_that_are_none_stay_where_onnx_runtime_has_them(
    integers: tuple[str, _Net],
) -> None:
    name, net = integers
    arrays = net.arrays(1, 23, seed=1)
    if arrays["x"].dtype != np.float32 or name == "MatMulNBits in integers":
        return  # levels are numbers; rounded to levels, ONNX Runtime makes a number of a NaN
    flat = arrays["x"].reshape(23, -1)
    flat[3, 5] = np.nan
    if name == "MatMulNBits":
        flat[17, 0], flat[22, 1] = np.inf, -np.inf
    _assert_same(*net.run(arrays))


def _assert_same(found: Array, expected: Array) -> None:
    """Compare integers exactly, float32 within the rounding of its sums."""
    assert found.shape == expected.shape and found.dtype == expected.dtype
    if found.dtype == np.float32:
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=2e-4)
    else:
        np.testing.assert_array_equal(found, expected)


def _by_numpy(name: str, x: Array, given: dict[str, Array]) -> Array:
    """Return the result by sums in 64 bits, or of numbers in float64."""
    weights = given["w"]
    if name.startswith("MatMulNBits"):
        return _by_blocks(name, x, given)
    zero_w = given["zero_w"].astype(np.int64)
    if name == "QGemm":
        weights = weights.T
    if name == "DynamicQuantizeMatMul":
        levels, scale, zero_x = measured_levels(x)
    else:
        levels, scale, zero_x = x, given["scale_x"], int(given["zero_x"])
    sums = (levels.astype(np.int64) - zero_x) @ (weights.astype(np.int64) - zero_w)
    if name in _RESULTS:
        sums = sums + given["b"] if name == "QGemm" else sums
        factor = np.float32(scale) * given["scale_w"] / given["scale_y"]
        made = np.rint(np.clip(sums.astype(np.float32) * factor, -1e6, 1e6)) + given["zero_y"]
        return np.clip(made, 0, 255).astype(np.uint8)
    numbers = sums.astype(np.float32) * (np.float32(scale) * given["scale_w"]) + given["b"]
    return np.maximum(numbers, 0)


def _by_blocks(name: str, x: Array, given: dict[str, Array]) -> Array:
    """Return the result by weights in blocks of 32 with a scale each."""
    columns, blocks, size = given["w"].shape
    if size == 16:
        levels = np.stack([given["w"] & 15, given["w"] >> 4], -1).reshape(columns, blocks, 32)
        centred = levels.astype(np.float64) - 8
    else:
        centred = given["w"].astype(np.float64) - 128
    scaled = centred * given["scale_w"].reshape(columns, blocks, 1)
    depth = x.shape[-1]
    if name == "MatMulNBits in integers":
        padded = np.zeros((*x.shape[:-1], 32 * blocks))
        padded[..., :depth] = x
        apart = padded.reshape(*x.shape[:-1], blocks, 32)
        largest = np.abs(apart).max(-1, keepdims=True)
        factor = np.divide(127, largest, out=np.zeros_like(largest), where=largest > 0)
        x = (np.rint(apart * factor) * largest / 127).reshape(padded.shape)[..., :depth]
    made = x.astype(np.float64) @ scaled.reshape(columns, -1)[:, :depth].T
    return np.maximum(made, 0).astype(np.float32)


def test_levels_of_all_rows_are_never_cut_into_blocks(target: Target) -> None:
    inputs, body, weights = _INTEGERS["DynamicQuantizeMatMul"]
    graph, shapes, parts = opened(parsed(inputs, body, weights=weights), _EXTENTS)
    rows = find_open_rows(graph, parts.regions[-1], shapes)
    assert isinstance(rows, OpenRows) and not rows.are_apart and rows.opened is not None


@pytest.mark.parametrize("name", ["QLinearMatMul", "MatMulIntegerToFloat", "MatMulNBits"])
def test_integers_are_the_same_in_blocks(
    name: str, tmp_path: Path, target: Target, toolchain: Toolchain
) -> None:
    make = partial(_integers_of, without={}, are_open=False)
    net = _Net(name, tmp_path, target, toolchain, make)
    for length in (1, 2, 15, 16, 17, 31, 33):
        _assert_same(*net.run(net.arrays(1, length, seed=length)))


@pytest.mark.parametrize("name", ["chain", "softmax", "norm"])
def test_what_is_no_product_is_cut_into_blocks(name: str, target: Target) -> None:
    inputs, body, weights = _NETS[name]
    graph, shapes, parts = opened(parsed(inputs, body, weights=weights), _EXTENTS)
    rows = find_open_rows(graph, parts.regions[-1], shapes)
    assert isinstance(rows, OpenRows) and rows.opened is None
    assert open_product(rows, _blocks_of(rows, target), lambda *_: "") is None


def _session(model: bytes, library: Path | None = None) -> ort.InferenceSession:
    return open_session(model, session_options(threads=2, optimize=False, library=library))


def _blocks_of(rows: OpenRows, target: Target) -> list[RowBlock]:
    blocks = []
    for count, us in _BLOCKS.items():
        workload = rows.of(count)
        assert workload is not None
        source = first_guess(replace(rows.region, workload=workload), target)
        blocks.append(RowBlock(rows=count, source=source, us=us))
    return blocks


def _open_kernel_of(rows: OpenRows, target: Target) -> BlockKernel:
    found = open_product(rows, _blocks_of(rows, target), lambda *_: "")
    assert found is not None
    return found


def _kernel_of(rows: OpenRows, target: Target) -> RowKernel:
    return _of_blocks(rows, _blocks_of(rows, target))


def _of_blocks(rows: OpenRows, blocks: list[RowBlock]) -> RowKernel:
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
        assert net.agrees(net.arrays(1, count)), count


@given(st.integers(1, 9), st.integers(1, 40), st.integers(0, 99))
def test_leading_dimensions_of_any_extents_are_right(
    net: _Net, batch: int, length: int, seed: int
) -> None:
    assert net.agrees(net.arrays(batch, length, seed))


def test_special_values_stay_in_their_rows(net: _Net) -> None:
    arrays = net.arrays(1, 23, seed=1)
    flat = arrays["x"].reshape(23, -1)
    flat[3, 5], flat[17, 0], flat[22, 1] = np.nan, np.inf, -np.inf
    found, expected = net.run(arrays)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_blocks_keep_their_weights_once(
    target: Target, toolchain: Toolchain, tmp_path: Path
) -> None:
    net = _Net("product", tmp_path, target, toolchain)
    table = kernel_table([net.kernel], target)
    assert _packed_forms(table) == 1


def test_square_weights_by_rows_and_by_columns_are_two_forms(target: Target) -> None:
    body = "t = MatMul(x, w) y = Gemm <transB = 1> (t, u)"
    model = parsed("float[N,24] x", body, weights="float[24,24] w, float[24,24] u")
    graph, shapes, parts = opened(model, _EXTENTS)
    found = [find_open_rows(graph, region, shapes) for region in parts.regions]
    kernels = [_kernel_of(rows, target) for rows in found if isinstance(rows, OpenRows)]
    assert len(kernels) == 2
    assert _packed_forms(kernel_table(kernels, target)) == 2


def test_constants_of_other_ranks_make_kernels_of_their_own(
    target: Target, toolchain: Toolchain, tmp_path: Path
) -> None:
    kernels = []
    for weights in ("float[1,24] b", "float[1,1,24] b"):
        model = parsed("float[N,S,T,24] x", "t = Mul(x, b) y = Sigmoid(t)", weights=weights)
        graph, shapes, parts = opened(model, {**_EXTENTS, "T": 2})
        rows = find_open_rows(graph, parts.regions[-1], shapes)
        assert isinstance(rows, OpenRows) and rows.open_rank == 3
        kernels.append(_kernel_of(rows, target))
    assert kernels[0].parts == kernels[1].parts
    assert kernels[0].name != kernels[1].name
    file = tmp_path / "rows.so"
    assert linked(kernels, target=target, toolchain=toolchain, file=file).exists()


def _packed_forms(table: str) -> int:
    return sum("static const aoe_packing" in line for line in table.splitlines())
