"""What banks look like in SQL, and that a query can only read."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import pytest
from support import version_banks as banks
from support.golden_harness import run

import aoebank
from aoebank import Bank, BankNotFoundError, Event, UsageError
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
    with pytest.raises(UsageError, match="no such group"):
        aoebank.stats(bank, by="key; DROP TABLE records")


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


def test_key_that_is_not_found_may_be_in_a_broken_file(bank: Path) -> None:
    file = banks.file_of(bank)
    file.write_bytes(file.read_bytes()[:-30])
    missing, broken = aoebank.show("ffffffff", bank).misses
    assert missing.reason == "no such record"
    assert broken.selector.startswith(f"{file}:")
