"""Rules applied to every model: the same numbers, and no edit where one of their needs fails."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from support.contracts.small_models import SmallModel
from support.engine.cpu import CPU, open_session
from support.engine.models import make_model
from support.engine.open_rows import parsed

from aoe.graph.model_graph import ModelGraph
from aoe.graph.origins import Origins
from aoe.graph.regions import partition
from aoe.graph.rewrites.always import ALWAYS, EXTENTS_RULE, rewritten, write_tokens_as_images
from aoe.kernels.registry import FUSIBLE, anchors, classify
from aoe.operators import is_reorder
from aoe.ort.offline_optimization import optimize_offline
from aoe.ort.sessions import session_options
from aoe.ort.static_shapes import infer_tensors

# ---- Group normalisation spelled out: the same numbers in fewer nodes ----

GROUPED = (2, 12, 5, 7)
GROUPS = 4


def grouped(
    opset: int,
    shape: tuple[int | str, ...] = GROUPED,
    *,
    constant: bool = True,
    kind: int = TensorProto.FLOAT,
) -> onnx.ModelProto:
    """Return the Tanh of a normalised tensor; the Tanh of its input is a result, too."""
    rng = np.random.default_rng(1)
    size = GROUPED[1]
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    weights = [rng.standard_normal(size).astype(dtype) for _ in range(2)]
    nodes = [
        helper.make_node("Tanh", ["x"], ["y_joined"], "before"),  # a name that is wanted
        helper.make_node(
            "GroupNormalization", ["y_joined", "s", "b"], ["y"], "norm", num_groups=GROUPS
        ),
    ]
    inputs = [helper.make_tensor_value_info("x", kind, shape)]
    if not constant:
        inputs += [helper.make_tensor_value_info(n, kind, (size,)) for n in "sb"]
    graph = helper.make_graph(
        nodes,
        "net",
        inputs,
        [helper.make_tensor_value_info("y", kind, [f"y{i}" for i in range(len(shape))])],
        [numpy_helper.from_array(w, n) for w, n in zip(weights, "sb", strict=True)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def test_spelled_out_groups_make_the_same_numbers() -> None:
    model = grouped(21)
    spelled = rewritten(model, *ALWAYS)
    onnx.checker.check_model(spelled, full_check=True)
    kinds = [node.op_type for node in spelled.graph.node]
    assert kinds == ["Tanh", "Reshape", "InstanceNormalization", "Reshape", "Mul", "Add"]
    assert spelled.graph.node[-1].name == "norm"
    x = np.random.default_rng(2).standard_normal(GROUPED).astype(np.float32)
    session = open_session(spelled.SerializeToString(), session_options(threads=1, optimize=True))
    wanted = ReferenceEvaluator(model).run(None, {"x": x})[0]
    np.testing.assert_allclose(session.run(None, {"x": x})[0], wanted, rtol=1e-4, atol=1e-5)


def test_groups_of_float16_stay_float16() -> None:
    spelled = rewritten(grouped(21, kind=TensorProto.FLOAT16), *ALWAYS)
    onnx.checker.check_model(spelled, full_check=True)
    assert "InstanceNormalization" in [node.op_type for node in spelled.graph.node]
    x = np.random.default_rng(2).standard_normal(GROUPED).astype(np.float16)
    session = open_session(spelled.SerializeToString(), session_options(threads=1, optimize=True))
    wanted = ReferenceEvaluator(grouped(21)).run(None, {"x": x.astype(np.float32)})[0]
    (found,) = session.run(None, {"x": x})
    assert found.dtype == np.float16
    np.testing.assert_allclose(found.astype(np.float32), wanted, rtol=5e-3, atol=1e-2)


@pytest.mark.parametrize(
    "model",
    [grouped(18), grouped(21, ("n", 12, 5, 7)), grouped(21, (2, 12)), grouped(21, constant=False)],
    ids=["deprecated", "open shape", "no pixels", "computed scale"],
)
def test_what_cannot_be_spelled_out_stays(model: onnx.ModelProto) -> None:
    assert [n.op_type for n in rewritten(model, *ALWAYS).graph.node] == [
        "Tanh",
        "GroupNormalization",
    ]


def test_model_without_groups_is_not_copied() -> None:
    model = grouped(21)
    del model.graph.node[1:]
    assert rewritten(model, *ALWAYS) is model


def test_given_model_stays_as_it_is() -> None:
    model = grouped(21)
    before = model.SerializeToString()
    rewritten(model, *ALWAYS)
    assert model.SerializeToString() == before


def test_optimised_graph_has_the_few_nodes(tmp_path: Path) -> None:
    found = CPU.optimize(grouped(21), tmp_path / "o.onnx", threads=1)
    assert "InstanceNormalization" in [node.op_type for node in found.graph.node]
    assert len(found.graph.node) < 10


# ---- Normalisations of channels that are written in parts: one operator, the same numbers ----

IMAGE = (2, 6, 5, 7)
JOINED = ["Transpose", "LayerNormalization", "Transpose"]


def parts(
    *,
    opset: int = 18,
    shape: tuple[int | str, ...] = IMAGE,
    axis: int = 1,
    twice: bool = False,
    squares: str = "Pow",
    affine: bool = True,
    constant: bool = True,
    outputs: tuple[str, ...] = ("y",),
) -> onnx.ModelProto:
    """Return (x - mean) / sqrt(mean square + epsilon), scaled by channels, in parts."""
    rng = np.random.default_rng(1)
    wide = (IMAGE[1], *(1,) * (len(shape) - 2))
    weights = {name: rng.standard_normal(wide).astype(np.float32) for name in "sb"}
    constants = {"two": np.float32(2), "eps": np.array([1e-3], np.float32)}
    constants |= {"axes": np.array([axis], np.int64)} if opset >= 18 else {}
    mean = {"axes": [axis]} if opset < 18 else {}
    axes = ["axes"] if opset >= 18 else []
    made = [
        helper.make_node("ReduceMean", ["x", *axes], ["u"], "mean", **mean),
        helper.make_node("Sub", ["x", "u"], ["d"], "d"),
        helper.make_node("Sub", ["x", "u"], ["e"], "e"),
        helper.make_node("Pow", ["d", "two"], ["q"], "q")
        if squares == "Pow"
        else helper.make_node("Mul", ["d", "d"], ["q"], "q"),
        helper.make_node("ReduceMean", ["q", *axes], ["v"], "mean_square", **mean),
        helper.make_node("Add", ["v", "eps"], ["a"], "a"),
        helper.make_node("Sqrt", ["a"], ["r"], "r"),
        helper.make_node("Div", ["e" if twice else "d", "r"], ["n" if affine else "y"], "divided"),
    ]
    if not twice:
        del made[2]
    if affine:
        made += [
            helper.make_node("Mul", ["s", "n"], ["m"], "scaled"),
            helper.make_node("Add", ["m", "b"], ["y"], "added"),
        ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    if not constant:
        inputs += [helper.make_tensor_value_info(n, TensorProto.FLOAT, wide) for n in "sb"]
    stored = constants | (weights if constant else {})
    graph = helper.make_graph(
        made,
        "net",
        inputs,
        [
            helper.make_tensor_value_info(
                name, TensorProto.FLOAT, [f"{name}{at}" for at in range(len(shape))]
            )
            for name in outputs
        ],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in stored.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def _kinds(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


@pytest.mark.parametrize(
    "model",
    [
        parts(),
        parts(opset=17, squares="Mul"),
        parts(twice=True),
        parts(affine=False),
        parts(shape=(3, 6, 9)),
    ],
    ids=["PyTorch's", "axes as an attribute", "deviation twice", "no scale", "lines"],
)
def test_joined_parts_make_the_same_numbers(model: onnx.ModelProto) -> None:
    joined = rewritten(model, *ALWAYS)
    onnx.checker.check_model(joined, full_check=True)
    assert _kinds(joined) == JOINED
    assert joined.graph.node[-1].name == model.graph.node[-1].name
    shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    x = np.random.default_rng(2).standard_normal(shape).astype(np.float32)
    session = open_session(joined.SerializeToString(), session_options(threads=1, optimize=True))
    wanted = ReferenceEvaluator(model).run(None, {"x": x})[0]
    np.testing.assert_allclose(session.run(None, {"x": x})[0], wanted, rtol=1e-4, atol=1e-5)


def test_computed_scale_stays_behind_what_is_joined() -> None:
    joined = rewritten(parts(constant=False), *ALWAYS)
    assert _kinds(joined) == [*JOINED, "Mul", "Add"]


def test_means_of_another_size_are_joined_where_channels_are_known() -> None:
    assert _kinds(rewritten(parts(shape=("n", 6, "h", "w")), *ALWAYS)) == JOINED


@pytest.mark.parametrize(
    "model",
    [
        parts(opset=16),
        parts(axis=2),
        parts(shape=(2, "c", 5, 7)),
        parts(shape=(2, 6), affine=False),
        parts(outputs=("y", "u")),
    ],
    ids=["older operators", "another axis", "open channels", "no pixels", "a mean that is needed"],
)
def test_other_normalisations_of_channels_stay(model: onnx.ModelProto) -> None:
    assert rewritten(model, *ALWAYS) is model


def test_optimised_graph_has_one_kernel_for_all_parts(tmp_path: Path) -> None:
    proto = CPU.optimize(parts(), tmp_path / "optimised.onnx", threads=1)
    tensors = infer_tensors(proto, open_session)
    graph = ModelGraph(proto, tensors, block=CPU.channel_block())
    cut = partition(graph, fusible=FUSIBLE, anchors=anchors(), classify=classify)
    (region,) = cut.regions
    assert [operation.op_type for operation in region.workload.operations] == JOINED


# ---- Root mean square normalisations in other parts than those ONNX Runtime joins ----

ROWS = (2, 5, 24)
KNOWN = ["Pow", "ReduceMean", "Add", "Sqrt", "Div", "Mul"]


def rooted(
    *,
    square: str = "Mul",
    inverse: bool = True,
    swapped: bool = False,
    opset: int = 18,
    axis: int = -1,
    scaled: bool = True,
    divided: str = "x",
    element: type[np.floating] = np.float32,
    outputs: tuple[str, ...] = ("y",),
) -> onnx.ModelProto:
    """Return x / sqrt(mean square + epsilon), scaled, in parts."""
    rng = np.random.default_rng(1)
    weights = {
        "two": np.array(2, element),
        "eps": np.array(1e-3, element),
        "s": rng.standard_normal(ROWS[-1]).astype(element),
    }
    if opset >= 18:
        weights["axes"] = np.array([axis], np.int64)
    mean = ["q", "axes"] if opset >= 18 else ["q"]
    attributes = {} if opset >= 18 else {"axes": [axis]}
    factors = ["i", divided] if swapped else [divided, "i"]
    result = "n" if scaled else "y"
    nodes = [
        helper.make_node(square, ["x", "x" if square == "Mul" else "two"], ["q"], "q"),
        helper.make_node("ReduceMean", mean, ["m"], "m", **attributes),
        helper.make_node("Add", ["m", "eps"], ["a"], "a"),
        helper.make_node("Sqrt", ["a"], ["r"], "r"),
    ]
    if inverse:
        nodes.append(helper.make_node("Reciprocal", ["r"], ["i"], "i"))
        nodes.append(helper.make_node("Mul", factors, [result], "n"))
    else:
        nodes.append(helper.make_node("Div", [divided, "r"], [result], "n"))
    if scaled:
        nodes.append(helper.make_node("Mul", ["s", "n"], ["y"], "y"))
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(element))
    names = dict.fromkeys((*outputs, "x", "z"), kind)
    inputs = {"x": ROWS} | ({"z": ROWS} if divided == "z" else {})
    return make_model(nodes, inputs, outputs, weights=weights, opset=opset, types=names)


def test_parts_without_names_are_written_twice() -> None:
    """ONNX Runtime refuses two nodes of one name, which edits of two parts may make up."""
    model = rooted()
    again = onnx.compose.add_prefix(rooted(), "next_", rename_inputs=False)
    for node in again.graph.node:
        node.input[:] = ["y" if name == "x" else name for name in node.input]
    model.graph.node.extend(again.graph.node)
    model.graph.initializer.extend(again.graph.initializer)
    model.graph.output[0].name = "next_y"
    for node in model.graph.node:
        node.name = ""
    written = rewritten(model, *ALWAYS)
    assert [node.op_type for node in written.graph.node].count("Pow") == 2
    names = [node.name for node in written.graph.node if node.name]
    assert len(names) == len(set(names)) > 1
    x = {"x": np.random.default_rng(2).standard_normal(ROWS).astype(np.float32)}
    found, expected = (
        open_session(one.SerializeToString(), session_options(threads=1, optimize=False)).run(
            None, x
        )[0]
        for one in (written, model)
    )
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "model",
    [
        rooted(),
        rooted(square="Pow"),
        rooted(inverse=False),
        rooted(swapped=True, opset=17),
    ],
    ids=["PyTorch's, a product", "PyTorch's, a power", "a quotient", "the other way round"],
)
def test_parts_are_joined_and_make_the_same_numbers(model: onnx.ModelProto, tmp_path: Path) -> None:
    spelled = rewritten(model, *ALWAYS)
    assert _kinds(spelled) == KNOWN
    assert [node.name for node in spelled.graph.node] == [*"qmarny"]
    optimized = optimize_offline(model, tmp_path / "optimized.onnx", open_session, threads=1)
    assert _kinds(optimized) == ["SimplifiedLayerNormalization"]
    x = np.random.default_rng(2).standard_normal(ROWS).astype(np.float32)
    x[0, 0], x[0, 1, 3], x[1, 2, 0] = 0, np.inf, np.nan
    session = open_session(spelled.SerializeToString(), session_options(threads=1, optimize=True))
    with np.errstate(all="ignore"):
        wanted = ReferenceEvaluator(model).run(None, {"x": x})[0]
    np.testing.assert_allclose(session.run(None, {"x": x})[0], wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "model",
    [
        rooted(square="Pow", inverse=False),
        rooted(axis=1),
        rooted(scaled=False),
        rooted(divided="z"),
        rooted(element=np.float64),
        *(rooted(outputs=("y", name)) for name in "qri"),
    ],
    ids=["as it is joined", "another axis", "no scale", "another dividend", "float64", *"qri"],
)
def test_other_parts_are_left_alone(model: onnx.ModelProto) -> None:
    assert rewritten(model, *ALWAYS) is model


def test_default_that_may_be_overridden_is_no_constant() -> None:
    model = rooted()
    model.graph.input.append(helper.make_tensor_value_info("eps", TensorProto.FLOAT, []))
    assert rewritten(model, *ALWAYS) is model


# ---- Extents that are computed where they are known: constants ----


def asked(extents: list[int | str], result: str = "y", **attributes: int) -> onnx.ModelProto:
    """Return a model whose result is the shape of its input behind a ReLU, `s` before the Cast."""
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Shape", ["r"], ["s"], **attributes),
        helper.make_node("Cast", ["s"], ["y"], to=TensorProto.FLOAT),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, extents)]
    kind = TensorProto.INT64 if result == "s" else TensorProto.FLOAT
    outputs = [helper.make_tensor_value_info(result, kind, ["rank"])]
    graph = helper.make_graph(nodes, "net", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


@pytest.mark.parametrize(
    ("attributes", "wanted"),
    [({}, [2, 3, 5]), ({"start": 1}, [3, 5]), ({"start": -3, "end": -1}, [2, 3])],
)
def test_shape_of_known_extents_is_a_constant(
    attributes: dict[str, int], wanted: list[int]
) -> None:
    written = rewritten(asked([2, 3, 5], **attributes), EXTENTS_RULE)
    onnx.checker.check_model(written, full_check=True)
    assert [node.op_type for node in written.graph.node] == ["Relu", "Cast"]
    (constant,) = written.graph.initializer
    np.testing.assert_array_equal(numpy_helper.to_array(constant), wanted)


def test_claims_of_the_file_are_not_believed() -> None:
    model = asked([2, "n"])
    model.graph.value_info.append(helper.make_tensor_value_info("r", TensorProto.FLOAT, [2, 7]))
    assert rewritten(model, EXTENTS_RULE) is model


@pytest.mark.parametrize("model", [asked(["n", 3]), asked([2, 3], result="s")])
def test_open_extents_and_results_stay(model: onnx.ModelProto) -> None:
    assert rewritten(model, EXTENTS_RULE) is model


# ---- Tokens around a depthwise convolution: images between convolutions, the same numbers ----

IMAGES, SIDES = 2, (5, 3)
READ, WIDE, WRITTEN = 16, 48, 32


def tokens_of(
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


def _run(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    session = open_session(model.SerializeToString(), session_options(threads=1, optimize=True))
    result: np.ndarray = session.run(None, {"x0": x})[0]
    return result


@pytest.mark.parametrize(
    "model",
    [
        tokens_of(),
        tokens_of(biases=False, chain="Relu"),
        tokens_of(stride=2, chain=""),
        tokens_of(chain="HardSwish", asks=True),
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
    model = tokens_of()
    spelled = write_tokens_as_images(model)
    computing = [
        n.name for n in model.graph.node if n.op_type not in ("Add", "Transpose", "Reshape")
    ]
    assert set(computing) <= {node.name for node in spelled.graph.node}
    assert spelled.graph.output == model.graph.output
    assert write_tokens_as_images(spelled) is spelled


def test_names_of_nodes_are_not_given_again() -> None:
    model = tokens_of()
    model.graph.node[-1].name = f"{model.graph.node[-2].output[0]}_image"
    names = [node.name for node in write_tokens_as_images(model).graph.node]
    assert len({*names}) == len(names)


@pytest.mark.parametrize(
    "model",
    [
        tokens_of(widths=(READ, 24, WRITTEN)),
        tokens_of(widths=(READ, WIDE, 64)),
        tokens_of(widths=(64, WIDE, WRITTEN)),
        tokens_of(widths=(8, WIDE, WRITTEN)),
        tokens_of(summed=3),
        tokens_of(order=(0, 1, 2)),
        tokens_of(chain="scaled channels"),
        tokens_of(chain="Softmax"),
        tokens_of(computed=True),
        tokens_of(also="wide"),
        tokens_of(also="filtered"),
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
    model = tokens_of()
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
    kept = CPU.optimize(tokens_of(biases=False), file, threads=1, tokens_as_images=False)
    assert _kinds(kept).count("MatMul") == 2


def test_wide_channels_stay_in_blocks_and_are_made_by_the_kernel_that_filters_them(
    tmp_path: Path,
) -> None:
    if not CPU.channel_block():
        pytest.skip("no blocked layout on this CPU")
    proto = CPU.optimize(tokens_of(), tmp_path / "optimised.onnx", threads=1)
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


# ---- Signs of rotary embeddings: part of the constant behind them ----

_TURN = "t = Transpose <perm = [0, 2, 1, 3]> (x) a, b = Split <axis = 3> (t)"
_TURNED = "u = Mul(t, c) v = Mul(j, s) y = Add(u, v)"
_HALVES = f"{_TURN} n = Neg(b) j = Concat <axis = -1> (n, a) {_TURNED}"


def rotary(body: str, more: str = "float[5,32] s") -> onnx.ModelProto:
    """Return heads that are turned by constant angles; `more` are the sines."""
    return parsed("float[2,5,3,32] x", body, weights=f"float[5,32] c, {more}")


@pytest.mark.parametrize("sines", ["float[5,32] s", "float[1,5,1] s", "float[1] s"])
def test_signs_are_part_of_the_sines(sines: str) -> None:
    model = rotary(_HALVES, sines)
    written = rewritten(model, *ALWAYS, tidy=True)
    kinds = Counter(node.op_type for node in written.graph.node)
    assert kinds == Counter({"Transpose": 1, "Split": 1, "Concat": 1, "Mul": 2, "Add": 1})
    x = np.random.default_rng(0).standard_normal((2, 5, 3, 32)).astype(np.float32)
    x[0, 0, 0, :4] = np.nan, np.inf, -0.0, 1e-41
    before, after = (
        open_session(one.SerializeToString(), session_options(threads=1, optimize=False))
        for one in (model, written)
    )
    wanted = ReferenceEvaluator(model).run(None, {"x": x})[0]
    np.testing.assert_array_equal(after.run(None, {"x": x})[0], before.run(None, {"x": x})[0])
    np.testing.assert_allclose(after.run(None, {"x": x})[0], wanted, rtol=1e-6)


def test_a_rotary_embedding_is_one_region(tmp_path: Path) -> None:
    found = CPU.optimize(rotary(_HALVES), tmp_path / "o.onnx", threads=1)
    graph = ModelGraph(found, infer_tensors(found, open_session), block=0)
    parts = partition(graph, fusible=FUSIBLE, anchors=anchors(), classify=classify)
    assert [len(region.nodes) for region in parts.regions] == [len(found.graph.node)]


@pytest.mark.parametrize(
    "body",
    [
        _HALVES.replace(
            "y = Add(u, v)", "r = Relu(n) w = Add(u, v) k = Concat <axis = -1> (r, a) y = Add(w, k)"
        ),
        _HALVES.replace("v = Mul(j, s)", "e = Exp(s) v = Mul(j, e)"),
        f"{_TURN} n = Neg(b) j = Concat <axis = 2> (n, a) q = Mul(j, s) y = Relu(q)",
    ],
    ids=["read elsewhere", "computed factor", "along another axis"],
)
def test_signs_stay_where_they_are_no_part(body: str) -> None:
    model = rotary(body, "float[1] s" if "u = " not in body else "float[5,32] s")
    assert rewritten(model, *ALWAYS) is model
