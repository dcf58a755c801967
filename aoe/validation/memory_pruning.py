"""Memory pruning: kernels that save little time for their memory, and the peak of a session."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import accumulate

from aoe.measurement.memory import MemoryUse, ModelMemory
from aoe.validation.candidates import P

PEAK_RATIO = 1.10
"""What a session of a tuned model may take at its peak, over one of the model's own file."""
_AIMED_SHARE = 0.98
"""Of that, what parts are chosen for: a model that just fits would lose a part the next time it is
measured."""
_SPARED_SHARE = 0.01
"""Of what all parts promise to save, what may be given up for memory: within the noise of the last
comparison. Candidates of one operator may cost 5 %, since the next best one takes their place."""
LEAST_BYTES = 1 << 20
"""What a part has to keep to be looked at."""
FREE_BYTES = 10 << 20
"""What a model may take more in any case. A session of ESPCN has a peak of 28 MiB, and kernels that
make it twice as fast take 7 to 8 MiB for scratch: 35.4 MiB in one run, over 35.9 in another (2
cores of a Xeon with AVX-512, 2026-11-29)."""


def not_worth_their_memory(parts: Sequence[P], kept_bytes: Callable[[P], float]) -> dict[str, str]:
    """Return the parts that save least for what they keep, with the reason, by name.

    Args:
        parts: What a model has, all of it faster than without.
        kept_bytes: What a part keeps besides the weights of the model.

    Returns:
        Parts that promise a hundredth of all savings together at most, and keep 1 MiB each.
    """
    heavy = [part for part in parts if kept_bytes(part) >= LEAST_BYTES]
    all_us = sum(max(0.0, part.gain_us) for part in parts)
    left_us, found = _SPARED_SHARE * all_us, dict[str, str]()
    for part in sorted(heavy, key=lambda one: (one.gain_us / kept_bytes(one), one.name)):
        gain_us = max(0.0, part.gain_us)
        if gain_us > left_us or len(found) == len(parts) - 1:
            continue
        left_us -= gain_us
        share = gain_us / all_us if all_us else 0.0
        found[part.name] = f"it keeps {_mib(kept_bytes(part))} for {share:.1%} of what is saved"
    return found


def excess_bytes(
    memory: ModelMemory | None, peak_ratio: float, mapped_bytes: float = 0, *, aimed: bool = False
) -> float:
    """Return the bytes a tuned model exceeds its peak by; below 0 the bytes that are left.

    Minus infinity where there is no limit, or the system does not say what sessions take. The
    models that are compared map their weights from a file. A session of the model as it was given
    holds them in memory of its own while it packs them, so the weights are added to its peak: of a
    U-Net and a YOLO sessions of the file took 1.33 to 1.38 times what those of the copy took.

    Args:
        memory: Of a session of either model.
        peak_ratio: What the tuned one may take, over the untuned one; infinity for no limit.
        mapped_bytes: Weights of the untuned model.
        aimed: True while parts are chosen: what lies just below the limit is too much then.
    """
    if memory is None or math.isinf(peak_ratio):
        return -math.inf
    untuned, tuned = _peak(memory.baseline) + mapped_bytes, _peak(memory.tuned)
    allowed = (_AIMED_SHARE if aimed else 1.0) * peak_ratio * untuned
    return tuned - max(allowed, untuned + FREE_BYTES)


def _peak(use: MemoryUse) -> float:
    return use.resident_bytes if use.peak_bytes is None else use.peak_bytes


def in_order_of_going(parts: Sequence[P], kept_bytes: Callable[[P], float]) -> list[P]:
    """Return the parts, first what saves least for each byte it keeps, last what keeps none."""
    return sorted(
        parts,
        key=lambda one: (
            one.gain_us / kept_bytes(one) if kept_bytes(one) > 0 else math.inf,
            one.gain_us,
            one.name,
        ),
    )


def all_bytes(parts: Sequence[P], kept_bytes: Callable[[P], float]) -> float:
    """Return the bytes parts keep together."""
    return math.fsum(map(kept_bytes, parts))


def fitting(
    parts: Sequence[P],
    kept_bytes: Callable[[P], float],
    excess_of: Callable[[Sequence[P]], float],
) -> Sequence[P]:
    """Return the parts whose model stays within its memory bound, all parts if they do.

    What a session takes less without a part differs from what that part keeps, as ONNX Runtime's
    buffers change too. So what the parts keep says where to look first, then the number that has to
    go is halved in on.

    Args:
        parts: What the model has.
        kept_bytes: What a part keeps besides the weights of the model.
        excess_of: Measures how much more than it may a model with some parts takes.
    """
    excess = excess_of(parts)
    if excess <= 0:
        return parts
    order = in_order_of_going(parts, kept_bytes)
    too_few, enough = 0, len(order)  # with none of its parts a model is the untuned one
    sums = accumulate(map(kept_bytes, order))
    count = next((at for at, kept in enumerate(sums, 1) if kept >= excess), len(order) // 2)
    while enough - too_few > 1:
        count = min(max(count, too_few + 1), enough - 1)
        if excess_of(order[count:]) > 0:
            too_few = count
        else:
            enough = count
        count = (too_few + enough) // 2
    return order[enough:]


def within_memory(
    parts: Sequence[P],
    kept_bytes: Callable[[P], float],
    work: Callable[[P], float],
    limit_bytes: float,
) -> tuple[list[P], dict[str, str]]:
    """Return the parts that fit into a limit together, and why the others do not, by name.

    What does least work for what it keeps goes first. That is the same in every run, as the
    figures of a measurement are not.

    Args:
        parts: What a model may have.
        kept_bytes: What a part keeps besides the weights of the model.
        work: What a part computes, in any unit.
        limit_bytes: What all may keep together.
    """
    kept, left_out = list(parts), dict[str, str]()
    total = math.fsum(map(kept_bytes, parts))
    heavy = [part for part in parts if kept_bytes(part) > 0]
    for part in sorted(heavy, key=lambda one: (work(one) / kept_bytes(one), one.name)):
        if total <= limit_bytes:
            break
        total -= kept_bytes(part)
        kept.remove(part)
        reason = f"it keeps {_mib(kept_bytes(part))}, and all may keep {_mib(limit_bytes)}"
        left_out[part.name] = reason
    return kept, left_out


def _mib(count: float) -> str:
    return f"{count / (1 << 20):.1f} MiB"
