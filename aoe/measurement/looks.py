"""Interval of a median that holds though measuring stops as soon as the interval is narrow.

A fixed interval of 95 % that is looked at after 10, 12, ... pairs and believed once it is narrow
covers less than 95 %: the run stops where the pairs lie together by chance. So the chance of error
is spent in portions (Lan and DeMets), each look has its own interval, and all of them hold together
(Jennison and Turnbull).

Guarantee. If each ratio lies below the true median with chance 1/2, whatever the pairs before it
were, the number of ratios below after n pairs is a symmetric random walk. The interval from the
k-th smallest to the k-th largest ratio misses the median exactly if that number is below k or above
n - k. The ranks k of all looks are the largest for which the walk leaves them, at a look or at an
earlier one, with no more than the chance spent so far: 30 % of it at once, 40 % in proportion to
the pairs, all of it at the end. So the interval at whichever look a measurement stops holds with
the confidence asked for, whatever rule stops it and whatever the distribution of the ratios is; an
end that is fixed beforehand (the most pairs, the time) spends all that is left. The walk is counted
exactly, not approximated. By symmetry either side errs with half of the chance, but for walks that
would leave by both.

Approximate are three things. The time that ends a measurement is taken to be independent of which
side of the median its pairs lie on. Pairs of both orders may have medians of their own, which makes
a fixed interval cover more, not less (W. Hoeffding, Annals of Mathematical Statistics 27, 1956,
pages 713 to 721). And neighbouring pairs are correlated: see `variance_ratio`.

Sources: C. Jennison and B. W. Turnbull, Controlled Clinical Trials 5 (1984), pages 33 to 45, and
    Journal of the Royal Statistical Society B 51 (1989), pages 305 to 361 (repeated confidence
    intervals); K. K. G. Lan and D. L. DeMets, Biometrika 70 (1983), pages 659 to 663 (spending);
    K. Kim and D. L. DeMets, Biometrika 74 (1987), pages 149 to 154 (in proportion to the time);
    P. Armitage, C. K. McPherson and B. C. Rowe, Journal of the Royal Statistical Society A 132
    (1969), pages 235 to 244 (counting the walk).
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from statistics import NormalDist
from typing import NamedTuple

_AT_ONCE, _BY_LOOKS = 0.3, 0.4
"""Shares of the chance of error that looks may spend: at the first one, and in proportion to the
pairs until the end, which has what is left. Source: of simulated measurements (normal noise, with
and without spikes, correlation up to 0.6), these take the fewest pairs among those whose interval
at the end has the rank of a fixed one after 60 pairs, the rank below it after 40."""
_APART = 1.05
"""Least ratio of the pairs of two looks: with 40 pairs and more, two more change little."""
_FEWEST_CORRELATED = 10
"""Pairs from which on a correlation is measured: of six, noise alone reads 0.3 in every fifth."""
_MOST_CORRELATED = 0.9


class Look(NamedTuple):
    """A look that could have ended a measurement."""

    pairs: int  # Taken by then
    share: float  # Of the chance of error that may be spent by then


def is_due(pairs: int, looks: Sequence[Look]) -> bool:
    """True if a look after so many pairs can tell more than the one before it."""
    return not looks or pairs >= _APART * looks[-1].pairs


def planned_look(pairs: int, most: int) -> Look:
    """Return a look after some pairs of a measurement that ends after `most` at the latest."""
    return Look(pairs, _AT_ONCE + _BY_LOOKS * pairs / most)


def median_interval(
    count: int, confidence: float = 0.95, looks: tuple[Look, ...] = ()
) -> tuple[int, float]:
    """Return which order statistics enclose the median at the end, and how surely all looks do.

    Args:
        count: Ratios at the end, at least 1.
        confidence: Least coverage wanted of the intervals of all looks and the end together.
        looks: In their order; the end was fixed beforehand unless the last one is there.

    Returns:
        The rank k of the last interval, and the chance that no interval misses. k is 1 (smallest to
        largest ratio) where not even that keeps within the chance spent; the coverage says so.
    """
    if count < 1:
        raise ValueError(f"an interval needs samples (got {count})")
    before = tuple(look for look in looks if 0 < look.pairs <= count)
    if not before:
        return _fixed_interval(count, confidence)
    # an end that no look has chosen may spend all that is left of the chance of error
    if before[-1].pairs < count:
        before = (*before, Look(count, 1.0))
    walk, spent, rank = _walked(before, confidence)
    # too few pairs for the coverage asked for: the whole range, and the coverage it has
    if rank == 0:
        rank, spent = 1, spent + walk[0] + walk[-1]
    return rank, max(0.0, 1 - spent)


def _fixed_interval(count: int, confidence: float) -> tuple[int, float]:
    """Return the interval of a single look, with coverage 1 - 2 P(B < k), B binomial(n, 1/2)."""
    total = 2**count
    below, best, coverage = 1, 1, 1 - 2 / total
    for rank in range(2, count // 2 + 1):
        below += math.comb(count, rank - 1)
        if 1 - 2 * below / total < confidence:
            break
        best, coverage = rank, 1 - 2 * below / total
    return best, coverage


@lru_cache(maxsize=512)
def _walked(looks: tuple[Look, ...], confidence: float) -> tuple[tuple[float, ...], float, int]:
    """Return the walk after the last look, the chance spent by then, and the rank at that look.

    The walk has the chance of each number of ratios below the median of walks that left at no look.
    A measurement adds a look to those before, whose walk is known.
    """
    if not looks:
        return (1.0,), 0.0, 0
    before, spent, _ = _walked(looks[:-1], confidence)
    walk = [*before]
    while len(walk) <= looks[-1].pairs:
        # one more pair, whose ratio lies below the median with chance 1/2
        walk = [(one + other) / 2 for one, other in pairwise((0.0, *walk, 0.0))]
    rank, most = 0, (1 - confidence) * looks[-1].share + 1e-12
    while 2 * rank + 1 < looks[-1].pairs and spent + walk[rank] + walk[-1 - rank] <= most:
        spent += walk[rank] + walk[-1 - rank]
        # a walk errs once: what left at this look is not counted at a later one
        walk[rank] = walk[-1 - rank] = 0.0
        rank += 1
    return tuple(walk), spent, rank


def variance_ratio(ratios: Sequence[float]) -> float:
    """Return the variance of correlated pairs over that of independent ones, 1 or more.

    That of a first-order autoregression, (1 + r) / (1 - r), with the correlation r of the ranks of
    neighbouring pairs: ranks, so that one spike is one rank. The number of pairs below the median
    varies less than that with normal noise, and r of a few pairs is too small by (1 + 3 r) / n:
    both nearly cancel. A negative correlation, as swapping the order in every other pair makes it
    where the order counts, is taken for none. Without correlation an interval becomes wider by
    chance in about half of all measurements, by 16 % on average after 40 pairs.

    Sources: M. S. Bartlett, Supplement to the Journal of the Royal Statistical Society 8 (1946),
        pages 27 to 41 (variance); F. H. C. Marriott and J. A. Pope, Biometrika 41 (1954), pages 390
        to 402 (bias of r).
    """
    count = len(ratios)
    if count < _FEWEST_CORRELATED:
        return 1.0
    ordered = sorted(ratios)
    # twice the mean rank of equal ratios, counted from the middle: whole numbers
    ranks = [bisect_left(ordered, one) + bisect_right(ordered, one) - count for one in ratios]
    squares = sum(rank * rank for rank in ranks)
    if not squares:
        return 1.0
    correlation = sum(one * other for one, other in pairwise(ranks)) / squares
    kept = min(max(correlation, 0.0), _MOST_CORRELATED)
    return (1 + kept) / (1 - kept)


def widened(rank: int, coverage: float, count: int, ratio: float) -> tuple[int, float]:
    """Return rank and coverage of an interval of correlated pairs.

    The distance of the rank from the middle grows with the deviation of the number of pairs below
    the median, as for many pairs. Where the smallest ratio is too near, the coverage falls.

    Args:
        rank: Of the interval of independent pairs.
        coverage: Of that interval.
        count: Pairs.
        ratio: See `variance_ratio`.
    """
    wide = count / 2 - (count / 2 - rank) * math.sqrt(ratio)
    if wide >= 1:
        # rounded down, to the wider interval
        return int(wide), coverage
    beyond = NormalDist().cdf(-(count - 1) / math.sqrt(count * ratio))
    return 1, min(coverage, 1 - 2 * beyond) if ratio > 1 else coverage
