"""`summary.json` of a job list: one for the whole run, whatever its last mode was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.engine.fakes import ScriptedRunner
from support.engine.subgraph_runs import Run

from aoe.results.files import RepoOutcome
from aoe.tuner.mode import JobType

_BOTH = (JobType.SGAT, JobType.OPAT)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def _summary(run: Run) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run.place / "out/summary.json").read_text())
    return found


def test_both_modes_are_in_one_summary(run: Run) -> None:
    subgraphs = run.tune(job_types=_BOTH, trials=2)
    found = _summary(run)
    assert found["schema"] == "aoe.summary/1"
    assert {row["graph_id"] for row in found["subgraphs"]} == {
        tuned.subgraph.graph_id for tuned in subgraphs.subgraphs
    }
    assert found["total_ops"] == len(found["subgraphs"]) + len(found["operators"])
    undecided = [tuned.is_undecided for tuned in subgraphs.subgraphs]
    assert (found["undecided_ops"], found["undecided_subgraphs"]) == (0, sum(undecided))
    assert found["subgraphs_without_options"] == subgraphs.without_options
    rows = (*found["subgraphs"], *found["operators"])
    assert found["tuned_ops"] == sum(row["in_model"] for row in rows) >= len(subgraphs.used_ids)
    assert {row["op"] for row in found["top_improved_ops"]} >= {
        row["places"][0] for row in found["subgraphs"] if row["in_model"]
    }
    modes = {row["mode"]: row for row in found["modes"]}
    assert [*modes] == ["sgat", "opat"]
    for outcome in RepoOutcome:
        each = [row["repo"][outcome.value] for row in modes.values()]
        assert found["repo"][outcome.value] == sum(each)
    assert found["seconds"] == pytest.approx(sum(row["seconds"] for row in modes.values()), abs=0.2)
    for name in ("baseline_ms", "tuned_ms", "speedup", "unchanged"):
        assert found[name] == modes["opat"][name]  # the model that is there at the end
    assert all((run.place / "out" / row["result_file"]).exists() for row in modes.values())
    for row in modes.values():
        assert sum(row["phase_seconds"].values()) == pytest.approx(row["seconds"], abs=0.2)


def test_what_both_modes_reused_is_added(run: Run) -> None:
    run.tune(job_types=_BOTH, trials=2)
    (run.place / "out").rename(run.place / "base")
    run.tune(job_types=_BOTH, trials=2, base_result=run.place / "base")
    found = _summary(run)
    reuse = found["reuse"]
    assert reuse["base"] == str(run.place / "base")
    assert sum(reuse["counts"].values()) == len(reuse["parts"]) >= found["total_ops"]
    assert "subgraph" in {part["op_type"] for part in reuse["parts"]}


def test_bank_file_the_first_mode_has_set_aside_is_told(run: Run) -> None:
    file = run.tune(job_types=_BOTH, trials=2).bank_file
    file.write_bytes(file.read_bytes()[:-30])
    (damaged,) = run.tune(job_types=_BOTH, trials=2).damaged
    found = _summary(run)
    assert [row["damaged_bank_files"] for row in found["modes"]] == [[str(damaged)], []]
    assert found["damaged_bank_files"] == [str(damaged)]


def test_one_mode_has_one_row(run: Run) -> None:
    run.tune()
    found = _summary(run)
    assert found["schema"] == "aoe.sgat_summary/1" and "operators" not in found
    assert [row["mode"] for row in found["modes"]] == ["sgat"]
    assert found["total_ops"] == len(found["subgraphs"])


def test_run_that_ends_between_its_modes_has_the_summary_of_what_is_done(
    run: Run,
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    run.runs.parts["profile_model"] = stop
    with pytest.raises(KeyboardInterrupt):
        run.tune(job_types=_BOTH)
    assert [row["mode"] for row in _summary(run)["modes"]] == ["sgat"]
    assert isinstance(run.runners[-1], ScriptedRunner)
