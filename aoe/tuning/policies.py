"""How much measuring a decision needs."""

from __future__ import annotations

from aoe.measurement import MeasurePolicy


def screen_policy(threads: int) -> MeasurePolicy:
    """Return the policy for candidates during a search: good enough to rank them."""
    return MeasurePolicy(pairs_min=7, pairs_max=15, threads=threads)


def final_policy(threads: int) -> MeasurePolicy:
    """Return the policy for figures that are kept: fresh pairs for a winner, whole models."""
    return MeasurePolicy(
        pairs_min=20, pairs_max=60, warmup=3, target_half_width=0.005, threads=threads
    )
