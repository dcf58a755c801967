"""Products of lower precision by ONNX Runtime's own operators, beside the kernels of a family.

DynamicQuantizeMatMul and MatMulNBits run on every CPU and need no kernel library. They are
algorithms like any other: measured, recorded, and held to the accuracy of the model.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from aoe.kernels.algorithms import KNOB
from aoe.kernels.family import KernelFamily, KernelTarget, Pipeline, Support
from aoe.kernels.matmul.shape import MatrixProduct, read_product
from aoe.operators import OperatorKey
from aoe.schedule import Configuration, Knob, Schedule, Space, Values
from aoe.target import HOST_INT8, HOST_PREFIX, Target
from aoe.workload import Precision, Workload

HOST_NARROW_INT8 = f"{HOST_INT8}_of_7_bits"
"""DynamicQuantizeMatMul where no instruction sums products of 8 bits in 32: ONNX Runtime adds two
of them in 16 there, which 2 * 255 * 127 does not fit into, and weights of 7 bits do.
Source: ONNX Runtime's page on quantisation, `reduce_range` on AVX2 and AVX512; on an emulated EPYC
Milan rows of large values by weights of 8 bits were 7.7 % off instead of 0.8 %, by 7 bits 1.4 %."""
HOST_INT4 = f"{HOST_PREFIX}int4"
"""MatMulNBits, rows quantised to 8 bits."""


def is_hosted(algorithm: str) -> bool:
    """True if ONNX Runtime has the operators of an algorithm: nothing is compiled."""
    return algorithm.startswith(HOST_PREFIX)


def hosted_product(workload: Workload) -> MatrixProduct | None:
    """Return the product ONNX Runtime's own operators compute with its chain, None for others."""
    if workload.precision not in (Precision.INT8, Precision.INT4) or workload.op_type != "matmul":
        return None
    product = read_product(workload)
    if isinstance(product, Support) or product.left_turned or not product.has_weights:
        return None
    left, right = (workload.inputs[at] for at in (product.left, product.right))
    are_numbers = left.dtype == right.dtype == "float32"
    return product if are_numbers and len(left.shape) > 1 and len(right.shape) == 2 else None


def host_algorithm(workload: Workload, target: Target) -> str:
    """Return the algorithm by which ONNX Runtime computes a workload itself, "" if it cannot."""
    if hosted_product(workload) is None:
        return ""
    if workload.precision is Precision.INT4:
        return HOST_INT4
    return HOST_INT8 if target.int8_sums is not None else HOST_NARROW_INT8


def with_host_products(family: KernelFamily, target: Target) -> KernelFamily:
    """Return a family that offers ONNX Runtime's own operators among its algorithms."""
    return _WithHostProducts(family=family, machine=target)


@dataclass(frozen=True, slots=True, kw_only=True)
class _WithHostProducts:
    """A family, and the operators of ONNX Runtime for what it computes in integers."""

    family: KernelFamily
    machine: Target

    @property
    def name(self) -> str:
        return self.family.name

    @property
    def anchors(self) -> frozenset[OperatorKey]:
        return self.family.anchors

    def supports(self, workload: Workload) -> Support:
        return self.family.supports(workload)

    def pipeline(self, workload: Workload, algorithm: str = "") -> Pipeline:
        return self.family.pipeline(workload, algorithm)

    def space(self, workload: Workload, target: KernelTarget) -> Space:
        """Return the space of the family with one configuration more.

        That one alone where Halide has no instructions for sums of products of 8 bits.
        """
        hosted = host_algorithm(workload, self.machine)
        if not hosted:
            return self.family.space(workload, target)
        if self.machine.int8_dot is None:
            return Space(knobs=(Knob(KNOB, (hosted,)),), first_guesses=({KNOB: hosted},))
        return _extended(self.family.space(workload, target), hosted)

    def schedule(
        self, workload: Workload, configuration: Configuration, target: KernelTarget
    ) -> Schedule:
        algorithm = str(configuration.get(KNOB, ""))
        if is_hosted(algorithm):
            return Schedule((), algorithm=algorithm)
        return self.family.schedule(workload, configuration, target)


def _extended(space: Space, hosted: str) -> Space:
    """Return a space with an algorithm more, for which all other knobs are as in the first guess.

    The family's first guess stays first, the new one comes next.
    """
    first, *others = space.first_guesses
    guess = {**first, KNOB: hosted}

    def legal(values: Values) -> bool:
        return values == guess if values[KNOB] == hosted else space.constraint(values)

    return replace(
        space,
        knobs=tuple(
            replace(knob, choices=(*knob.choices, hosted)) if knob.name == KNOB else knob
            for knob in space.knobs
        ),
        constraint=legal,
        first_guesses=(first, guess, *others),
    )
