"""Ready times and sizes of the gradients of a backward pass."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from aoe.errors import MeasurementError

SLOWEST_DROPPED = 3
"""Samples of each gradient that do not count. Source: AOE GDAT, and so its `RUN_LOOP` > 3."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientTrace:
    """The gradients of one model, in the order they become ready."""

    sizes_bytes: tuple[int, ...]  # Size of each gradient
    dtypes: tuple[str, ...]  # Data type of each, as its framework spells it
    names: tuple[str, ...]  # Name of each parameter
    # Time from the start of backward until each is ready; never decreases.
    ready_us: tuple[float, ...]
    loops: int  # Backward passes the times were averaged over; 0 if they were not measured

    def __post_init__(self) -> None:
        lengths = {len(self.sizes_bytes), len(self.dtypes), len(self.names), len(self.ready_us)}
        if lengths == {0} or len(lengths) > 1:
            raise ValueError(f"a trace needs as many of everything, and some (got {lengths})")
        if any(size < 0 for size in self.sizes_bytes):
            raise ValueError("sizes must not be negative")
        if not all(math.isfinite(ready) and ready >= 0 for ready in self.ready_us):
            raise ValueError("ready times must be finite and not negative")
        if any(later < earlier for earlier, later in pairwise(self.ready_us)):
            raise ValueError("ready times must not decrease")

    def __len__(self) -> int:
        return len(self.sizes_bytes)

    @property
    def total_bytes(self) -> int:
        """Size of all gradients together."""
        return sum(self.sizes_bytes)

    @property
    def backward_end_us(self) -> float:
        """Time at which the last gradient is ready."""
        return self.ready_us[-1]


def average_loops(loops: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """Return the mean time of each gradient, its `SLOWEST_DROPPED` slowest samples left out.

    If the times of every loop never decrease, the means do not either: the k-th smallest
    sample of a gradient is not above that of a later one.

    Args:
        loops: A list of times per backward pass, us, gradients in one order in all of them.

    Raises:
        MeasurementError: there are not more loops than are dropped, their lengths differ, or
            a time is negative or not finite.
    """
    if len(loops) <= SLOWEST_DROPPED:
        raise MeasurementError(
            "gradient times",
            "too few loops",
            got=len(loops),
            expected=f"more than {SLOWEST_DROPPED}",
            hint="record more backward passes",
        )
    lengths = sorted({len(loop) for loop in loops})
    if len(lengths) > 1 or not lengths[0]:
        raise MeasurementError(
            "gradient times",
            "loops do not hold the same gradients",
            got=f"lengths {lengths}",
            hint="every recorded step must use the same parameters",
        )
    if not all(math.isfinite(time) and time >= 0 for loop in loops for time in loop):
        raise MeasurementError("gradient times", "a time is negative or not finite")
    kept = len(loops) - SLOWEST_DROPPED
    return tuple(math.fsum(sorted(samples)[:kept]) / kept for samples in zip(*loops, strict=True))


def model_hash(dtypes: Sequence[str], sizes_bytes: Sequence[int], *, summed_in: str = "") -> int:
    """Return the identity of a model in a gradient bank, an unsigned 64-bit number.

    It is the big-endian number in the first 8 bytes of the sha256 of `dtype:size` of every
    gradient, joined by `,`. The order counts. Hash the parameters in the order the model lists
    them, which is known before anything ran; the bank keeps its lists in the order of readiness.
    CANN's own hash (`std::hash` of the same facts without separators) depends on its C++ library,
    so it is not imitated; readers only compare the text. Gradients that are not summed in their own
    type but in `summed_in` are another model to the bank: `;` and that type are hashed, too.

    >>> model_hash(["float32"], [4096])
    10183077375236526435
    """
    if len(dtypes) != len(sizes_bytes) or not dtypes:
        raise ValueError(
            f"a hash needs one size per dtype (got {len(sizes_bytes)} and {len(dtypes)})"
        )
    text = ",".join(f"{dtype}:{size}" for dtype, size in zip(dtypes, sizes_bytes, strict=True))
    text += f";{summed_in}" if summed_in else ""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
