"""Studies in a journal file or an SQLite database of Optuna, as results in the T4 format.

No bank format: the lines of a journal count trials by their order, and rows of a database have no
bytes of their own, so that no record could be changed and all others stay. A study is read, and
becomes a file every command takes.

Source: optuna 5.0.0, storages/journal/_storage.py and storages/_rdb/models.py, checked against the
studies it loads. Optuna itself is not needed, and no storage is opened for writing.
"""

from __future__ import annotations

import json
import math
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aoebank.errors import BankFormatError
from aoebank.formats.text import constants

STUDY = "is a study of Optuna, which is only read"
JOURNAL_STATES = ("running", "complete", "pruned", "fail", "waiting")
_OUTCOMES = {"complete": "correct", "fail": "runtime"}
_DIRECTIONS = ("", "minimize", "maximize")
_DATABASE = b"SQLite format 3\0"
_LINE = re.compile(rb'\{"op_code": ?[0-9]+, ?"worker_id"')
_UNITS = re.compile(r"(?:^|_)(ns|us|ms|s)$")
_ODD = (
    *(KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError, RecursionError),
    sqlite3.Error,
)
_MARKED = {"INF_POS": math.inf, "INF_NEG": -math.inf, "NAN": math.nan}


@dataclass(slots=True, kw_only=True)
class Trial:
    """One trial of a study."""

    number: int
    state: str  # A word of `JOURNAL_STATES`
    params: dict[str, Any] = field(default_factory=dict)
    values: list[float] = field(default_factory=list)
    user_attrs: dict[str, Any] = field(default_factory=dict)
    intermediate_values: dict[str, float] = field(default_factory=dict)
    completed: str = ""

    @property
    def has_result(self) -> bool:
        """True if it ended with values, or failed; a pruned trial has neither."""
        return self.state in _OUTCOMES


@dataclass(slots=True, kw_only=True)
class Study:
    """One study of a storage."""

    name: str
    directions: list[str]
    user_attrs: dict[str, Any] = field(default_factory=dict)
    metric_names: list[str] = field(default_factory=list)
    trials: list[Trial] = field(default_factory=list)

    def metric(self, number: int) -> str:
        """Return the name of an objective."""
        if number < len(self.metric_names):
            return self.metric_names[number]
        return "value" if len(self.directions) == 1 else f"value_{number}"


def is_study(path: Path) -> bool:
    """True if a file is a journal, or a database, of Optuna."""
    try:
        if not path.is_file():  # a pipe would make us wait for ever
            return False
        with path.open("rb") as stream:
            head = stream.read(200)
    except OSError:
        return False
    if _LINE.match(head):
        return True
    if not head.startswith(_DATABASE):
        return False
    try:
        with closing(_open(path)) as database:
            return {"studies", "trials", "trial_params"} <= _tables(database)
    except sqlite3.Error:
        return False


def read_studies(path: Path) -> list[Study]:
    """Return the studies of a file, in the order they were made.

    Raises:
        BankFormatError: a line or a table is not as Optuna writes it.
        OSError: it cannot be read.
    """
    with path.open("rb") as stream:
        is_database = stream.read(len(_DATABASE)) == _DATABASE
    try:
        return _read_database(path) if is_database else _read_journal(path)
    except BankFormatError:
        raise
    except _ODD as error:
        raise BankFormatError(
            f"is no study of Optuna: {error}", path=path, expected="a storage of Optuna 3.1 to 5"
        ) from error


def write_results(study: Study) -> bytes:
    """Return the trials with a result in the T4 format; `metadata` says which study it was."""
    device = study.user_attrs.get("device_name", study.user_attrs.get("device"))
    metadata = {
        **({"device_name": device} if isinstance(device, str) else {}),
        "kernel_name": study.name,
        "directions": study.directions,
        "study": study.user_attrs,
    }
    results = [_item(study, trial) for trial in study.trials if trial.has_result]
    document = {"results": results, "schema_version": "1.0.0", "metadata": metadata}
    return f"{constants.dumps(_named(document))}\n".encode()


def file_name(study: Study) -> str:
    """Return the name of the file for the results of a study."""
    plain = re.sub(r"[^A-Za-z0-9._=,-]+", "_", study.name).strip("._-")[:150]
    return f"{plain or 'study'}-t4-results.json"


# ---- writing ----


def _item(study: Study, trial: Trial) -> dict[str, Any]:
    figures = [
        {"name": study.metric(number), "value": value, "unit": _unit(study.metric(number))}
        for number, value in enumerate(trial.values)
    ]
    us = trial.user_attrs.get("us")  # how `aoe tune --study` says a latency
    if isinstance(us, int | float) and not any(one["name"] == "time" for one in figures):
        figures.append({"name": "time", "value": us, "unit": "us"})
    item: dict[str, Any] = {"timestamp": trial.completed} if trial.completed else {}
    item |= {
        "configuration": trial.params,
        "times": {"runtimes": []},
        "invalidity": _OUTCOMES[trial.state],
        "correctness": 1,
        "measurements": figures,
        "objectives": [study.metric(number) for number in range(len(study.directions))],
        "number": trial.number,
    }
    if trial.user_attrs:
        item["user_attrs"] = trial.user_attrs
    if trial.intermediate_values:
        item["intermediate_values"] = trial.intermediate_values
    return item


def _unit(metric: str) -> str:
    found = _UNITS.search(metric)
    return found[1] if found else ""


def _named(value: Any) -> Any:
    """Return a value whose numbers that are no JSON are the names of constants."""
    if isinstance(value, Mapping):
        return {str(name): _named(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [_named(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


# ---- journals ----


class _Journal:
    """State of a storage after so many lines of its journal."""

    def __init__(self) -> None:
        self.studies: dict[int, Study] = {}
        self._trials: list[tuple[int, Trial]] = []  # with the number of their study
        self._created = 0

    def apply(self, line: Mapping[str, Any]) -> None:
        """Take in one line; one about a study or a trial that is not there changes nothing."""
        code = line["op_code"]
        if code == 0:
            self._create_study(line)
        elif code in (1, 2, 3, 4):
            if line["study_id"] in self.studies:
                _OF_STUDIES[code](self, line)
        elif code in (5, 6, 7, 8):
            trial = self._trials[line["trial_id"]][1]
            if trial.state not in ("complete", "pruned", "fail"):  # those count as written
                _OF_TRIALS[code](trial, line)
        elif code not in (9, 10):  # of no use here: attributes of samplers, trials left behind
            raise ValueError(f"no operation {code} is known")

    def _create_study(self, line: Mapping[str, Any]) -> None:
        name = str(line["study_name"])
        if name not in {study.name for study in self.studies.values()}:
            directions = [_DIRECTIONS[int(one)] for one in line["directions"]]
            self.studies[self._created] = Study(name=name, directions=directions)
            self._created += 1

    def delete(self, line: Mapping[str, Any]) -> None:
        """Forget a study."""
        del self.studies[line["study_id"]]

    def set_user_attr(self, line: Mapping[str, Any]) -> None:
        """Note a fact about a study."""
        self.studies[line["study_id"]].user_attrs |= line["user_attr"]

    def set_system_attr(self, line: Mapping[str, Any]) -> None:
        """Note the names of the objectives."""
        names = line["system_attr"].get("study:metric_names")
        if names:
            self.studies[line["study_id"]].metric_names = [*map(str, names)]

    def create_trial(self, line: Mapping[str, Any]) -> None:
        """Begin a trial, or take in one that was measured elsewhere."""
        study = self.studies[line["study_id"]]
        trial = Trial(number=len(study.trials), state=JOURNAL_STATES[line.get("state", 0)])
        domains = line.get("distributions") or {}
        for name, value in (line.get("params") or {}).items():
            trial.params[name] = _external(value, domains[name])
        values = line.get("values")
        if values is None and line.get("value") is not None:
            values = [line["value"]]
        trial.values = list(values or ())
        trial.user_attrs = dict(line.get("user_attrs") or {})
        trial.intermediate_values = dict(line.get("intermediate_values") or {})
        trial.completed = line.get("datetime_complete") or ""
        study.trials.append(trial)
        self._trials.append((line["study_id"], trial))


def _set_param(trial: Trial, line: Mapping[str, Any]) -> None:
    trial.params[line["param_name"]] = _external(line["param_value_internal"], line["distribution"])


def _set_state(trial: Trial, line: Mapping[str, Any]) -> None:
    trial.state = JOURNAL_STATES[line["state"]]
    trial.completed = line.get("datetime_complete") or trial.completed
    if line.get("values") is not None:
        trial.values = list(line["values"])


def _set_intermediate(trial: Trial, line: Mapping[str, Any]) -> None:
    trial.intermediate_values[str(line["step"])] = line["intermediate_value"]


def _set_user_attr(trial: Trial, line: Mapping[str, Any]) -> None:
    trial.user_attrs |= line["user_attr"]


_OF_STUDIES: Mapping[int, Callable[[_Journal, Mapping[str, Any]], None]] = {
    1: _Journal.delete,
    2: _Journal.set_user_attr,
    3: _Journal.set_system_attr,
    4: _Journal.create_trial,
}
_OF_TRIALS: Mapping[int, Callable[[Trial, Mapping[str, Any]], None]] = {
    5: _set_param,
    6: _set_state,
    7: _set_intermediate,
    8: _set_user_attr,
}


def _read_journal(path: Path) -> list[Study]:
    journal = _Journal()
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines[:-1], start=1):  # behind the last end of line: torn
        try:
            journal.apply(json.loads(line))
        except _ODD as error:
            raise BankFormatError(
                f"line is none of Optuna's journal: {error}", path=path, line=number
            ) from error
    return [*journal.studies.values()]


def _external(value: Any, distribution: str) -> Any:
    """Return a parameter as its trial saw it; storages keep numbers."""
    domain = json.loads(distribution)
    if domain["name"] == "CategoricalDistribution":
        return domain["attributes"]["choices"][int(value)]
    return int(value) if domain["name"].startswith("Int") else float(value)


# ---- databases ----


def _open(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
    database.execute("PRAGMA trusted_schema = OFF")
    return database


def _tables(database: sqlite3.Connection) -> set[str]:
    asked = "SELECT name FROM sqlite_schema WHERE type = 'table'"  # a view may compute without end
    return {str(name) for (name,) in database.execute(asked)}


def _read_database(path: Path) -> list[Study]:
    with closing(_open(path)) as database:
        rows = _Rows(database, _tables(database))
        studies = {
            key: Study(name=str(name), directions=[])
            for key, name in rows.of("studies", "study_id, study_name")
        }
        for study, direction in rows.of("study_directions", "study_id, direction", "objective"):
            studies[study].directions.append(direction.lower())
        for study, name, text in rows.of("study_user_attributes", "study_id, key, value_json"):
            studies[study].user_attrs[name] = json.loads(text)
        for study, name, text in rows.of("study_system_attributes", "study_id, key, value_json"):
            if name == "study:metric_names":
                studies[study].metric_names = [*map(str, json.loads(text))]
        for trial, study in _read_trials(rows):
            studies[study].trials.append(trial)
    return [*studies.values()]


def _read_trials(rows: _Rows) -> Iterator[tuple[Trial, int]]:
    trials: dict[int, tuple[Trial, int]] = {}
    for key, number, study, state, ended in rows.of(
        "trials", "trial_id, number, study_id, state, datetime_complete"
    ):
        trial = Trial(number=number, state=state.lower(), completed=ended or "")
        trials[key] = trial, study
    for key, name, value, domain in rows.of(
        "trial_params", "trial_id, param_name, param_value, distribution_json"
    ):
        trials[key][0].params[name] = _external(value, domain)
    for key, value, kind in rows.of("trial_values", "trial_id, value, value_type", "objective"):
        trials[key][0].values.append(_MARKED.get(kind, value))
    for key, step, value, kind in rows.of(
        "trial_intermediate_values",
        "trial_id, step, intermediate_value, intermediate_value_type",
        "step",
    ):
        trials[key][0].intermediate_values[str(step)] = _MARKED.get(kind, value)
    for key, name, text in rows.of("trial_user_attributes", "trial_id, key, value_json"):
        trials[key][0].user_attrs[name] = json.loads(text)
    return iter(trials.values())


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of the tables of a database; of a view none."""

    database: sqlite3.Connection
    tables: set[str]

    def of(self, table: str, columns: str, order: str = "1") -> Sequence[tuple[Any, ...]]:
        """Return some columns of all rows of a table."""
        if table not in self.tables:
            raise ValueError(f"no table {table}")
        asked = f"SELECT {columns} FROM {table} ORDER BY {order}, rowid"
        return self.database.execute(asked).fetchall()
