"""An operator finds its inputs as in a model, and computes what it does alone."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from support.contracts.kernels import plain
from support.engine.families import chain_workload

from aoe.device.cpu.device import Cpu
from aoe.graph.workload_model import random_inputs, workload_model
from aoe.operators import INDEX_DTYPES, KERNEL_DTYPES, MOVED_DTYPES, STORED_DTYPES
from aoe.ort.cold_cache import BALLAST_BYTES_MAX, LIGHT_BALLAST_BYTES, CacheBallast, ColdCache
from aoe.ort.sessions import run_session, session_options
from aoe.workload import Operation, Workload

_SCALED = Workload(
    op_type="elementwise",
    inputs=(plain(3, 5), plain(3, 1, constant=True)),
    operations=(Operation(op_type="Mul", version=14, inputs=("x0", "x1"), output="t0"),),
    output=plain(3, 5),
)

_WEIGHED = Workload(
    op_type="elementwise",
    inputs=(plain(128, 256), plain(128, 256, constant=True)),
    operations=_SCALED.operations,
    output=plain(128, 256),
)


def _open(proto: bytes) -> ort.InferenceSession:
    return Cpu().open_session(proto, session_options(threads=1, optimize=False))


def _cold_cache(
    workload: Workload, bytes_around: int, opened: list[onnx.ModelProto] | None = None
) -> tuple[ColdCache, ort.InferenceSession, Mapping[str, np.ndarray]]:
    def remembering(proto: bytes) -> ort.InferenceSession:
        if opened is not None:
            opened.append(onnx.load_from_string(proto))
        return _open(proto)

    session = _open(workload_model(workload, seed=1).SerializeToString())
    feed = random_inputs(workload, 1)
    around = ColdCache(
        open_session=remembering,
        workload=workload,
        feed=feed,
        result=run_session(session, feed)[0],
        bytes_around=bytes_around,
    )
    return around, session, feed


@pytest.mark.parametrize("workload", [chain_workload(("Exp",)), _SCALED], ids=["Exp", "constant"])
def test_result_is_the_same_before_and_after_the_caches_were_used(workload: Workload) -> None:
    around, session, feed = _cold_cache(workload, 1 << 20)
    expected = run_session(session, feed)[0]
    run = around.bind(session)
    for _ in range(2):
        around.restore()
        run()
        found = around.result()
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("shape", [(), (1,), (3,), (3, 5)], ids=str)
@pytest.mark.parametrize(
    "dtype", sorted({*KERNEL_DTYPES, *MOVED_DTYPES, *STORED_DTYPES, *INDEX_DTYPES, "bool"})
)
def test_inputs_of_every_type_and_rank_are_computed_bit_by_bit(
    dtype: str, shape: tuple[int, ...]
) -> None:
    given = np.frombuffer(np.random.default_rng(3).bytes(8 * 15), dtype)
    given = (given.view(np.uint8) % 2).astype(bool) if dtype == "bool" else given
    given = np.array(given[: math.prod(shape)]).reshape(shape)
    spec = plain(*shape, dtype=dtype)
    workload = Workload(
        op_type="movement",
        inputs=(spec,),
        operations=(Operation(op_type="Identity", version=14, inputs=("x0",), output="t0"),),
        output=spec,
    )
    around = ColdCache(
        open_session=_open,
        workload=workload,
        feed={"x0": given.copy()},
        result=given.copy(),
        bytes_around=64,
    )
    run = around.bind(_open(workload_model(workload, seed=1).SerializeToString()))
    for _ in range(2):
        around.restore()
        run()
        assert around.result().tobytes() == given.tobytes()


def test_inputs_are_computed_last_and_constants_are_not() -> None:
    opened: list[onnx.ModelProto] = []
    _cold_cache(_SCALED, 1000, opened)
    assert [node.output[0] for node in opened[0].graph.node] == ["ballast", "y", "x0"]


@pytest.mark.parametrize(
    ("bytes_around", "passing"),
    [(0, 8), (4000, 4000), (1 << 40, BALLAST_BYTES_MAX)],
)
def test_as_much_passes_through_the_caches_as_a_model_touches(
    bytes_around: int, passing: int
) -> None:
    assert _passing(_WEIGHED, bytes_around)[0] == passing


@pytest.mark.parametrize(
    ("bytes_around", "passing"), [(4000, 4000), (1 << 40, LIGHT_BALLAST_BYTES)]
)
def test_without_weights_the_last_level_cache_is_left_alone_and_samples_are_longer(
    bytes_around: int, passing: int
) -> None:
    light, calls = _passing(_SCALED, bytes_around)
    assert light == passing
    assert calls > _passing(_WEIGHED, bytes_around)[1]


def _passing(workload: Workload, bytes_around: int) -> tuple[int, int]:
    """Return the bytes read and written before a call, and the calls of a sample."""
    opened: list[onnx.ModelProto] = []
    around, _, _ = _cold_cache(workload, bytes_around, opened)
    ballast = opened[0].graph.input[0].type.tensor_type.shape.dim[0].dim_value
    return 2 * 4 * ballast, around.calls_max


def test_what_passes_through_the_caches_before_a_part_is_bounded_and_at_least_something() -> None:
    for wanted, passed in ((0, 8), (1 << 20, 1 << 20), (1 << 40, BALLAST_BYTES_MAX)):
        opened: list[onnx.ModelProto] = []

        def remembering(
            proto: bytes, opened: list[onnx.ModelProto] = opened
        ) -> ort.InferenceSession:
            opened.append(onnx.load_from_string(proto))
            return _open(proto)

        CacheBallast(remembering, wanted).pass_through()
        (extent,) = opened[0].graph.input[0].type.tensor_type.shape.dim
        assert extent.dim_value * 4 * 2 == passed
