"""Look over banks as a whole, by queries on the tables `aoebank query` has."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from datetime import date
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from aoebank.reading.overview.result import (
    Age,
    Coverage,
    Disagreement,
    Duplicates,
    Opinion,
    Outlier,
    OverviewResult,
    Size,
    Staleness,
)
from aoebank.reading.query.tables import fill
from aoebank.storage.sides.side import Side
from aoebank.validation.siblings import sibling_group
from aoebank.validation.stale import StaleResult

if TYPE_CHECKING:
    from sqlite_utils import Database

FEWEST_OF_A_KIND = 5
FAR = 4.0
"""Robust standard deviations from the median of its operator at which a speed-up stands out."""
_NORMAL = 1.4826
"""From a median absolute deviation to a standard deviation. Source: P. J. Rousseeuw, C. Croux,
Journal of the American Statistical Association 88 (1993)."""
_LEAST_SPREAD = 0.05  # of log(speed-up): equal figures are no reason to call the next one far

Row = dict[str, Any]

_SIZES = """
SELECT bank, count(*) AS files, total(records) AS records, total(size_bytes) AS size_bytes,
       count(problem) AS broken,
       (SELECT total(in_quarantine) FROM records WHERE records.bank = files.bank) AS in_quarantine
FROM files GROUP BY bank"""
_RECORDS = """
SELECT bank, file, coalesce(soc_version, '') AS soc_version, coalesce(op_type, '') AS op_type,
       format, key, cost_us, speedup, speedup_low AS low, speedup_high AS high,
       coalesce(measured, '') AS time, coalesce(engine, '') AS engine,
       coalesce(cpu_model, '') AS cpu_model, strategy_sha256
FROM records ORDER BY rowid"""
_AGES = """
SELECT bank, coalesce(engine, '') AS engine, coalesce(cpu_model, '') AS cpu_model,
       count(*) AS records, coalesce(min(measured), '') AS oldest,
       coalesce(max(measured), '') AS newest
FROM records GROUP BY 1, 2, 3 ORDER BY oldest"""
_ENTRIES = """
SELECT p.bank, p.file, p.key, p.event, p.time, p.engine, coalesce(p.cpu_model, '') AS cpu_model,
       p.speedup, p.speedup_low AS low, p.speedup_high AS high,
       coalesce(r.soc_version, '') AS soc_version, coalesce(r.op_type, '') AS op_type
FROM provenance p JOIN records r USING (bank, file, key) ORDER BY p.rowid"""
_DUPLICATES = """
SELECT a.bank, a.file AS one, b.file AS other, count(*) AS records
FROM records a JOIN records b USING (bank, format, key, strategy_sha256)
WHERE a.file < b.file GROUP BY 1, 2, 3 ORDER BY records DESC, 1, 2, 3"""


def overview(
    sides: Sequence[Side], *, today: date, stale_of: Callable[[Side], StaleResult]
) -> OverviewResult:
    """Return the overview of banks, and the parts that deserve a second look.

    Args:
        sides: The banks.
        today: Day by which entries of a quarantine expire.
        stale_of: Holds the records of a bank against the present environment.
    """
    from sqlite_utils import Database

    with closing(Database(memory=True)) as database:
        closed = fill(database, sides, today=today)
        database.conn.execute("CREATE INDEX by_key ON records (key, bank, file)")
        records = [*database.query(_RECORDS)]
        return OverviewResult(
            sizes=tuple(_sizes(database)),
            coverage=tuple(_coverage(records)),
            ages=tuple(Age(**row) for row in database.query(_AGES)),
            staleness=tuple(_staleness(side, stale_of(side)) for side in sides),
            outliers=tuple(_outliers(records)),
            disagreements=(*_between_banks(records), *_within_side_cars(database)),
            duplicates=tuple(_duplicates(database)),
            closed=tuple(closed),
        )


def _duplicates(database: Database) -> Iterator[Duplicates]:
    for row in database.query(_DUPLICATES):
        files = (row["one"], row["other"])
        one, other = (sibling_group(Path(file)) for file in files)
        if one is not None and one == other:
            continue  # banks of related chips are meant to say the same
        yield Duplicates(bank=row["bank"], files=files, records=row["records"])


def _sizes(database: Database) -> Iterator[Size]:
    for row in database.query(_SIZES):
        counts = {name: int(value) for name, value in row.items() if name != "bank"}
        yield Size(bank=row["bank"], **counts)


def _staleness(side: Side, found: StaleResult) -> Staleness:
    stale = sum(one.drift.is_stale for one in found.found)
    unknown = sum(not one.drift.is_stale and not one.is_noted for one in found.found)
    return Staleness(
        bank=side.label,
        fresh=found.looked_at - len(found.found),
        to_check=len(found.found) - stale - unknown,
        stale=stale,
        unknown=unknown,
    )


def _coverage(records: Iterable[Row]) -> list[Coverage]:
    groups: dict[tuple[str, ...], list[float | None]] = defaultdict(list)
    for row in records:
        kind = (row["bank"], row["soc_version"], row["op_type"], row["format"])
        groups[kind].append(row["speedup"])
    found = []
    for (bank, soc_version, op_type, format_), speedups in groups.items():
        known = [speedup for speedup in speedups if speedup is not None]
        found.append(
            Coverage(
                bank=bank,
                soc_version=soc_version,
                op_type=op_type,
                format=format_,
                records=len(speedups),
                measured=len(known),
                lowest=min(known, default=None),
                median=median(known) if known else None,
                highest=max(known, default=None),
            )
        )
    return sorted(found, key=lambda part: (part.bank, part.soc_version, -part.records))


def _outliers(records: Iterable[Row]) -> list[Outlier]:
    groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in records:
        if row["speedup"] is not None:
            groups[row["soc_version"], row["op_type"]].append(row)
    found = []
    for rows in groups.values():
        logs = [math.log(row["speedup"]) for row in rows]
        middle = median(logs)
        spread = max(_NORMAL * median(abs(log - middle) for log in logs), _LEAST_SPREAD)
        for row, log in zip(rows, logs, strict=True):
            far = (log - middle) / spread if len(rows) >= FEWEST_OF_A_KIND else 0.0
            why = _why(row, far, math.exp(middle))
            if why:
                figures = {name: row[name] for name in ("speedup", "low", "high")}
                place = {name: row[name] for name in ("bank", "file", "key", "op_type")}
                found.append(Outlier(**place, **figures, why=why))
    return sorted(found, key=lambda outlier: outlier.speedup)


def _why(row: Row, far: float, usual: float) -> str:
    if row["speedup"] < 1:
        return "slower than the default"
    if row["low"] is not None and row["low"] <= 1:
        return "the interval reaches down to 1: not proven to be faster"
    if abs(far) > FAR:
        return f"far from the {usual:.2f}x usual for this operator: measure it again"
    return ""


def _between_banks(records: Iterable[Row]) -> Iterator[Disagreement]:
    """Yield records several banks have with other strategies."""
    groups: dict[tuple[str, ...], dict[str, Row]] = defaultdict(dict)
    for row in records:
        same = (row["soc_version"], row["op_type"], row["format"], row["key"])
        groups[same].setdefault(row["bank"], row)
    for (soc_version, op_type, _, key), by_bank in groups.items():
        rows = [*by_bank.values()]
        if len({row["strategy_sha256"] for row in rows}) > 1:
            yield Disagreement(
                soc_version=soc_version,
                op_type=op_type,
                key=key,
                what="other strategies",
                opinions=tuple(
                    Opinion(
                        where=row["bank"],
                        time=row["time"],
                        speedup=row["speedup"],
                        low=row["low"],
                        high=row["high"],
                        cost_us=row["cost_us"],
                        strategy_sha256=row["strategy_sha256"],
                    )
                    for row in rows
                ),
            )


def _within_side_cars(database: Database) -> Iterator[Disagreement]:
    """Yield records that were measured again with the same strategy, and read otherwise."""
    groups: dict[tuple[str, str, str], list[Row]] = defaultdict(list)
    for row in database.query(_ENTRIES):
        same = (row["bank"], row["file"], row["key"])
        if row["event"] in ("add", "update"):
            groups[same].clear()  # another strategy from here on
        if row["event"] in ("add", "update", "reserved") and row["low"] is not None:
            groups[same].append(row)
    for rows in groups.values():
        apart = [pair for pair in combinations(rows, 2) if _are_apart(*pair)]
        if apart:
            yield Disagreement(
                soc_version=rows[0]["soc_version"],
                op_type=rows[0]["op_type"],
                key=rows[0]["key"],
                what="measured again, and the intervals do not meet",
                opinions=tuple(
                    Opinion(
                        where=", ".join(
                            filter(None, (row["bank"], row["engine"], row["cpu_model"]))
                        ),
                        time=row["time"],
                        speedup=row["speedup"],
                        low=row["low"],
                        high=row["high"],
                    )
                    for row in rows
                ),
            )


def _are_apart(one: Row, other: Row) -> bool:
    if one["high"] is None or other["high"] is None:
        return False
    return bool(one["high"] < other["low"] or other["high"] < one["low"])
