"""The family of normalisations of every channel of every image."""

from __future__ import annotations

from collections.abc import Mapping

from support.contracts.kernels import (
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


def groups(shape: tuple[int, ...], joined: tuple[int, ...], *before: Operation) -> Workload:
    """Return a group normalisation with its scale, its bias, SiLU and a residual sum behind."""
    group, channels = plain(joined[1], constant=True), plain(shape[1], *(1,) * (len(shape) - 2))
    return Workload(
        op_type="instance_normalization",
        inputs=(plain(*shape), group, group, channels, channels, plain(*shape)),
        operations=(
            *before,
            operation("Reshape", before[-1].output if before else "x0", "t0", shape=joined),
            normalisation("t0", "t1"),
            operation("Reshape", "t1", "t2", shape=shape),
            operation("Mul", "t2 x3", "t3"),
            operation("Add", "t3 x4", "t4"),
            operation("Sigmoid", "t4", "t5"),
            operation("Mul", "t4 t5", "t6"),
            operation("Add", "t6 x5", "t7"),
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
        "rows told apart": make(
            (2, 3, 6, 20), operation("Add", "t0 x3", "t1"), others=(plain(20),)
        ),
        "groups": groups((2, 12, 7, 9), (2, 4, 189)),
        "groups of a line": groups((1, 6, 50), (1, 3, 2, 50)),
    }
    refused = (
        (make((3, 4)), "InstanceNormalization without pixels"),
        (make((3, 4, 1, 1)), "InstanceNormalization of a single element"),
        (
            groups((2, 12, 7, 9), (2, 4, 189), operation("Neg", "x0", "t8")),
            "groups of channels of a computed or blocked tensor",
        ),
        (groups((2, 6, 4, 4), (4, 3, 16)), "3 groups of a tensor of shape (2, 6, 4, 4)"),
    )

    @classmethod
    def all_cases(cls) -> Mapping[str, Workload]:
        if not block_size():
            return cls.cases
        shape = (2, 3 * block_size(), 7, 9)
        channels = plain(shape[1], constant=True)
        inputs = (blocked(*shape), channels, channels, blocked(*shape))
        whole = between_reorders(cls.family_name, inputs, (normalisation("r0"), *CHAIN[:1]))
        return {**cls.cases, "blocked": whole}
