"""Find banks and read what is in them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from aoebank.errors import UsageError
from aoebank.parameters.context import (
    AnyPath,
    Names,
    Paths,
    current_day,
    demand_bank,
    names,
    open_bank,
    open_banks,
    paths_of,
)
from aoebank.parameters.param import BANK_SIDE, BANK_SIDES, Completes, Param

if TYPE_CHECKING:
    from aoebank.reading.hits import HitsResult
    from aoebank.reading.ls import ListResult
    from aoebank.reading.overview import OverviewResult
    from aoebank.reading.query import QueryResult
    from aoebank.reading.show import ShowResult


def list_bank(path: Annotated[AnyPath | None, BANK_SIDE] = None) -> ListResult:
    """Return a summary of each file of a bank, as `aoebank ls` lists them.

    Args:
        path: A bank file or tree, `git:REV`, `git:REV:PATH`, `snapshot:REF` or
            `snapshot:REF:ROOT`; by default the bank you are in, else the
            environment's.

    Raises:
        BankNotFoundError: there is no such path.
        HistoryError: there is no such revision or snapshot.
    """
    from aoebank.reading import ls
    from aoebank.storage.sides.open import is_stored

    if path is not None and not is_stored(str(path)):
        demand_bank(Path(path))
    return ls.list_bank(open_bank(path))


def show(
    *targets: Annotated[
        AnyPath,
        Param(
            kind=list[str],
            metavar="KEY|ID|FILE[:KEY]... [PATH]",
            completes=Completes.TARGET,
            is_argument=True,
            is_needed=True,
            help="Records by key (4 digits will do), id or file; where to look: files, trees, "
            "git:REV, snapshot:REF.",
        ),
    ],
) -> ShowResult:
    """Return records with their workload, strategy, time and provenance.

    Args:
        targets: Records as `KEY` (4 digits will do), the number a log calls them by, `FILE` or
            `FILE:KEY`, and files, trees, `git:REV` or `snapshot:REF` to look for keys in; without
            one, the bank you are in, else the environment's.

    Raises:
        UsageError: a target is none of these, or no record is asked for.
    """
    from aoebank.reading import show as verb
    from aoebank.storage.sides.open import is_stored

    texts = [str(target) for target in targets]
    files = [text for text in texts if verb.is_file(Path(text))]
    sides = [text for text in texts if is_stored(text) or Path(text).is_dir()]
    keys = [text for text in texts if text not in (*files, *sides)]
    is_searched = any(":" not in key for key in keys)
    if is_searched:  # then files are where to look for keys
        sides, files = [text for text in texts if text in (*sides, *files)], []
    trees = [open_bank(text) for text in sides]
    selectors = [text for text in texts if text in (*files, *keys)]
    if not selectors and all(side.is_tree for side in trees):
        raise UsageError(
            "Invalid value: give at least one KEY, FILE or FILE:KEY", hint="aoebank show --help"
        )
    return verb.show(selectors, trees or (open_banks(()) if is_searched else []))


def query(
    sql: Annotated[
        str | None, Param(kind=str, metavar="[SQL]", is_argument=True, help="One SELECT.")
    ] = None,
    *banks: Annotated[AnyPath, BANK_SIDES],
) -> QueryResult:
    """Return the rows of an SQL query over banks, as `aoebank query` does.

    Args:
        sql: One SELECT over the tables `files`, `records` and `provenance`, in SQLite's words; None
            for the tables and their columns.
        banks: Files, trees, `git:REV` or `snapshot:REF`; by default the bank you are in, else
            the environment's.

    Raises:
        UsageError: it is no query, names what is not there, or would write.
        BankNotFoundError: there is no such bank.
        HistoryError: there is no such revision or snapshot.
    """
    from aoebank.reading import query as run

    if sql is None:
        return run.describe_tables()
    return run.query(sql, open_banks(banks), today=current_day())


def stats(
    *banks: Annotated[AnyPath, BANK_SIDES],
    by: Annotated[
        Names,
        Param(
            kind=list[str],
            metavar="GROUP",
            help="Count by this: bank, file, format, soc_version, core_num, op_type, origin, "
            "engine or cpu_model; may be given again. By default soc_version, format, op_type.",
        ),
    ] = (),
) -> QueryResult:
    """Return counts and times of records, a row for each group, as `aoebank stats` does.

    Args:
        banks: Files, trees, `git:REV` or `snapshot:REF`; by default the bank you are in, else
            the environment's.

    Raises:
        UsageError: there is no such group.
        BankNotFoundError: there is no such bank.
        HistoryError: there is no such revision or snapshot.
    """
    from aoebank.reading import query as run

    sides = open_banks(banks)
    return run.stats(sides, names(by), today=current_day())


def hits(
    logs: Annotated[
        Paths,
        Param(
            kind=list[Path],
            metavar="LOG...",
            is_argument=True,
            help="Logs (plog), results of tuning, kernel documents, or folders of them.",
        ),
    ],
    *,
    bank: Annotated[
        Names,
        Param(
            kind=list[str],
            metavar="BANK",
            help="Tell which of its records were used; may be given again.",
        ),
    ] = (),
    soc: Annotated[
        Names,
        Param(
            kind=list[str],
            metavar="SOC",
            help="The soc_version the logs are of; * and ? are wild; may be given again.",
        ),
    ] = (),
) -> HitsResult:
    """Return which look-ups found a record, as `aoebank hits` tells it.

    Args:
        logs: Logs of CANN (plog), results of tuning (`summary.json`, `aoe_result_opat_*.json`,
            `tune_result_*.json`), documents beside compiled kernels, or folders of them.

    Raises:
        BankNotFoundError: there is no such log, or no such bank.
    """
    from aoebank.reading import hits as run

    return run.hits(paths_of(logs), [open_bank(one) for one in names(bank)], soc=names(soc))


def overview(
    *banks: Annotated[AnyPath, BANK_SIDES], now: Mapping[str, str] | None = None
) -> OverviewResult:
    """Return the overview of banks, as `aoebank report` tells it.

    Args:
        banks: Files, trees, `git:REV` or `snapshot:REF`; by default the bank you are in, else
            the environment's.
        now: Environment to compare with, as `present_facts` tells it; None: the present one.

    Returns:
        Sizes, coverage and gains by operator and target, age, staleness, outliers, disagreements
        between banks and between measurements, and duplicates.

    Raises:
        BankNotFoundError: there is no such bank.
        HistoryError: there is no such revision or snapshot.
    """
    from aoebank.reading import overview as run
    from aoebank.selection import RecordFilter
    from aoebank.storage.machine import kernel_source_of, present_facts
    from aoebank.validation.stale import find_stale

    here, source_of = present_facts() if now is None else now, kernel_source_of()
    return run.overview(
        open_banks(banks),
        today=current_day(),
        stale_of=lambda side: find_stale(
            side, now=here, source_of=source_of, wanted=RecordFilter()
        ),
    )
