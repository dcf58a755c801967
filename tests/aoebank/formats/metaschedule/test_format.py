"""Databases of MetaSchedule: contract, the fastest trial, workloads in another file."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support import golden_harness, sample_bank_files
from support.format_reading import FormatReading

from aoebank import Bank, BankFormatError
from aoebank.formats.metaschedule.format import MetaScheduleFormat
from aoebank.testing.format_tests import FormatTests

FORMAT = MetaScheduleFormat()
NAME = sample_bank_files.METASCHEDULE.name
READING = FormatReading(FORMAT, NAME)
parse, codes = READING.parse, READING.codes
WORKLOADS = "database_workload.json"
GPU: dict[str, Any] = {"kind": "cuda", "arch": "sm_90"}
STEPS: list[Any] = [
    ["GetSBlock", [], ["C", "main"], ["b0"]],
    ["Split", ["l1", "None", 8], [1, 0], ["l4", "l5"]],
]


def trial(workload: int, *seconds: float, target: Any = GPU, steps: Any = STEPS) -> str:
    arguments = [["TENSOR", "float16", [64, 8]], ["TENSOR", "float16", []]]
    return json.dumps([workload, [[steps, []], [*seconds], target, arguments]])


def bank(*lines: str) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


class TestContract(FormatTests):
    format = FORMAT
    file_name = NAME
    example = sample_bank_files.METASCHEDULE.read_bytes()


class TestContractOfSeveralTargets(FormatTests):
    format = FORMAT
    file_name = NAME
    example = bank(
        trial(0, 1e-5, 2e-5),
        trial(0, 1.50e-5, target={"kind": "llvm", "num-cores": 2, "tag": ""}),
        trial(0, 2e-5, target={"kind": "llvm", "num-cores": 4, "tag": ""}),
        trial(12, 2.5000000000000001198e-05, steps=[]),
    )


def test_record_has_its_target_microseconds_and_arguments() -> None:
    (record,) = parse(bank(trial(3, 1e-5, 2e-5))).iter_records()
    assert record.key.startswith("workload=3,target=cuda-sm_90,")
    assert (record.soc_version, record.op_type) == ("cuda-sm_90", "C")
    assert record.cost_us == pytest.approx(15)
    assert FORMAT.workload_words(record) == "workload 3: float16 64x8 by scalar"
    assert next(iter(FORMAT.strategy_words(record))) == "Split"


def test_fastest_trial_of_a_workload_and_a_target_is_the_one_readers_use() -> None:
    parsed = parse(bank(trial(0, 3e-5), trial(0, 1e-5), trial(0, 1e10), trial(0)))
    (key,) = {*parsed.keys}
    assert parsed.find(key) == 1
    assert codes(parsed.data) == ["AB401", "AB401"]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("[0]", "AB206"),
        ("[-1" + trial(0, 1.0)[2:], "AB206"),
        (trial(0, 1.0).replace("[[[", "[[3, [", 1), "AB206"),
        ('{"a": 1}', "AB206"),
        ("[0, [", "AB103"),
        (trial(1, -1.0), "AB402"),
        (trial(1, 1.0, target=None), "AB315"),
        ("", "AB112"),
    ],
)
def test_bad_line_is_told_with_its_place(line: str, code: str) -> None:
    parsed = parse(bank(trial(0, 1e-5), line, trial(2, 1e-5)))
    found = [*parsed.findings, *FORMAT.check(parsed)]
    assert [(one.code, one.location.line) for one in found] == [(code, 2)]


def test_workloads_that_are_missing_or_too_few_are_told() -> None:
    parsed = parse(bank(trial(0, 1e-5), trial(2, 1e-5)))
    assert [one.code for one in FORMAT.check_companion(parsed, None)] == ["AB508"]
    found = [*FORMAT.check_companion(parsed, b'["1","e30="]\n["2","e30="]\n')]
    assert [(one.code, one.location.line) for one in found] == [("AB509", 2)]
    assert [*FORMAT.check_companion(parsed, b'["1","e30="]\n' * 3)] == []


def test_record_that_is_no_trial_is_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / NAME
    file.write_bytes(bank(trial(0, 1e-5)))
    (record,) = parse(file.read_bytes()).iter_records()
    for other in (
        replace(record, extra={"a": 1}),
        replace(record, strategy={"instructions": [], "decisions": [], "a": 1}),
    ):
        with pytest.raises(BankFormatError, match="no tuning record"):
            Bank(tmp_path).put(file, [other])
    assert file.read_bytes() == bank(trial(0, 1e-5))


def test_verbs_read_a_database_and_none_writes_single_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for side, lines in (
        ("base", [trial(0, 3e-5)]),
        ("ours", [trial(0, 3e-5), trial(1, 2e-5)]),
        ("theirs", [trial(0, 3e-5), trial(0, 1e-5, steps=STEPS[:1])]),
    ):
        Path(side).mkdir()
        Path(side, NAME).write_bytes(bank(*lines))
        Path(side, WORKLOADS).write_text('["1","e30="]\n' * len(lines))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.json")}

    def run(*arguments: str, exit_code: int = 0) -> str:
        outcome = golden_harness.run("aoebank", arguments)
        assert outcome.exit_code == exit_code, outcome
        return outcome.stdout + outcome.stderr

    assert "2 records" in run("ls", "ours")
    assert "target:      cuda-sm_90" in run("show", f"ours/{NAME}")
    assert "cuda-sm_90" in run("query", "SELECT soc_version FROM records", "ours")
    assert "30 -> 10 us" in run("diff", "base", "theirs", exit_code=1)
    assert "Split" in run("textconv", f"ours/{NAME}")
    run("validate", "ours", "--strict")
    run("report", "ours", "-o", "page.html")
    run("pack", "ours", "-o", "ours.tar.gz")
    run("unpack", "ours.tar.gz", "again")
    assert Path("again", WORKLOADS).read_bytes() == Path("ours", WORKLOADS).read_bytes()
    for command in (
        ("merge", "--base", "base", "ours", "theirs", "-o", "out"),
        ("edit", "ours", "--op", "C", "--set", "a=1"),
        ("quarantine", "add", "workload=0", "ours", "--reason", "wrong"),
        ("convert", "ours", "-o", "rows.jsonl"),
    ):
        assert "workload" in run(*command, exit_code=3)
    assert {path: path.read_bytes() for path in before} == before
    assert not Path("out").exists()
    run("quarantine", "add", "workload=0", "ours", "--reason", "wrong", "--keep")
    assert Path("ours", NAME).read_bytes() == before[tmp_path / "ours" / NAME]
