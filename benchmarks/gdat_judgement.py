"""How good gradient tuning judges: thousands of searches on simulated machines.

    python benchmarks/gdat_judgement.py [--searches 2000] [--noise-file STEPS.json]

A simulated machine has true speed-ups for its candidates and the noise of a real one: times of
samples of one and the same grouping, one after another (`benchmarks/results/gdat_step_noise.json`),
are replayed from a random place, scaled to a quieter or a busier machine. So slow drift, bursts and
tails are those of the recording. Every candidate has an offset of its own in every search, as
between two starts of one script (1 %). No clock is read: the figures are about the judge alone.

Rows without a gain are A/A: whatever is accepted is a false accept. In the others one candidate has
the gain and seven trail it by 3 to 20 %. `best dropped`: it did not get to the end of the race.
`interval holds`: share of the winners whose 95 % interval
contains their true speed-up, the one a fresh run has on average.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import NormalDist, median

from false_accepts import at_most

from aoe.measurement import Race, SpeedupEstimate
from aoe.tasks.gradients.bench import ACCEPT_STEP_SPEEDUP
from aoe.tasks.gradients.racing import RACE_STEPS, RUN_TO_RUN, race_and_confirm
from aoe.tuner.policies import step_final_policy, step_race_policy

CANDIDATES = 8
GAINS = (0.0, 0.02, 0.03, 0.05, 0.08, 0.12, 0.2)
NOISES = (0.02, 0.05, 0.1)
NOISE_FILE = Path(__file__).resolve().parent / "results" / "gdat_step_noise.json"


class SimulatedMachine:
    """Runs samples whose noise was recorded; see the top of this file.

    Args:
        recorded: Logarithms of sample times of one grouping, in the order they were taken.
        gains: True speed-up of each candidate, minus 1.
        rng: Chooses where the recording starts, and the offsets.
    """

    def __init__(
        self, recorded: Sequence[float], gains: Sequence[float], rng: random.Random
    ) -> None:
        self._recorded = recorded
        self._place = rng.randrange(len(recorded))
        offsets = [0.0, *(rng.gauss(0, RUN_TO_RUN) for _ in gains)]
        true = [0.0, *(math.log1p(gain) for gain in gains)]
        self._speeds = [one + other for one, other in zip(true, offsets, strict=True)]
        self.samples = 0
        self.steps = 0

    def sample_us(self, runner: int, steps: int = RACE_STEPS) -> float:
        """Return the mean of as much of the recording as the steps take."""
        count = steps // RACE_STEPS
        noise = sum(math.exp(self._next()) for _ in range(count)) / count
        self.samples += 1
        self.steps += steps + 1
        return 1e5 * noise / math.exp(self._speeds[runner])

    def is_over(self) -> bool:
        """Have time."""
        return False

    def on_round(self, race: Race) -> None:
        """Be silent."""

    def on_confirm(self, runner: int, pairs: int) -> None:
        """Be silent."""

    def on_confirmed(self, runner: int, estimate: SpeedupEstimate) -> None:
        """Be silent."""

    def _next(self) -> float:
        self._place = (self._place + 1) % len(self._recorded)
        return self._recorded[self._place]


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """One simulated search."""

    chosen: int | None  # Candidate accepted, from 1; None if the default stayed
    has_lost_best: bool  # True if the best candidate was dropped within the noise
    holds: bool | None  # Whether the winner's interval has its true speed-up; None without a winner
    printed: float  # Speed-up printed, 1 if none was
    steps: int  # Training steps it took


def search(recorded: Sequence[float], gains: Sequence[float], rng: random.Random) -> Search:
    """Search as the product does, with its own policies."""
    machine = SimulatedMachine(recorded, gains, rng)
    found = race_and_confirm(
        machine, len(gains), step_race_policy(), step_final_policy(), ACCEPT_STEP_SPEEDUP
    )
    best = gains.index(max(gains)) + 1
    holds, printed = None, 1.0
    if found.winner is not None and found.estimate is not None:
        true = 1 + gains[found.winner - 1]
        holds, printed = found.estimate.low <= true <= found.estimate.high, found.estimate.median
    return Search(
        chosen=found.winner,
        has_lost_best=best not in found.race.left,
        holds=holds,
        printed=printed,
        steps=machine.steps,
    )


def scaled(recorded: Sequence[float], noise: float) -> list[float]:
    """Return logarithms whose robust standard deviation from one to the next is as asked."""
    steps = [abs(b - a) for a, b in pairwise(recorded)]
    now = median(steps) / (math.sqrt(2) * NormalDist().inv_cdf(0.75))
    middle = median(recorded)
    return [(value - middle) * noise / now for value in recorded]


def gains_of(gain: float, rng: random.Random) -> list[float]:
    """Return the gains of the candidates: one has the gain, others trail; none without a gain."""
    if gain == 0:
        return [0.0] * CANDIDATES
    trailing = [gain - rng.uniform(0.03, 0.2) for _ in range(CANDIDATES - 1)]
    found = [gain, *trailing]
    rng.shuffle(found)
    return found


def row(recorded: Sequence[float], noise: float, gain: float, searches: int) -> str:
    """Return a line of the table, of so many searches."""
    series = scaled(recorded, noise)
    rng = random.Random(1)
    done, right = [], 0
    for _ in range(searches):
        gains = gains_of(gain, rng)
        done.append(search(series, gains, rng))
        chosen = done[-1].chosen
        right += chosen is not None and gains[chosen - 1] > 0
    accepted = [one for one in done if one.chosen is not None]
    false = len(accepted) - right
    holding = sum(bool(one.holds) for one in accepted) / len(accepted) if accepted else math.nan
    printed = median(one.printed for one in accepted) if accepted else math.nan
    lost = sum(one.has_lost_best for one in done) / searches
    wrong = f"{false / searches:.1%} (at most {at_most(false, searches):.1%})"
    shares = f"- | {wrong} | - | -"
    if gain:
        shares = f"{right / searches:.1%} | {wrong} | {lost:.1%} | {holding:.1%}"
    steps = median(one.steps for one in done)
    return f"| {noise:.0%} | {gain:.0%} | {shares} | {printed:.3f}x | {steps:.0f} |"


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--searches", type=int, default=2000, help="of each row")
    parser.add_argument("--noise-file", type=Path, default=NOISE_FILE)
    parser.add_argument("--noises", nargs="+", type=float, default=NOISES)
    parser.add_argument("--gains", nargs="+", type=float, default=GAINS)
    arguments = parser.parse_args()
    recorded = [math.log(us) for us in json.loads(arguments.noise_file.read_text())["samples_us"]]
    print(
        "| noise of a sample | gain | found | false accepts | best dropped | "
        "interval holds | printed | steps |\n|---|---|---|---|---|---|---|---|"
    )
    for noise in arguments.noises:
        for gain in arguments.gains:
            print(row(recorded, noise, gain, arguments.searches), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
