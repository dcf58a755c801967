"""ONNX Runtime's own operators of lower precision among the algorithms of a family."""

from __future__ import annotations

import pytest
from support.contracts.kernels import operation, plain
from support.engine.fakes import make_target

from aoe.kernels.algorithms import KNOB, allowed_space
from aoe.kernels.family import KernelTarget
from aoe.kernels.host_products import HOST_INT4, HOST_NARROW_INT8, is_hosted, with_host_products
from aoe.kernels.registry import get_family
from aoe.schedule import Configuration, Space
from aoe.target import HOST_INT8, InstructionSet, Target
from aoe.workload import Precision, Workload

_PLAIN = make_target()
_VNNI = InstructionSet(cpu_features=("avx512_vnni",))
_SUMS = make_target(int8_sums=_VNNI)
_DOT = make_target(int8_dot=_VNNI, int8_sums=_VNNI)


def _product(rows: int, precision: Precision, **attributes: int) -> Workload:
    turned = bool(attributes)
    return Workload(
        op_type="matmul",
        inputs=(plain(*((64, rows) if turned else (rows, 64))), plain(64, 48, constant=True)),
        operations=(operation("Gemm" if turned else "MatMul", "x0 x1", "t0", **attributes),),
        output=plain(rows, 48),
        precision=precision,
    )


def _space(workload: Workload, target: Target) -> Space:
    family = with_host_products(get_family("matmul"), target)
    space = allowed_space(family, workload, KernelTarget.of(target))
    assert space is not None
    return space


@pytest.mark.parametrize(
    ("target", "precision", "algorithm"),
    [
        (_PLAIN, Precision.INT8, HOST_NARROW_INT8),
        (_SUMS, Precision.INT8, HOST_INT8),
        (_PLAIN, Precision.INT4, HOST_INT4),
        (_SUMS, Precision.INT4, HOST_INT4),
    ],
)
def test_cpu_halide_has_no_sums_of_8_bits_for_is_offered_the_host_s_operator_alone(
    target: Target, precision: Precision, algorithm: str
) -> None:
    """In 8 bits where the CPU sums them in 32, in 7 elsewhere."""
    space = _space(_product(2, precision), target)
    assert [dict(one) for one in space.configurations()] == [{KNOB: algorithm}]
    assert space.first_guesses == ({KNOB: algorithm},)


@pytest.mark.parametrize(
    ("precision", "algorithm"), [(Precision.INT8, HOST_INT8), (Precision.INT4, HOST_INT4)]
)
def test_cpu_with_vnni_is_offered_it_once_behind_the_best_kernel(
    precision: Precision, algorithm: str
) -> None:
    workload = _product(2, precision)
    space, own = _space(workload, _DOT), get_family("matmul").space(workload, KernelTarget.of(_DOT))
    offered = [one for one in space.configurations() if one[KNOB] == algorithm]
    assert len(offered) == 1
    assert len(space.configurations()) == len(own.configurations()) + 1
    assert space.first_guesses[0] == own.first_guesses[0]
    assert space.first_guesses[1][KNOB] == algorithm
    family = with_host_products(get_family("matmul"), _DOT)
    schedule = family.schedule(workload, offered[0], KernelTarget.of(_DOT))
    assert (schedule.algorithm, schedule.steps) == (algorithm, ())
    kernel = family.schedule(workload, Configuration(own.first_guesses[0]), KernelTarget.of(_DOT))
    assert kernel.steps and not is_hosted(kernel.algorithm)


@pytest.mark.parametrize(
    "precision", [Precision.FLOAT32, Precision.STRICT_FLOAT32, Precision.BFLOAT16]
)
def test_other_precisions_are_the_family_s_own(precision: Precision) -> None:
    workload = _product(8, precision)
    own = get_family("matmul").space(workload, KernelTarget.of(_PLAIN))
    assert _space(workload, _PLAIN).configurations() == own.configurations()


def test_left_matrix_stored_by_columns_stays_with_the_kernels() -> None:
    """The operators read rows."""
    workload = _product(8, Precision.INT8, transA=1)
    names = {one[KNOB] for one in _space(workload, _PLAIN).configurations()}
    assert names == {"panels_int8"}
