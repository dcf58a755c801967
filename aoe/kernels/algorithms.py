"""Precision by an algorithm's name, and the part of a space that a precision allows.

`winograd` anywhere in a name: inputs and weights are transformed, which spreads rounding errors,
infinities and NaN over a tile; `streamed` too, the weights are where they are used, and else once.
`bf16` anywhere, or `_tiles` at the end: factors are rounded to bfloat16. `int8` anywhere: factors
are rounded to 8 bits; `int4`: weights to 4. Any other name, and none: sums of float32 products in
some order.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace
from math import prod

from aoe.kernels.family import KernelFamily, KernelTarget
from aoe.schedule import Configuration, Space, Values
from aoe.target import TILES_SUFFIX
from aoe.workload import Precision, Workload

KNOB = "algorithm"
"""Name of the knob that chooses the algorithm, in families that have such a knob."""
STREAMED = "streamed"
_TRANSFORMED = re.compile(r"winograd_(?:rows_|line_)?(\d)(?:x(\d))?(?:_taps_(\d))?")
"""Results of a tile along each axis, and the values of a filter if they are not 3."""


def known_algorithm(family: str, name: str, known: Collection[str]) -> str:
    """Return `name`.

    Raises:
        ValueError: the family has no algorithm of that name.
    """
    if name not in known:
        names = ", ".join(known)
        raise ValueError(f"{family}: no such algorithm (got {name}, expected {names})")
    return name


def precision_of(algorithm: str) -> Precision:
    """Return the highest precision whose workloads an algorithm may compute.

    >>> precision_of("direct_bf16").value, precision_of("winograd_4x4").value
    ('bfloat16', 'float32')
    """
    for lower in (Precision.INT8, Precision.INT4):
        if lower.value in algorithm:
            return lower
    if "bf16" in algorithm or algorithm.endswith(TILES_SUFFIX):
        return Precision.BFLOAT16
    return Precision.FLOAT32 if "winograd" in algorithm else Precision.STRICT_FLOAT32


def is_allowed(algorithm: str, precision: Precision) -> bool:
    """True if an algorithm may compute workloads of a precision.

    What multiplies float32 is no answer to a workload of lower precision: it is one to the same
    workload in float32, under a key that says so.
    """
    found = precision_of(algorithm)
    if precision is Precision.FLOAT32:
        return not found.is_lower
    return found is precision


def weights_kept(algorithm: str) -> float:
    """Return the size of the float32 weights a kernel keeps, over the size it is given.

    Filters of r values along an axis become m + r - 1 for tiles of m results.

    >>> weights_kept("winograd_4x4"), weights_kept("winograd_4x4_streamed"), weights_kept("direct")
    (4.0, 1.0, 1.0)
    """
    found = _TRANSFORMED.match(algorithm)
    if found is None or STREAMED in algorithm:
        return 1.0
    *tile, taps = (int(size or 0) for size in found.groups())
    taps = taps or 3
    axes = [results for results in tile if results > 1]
    ratio: float = prod(results + taps - 1 for results in axes) / taps ** len(axes)
    return ratio


def allowed_space(family: KernelFamily, workload: Workload, target: KernelTarget) -> Space | None:
    """Return a family's space for a workload in its precision, None if it is empty."""
    space = family.space(workload, target)

    def algorithm(values: Values) -> str:
        if KNOB in values:
            return str(values[KNOB])
        return family.schedule(workload, Configuration(values), target).algorithm

    def allowed(values: Values) -> bool:
        return is_allowed(algorithm(values), workload.precision)

    guesses = tuple(guess for guess in space.first_guesses if allowed(guess))
    if not guesses:
        return None
    named = {str(choice) for knob in space.knobs if knob.name == KNOB for choice in knob.choices}
    named = named or {algorithm(guess) for guess in space.first_guesses}
    if all(is_allowed(name, workload.precision) for name in named):
        return space
    return replace(
        space,
        constraint=lambda values: space.constraint(values) and allowed(values),
        first_guesses=guesses,
    )
