"""One command for every experiment: its options, its steps, its tables, its place in the pages.

    python benchmarks/NAME.py [CASE ...]       # measure what is named, else the usual cases
    python benchmarks/NAME.py --smoke          # does it work: the smallest case, results in build/
    python benchmarks/NAME.py --write-docs     # tables from the results, nothing is measured
    python benchmarks/NAME.py --list           # the cases

What is done is kept in `--results`: the same command goes on where it was ended. A case whose `aoe`
fails is told at the end, and leaves the others their turn.
"""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from comparison.files import write_whole
from comparison.steps import Steps, measure_each
from comparison.tables import place_of, write_between

Page = Callable[[Mapping[str, Any], str], str]
"""Figures as Markdown, from a document and the name of its file."""
_HERE = Path(__file__).resolve().parent.parent
_DOCS = _HERE.parent / "docs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """An option of one experiment: its default value says its type."""

    default: Any
    help: str = ""
    type: Callable[[str], Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """What one script measures and how that is told."""

    name: str  # Of the script, of its results and of its place in the page
    about: str  # First lines of its help
    # Measures a case, step by step; what it returns counts for nothing.
    measure: Callable[[str, Steps, Namespace], object]
    # Names that are known; None where cases are files or pairs of names.
    cases: Collection[str] | None
    usual: Sequence[str] = ()  # Cases that are measured where none is named
    # Its own, by their names on the command line.
    options: Mapping[str, Option] = field(default_factory=dict)
    # The options its figures depend on: results of others are dropped.
    settings: Callable[[Namespace], Mapping[str, Any]] = lambda given: {}
    short: Page  # Table of the page
    whole: Page | None = None  # Page beside the results; None where the table has everything
    page: str = "benchmarks.md"  # Of the documentation, with the place of the table
    # Cases of `--smoke`, and the options it changes.
    smoke: tuple[Sequence[str], Mapping[str, Any]] = ((), {})
    # False for figures with which the exit code is 1.
    is_passed: Callable[[Mapping[str, Any]], bool] = lambda document: True

    @property
    def results(self) -> Path:
        """The file of results that comes with the project."""
        return _HERE / "results" / f"{self.name}.json"


def run_experiment(
    experiment: Experiment, words: Sequence[str] | None = None, *, docs: Path = _DOCS
) -> int:
    """Measure, print and write what the command line asks for; return the exit code."""
    given = _arguments(experiment, words)
    if given.list:
        sys.stdout.write("".join(f"{name}\n" for name in experiment.cases or experiment.usual))
        return 0
    if not given.cases and not given.results.exists():
        sys.stderr.write(f"{given.results}: no results, and no case to measure\n")
        return 2
    steps = Steps(given.results, experiment.settings(given))
    code = measure_each(given.cases, lambda name: experiment.measure(name, steps, given))
    # without a case the figures are those of the file, measured elsewhere or not
    document = steps.document if given.cases else json.loads(given.results.read_text())
    if not document["steps"]:  # nothing could be measured
        return code
    name = given.results.name
    short = experiment.short(document, name)
    whole = experiment.whole(document, name) if experiment.whole is not None else short
    sys.stdout.write(whole)
    if given.write_docs:
        _write(experiment, given.results, docs / experiment.page, short, whole)
    return code or int(not experiment.is_passed(document))


def _write(experiment: Experiment, results: Path, page: Path, short: str, whole: str) -> None:
    """Put the short table into its place, where the page has one, the whole one beside results."""
    begin, end = place_of(results)
    if begin in page.read_text():
        write_between(page, begin, end, short)
    if experiment.whole is not None:
        write_whole(results.with_suffix(".md"), whole)


def _arguments(experiment: Experiment, words: Sequence[str] | None) -> Namespace:
    parser = ArgumentParser(
        prog=f"{experiment.name}.py",
        description=experiment.about,
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.add_argument("cases", nargs="*", metavar="CASE", help="what is measured; see --list")
    for name, option in experiment.options.items():
        if option.default is False:
            parser.add_argument(f"--{name}", action="store_true", help=option.help)
            continue
        parser.add_argument(
            f"--{name}",
            type=option.type or type(option.default),
            default=option.default,
            nargs="+" if isinstance(option.default, tuple) else None,
            help=option.help,
        )
    work = _HERE.parent / "build" / experiment.name
    parser.add_argument("--work", type=Path, default=work, help="what is made on the way")
    parser.add_argument("--results", type=Path, default=experiment.results)
    parser.add_argument("--smoke", action="store_true", help="the smallest case, results in --work")
    parser.add_argument("--write-docs", action="store_true", help="the tables, from the results")
    parser.add_argument("--list", action="store_true", help="the cases")
    given = parser.parse_args(words)
    if given.smoke:
        cases, changed = experiment.smoke
        given.cases = given.cases or list(cases)
        vars(given).update(changed)
        if given.results == experiment.results:
            given.results = given.work / "smoke.json"
    elif not given.cases and not given.write_docs:
        given.cases = list(experiment.usual)
    known = experiment.cases
    unknown = [name for name in given.cases if known is not None and name not in known]
    if unknown:
        parser.error(f"got {', '.join(unknown)}, expected cases of --list")
    return given
