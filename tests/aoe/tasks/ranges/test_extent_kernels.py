"""Kernels for open extents compute attention as ONNX Runtime does, whatever the extents."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import numpy_helper
from support.engine.built_kernels import linked
from support.engine.cpu import open_session
from support.engine.offline import first_guess
from support.engine.open_rows import attention_of, opened, parsed
from support.tiers import few_every_day

from aoe.device.compiler import KernelSource, RowBlock, extent_kernel
from aoe.device.toolchain import Toolchain
from aoe.graph.open_extents import OpenRegion, find_open_region
from aoe.graph.rewrite import Replacement, rewrite
from aoe.kernels.family import KernelTarget, SizedTile
from aoe.kernels.halide.apply import legal_steps
from aoe.kernels.matmul.shape import PANEL
from aoe.kernels.registry import OPEN_EXTENTS, get_family
from aoe.ort.sessions import session_options
from aoe.schedule import Configuration
from aoe.target import Target

Array = NDArray[Any]
_LARGEST = {"N": 3, "Q": 130, "K": 50}
_SERVES_FROM = {100: 48, 16: 5}
"""Queries from which on the blocks serve that could serve fewer than they are searched for."""
_GUARD = "n = IsNaN(p) w = Where(n, zero, p)"
_SPLIT = """qs = Reshape(qj, depths) ks = Reshape(kj, depths) vs = Reshape(vj, columns)
q = Transpose <perm = [0, 2, 1, 3]> (qs) k = Transpose <perm = [{perm}]> (ks)
v = Transpose <perm = [0, 2, 1, 3]> (vs)"""
_JOIN = "m2 = Transpose <perm = [0, 2, 1, 3]> (r) y = Reshape(m2, all)"


@dataclass(frozen=True, kw_only=True)
class _Form:
    """One way attention is written."""

    queries: str = "Q"  # Their number, or its name
    keys: str = "Q"  # Name of the number of keys, that of the queries where they are the same
    turned: bool = False  # True for keys stored row by row
    mask: str = ""  # Shape of what is added to the scores, "" for none
    where: str = ""  # A Where that reads a mask of booleans of that shape, instead of adding one
    guarded: bool = False  # True if weights that are no numbers become zeros
    joined: bool = False  # True for heads side by side, split and joined by Reshapes and Transposes
    depth: int = 8  # Elements of a key
    columns: int = 20  # Elements of a value

    @cached_property
    def model(self) -> onnx.ModelProto:
        depth, columns, keys = self.depth, self.columns, self.keys
        stored = f"{keys},{depth}" if self.turned else f"{depth},{keys}"
        inputs = [
            f"float[N,3,{self.queries},{depth}] q, float[N,3,{stored}] k",
            f"float[N,3,{keys},{columns}] v",
        ]
        if self.joined:
            inputs = [
                f"float[N,Q,{3 * depth}] qj, float[N,{keys},{3 * depth}] kj",
                f"float[N,{keys},{3 * columns}] vj",
            ]
        inputs += [f"{'bool' if self.where else 'float'}[{self.mask}] m"] if self.mask else []
        turned = ", transB = 1" if self.turned else ""
        body = [_SPLIT.format(perm="0, 2, 1, 3" if self.turned else "0, 2, 3, 1")]
        body = body if self.joined else []
        body += [f"s = com.microsoft.FusedMatMul <alpha = 0.25{turned}> (q, k)"]
        masked = self.where or "Add(s, m)"
        body += [f"t = {masked} p = Softmax(t)" if self.mask else "p = Softmax(s)"]
        body += [_GUARD] if self.guarded else []
        product = f"MatMul({'w' if self.guarded else 'p'}, v)"
        body += [f"r = {product}", _JOIN] if self.joined else [f"y = {product}"]
        model = parsed(", ".join(inputs), " ".join(body))
        shapes = {"depths": [0, 0, 3, depth], "columns": [0, 0, 3, columns]}
        shapes |= {"all": [0, 0, 3 * columns]}
        constants = {name: np.array(shape) for name, shape in shapes.items()}
        scalars: dict[str, Any] = {
            "zero": 0.0,
            "low": -np.inf,
            "lows": [[[[-np.inf]]]],
            "far": -1e4,
        }
        constants |= {name: np.array(value, np.float32) for name, value in scalars.items()}
        for name, value in constants.items():
            model.graph.initializer.append(numpy_helper.from_array(value, name))
        return model

    def inputs(self, batch: int, queries: int, keys: int, seed: int = 0) -> dict[str, Array]:
        known = {"N": batch, "Q": queries, self.keys: queries if self.keys == "Q" else keys}
        rng = np.random.default_rng(seed)
        found = {}
        for value in self.model.graph.input:
            dims = value.type.tensor_type.shape.dim
            shape = [known[dim.dim_param] if dim.dim_param else dim.dim_value for dim in dims]
            drawn = rng.standard_normal(shape).astype(np.float32)
            found[value.name] = drawn > 0.0 if self.where and value.name == "m" else drawn
        return found

    def exact(self, inputs: dict[str, Array]) -> Array:
        """Return the result in float64."""
        q, k, v = (_heads(inputs, name) for name in "qkv")
        by_rows = self.turned or self.joined
        scores = 0.25 * (q @ (np.swapaxes(k, -1, -2) if by_rows else k))
        if self.where:
            is_kept = inputs["m"] if "s, low" in self.where else ~inputs["m"]
            scores = np.where(is_kept, scores, -np.inf if "low" in self.where else -1e4)
        else:
            scores = scores + inputs.get("m", 0.0)
        grown = np.exp(scores - scores.max(axis=-1, keepdims=True))
        result = (grown / grown.sum(axis=-1, keepdims=True)) @ v
        return _joined(result) if self.joined else result


def _heads(inputs: dict[str, Array], name: str) -> Array:
    """Return an input in float64, with heads before rows."""
    if name in inputs:
        return inputs[name].astype(np.float64)
    joined = inputs[f"{name}j"].astype(np.float64)
    return np.swapaxes(joined.reshape(*joined.shape[:2], 3, joined.shape[2] // 3), 1, 2)


def _joined(heads: Array) -> Array:
    apart = np.swapaxes(heads, 1, 2)
    return apart.reshape(*apart.shape[:2], -1)


_FORMS = {
    "guarded": _Form(mask="Q,Q", guarded=True),
    "cached": _Form(keys="K", turned=True, mask="1,1,Q,K"),
    "chosen": _Form(keys="K", turned=True, mask="N,1,Q,K", where="Where(m, s, lows)"),
    "heads joined": _Form(mask="N,1,1,Q", joined=True),
    "decoding": _Form(queries="1", keys="K", turned=True, mask="N,1,1,K"),
    "bare": _Form(),
    "keys row by row": _Form(turned=True, mask="N,1,1,Q"),
    "cross": _Form(keys="K", mask="N,1,Q,K"),
    "masked": _Form(mask="Q,Q", where="Where(m, far, s)", joined=True),
    "decoding, chosen": _Form(
        queries="1", keys="K", turned=True, mask="N,1,1,K", where="Where(m, s, low)"
    ),
    "cached, heads joined": _Form(keys="K", turned=True, joined=True),
    "odd heads": _Form(mask="N,1,1,Q", joined=True, depth=9, columns=37),
}


class _Net:
    """A network whose attention is a kernel for open extents, and the same without.

    Args:
        form: How attention is written.
        folder: Of compiled files.
        target: What is compiled for.
        toolchain: The C compiler.
        tiles: A configuration of the block of 16 queries, which is all there is besides that of
            one then; the first guess of every block by default.
    """

    def __init__(
        self,
        form: _Form,
        folder: Path,
        target: Target,
        toolchain: Toolchain,
        tiles: Configuration | None = None,
    ) -> None:
        self.form = form
        graph, shapes, parts = opened(form.model, _LARGEST)
        found = find_open_region(graph, attention_of(graph, parts), shapes)
        assert isinstance(found, OpenRegion), found
        kernel = extent_kernel(
            _blocks(found, target) if tiles is None else _tiled_blocks(found, target, tiles),
            shapes=found.stored,
            layouts=found.layouts,
            rows_dimension=found.layouts[-1][found.rows_dimension].source,
        )
        library = linked([kernel], target=target, toolchain=toolchain, file=folder / "extents.so")
        replaced = Replacement(region=found.region, kernel=kernel.name, shape=found.stored[-1])
        tuned = rewrite(graph, [replaced])
        assert [node.domain for node in tuned.graph.node] == ["aoe"]
        self._tuned = _session(tuned.SerializeToString(), library)
        self._default = _session(form.model.SerializeToString())

    def results(self, inputs: dict[str, Array]) -> tuple[Array, Array]:
        """Return the result of the kernel, and ONNX Runtime's own."""
        found, expected = (one.run(None, inputs)[0] for one in (self._tuned, self._default))
        assert found.shape == expected.shape
        return found, expected

    def agrees(self, batch: int, queries: int, keys: int, seed: int = 0) -> bool:
        inputs = self.form.inputs(batch, queries, keys, seed)
        found, expected = self.results(inputs)
        with np.errstate(invalid="ignore"):  # of queries whose keys are all masked
            exact = self.form.exact(inputs)
        same = {"rtol": 1e-4, "atol": 1e-5, "equal_nan": bool(self.form.where)}
        return all(np.allclose(found, one, **same) for one in (expected, exact))


def _blocks(found: OpenRegion, target: Target) -> list[RowBlock]:
    """Return the blocks by first guesses, those in tiles for a few queries already."""
    blocks = [_block(found, rows, target) for rows in found.block_rows(_LARGEST["Q"])]
    assert all(_least(one) <= _SERVES_FROM.get(one.rows, one.rows) for one in blocks)
    return [replace(one, rows=_SERVES_FROM.get(one.rows, one.rows)) for one in blocks]


def _tiled_blocks(found: OpenRegion, target: Target, tiles: Configuration) -> list[RowBlock]:
    """Return that of 16 queries in a configuration, for as few as it computes, and that of one."""
    tiled, single = _block(found, 16, target, tiles), _block(found, 1, target)
    assert _least(tiled) == min(4, tiles["rows"])  # the lowest tile, not a task of several
    return [replace(tiled, rows=_least(tiled)), single]


def _block(
    found: OpenRegion, rows: int, target: Target, tiles: Configuration | None = None
) -> RowBlock:
    workload = found.of(rows)
    assert workload is not None
    fixed = first_guess(replace(found.region, workload=workload), target).schedule
    if tiles is not None:
        family = get_family(workload.op_type)
        fixed = family.schedule(workload, tiles, KernelTarget.of(target))
    schedule = OPEN_EXTENTS[workload.op_type].schedule(workload, fixed)
    return RowBlock(rows=rows, source=KernelSource.of(workload, schedule), us=1.0)


def _least(block: RowBlock) -> int:
    workload = block.source.workload
    return OPEN_EXTENTS[workload.op_type].least_rows(workload, block.source.schedule)


def _session(model: bytes, library: Path | None = None) -> ort.InferenceSession:
    return open_session(model, session_options(threads=2, optimize=False, library=library))


@pytest.fixture(scope="module", params=few_every_day(_FORMS, 5))
def net(
    request: pytest.FixtureRequest,
    target: Target,
    toolchain: Toolchain,
    tmp_path_factory: pytest.TempPathFactory,
) -> _Net:
    folder = tmp_path_factory.mktemp("extents")
    return _Net(_FORMS[request.param], folder, target, toolchain)


def test_small_extents_are_right_one_and_all(net: _Net) -> None:
    keys = (1,) if net.form.keys == "Q" else (1, 2, 15, 16, 17, 33)
    for queries, longer in product(range(1, 35), keys):
        assert net.agrees(1 + queries % 2, queries, longer), (queries, longer)


@pytest.mark.parametrize(("rows", "tiles"), few_every_day([(4, 4), (3, 5), (8, 2), (10, 1)], 2))
def test_tasks_end_with_a_shifted_tile(
    rows: int, tiles: int, target: Target, toolchain: Toolchain, tmp_path: Path
) -> None:
    tuned = {"blocks": 1, "rows": rows, "tiles": tiles}
    net = _Net(_FORMS["cross"], tmp_path, target, toolchain, tuned)
    for queries in (*range(1, 35), 47, 48, 49, 64, 65, 127):
        assert net.agrees(1, queries, 21), queries


def test_every_length_of_a_text_is_right(net: _Net) -> None:
    for length in range(1, 131):
        assert net.agrees(1, length, length), length


@given(st.integers(1, 5), st.integers(1, 140), st.integers(1, 300), st.integers(0, 99))
def test_any_extents_are_right(net: _Net, batch: int, queries: int, keys: int, seed: int) -> None:
    assert net.agrees(batch, queries, keys, seed)


@pytest.mark.parametrize("queries", [1, 5, 6, 13, 23, 40, 65])
def test_special_values_are_those_of_onnx_runtime(net: _Net, queries: int) -> None:
    inputs = net.form.inputs(2, queries, 19, seed=1)
    asked = inputs.get("q", inputs.get("qj"))
    assert asked is not None
    asked[1, ..., asked.shape[-2] // 2, 3] = np.nan
    asked[0, ..., -1, 0] = np.inf
    if "m" in inputs:
        mask = inputs["m"]
        masked: float | bool = "Where(m, s" not in net.form.where if net.form.where else -np.inf
        mask[..., 0] = masked
        (mask[0] if mask.ndim > 2 else mask)[..., -1, :] = masked  # queries with all keys masked
    found, expected = net.results(inputs)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("queries", [3, 6, 17, 33, 64])
def test_masked_keys_may_hold_anything(net: _Net, queries: int) -> None:
    if "m" not in net.form.inputs(1, queries, 19):
        pytest.skip("no mask")
    inputs = net.form.inputs(1, queries, 19, seed=2)
    name = "k" if "k" in inputs else "kj"
    key = (..., -1, slice(None)) if net.form.turned or net.form.joined else (..., -1)
    inputs[name][key] = np.inf
    inputs[name][(*key[:-1], 0) if key[-1] == slice(None) else (..., 0, -1)] = np.nan
    mask = inputs["m"]
    masked: float | bool = "Where(m, s" not in net.form.where if net.form.where else -np.inf
    mask[..., -1] = masked
    found, expected = net.results(inputs)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("batch", "queries", "keys"), [(0, 3, 3), (2, 0, 3), (2, 3, 0)])
def test_nothing_is_computed_of_nothing(net: _Net, batch: int, queries: int, keys: int) -> None:
    found, expected = net.results(net.form.inputs(batch, queries, keys))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_inputs_that_contradict_each_other_are_refused(net: _Net) -> None:
    inputs = net.form.inputs(1, 6, 6)
    name = "vj" if net.form.joined else "v"
    inputs[name] = inputs[name][..., :5, :]
    with pytest.raises(Exception, match="shapes of inputs contradict"):
        net.results(inputs)


def _tiles(rows: int, target: KernelTarget) -> list[SizedTile]:
    """Return the register tiles of the block for so many queries, that of its schedule first."""
    graph, shapes, parts = opened(_Form(depth=64, columns=64).model, _LARGEST)
    found = find_open_region(graph, attention_of(graph, parts), shapes)
    assert isinstance(found, OpenRegion)
    workload = found.of(rows)
    assert workload is not None
    family, open_family = get_family(workload.op_type), OPEN_EXTENTS[workload.op_type]
    guess = Configuration(family.space(workload, target).first_guesses[0])
    schedule = open_family.schedule(workload, family.schedule(workload, guess, target))
    pipeline = family.pipeline(workload, schedule.algorithm)
    assert pipeline.tiled is not None
    tiles = list(pipeline.tiled.tiles(schedule, target))
    assert tiles[0].schedule == schedule
    assert min(tile.rows for tile in tiles) == open_family.least_rows(workload, schedule)
    for one in tiles:
        legal_steps(pipeline, one.schedule)
    return tiles


def _served(tiles: list[SizedTile], length: int) -> SizedTile:
    """Return the tile that costs least for so many queries and keys, as the glue chooses."""

    def cost(tile: SizedTile) -> float:
        across = -(-length // tile.size) * tile.cost + length * tile.rest
        return -(-length // tile.rows) * across

    return min((tile for tile in tiles if tile.rows <= length), key=cost)


@pytest.mark.parametrize("lanes", [16, 8, 4])
@pytest.mark.parametrize("rows", [16, 100])
def test_tiles_are_several_and_have_names(rows: int, lanes: int) -> None:
    tiles = _tiles(rows, KernelTarget(vector_lanes=lanes, threads=1))
    assert len({(one.rows, one.size) for one in tiles}) == len(tiles)
    assert 1 < len(tiles) <= 10  # files of variants have one digit


def test_few_tokens_are_computed_in_tiles_of_so_many() -> None:
    tiles = _tiles(16, KernelTarget(vector_lanes=16, threads=1))
    served = {length: _served(tiles, length) for length in range(4, 49)}
    computed = {at: -(-at // tile.rows) * tile.rows for at, tile in served.items()}
    assert all(computed[at] == at for at in (*range(4, 13), 14, 16, 20, 24))
    assert all(computed[at] <= at + 5 for at in computed)
    assert all(one.size == PANEL for at, one in served.items() if at <= PANEL)


def test_tiles_of_scores_are_as_wide_as_a_call_needs() -> None:
    tiles = _tiles(100, KernelTarget(vector_lanes=16, threads=1))
    computed = {
        keys: -(-keys // (size := _served(tiles, keys).size)) * size for keys in range(40, 200)
    }
    assert all(computed[keys] < keys + 3 * PANEL for keys in computed)
    assert all(computed[keys] == keys for keys in (48, 64, 80, 96, 128))
