"""The batch normalisation family."""

from __future__ import annotations

from collections.abc import Mapping

from support.contracts.kernels import (
    KernelFamilyTests,
    between_reorders,
    block_size,
    blocked,
    kernel_target,
    operation,
    plain,
)

from aoe.kernels.registry import get_family
from aoe.workload import NCHWC_DOMAIN, AttributeValue, Operation, TensorSpec, Workload

NORMALISE = operation("BatchNormalization", "x0 x1 x2 x3 x4", "t0", epsilon=1e-3)
RELU = operation("Relu", "t0", "t1")


def parameters(channels: int) -> tuple[TensorSpec, ...]:
    return (plain(channels, constant=True),) * 4


def make(shape: tuple[int, ...], *operations: Operation) -> Workload:
    return Workload(
        op_type="batch_normalization",
        inputs=(plain(*shape), *parameters(shape[1])),
        operations=operations,
        output=plain(*shape),
    )


class TestBatchNormalization(KernelFamilyTests):
    family_name = "batch_normalization"
    cases: Mapping[str, Workload] = {
        "large images": make((1, 16, 56, 56), NORMALISE, RELU),
        "short rows": make((1, 100, 7, 7), NORMALISE, RELU),
        "tiny images": make((2, 7, 5, 3), NORMALISE, RELU),
        "a matrix": make((3, 100), NORMALISE),
        "one channel": make((2, 1, 9, 9), NORMALISE, RELU),
        "rank 3": make((2, 5, 17), NORMALISE),
        "rank 5": make((1, 3, 2, 5, 4), NORMALISE, RELU),
        "version 9": make(
            (1, 4, 6, 6), operation("BatchNormalization", "x0 x1 x2 x3 x4", "t0", version=9)
        ),
        "twice": make(
            (1, 6, 8, 8),
            NORMALISE,
            operation("Sigmoid", "t0", "t1"),
            operation("BatchNormalization", "t1 x1 x2 x3 x4", "t2"),
        ),
        "residual": Workload(
            op_type="batch_normalization",
            inputs=(plain(1, 6, 8, 8), *parameters(6), plain(1, 6, 8, 8)),
            operations=(NORMALISE, operation("Add", "t0 x5", "t1"), operation("Relu", "t1", "t2")),
            output=plain(1, 6, 8, 8),
        ),
    }
    refused = (
        (
            make(
                (1, 4, 6, 6),
                operation("Relu", "x0", "t0"),
                operation("BatchNormalization", "x0 x1 x2 x3 x4", "t1"),
            ),
            "the normalisation is not the first operator",
        ),
        (make((1, 4, 6, 6), operation("Relu", "x0")), "no operator of this family"),
        (
            make((1, 4, 6, 6), operation("BatchNormalization", "x0 x1 x2 x3 x4", training_mode=1)),
            "BatchNormalization in training mode",
        ),
    )

    @classmethod
    def all_cases(cls) -> Mapping[str, Workload]:
        return {**cls.cases, **blocked_cases()}


def scale(*, bias: bool = True, **attributes: AttributeValue) -> Operation:
    return operation(
        "Conv",
        "r0 x1 x2" if bias else "r0 x1",
        "t0",
        domain=NCHWC_DOMAIN,
        kernel_shape=(1, 1),
        strides=(1, 1),
        dilations=(1, 1),
        pads=(0, 0, 0, 0),
        group=2 * block_size(),
        **attributes,
    )


def blocked_cases() -> Mapping[str, Workload]:
    """Return a normalisation between reorders, and convolutions without reorders around."""
    block = block_size()
    if not block:
        return {}
    channels = 2 * block
    data = blocked(1, channels, 13, 11)
    weights = plain(channels, 1, 1, 1, constant=True)
    bias = plain(channels, constant=True)
    normalise = operation("BatchNormalization", "r0 x1 x2 x3 x4", "t0")
    cases = {
        "blocked": between_reorders(
            "batch_normalization",
            (data, *parameters(channels)),
            (normalise, operation("Relu", "t0", "t1")),
        )
    }
    activations: dict[str, dict[str, AttributeValue]] = {
        "none": {},
        "Relu": {"activation": "Relu"},
        "Sigmoid": {"activation": "Sigmoid"},
        "Tanh": {"activation": "Tanh"},
        "LeakyRelu": {"activation": "LeakyRelu", "activation_params": (0.2,)},
        "Clip": {"activation": "Clip", "activation_params": (-0.3, 0.8)},
        "HardSigmoid": {"activation": "HardSigmoid", "activation_params": (0.3, 0.4)},
    }
    summed = scale(activation="Relu").attributes
    for name, attributes in activations.items():
        convolution = Operation(
            op_type="Conv",
            domain=NCHWC_DOMAIN,
            inputs=("x0", "x1", "x2"),
            output="t0",
            attributes=scale(**attributes).attributes,
        )
        cases[f"convolution, {name}"] = Workload(
            op_type="batch_normalization",
            inputs=(data, weights, bias),
            operations=(convolution,),
            output=data,
        )
    for name, inputs in (("bias", "x0 x1 x2 x3"), ("no bias", "x0 x1 - x2")):
        own = (bias, data) if name == "bias" else (data,)
        cases[f"convolution, {name}, tensor added"] = Workload(
            op_type="batch_normalization",
            inputs=(data, weights, *own),
            operations=(operation("Conv", inputs, domain=NCHWC_DOMAIN, **summed),),
            output=data,
        )
    cases["convolution without bias, chain behind"] = Workload(
        op_type="batch_normalization",
        inputs=(data, weights, plain(channels, 1, 1, constant=True)),
        operations=(
            Operation(
                op_type="Conv",
                domain=NCHWC_DOMAIN,
                inputs=("x0", "x1"),
                output="t0",
                attributes=scale(bias=False).attributes,
            ),
            operation("ReorderOutput", "t0", "t1", domain=NCHWC_DOMAIN, channels=channels),
            operation("PRelu", "t1 x2", "t2"),
            operation("ReorderInput", "t2", "t3", domain=NCHWC_DOMAIN),
        ),
        output=data,
    )
    return cases


def test_short_rows_take_their_parameters_from_before() -> None:
    space = get_family("batch_normalization").space(
        make((1, 100, 7, 7), NORMALISE), kernel_target()
    )
    assert space.first_guesses[0]["parameters"] == "root"


def test_long_rows_hoist_their_parameters() -> None:
    space = get_family("batch_normalization").space(
        make((1, 16, 56, 56), NORMALISE), kernel_target()
    )
    assert space.first_guesses[0]["parameters"] == "inline"
