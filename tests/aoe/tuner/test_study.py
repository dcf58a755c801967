"""`--study`: the searches of a run in a file of Optuna, opened by Optuna again."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import aoe_exit_code
from support.engine.models import save_model
from support.engine.scripted_runs import ScriptedRuns, blocks_net
from support.engine.subgraph_runs import Run

from aoe.measurement import Outcome
from aoe.schedule import Schedule
from aoe.tuner.mode import JobType

optuna = pytest.importorskip("optuna")
from optuna.storages import JournalStorage  # noqa: E402
from optuna.storages.journal import JournalFileBackend  # noqa: E402
from optuna.trial import TrialState  # noqa: E402


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a network of two operators that differ, and a head."""
    (tmp_path / "bank").mkdir()
    save_model(blocks_net([3, 5], extents=(64, 64)), tmp_path / "net.onnx")
    monkeypatch.setenv("TUNE_BANK_PATH", str(tmp_path / "bank"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _journal(file: Path) -> list[optuna.Study]:
    storage = JournalStorage(JournalFileBackend(str(file)))
    return [
        optuna.load_study(study_name=one.study_name, storage=storage)
        for one in optuna.get_all_study_summaries(storage)
    ]


class _EveryThirdFails:
    """A script of candidates: each third does not compute the right result."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, schedule: Schedule) -> float | Outcome:
        self.count += 1
        return Outcome.CORRECTNESS if self.count % 3 == 0 else 1 + self.count / 10


def test_journal_has_every_trial_of_every_search(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = ScriptedRuns(candidate=_EveryThirdFails())  # type: ignore[arg-type]
    words = ["--model=net.onnx", "--output=out", "--trials=6", "--search=random"]
    assert aoe_exit_code([*words, "--study=studies/net.log"], runs.engine) == 0
    told = capsys.readouterr().err
    assert f"optuna-dashboard {place / 'studies/net.log'} shows the searches" in told
    assert "study is created" not in told and "warning: --study" not in told

    summary = json.loads((place / "out/summary.json").read_text())
    details = [
        one for file in (place / "out/op_tuning").iterdir() for one in json.loads(file.read_text())
    ]
    studies = {one.user_attrs["workload_key"]: one for one in _journal(place / "studies/net.log")}
    assert len(details) == len(studies) == 3
    for row in summary["operators"]:
        study = studies[row["key"]]
        name = f"{row['op_name']} {row['key'][:8]} ({summary['tuning_name']})"
        assert study.study_name == name and study.metric_names == ["speedup"]
        assert study.user_attrs["operator"] == row["op_name"]
        assert study.user_attrs["share"] == pytest.approx(row["share_percent"] / 100, abs=1e-3)
        assert study.user_attrs["soc_version"] == summary["target"]["soc_version"]
        assert row["outcome"] in study.user_attrs["result"]
    for detail in details:
        study = studies[detail["key"]]
        assert len(study.trials) == len(detail["trials"]) > 1
        for found, tried in zip(study.trials, detail["trials"], strict=True):
            assert found.params.items() <= tried["configuration"].items() and found.params
            if tried["outcome"] == "correct":
                assert found.state is TrialState.COMPLETE
                assert found.value == pytest.approx(tried["speedup"], abs=1e-4)
                assert [*found.intermediate_values.values()][-1] == found.value
                assert found.user_attrs["us"] > 0
            else:
                assert found.state is TrialState.FAIL
                assert found.user_attrs["reason"].startswith("correctness: ")
        best = max(one["speedup"] or 0 for one in detail["trials"])
        assert study.best_value == pytest.approx(best, abs=1e-4)
    assert {t.state for s in studies.values() for t in s.trials} > {TrialState.FAIL}


def test_database_takes_two_runs(place: Path) -> None:
    for bank in ("bank", "other"):
        ScriptedRuns().tune("net.onnx", bank=bank, output=bank, trials=2, study="s.db")
    storage = f"sqlite:///{place / 's.db'}"
    found = optuna.get_all_study_summaries(storage)
    assert len(found) == 6 and len({one.study_name for one in found}) == 6
    assert all(one.n_trials >= 1 and one.best_trial is not None for one in found)
    assert all(one.user_attrs["model"] == "net" for one in found)


def test_search_in_slices_is_one_study(place: Path) -> None:
    """A short time limit screens all operators first, and goes on with some."""
    ScriptedRuns().tune(
        "net.onnx", bank="bank", output="out", trials=4, tuning_time_limit=9, study="s.journal"
    )
    studies = _journal(place / "s.journal")
    assert len(studies) == 3
    for study in studies:
        assert len(study.trials) == len({(*trial.params.items(),) for trial in study.trials})


def test_subgraphs_and_operators_of_a_run_are_studied_and_watched(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run(tmp_path)
    jobs = (JobType.SGAT, JobType.OPAT)
    run.candidate = lambda schedule: 1.3
    tuned = run.tune(job_types=jobs, study=str(tmp_path / "s.log"), trials=3)
    studies = _journal(tmp_path / "s.log")
    of_rewrites = [one for one in studies if "strategy" in one.trials[0].params]
    searched = [one for one in tuned.subgraphs if one.trials]
    assert {one.user_attrs["workload_key"] for one in of_rewrites} == {
        one.subgraph.key for one in searched
    }
    assert len(studies) > len(of_rewrites) > 0
    assert aoe_exit_code(["watch", str(tmp_path / "out"), "--json"]) == 0
    (shown,) = json.loads(capsys.readouterr().out)["runs"]
    assert [(mode["mode"], mode["state"]) for mode in shown["modes"]] == [
        (job, "successful") for job in jobs
    ]
    assert all(task["state"] == "done" for mode in shown["modes"] for task in mode["tasks"])
    first, second = (sum(one["done"] for one in mode["tasks"]) for mode in shown["modes"])
    assert first == sum(len(one.trials) for one in searched) and second > 0


@pytest.mark.parametrize("text", ["a log of something else\n", '{"event": "start"}\n', "[]\nx\n"])
def test_file_of_something_else_is_left_alone_and_told_once(
    place: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "other.log").write_text(text)
    words = ["--model=net.onnx", "--output=out", "--trials=1", "--search=random"]
    assert aoe_exit_code([*words, "--study=other.log"], ScriptedRuns().engine) == 0
    told = capsys.readouterr().err
    assert told.count("warning: --study: nothing more is written to") == 1
    assert (place / "other.log").read_text() == text


def test_study_that_breaks_in_the_run_ends_no_run(place: Path) -> None:
    file, said = place / "s.log", list[str]()

    def candidate(schedule: Schedule) -> float:
        if file.is_file():
            file.unlink()
            file.mkdir()
        return 1.5

    def on_event(event: object) -> None:
        said.append(str(getattr(event, "text", "")))

    tuned = ScriptedRuns(candidate=candidate).tune(
        "net.onnx", bank="bank", output="out", trials=2, study="s.log", progress=on_event
    )
    assert tuned.om_file is not None and tuned.om_file.exists()
    assert sum(text.startswith("--study: nothing more is written") for text in said) == 1


@pytest.mark.parametrize("name", ["net.onnx", "study", "mysql://host/db", "sqlite:///"])
def test_place_that_is_none_is_refused(
    place: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert aoe_exit_code(["--model=net.onnx", f"--study={name}"]) == 2
    assert "--study: no file for studies of Optuna" in capsys.readouterr().err
    assert not (place / "study").exists()


def test_without_optuna_the_way_out_is_named(place: Path) -> None:
    code = (
        "import sys; sys.modules['optuna'] = None\n"
        "from aoe.cli.app import main; main(['--model=net.onnx', '--study=s.log'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert "pip install 'aoebank[engine]'" in done.stderr
