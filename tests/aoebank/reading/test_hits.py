"""What logs and results tell of look-ups, and which records they mean."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import version_banks as banks
from support.golden_harness import run
from support.runtime_kb_lines import EXAMPLE, FIRST

import aoebank
from aoebank.reading.hits import document_lookups, log_lookups
from aoebank.testing.factories import make_record

_HEAD = "[INFO] FE(1234,atc):2026-01-01-10:00:00.000.000 [x.cc:7]"


@pytest.mark.parametrize(
    ("line", "kind", "name", "is_hit"),
    [
        (f"{_HEAD}[op_kb_hit][conv/1][1][te_conv]", "operator", "conv/1", True),
        (f"{_HEAD}[op_kb_hit][conv/1][0][te_conv]", "operator", "conv/1", False),
        (f"{_HEAD}[op_kb_hit][conv/1][-1]", "operator", "conv/1", None),
        (f"{_HEAD}[sg_kb_hit][graph_1][169738280]", "subgraph", "graph_1", True),
        (f"{_HEAD}[sg_kb_hit][graph_1][169738250]", "subgraph", "graph_1", False),
        (f"{_HEAD}[sg_kb_hit][graph_1][169738260]", "subgraph", "graph_1", False),
        (f"{_HEAD}[sg_kb_hit][graph_1][7]", "subgraph", "graph_1", None),
        ("[DEBUG] OP(9,x): Found in custom repo. K: 4115", "operator", "4115", True),
        ("[DEBUG] OP(9,x): Found in builtin repo", "operator", "", False),
    ],
)
def test_line_of_a_log_is_a_lookup(
    tmp_path: Path, line: str, kind: str, name: str, is_hit: bool | None
) -> None:
    log = tmp_path / "plog.log"
    log.write_text(f"before\n{line}\nafter\n")
    (found,) = log_lookups(log)
    assert (found.kind, found.name, found.is_hit, found.line) == (kind, name, is_hit, 2)
    assert found.pid == (1234 if line.startswith(_HEAD) else 9)


@given(st.binary(max_size=300))
def test_any_bytes_are_a_log_or_a_document_without_lookups(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    file = tmp_path_factory.mktemp("logs") / "any"
    file.write_bytes(data)
    assert [*log_lookups(file)] == []
    assert [*document_lookups(file)] == []


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"KBHit": True, "kernelName": "te_x"}, [("te_x", True)]),
        ({"KBHit": 0, "binFileName": "te_y"}, [("te_y", False)]),
        ({"[a b]": {"status_data": {"bank_hit": True}}}, [("a b", True)]),
        ({"['a', 'b']": {"status_data": {"bank_hit": True}}}, [("a, b", True)]),
        ({"[['a'],['b']]": {"status_data": {"bank_hit": True}}}, [("a,b", True)]),
        ({"[a]": {"status_data": {"bank_hit": False, "bank_append": True}}}, [("a", False)]),
        (
            [
                {"basic": {"tuning_name": "n"}},
                {
                    "OPAT": {
                        "repo_modified_operators": [
                            {"op_name": "c", "tune_performance": {"Impl": {"update_mode": "add"}}},
                            {
                                "op_name": "d",
                                "tune_performance": [{"Impl": {"update_mode": "update"}}],
                            },
                        ]
                    }
                },
            ],
            [("c", False), ("d", True)],
        ),
        (
            {
                "OPAT": {
                    "repo_modified_operators": {
                        "add_repo_operators": [{"op_name": "c"}],
                        "update_repo_operators": [{"op_name": "d"}],
                    }
                }
            },
            [("c", False), ("d", True)],
        ),
        ({"schema": "aoe.summary/1", "operators": "none"}, []),
        ({"OPAT": 3, "status_data": 1, "KBHit": "yes"}, []),
        ([1, None, "x"], []),
    ],
)
def test_documents_of_tuners_and_compilers(
    tmp_path: Path, document: object, expected: list[tuple[str, bool]]
) -> None:
    file = tmp_path / "any.json"
    file.write_text(json.dumps(document))
    assert [(found.name, found.is_hit) for found in document_lookups(file)] == expected


def test_records_a_run_has_used_are_counted(tmp_path: Path) -> None:
    used, unused = make_record(1), make_record(2)
    banks.put(tmp_path / "bank", used, unused)
    rows = [
        {"key": used.key, "op_names": ["a"], "outcome": "reserved", "in_model": True},
        {"key": unused.key, "op_names": ["b"], "outcome": "unsatisfied", "in_model": False},
    ]
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        summary = {"schema": "aoe.summary/1", "operators": rows}
        (tmp_path / name / "summary.json").write_text(json.dumps(summary))
    report = tmp_path / "one" / "aoe_result_opat_20260101000000000_pid1.json"
    report.write_text(json.dumps([{"OPAT": {"repo_modified_operators": [{"op_name": "a"}]}}]))
    found = aoebank.hits([tmp_path / "one", tmp_path / "two"], bank=str(tmp_path / "bank"))
    assert {record.key: record.hits for record in found.records} == {used.key: 2, unused.key: 0}
    assert [record.key for record in found.unused] == [unused.key]
    assert len(found.lookups) == 4  # the report beside a summary tells nothing new


def test_number_of_a_log_means_a_runtime_record(tmp_path: Path, shared_data: Path) -> None:
    bank = next(shared_data.rglob("*MatMulV3_runtime_kb.json"))
    number = json.loads(bank.read_text().splitlines()[0])["id"]
    log = tmp_path / "plog.log"
    log.write_text(f"Found in custom repo. K: {number}\n")
    found = aoebank.hits(log, bank=str(bank))
    assert 0 < sum(record.hits > 0 for record in found.records) < len(found.records)


def test_number_of_one_chip_is_no_hit_of_its_siblings(tmp_path: Path) -> None:
    for soc in ("Ascend910B1", "Ascend910B2"):
        name = f"{soc}_24_AiCore_MatMulV3_runtime_kb.json"
        file = tmp_path / "bank" / soc / "unified_bank" / name
        file.parent.mkdir(parents=True)
        file.write_bytes(EXAMPLE)
    log = tmp_path / "plog.log"
    log.write_text(f"Found in custom repo. K: {FIRST['id']}\n" * 2)
    bank, records = str(tmp_path / "bank"), len(EXAMPLE.splitlines())
    found = aoebank.hits(log, bank=bank)
    assert sorted((use.hits, use.perhaps) for use in found.records)[-2:] == [(0, 2), (0, 2)]
    assert len(found.unused) == 2 * records - 2  # neither may be pruned
    text = run("aoebank", ["hits", str(log), "--bank", bank]).stdout
    assert "2 records perhaps used: files of several targets" in text
    assert f"\n0 of {2 * records} records used\n" in text
    found = aoebank.hits(log, bank=bank, soc="Ascend910B2")
    used = [(use.file.split("/")[0], use.hits) for use in found.records if use.hits]
    assert used == [("Ascend910B2", 2)] and len(found.unused) == 2 * records - 1


def test_summary_names_the_chip_of_its_look_ups(tmp_path: Path) -> None:
    record = make_record(1)
    for soc in ("Ascend910B1", "x86-64-v4"):
        banks.put(tmp_path / "bank", record, soc=soc)
    row = {"key": record.key, "op_names": ["a"], "outcome": "reserved", "in_model": True}
    summary = {"schema": "aoe.summary/1", "operators": [row]}
    summary["target"] = {"soc_version": "Ascend910B1"}
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    found = aoebank.hits(tmp_path / "summary.json", bank=str(tmp_path / "bank"))
    assert {use.file.split("/")[0]: use.hits for use in found.records} == {
        "Ascend910B1": 1,
        "x86-64-v4": 0,
    }
