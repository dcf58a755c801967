"""Which parts a model is nearly as fast without, and much lighter."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from aoe.tuning.validation.candidates import P

_SPARED_SHARE = 0.01
"""Of what all parts promise to save, what may be given up for memory: within the noise of the last
comparison. Candidates of one operator may cost 5 %, since the next best one takes their place."""
_LEAST_BYTES = 1 << 20
"""What a part has to keep to be looked at."""


def not_worth_their_memory(parts: Sequence[P], kept_bytes: Callable[[P], float]) -> dict[str, str]:
    """Return the parts that save least for what they keep, with the reason, by name.

    Args:
        parts: What a model has, all of it faster than without.
        kept_bytes: What a part keeps besides the weights of the model.

    Returns:
        Parts that promise a hundredth of all savings together at most, and keep 1 MiB each.
    """
    heavy = [part for part in parts if kept_bytes(part) >= _LEAST_BYTES]
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
