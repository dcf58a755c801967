"""When two results agree."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.contracts.kernels import SEED, operation, plain
from support.engine.cpu import open_session
from support.engine.families import chain_workload

from aoe.execute.accuracy import (
    Deviation,
    Tolerance,
    compare,
    compare_model_results,
    kernel_tolerance,
    reached_by_nan,
    worse_of,
)
from aoe.graph.workload_model import special_inputs, workload_model
from aoe.ort.sessions import session_options
from aoe.workload import NCHWC_DOMAIN, Operation, Precision, TensorSpec, Workload

_EXACT = Tolerance(relative=0.0, absolute=0.0)
_LOOSE = Tolerance(relative=1e-3, absolute=1e-3)


def _array(*values: float) -> np.ndarray:  # type: ignore[type-arg]
    return np.array(values, np.float32)


def test_equal_results_deviate_by_nothing() -> None:
    special = _array(0, -0.0, 1, np.nan, np.inf, -np.inf, 1e-45)
    assert compare(special, special, _EXACT) == Deviation(max_abs_err=0.0, excess=0.0)


def test_signed_zeros_are_equal() -> None:
    assert compare(_array(0.0), _array(-0.0), _EXACT).acceptable


def test_difference_within_tolerance_is_acceptable_and_measured() -> None:
    found = compare(_array(1, 100), _array(1.0005, 100.05), _LOOSE)
    assert found.acceptable
    assert found.max_abs_err == pytest.approx(0.05, rel=1e-3)
    assert 0 < found.excess <= 1


def test_difference_beyond_tolerance_names_place_and_values() -> None:
    reference = np.ones((2, 3), np.float32)
    actual = reference.copy()
    actual[1, 2] = 2
    found = compare(reference, actual, _LOOSE)
    assert not found.acceptable
    assert found.detail == "2 instead of 1 at [1, 2]"
    assert found.max_abs_err == 1
    assert found.excess == pytest.approx(500)


def test_any_difference_is_too_much_when_nothing_is_tolerated() -> None:
    found = compare(_array(1, 5), _array(1, 5.000001), _EXACT)
    assert not found.acceptable
    assert found.excess == math.inf


@pytest.mark.parametrize(
    ("reference", "actual"),
    [
        (np.nan, 1.0),
        (1.0, np.nan),
        (np.inf, -np.inf),
        (np.inf, 3e38),
        (3e38, np.inf),
        (np.nan, np.inf),
        (-np.inf, np.nan),
    ],
)
def test_values_of_another_kind_are_wrong_whatever_the_tolerance(
    reference: float, actual: float
) -> None:
    generous = Tolerance(relative=1e9, absolute=1e39)
    found = compare(_array(0, reference), _array(0, actual), generous)
    assert not found.acceptable
    assert found.excess == math.inf
    assert found.detail.endswith("at [1]")


def test_only_a_nan_is_demanded_where_inputs_are_nan_and_everything_elsewhere() -> None:
    undefined = np.array([True, False])
    assert compare(_array(1, 2), _array(np.nan, 2), _EXACT, undefined=undefined).acceptable
    assert compare(_array(1, 2), _array(3, 2), _EXACT, undefined=undefined).acceptable
    assert not compare(_array(np.nan, 2), _array(1, 2), _EXACT, undefined=undefined).acceptable
    assert not compare(_array(1, 2), _array(1, np.nan), _EXACT, undefined=undefined).acceptable


def test_other_shape_is_wrong() -> None:
    found = compare(np.zeros((2, 3), np.float32), np.zeros((3, 2), np.float32), _LOOSE)
    assert found.detail == "shape (3, 2) instead of (2, 3)"
    assert not compare(np.zeros((1,), np.float32), np.zeros((), np.float32), _LOOSE).acceptable


def test_scalars_and_empty_results_are_compared_too() -> None:
    one = np.float32(1).reshape(())
    assert compare(one, one, _EXACT).acceptable
    assert compare(one, one + 1, _LOOSE).detail == "2 instead of 1 at []"
    empty = np.zeros((0, 3), np.float32)
    assert compare(empty, empty, _EXACT).acceptable


@given(
    st.lists(st.floats(width=32), min_size=1, max_size=20),
    st.lists(st.floats(width=32), min_size=1, max_size=20),
)
def test_compare_decides_on_any_values(left: list[float], right: list[float]) -> None:
    size = min(len(left), len(right))
    a, b = _array(*left[:size]), _array(*right[:size])
    found = compare(a, b, _LOOSE)
    assert found.acceptable == (found.excess <= 1)
    finite = np.isfinite(a) & np.isfinite(b)
    with np.errstate(invalid="ignore"):
        near = np.abs(a.astype(float) - b) <= 1e-3 + 1e-3 * np.abs(a.astype(float))
        alike = (a == b) | (np.isnan(a) & np.isnan(b))
    assert found.acceptable == bool(np.all(np.where(finite, near, alike)))


def test_tolerance_grows_with_the_reduction_and_the_chain() -> None:
    reference = np.ones(10, np.float32)
    small = kernel_tolerance(chain_workload(("Exp",)), reference)
    window = Operation(
        op_type="LRN", version=13, inputs=("x0",), output="t0", attributes={"size": 100}
    )
    reduction = replace(chain_workload(), operations=(window,))
    assert kernel_tolerance(reduction, reference).relative == pytest.approx(10 * small.relative)
    chain = chain_workload(("Exp", "Tanh", "Sin", "Cos"))
    assert kernel_tolerance(chain, reference).relative == pytest.approx(2 * small.relative)
    assert small.relative < 1e-4


def test_tolerance_of_tiny_and_of_non_finite_results_is_not_zero_and_not_huge() -> None:
    for values in ([1e-30] * 4, [np.nan, np.inf], [1e30] * 4, []):
        found = kernel_tolerance(chain_workload(), _array(*values))
        assert 0 < found.absolute <= found.relative


def test_nothing_is_tolerated_where_no_operator_rounds() -> None:
    reference = np.ones(10, np.float32)
    exact = kernel_tolerance(chain_workload(("Neg", "Relu", "Floor")), reference)
    assert exact == Tolerance(relative=0.0, absolute=0.0)
    assert kernel_tolerance(chain_workload(("Neg", "Exp", "Floor")), reference).relative > 0


# ---- whole models ----


def test_models_agree_within_a_thousandth_of_the_largest_value() -> None:
    reference = [_array(0.0, 100.0)]
    assert compare_model_results(reference, [_array(0.09, 100.0)]).acceptable
    found = compare_model_results(reference, [_array(0.2, 100.0)])
    assert found.detail.startswith("result 0: 0.2")


def test_what_is_tolerated_may_be_less_down_to_nothing() -> None:
    reference = np.array([1.0, 1000.0], np.float32)
    near = np.nextafter(reference, np.float32(np.inf))
    assert compare_model_results([reference], [near], tolerance=1e-6).acceptable
    assert not compare_model_results([reference], [near], tolerance=0.0).acceptable
    assert compare_model_results([[reference]], [[reference]], tolerance=0.0).acceptable
    assert not compare_model_results([{"y": reference}], [{"y": near}], tolerance=0.0).acceptable


def test_wrong_small_result_is_not_outweighed_by_a_large_acceptable_error() -> None:
    """The larger absolute error of the second result is within tolerance; the first is wrong."""
    reference = [_array(1e-3, 1e-3), _array(1e6, 1e6)]
    actual = [_array(1e-3, 2e-3), _array(1e6, 1e6 + 500)]
    found = compare_model_results(reference, actual)
    assert not found.acceptable
    assert found.detail.startswith("result 0")
    assert found.max_abs_err == 500


def test_integer_boolean_and_string_results_must_be_equal() -> None:
    for left, right in (
        (np.array([1, 2]), np.array([1, 3])),
        (np.array([True]), np.array([False])),
        (np.array(["a"], object), np.array(["b"], object)),
        (np.array([1, 2]), np.array([1])),
    ):
        assert compare_model_results([left], [left]).acceptable
        assert not compare_model_results([left], [right]).acceptable


def test_sequences_and_maps_are_compared_by_their_members() -> None:
    one, two = _array(1.0), _array(2.0)
    assert compare_model_results([[one, two]], [[one, two]]).acceptable
    assert not compare_model_results([[one, two]], [[one, one]]).acceptable
    assert not compare_model_results([[one, two]], [[one]]).acceptable
    assert compare_model_results([[{1: 0.5, 2: 0.5}]], [[{1: 0.5, 2: 0.5}]]).acceptable
    assert not compare_model_results([[{1: 0.5}]], [[{1: 0.6}]]).acceptable
    assert not compare_model_results([[{1: 0.5}]], [[{2: 0.5}]]).acceptable


def test_another_number_of_results_is_wrong() -> None:
    assert not compare_model_results([_array(1)], []).acceptable


def test_half_and_double_precision_results_are_compared() -> None:
    for dtype in (np.float16, np.float64):
        values = np.array([1.0, np.nan], dtype)
        assert compare_model_results([values], [values]).acceptable
        assert not compare_model_results([values], [values * 2]).acceptable


def test_all_zero_results_have_a_tolerance() -> None:
    zeros = np.zeros(3, np.float32)
    assert compare_model_results([zeros], [zeros]).acceptable
    assert not compare_model_results([zeros], [zeros + 1]).acceptable


def test_zeros_an_activation_has_left_do_not_narrow_what_is_tolerated() -> None:
    """What is tolerated of a small result follows from the sums it was left over from."""
    workload = replace(chain_workload(("Exp",)), precision=Precision.STRICT_FLOAT32)
    sums = kernel_tolerance(workload, _array(0.5, 0.25, 0.125))
    assert kernel_tolerance(workload, _array(0, 0, 0, 0, 0, 0.5, 0.25, 0.125)) == sums
    assert kernel_tolerance(workload, _array(0, 0)).absolute < sums.absolute


def test_worse_deviation_wins_and_the_larger_error_is_kept() -> None:
    first = Deviation(max_abs_err=5.0, excess=0.1)
    second = Deviation(max_abs_err=1.0, excess=2.0, detail="x")
    expected = Deviation(max_abs_err=5.0, excess=2.0, detail="x")
    assert worse_of(first, second) == worse_of(second, first) == expected


def test_lower_precision_is_allowed_a_share_of_the_largest_result() -> None:
    lower = replace(chain_workload(("Exp",)), precision=Precision.BFLOAT16)
    assert kernel_tolerance(lower, _array(0.01, 40.0)).absolute == pytest.approx(0.48)
    assert kernel_tolerance(lower, _array(0.01, 0.02)).absolute == pytest.approx(0.012)
    assert kernel_tolerance(lower, _array(np.nan)).absolute == pytest.approx(0.012)
    quantised = replace(lower, precision=Precision.INT8)
    assert kernel_tolerance(quantised, _array(0.01, 40.0)).absolute == pytest.approx(1.6)
    assert kernel_tolerance(quantised, _array(0.01, 0.02)).absolute == pytest.approx(0.04)
    exact = kernel_tolerance(chain_workload(("Exp",)), _array(0.01, 40.0))
    assert exact.absolute < 1e-3
    assert kernel_tolerance(lower, _array(1.0)).relative == exact.relative


def test_strict_float32_leaves_no_room_for_other_sums() -> None:
    product = Operation(
        op_type="Conv",
        domain=NCHWC_DOMAIN,
        inputs=("x0", "x1"),
        output="t0",
        attributes={"kernel_shape": (3, 3), "pads": (1, 1, 1, 1), "group": 1},
    )
    image, filters = TensorSpec(shape=(1, 16, 8, 8)), TensorSpec(shape=(16, 16, 3, 3))
    usual = Workload(
        op_type="convolution", inputs=(image, filters), operations=(product,), output=image
    )
    strict = replace(usual, precision=Precision.STRICT_FLOAT32)
    result = _array(0.001, 0.001, 100.0)
    assert kernel_tolerance(strict, result).absolute < kernel_tolerance(usual, result).absolute
    assert kernel_tolerance(strict, result).relative == kernel_tolerance(usual, result).relative


def test_below_float32_a_model_s_numbers_are_left_to_its_constraint() -> None:
    reference = [_array(1, np.inf), np.array([3, 4])]
    actual = [_array(5, np.inf), np.array([3, 5])]
    found = compare_model_results(reference, actual, Precision.BFLOAT16)
    assert found.acceptable
    assert found.max_abs_err == 4
    assert not compare_model_results(reference, actual).acceptable


@pytest.mark.parametrize(
    ("reference", "actual"),
    [
        (_array(1, 2), _array(1, np.nan)),
        (_array(1, np.inf), _array(1, 2)),
        (_array(1, 2), _array(1, 2, 3)),
        (np.array([1, 2]), np.array([1])),
        ([_array(1)], [_array(np.nan)]),
        ({"a": _array(1)}, {"a": _array(np.nan)}),
    ],
)
def test_shapes_and_special_values_count_in_every_precision(
    reference: object, actual: object
) -> None:
    assert not compare_model_results([reference], [actual], Precision.BFLOAT16).acceptable


def test_shorter_results_may_be_a_neighbour_s_where_float32_ones_may_differ() -> None:
    cast = Operation(op_type="Cast", version=13, inputs=("t0",), output="t1", attributes={"to": 10})
    single = chain_workload(("Exp",))
    half = replace(
        single,
        operations=(*single.operations, cast),
        output=replace(single.output, dtype="float16"),
    )
    reference = _array(1.0, 2.0)
    wide, narrow = kernel_tolerance(single, reference), kernel_tolerance(half, reference)
    assert narrow.relative >= wide.relative + 2.0**-10
    assert narrow.absolute >= wide.absolute + 2.0**-24
    alone = replace(half, operations=(replace(cast, inputs=("x0",), output="t0"),))
    assert kernel_tolerance(alone, reference) == _EXACT


def scatter(*chain: Operation, reduction: str = "none") -> Workload:
    """Return 3 of 7 elements of each column written, by indices x1."""
    write = operation("ScatterElements", "x0 x1 x2", "t0", axis=0, reduction=reduction)
    return Workload(
        op_type="scatter_elements",
        inputs=(plain(7, 20), plain(3, 20, dtype="int64"), plain(3, 20)),
        operations=(write, *chain),
        output=plain(7, 20),
    )


def gather(*chain: Operation) -> Workload:
    """Return 3 of 7 elements of each column read, by indices x1."""
    return Workload(
        op_type="gather_elements",
        inputs=(plain(7, 20), plain(3, 20, dtype="int64")),
        operations=(operation("GatherElements", "x0 x1", "t0", axis=0), *chain),
        output=plain(3, 20),
    )


SLICE = Workload(
    op_type="movement",
    inputs=(plain(6, 9),),
    operations=(operation("Slice", "x0", "t0", starts=(1,), ends=(4,), axes=(0,), steps=(1,)),),
    output=plain(3, 9),
)
RELU = operation("Relu", "t0", "t1")


@pytest.mark.parametrize(
    "workload",
    [scatter(), scatter(reduction="add"), gather(), SLICE],
    ids=["scatter", "scatter add", "gather", "slice"],
)
def test_what_copies_values_is_compared_everywhere(workload: Workload) -> None:
    feed = special_inputs(workload, SEED)
    assert np.isnan(feed["x0"]).any()
    assert not reached_by_nan(workload, feed).any()


@pytest.mark.parametrize(
    "workload",
    [scatter(RELU), gather(RELU), scatter(reduction="max")],
    ids=["scatter and relu", "gather and relu", "scatter max"],
)
def test_behind_indices_only_what_a_nan_reaches_is_left_out(workload: Workload) -> None:
    """Of data, of updates, and nothing else; ONNX Runtime says what that is."""
    feed = special_inputs(workload, SEED)
    reached = reached_by_nan(workload, feed)
    only_nan = {
        name: np.where(np.isnan(value), np.nan, 0).astype(np.float32)
        if value.dtype == np.float32
        else value
        for name, value in feed.items()
    }
    copied = replace(workload, operations=workload.operations[:1])
    model = workload_model(copied, seed=SEED).SerializeToString()
    options = session_options(threads=1, optimize=False)
    result = open_session(model, options).run(None, only_nan)[0]
    assert reached[np.isnan(result)].all()
    assert 0 < reached.mean() < 0.5


def test_a_wrong_element_of_a_scatter_is_found_on_special_values() -> None:
    workload = scatter(RELU, reduction="mul")
    feed = special_inputs(workload, SEED)
    model = workload_model(workload, seed=SEED).SerializeToString()
    session = open_session(model, session_options(threads=1, optimize=False))
    result = session.run(None, dict(feed))[0]
    undefined, tolerance = reached_by_nan(workload, feed), kernel_tolerance(workload, result)
    wrong = np.array(result)
    at = tuple(np.argwhere(np.isinf(result) & ~undefined)[0])
    wrong[at] = 0.0
    assert compare(result, result, tolerance, undefined=undefined).acceptable
    assert not compare(result, wrong, tolerance, undefined=undefined).acceptable


def test_rows_of_a_product_and_elements_of_a_chain_are_told_apart() -> None:
    """What cannot be told counts as reached everywhere."""
    nan = np.zeros((4, 6), np.float32)
    nan[2, 3] = np.nan
    product = Workload(
        op_type="matmul",
        inputs=(plain(4, 6), plain(6, 5, constant=True)),
        operations=(operation("MatMul", "x0 x1", "t0"),),
        output=plain(4, 5),
    )
    reached = reached_by_nan(product, {"x0": nan})
    assert reached[2].all()
    assert reached.sum() == 5
    turned = replace(product, inputs=(plain(6, 4), plain(6, 5, constant=True)))
    assert reached_by_nan(turned, {"x0": nan.T.copy()}).all()
    chain = Workload(
        op_type="elementwise",
        inputs=(plain(4, 6), plain(6)),
        operations=(operation("Add", "x0 x1", "t0"),),
        output=plain(4, 6),
    )
    reached = reached_by_nan(chain, {"x0": nan, "x1": nan[0]})
    assert reached[2, 3]
    assert reached.sum() == 1


def test_window_reaches_beyond_its_own_place() -> None:
    pool = operation("MaxPool", "x0", "t0", kernel_shape=(5, 5), pads=(2, 2, 2, 2), strides=(1, 1))
    workload = Workload(
        op_type="pooling",
        inputs=(plain(1, 2, 7, 17),),
        operations=(pool,),
        output=plain(1, 2, 7, 17),
    )
    image = np.zeros((1, 2, 7, 17), np.float32)
    assert not reached_by_nan(workload, {"x0": image}).any()
    image[0, 0, 3, 8] = np.nan
    # results beside the NaN depend on it, too: ONNX Runtime forgets what it saw before one
    assert reached_by_nan(workload, {"x0": image})[0, 0, 1:6, 6:11].all()
