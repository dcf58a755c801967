"""Where results count although inputs hold NaN: nowhere where any may come out, else everywhere."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.contracts.kernels import SEED, operation, plain
from support.engine.cpu import open_session

from aoe.execute.accuracy import compare, kernel_tolerance, reached_by_nan
from aoe.graph.workload_model import special_inputs, workload_model
from aoe.ort.sessions import session_options
from aoe.workload import Operation, Workload


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
