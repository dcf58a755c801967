"""Tokens around a depthwise convolution: images between convolutions, the same numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from support.contracts.small_models import SmallModel
from support.engine.cpu import CPU, open_session

from aoe.graph.model_graph import ModelGraph
from aoe.graph.origins import Origins
from aoe.graph.regions import partition
from aoe.kernels.registry import FUSIBLE, anchors, classify
from aoe.operators import is_reorder
from aoe.ort.sessions import session_options
from aoe.ort.spelling.tokens import write_tokens_as_images
from aoe.ort.static_shapes import infer_tensors

IMAGES, SIDES = 2, (5, 3)
READ, WIDE, WRITTEN = 16, 48, 32


def make(
    *,
    widths: tuple[int, int, int] = (READ, WIDE, WRITTEN),
    chain: str = "gelu",
    biases: bool = True,
    stride: int = 1,
    summed: int = 1,
    order: tuple[int, ...] = (0, 2, 1),
    computed: bool = False,
    asks: bool = False,
    also: str = "",
) -> onnx.ModelProto:
    """Return product, depthwise 3x3, chain and product of tokens, a ReLU in front and behind.

    Args:
        widths: Channels of the tokens, between the products, of the result.
        chain: What stands behind the convolution.
        biases: True if the products have one.
        stride: Of the convolution.
        summed: Channels that a filter sums up.
        order: Of the dimensions behind the Transpose in front.
        computed: True if the matrix of the second product is an input.
        asks: True if the shape of the tokens is computed, as the TorchScript exporter writes it.
        also: Tensor that is another result of the model, "wide" or "filtered".
    """
    model = SmallModel(opset=18)
    read, wide, written = widths
    tokens = model.op("Relu", model.input(IMAGES, SIDES[0] * SIDES[1], read))
    made = model.op("MatMul", tokens, model.weight(read, wide))
    kept = {"wide": model.op("Add", model.weight(wide), made) if biases else made}
    turn = model.op("Transpose", kept["wide"], perm=list(order))
    image = model.op("Reshape", turn, model.constant([IMAGES, wide, *SIDES]))
    filters, shifts = model.weight(wide, summed, 3, 3), model.weight(wide)
    shape = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [stride, stride]}
    made = model.op("Conv", image, filters, shifts, group=wide // summed, **shape)
    extents = model.constant([IMAGES, wide, -1])
    if asks:
        ends = [model.constant([at]) for at in (0, 2)]
        outer = model.op("Slice", model.op("Shape", made), *ends)
        extents = model.op("Concat", outer, model.constant([-1]), axis=0)
    rows = model.op("Reshape", made, extents)
    x = kept["filtered"] = model.op("Transpose", rows, perm=[0, 2, 1])
    if chain == "gelu":  # as PyTorch writes it
        erf = model.op("Erf", model.op("Div", x, model.constant(2**0.5)))
        one_more = model.op("Add", erf, model.constant(1.0))
        x = model.op("Mul", x, model.op("Mul", model.constant(0.5), one_more))
    elif chain == "scaled channels":
        x = model.op("Mul", x, model.weight(wide))
    elif chain:
        x = model.op(chain, x)
    matrix = model.input(wide, written) if computed else model.weight(wide, written)
    made = model.op("MatMul", x, matrix)
    made = model.op("Add", made, model.weight(written)) if biases else made
    return model.model(model.op("Relu", made), *filter(None, [kept.get(also)]))


def _kinds(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


def _run(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    session = open_session(model.SerializeToString(), session_options(threads=1, optimize=True))
    result: np.ndarray = session.run(None, {"x0": x})[0]
    return result


@pytest.mark.parametrize(
    "model",
    [
        make(),
        make(biases=False, chain="Relu"),
        make(stride=2, chain=""),
        make(chain="HardSwish", asks=True),
    ],
    ids=["PyTorch's GELU", "no bias", "stride, no chain", "HardSwish, computed extents"],
)
@pytest.mark.parametrize("special", [False, True], ids=["moderate", "special"])
def test_images_make_the_same_numbers(model: onnx.ModelProto, *, special: bool) -> None:
    spelled = write_tokens_as_images(model)
    onnx.checker.check_model(spelled, full_check=True)
    assert _kinds(spelled).count("Conv") == 3
    assert "MatMul" not in _kinds(spelled)
    x = np.random.default_rng(3).standard_normal((IMAGES, 15, READ)).astype(np.float32)
    if special:
        x[0, 7, 3], x[1, 0, 0], x[1, 14, 15] = np.nan, np.inf, 3e38
    wanted = _run(model, x)
    np.testing.assert_allclose(_run(spelled, x), wanted, rtol=1e-4, atol=1e-5)


def test_a_product_between_two_convolutions_is_written_once() -> None:
    model = SmallModel(opset=18)
    x = model.op("MatMul", model.input(IMAGES, 15, READ), model.weight(READ, READ))
    for _ in range(2):
        turn = model.op("Transpose", x, perm=[0, 2, 1])
        image = model.op("Reshape", turn, model.constant([IMAGES, READ, *SIDES]))
        filters = model.weight(READ, 1, 3, 3)
        made = model.op("Conv", image, filters, group=READ, kernel_shape=[3, 3], pads=[1] * 4)
        rows = model.op("Reshape", made, model.constant([IMAGES, READ, -1]))
        tokens = model.op("Transpose", rows, perm=[0, 2, 1])
        x = model.op("MatMul", tokens, model.weight(READ, READ))
    proto = model.model(x)
    spelled = write_tokens_as_images(proto)
    onnx.checker.check_model(spelled, full_check=True)
    assert _kinds(spelled).count("MatMul") == 1
    value = np.random.default_rng(3).standard_normal((IMAGES, 15, READ)).astype(np.float32)
    np.testing.assert_allclose(_run(spelled, value), _run(proto, value), rtol=1e-4, atol=1e-5)


def test_operators_keep_their_names_and_the_result_its_own() -> None:
    model = make()
    spelled = write_tokens_as_images(model)
    computing = [
        n.name for n in model.graph.node if n.op_type not in ("Add", "Transpose", "Reshape")
    ]
    assert set(computing) <= {node.name for node in spelled.graph.node}
    assert spelled.graph.output == model.graph.output
    assert write_tokens_as_images(spelled) is spelled


def test_names_of_nodes_are_not_given_again() -> None:
    model = make()
    model.graph.node[-1].name = f"{model.graph.node[-2].output[0]}_image"
    names = [node.name for node in write_tokens_as_images(model).graph.node]
    assert len({*names}) == len(names)


@pytest.mark.parametrize(
    "model",
    [
        make(widths=(READ, 24, WRITTEN)),
        make(widths=(READ, WIDE, 64)),
        make(widths=(64, WIDE, WRITTEN)),
        make(widths=(8, WIDE, WRITTEN)),
        make(summed=3),
        make(order=(0, 1, 2)),
        make(chain="scaled channels"),
        make(chain="Softmax"),
        make(computed=True),
        make(also="wide"),
        make(also="filtered"),
    ],
    ids=[
        *("half a block between", "widened behind", "narrowed in front", "half a block read"),
        *("filters of several channels", "channels that are pixels", "a factor for each channel"),
        *("tokens summed up", "a computed matrix", "wide tokens needed", "filtered tokens needed"),
    ],
)
def test_what_is_something_else_stays(model: onnx.ModelProto) -> None:
    assert write_tokens_as_images(model) is model


def test_optimised_convolutions_lead_back_to_the_products(tmp_path: Path) -> None:
    model = make()
    optimized = CPU.optimize(model, tmp_path / "optimised.onnx", threads=1)
    origins = Origins(model, optimized)
    computed = {
        origin.name: node.op_type
        for node in optimized.graph.node
        for origin in origins.fused(node)
        if origin.op_type in ("MatMul", "Conv")
    }
    assert len(computed) == 3
    assert set(computed.values()) == {"Conv"}


def test_products_that_may_be_quantised_stay_products(tmp_path: Path) -> None:
    file = tmp_path / "optimised.onnx"
    kept = CPU.optimize(make(biases=False), file, threads=1, tokens_as_images=False)
    assert _kinds(kept).count("MatMul") == 2


def test_wide_channels_stay_in_blocks_and_are_made_by_the_kernel_that_filters_them(
    tmp_path: Path,
) -> None:
    if not CPU.channel_block():
        pytest.skip("no blocked layout on this CPU")
    proto = CPU.optimize(make(), tmp_path / "optimised.onnx", threads=1)
    tensors = infer_tensors(proto, open_session)
    graph = ModelGraph(proto, tensors, block=CPU.channel_block())
    cut = partition(graph, fusible=FUSIBLE, anchors=anchors(), classify=classify)
    kinds = [[one.op_type for one in region.workload.operations] for region in cut.regions]
    assert any(one.count("Conv") == 2 and "Erf" in one for one in kinds)
    owned = {at for region in cut.regions for at in region.nodes}
    left = [node for at, node in enumerate(graph.nodes) if at not in owned and is_reorder(node)]
    shapes = [tensors[node.output[0]].shape for node in left]
    assert shapes
    assert not any(WIDE in shape for shape in shapes)
