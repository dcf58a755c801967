"""The registry."""

from __future__ import annotations

import subprocess
import sys

import pytest
from support.contracts.kernels import operation, plain
from support.engine.families import chain_workload

from aoe.kernels.matmul.shape import MATRIX_PRODUCTS
from aoe.kernels.registry import FAMILIES, FUSIBLE, anchors, classify, get_family
from aoe.workload import NCHWC_DOMAIN, Operation, Workload


@pytest.mark.parametrize("name", FAMILIES)
def test_family_is_registered_under_its_name(name: str) -> None:
    assert get_family(name).name == name


def test_unknown_family_is_named() -> None:
    with pytest.raises(
        ValueError, match="unknown \\(got gemm, expected one of convolution, matmul"
    ):
        get_family("gemm")


def test_anchors_do_not_chain() -> None:
    assert {("", "LRN"), ("", "Softmax"), ("", "LayerNormalization")} | MATRIX_PRODUCTS < anchors()
    assert not anchors() & FUSIBLE


@pytest.mark.parametrize(
    ("operations", "expected"),
    [
        ((operation("LRN", "x0", size=5),), "lrn"),
        ((operation("Softmax", "x0", axis=1),), "softmax"),
        ((operation("BatchNormalization", "x0 x1 x1 x1 x1"),), "batch_normalization"),
        ((operation("Exp", "x0"),), "elementwise"),
        (
            (operation("Exp", "x0"), operation("BatchNormalization", "t0 x1 x1 x1 x1", "t1")),
            "elementwise",
        ),
    ],
)
def test_first_family_that_supports_a_workload_is_the_special_one(
    operations: tuple[object, ...], expected: str
) -> None:
    workload = Workload(
        op_type="unclassified",
        inputs=(plain(1, 6, 5, 5), plain(6)),
        operations=operations,  # type: ignore[arg-type]
        output=plain(1, 6, 5, 5),
    )
    found = [name for name, family in FAMILIES.items() if family.supports(workload)]
    assert found[0] == expected


def test_family_seam_can_be_imported_without_halide() -> None:
    code = "import sys, aoe.kernels.family; sys.exit('halide' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_workload_gets_the_family_that_takes_it() -> None:
    assert isinstance(found := classify(chain_workload(("Exp",))), Workload)
    assert found.op_type == "elementwise"


@pytest.mark.parametrize(
    ("op_type", "domain", "inputs", "closest"),
    [
        ("LRN", "", 1, "lrn"),
        ("Softmax", "", 1, "softmax"),
        ("MatMul", "", 2, "matmul"),
        ("Conv", NCHWC_DOMAIN, 2, "convolution"),
        ("Conv", "", 2, "plain_convolution"),
    ],
)
def test_workload_no_family_takes_has_the_closest_family_s_reason(
    op_type: str, domain: str, inputs: int, closest: str
) -> None:
    workload = Workload(
        op_type="unclassified",
        inputs=(plain(7),),
        operations=(
            Operation(op_type=op_type, domain=domain, inputs=("x0",) * inputs, output="t0"),
        ),
        output=plain(7),
    )
    reason = classify(workload)
    assert isinstance(reason, str)
    assert reason.startswith(f"{closest}: ")
    assert not any(f" {name}: " in f" {reason}" for name in FAMILIES if name != closest)


def test_workload_of_no_family_has_the_reason_of_the_most_general_one() -> None:
    reason = classify(chain_workload(("NoSuchOperator",)))
    assert isinstance(reason, str)
    assert reason.startswith("elementwise: ")
    assert "lrn: " not in reason
