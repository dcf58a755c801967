"""Least time a workload can take: the room tuning has.

Roofline model: a computation lasts at least as long as its multiply-adds take in the units, and
as long as its tensors take on the way from the caches.

Source: S. Williams et al., Roofline, Communications of the ACM 52(4), 2009.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from aoe.kernels.algorithms import STREAMED, allowed_space, weights_kept
from aoe.kernels.family import KernelFamily, KernelTarget
from aoe.kernels.halide.shapes import shapes_of
from aoe.operators import OperatorKind, facts_of
from aoe.schedule import Configuration
from aoe.target import TILES_SUFFIX
from aoe.workload import TensorSpec, Workload, workload_from_json, workload_to_json

_FLOAT_BYTES = 4
_SHORTER_BYTES = {"int8": 1, "uint8": 1, "float16": 2}
_RATES = (
    (TILES_SUFFIX, 4.0),
    ("stride_2", 1.3),
    ("4x4_taps", 3.7),
    ("taps", 2.0),
    ("winograd_4x4", 2.8),
    ("winograd_3x3", 2.2),
    ("winograd_2x2", 1.8),
    ("winograd", 1.6),
    ("amx", 12.0),
    ("vnni", 3.5),
    ("widened", 1.5),
    ("int8", 3.0),
    ("int4", 3.0),
    ("bf16", 2.0),
)
"""Multiply-adds of the plain way an algorithm does in the time of one in float32, by what its name
holds, where its weights are at hand. Source: measured on networks, docs/benchmarks.md; the
transforms of Winograd's take part of the 4 and 2.25 they save, of 2.5 and 2.8 with 5 and 7 taps."""
_MADE_IN_EVERY_RUN = 1.6
"""Cost of filters that are transformed where they are used, in the time of reading the plain ones
from memory. Source: CPU time with weights in no cache, 64 to 512 channels of 56 x 56 to 7 x 7, one
thread of a Zen 5, 2026-11-23."""
_FAR = 5.0
"""Time of one thread to read from memory, relative to the caches: 13 to 20 GB/s and 90.
Source: as above."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineRates:
    """Best rates of the machine with the threads of a run."""

    multiply_adds_per_us: float  # Of float32, in large matrix products
    bytes_per_us: float  # Read and written by an element-wise operator on tensors in the caches


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
    """Return the number of elements a kernel reads and writes, each counted once."""
    return workload.output.size + sum(spec.size for spec in workload.inputs)


def least_us(
    workload: Workload, family: KernelFamily, target: KernelTarget, rates: MachineRates
) -> float:
    """Return the time below which no kernel of a family is expected to compute a workload."""
    tensors = (*workload.inputs, workload.output)
    moving_us = sum(map(_bytes_of, tensors)) / rates.bytes_per_us
    count = multiply_adds(workload)
    if not count:
        return moving_us
    plain_us = count / rates.multiply_adds_per_us
    reading_us = _FAR * _weight_bytes(workload) / rates.bytes_per_us
    return min(
        max(moving_us, plain_us / _rate(name)) + reading_us * _more_weights(name)
        for name in first_algorithms(family, workload, target) or ("",)
    )


def first_algorithms(
    family: KernelFamily, workload: Workload, target: KernelTarget
) -> frozenset[str]:
    """Return the names of the algorithms a family begins with, none if its space is empty.

    They are what most of the engine asks a space for. Ranking thousands of configurations tells
    them, so each workload is ranked once in a process, however often a model has it.
    """
    found: frozenset[str] = _first_algorithms(
        family,  # type: ignore[arg-type]  # a protocol says nothing of hashes; families have one
        json.dumps(workload_to_json(workload)),
        target,
    )
    return found


@lru_cache(maxsize=4096)
def _first_algorithms(family: KernelFamily, workload: str, target: KernelTarget) -> frozenset[str]:
    read = workload_from_json(json.loads(workload))
    space = allowed_space(family, read, target)
    guesses = space.first_guesses if space is not None else ()
    return frozenset(
        family.schedule(read, Configuration(guess), target).algorithm for guess in guesses
    )


def kept_bytes(workload: Workload, algorithm: str) -> float:
    """Return the bytes of weights a kernel keeps between runs, as they are or transformed."""
    return _weight_bytes(workload) * weights_kept(algorithm)


def _weight_bytes(workload: Workload) -> int:
    """Return the bytes of the largest constant: a network reads it once in each run."""
    return max((_bytes_of(spec) for spec in workload.inputs if spec.constant), default=0)


def _bytes_of(spec: TensorSpec) -> int:
    return spec.size * _SHORTER_BYTES.get(spec.dtype, _FLOAT_BYTES)


def _rate(algorithm: str) -> float:
    return next((rate for part, rate in _RATES if part in algorithm), 1.0)


def _more_weights(algorithm: str) -> float:
    """Return the extra time of filters, in the time of reading the plain ones from memory.

    They are larger by so much, or made in every run.
    """
    return _MADE_IN_EVERY_RUN if STREAMED in algorithm else weights_kept(algorithm) - 1
