"""The family of normalisations of every channel of every image."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from aoe.kernels.registry import get_family
from aoe.testing.kernels import (
    KernelFamilyTests,
    between_reorders,
    block_size,
    blocked,
    operation,
    plain,
)
from aoe.workload import Operation, TensorSpec, Workload

CHAIN = (operation("LeakyRelu", "t0", "t1", alpha=0.01), operation("Add", "t1 x3", "t2"))


def normalisation(source: str = "x0", result: str = "t0") -> Operation:
    return operation("InstanceNormalization", f"{source} x1 x2", result, version=6, epsilon=1e-4)


def make(
    shape: tuple[int, ...], *after: Operation, others: tuple[TensorSpec, ...] = ()
) -> Workload:
    channels = plain(shape[1], constant=True)
    return Workload(
        op_type="instance_normalization",
        inputs=(plain(*shape), channels, channels, *others),
        operations=(normalisation(), *after),
        output=plain(*shape),
    )


def computed() -> Workload:
    shape, channels = (2, 6, 5, 9), plain(6, constant=True)
    return Workload(
        op_type="instance_normalization",
        inputs=(plain(*shape), channels, channels, plain(6, 1, 1, constant=True)),
        operations=(
            operation("Mul", "x0 x3", "t0"),
            normalisation("t0", "t1"),
            operation("Sigmoid", "t1", "t2"),
            operation("Mul", "t1 t2", "t3"),
        ),
        output=plain(*shape),
    )


class TestInstanceNormalization(KernelFamilyTests):
    family_name = "instance_normalization"
    cases: Mapping[str, Workload] = {
        "planes, chain behind": make((2, 5, 17, 13), *CHAIN, others=(plain(2, 5, 17, 13),)),
        "volumes": make((1, 17, 8, 8, 8)),
        "one channel": make((2, 1, 64, 64)),
        "lines": make((3, 4, 11)),
        "computed planes": computed(),
    }

    @classmethod
    def all_cases(cls) -> Mapping[str, Workload]:
        if not block_size():
            return cls.cases
        shape = (2, 3 * block_size(), 7, 9)
        channels = plain(shape[1], constant=True)
        inputs = (blocked(*shape), channels, channels, blocked(*shape))
        whole = between_reorders(cls.family_name, inputs, (normalisation("r0"), *CHAIN[:1]))
        return {**cls.cases, "blocked": whole}


@pytest.mark.parametrize(
    ("workload", "reason"),
    [
        (make((3, 4)), "InstanceNormalization without pixels"),
        (make((3, 4, 1, 1)), "InstanceNormalization of a single element"),
        (
            make((1, 4, 6, 8), operation("Add", "t0 x3", "t1"), others=(plain(8),)),
            "InstanceNormalization over axes that broadcasting tells apart",
        ),
    ],
)
def test_refusal_says_why(workload: Workload, reason: str) -> None:
    assert get_family("instance_normalization").supports(workload).reason == reason
