"""The searches of a run as studies of Optuna, in a file that `optuna-dashboard` opens.

A study is written after a slice of its search, never while something is measured. It is a copy for
people: no search reads it, and a file that cannot be written ends no run.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aoe.errors import OptionError
from aoe.measurement.samples import Measurement, median_ratio

if TYPE_CHECKING:
    import optuna

    from aoe.results.progress_log import TaskLine
    from aoe.schedule import Knob

JOURNALS, DATABASES = (".log", ".journal"), (".db", ".sqlite", ".sqlite3")
OPTION, _SQLITE = "--study", "sqlite:///"
_BLOCKS = 10
"""Intermediate values of a trial, about: the speed-up after so many parts of its pairs. A journal
takes all in one line; a database has none, since each is a row that takes it 4 ms."""
_LOCK_WAIT_S = 10
"""A dashboard or another run may be writing, too."""
_MOST_NAME = 200
"""Characters of an operator's name in that of its study. Source: Optuna, 512 for the whole."""
_KEY_CHARS = 8


def parse_study(text: str) -> str:
    """Return the place of studies, a path or `sqlite:///PATH`.

    Raises:
        OptionError: its ending says neither a journal nor a database.
    """
    suffix = Path(text).suffix
    is_url = text.startswith(_SQLITE) and len(text) > len(_SQLITE)
    if not is_url and (suffix not in (*JOURNALS, *DATABASES) or "://" in text):
        raise OptionError(
            OPTION,
            "no file for studies of Optuna",
            got=text,
            expected="FILE.log or FILE.journal for a journal, FILE.db or sqlite:///FILE for SQLite",
        )
    return text


class StudyWriter:
    """Writes searches as studies.

    Args:
        place: From `parse_study`.
        cwd: Where relative paths start.
        run: Name of the run, the end of names of studies.
        facts: User attributes of every study.
        warn: Is told once if nothing more can be written.

    Raises:
        ModuleNotFoundError: Optuna is not installed.
    """

    def __init__(
        self,
        place: str,
        cwd: Path,
        *,
        run: str,
        facts: Mapping[str, str],
        warn: Callable[[str], None],
    ) -> None:
        import optuna

        self._optuna = optuna
        self._is_database = place.startswith(_SQLITE) or Path(place).suffix in DATABASES
        self._file = cwd / place.removeprefix(_SQLITE)
        self._run = run
        self._facts = facts
        self._warn = warn
        self._studies: dict[str, optuna.Study] = {}
        self._written: dict[str, int] = {}
        self._storage: optuna.storages.BaseStorage | None = None
        with self._told():
            self._storage = self._opened()

    @property
    def source(self) -> str:
        """What `optuna-dashboard` is given."""
        return f"{_SQLITE}{self._file}" if self._is_database else str(self._file)

    def write(
        self,
        task: TaskLine,
        trials: Sequence[tuple[Mapping[str, int | str], Measurement]],
        knobs: Sequence[Knob],
        result: str,
    ) -> None:
        """Add what is new of a search to its study.

        Args:
            task: What is searched.
            trials: Everything measured so far.
            knobs: What there is to choose.
            result: What became of it, in words.
        """
        key = task.key
        new = trials[self._written.get(key, 0) :]
        if self._storage is None or not new:
            return
        with self._told():
            study = self._studies.get(key) or self._created(task)
            self._studies[key] = study
            # a number that nobody can choose is a row for nothing; a word says what was done
            open_knobs = [one for one in knobs if len(one.choices) > 1 or not one.is_ordinal]
            domains = {one.name: self._domain(one) for one in open_knobs}
            study.add_trials([self._trial(*one, domains) for one in new])
            self._written[key] = len(trials)
            study.set_user_attr("result", result)

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Give writing up where it fails, whatever a storage raises: it is a copy for people."""
        verbosity = self._optuna.logging.get_verbosity()
        self._optuna.logging.set_verbosity(self._optuna.logging.ERROR)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield
        except Exception as error:
            self._storage = None
            why = " ".join(str(error).split()) or type(error).__name__
            self._warn(f"{OPTION}: nothing more is written to {self._file}: {why[:200]}")
        finally:
            self._optuna.logging.set_verbosity(verbosity)

    def _opened(self) -> optuna.storages.BaseStorage:
        storages = self._optuna.storages
        self._file.parent.mkdir(parents=True, exist_ok=True)
        if self._is_database:
            wait = {"connect_args": {"timeout": _LOCK_WAIT_S}}
            database: optuna.storages.RDBStorage = storages.RDBStorage(
                f"{_SQLITE}{self._file}", engine_kwargs=wait
            )
            _do_not_wait_for_the_disk(database)
            return database
        _demand_journal(self._file)
        backend = storages.journal.JournalFileBackend(str(self._file))
        journal: optuna.storages.BaseStorage = storages.JournalStorage(backend)
        return journal

    def _created(self, task: TaskLine) -> optuna.Study:
        name = f"{task.name[:_MOST_NAME]} {task.key[:_KEY_CHARS]} ({self._run})"
        study = self._optuna.create_study(
            study_name=name,
            storage=self._storage,
            direction="maximize",
            load_if_exists=True,
        )
        study.set_metric_names(["speedup"])
        known = {"operator": task.name, "computes": task.computes, "share": task.share}
        for attribute, value in {**known, "workload_key": task.key, **self._facts}.items():
            study.set_user_attr(attribute, value)
        return study

    def _domain(self, knob: Knob) -> optuna.distributions.BaseDistribution:
        if knob.is_ordinal:
            low, high = int(knob.choices[0]), int(knob.choices[-1])
            return self._optuna.distributions.IntDistribution(low, high, log=low > 0)
        return self._optuna.distributions.CategoricalDistribution(knob.choices)

    def _trial(
        self,
        values: Mapping[str, int | str],
        measurement: Measurement,
        domains: Mapping[str, optuna.distributions.BaseDistribution],
    ) -> optuna.trial.FrozenTrial:
        state = self._optuna.trial.TrialState
        ratios = measurement.ratios if measurement.is_correct else ()
        block = math.ceil(len(ratios) / _BLOCKS)
        ends = [*range(block, len(ratios), block), len(ratios)] if ratios else []
        if self._is_database:
            ends = []
        attributes: dict[str, Any] = {
            "reason": f"{measurement.outcome.value}: {measurement.detail}"
        }
        if measurement.is_correct:
            attributes = {"us": round(measurement.latency_us, 3)}
        return self._optuna.trial.create_trial(
            state=state.COMPLETE if measurement.is_correct else state.FAIL,
            value=measurement.speedup if measurement.is_correct else None,
            params={name: values[name] for name in domains},
            distributions=dict(domains),
            user_attrs=attributes,
            intermediate_values={end: median_ratio(ratios[:end]) for end in ends},
        )


def _do_not_wait_for_the_disk(storage: optuna.storages.RDBStorage) -> None:
    """Have the system write a database when it suits it: two waits a trial are half of its time."""
    from sqlalchemy import event

    event.listen(
        storage.engine, "connect", lambda driver, _: driver.execute("PRAGMA synchronous=OFF")
    )
    storage.engine.dispose()


def _demand_journal(file: Path) -> None:
    """Refuse a file that something else has written: a journal is appended to whatever it is.

    Raises:
        ValueError: its first line is none of Optuna's.
    """
    if not file.exists() or not file.stat().st_size:
        return
    with file.open("rb") as source:
        first = json.loads(source.readline())
    if not isinstance(first, dict) or "op_code" not in first:
        raise ValueError("it is there and no journal of Optuna")
