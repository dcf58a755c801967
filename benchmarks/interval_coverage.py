"""How often intervals hold though measuring stops once they are narrow, and what that costs.

    python benchmarks/interval_coverage.py                # simulated pairs, two minutes
    python benchmarks/interval_coverage.py --real 600     # real ones: a model against itself

Each row is one policy and one kind of noise, judged by the rule that looks at fixed intervals again
and again (`fixed`, as until 0.2) and by `run_pairs` (`looks`). `covers` is how often the interval
holds the median; `above` how often its lower end lies above the median (2.5 % is meant); `pairs` is
the mean number of pairs, `half` the mean half-width; `found` is how often a planted gain of 1.1 is
accepted, `after` its mean number of pairs. Simulated noise is normal, of a first-order
autoregression; with spikes, every twentieth pair is 10 % off on average. Real pairs are long series
of ONNX Runtime against itself, replayed from random places; the truth is the median of the series.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import fmean, median

import numpy as np
from disturbed_pairs import chain_run
from numpy.typing import NDArray

from aoe.device.cpu.device import Cpu
from aoe.measurement import (
    CallTime,
    MeasurePolicy,
    SpeedupEstimate,
    accepts,
    estimate_speedup,
    median_interval,
    run_pairs,
)
from aoe.tasks.operators.lookup import ACCEPT_SPEEDUP
from aoe.tuner.policies import final_policy, screen_policy

Logs = NDArray[np.float64]
"""Logarithms of the ratios of pairs: runs x pairs."""
Judge = Callable[[Sequence[float], MeasurePolicy], SpeedupEstimate]
_POLICIES = {
    "6 to 16, 1 %": replace(screen_policy(1), lost_pairs=math.inf, enough_s=math.inf),
    "10 to 40, 1 %": MeasurePolicy(warmup=0),
    "20 to 60, 0.5 %": replace(final_policy(1), warmup=0, enough_s=math.inf),
}
_PLANTED = math.log(1.1)
_CHAINS = (2, 10, 40)


def looks(ratios: Sequence[float], policy: MeasurePolicy) -> SpeedupEstimate:
    """Measure pairs of these ratios as the engine does."""
    left, held = iter(ratios), [0.0]

    def side(*, is_tuned: bool) -> float:
        if not held[0]:  # the first side of its pair
            held[0] = next(left)
            return 1.0 if not is_tuned else 1 / held[0]
        ratio, held[0] = held[0], 0.0
        return 1.0 if not is_tuned else 1 / ratio

    policy = replace(policy, warmup=0)
    return estimate_speedup(
        run_pairs(lambda: side(is_tuned=False), lambda: side(is_tuned=True), policy)
    )


def fixed(ratios: Sequence[float], policy: MeasurePolicy) -> SpeedupEstimate:
    """Measure them as until 0.2."""
    first = policy.pairs_min + policy.pairs_min % 2
    for pairs in range(first, policy.pairs_max + 1, 2):
        ordered = sorted(ratios[:pairs])
        rank, coverage = median_interval(pairs, policy.confidence)
        found = SpeedupEstimate(
            median=median(ordered),
            low=ordered[rank - 1],
            high=ordered[-rank],
            pairs=pairs,
            coverage=coverage,
        )
        if found.half_width < policy.target_half_width:
            break
    return found


def row(title: str, logs: Logs, truths: Sequence[float], policy: MeasurePolicy) -> str:
    """Return what both rules make of the same pairs, as a row of Markdown."""
    cells = [title]
    for judge in (fixed, looks):
        found = [judge(np.exp(one).tolist(), policy) for one in logs]
        planted = [judge(np.exp(one + _PLANTED).tolist(), policy) for one in logs]
        ends = [(math.log(one.low), math.log(one.high)) for one in found]
        covers = fmean(low <= t <= high for (low, high), t in zip(ends, truths, strict=True))
        above = fmean(low > t for (low, _), t in zip(ends, truths, strict=True))
        cells += [
            f"{covers:.1%}",
            f"{above:.1%}",
            f"{fmean(one.pairs for one in found):.1f}",
            f"{fmean(one.half_width for one in found):.2%}",
            f"{fmean(accepts(one, ACCEPT_SPEEDUP) for one in planted):.1%}",
            f"{fmean(one.pairs for one in planted):.1f}",
        ]
    return f"| {' | '.join(cells)} |"


def head() -> str:
    """Return the head of the table."""
    names = [
        f"{rule}: {name}"
        for rule in ("fixed", "looks")
        for name in ("covers", "above", "pairs", "half", "found", "after")
    ]
    return f"| policy, noise | {' | '.join(names)} |\n|{'---|' * (len(names) + 1)}"


def simulated(runs: int) -> Iterator[str]:
    """Yield rows of simulated noise."""
    rng = np.random.default_rng(0)
    for name, policy in _POLICIES.items():
        wanted = policy.target_half_width
        for factor in (0.5, 1.0, 3.0):
            for correlation, has_spikes in ((0.0, False), (0.0, True), (0.3, False), (0.6, False)):
                logs = factor * wanted * _noise(rng, runs, policy.pairs_max, correlation)
                if has_spikes:
                    sizes = rng.normal(0.0, 0.1, logs.shape)
                    logs = logs + sizes * (rng.random(logs.shape) < 0.05)
                noise = f"{factor * wanted:.2%}, correlation {correlation:g}"
                title = f"{name}; {noise}{', spikes' if has_spikes else ''}"
                yield row(title, logs, [0.0] * runs, policy)


def _noise(rng: np.random.Generator, runs: int, pairs: int, correlation: float) -> Logs:
    noise = rng.normal(size=(pairs, runs))
    for before, now in pairwise(noise):
        now *= math.sqrt(1 - correlation**2)
        now += correlation * before
    return noise.T


def real(pairs: int, runs: int) -> Iterator[str]:
    """Yield rows of real pairs of a model and itself, by CPU time and by wall time."""
    rng = np.random.default_rng(0)
    series: dict[str, list[Logs]] = {"CPU time": [], "wall time": []}
    for length in _CHAINS:
        for threads in (1, 2):
            for clock, logs in zip(series, _series(length, threads, pairs), strict=True):
                series[clock].append(logs)
    for name, policy in _POLICIES.items():
        for clock, every in series.items():
            picked = [every[place] for place in rng.integers(len(every), size=runs)]
            begins = [2 * rng.integers((pairs - policy.pairs_max) // 2) for _ in picked]
            logs = np.array(
                [one[at : at + policy.pairs_max] for one, at in zip(picked, begins, strict=True)]
            )
            truths = [float(np.median(one)) for one in picked]
            yield row(f"{name}; real, {clock}", logs, truths, policy)


def _series(length: int, threads: int, pairs: int) -> tuple[Logs, Logs]:
    """Take pairs of a chain of convolutions and itself; logarithms by CPU time, by wall time."""
    baseline, tuned = (Cpu().timer(chain_run(length, 0, threads), repeats=1) for _ in range(2))
    taken: list[tuple[CallTime, CallTime]] = []

    def kept(sample: Callable[[], float]) -> CallTime:
        found = sample()
        assert isinstance(found, CallTime)
        return found

    for pair in range(pairs + 4):
        if pair % 2 == 0:
            first = kept(baseline)
            taken.append((first, kept(tuned)))
        else:
            first = kept(tuned)
            taken.append((kept(baseline), first))
    by_cpu = np.array([[one.cpu_us for one in pair] for pair in taken[4:]])
    by_wall = np.array([[float(one) for one in pair] for pair in taken[4:]])
    return np.log(by_cpu[:, 0] / by_cpu[:, 1]), np.log(by_wall[:, 0] / by_wall[:, 1])


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=1000, help="measurements in each row")
    parser.add_argument("--real", type=int, default=0, metavar="PAIRS", help="in each series")
    arguments = parser.parse_args()
    print(head())
    rows = real(arguments.real, arguments.runs) if arguments.real else simulated(arguments.runs)
    for one in rows:
        print(one, flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
