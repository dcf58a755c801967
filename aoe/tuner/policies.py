"""Measuring policies: the pairs each decision needs."""

from __future__ import annotations

import math

from aoe.measurement import QUIET_SHARE, MeasurePolicy, RacePolicy

_SCREEN_S = 0.5
"""For a candidate among a dozen: with calls of 50 ms, six pairs."""
_SCREENING_S, _SCREENING_PAIRS = 0.15, (6, 16)
"""For the first guess of an operator; six pairs are the least that have an interval of 95 %."""
_SCREENING_WIDTH = 0.05
_VARIANT_S = 1.5
"""For one order of loading, with and without some kernels: of calls of 80 ms, eight pairs."""
_ENOUGH_S = 4.0
"""For figures that decide: sixty pairs of calls up to 30 ms, six of those of 300 ms and more."""

_CHECK_PAIRS = (6, 10)
"""Of a gain that was proven before; six are the least that have an interval of 95 %."""
_FINAL_PAIRS = (20, 60)
"""Least and most pairs for those."""
_LIMIT_SHARE = 0.02
"""Of the time that is left, what the winner of a search is measured for at most."""
_OWN_SHARE, _OWN_PAIRS = 0.1, 4
"""The same for an operator that is all of the model, and how many times as many pairs it gets at
most: there is nothing else the time is for. 60 pairs of 0.4 ms left a classifier of one row at
1.06x, 0.99x to 1.17x, and the run ended 45 s before its limit."""
_HURRY_S = 90.0
"""Where less is left, a busy machine is not waited for."""


def screen_policy(threads: int, *, accept_busy: bool = False) -> MeasurePolicy:
    """Return the policy for candidates during a search: good enough to rank them."""
    return MeasurePolicy(
        pairs_min=6,
        pairs_max=16,
        lost_pairs=4,
        enough_s=_SCREEN_S,
        threads=threads,
        least_quiet=_least_quiet(accept_busy),
    )


def single_run_policy(threads: int) -> MeasurePolicy:
    """Return the policy of a comparison of results: each side runs once, and no time is kept."""
    return MeasurePolicy(pairs_min=1, pairs_max=1, warmup=0, threads=threads)


def screening_policy(threads: int, *, accept_busy: bool = False) -> MeasurePolicy:
    """Return the policy for a first guess that is not chosen among others: 2x shows at once."""
    return MeasurePolicy(
        pairs_min=_SCREENING_PAIRS[0],
        pairs_max=_SCREENING_PAIRS[1],
        target_half_width=_SCREENING_WIDTH,
        enough_s=_SCREENING_S,
        threads=threads,
        least_quiet=_least_quiet(accept_busy),
    )


def block_policy(
    threads: int, *, accept_busy: bool = False, left_s: float = math.inf
) -> MeasurePolicy:
    """Return the policy for a block of a range as it goes into its kernel.

    The whole model is judged behind it, so that a first guess will do where time is short.

    Args:
        threads: Threads of both sides.
        accept_busy: True if figures of a busy machine count.
        left_s: Seconds until the time limit of the run.
    """
    policy = screen_policy if left_s >= _HURRY_S else screening_policy
    return policy(threads, accept_busy=accept_busy)


def variant_policy(
    threads: int, *, accept_busy: bool = False, left_s: float = math.inf
) -> MeasurePolicy:
    """Return the policy for a model with and without some kernels: a percent has to show."""
    return MeasurePolicy(
        pairs_min=12,
        pairs_max=24,
        target_half_width=0.005,
        enough_s=_VARIANT_S,
        threads=threads,
        least_quiet=_least_quiet(accept_busy),
        tries=2 if left_s >= _HURRY_S else 1,
    )


def check_policy(
    threads: int, *, accept_busy: bool = False, left_s: float = math.inf
) -> MeasurePolicy:
    """Return the policy for a model whose gain was proven before: what is gone has to show.

    Args:
        threads: Threads of both sides.
        accept_busy: True if figures of a busy machine count.
        left_s: Seconds until the time limit of the run.
    """
    return MeasurePolicy(
        pairs_min=_CHECK_PAIRS[0],
        pairs_max=_CHECK_PAIRS[1],
        target_half_width=0.02,
        enough_s=_SCREEN_S,
        threads=threads,
        least_quiet=_least_quiet(accept_busy),
        tries=2 if left_s >= _HURRY_S else 1,
    )


def final_policy(
    threads: int,
    *,
    accept_busy: bool = False,
    run_loop: int | None = None,
    left_s: float = math.inf,
    share: float = 0.0,
) -> MeasurePolicy:
    """Return the policy for figures that are kept: fresh pairs for a winner, whole models.

    Args:
        threads: Threads of both sides.
        accept_busy: True to believe figures that were taken on a busy machine.
        run_loop: Pairs there are at least, however long they take; fewer than 20 prove too little.
        left_s: Seconds until the time limit of the run.
        share: Of the model's time in the operator whose winner it is.
    """
    alone = max(0.0, 2 * share - 1)  # others need the time where it is no more than half
    limit_share = max(_LIMIT_SHARE, _OWN_SHARE * alone)
    return MeasurePolicy(
        pairs_min=max(_FINAL_PAIRS[0], run_loop or 0),
        pairs_max=max(round(_FINAL_PAIRS[1] * (1 + (_OWN_PAIRS - 1) * alone)), run_loop or 0),
        warmup=3,
        target_half_width=0.005,
        enough_s=math.inf
        if run_loop is not None
        else min(_ENOUGH_S, max(_SCREEN_S, limit_share * left_s)),
        threads=threads,
        least_quiet=_least_quiet(accept_busy),
        tries=3 if left_s >= _HURRY_S else 1,
    )


def step_race_policy() -> RacePolicy:
    """Return the policy for groupings of gradients beside each other, in rounds.

    Training steps are dear, so a round is one sample of each. Who is surely not the best is out
    from the fourth round on; `benchmarks/gdat_judgement.py` counts how often that is wrong.
    """
    return RacePolicy(rounds_min=4, rounds_max=8, mistake_ratio=0.02)


def step_final_policy() -> MeasurePolicy:
    """Return the policy for the grouping that won, in fresh pairs of training steps.

    Between these numbers as many pairs are taken as should show the gain seen before.
    """
    return MeasurePolicy(pairs_min=12, pairs_max=48)


def _least_quiet(accept_busy: bool) -> float:
    return 0.0 if accept_busy else QUIET_SHARE
