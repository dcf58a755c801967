"""Which places of a model are tuned in which precisions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import onnx
import pytest
from support.contracts.kernels import block_size, operation, plain
from support.contracts.small_models import SmallModel
from support.engine.convolutions import convolution, depthwise, expansion
from support.engine.cpu import CPU, open_session
from support.engine.families import RoundedConvolution
from support.engine.models import conv_net, matmul_net

from aoe.graph.model_graph import ModelGraph
from aoe.kernels.conv_nchwc.family import Convolution
from aoe.kernels.family import KernelTarget, Support
from aoe.kernels.registry import FAMILIES
from aoe.ort.profile import profile_model
from aoe.ort.static_shapes import infer_tensors
from aoe.tasks.operators.operators import FoundOperators, find_operators
from aoe.tuner.precision.plan import PrecisionPlan
from aoe.tuner.precision.settings import (
    NO_LISTS,
    Listing,
    MixLists,
    PrecisionMode,
    PrecisionSettings,
)
from aoe.workload import NCHWC_DOMAIN, Precision, Workload

pytestmark = pytest.mark.skipif(not block_size(), reason="this CPU has no blocked layout")

_BF16, _FP32, _STRICT = Precision.BFLOAT16, Precision.FLOAT32, Precision.STRICT_FLOAT32


class LowerOnly(RoundedConvolution):
    """Has no kernel in float32."""

    def supports(self, workload: Workload) -> Support:
        if not workload.precision.is_lower:
            return Support("float32")
        return RoundedConvolution.supports(self, workload)


@pytest.fixture(autouse=True)
def family(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the convolution family offer kernels of lower precision on any CPU."""
    monkeypatch.setitem(FAMILIES, "convolution", RoundedConvolution())


@pytest.fixture(scope="module")
def net() -> onnx.ModelProto:
    return conv_net(extent=24)


@pytest.fixture(scope="module")
def graph(net: onnx.ModelProto, tmp_path_factory: pytest.TempPathFactory) -> ModelGraph:
    proto = CPU.optimize(net, tmp_path_factory.mktemp("graph") / "o.onnx", threads=1)
    return ModelGraph(proto, infer_tensors(proto, open_session), block=CPU.channel_block())


def _found(
    net: onnx.ModelProto,
    graph: ModelGraph,
    directory: Path,
    mode: PrecisionMode = PrecisionMode.KEEP,
    *,
    lists: MixLists = NO_LISTS,
    strict: bool = False,
    target: KernelTarget | None = None,
) -> FoundOperators:
    plan = PrecisionPlan(
        settings=PrecisionSettings(mode=mode, lists=lists, strict=strict),
        target=target or KernelTarget(vector_lanes=block_size(), threads=1),
        imported=net,
    )
    profile = profile_model(graph.proto, directory, open_session, threads=1, runs=1)
    return find_operators(graph, profile, plan)


def _convolutions(found: FoundOperators) -> dict[Precision, int]:
    """Return how many places are convolved in each precision."""
    counted: dict[Precision, int] = {}
    for operator in found.operators:
        if operator.workload.op_type == "convolution":
            precision = operator.workload.precision
            counted[precision] = counted.get(precision, 0) + len(operator.regions)
    return counted


def test_default_keeps_every_operator_and_key(
    net: onnx.ModelProto, graph: ModelGraph, tmp_path: Path
) -> None:
    found = _found(net, graph, tmp_path)
    plain = find_operators(graph, profile_model(graph.proto, tmp_path, open_session, threads=1))
    assert {operator.key for operator in found.operators} == {o.key for o in plain.operators}
    assert _convolutions(found) == {_FP32: 2}


@pytest.mark.parametrize(
    ("mode", "places"),
    [(PrecisionMode.BFLOAT16, {_BF16: 2}), (PrecisionMode.MIXED_BFLOAT16, {_FP32: 2, _BF16: 2})],
)
def test_only_products_are_tuned_below_float32(
    net: onnx.ModelProto,
    graph: ModelGraph,
    tmp_path: Path,
    mode: PrecisionMode,
    places: dict[Precision, int],
) -> None:
    found = _found(net, graph, tmp_path, mode)
    assert _convolutions(found) == places
    shares = [(-o.share, not o.workload.precision.is_lower) for o in found.operators]
    assert shares == sorted(shares), "the time limit must not leave out the faster ones"
    others = {o.workload.precision for o in found.operators if o.workload.op_type != "convolution"}
    assert others == {_FP32}


@pytest.mark.parametrize(
    ("listings", "places"),
    [
        ({"Conv": Listing.DENIED}, {_FP32: 2}),
        ({"conv1": Listing.DENIED}, {_FP32: 1, _BF16: 1}),
        ({"conv*": Listing.DENIED, "conv2": Listing.ALLOWED}, {_FP32: 1, _BF16: 1}),
        ({"MatMul": Listing.DENIED}, {_BF16: 2}),
        ({"conv2": Listing.FOLLOWS, "conv1": Listing.DENIED}, {_FP32: 2}),
        ({"conv2": Listing.FOLLOWS}, {_BF16: 2}),
        ({"Conv": Listing.FOLLOWS}, {_FP32: 2}),
        ({"Conv": Listing.FOLLOWS, "conv0": Listing.ALLOWED}, {_BF16: 2}),
    ],
)
def test_lists_name_types_and_nodes_of_the_imported_model(
    net: onnx.ModelProto,
    graph: ModelGraph,
    tmp_path: Path,
    listings: dict[str, Listing],
    places: dict[Precision, int],
) -> None:
    lists = MixLists(listings=listings)
    found = _found(net, graph, tmp_path, PrecisionMode.BFLOAT16, lists=lists)
    assert _convolutions(found) == places


@pytest.mark.parametrize(("denied", "expected"), [("Gemm", _BF16), ("MatMul", _FP32)])
def test_products_that_have_become_convolutions_are_listed_as_products(
    tmp_path: Path, denied: str, expected: Precision
) -> None:
    model = SmallModel()
    x = model.op("MatMul", model.input(1, 784, 64), model.weight(64, 128))
    image = model.op("Transpose", x, perm=[0, 2, 1])
    image = model.op("Reshape", image, model.constant([1, 128, 28, 28]))
    image = model.conv(image, 128, 128, 3, group=128)
    x = model.op("Reshape", image, model.constant([1, 128, -1]))
    x = model.op("Softsign", model.op("Transpose", x, perm=[0, 2, 1]))
    net = model.model(model.op("MatMul", x, model.weight(128, 64)))
    proto = CPU.optimize(net, tmp_path / "o.onnx", threads=1)
    graph = ModelGraph(proto, infer_tensors(proto, open_session), block=CPU.channel_block())
    lists = MixLists(listings={denied: Listing.DENIED})
    target = KernelTarget(vector_lanes=block_size(), threads=1, bf16_dot=True)
    found = _found(net, graph, tmp_path, PrecisionMode.BFLOAT16, lists=lists, target=target)
    assert {one.workload.precision for one in found.fused} == {expected}


def test_place_with_a_lower_kernel_only_is_left_out_where_the_lists_say_so(
    net: onnx.ModelProto, graph: ModelGraph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(FAMILIES, "convolution", LowerOnly())
    mode = PrecisionMode.MIXED_BFLOAT16
    assert _convolutions(_found(net, graph, tmp_path, mode)) == {_BF16: 2}
    lists = MixLists(listings={"conv1": Listing.DENIED})
    found = _found(net, graph, tmp_path, mode, lists=lists)
    assert _convolutions(found) == {_BF16: 1}
    assert any("the lists keep it in float32" in refusal.reason for refusal in found.refusals)
    kept = _found(net, graph, tmp_path)
    assert _convolutions(kept) == {}
    assert any("convolution: float32" in refusal.reason for refusal in kept.refusals)


def test_strict_float32_leaves_out_what_spreads_special_values(
    net: onnx.ModelProto, graph: ModelGraph, tmp_path: Path
) -> None:
    found = _found(net, graph, tmp_path, strict=True)
    assert "lrn" not in {operator.workload.op_type for operator in found.operators}
    assert _convolutions(found) == {}
    reasons = " ".join(refusal.reason for refusal in found.refusals)
    assert "strict float32: infinities and NaN" in reasons
    assert "direct convolution without a chain behind it gains nothing" in reasons


def test_convolutions_are_not_quantised(
    net: onnx.ModelProto, graph: ModelGraph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the mode of int8 they stay in float32, or go to bfloat16 where the CPU has it."""
    monkeypatch.setitem(FAMILIES, "convolution", Convolution())
    found = _found(net, graph, tmp_path, PrecisionMode.MIXED_INT8)
    assert set(_convolutions(found)) == {_FP32}
    able = KernelTarget(vector_lanes=block_size(), threads=1, bf16_dot=True)
    found = _found(net, graph, tmp_path, PrecisionMode.MIXED_INT8, target=able)
    assert set(_convolutions(found)) == {_FP32, _BF16}


@pytest.mark.parametrize("rounds", [False, True])
def test_products_by_weights_are_tuned_in_every_precision_there_is(
    rounds: bool, tmp_path: Path
) -> None:
    net = matmul_net(width=128)
    proto = CPU.optimize(net, tmp_path / "o.onnx", threads=1)
    graph = ModelGraph(proto, infer_tensors(proto, open_session), block=CPU.channel_block())
    target = KernelTarget(vector_lanes=16, threads=1, bf16_dot=rounds)
    found = _found(net, graph, tmp_path, PrecisionMode.MIXED_INT8, target=target)
    counted = [operator.workload.precision for operator in found.operators]
    assert set(counted) == {_FP32, Precision.INT8} | ({_BF16} if rounds else set())
    assert counted == sorted(counted, key=lambda one: -one.rank), "the fastest ones come first"


def test_int8_is_tuned_in_the_mode_of_int4_too_where_there_is_no_bfloat16(tmp_path: Path) -> None:
    net = matmul_net(width=128)
    proto = CPU.optimize(net, tmp_path / "o.onnx", threads=1)
    graph = ModelGraph(proto, infer_tensors(proto, open_session), block=CPU.channel_block())
    target = KernelTarget(vector_lanes=8, threads=1)
    found = _found(net, graph, tmp_path, PrecisionMode.MIXED_INT4, target=target)
    assert Precision.INT8 in {operator.workload.precision for operator in found.operators}


@pytest.mark.parametrize(
    ("mode", "constant", "family"),
    [
        (PrecisionMode.KEEP, False, "attention"),
        (PrecisionMode.BFLOAT16, False, "attention"),
        (PrecisionMode.MIXED_INT8, False, "attention"),
        (PrecisionMode.MIXED_INT8, True, ""),
    ],
)
def test_products_are_one_kernel_only_where_it_has_all_their_precisions(
    net: onnx.ModelProto, mode: PrecisionMode, constant: bool, family: str
) -> None:
    """Apart, a product of an attention by a constant matrix may go to integers."""
    operations = (
        operation("MatMul", "x0 x1", "t0"),
        operation("Softmax", "t0", "t1", axis=-1),
        operation("MatMul", "t1 x2", "t2"),
    )
    inputs = (plain(2, 9, 8), plain(2, 8, 12, constant=constant), plain(2, 12, 8))
    workload = Workload(op_type="", inputs=inputs, operations=operations, output=plain(2, 9, 8))
    target = KernelTarget(vector_lanes=16, threads=1, bf16_dot=True)
    plan = PrecisionPlan(settings=PrecisionSettings(mode=mode), target=target, imported=net)
    found = plan.classify(workload)
    assert (found.op_type if isinstance(found, Workload) else "") == family


@pytest.mark.parametrize(
    ("mode", "family"),
    [(PrecisionMode.KEEP, "convolution"), (PrecisionMode.MIXED_BFLOAT16, "")],
)
def test_pooling_joins_a_convolution_only_where_that_has_all_its_precisions(
    net: onnx.ModelProto, mode: PrecisionMode, family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(FAMILIES, "convolution", Convolution())
    alone = convolution((16, 16), blocks=(2, 2))
    sides = {"kernel_shape": (2, 2), "strides": (2, 2)}
    pooling = operation("MaxPool", "t0", "t1", domain=NCHWC_DOMAIN, **sides)
    output = replace(alone.output, shape=(*alone.output.shape[:2], 8, 8))
    workload = replace(alone, operations=(*alone.operations, pooling), output=output)
    target = KernelTarget(vector_lanes=16, threads=1, bf16_dot=True)
    plan = PrecisionPlan(settings=PrecisionSettings(mode=mode), target=target, imported=net)
    found = plan.classify(workload)
    assert (found.op_type if isinstance(found, Workload) else "") == family


@pytest.mark.parametrize(
    ("mode", "family"),
    [
        (PrecisionMode.KEEP, "expanded_convolution"),
        (PrecisionMode.BFLOAT16, "expanded_convolution"),
        (PrecisionMode.MIXED_BFLOAT16, "expanded_convolution"),
        (PrecisionMode.MIXED_INT8, ""),
    ],
)
def test_convolutions_are_one_kernel_only_where_it_has_all_their_precisions(
    net: onnx.ModelProto, mode: PrecisionMode, family: str
) -> None:
    workload = expansion(depthwise(convolution((14, 14), blocks=(4, 4))), 1)
    target = KernelTarget(vector_lanes=block_size(), threads=1, bf16_dot=True)
    plan = PrecisionPlan(settings=PrecisionSettings(mode=mode), target=target, imported=net)
    found = plan.classify(workload)
    assert (found.op_type if isinstance(found, Workload) else "") == family
