"""What banks look like in SQL, and that a query can only read."""

from __future__ import annotations

import json
import re
import statistics
from contextlib import closing
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import pytest
from support import version_banks as banks
from support.golden_harness import run

import aoebank
from aoebank import Bank, BankNotFoundError, Event, UsageError
from aoebank.reading.query import FULL_TEXT, columns_read, fill, make_tables, query
from aoebank.storage.sides.side import PathSide, Side
from aoebank.testing.factories import make_provenance, make_record


@pytest.fixture
def bank(tmp_path: Path) -> Path:
    root, records = tmp_path / "bank", [make_record(number) for number in range(3)]
    banks.put(root, *records)
    banks.put(root, make_record(9), soc="Ascend910B2", op="Softmax")
    Bank(root).append_provenance(
        banks.file_of(root),
        [
            make_provenance(records[0].key, speedup=3.0),
            make_provenance(records[0].key, fingerprint={"cpu_model": "c"}, model={"name": "m"}),
            make_provenance(records[0].key, event=Event.KEPT, speedup=9.0),
        ],
    )
    return root


def test_every_file_and_record_is_a_row(bank: Path) -> None:
    sql = "SELECT soc_version, records, size_bytes FROM files ORDER BY soc_version"
    other, own = aoebank.query(sql, bank).rows
    assert (other[:2], own[:2]) == (("Ascend910B2", 1), (banks.SOC, 3))
    assert own[2] == banks.file_of(bank).stat().st_size
    result = aoebank.query("SELECT count(*) AS n FROM records WHERE cost_us > 0", bank)
    assert (result.columns, result.rows) == (("n",), ((4,),))


def test_file_named_by_itself_is_a_bank(bank: Path) -> None:
    file, key = banks.file_of(bank), make_record(1).key
    aoebank.quarantine_add(key, root=bank, reason="bad", keep=True)
    (row,) = aoebank.stats(file).to_records()
    assert (row["records"], row["in_quarantine"]) == (3, 1)
    assert [one.records for one in aoebank.overview(file).sizes] == [3]
    assert aoebank.query("SELECT count(*) FROM records", file).rows == ((3,),)
    assert run("aoebank", ["stats", str(file)]).exit_code == 0


def test_figures_of_a_record_are_those_of_its_last_change(bank: Path) -> None:
    sql = "SELECT speedup, cpu_model FROM records WHERE speedup IS NOT NULL"
    assert aoebank.query(sql, bank).rows == ((2.0, "c"),)
    sql = "SELECT event, speedup, model FROM provenance"
    assert aoebank.query(sql, bank).rows == (
        ("add", 3.0, None),
        ("add", 2.0, "m"),
        ("kept", 9.0, None),
    )


def test_workloads_and_strategies_are_json(bank: Path) -> None:
    sql = "SELECT workload ->> '$.shape[1]', strategy ->> '$.tile[0]' FROM records"
    assert (1001, 16) in aoebank.query(sql, bank).rows


def test_records_are_found_by_their_words(bank: Path) -> None:
    key = make_record(9).key
    found = "SELECT key FROM records_fts WHERE records_fts MATCH"
    assert aoebank.query(f"{found} 'ascend910b2 softmax'", bank).rows == ((key,),)
    assert aoebank.query(f"{found} 'workload: 1009'", bank).rows == ((key,),)
    assert aoebank.query(f"{found} 'strategy: 1009'", bank).rows == ()


def test_words_that_are_found_lead_to_the_figures_of_a_record(bank: Path) -> None:
    sql = """SELECT r.key, r.speedup FROM records r JOIN RECORDS_FTS f ON f.rowid = r.rowid
             WHERE records_fts MATCH ? ORDER BY rank"""
    rows = aoebank.query(sql.replace("?", f"'{make_record(0).key}'"), bank).rows
    assert rows == ((make_record(0).key, 2.0),)


def test_quarantine_is_told(bank: Path) -> None:
    key = make_record(1).key
    aoebank.quarantine_add(key, reason="wrong", root=bank)
    banks.put(bank, make_record(1))
    sql = "SELECT key FROM records WHERE in_quarantine"
    assert aoebank.query(sql, bank).rows == ((key,),)


def test_several_banks_are_told_apart(bank: Path, tmp_path: Path) -> None:
    banks.put(tmp_path / "other", make_record(0, tile=32))
    sql = """SELECT a.key FROM records a JOIN records b USING (key)
             WHERE a.bank < b.bank AND a.strategy_sha256 <> b.strategy_sha256"""
    assert aoebank.query(sql, bank, tmp_path / "other").rows == ((make_record(0).key,),)


def test_broken_file_is_a_row_with_its_problem(bank: Path) -> None:
    banks.file_of(bank).write_text("{")
    sql = "SELECT soc_version FROM files WHERE problem IS NOT NULL"
    assert aoebank.query(sql, bank).rows == ((banks.SOC,),)


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM records",
        "ATTACH DATABASE 'made.db' AS x",
        "VACUUM INTO 'made.db'",
        "CREATE TABLE x (y)",
        "PRAGMA query_only = 0",
        "SELECT 1; DROP TABLE records",
        "SELECT load_extension('x')",
        "DELETE FROM records_fts",
        "INSERT INTO records_fts (records_fts) VALUES ('rebuild')",
        "SELECT key FROM records_fts WHERE records_fts MATCH '\"'",
        "",
        "SELECT",
        "SELECT * FROM nowhere",
        "SELECT \0",
    ],
)
def test_what_is_no_query_is_refused(
    bank: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sql: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="query"):
        aoebank.query(sql, bank)
    assert [path.name for path in tmp_path.iterdir()] == ["bank"]


def test_values_json_does_not_know_become_texts(bank: Path) -> None:
    assert aoebank.query("SELECT x'ff00', 9e999, NULL", bank).rows == (("ff00", "inf", None),)


def test_without_sql_the_tables_are_listed() -> None:
    tables = dict(aoebank.query().rows)
    assert set(tables) == {"files", "records", "provenance", "records_fts"}
    assert "strategy_sha256" in str(tables["records"])


def test_no_such_bank(tmp_path: Path) -> None:
    with pytest.raises(BankNotFoundError):
        aoebank.query("SELECT 1", tmp_path / "none")


def test_median_is_of_what_are_numbers(bank: Path) -> None:
    sql = "SELECT median(cost_us), median(origin), median(x) FROM records, (SELECT 1 AS x)"
    ((cost, text, one),) = aoebank.query(sql, bank).rows
    costs = [make_record(number).cost_us or 0.0 for number in (0, 1, 2, 9)]
    assert (cost, text, one) == (statistics.median(costs), None, 1)


def test_stats_group_by_what_is_asked(bank: Path) -> None:
    result = aoebank.stats(bank)
    assert result.columns[:4] == ("soc_version", "format", "op_type", "records")
    assert [row[3] for row in result.rows] == [1, 3]
    assert [row[1] for row in aoebank.stats(bank, by="bank").rows] == [4]


def test_broken_file_is_told_beside_the_rows_of_what_can_be_read(bank: Path) -> None:
    file = banks.file_of(bank)
    assert aoebank.stats(bank).broken == ()
    file.write_bytes(file.read_bytes()[:-30])
    for result in (aoebank.stats(bank), aoebank.query("SELECT count(*) FROM records", bank)):
        (error,) = result.broken
        assert error.location.path == file
    outcome = run("aoebank", ["stats", str(bank)])
    assert f"\nbroken: {error.location}: {error.message}\n" in outcome.stdout
    document = json.loads(run("aoebank", ["stats", str(bank), "--json"]).stdout)
    assert [one["path"] for one in document["broken"]] == [str(file)]


@dataclass(frozen=True)
class SomeReads:
    """A side of which only some things may be read."""

    side: Side
    readable: tuple[str, ...]

    def __getattr__(self, name: str) -> object:
        assert name in (*self.readable, "label", "names", "listing", "read_bytes"), name
        return getattr(self.side, name)


@pytest.mark.parametrize(
    ("sql", "read"),
    [
        ("SELECT 1", ()),
        ("SELECT count(*) FROM provenance", ("load_provenance",)),
        ("SELECT op_type, count(*), avg(cost_us) FROM records GROUP BY 1", ("load",)),
        ("SELECT sum(records) FROM files", ("load",)),
        ("SELECT max(speedup) FROM records", ("load", "load_provenance")),
    ],
)
def test_only_what_a_query_names_is_read(bank: Path, sql: str, read: tuple[str, ...]) -> None:
    side = SomeReads(PathSide(label="bank", path=bank), read)
    result = query(sql, [side], today=date(2026, 1, 1))  # type: ignore[list-item]
    assert result.rows == aoebank.query(sql, bank).rows


def test_only_the_columns_a_query_names_are_filled(bank: Path) -> None:
    sql = "SELECT op_type, count(*) FROM records -- of records_fts and provenance"
    wanted = columns_read(sql)
    assert {name: columns - {""} for name, columns in wanted.items()} == {"records": {"op_type"}}
    with closing(make_tables()) as database:
        fill(database, [PathSide(label="b", path=bank)], today=date(2026, 1, 1), wanted=wanted)
        counts = "count(*), count(op_type), count(workload), (SELECT count(*) FROM files)"
        assert database.execute(f"SELECT {counts} FROM records").fetchone() == (4, 4, 0, 0)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM records",
        "SELECT count(*), count(DISTINCT soc_version) FROM records GROUP BY file, origin",
        "SELECT count(*), sum(r.cost_us) FROM records r JOIN files USING (bank, file, op_type)",
        "SELECT count(*) FROM files NATURAL JOIN records",
        "SELECT r.rowid, key, p.time FROM records r LEFT JOIN provenance p USING (key)",
        "WITH x AS (SELECT *, key AS k FROM records) SELECT k, in_quarantine FROM x",
        "SELECT strategy_sha256 FROM records WHERE file IN (SELECT file FROM files WHERE records)",
        "SELECT max(cost_us) OVER (PARTITION BY bank, format) FROM records",
        "SELECT key, rank FROM records_fts WHERE records_fts MATCH 'matmul' ORDER BY rank, rowid",
        "SELECT op_type FROM records UNION SELECT soc_version FROM files",
        "EXPLAIN QUERY PLAN SELECT key FROM records",
        'SELECT count(*), (SELECT count(*) FROM [FILES]), 1 FROM Records r, "Provenance"',
        "SELECT count(*) FROM Records_FTS",
        "SELECT count(*) FROM records_fts_docsize",
    ],
)
def test_answer_is_that_of_full_tables(sql: str) -> None:
    today = date(2026, 1, 1)
    side = PathSide(label="sample", path=Path(__file__).parents[3] / "sample_banks")
    with closing(make_tables(sql)) as database:
        fill(database, [side], today=today)
        if FULL_TEXT in sql.lower():
            database.execute(f"INSERT INTO {FULL_TEXT} ({FULL_TEXT}) VALUES ('rebuild')")
        rows = database.execute(sql).fetchall()
    assert rows and query(sql, [side], today=today).rows == tuple(rows)


def test_side_car_of_a_file_that_cannot_be_read_counts_in_every_query(bank: Path) -> None:
    file = banks.file_of(bank)
    Bank(bank).append_provenance(file, [make_provenance(make_record(1).key)])
    file.unlink()
    file.symlink_to("gone")
    counts = "SELECT count(*) FROM provenance"
    for sql in (counts, f"SELECT ({counts}), count(*) FROM files"):
        assert aoebank.query(sql, bank).rows[0][0] == 4


def test_query_that_is_no_unicode_is_refused(bank: Path) -> None:
    with pytest.raises(UsageError, match="cannot run the query"):
        aoebank.query("SELECT '\udcff'", bank)


def test_record_that_cannot_be_read_counts_as_ls_counts_it(bank: Path) -> None:
    file, key = banks.file_of(bank), "0" * 32
    file.write_text(file.read_text().replace("{", f'{{"{key}": [{{"cost_time": 1e300}}],', 1))
    sql = "SELECT op_type, workload, cost_us FROM records WHERE key = '" + key + "'"
    assert aoebank.query(sql, bank).rows == (("Softmax", None, None),)
    (counted,) = aoebank.query("SELECT count(*) FROM records", bank).rows[0]
    assert counted == sum(listed.records for listed in aoebank.list_bank(bank).files)


def test_time_beyond_64_bits_is_a_number(bank: Path) -> None:
    file = banks.file_of(bank)
    file.write_text(re.sub(r'"cost_time": [0-9.]+', f'"cost_time": {10**30}', file.read_text()))
    assert aoebank.query("SELECT max(cost_us) FROM records", bank).rows == ((1e30,),)


def test_key_that_is_not_found_may_be_in_a_broken_file(bank: Path) -> None:
    file = banks.file_of(bank)
    file.write_bytes(file.read_bytes()[:-30])
    missing, broken = aoebank.show("ffffffff", bank).misses
    assert missing.reason == "no such record"
    assert broken.selector.startswith(f"{file}:")
