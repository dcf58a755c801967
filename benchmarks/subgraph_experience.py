"""How many trials what other models have taught saves: a replay of recorded subgraph tunings.

    python benchmarks/subgraph_experience.py              # what benchmarks/subgraphs.py has left
    python benchmarks/subgraph_experience.py RESULTS...   # directories of aoe --job_type=sgat
    python benchmarks/subgraph_experience.py --write-docs # the table in docs/benchmarks.md, too

For each model the measurements of all others are learned from; then each of its subgraphs is gone
through in the order it was tuned in, and in the order experience gives. What counts is the trials
until the best form, or one within 1 % of it, has been measured. Subgraphs with one trial, or none
that wins, say nothing and are left out. Nothing is measured here.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from comparison.results import ResultsError
from comparison.tables import PAGE, table_row, write_between

from aoe.tasks.rewrites.experience import Experience

BEGIN, END = "<!-- experience: begin -->", "<!-- experience: end -->"
_AS_GOOD = 1.01
_ROOT = Path(__file__).resolve().parent.parent
_WORK = _ROOT / "build" / "peers"
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


def main(words: list[str] | None = None, work: Path = _WORK) -> int:
    """Print a row for each model, and the sum; 3 if there is nothing to replay, or no place."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", nargs="*", type=Path)
    parser.add_argument("--write-docs", action="store_true", help="docs/benchmarks.md, too")
    parser.add_argument("--docs", type=Path, default=_ROOT / "docs", help="folder of that page")
    arguments = parser.parse_args(words)
    given = arguments.results or sorted(work.glob("*/sgat-*"))
    try:
        if not given:
            raise ResultsError(f"{work}: no tunings (hint: benchmarks/subgraphs.py leaves some)")
        table = "\n".join(_table(replay([load_model(folder) for folder in given]))) + "\n"
        print(table, end="")
        if arguments.write_docs:
            page = arguments.docs / PAGE
            write_between(page, BEGIN, END, table)
    except ResultsError as error:
        print(f"subgraph_experience: {error}", file=sys.stderr)
        return 3
    return 0


def _table(rows: Sequence[SavedTrials]) -> Iterator[str]:
    yield table_row(["model", "subgraphs", "trials in turn", "trials with experience"])
    yield table_row(["---"] * 4)
    for row in rows:
        yield table_row([row.name, *map(str, (row.subgraphs, row.before, row.learned))])
    sums = [sum(getattr(row, name) for row in rows) for name in ("subgraphs", "before", "learned")]
    yield table_row(["all", *map(str, sums)])


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
