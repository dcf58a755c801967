"""The glue's view of ONNX Runtime's ABI, each slot checked by what it does.

The kernels are the C functions of `abi_kernels.c`, so nothing but the glue is under test.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from onnx import helper
from support.engine.cpu import open_session
from support.engine.models import Shape, make_model

from aoe.errors import RunError
from aoe.ort.sessions import session_options


def _session(library: Path, kernel: str, shapes: Sequence[Shape]) -> ort.InferenceSession:
    names = [f"x{i}" for i in range(len(shapes))]
    node = helper.make_node(kernel, names, ["y"], domain="aoe")
    model = make_model([node], dict(zip(names, shapes, strict=True)), ["y"], domains={"aoe": 1})
    options = session_options(threads=2, optimize=False, library=library)
    return open_session(model.SerializeToString(), options)


def _run(library: Path, kernel: str, *arrays: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    session = _session(library, kernel, [array.shape for array in arrays])
    result: np.ndarray[Any, Any] = session.run(
        None, {f"x{i}": array for i, array in enumerate(arrays)}
    )[0]
    return result


_ONE = np.ones(1, np.float32)


def test_inputs_arrive_in_order_and_the_output_has_shape_and_data(abi_library: Path) -> None:
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    b = np.full((2, 3), 10, np.float32)
    result = _run(abi_library, "subtract", a, b)
    assert result.shape == (2, 3)
    assert result.dtype == np.float32
    assert np.array_equal(result, a - b)


def test_kernel_sees_dense_float_buffers_in_its_own_view(abi_library: Path) -> None:
    result = _run(abi_library, "describe", np.zeros((1, 2, 3, 4), np.float32))
    assert result.tolist() == [2 * 10000 + 32 * 100 + 1, 2, 0, 12, 1, 0, 2, 12]


def test_constants_are_packed_once_and_other_inputs_at_every_run(abi_library: Path) -> None:
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    b = np.full((2, 3), 10, np.float32)
    node = helper.make_node("read_packed", ["x0", "x1"], ["y"], domain="aoe")
    constant = make_model([node], {"x0": (2, 3)}, ["y"], weights={"x1": b}, domains={"aoe": 1})
    options = session_options(threads=2, optimize=False, library=abi_library)
    session = open_session(constant.SerializeToString(), options)
    results = [session.run(None, {"x0": a})[0] for _ in range(3)]
    assert all(np.array_equal(result[:6], (a + 2 * b).ravel()) for result in results)
    assert len({float(result[6]) for result in results}) == 1
    given = _session(abi_library, "read_packed", [(2, 3), (2, 3)])
    other = [given.run(None, {"x0": a, "x1": b * factor})[0] for factor in (1, 3)]
    assert np.array_equal(other[1][:6], (a + 6 * b).ravel())
    assert other[1][6] == other[0][6] + 1


def test_scalar_tensors_have_rank_zero(abi_library: Path) -> None:
    result = _run(abi_library, "memory", np.zeros((), np.float32))
    assert result.shape == ()
    assert result == 1


def test_tasks_run_on_several_threads_at_once(abi_library: Path) -> None:
    assert _run(abi_library, "threads", _ONE).tolist() == [1, 1, 1]


def test_every_task_runs_exactly_once(abi_library: Path) -> None:
    assert _run(abi_library, "tasks", _ONE).tolist() == [1] * 100


def test_a_session_runs_many_times_with_the_same_result(abi_library: Path) -> None:
    session = _session(abi_library, "tasks", [(1,)])
    for _ in range(50):
        assert session.run(None, {"x0": _ONE})[0].sum() == 100


@pytest.mark.parametrize("kernel", ["failing", "failing_task"])
def test_failing_kernel_is_an_error_of_the_run_by_its_name(abi_library: Path, kernel: str) -> None:
    with pytest.raises(Exception, match=f"{kernel}: the kernel failed"):
        _run(abi_library, kernel, _ONE)


def test_session_survives_a_failed_run(abi_library: Path) -> None:
    session = _session(abi_library, "failing", [(1,)])
    for _ in range(3):
        with pytest.raises(Exception, match="the kernel failed"):
            session.run(None, {"x0": _ONE})


@pytest.mark.parametrize("shape", [(2, 4), (3, 2), (6,), (1, 2, 3), (2, 3, 1), (1,) * 12, ()])
def test_other_shape_than_tuned_for_is_an_error_and_no_crash(
    abi_library: Path, shape: tuple[int, ...]
) -> None:
    session = _session(abi_library, "subtract", [[None] * len(shape), (2, 3)])
    feed = {"x0": np.zeros(shape, np.float32), "x1": np.zeros((2, 3), np.float32)}
    with pytest.raises(Exception, match="subtract: an input has another shape"):
        session.run(None, feed)


def test_wrong_type_is_refused_when_the_model_is_loaded(abi_library: Path) -> None:
    node = helper.make_node("memory", ["x"], ["y"], domain="aoe")
    model = make_model([node], {"x": ()}, ["y"], domains={"aoe": 1}, types={"x": 11})
    options = session_options(threads=1, optimize=False, library=abi_library)
    with pytest.raises(RunError, match="ONNX Runtime cannot load it"):
        open_session(model.SerializeToString(), options)


def test_wrong_number_of_inputs_is_refused_when_the_model_is_loaded(abi_library: Path) -> None:
    with pytest.raises(RunError, match="ONNX Runtime cannot load it"):
        _session(abi_library, "subtract", [(2, 3)])


def test_unknown_kernel_is_refused_when_the_model_is_loaded(abi_library: Path) -> None:
    with pytest.raises(RunError, match="nonsense"):
        _session(abi_library, "nonsense", [(1,)])


def test_library_can_be_registered_again_and_sessions_share_it(abi_library: Path) -> None:
    sessions = [_session(abi_library, "tasks", [(1,)]) for _ in range(5)]
    assert all(session.run(None, {"x0": _ONE})[0].sum() == 100 for session in sessions)


def test_missing_cpu_feature_is_an_error_when_the_library_is_registered(
    tmp_path: Path, build_abi: Callable[..., Path]
) -> None:
    lacking = build_abi(tmp_path, '-DLACKS="test-feature"')
    with pytest.raises(RunError, match=r"not usable here.*this CPU lacks test-feature"):
        session_options(threads=1, optimize=False, library=lacking)


def test_file_that_is_no_library_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "kernels.so"
    file.write_bytes(b"not an ELF file")
    with pytest.raises(RunError, match="kernel library not usable here"):
        session_options(threads=1, optimize=False, library=file)


_INDEX_KERNELS = {"read_wide": (np.int64, 200_000), "read_narrow": (np.int32, 70)}


def _indices(kernel: str) -> np.ndarray[Any, Any]:
    dtype, count = _INDEX_KERNELS[kernel]
    return np.resize(np.arange(-5, 5), count).astype(dtype)


def _run_indices(library: Path, kernel: str, indices: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    node = helper.make_node(kernel, ["x0"], ["y"], domain="aoe")
    kind = helper.np_dtype_to_tensor_dtype(indices.dtype)
    shapes, kinds = {"x0": indices.shape}, {"x0": kind, "y": kind}
    model = make_model([node], shapes, ["y"], types=kinds, domains={"aoe": 1})
    options = session_options(threads=2, optimize=False, library=library)
    result = open_session(model.SerializeToString(), options).run(None, {"x0": indices})[0]
    return np.asarray(result)


@pytest.mark.parametrize("kernel", _INDEX_KERNELS)
def test_indices_keep_their_type_on_both_sides_of_a_kernel(abi_library: Path, kernel: str) -> None:
    indices = _indices(kernel)
    found = _run_indices(abi_library, kernel, indices)
    assert found.dtype == indices.dtype
    assert found.tolist() == [indices[-1]]


@pytest.mark.parametrize("kernel", _INDEX_KERNELS)
@pytest.mark.parametrize("at", [0, 63, 64, -1])
@pytest.mark.parametrize("wrong", [5, -6, 1 << 30, -(1 << 31)])
def test_an_index_outside_is_refused_before_the_kernel_runs(
    abi_library: Path, kernel: str, at: int, wrong: int
) -> None:
    indices = _indices(kernel)
    indices[at] = wrong
    wanted = rf"{kernel}: an index is out of bounds \(got {wrong}, expected -5 to 4\)"
    with pytest.raises(Exception, match=wanted):
        _run_indices(abi_library, kernel, indices)


@pytest.mark.parametrize(("column", "length"), [(1, 5), (3, 3)])
def test_columns_of_indices_are_refused_by_what_each_counts(
    abi_library: Path, column: int, length: int
) -> None:
    indices = np.full((10, 7), 1 << 20, np.int32)  # of the other columns any number is right
    indices[:, 1], indices[:, 3] = -5, 2
    assert _run_indices(abi_library, "read_columns", indices.reshape(70)).tolist() == [1 << 20]
    for row, wrong in ((0, length), (9, -length - 1)):
        outside = indices.copy()
        outside[row, column] = wrong
        with pytest.raises(Exception, match=rf"got {wrong}, expected {-length} to {length - 1}"):
            _run_indices(abi_library, "read_columns", outside.reshape(70))


@pytest.mark.parametrize("wrong", [1 << 32, -(1 << 63), (1 << 63) - 1])
def test_an_index_is_not_cut_to_32_bits(abi_library: Path, wrong: int) -> None:
    indices = _indices("read_wide")
    indices[150_000] = wrong
    with pytest.raises(Exception, match=f"got {wrong}, expected"):
        _run_indices(abi_library, "read_wide", indices)
