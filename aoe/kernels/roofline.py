"""How fast a workload can be computed at most: what tuning has room for.

Roofline model: a computation lasts at least as long as its multiply-adds take in the units, and
as long as its tensors take on the way from the caches.

Source: S. Williams et al., Roofline, Communications of the ACM 52(4), 2009.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from aoe.kernels.algorithms import allowed_space
from aoe.kernels.family import KernelFamily, KernelTarget
from aoe.kernels.halide.shapes import shapes_of
from aoe.operators import OperatorKind, facts_of
from aoe.schedule import Configuration
from aoe.target import TILES_SUFFIX
from aoe.workload import Workload

_FLOAT_BYTES = 4
_RATES = (
    (TILES_SUFFIX, 4.0),
    ("winograd_4x4", 2.2),
    ("winograd", 1.6),
    ("int8", 3.0),
    ("int4", 3.0),
    ("bf16", 2.0),
)
"""Multiply-adds of the plain way an algorithm does in the time of one in float32, by what its name
holds. Source: measured on networks, docs/benchmarks.md; the transforms of Winograd's take part of
the 4 and 2.25 they save."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineRates:
    """What the machine does at its best with the threads of a run.

    Attributes:
        multiply_adds_per_us: Of float32, in large matrix products.
        bytes_per_us: Read and written by an element-wise operator on tensors in the caches.
    """

    multiply_adds_per_us: float
    bytes_per_us: float


def multiply_adds(workload: Workload) -> int:
    """Return the products summed up in a workload, by the definition of its operators."""
    shapes = shapes_of(workload)
    if isinstance(shapes, str):
        return 0
    return sum(
        prod(shapes[operation.output])
        * facts_of(operation).summed(operation, shapes[operation.inputs[0]])
        for operation in workload.operations
        if facts_of(operation).kind is OperatorKind.PRODUCT
    )


def touched_elements(workload: Workload) -> int:
    """Return how many elements a kernel reads and writes, each counted once."""
    return workload.output.size + sum(spec.size for spec in workload.inputs)


def least_us(
    workload: Workload, family: KernelFamily, target: KernelTarget, rates: MachineRates
) -> float:
    """Return the time below which no kernel of a family is expected to compute a workload."""
    moving_us = _FLOAT_BYTES * touched_elements(workload) / rates.bytes_per_us
    count = multiply_adds(workload)
    if not count:
        return moving_us
    speed = _fastest(workload, family, target)
    return max(moving_us, count / (rates.multiply_adds_per_us * speed))


def _fastest(workload: Workload, family: KernelFamily, target: KernelTarget) -> float:
    """Return the rate of the fastest algorithm a family begins with, float32 products being 1."""
    space = allowed_space(family, workload, target)
    guesses = space.first_guesses if space is not None else ()
    names = {family.schedule(workload, Configuration(guess), target).algorithm for guess in guesses}
    return max(map(rate_of, names), default=1.0)


def rate_of(algorithm: str) -> float:
    """Return multiply-adds an algorithm does in the time of one in float32, 1 if it is unknown."""
    return next((rate for part, rate in _RATES if part in algorithm), 1.0)
