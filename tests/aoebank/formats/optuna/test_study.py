"""Studies of Optuna: read as Optuna reads them, made into T4 files, never written."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from support import golden_harness

import aoebank
from aoebank import BankFormatError
from aoebank.formats.optuna.study import Study, file_name, is_study, read_studies
from aoebank.formats.t4.format import T4Format

INT = '{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 1, "high": 9}}'
ANY = '{"name": "CategoricalDistribution", "attributes": {"choices": ["a", null, true]}}'
END = "2026-11-29T10:00:00+00:00"


def lines(*operations: dict[str, object]) -> bytes:
    """Return a journal."""
    texts = (json.dumps({"worker_id": "w"} | one, separators=(",", ":")) for one in operations)
    return "".join(f"{_code_first(text)}\n" for text in texts).encode()


def _code_first(text: str) -> str:
    members = json.loads(text)
    return json.dumps({"op_code": members.pop("op_code"), **members}, separators=(",", ":"))


def trial(
    number: int, state: int = 1, values: list[float] | None = None
) -> list[dict[str, object]]:
    """Return the operations of a trial."""
    values = [0.25] if values is None and state == 1 else values
    return [
        {"op_code": 4, "study_id": 0, "datetime_start": END},
        *(
            {
                "op_code": 5,
                "trial_id": number,
                "param_name": name,
                "param_value_internal": value,
                "distribution": domain,
            }
            for name, value, domain in (("x", float(number + 1), INT), ("mode", 1, ANY))
        ),
        {"op_code": 6, "trial_id": number, "state": state, "values": values}
        | ({"datetime_complete": END} if state in (1, 2, 3) else {}),
    ]


STUDY = [
    {"op_code": 0, "study_name": "gemm 16x16 (run)", "directions": [1]},
    {"op_code": 2, "study_id": 0, "user_attr": {"device": "A100"}},
    {"op_code": 3, "study_id": 0, "system_attr": {"study:metric_names": ["latency_ms"]}},
]


def test_journal_becomes_a_t4_file(tmp_path: Path) -> None:
    source = tmp_path / "study.log"
    late = {"op_code": 8, "trial_id": 0, "user_attr": {"late": 1}}  # behind the end of its trial
    operations = [*STUDY, *trial(0), late, *trial(1, 3), *trial(2, 2), *trial(3, 1, [2.0])]
    data = lines(*operations) + b'{"op_code":4,"worker_id'  # a line that is being written
    source.write_bytes(data)
    done = aoebank.convert(source, output=tmp_path / "out")
    assert (done.files, done.records, done.left_out) == (1, 3, {"pruned": 1})
    (file,) = (tmp_path / "out").iterdir()
    assert file.name == "gemm_16x16_run-t4-results.json"
    records = [*T4Format().parse(file.read_bytes(), file).iter_records()]
    assert [record.workload for record in records] == [
        {"x": 1, "mode": None},
        {"x": 2, "mode": None},
        {"x": 4, "mode": None},
    ]
    assert [record.cost_us for record in records] == [250, None, 2000]
    assert {(record.soc_version, record.op_type) for record in records} == {
        ("A100", "gemm 16x16 (run)")
    }
    assert [record.strategy["invalidity"] for record in records] == [  # type: ignore[index]
        *("correct", "runtime", "correct")
    ]
    assert "user_attrs" not in records[0].extra
    assert source.read_bytes() == data


@pytest.mark.parametrize(
    ("operation", "problem"),
    [
        ({"op_code": 11}, "no operation 11 is known"),
        ({"op_code": 4}, "study_id"),
        ({"op_code": 6, "trial_id": 7, "state": 1}, "out of range"),
        ({"op_code": 4, "study_id": 0, "user_attrs": 3}, "not iterable"),
        (
            {
                "op_code": 4,
                "study_id": 0,
                "params": {"x": float("inf")},
                "distributions": {"x": INT},
            },
            "infinity",
        ),
    ],
)
def test_line_that_is_none_is_told_with_its_number(
    tmp_path: Path, operation: dict[str, object], problem: str
) -> None:
    source = tmp_path / "study.journal"
    source.write_bytes(lines(*STUDY, operation))
    with pytest.raises(BankFormatError, match=problem) as told:
        read_studies(source)
    assert told.value.line == 4


@pytest.mark.parametrize("command", ["show", "ls", "validate", "diff"])
def test_other_commands_name_the_way_out(tmp_path: Path, command: str) -> None:
    source = tmp_path / "study.log"
    source.write_bytes(lines(*STUDY, *trial(0)))
    call = [command, str(source), *([str(source)] if command == "diff" else [])]
    outcome = golden_harness.run("aoebank", call)
    assert outcome.exit_code != 0
    assert "is a study of Optuna, which is only read" in outcome.stdout + outcome.stderr
    assert "aoebank convert" in outcome.stdout + outcome.stderr


def test_study_without_a_result_and_a_folder_that_is_there_are_refused(tmp_path: Path) -> None:
    source = tmp_path / "study.log"
    source.write_bytes(lines(*STUDY, *trial(0, 2)))
    with pytest.raises(BankFormatError, match="no trial has a result"):
        aoebank.convert(source, output=tmp_path / "out")
    with pytest.raises(aoebank.BankPathError, match="is there already"):
        aoebank.convert(source, output=tmp_path)


def test_database_of_another_program_and_views_are_no_study(tmp_path: Path) -> None:
    source = tmp_path / "rows.db"
    with closing(sqlite3.connect(source)) as database:
        database.execute("CREATE TABLE trials (trial_id)")
        database.execute("CREATE VIEW studies AS SELECT 1")
        database.execute("CREATE VIEW trial_params AS SELECT 1")
    assert not is_study(source)
    assert not is_study(tmp_path / "none.db")


def test_names_of_studies_are_names_of_files() -> None:
    assert file_name(Study(name="../a b", directions=[])) == "a_b-t4-results.json"
    assert file_name(Study(name="...", directions=[])) == "study-t4-results.json"


@pytest.mark.parametrize("name", ["study.log", "study.db"])
def test_studies_are_what_optuna_loads(tmp_path: Path, name: str) -> None:
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    source = tmp_path / name
    storage = f"sqlite:///{source}"
    if name == "study.log":
        backend = optuna.storages.journal.JournalFileBackend(str(source))
        storage = optuna.storages.JournalStorage(backend)

    def objective(one: object) -> float:
        block = one.suggest_int("block", 16, 128, step=16)  # type: ignore[attr-defined]
        factor = one.suggest_float("f", 1e-5, 1, log=True)  # type: ignore[attr-defined]
        one.suggest_categorical("mode", ["a", None, True, 3, 2.5])  # type: ignore[attr-defined]
        one.set_user_attr("place", [1, {"a": 2}])  # type: ignore[attr-defined]
        one.report(1.5, 0)  # type: ignore[attr-defined]
        number = one.number  # type: ignore[attr-defined]
        if number == 1:
            raise optuna.TrialPruned
        if number == 2:
            raise ValueError("no such kernel")
        return {3: float("nan"), 4: float("inf")}.get(number, block * factor)

    study = optuna.create_study(study_name="one", storage=storage)
    study.set_user_attr("device_name", "A100")
    study.enqueue_trial({"block": 32})
    study.optimize(objective, n_trials=6, catch=(ValueError,))
    study.ask()
    known = {"x": optuna.distributions.IntDistribution(1, 9)}
    other = optuna.create_study(
        study_name="two", storage=storage, directions=["minimize", "maximize"]
    )
    other.add_trial(optuna.create_trial(params={"x": 3}, distributions=known, values=[1.0, 2.0]))
    optuna.create_study(study_name="gone", storage=storage)
    optuna.delete_study(study_name="gone", storage=storage)
    assert is_study(source)
    found = read_studies(source)
    assert [one.name for one in found] == ["one", "two"]
    for one, loaded in zip(found, (study, other), strict=True):
        assert one.directions == [direction.name.lower() for direction in loaded.directions]
        assert one.user_attrs == loaded.user_attrs
        assert [
            (mine.number, mine.state, mine.params, mine.values, mine.user_attrs)
            for mine in one.trials
        ] == [
            (
                theirs.number,
                theirs.state.name.lower(),
                theirs.params,
                theirs.values or [],
                theirs.user_attrs,
            )
            for theirs in loaded.trials
        ]
        assert [mine.intermediate_values for mine in one.trials] == [
            {str(step): value for step, value in theirs.intermediate_values.items()}
            for theirs in loaded.trials
        ]
    before = source.read_bytes()
    done = aoebank.convert(source, output=tmp_path / "out")
    assert (done.records, done.left_out) == (6, {"pruned": 1, "running": 1})
    assert source.read_bytes() == before
    codes = {finding.code for finding in aoebank.validate([tmp_path / "out"]).findings}
    assert codes == {"AB315"}  # of the study without a device
