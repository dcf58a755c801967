"""The runner of experiments on a toy, and the rows of the table."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import experiments
import pytest
from comparison.experiment import Experiment, Option, run_experiment
from comparison.steps import CommandError, Steps
from comparison.tables import place_of

_ROOT = Path(__file__).resolve().parents[2]


def _measure(name: str, steps: Steps, given: Namespace) -> None:
    if name == "broken":
        raise CommandError("aoe ended with exit code 3")
    steps.once(name, lambda: {"seconds": given.length * len(name)})


def _short(document: Mapping[str, Any], file: str) -> str:
    rows = (f"{name} {row['seconds']}\n" for name, row in document["steps"].items())
    return f"{file}\n{''.join(rows)}"


_TOY = Experiment(
    name="toy",
    about="How long names are.",
    measure=_measure,
    cases=("a", "bb", "broken"),
    usual=("a", "bb"),
    options={"length": Option(default=1.0, help="of a letter"), "loud": Option(default=False)},
    settings=lambda given: {"length": given.length},
    short=_short,
    whole=lambda document, file: "whole " + _short(document, file),
    smoke=(("a",), {"length": 0.5}),
    is_passed=lambda document: all(row["seconds"] < 9 for row in document["steps"].values()),
)


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    """Return a folder of pages with a place for the toy's table."""
    (tmp_path / "docs").mkdir()
    begin, end = place_of(Path("toy.json"))
    (tmp_path / "docs" / "benchmarks.md").write_text(f"before\n{begin}\nold\n{end}\nafter\n")
    return tmp_path / "docs"


def _run(docs: Path, *words: str) -> int:
    places = [f"--results={docs.parent / 'toy.json'}", f"--work={docs.parent / 'work'}"]
    return run_experiment(_TOY, [*words, *places], docs=docs)


def test_usual_cases_are_measured_once_and_told(
    docs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(docs) == 0
    assert capsys.readouterr().out == "whole toy.json\na 1.0\nbb 2.0\n"
    assert _run(docs, "a") == 0
    assert "..." not in capsys.readouterr().err
    assert "old" in (docs / "benchmarks.md").read_text()


def test_tables_are_written_from_the_results_and_nothing_is_measured(docs: Path) -> None:
    _run(docs, "bb")
    assert _run(docs, "--write-docs") == 0
    page = (docs / "benchmarks.md").read_text()
    assert "toy.json\nbb 2.0\n" in page and "old" not in page
    assert page.startswith("before\n") and page.endswith("after\n")
    assert (docs.parent / "toy.md").read_text() == "whole toy.json\nbb 2.0\n"


def test_other_settings_drop_what_was_measured(docs: Path) -> None:
    _run(docs)
    assert _run(docs, "a", "--length=4", "--loud") == 0
    assert json.loads((docs.parent / "toy.json").read_text())["steps"] == {"a": {"seconds": 4.0}}


def test_case_that_fails_leaves_the_others_their_turn(
    docs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(docs, "broken", "a") == 1
    told = capsys.readouterr()
    assert "a 1.0" in told.out and "broken was not measured: aoe ended" in told.err


def test_figures_that_miss_their_bound_end_with_one(docs: Path) -> None:
    assert _run(docs, "a", "--length=20") == 1


def test_smoke_measures_the_smallest_case_into_the_work_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_experiment(_TOY, ["--smoke", f"--work={tmp_path}"]) == 0
    assert capsys.readouterr().out == "whole smoke.json\na 0.5\n"
    assert (tmp_path / "smoke.json").exists() and not _TOY.results.exists()


def test_tables_of_nothing_are_refused(docs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(docs, "--write-docs") == 2
    assert "toy.json: no results" in capsys.readouterr().err


def test_unknown_case_is_refused(docs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        _run(docs, "c")
    assert "got c, expected cases of --list" in capsys.readouterr().err


@pytest.mark.parametrize("name", experiments.NAMES)
def test_row_of_the_table_has_its_cases_and_places(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if name in ("incremental", "shape_ranges", "training", "training_losses"):
        pytest.importorskip("torch")
    row = experiments.experiment(name)
    assert row.name == name and experiments.main([name, "--list"]) == 0
    smoke, changed = row.smoke
    assert row.cases is None or {*row.usual, *smoke} <= {*row.cases}
    assert {*changed} <= {*row.options}
    page = (_ROOT / "docs" / row.page).read_text()
    if row.results.exists():  # what is kept has its tables in the pages
        document = json.loads(row.results.read_text())
        assert place_of(row.results)[0] in page
        rows = _table_rows(row.short(document, row.results.name))
        if name == "workers_scaling":  # the page has the times of models in a sentence
            rows = rows[-5:]
        assert len(rows) > 2 and not [one for one in rows if one not in page]
        if row.whole is not None:
            kept = row.results.with_suffix(".md").read_text()
            whole = _table_rows(row.whole(document, row.results.name))
            assert not [one for one in whole if one not in kept]


def _table_rows(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("|")]
