"""Compare the searches by replay: fraction of the optimum found after some trials.

    python benchmarks/search_replay.py [--spaces 6] [--seeds 4] [--search bayesian random ...]
                                       [--recorded FILE...] [--json]

Without --recorded the spaces are those of `support.contracts.synthetic_space` in `tests`; a
recording is described in `docs/search.md`. A figure is the mean over spaces and seeds; its
standard error is taken over the means of the spaces, or over the seeds if there is one space only.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tests_path  # noqa: F401
from support.contracts.replay import Recording, load_recording, replay
from support.contracts.synthetic_space import synthetic_recording

from aoe.tuner.search.registry import SEARCHES

MARKS = (15, 25, 50)


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """What a search reached: one row of the table."""

    search: str
    fractions: tuple[float, ...]
    errors: tuple[float, ...]
    ms_per_trial: float


def score(
    name: str, recordings: Sequence[Recording], seeds: int, marks: Sequence[int], batch: int
) -> Score:
    """Return the mean fraction of the optimum of a search at each mark, each its own budget."""
    reached: list[list[list[float]]] = []  # mark, space, seed
    started = time.perf_counter()
    for mark in marks:
        reached.append(
            [
                [
                    replay(
                        SEARCHES[name](recording.space, budget=mark, seed=seed),
                        recording,
                        mark,
                        batch,
                    )[-1]
                    for seed in range(seeds)
                ]
                for recording in recordings
            ]
        )
    runs = seeds * len(recordings) * sum(marks)
    return Score(
        search=name,
        fractions=tuple(statistics.fmean(map(statistics.fmean, spaces)) for spaces in reached),
        errors=tuple(_standard_error(spaces) for spaces in reached),
        ms_per_trial=(time.perf_counter() - started) * 1e3 / runs,
    )


def _standard_error(spaces: list[list[float]]) -> float:
    samples = spaces[0] if len(spaces) == 1 else [statistics.fmean(seeds) for seeds in spaces]
    return statistics.stdev(samples) / len(samples) ** 0.5 if len(samples) > 1 else float("nan")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table, or one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--spaces", type=int, default=6, help="synthetic spaces")
    parser.add_argument("--seeds", type=int, default=4, help="runs of a search on each space")
    parser.add_argument("--search", nargs="+", default=list(SEARCHES), choices=list(SEARCHES))
    parser.add_argument("--trials", nargs="+", type=int, default=list(MARKS), help="budgets")
    parser.add_argument("--batch", type=int, default=1, help="configurations asked for at once")
    parser.add_argument("--recorded", nargs="+", type=Path, default=[], help="recordings")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    recordings = [load_recording(path) for path in options.recorded] or [
        synthetic_recording(seed) for seed in range(options.spaces)
    ]
    marks: list[int] = options.trials
    rows = []
    if not options.json:
        sizes = ", ".join(str(recording.space.size) for recording in recordings)
        print(f"{len(recordings)} spaces of {sizes} configurations, {options.seeds} seeds each")
        print("search      " + "".join(f"{f'@{mark}':>14}" for mark in marks) + "  ms/trial")
    for name in options.search:
        row = score(name, recordings, options.seeds, marks, options.batch)
        rows.append(row)
        if not options.json:
            cells = zip(row.fractions, row.errors, strict=True)
            text = "".join(f"  {mean:.3f} ±{error:.3f}" for mean, error in cells)
            print(f"{name:<12}{text}  {row.ms_per_trial:8.1f}", flush=True)
    if options.json:
        scores = [
            {
                "search": row.search,
                "fraction_of_optimum": dict(zip(map(str, marks), row.fractions, strict=True)),
                "standard_error": dict(zip(map(str, marks), row.errors, strict=True)),
                "ms_per_trial": row.ms_per_trial,
            }
            for row in rows
        ]
        json.dump({"schema": "aoe.search_replay/1", "scores": scores}, sys.stdout, indent=2)
        print()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
