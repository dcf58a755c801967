"""How many trials what other models have taught saves: a replay of recorded subgraph tunings.

    python benchmarks/subgraph_experience.py              # what benchmarks/subgraphs.py has left
    python benchmarks/subgraph_experience.py RESULTS...   # directories of aoe --job_type=sgat

For each model the measurements of all others are learned from; then each of its subgraphs is gone
through in the order it was tuned in, and in the order experience gives. What counts is the trials
until the best form, or one within 1 % of it, has been measured. Subgraphs with one trial, or none
that wins, say nothing and are left out. Nothing is measured here.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from aoe.tuning.sgat.experience import Experience

_AS_GOOD = 1.01
_WORK = Path(__file__).resolve().parent.parent / "build" / "peers"
Trials = tuple[tuple[str, float], ...]
"""Strategies in words and their speed-ups, in the order they were measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedModel:
    """What tuning a model has measured.

    Attributes:
        name: Of the model.
        subgraphs: The correct trials of each subgraph.
    """

    name: str
    subgraphs: tuple[Trials, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedTrials:
    """Trials until the best form of all subgraphs of a model that have something to find."""

    name: str
    subgraphs: int
    before: int
    learned: int


def main(words: list[str] | None = None) -> int:
    """Print a row for each model, and the sum."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", nargs="*", type=Path)
    given = parser.parse_args(words).results or sorted(_WORK.glob("*/sgat-*"))
    models = [load_model(folder) for folder in given]
    rows = replay(models)
    print("| model | subgraphs | trials in turn | trials with experience |\n|---|---|---|---|")
    for row in rows:
        print(f"| {row.name} | {row.subgraphs} | {row.before} | {row.learned} |")
    sums = [sum(getattr(row, name) for row in rows) for name in ("subgraphs", "before", "learned")]
    print(f"| all | {' | '.join(map(str, sums))} |")
    return 0


def load_model(folder: Path) -> RecordedModel:
    """Return what a directory of results has recorded."""
    subgraphs = []
    for file in sorted((folder / "subgraph_tuning").glob("*.json")):
        trials = json.loads(file.read_text())["trials"]
        found = [(trial["strategy"], trial["speedup"]) for trial in trials if trial["speedup"]]
        subgraphs.append(tuple(found))
    return RecordedModel(name=folder.resolve().parent.name, subgraphs=tuple(subgraphs))


def replay(models: Sequence[RecordedModel]) -> list[SavedTrials]:
    """Return what each model would have saved, taught by the others."""
    rows = []
    for model in models:
        others = [one for one in models if one is not model]
        known = [trial for one in others for trials in one.subgraphs for trial in trials]
        experience = Experience.of(known)
        worth = [trials for trials in model.subgraphs if _has_something_to_find(trials)]
        rows.append(
            SavedTrials(
                name=model.name,
                subgraphs=len(worth),
                before=sum(_trials_until_best(trials) for trials in worth),
                learned=sum(
                    _trials_until_best(
                        sorted(trials, key=lambda trial: -experience.expected_of(trial[0]))
                    )
                    for trials in worth
                ),
            )
        )
    return rows


def _has_something_to_find(trials: Trials) -> bool:
    return len(trials) > 1 and max(speedup for _, speedup in trials) > _AS_GOOD


def _trials_until_best(trials: Sequence[tuple[str, float]]) -> int:
    best = max(speedup for _, speedup in trials)
    return next(at for at, (_, speedup) in enumerate(trials, 1) if speedup * _AS_GOOD >= best)


if __name__ == "__main__":
    sys.exit(main())
