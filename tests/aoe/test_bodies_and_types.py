"""Control flow, and models of other element types: what is not tunable stays as it is."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from support.engine.cpu import open_session
from support.engine.environments import run_environment
from support.engine.first_guesses import FirstGuesses, newest_opset, small_net
from support.tiers import chosen_every_day

import aoe
from aoe.errors import RunError
from aoe.ort.sessions import random_feed, session_options
from aoe.runs.run import tune_with
from aoe.tuner.mode import JobType, TuneSettings
from aoe.tuner.progress import SilentProgress

_NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


# ---- control flow ----


def _body(nodes: list[onnx.NodeProto], inputs: list[Any], outputs: list[Any]) -> onnx.GraphProto:
    return helper.make_graph(nodes, "body", inputs, outputs)


def _value(name: str, shape: tuple[int, ...] | None, kind: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def _around(node: onnx.NodeProto, opset: int, **weights: Any) -> onnx.ModelProto:
    """Return a chain, a node with a body that reads `m` and makes `n`, and a chain."""
    nodes = [
        helper.make_node("Softplus", ["x"], ["l"], "softplus"),
        helper.make_node("Tanh", ["l"], ["m"], "tanh"),
        node,
        helper.make_node("Softplus", ["n"], ["o"], "softplus2"),
        helper.make_node("Tanh", ["o"], ["y"], "tanh2"),
    ]
    return small_net(nodes, {"x": (8, 16)}, weights, opset=opset)


def _if_net(opset: int) -> onnx.ModelProto:
    branches = {
        name: _body(
            [
                helper.make_node("Softplus", ["m"], [f"{name}_a"], f"{name}_softplus"),
                helper.make_node(op_type, [f"{name}_a"], [f"{name}_y"], f"{name}_op"),
            ],
            [],
            [_value(f"{name}_y", None)],
        )
        for name, op_type in (("then_branch", "Neg"), ("else_branch", "Abs"))
    }
    node = helper.make_node("If", ["flag"], ["n"], "choice", **branches)
    return _around(node, opset, flag=np.array(True))


def _loop_net(opset: int) -> onnx.ModelProto:
    body = _body(
        [
            helper.make_node("Identity", ["go"], ["go_on"], "on"),
            helper.make_node("Softplus", ["s"], ["s_a"], "body_softplus"),
            helper.make_node("Add", ["s_a", "m"], ["s_out"], "body_add"),
        ],
        [_value("i", (), TensorProto.INT64), _value("go", (), TensorProto.BOOL), _value("s", None)],
        [_value("go_on", (), TensorProto.BOOL), _value("s_out", None)],
    )
    node = helper.make_node("Loop", ["times", "yes", "m"], ["n"], "loop", body=body)
    return _around(node, opset, times=np.array(3, np.int64), yes=np.array(True))


def _scan_net(opset: int) -> onnx.ModelProto:
    body = _body(
        [
            helper.make_node("Add", ["s", "row"], ["s_out"], "body_add"),
            helper.make_node("Softplus", ["s_out"], ["row_out"], "body_softplus"),
        ],
        [_value("s", (16,)), _value("row", (16,))],
        [_value("s_out", (16,)), _value("row_out", (16,))],
    )
    node = helper.make_node(
        "Scan", ["start", "m"], ["end", "n"], "scan", body=body, num_scan_inputs=1
    )
    return _around(node, opset, start=np.zeros(16, np.float32))


_EVERYDAY = {(11, _if_net), (16, _loop_net), (21, _scan_net)}


@pytest.mark.parametrize(
    ("opset", "make"),
    chosen_every_day(
        ((n, make) for make in (_if_net, _loop_net, _scan_net) for n in (11, 16, 21, 26)),
        _EVERYDAY,
    ),
)
def test_bodies_of_control_flow_compute_as_before(
    opset: int, make: Callable[[int], onnx.ModelProto], models: FirstGuesses
) -> None:
    if opset > newest_opset():
        pytest.skip(f"onnxruntime knows opsets up to {newest_opset()}")
    assert models.compare(make(opset)) > 0


# ---- element types ----


def _half_net() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Softplus", ["x"], ["a"], "softplus"),
        helper.make_node("Tanh", ["a"], ["b"], "tanh"),
        helper.make_node("Mul", ["b", "x"], ["c"], "mul"),
        helper.make_node("LayerNormalization", ["c", "scale"], ["d"], "norm"),
        helper.make_node("Transpose", ["d"], ["e"], "turn", perm=[0, 2, 1]),
        helper.make_node("Concat", ["e", "e"], ["y"], "join", axis=1),
    ]
    scale = np.ones(16, np.float16)
    return small_net(nodes, {"x": (2, 8, 16)}, {"scale": scale}, opset=17, kind=TensorProto.FLOAT16)


def _bfloat_net() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Softplus", ["x"], ["a"], "softplus"),
        helper.make_node("Tanh", ["a"], ["b"], "tanh"),
        helper.make_node("Cast", ["b"], ["c"], "down", to=TensorProto.BFLOAT16),
        helper.make_node("Transpose", ["c"], ["d"], "turn", perm=[1, 0]),
        helper.make_node("Cast", ["d"], ["e"], "up", to=TensorProto.FLOAT),
        helper.make_node("Softplus", ["e"], ["y"], "softplus2"),
    ]
    return small_net(nodes, {"x": (8, 16)}, opset=17)


def _quantized(name: str, result: str) -> list[onnx.NodeProto]:
    return [
        helper.make_node("QuantizeLinear", [name, "s", "z"], [f"{name}_q"], f"q_{name}"),
        helper.make_node("DequantizeLinear", [f"{name}_q", "s", "z"], [result], f"dq_{name}"),
    ]


def _qdq_net() -> onnx.ModelProto:
    rng = np.random.default_rng(3)
    weights = {
        "s": np.array(0.02, np.float32),
        "z": np.array(0, np.int8),
        "w_q": rng.integers(-100, 100, (16, 16, 3, 3), np.int8),
    }
    nodes = [
        *_quantized("x", "x_d"),
        helper.make_node("DequantizeLinear", ["w_q", "s", "z"], ["w"], "dq_w"),
        helper.make_node("Conv", ["x_d", "w"], ["a"], "conv", pads=[1, 1, 1, 1]),
        *_quantized("a", "a_d"),
        helper.make_node("Softplus", ["a_d"], ["b"], "softplus"),
        helper.make_node("Tanh", ["b"], ["y"], "tanh"),
    ]
    return small_net(nodes, {"x": (1, 16, 8, 8)}, weights, opset=17)


def _integer_net() -> onnx.ModelProto:
    rng = np.random.default_rng(4)
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"], "quantize"),
        helper.make_node("MatMulInteger", ["q", "w", "z"], ["i"], "product"),
        helper.make_node("Cast", ["i"], ["f"], "cast", to=TensorProto.FLOAT),
        helper.make_node("Mul", ["f", "s"], ["m"], "scale"),
        helper.make_node("Softplus", ["m"], ["o"], "softplus"),
        helper.make_node("Tanh", ["o"], ["y"], "tanh"),
    ]
    weights = {"w": rng.integers(-3, 3, (16, 8), np.int8)}
    return small_net(nodes, {"x": (4, 16)}, weights, opset=17)


def _dynamic_net() -> onnx.ModelProto:
    """Return a block with a shortcut as `quantize_dynamic` writes it: one image, two readers."""
    rng = np.random.default_rng(6)
    weights: dict[str, Any] = {}
    nodes = []

    def convolve(name: str, read: str, kernel: tuple[int, ...], *, measures: bool = True) -> None:
        q, s, z = (f"{read}_{part}" for part in "qsz")
        if measures:
            nodes.append(helper.make_node("DynamicQuantizeLinear", [read], [q, s, z], f"{read}_m"))
        weights[f"{name}_w"] = rng.integers(-128, 128, kernel).astype(np.int8)
        weights[f"{name}_z"], weights[f"{name}_s"] = np.int8(0), np.float32(0.01 * kernel[2])
        weights[f"{name}_b"] = rng.normal(size=(1, kernel[0], 1, 1)).astype(np.float32)
        sums, numbers, scale, scaled = (f"{name}_{at}" for at in range(4))
        pads, group = [kernel[-1] // 2] * 4, kernel[0] if kernel[1] == 1 else 1
        inputs = [q, f"{name}_w", z, f"{name}_z"]
        nodes.extend(
            [
                helper.make_node("ConvInteger", inputs, [sums], sums, pads=pads, group=group),
                helper.make_node("Cast", [sums], [numbers], numbers, to=TensorProto.FLOAT),
                helper.make_node("Mul", [s, f"{name}_s"], [scale], scale),
                helper.make_node("Mul", [numbers, scale], [scaled], scaled),
                helper.make_node("Add", [scaled, f"{name}_b"], [name], name),
            ]
        )

    convolve("a", "x", (24, 8, 3, 3))
    nodes.append(helper.make_node("Relu", ["a"], ["ar"], "relu"))
    convolve("d", "ar", (24, 1, 3, 3))
    convolve("c", "x", (24, 8, 1, 1), measures=False)
    nodes.append(helper.make_node("Add", ["d", "c"], ["sum"], "sum"))
    nodes.append(helper.make_node("Relu", ["sum"], ["y"], "end"))
    return small_net(nodes, {"x": (1, 8, 9, 20)}, weights, opset=17)


def test_kernels_of_a_dynamically_quantised_block_give_its_bits(models: FirstGuesses) -> None:
    kernels, before, after = models.sessions(_dynamic_net())
    assert sum("quantised_convolution" in name for name in kernels) == len(kernels) == 3
    feed = random_feed(before, 5)
    np.testing.assert_array_equal(after.run(None, feed)[0], before.run(None, feed)[0])


def _double_net() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], "relu"),
        helper.make_node("Transpose", ["a"], ["y"], "turn", perm=[1, 0]),
    ]
    return small_net(nodes, {"x": (8, 16)}, opset=17, kind=TensorProto.DOUBLE)


def _moved_halves_net() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Transpose", ["x"], ["a"], "turn", perm=[0, 2, 1]),
        helper.make_node("Concat", ["a", "a"], ["y"], "join", axis=1),
    ]
    return small_net(nodes, {"x": (2, 24, 16)}, opset=17, kind=TensorProto.FLOAT16)


def _moved_bytes_net() -> onnx.ModelProto:
    """Return what is moved between a quantisation and the way back, as detectors do."""
    weights = {"s": np.array(0.02, np.float32), "z": np.array(128, np.uint8)}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], "q"),
        helper.make_node("Transpose", ["q"], ["t"], "turn", perm=[0, 2, 3, 1]),
        helper.make_node("Concat", ["t", "t"], ["c"], "join", axis=3),
        helper.make_node("DequantizeLinear", ["c", "s", "z"], ["y"], "dq"),
    ]
    return small_net(nodes, {"x": (1, 24, 8, 8)}, weights, opset=17)


def _computed_halves_net() -> onnx.ModelProto:
    """Return a piece of a transformer in float16: ONNX Runtime casts around all it computes."""
    rng = np.random.default_rng(5)
    scale, bias = rng.normal(size=(2, 24)).astype(np.float16)
    weights = rng.normal(0, 0.2, (24, 24)).astype(np.float16)
    nodes = [
        helper.make_node("LayerNormalization", ["x", "g", "b"], ["n"], "norm", axis=-1),
        helper.make_node("MatMul", ["n", "w"], ["m"], "product"),
        helper.make_node("Sigmoid", ["m"], ["i"], "sigmoid"),
        helper.make_node("Mul", ["m", "i"], ["o"], "swish"),
        helper.make_node("Add", ["o", "x"], ["s"], "residual"),
        helper.make_node("Softmax", ["s"], ["p"], "softmax", axis=-1),
        helper.make_node("Transpose", ["p"], ["t"], "turn", perm=[0, 2, 1]),
        helper.make_node("Tanh", ["t"], ["y"], "tanh"),
    ]
    given = {"g": scale, "b": bias, "w": weights}
    return small_net(nodes, {"x": (2, 16, 24)}, given, opset=17, kind=TensorProto.FLOAT16)


def _levels_net() -> onnx.ModelProto:
    """Return operators between levels that ONNX Runtime has no kernel of 8 bits for."""
    weights = {"s": np.array(0.02, np.float32), "z": np.array(120, np.uint8)}
    nodes = []
    for at, (op_type, read) in enumerate((("HardSwish", "x"), ("Div", "y0"), ("Tanh", "y1"))):
        nodes += [
            helper.make_node("QuantizeLinear", [read, "s", "z"], [f"q{at}"], f"q{at}"),
            helper.make_node("DequantizeLinear", [f"q{at}", "s", "z"], [f"d{at}"], f"d{at}"),
            helper.make_node(
                op_type,
                [f"d{at}", *(["k"] if op_type == "Div" else [])],
                [f"y{at}" if at < 2 else "y"],
                op_type,
            ),
        ]
    weights["k"] = np.array(1.7, np.float32)
    return small_net(nodes, {"x": (1, 24, 8, 8)}, weights, opset=17)


@pytest.mark.parametrize(
    "make",
    [
        _moved_bytes_net,
        *(
            pytest.param(make, marks=pytest.mark.slow)
            for make in (_moved_halves_net, _computed_halves_net, _levels_net)
        ),
    ],
)
def test_halves_and_bytes_are_read_and_made_by_kernels(
    make: Callable[[], onnx.ModelProto], models: FirstGuesses
) -> None:
    assert models.compare(make()) > 0


@pytest.mark.slow
@pytest.mark.parametrize("make", [_computed_halves_net, _levels_net])
def test_whole_run_keeps_what_such_models_compute(
    make: Callable[[], onnx.ModelProto], tmp_path: Path
) -> None:
    """Measured by the worker as any other; whatever wins, results are ONNX Runtime's."""
    file = tmp_path / "net.onnx"
    onnx.save(make(), file)
    (tmp_path / "bank").mkdir()
    settings = TuneSettings(
        model=file,
        output=tmp_path / "net.om",
        job_types=(JobType.OPAT,),
        core_num=1,
        trials=1,
        accept_busy=True,
    )
    env = run_environment(tmp_path / "bank")
    result = tune_with(settings, env=env, cwd=tmp_path, progress=SilentProgress(), now=_NOW)
    assert result.om_file is not None
    plain = open_session(file.read_bytes(), session_options(threads=1, optimize=True))
    feed = random_feed(plain, 5)
    found, expected = aoe.load(result.om_file).run(None, feed)[0], plain.run(None, feed)[0]
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=2e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("make", "kernels"),
    [
        (_half_net, True),
        pytest.param(_bfloat_net, True, marks=pytest.mark.slow),
        pytest.param(_qdq_net, True, marks=pytest.mark.slow),
        pytest.param(_integer_net, True, marks=pytest.mark.slow),
        (_double_net, False),
    ],
)
def test_other_element_types_stay_and_what_is_float32_between_them_is_tuned(
    make: Callable[[], onnx.ModelProto], kernels: bool, models: FirstGuesses
) -> None:
    assert (models.compare(make()) > 0) is kernels


def test_float8_inputs_are_refused_in_one_message() -> None:
    node = helper.make_node("Cast", ["x"], ["y"], "cast", to=TensorProto.FLOAT8E4M3FN)
    model = small_net([node], {"x": (2, 3)}, opset=19, kind=TensorProto.FLOAT8E4M3FN)
    session = open_session(model.SerializeToString(), session_options(threads=1, optimize=True))
    with pytest.raises(RunError, match=r"input x: no random value .* \(got tensor\(float8e4m3fn\)"):
        random_feed(session, 0)
