"""Kernels for images of any size compute what ONNX Runtime does, whatever the size."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper
from onnx.numpy_helper import to_array
from support.engine.built_kernels import linked
from support.engine.cpu import CPU, open_session
from support.engine.open_rows import parsed

from aoe.bank.operators import key_of
from aoe.device.compiler import (
    KernelSource,
    check_kernel,
    image_kernel,
)
from aoe.device.toolchain import Toolchain
from aoe.errors import ScheduleError
from aoe.graph.extents import OpenShape, find_shape_at
from aoe.graph.model_graph import ModelGraph
from aoe.graph.open_images import OpenImages, find_fixed_images, find_open_images
from aoe.graph.origins import Origins
from aoe.graph.regions import Region, partition
from aoe.graph.rewrite import Replacement, rewrite
from aoe.kernels.algorithms import KNOB
from aoe.kernels.family import KernelTarget
from aoe.kernels.halide.apply import apply_schedule
from aoe.kernels.halide.chain import RESULT
from aoe.kernels.halide.open_extents import opened, variants_of
from aoe.kernels.registry import FUSIBLE, anchors, classify, get_family
from aoe.ort.open_shapes import infer_open_tensors, tensors_at
from aoe.ort.profile import ModelProfile
from aoe.ort.sessions import session_options
from aoe.schedule import Parallel, Schedule, Split, Tail
from aoe.target import Target
from aoe.tasks.operators.operators import find_operators
from aoe.tasks.ranges.open_operators import find_image_operators
from aoe.tuner.search.book import opening
from aoe.workload import Workload, workload_from_json, workload_to_json

_POINT = {"N": 2, "H": 34, "W": 30}
_ODD_POINT = {"N": 2, "H": 35, "W": 31}
_FIXED = ({"N": 1, "H": 12, "W": 13}, {"N": 2, "H": 64, "W": 65})
"""Sizes among those of `test_every_size_is_right`."""
_FIRST = "a = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x, f)"
_SILU = "s = Sigmoid(c) y = Mul(c, s)"


def _resize(
    of: str, made: str, mode: str, coordinates: str, rows: float = 2, columns: float = 2
) -> str:
    """Return a Resize by constant scales; to the nearest it takes the element below."""
    rounding = ', nearest_mode = "floor"' if coordinates == "asymmetric" else ""
    return f"""k{made} = Constant <value = float[4] {{1., 1., {rows:.1f}, {columns:.1f}}}> ()
        {made} = Resize <mode = "{mode}", coordinate_transformation_mode = "{coordinates}"
        {rounding}> ({of}, , k{made})"""


_NETS = {
    "residual": (
        f"""{_FIRST} c = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (a, w, b)
        s = Sigmoid(c) m = Mul(c, s) y = Add(m, a)""",
        "float[16,3,3,3] f, float[16,16,3,3] w, float[16] b",
    ),
    "strides": (
        f"""{_FIRST} c = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1], strides = [2, 2]>
        (a, w, b) {_SILU}""",
        "float[16,3,3,3] f, float[32,16,3,3] w, float[32] b",
    ),
    "single_row": (
        f"{_FIRST} c = Conv <kernel_shape = [1, 3], pads = [0, 1, 0, 1]> (a, w, b) {_SILU}",
        "float[16,3,3,3] f, float[32,16,1,3] w, float[32] b",
    ),
    "single_column": (
        f"{_FIRST} c = Conv <kernel_shape = [7, 1], pads = [3, 0, 3, 0]> (a, w, b) {_SILU}",
        "float[16,3,3,3] f, float[32,16,7,1] w, float[32] b",
    ),
    "pointwise": (
        f"{_FIRST} c = Conv <kernel_shape = [1, 1]> (a, w, b) y = HardSwish(c)",
        "float[16,3,3,3] f, float[32,16,1,1] w, float[32] b",
    ),
    "depthwise": (
        f"""{_FIRST} c = Conv <group = 16, kernel_shape = [5, 5], pads = [2, 2, 2, 2]> (a, w, b)
        {_SILU}""",
        "float[16,3,3,3] f, float[16,1,5,5] w, float[16] b",
    ),
    "stem": (
        f"""c = Conv <kernel_shape = [6, 6], pads = [2, 2, 2, 2], strides = [2, 2]> (x, w, b)
        {_SILU}""",
        "float[16,3,6,6] w, float[16] b",
    ),
    "largest": (
        f"{_FIRST} y = MaxPool <kernel_shape = [3, 3], pads = [1, 1, 1, 1], strides = [2, 2]> (a)",
        "float[16,3,3,3] f",
    ),
    "mean": (
        f"""{_FIRST} y = AveragePool <kernel_shape = [5, 5], pads = [2, 2, 2, 2],
        count_include_pad = 0> (a)""",
        "float[16,3,3,3] f",
    ),
    "pooled": (
        f"""{_FIRST} c = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (a, w, b) d = Relu(c)
        y = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (d)""",
        "float[16,3,3,3] f, float[16,16,3,3] w, float[16] b",
    ),
    "rounded_up": (
        f"{_FIRST} y = MaxPool <kernel_shape = [2, 2], strides = [2, 2], ceil_mode = 1> (a)",
        "float[16,3,3,3] f",
    ),
    "rounded_up_mean": (
        f"""{_FIRST} y = AveragePool <kernel_shape = [3, 3], strides = [2, 2], ceil_mode = 1,
        pads = [1, 1, 0, 0]> (a)""",
        "float[16,3,3,3] f",
    ),
    "same": (
        f"""{_FIRST} y = MaxPool <kernel_shape = [2, 2], strides = [2, 2],
        auto_pad = "SAME_UPPER"> (a)""",
        "float[16,3,3,3] f",
    ),
    "same_mean": (
        f"""{_FIRST} y = AveragePool <kernel_shape = [4, 3], auto_pad = "SAME_LOWER"> (a)""",
        "float[16,3,3,3] f",
    ),
    "same_filters": (
        f"""{_FIRST} c = Conv <kernel_shape = [3, 3], auto_pad = "SAME_UPPER"> (a, w, b)
        {_SILU}""",
        "float[16,3,3,3] f, float[16,16,3,3] w, float[16] b",
    ),
    "edges": (
        """a = AveragePool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x)
        b = Sub(a, x) y = Relu(b)""",
        "",
    ),
    "nearest": (
        f"{_FIRST} {_resize('a', 'c', 'nearest', 'asymmetric', 2, 3)} {_SILU}",
        "float[16,3,3,3] f",
    ),
    "corners": (
        f"{_FIRST} {_resize('a', 'c', 'linear', 'align_corners', 3, 2)} {_SILU}",
        "float[16,3,3,3] f",
    ),
    "asymmetric": (
        f"{_FIRST} {_resize('a', 'c', 'linear', 'asymmetric', 2, 4)} y = Relu(c)",
        "float[16,3,3,3] f",
    ),
    "plain_nearest": (f"{_resize('x', 'c', 'nearest', 'half_pixel')} {_SILU}", ""),
    "plain_nearest_5": (f"{_resize('x', 'c', 'nearest', 'half_pixel', 1, 5)} {_SILU}", ""),
    "plain_rows": (f"{_resize('x', 'c', 'nearest', 'asymmetric', 3, 1)} {_SILU}", ""),
    "plain_linear": (f"{_resize('x', 'c', 'linear', 'half_pixel', 2, 4)} {_SILU}", ""),
    "plain_corners": (f"{_resize('x', 'c', 'linear', 'align_corners')} {_SILU}", ""),
    "plain_cubic": (f"{_resize('x', 'c', 'cubic', 'half_pixel')} {_SILU}", ""),
    "plain_joined": (
        f"""{_resize("x", "c", "linear", "pytorch_half_pixel")}
        {_resize("x", "d", "nearest", "asymmetric")} y = Add(c, d)""",
        "",
    ),
    "transposed": (
        "c = ConvTranspose <kernel_shape = [2, 2], strides = [2, 2]> (x, w, b) y = LeakyRelu(c)",
        "float[3,20,2,2] w, float[20] b",
    ),
    "transposed_far": (
        f"""c = ConvTranspose <kernel_shape = [3, 4], strides = [2, 3], pads = [1, 2, 1, 1],
        output_padding = [1, 2]> (x, w, b) {_SILU}""",
        "float[3,6,3,4] w, float[6] b",
    ),
    "plain": (
        f"""a = Conv <kernel_shape = [1, 1]> (x, f)
        c = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (a, w, b) {_SILU}""",
        "float[18,3,1,1] f, float[7,18,3,3] w, float[7] b",
    ),
    "plain_strides": (
        """a = Conv <kernel_shape = [1, 1]> (x, f)
        c = Conv <kernel_shape = [3, 2], pads = [1, 0, 1, 1], strides = [2, 3]> (a, w, b)
        y = Relu(c)""",
        "float[18,3,1,1] f, float[7,18,3,2] w, float[7] b",
    ),
    "plain_pointwise": (
        f"a = Conv <kernel_shape = [1, 1]> (x, f) c = Conv <kernel_shape = [1, 1]> (a, w) {_SILU}",
        "float[18,3,1,1] f, float[19,18,1,1] w",
    ),
    "normalized": (
        f"""{_FIRST} n = InstanceNormalization(a, s, b) r = LeakyRelu(n)
        y = Conv <kernel_shape = [1, 1]> (r, w)""",
        "float[16,3,3,3] f, float[16] s, float[16] b, float[16,16,1,1] w",
    ),
    "plain_normalized": (
        "n = InstanceNormalization(x, s, b) y = LeakyRelu(n)",
        "float[3] s, float[3] b",
    ),
    "plain_normalized_sum": (
        "a = Add(x, s) n = InstanceNormalization(a, s1, b) y = Mul(n, x)",
        "float[3,1,1] s, float[3] s1, float[3] b",
    ),
    "joined": (
        """u = ConvTranspose <kernel_shape = [1, 1]> (x, w)
        t = ConvTranspose <kernel_shape = [1, 1]> (x, f) j = Concat <axis = 1> (u, t)
        y = Conv <kernel_shape = [1, 1]> (j, v)""",
        "float[3,24,1,1] w, float[3,8,1,1] f, float[16,32,1,1] v",
    ),
    "joined_out_of_blocks": (
        f"""{_FIRST} u = ConvTranspose <kernel_shape = [1, 1]> (x, w) t = Relu(a)
        j = Concat <axis = 1> (u, x, t) y = Conv <kernel_shape = [1, 1]> (j, v)""",
        "float[16,3,3,3] f, float[3,13,1,1] w, float[16,32,1,1] v",
    ),
    "joined_blocks": (
        f"{_FIRST} t = Relu(a) j = Concat <axis = 1> (t, a) y = Sigmoid(j)",
        "float[16,3,3,3] f",
    ),
    "plain_joined_images": (
        "s = Sigmoid(x) j = Concat <axis = 1> (x, s, x) m = Mul(j, g) y = LeakyRelu(m)",
        "float[9,1,1] g",
    ),
    "kept": ("s = Abs(x) j = Concat <axis = 1> (x, s, x) y = Neg(j)", ""),
    "parted": (
        "a, b = Split <axis = 1> (x, i1_2) s = Sigmoid(b) m = Mul(a, s) y = PRelu(m, p)",
        "float[2,1,1] p",
    ),
    "gate": (
        f"{_FIRST} g = GlobalAveragePool(a) h = Sigmoid(g) y = Mul(a, h)",
        "float[16,3,3,3] f",
    ),
}
_ALGORITHMS = {
    "residual": ("winograd_4x4", "winograd_2x2", "direct", "winograd_4x4+direct"),
    "strides": ("winograd_4x4_stride_2", "direct"),
    "single_row": ("winograd_1x4",),
    "single_column": ("winograd_4x1_taps_7",),
    "pointwise": ("direct",),
    "depthwise": ("depthwise", "depthwise+depthwise"),
    "stem": ("direct",),
    "largest": ("",),
    "mean": ("",),
    "pooled": ("winograd_4x4",),
    **dict.fromkeys(("rounded_up", "rounded_up_mean", "same", "same_mean"), ("",)),
    "same_filters": ("winograd_4x4",),
    "edges": ("",),
    "nearest": ("",),
    "corners": ("",),
    "asymmetric": ("",),
    "plain_nearest": ("",),
    "plain_nearest_5": ("",),
    "plain_rows": ("",),
    "plain_linear": ("",),
    "plain_corners": ("",),
    "plain_cubic": ("",),
    "plain_joined": ("",),
    "transposed": ("direct_rows", "direct_channels"),
    "transposed_far": ("direct_rows",),
    "plain": ("direct_rows", "direct_channels"),
    "plain_strides": ("direct_channels",),
    "plain_pointwise": ("direct_rows", "direct_channels"),
    "normalized": ("",),
    "plain_normalized": ("",),
    "plain_normalized_sum": ("",),
    "joined": ("",),
    "joined_out_of_blocks": ("",),
    "joined_blocks": ("",),
    "plain_joined_images": ("",),
    "kept": ("",),
    "parted": ("",),
    "gate": ("",),
}
_CASES = [(net, algorithm) for net, names in _ALGORITHMS.items() for algorithm in names]
_ANCHORS = {
    "normalized": "InstanceNormalization",
    "joined": "Concat",
    "joined_out_of_blocks": "Concat",
}
"""What the kernel of a network is built around, where it is not in its last region."""
_EVERYDAY = {
    ("residual", "winograd_4x4"),
    ("strides", "direct"),
    ("transposed", "direct_rows"),
    *((net, "") for net in ("largest", "gate", "nearest", "corners", "plain_linear")),
    *((net, "") for net in ("normalized", "joined", "rounded_up")),
}


def _optimized(name: str, folder: Path) -> onnx.ModelProto:
    """Return a network as ONNX Runtime optimises it, its batch, rows and columns open."""
    body, weights = _NETS[name]
    model = parsed("float[N,3,H,W] x", body, weights=weights)
    proto: onnx.ModelProto = CPU.optimize(model, folder / "optimized.onnx", threads=1)
    return proto


def _open_images(
    proto: onnx.ModelProto, extents: Mapping[str, int] = _POINT
) -> tuple[ModelGraph, dict[str, OpenShape], tuple[Region, ...]]:
    tensors = infer_open_tensors(proto, open_session)
    graph = ModelGraph(proto, tensors_at(tensors, extents), block=CPU.channel_block())
    parts = partition(graph, fusible=FUSIBLE, anchors=anchors(), classify=classify)
    return graph, {name: tensor.shape for name, tensor in tensors.items()}, parts.regions


def _chosen(name: str, graph: ModelGraph, regions: tuple[Region, ...]) -> Region:
    """Return the region of a network that gets a kernel."""
    anchor = _ANCHORS.get(name)
    found = [
        region
        for region in regions
        if anchor is None or anchor in {graph.nodes[at].op_type for at in region.nodes}
    ]
    return found[-1]


def _found(region: Region, shapes: dict[str, OpenShape]) -> OpenImages:
    found = find_open_images(region, shapes, _POINT)
    assert isinstance(found, OpenImages), found
    return found


def _source(workload: Workload, algorithm: str, target: Target, number: int = 0) -> KernelSource:
    """Return the kernel of an algorithm's n-th guess; of a family without any, its own."""
    family, facts = get_family(workload.op_type), KernelTarget.of(target)
    guesses = opening(family.space(workload, facts), ())
    own = [one for one in guesses if dict(one).get(KNOB, "") == algorithm.partition("+")[0]]
    return KernelSource.of(workload, family.schedule(workload, own[number], facts))


def _of_several(
    region: Region, shapes: dict[str, OpenShape], algorithms: str, target: Target
) -> KernelSource:
    """Return the kernel of two schedules, for large images and small ones, and of fixed sizes."""
    workload, (large, small) = _found(region, shapes).workload, algorithms.split("+")
    fixed = [
        _source(one, large, target)
        for extents in _FIXED
        if (one := find_fixed_images(region, shapes, extents)) is not None
    ]
    assert len(fixed) == len(_FIXED)
    found = {
        0: _source(workload, small, target, number=int(large == small)),
        2 * 16 * 13 * 13: _source(workload, large, target),
    }
    kernel = image_kernel(found, fixed)
    assert len({part.name for part in kernel.parts}) == len(found) + len(fixed)
    return kernel


class _Net:
    """A network with a kernel for images of any size in it, and the same without."""

    def __init__(
        self, name: str, algorithm: str, folder: Path, target: Target, toolchain: Toolchain
    ) -> None:
        self.proto = proto = _optimized(name, folder)
        graph, shapes, regions = _open_images(proto)
        region = _chosen(name, graph, regions)
        self.workload = _found(region, shapes).workload
        source = _source(self.workload, algorithm, target)
        if "+" in algorithm:
            source = _of_several(region, shapes, algorithm, target)
        library = linked([source], target=target, toolchain=toolchain, file=folder / "images.so")
        replaced = Replacement(region=region, kernel=source.name, shape=shapes[region.output])
        tuned = rewrite(graph, [replaced])
        self.tuned = _session(tuned, library)
        self.default = _session(proto)

    def parameters(self, op_type: str) -> list[onnx.TensorProto]:
        """Return the constants an operator reads."""
        node = next(node for node in self.proto.graph.node if node.op_type == op_type)
        known = {tensor.name: tensor for tensor in self.proto.graph.initializer}
        return [known[name] for name in node.input if name in known]

    def results(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return what the kernel and what ONNX Runtime makes of images."""
        found, expected = (one.run(None, {"x": x})[0] for one in (self.tuned, self.default))
        return found, expected


def _session(model: onnx.ModelProto, library: Path | None = None) -> ort.InferenceSession:
    options = session_options(threads=2, optimize=False, library=library)
    return open_session(model.SerializeToString(), options)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(case, id="-".join(case), marks=[] if case in _EVERYDAY else pytest.mark.slow)
        for case in _CASES
    ],
)
def net(
    request: pytest.FixtureRequest,
    target: Target,
    toolchain: Toolchain,
    tmp_path_factory: pytest.TempPathFactory,
) -> _Net:
    return _Net(*request.param, tmp_path_factory.mktemp("images"), target, toolchain)


def _images(batch: int, rows: int, columns: int) -> np.ndarray:
    rng = np.random.default_rng(rows * columns)
    return rng.standard_normal((batch, 3, rows, columns)).astype(np.float32)


def test_every_size_is_right(net: _Net) -> None:
    least = 2 if net.workload.op_type in ("convolution", "pooling", "elementwise") else 1
    every = range(least, 20)
    sizes = [(rows, columns) for rows in every for columns in (least, 3, 7, 13, 16, 29, 31)]
    for rows, columns in [*sizes, (64, 65), (127, 3), (2, 128), (97, 101)]:
        found, expected = net.results(_images(1 + rows % 3, rows, columns))
        assert found.shape == expected.shape
        np.testing.assert_allclose(
            found, expected, rtol=1e-3, atol=1e-3, err_msg=f"{rows}x{columns}"
        )


def test_special_values_stay_where_they_are(net: _Net) -> None:
    x = _images(2, 37, 41)
    x[0, 1, 3, 5], x[1, 2, 36, 40] = np.nan, np.inf
    found, expected = net.results(x)
    touched = ~np.isfinite(expected)
    assert np.all(~np.isfinite(found[touched]))
    # a transform spreads them over its tile, no further
    far = np.ones(expected.shape[2:], bool)
    for row, column in ((3, 5), (36, 40)):
        r, c = row * expected.shape[2] // 37, column * expected.shape[3] // 41
        far[max(0, r - 12) : r + 12, max(0, c - 12) : c + 12] = False
    np.testing.assert_allclose(found[:, :, far], expected[:, :, far], rtol=1e-3, atol=1e-3)


def test_no_images_make_no_images(net: _Net) -> None:
    found, expected = net.results(np.zeros((0, 3, 9, 9), np.float32))
    assert found.shape == expected.shape


@pytest.fixture
def build(target: Target, toolchain: Toolchain, tmp_path: Path) -> Callable[[str], _Net]:
    """Return a function that builds a network by its name, its kernel the first that is offered."""
    return lambda name: _Net(name, _ALGORITHMS[name][0], tmp_path, target, toolchain)


def test_moves_keep_special_values(build: Callable[[str], _Net]) -> None:
    kept = build("kept")
    for rows, columns in ((1, 1), (1, 7), (5, 3), (33, 31)):
        x = _images(2, rows, columns)
        x[0, 1, -1, -1], x[1, 0, 0, 0], x[1, 2, -1, 0] = np.nan, -np.inf, -0.0
        found, expected = kept.results(x)
        np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(
            np.signbit(found[found == 0]), np.signbit(expected[found == 0])
        )


def test_single_column_is_enlarged_by_itself(build: Callable[[str], _Net]) -> None:
    linear = build("plain_linear")
    for rows in (1, 2, 5, 31):
        x = _images(2, rows, 1)
        x[0, 1, rows // 2], x[1, 1, -1], x[1, 2, 0] = np.inf, np.nan, -np.inf
        found, expected = linear.results(x)
        assert np.isfinite(expected).any() and not np.isfinite(expected).all()
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3, err_msg=f"{rows} rows")


def test_normalisation_of_large_means_is_that_in_float64(build: Callable[[str], _Net]) -> None:
    normalized = build("plain_normalized")
    scale, bias = (
        to_array(tensor).reshape(1, 3, 1, 1).astype(np.float64)
        for tensor in normalized.parameters("InstanceNormalization")
    )
    for rows, columns in ((1, 1), (3, 5), (8, 8), (31, 37), (101, 64)):
        x = _images(2, rows, columns) + np.float32(3000)
        x[1, 2] = -7.0
        exact = x.astype(np.float64)
        away = exact - exact.mean(axis=(2, 3), keepdims=True)
        deviation = np.sqrt((away**2).mean(axis=(2, 3), keepdims=True) + 1e-5)
        expected = away / deviation * scale + bias
        expected = np.where(expected < 0, 0.01 * expected, expected)
        np.testing.assert_allclose(normalized.results(x)[0], expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    "body",
    [
        "y = Transpose <perm = [0, 1, 3, 2]> (x)",
        "y = Concat <axis = 2> (x, x)",
        "y = Concat <axis = 1> (x, x)",
        "y = ConvTranspose <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]> (x, w)",
        "y = MaxPool <kernel_shape = [1, 1], strides = [2, 2], ceil_mode = 1> (x)",
    ],
)
def test_what_gains_nothing_or_moves_pixels_stays_onnxruntimes(body: str, tmp_path: Path) -> None:
    weights = "float[3,8,3,3] w" if "(x, w)" in body else ""
    model = parsed("float[N,3,H,W] x", body, weights=weights)
    proto = CPU.optimize(model, tmp_path / "optimized.onnx", threads=1)
    assert _operators(proto) == ()


def test_pooling_of_cut_squares_is_no_part_of_a_convolution(tmp_path: Path) -> None:
    body, weights = _NETS["pooled"]
    model = parsed("float[N,3,H,W] x", body, weights=weights)
    model.graph.node[-1].attribute.append(helper.make_attribute("ceil_mode", 1))
    proto = CPU.optimize(model, tmp_path / "optimized.onnx", threads=1)
    _, shapes, regions = _open_images(proto)
    assert shapes["y"][2:] == ("(H+1)//2", "(W+1)//2")
    assert isinstance(find_open_images(regions[-1], shapes, _POINT), str)


@pytest.mark.parametrize("last", ["y = MaxPool <{}> (a)", f"c = Conv <{{}}> (a, w) {_SILU}"])
def test_windows_that_begin_elsewhere_in_other_images_stay_onnxruntimes(
    last: str, tmp_path: Path
) -> None:
    windows = 'kernel_shape = [3, 3], strides = [2, 2], auto_pad = "SAME_UPPER"'
    weights = "float[16,3,3,3] f, float[16,16,3,3] w"
    model = parsed("float[N,3,H,W] x", f"{_FIRST} {last.format(windows)}", weights=weights)
    proto = CPU.optimize(model, tmp_path / "optimized.onnx", threads=1)
    assert {"convolution", "pooling"}.isdisjoint(_operators(proto))


@pytest.mark.parametrize(
    ("pool", "last"),
    [("", "(H-10)//2"), ("ceil_mode = 1,", "(H-9)//2"), ('auto_pad = "SAME_UPPER",', "(H-9)//2")],
)
def test_network_without_padding_is_tuned_for_a_range_of_images(
    pool: str, last: str, tmp_path: Path
) -> None:
    """PNet of MTCNN, as exported from Keras: channels last, and windows inside of the image."""
    model = parsed("float[N,H,W,3] x", _PNET.replace("POOL", pool), weights=_PNET_WEIGHTS)
    model.graph.output.append(helper.make_tensor_value_info("box", TensorProto.FLOAT, None))
    proto = CPU.optimize(model, tmp_path / "optimized.onnx", threads=1)
    found = _operators(proto)
    assert {"pooling", "convolution"} <= set(found)
    tensors = infer_open_tensors(proto, open_session)
    shapes = {name: tensors[name].shape for name in ("box", "y")}
    columns = last.replace("H", "W")
    assert shapes == {"box": ("N", last, columns, 4), "y": ("N", last, columns, 2)}
    session = open_session(model.SerializeToString(), session_options(threads=1, optimize=True))
    for rows in (24, 25, 48, 119):
        made = session.run(["box"], {"x": np.zeros((1, rows, 31, 3), np.float32)})[0].shape
        assert find_shape_at(shapes["box"], {"N": 1, "H": rows, "W": 31}) == made


_PNET = """t = Transpose <perm = [0, 3, 1, 2]> (x)
a = Conv <kernel_shape = [3, 3], auto_pad = "VALID"> (t, w1, b1) c = PRelu(a, s1)
d = MaxPool <POOL kernel_shape = [2, 2], strides = [2, 2]> (c)
e = Conv <kernel_shape = [3, 3]> (d, w2, b2) f = PRelu(e, s2)
g = Conv <kernel_shape = [3, 3], auto_pad = "VALID"> (f, w3, b3) h = PRelu(g, s3)
i = Conv <kernel_shape = [1, 1]> (h, w4) box = Transpose <perm = [0, 2, 3, 1]> (i)
j = Conv <kernel_shape = [1, 1]> (h, w5) k = Transpose <perm = [0, 2, 3, 1]> (j)
y = Softmax <axis = 3> (k)"""
_PNET_WEIGHTS = (
    "float[10,3,3,3] w1, float[10] b1, float[10,1,1] s1, float[16,10,3,3] w2, float[16] b2, "
    "float[16,1,1] s2, float[32,16,3,3] w3, float[32] b3, float[32,1,1] s3, float[4,32,1,1] w4, "
    "float[2,32,1,1] w5"
)


def _operators(proto: onnx.ModelProto) -> tuple[str, ...]:
    """Return the families of the operators whose images have any size."""
    graph, shapes, _ = _open_images(proto, _ODD_POINT)
    profile = ModelProfile(node_us={}, model_us=1.0, runs=1)
    found = find_operators(graph, profile, None, Origins(proto, proto))
    images = find_image_operators(graph, found, profile, shapes, _ODD_POINT)
    return tuple(one.workload.op_type for one in images.operators)


def test_smaller_results_have_tiles_of_fewer_vectors(tmp_path: Path) -> None:
    _, shapes, regions = _open_images(_optimized("plain_pointwise", tmp_path))
    workload = _found(regions[-1], shapes).workload
    family, facts = get_family(workload.op_type), KernelTarget(vector_lanes=16, threads=2)
    guess = opening(family.space(workload, facts), ())[0]
    schedule = family.schedule(workload, guess, facts)
    pipeline = family.pipeline(workload, schedule.algorithm)
    found = variants_of(opened(pipeline, workload), schedule)
    pixels = [one.least[0] for one in found]
    assert pixels[0] > pixels[1] > 16
    assert pixels[2:] == [16, 1]


def test_schedule_without_tiles_of_the_smallest_results_is_refused_before_it_is_compiled(
    tmp_path: Path,
) -> None:
    _, shapes, regions = _open_images(_optimized("plain_linear", tmp_path))
    workload = _found(regions[-1], shapes).workload
    check_kernel(KernelSource.of(workload, Schedule((Parallel(RESULT, "d2"),))))
    tasks = Schedule((Parallel(RESULT, "d2", 8),))
    with pytest.raises(ScheduleError, match="no tile fits"):
        check_kernel(KernelSource.of(workload, tasks))


def test_only_multiples_of_the_extent_are_cut_without_a_tail(tmp_path: Path) -> None:
    _, shapes, regions = _open_images(_optimized("plain_linear", tmp_path))
    workload = _found(regions[-1], shapes).workload
    for factor, is_legal in {2: True, 4: True, 3: False, 8: False}.items():
        cut = Schedule((Split(RESULT, "d3", "d3", "inner", factor, Tail.ROUND_UP),))
        with nullcontext() if is_legal else pytest.raises(ScheduleError, match="past its end"):
            apply_schedule(get_family("resizing").pipeline(workload), cut)


@pytest.mark.parametrize("name", _NETS)
def test_open_axes_are_part_of_a_record(name: str, tmp_path: Path) -> None:
    graph, shapes, regions = _open_images(_optimized(name, tmp_path))
    workload = _found(_chosen(name, graph, regions), shapes).workload
    text = workload_to_json(workload)
    assert text["output"]["open"] == [0, 2, 3]
    assert workload_from_json(text) == workload
    closed = replace(
        workload,
        inputs=tuple(replace(spec, open=()) for spec in workload.inputs),
        output=replace(workload.output, open=()),
    )
    assert key_of(closed) != key_of(workload)
    fixed = find_fixed_images(regions[-1], shapes, _POINT)
    assert fixed == classify(closed)
    alone = find_fixed_images(regions[-1], shapes, {**_POINT, "N": 1})
    assert alone is not None and alone.output.shape == (1, *workload.output.shape[1:])
