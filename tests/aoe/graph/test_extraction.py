"""From nodes to a workload free of the model's names."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper
from support.engine.graphs import BLOCK
from support.engine.models import Array, make_model

from aoe.device.registry import default_device
from aoe.graph.extraction import UNCLASSIFIED, Extracted, extract_workload
from aoe.graph.model_graph import ModelGraph, TensorInfo
from aoe.ort.sessions import run_session, session_options
from aoe.workload import NCHWC_DOMAIN, Layout, TensorSpec

SHAPE = (1, 16, 4, 4)


def _graph(
    nodes: list[onnx.NodeProto],
    *,
    shape: tuple[int, ...] = SHAPE,
    weights: dict[str, Array] | None = None,
    infos: dict[str, TensorInfo] | None = None,
    opset: int = 17,
) -> ModelGraph:
    made = [name for node in nodes for name in node.output]
    model = make_model(nodes, {"x": shape}, [made[-1]], weights=weights, opset=opset)
    tensors = {name: TensorInfo(dtype="float32", shape=shape) for name in made}
    return ModelGraph(model, tensors | (infos or {}), block=BLOCK)


def _extracted(graph: ModelGraph) -> Extracted:
    found = extract_workload(graph, range(len(graph.nodes)))
    assert isinstance(found, Extracted), found
    return found


def _reason(graph: ModelGraph) -> str:
    found = extract_workload(graph, range(len(graph.nodes)))
    assert isinstance(found, str)
    return found


def test_names_become_references_in_the_order_they_are_read() -> None:
    nodes = [
        helper.make_node("PRelu", ["x", "slope"], ["a"]),
        helper.make_node("Mul", ["half", "a"], ["b"]),
        helper.make_node("Add", ["b", "x"], ["y"]),
    ]
    weights = {"slope": np.ones((16, 1, 1), np.float32), "half": np.full((), 0.5, np.float32)}
    found = _extracted(_graph(nodes, weights=weights))
    assert found.inputs == ("x", "slope")
    assert found.scalars == ("half",)
    assert found.output == "y"
    workload = found.workload
    assert workload.op_type == UNCLASSIFIED
    assert workload.scalars == (0.5,)
    assert [op.inputs for op in workload.operations] == [("x0", "x1"), ("s0", "t0"), ("t1", "x0")]
    assert [op.output for op in workload.operations] == ["t0", "t1", "t2"]
    assert [spec.constant for spec in workload.inputs] == [False, True]
    assert workload.output == TensorSpec(shape=SHAPE)


def test_equal_chains_in_other_places_are_the_same_workload() -> None:
    first = _graph([helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Exp", ["a"], ["b"])])
    second = _graph([helper.make_node("Relu", ["x"], ["q"]), helper.make_node("Exp", ["q"], ["z"])])
    assert _extracted(first).workload == _extracted(second).workload


@pytest.mark.parametrize("dims", [(), (1,), (1, 1, 1)])
def test_layers_that_differ_in_a_learnt_slope_are_the_same_workload(dims: tuple[int, ...]) -> None:
    nodes = [
        helper.make_node("PRelu", ["x", "slope"], ["a"]),
        helper.make_node("Mul", ["a", "half"], ["y"]),
    ]
    found = [
        _extracted(
            _graph(
                nodes,
                weights={
                    "slope": np.full(dims, slope, np.float32),
                    "half": np.full((), 0.5, np.float32),
                },
            )
        )
        for slope in (0.25, 0.2239)
    ]
    assert found[0].workload == found[1].workload
    assert found[0].inputs == ("x", "slope") and found[0].scalars == ("half",)


def test_attributes_belong_to_the_workload() -> None:
    workloads = {
        alpha: _extracted(
            _graph([helper.make_node("LeakyRelu", ["x"], ["y"], alpha=alpha)])
        ).workload
        for alpha in (0.25, 0.5)
    }
    assert workloads[0.25] != workloads[0.5]
    assert workloads[0.25].operations[0].attributes == {"alpha": 0.25}


@pytest.mark.parametrize(("opset", "version"), [(10, 6), (11, 11), (12, 12), (17, 13)])
def test_operation_keeps_the_version_its_meaning_has(opset: int, version: int) -> None:
    graph = _graph([helper.make_node("Clip", ["x"], ["y"])], opset=opset)
    assert _extracted(graph).workload.operations[0].version == version


def test_opset_newer_than_the_onnx_package_is_no_error() -> None:
    graph = _graph([helper.make_node("Relu", ["x"], ["y"])], opset=999)
    assert _extracted(graph).workload.operations[0].version >= 14


def test_omitted_input_stays_omitted() -> None:
    node = helper.make_node("Clip", ["x", "", "high"], ["y"])
    found = _extracted(_graph([node], weights={"high": np.full((), 6, np.float32)}))
    assert found.workload.operations[0].inputs == ("x0", "", "s0")


def test_scalar_of_higher_rank_than_the_result_stays_a_tensor() -> None:
    """Its shape would lift the result: it must not be folded away."""
    node = helper.make_node("Add", ["x", "one"], ["y"])
    weights = {"one": np.ones((1, 1, 1, 1, 1), np.float32)}
    graph = _graph([node], weights=weights)
    assert _extracted(graph).scalars == ()
    assert _extracted(graph).inputs == ("x", "one")


@pytest.mark.parametrize("value", [-np.inf, np.inf, np.nan])
def test_scalar_a_record_cannot_hold_stays_a_tensor(value: float) -> None:
    """Masks of attention add minus infinity; JSON has no word for it."""
    node = helper.make_node("Add", ["x", "mask"], ["y"])
    weights = {"mask": np.full((), value, np.float32)}
    found = _extracted(_graph([node], weights=weights))
    assert found.inputs == ("x", "mask")
    assert found.workload.inputs[1] == TensorSpec(shape=(), constant=True)


def test_attribute_a_record_cannot_hold_is_a_reason() -> None:
    node = helper.make_node("LeakyRelu", ["x"], ["y"], alpha=float("inf"))
    assert _reason(_graph([node])) == "attribute alpha is inf"


def test_parameters_of_a_one_channel_normalisation_stay_tensors() -> None:
    names = ["scale", "bias", "mean", "var"]
    node = helper.make_node("BatchNormalization", ["x", *names], ["y"])
    weights = {name: np.ones(1, np.float32) for name in names}
    found = _extracted(_graph([node], shape=(1, 1, 4, 4), weights=weights))
    assert found.inputs == ("x", *names)


@pytest.mark.parametrize(
    ("info", "reason"),
    [
        (TensorInfo(dtype="float64", shape=SHAPE), "x2 is float64, kernels compute in float32"),
        (TensorInfo(dtype="bool", shape=SHAPE), "x2 is bool"),
        (TensorInfo(dtype="float32", shape=(1, 0, 4, 4)), "x2 is empty"),
        (TensorInfo(dtype="float32", shape=(1,) * 9), "x2 has rank 9, more than 8"),
        (None, "the shape of x2 may differ from run to run"),
    ],
)
def test_what_no_kernel_can_read_is_a_reason(info: TensorInfo | None, reason: str) -> None:
    graph = _graph(
        [helper.make_node("Add", ["x", "x2"], ["y"])], infos={"x2": info} if info else {}
    )
    assert reason in _reason(graph)


def test_result_of_another_type_is_a_reason() -> None:
    graph = _graph(
        [helper.make_node("Not", ["x"], ["y"])],
        infos={"y": TensorInfo(dtype="bool", shape=SHAPE)},
    )
    assert "y is bool" in _reason(graph)


def test_boolean_inside_is_nobody_s_business() -> None:
    nodes = [
        helper.make_node("Greater", ["x", "x"], ["c"]),
        helper.make_node("Where", ["c", "x", "x"], ["y"]),
    ]
    graph = _graph(nodes, infos={"c": TensorInfo(dtype="bool", shape=SHAPE)})
    assert [op.op_type for op in _extracted(graph).workload.operations] == ["Greater", "Where"]


def test_booleans_are_read_where_they_choose() -> None:
    nodes = [helper.make_node("Where", ["c", "x", "x2"], ["y"])]
    infos = {name: TensorInfo(dtype="bool", shape=SHAPE) for name in ("c", "d")}
    found = _extracted(
        _graph(nodes, infos=infos | {"x2": TensorInfo(dtype="float32", shape=SHAPE)})
    )
    assert [spec.dtype for spec in found.workload.inputs] == ["bool", "float32", "float32"]
    chosen = [helper.make_node("Where", ["c", "x", "d"], ["y"])]
    assert "d is bool" in _reason(_graph(chosen, infos=infos))


def _blocked_chain(channels: int) -> ModelGraph:
    nodes = [
        helper.make_node("ReorderInput", ["x"], ["b"], domain=NCHWC_DOMAIN),
        helper.make_node("ReorderOutput", ["b"], ["p"], domain=NCHWC_DOMAIN, channels=channels),
        helper.make_node("Tanh", ["p"], ["t"]),
        helper.make_node("ReorderInput", ["t"], ["y"], domain=NCHWC_DOMAIN),
    ]
    return _graph(nodes, shape=(1, channels, 4, 4))


def test_layout_bound_workload_knows_its_layouts() -> None:
    found = extract_workload(_blocked_chain(16), (1, 2, 3))
    assert isinstance(found, Extracted)
    assert found.workload.blocked
    assert found.workload.inputs[0] == TensorSpec(shape=SHAPE, layout=Layout.BLOCKED, block=BLOCK)


def test_channels_that_fill_no_block_are_a_reason() -> None:
    found = extract_workload(_blocked_chain(12), (1, 2, 3))
    assert "not a multiple of 8" in str(found)


def test_chain_between_blocked_tensors_without_reorders_is_plain() -> None:
    nodes = [
        helper.make_node("ReorderInput", ["x"], ["b"], domain=NCHWC_DOMAIN),
        helper.make_node("Tanh", ["b"], ["y"]),
    ]
    found = extract_workload(_graph(nodes), (1,))
    assert isinstance(found, Extracted)
    assert found.workload.inputs == (TensorSpec(shape=SHAPE),)
    assert not found.workload.blocked


@pytest.mark.parametrize("domain", ["", NCHWC_DOMAIN])
@pytest.mark.parametrize(
    ("given", "shape", "pads"),
    [
        ({"auto_pad": "SAME_UPPER", "strides": (2, 2)}, (9, 8), (1, 0, 1, 1)),
        ({"auto_pad": "SAME_LOWER", "strides": (2, 2)}, (9, 8), (1, 1, 1, 0)),
        ({"auto_pad": "SAME_UPPER", "dilations": (2, 1)}, (9, 8), (2, 1, 2, 1)),
        ({"auto_pad": "VALID", "pads": (1, 1, 1, 1)}, (9, 8), (0, 0, 0, 0)),
        ({"auto_pad": "NOTSET", "pads": (0, 1, 2, 3)}, (9, 8), (0, 1, 2, 3)),
    ],
)
def test_convolution_says_how_many_zeros_its_rule_of_padding_adds(
    given: dict[str, object], shape: tuple[int, int], pads: tuple[int, ...], domain: str
) -> None:
    image, weights = (1, 16, *shape), {"w": np.ones((16, 16, 3, 3), np.float32)}
    node = helper.make_node("Conv", ["x", "w"], ["y"], domain=domain, **given)
    model = make_model([node], {"x": image}, ["y"], weights=weights, domains={NCHWC_DOMAIN: 1})
    graph = ModelGraph(model, {"y": TensorInfo(dtype="float32", shape=image)}, block=BLOCK)
    (found,) = _extracted(graph).workload.operations
    assert found.attributes["auto_pad"] == "NOTSET"
    assert found.attributes["pads"] == pads


@pytest.mark.parametrize("rule", ["SAME_UPPER", "SAME_LOWER", "VALID"])
@pytest.mark.parametrize("extents", [(9, 8), (5, 7)])
def test_padding_is_that_of_onnxruntime(rule: str, extents: tuple[int, int]) -> None:
    """What is said of the zeros gives the numbers ONNX Runtime makes of the rule."""
    rng = np.random.default_rng(3)
    weights = {"w": rng.standard_normal((4, 3, 3, 2)).astype(np.float32)}
    x = rng.standard_normal((1, 3, *extents)).astype(np.float32)
    node = helper.make_node("Conv", ["x", "w"], ["y"], auto_pad=rule, strides=(2, 1))
    model = make_model([node], {"x": x.shape}, ["y"], weights=weights, opset=17)
    (expected,) = _results(model, x)
    graph = ModelGraph(model, {"y": TensorInfo(dtype="float32", shape=expected.shape)}, block=BLOCK)
    (found,) = _extracted(graph).workload.operations
    written = helper.make_node("Conv", ["x", "w"], ["y"], **found.attributes)
    (made,) = _results(make_model([written], {"x": x.shape}, ["y"], weights=weights, opset=17), x)
    np.testing.assert_array_equal(made, expected)


def _results(model: onnx.ModelProto, x: Array) -> list[Array]:
    session = default_device().open_session(
        model.SerializeToString(), session_options(threads=1, optimize=False)
    )
    return run_session(session, {"x": x})


def _quantised_convolution(zero_points: Array) -> ModelGraph:
    inputs = ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz", "b"]
    node = helper.make_node(
        "QLinearConv", inputs, ["y"], kernel_shape=[3, 3], auto_pad="SAME_UPPER"
    )
    weights: dict[str, Array] = {
        "xs": np.array(0.5, np.float32),
        "xz": np.array(7, np.uint8),
        "w": np.ones((8, 16, 3, 3), np.int8),
        "ws": np.ones(8, np.float32),
        "wz": zero_points,
        "ys": np.array(0.25, np.float32),
        "yz": np.array(9, np.uint8),
        "b": np.ones(8, np.int32),
    }
    infos = {
        "x": TensorInfo(dtype="uint8", shape=SHAPE),
        "y": TensorInfo(dtype="uint8", shape=(1, 8, 4, 4)),
    }
    graph = _graph([node], weights=weights, infos=infos)
    return ModelGraph(
        onnx.ModelProto(
            graph=onnx.GraphProto(node=[node], initializer=graph.proto.graph.initializer)
        ),
        infos,
        block=BLOCK,
    )


def test_scales_and_zero_points_are_inputs_but_the_zero_point_of_weights() -> None:
    workload = _extracted(_quantised_convolution(np.zeros(8, np.int8))).workload
    assert workload.scalars == ()
    dtypes = [spec.dtype for spec in workload.inputs]
    assert dtypes == [*("uint8", "float32", "uint8", "int8"), *("float32",) * 2, "uint8", "int32"]
    (convolution,) = workload.operations
    assert convolution.inputs == ("x0", "x1", "x2", "x3", "x4", "", "x5", "x6", "x7")
    assert convolution.attributes["w_zero_point"] == 0
    assert convolution.attributes["pads"] == (1, 1, 1, 1)


def test_zero_points_that_differ_are_refused() -> None:
    assert "whose values differ" in _reason(_quantised_convolution(np.arange(8, dtype=np.int8)))
