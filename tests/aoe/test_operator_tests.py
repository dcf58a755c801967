"""The operator tests of the onnx package, computed by kernels: results are those ONNX expects.

Each test is taken as it is, and with all inputs but the first as constants, which is how networks
have weights, axes and shapes. Where ONNX Runtime itself gives other results than the test expects,
kernels have to give ONNX Runtime's.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from support.engine.first_guesses import FirstGuesses

from aoe.errors import BuildError, RunError, ScheduleError
from aoe.ort.sessions import run_session
from aoebank import AoebankError

Array = np.ndarray[Any, Any]
_Case = Any
"""A test case of the onnx package."""
_QUICK = (
    *("test_argmax_keepdims_random", "test_averagepool_2d_pads", "test_basic_conv_with_padding"),
    *("test_batchnorm_example", "test_convtranspose_pads", "test_constant_pad"),
    *("test_gather_elements_1", "test_transpose_default"),
    *("test_gemm_all_attributes", "test_gridsample_bicubic", "test_instancenorm_example"),
    *("test_logsoftmax_axis_1", "test_lrn", "test_matmul_2d", "test_maxpool_2d_strides"),
    *("test_mish", "test_prelu_broadcast", "test_reduce_l2_keep_dims_random"),
)
_PARTS = 10
"""Of the operator tests of ONNX, a minute each."""
_LEAST_WITH_KERNELS = 50
"""In each part; 700 in all."""
_CONSTANTS_SINCE = 4
"""Version of the format from which constants need not be inputs, too."""
_ABSOLUTE = 1e-6
"""Results may be off by what one float32 rounding of a sum of a few ones is."""


@cache
def _cases() -> Mapping[str, _Case]:
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {case.name: case for case in collect_testcases()}


def _forms(case: _Case) -> Iterator[tuple[onnx.ModelProto, Mapping[str, Array]]]:
    """Yield the model of a test with its inputs, then with one input and the rest constant."""
    names = [value.name for value in case.model.graph.input]
    arrays = [np.asarray(array) for array in case.data_sets[0][0]]
    yield case.model, dict(zip(names, arrays, strict=True))
    if len(names) > 1:
        frozen = onnx.ModelProto()
        frozen.CopyFrom(case.model)
        frozen.ir_version = max(frozen.ir_version, _CONSTANTS_SINCE)
        del frozen.graph.input[1:]
        frozen.graph.initializer.extend(
            numpy_helper.from_array(array, name)
            for name, array in zip(names[1:], arrays[1:], strict=True)
        )
        yield frozen, {names[0]: arrays[0]}


def _has_arrays(case: _Case) -> bool:
    """Return whether all inputs and results are tensors of types NumPy has."""
    values = [*case.data_sets[0][0], *case.data_sets[0][1]]
    return all(
        isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biuf"
        for value in values
    )


def _agrees(found: Sequence[Any], wanted: Sequence[Any], case: _Case) -> bool:
    return all(
        one.shape == np.shape(other)
        and one.dtype == np.asarray(other).dtype
        and np.allclose(one, other, rtol=case.rtol, atol=_ABSOLUTE, equal_nan=True)
        for one, other in zip(found, wanted, strict=True)
    )


def _with_kernels(case: _Case, models: FirstGuesses) -> Iterator[str]:
    """Yield for each form of a test what became of it."""
    if not _has_arrays(case):
        return
    for model, feed in _forms(case):
        try:
            kernels, before, after = models.sessions(model)
            own = run_session(before, feed)
        except (ScheduleError, BuildError) as error:
            yield f"wrong: {case.name}: {error}"
        except AoebankError:
            yield "refused"
        else:
            yield _verdict(case, own, after, feed) if kernels else "left alone"


def _verdict(case: _Case, own: Sequence[Any], after: Any, feed: Mapping[str, Array]) -> str:
    """Return what is wrong with a model with kernels, or that it is right."""
    expected = case.data_sets[0][1]
    wanted = expected if _agrees(own, expected, case) else own
    try:
        found = run_session(after, feed)
    except RunError as error:
        return f"wrong: {case.name}: {error}"
    return "right" if _agrees(found, wanted, case) else f"wrong: {case.name} {[*feed]}"


@pytest.mark.slow
@pytest.mark.parametrize("name", _QUICK)
def test_operator_test_is_computed_by_a_kernel(name: str, models: FirstGuesses) -> None:
    became = [*_with_kernels(_cases()[name], models)]
    assert "right" in became
    assert not [text for text in became if text.startswith("wrong")]


@pytest.mark.slow
@pytest.mark.parametrize("part", range(_PARTS))
def test_every_operator_test_a_kernel_computes_has_the_results_of_onnx(
    part: int, models: FirstGuesses
) -> None:
    became: Counter[str] = Counter()
    for case in [*_cases().values()][part::_PARTS]:
        became.update(_with_kernels(case, models))
    assert not sorted(text for text in became if text.startswith("wrong"))
    assert became["right"] > _LEAST_WITH_KERNELS, became
