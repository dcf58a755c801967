"""The replay of subgraph tunings: what is counted, and that no model teaches itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import subgraph_experience
from subgraph_experience import RecordedModel, replay

_GOOD_LAST = (("a@1, b@1", 0.9), ("a@1", 0.8), ("b@1", 1.2))


def test_what_others_have_measured_saves_trials() -> None:
    models = [RecordedModel(name=name, subgraphs=(_GOOD_LAST,) * 3) for name in ("one", "two")]
    for row in replay(models):
        assert (row.subgraphs, row.before, row.learned) == (3, 9, 3)


def test_model_alone_is_taught_by_nobody() -> None:
    (row,) = replay([RecordedModel(name="one", subgraphs=(_GOOD_LAST,))])
    assert (row.before, row.learned) == (3, 3)


def test_subgraphs_with_nothing_to_find_do_not_count() -> None:
    dull = ((("a@1", 1.3),), (("a@1", 0.9), ("b@1", 1.0)), ())
    (row,) = replay([RecordedModel(name="one", subgraphs=dull)])
    assert (row.subgraphs, row.before, row.learned) == (0, 0, 0)


def test_results_of_runs_are_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = []
    for name in ("one", "two"):
        folder = tmp_path / name / "sgat-2"
        (folder / "subgraph_tuning").mkdir(parents=True)
        trials = [{"strategy": text, "speedup": speed} for text, speed in _GOOD_LAST]
        trials.insert(0, {"strategy": "c@1", "speedup": None})
        (folder / "subgraph_tuning" / "1.json").write_text(json.dumps({"trials": trials}))
        folders.append(str(folder))
    assert subgraph_experience.main(folders) == 0
    text = capsys.readouterr().out
    assert "| one | 1 | 3 | 1 |" in text and "| all | 2 | 6 | 2 |" in text


def test_table_is_written_into_the_page(tmp_path: Path) -> None:
    (tmp_path / "one" / "sgat-2").mkdir(parents=True)
    page = tmp_path / "benchmarks.md"
    page.write_text(f"a\n{subgraph_experience.BEGIN}\n{subgraph_experience.END}\nb\n")
    words = [str(tmp_path / "one" / "sgat-2"), "--write-docs", "--docs", str(tmp_path)]
    assert subgraph_experience.main(words) == 0
    text = page.read_text()
    assert "| one | 0 | 0 | 0 |" in text and text.endswith("b\n")


def test_nothing_to_replay_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert subgraph_experience.main([], work=tmp_path) == 3
    assert "no tunings" in capsys.readouterr().err
