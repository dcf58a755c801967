"""The baseline model of a workload, and the inputs it is compared on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest
from support.engine.cpu import open_session

from aoe.graph.workload_model import random_inputs, special_inputs, workload_model
from aoe.ort.sessions import session_options
from aoe.workload import NCHWC_DOMAIN, AttributeValue, Operation, Precision, TensorSpec, Workload


def spec(*shape: int, constant: bool = False) -> TensorSpec:
    return TensorSpec(shape=shape, constant=constant)


def make_operation(
    op_type: str, inputs: str, output: str, version: int = 13, **attributes: AttributeValue
) -> Operation:
    refs = tuple("" if ref == "-" else ref for ref in inputs.split())
    return Operation(
        op_type=op_type, version=version, inputs=refs, output=output, attributes=attributes
    )


NORMALISED = Workload(
    op_type="batch_normalization",
    inputs=(spec(2, 3, 4, 5), *(spec(3, constant=True),) * 4),
    scalars=(0.5,),
    operations=(
        make_operation("BatchNormalization", "x0 x1 x2 x3 x4", "t0", version=9),
        make_operation("Clip", "t0 - s0", "t1"),
    ),
    output=spec(2, 3, 4, 5),
)


def run(workload: Workload, seed: int = 0) -> np.ndarray:  # type: ignore[type-arg]
    model = workload_model(workload, seed=seed)
    session = open_session(model.SerializeToString(), session_options(threads=1, optimize=False))
    result: np.ndarray = session.run(None, dict(random_inputs(workload, seed)))[0]  # type: ignore[type-arg]
    return result


def test_constants_are_initializers_and_the_rest_are_inputs() -> None:
    graph = workload_model(NORMALISED, seed=1).graph
    assert [value.name for value in graph.input] == ["x0"]
    assert {t.name for t in graph.initializer} == {"x1", "x2", "x3", "x4", "s0"}
    assert [value.name for value in graph.output] == ["y"]
    assert list(random_inputs(NORMALISED, 1)) == ["x0"]


def test_large_inputs_repeat_what_is_drawn() -> None:
    plain = random_inputs(NORMALISED, 1)["x0"]
    repeated = random_inputs(NORMALISED, 1, most_drawn=7)["x0"]
    assert repeated.shape == plain.shape
    np.testing.assert_array_equal(repeated.flat[:7], plain.flat[:7])
    np.testing.assert_array_equal(repeated.flat[7:14], plain.flat[:7])


def test_constants_go_where_the_caller_says() -> None:
    stored: dict[str, np.ndarray] = {}  # type: ignore[type-arg]

    def store(array: np.ndarray, name: str) -> onnx.TensorProto:  # type: ignore[type-arg]
        stored[name] = array
        return onnx.numpy_helper.from_array(array, name)

    workload_model(NORMALISED, seed=1, store=store)
    assert set(stored) == {"x1", "x2", "x3", "x4"}


def test_model_is_valid_and_runs() -> None:
    onnx.checker.check_model(workload_model(NORMALISED, seed=1), full_check=True)
    result = run(NORMALISED)
    assert result.shape == (2, 3, 4, 5)
    assert result.max() <= 0.5


def test_same_seed_gives_the_same_model_and_inputs() -> None:
    first, second = workload_model(NORMALISED, seed=3), workload_model(NORMALISED, seed=3)
    assert first.SerializeToString() == second.SerializeToString()
    for left, right in zip(
        special_inputs(NORMALISED, 3).values(), special_inputs(NORMALISED, 3).values(), strict=True
    ):
        np.testing.assert_array_equal(left, right)


def test_another_seed_gives_other_values() -> None:
    assert not np.array_equal(
        random_inputs(NORMALISED, 1)["x0"], random_inputs(NORMALISED, 2)["x0"]
    )


def test_variances_are_positive() -> None:
    tensors = {t.name: t for t in workload_model(NORMALISED, seed=1).graph.initializer}
    assert np.all(onnx.numpy_helper.to_array(tensors["x4"]) > 0)


def test_denominators_keep_away_from_zero() -> None:
    workload = Workload(
        op_type="elementwise",
        inputs=(spec(50, 50), spec(50, 50)),
        operations=(make_operation("Div", "x0 x1", "t0"),),
        output=spec(50, 50),
    )
    assert np.abs(random_inputs(workload, 1)["x1"]).min() >= 0.5


def test_opset_is_the_one_in_which_every_operator_has_its_version() -> None:
    model = workload_model(NORMALISED, seed=1)
    assert {entry.domain: entry.version for entry in model.opset_import} == {"": 13}


def test_old_operators_get_the_oldest_opset_that_runs() -> None:
    workload = Workload(
        op_type="elementwise",
        inputs=(spec(4),),
        operations=(make_operation("Selu", "x0", "t0", version=6),),
        output=spec(4),
    )
    assert workload_model(workload, seed=1).opset_import[0].version == 7
    assert run(workload).shape == (4,)


def test_scalar_parameter_of_one_channel_keeps_a_dimension() -> None:
    workload = Workload(
        op_type="batch_normalization",
        inputs=(spec(2, 1, 4),),
        scalars=(2.0, 1.0, 0.0, 1.0),
        operations=(
            make_operation("BatchNormalization", "x0 s0 s1 s2 s3", "t0", version=15, epsilon=0.0),
        ),
        output=spec(2, 1, 4),
    )
    np.testing.assert_allclose(run(workload), 2 * random_inputs(workload, 0)["x0"] + 1, rtol=1e-6)


def test_domains_are_imported() -> None:
    workload = Workload(
        op_type="elementwise",
        inputs=(spec(4),),
        operations=(
            Operation(op_type="QuickGelu", domain="com.microsoft", inputs=("x0",), output="t0"),
        ),
        output=spec(4),
    )
    assert {e.domain for e in workload_model(workload, seed=1).opset_import} == {
        "",
        "com.microsoft",
    }
    assert run(workload).shape == (4,)


def test_empty_attribute_lists_are_left_out() -> None:
    operation = Operation(
        op_type="Conv",
        domain=NCHWC_DOMAIN,
        inputs=("x0",),
        output="t0",
        attributes={"activation_params": (), "group": 4},
    )
    workload = Workload(
        op_type="elementwise",
        inputs=(spec(4),),
        operations=(operation,),
        output=spec(4),
    )
    node = workload_model(workload, seed=1).graph.node[0]
    assert [attribute.name for attribute in node.attribute] == ["group"]


def test_special_inputs_hold_every_kind_of_value() -> None:
    workload = Workload(
        op_type="elementwise",
        inputs=(spec(40, 40),),
        operations=(make_operation("Exp", "x0", "t0"),),
        output=spec(40, 40),
    )
    x = special_inputs(workload, 1)["x0"]
    assert x.dtype == np.float32
    assert np.isnan(x).any()
    assert np.isposinf(x).any() and np.isneginf(x).any()
    assert np.any((x == 0) & np.signbit(x))
    assert np.any((x != 0) & (np.abs(x) < 1.2e-38))
    assert np.any(x == 2.5)
    assert np.any(np.abs(x) > 1e38)


def test_lrn_gets_values_its_running_sum_survives() -> None:
    workload = Workload(
        op_type="lrn",
        inputs=(spec(1, 8, 9, 9),),
        operations=(make_operation("LRN", "x0", "t0", size=3),),
        output=spec(1, 8, 9, 9),
    )
    x = special_inputs(workload, 1)["x0"]
    assert np.isfinite(x).all()
    assert np.abs(x).max() <= 50
    assert np.any(x == 2.5)


@pytest.mark.parametrize("kind", ["Softmax", "LogSoftmax"])
def test_softmax_columns_are_not_all_poisoned(kind: str) -> None:
    workload = Workload(
        op_type="softmax",
        inputs=(spec(1, 8, 20, 20),),
        operations=(make_operation(kind, "x0", "t0", axis=1),),
        output=spec(1, 8, 20, 20),
    )
    clean = ~np.isnan(special_inputs(workload, 1)["x0"]).any(axis=1)
    assert 0.5 < clean.mean() < 1


def convolved(precision: Precision = Precision.FLOAT32) -> Workload:
    """Return a convolution that sums 16 * 3 * 3 products behind a Relu."""
    product = Operation(
        op_type="Conv",
        domain=NCHWC_DOMAIN,
        inputs=("t0", "x1"),
        output="t1",
        attributes={"kernel_shape": (3, 3), "pads": (1, 1, 1, 1), "group": 1},
    )
    return Workload(
        op_type="convolution",
        inputs=(spec(1, 16, 8, 8), spec(16, 16, 3, 3, constant=True)),
        operations=(make_operation("Relu", "x0", "t0"), product),
        output=spec(1, 16, 8, 8),
        precision=precision,
    )


@pytest.mark.parametrize("precision", Precision)
def test_sums_of_products_are_standard_normal_too(precision: Precision) -> None:
    """Else a Sigmoid behind them is timed on underflow, and a bound in bfloat16 means nothing."""
    model = workload_model(convolved(precision), seed=1)
    weights = onnx.numpy_helper.to_array(model.graph.initializer[0])
    assert weights.std() == pytest.approx(1 / 12, rel=0.05)


def test_lower_precision_is_compared_on_finite_moderate_values() -> None:
    x = special_inputs(replace(NORMALISED, precision=Precision.BFLOAT16), 1)["x0"]
    assert np.abs(x).max() <= 50
    assert np.any((x != 0) & (np.abs(x) < 1.2e-38))
    assert not np.isfinite(special_inputs(NORMALISED, 1)["x0"]).all()
