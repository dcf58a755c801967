"""Repositories of AKG: contract, traits the look-up makes, shapes of two branches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support import golden_harness, sample_bank_files
from support.format_reading import FormatReading

from aoebank import RecordError
from aoebank.formats.akg.format import AkgFormat
from aoebank.formats.protocol import find_error
from aoebank.testing.format_tests import FormatTests

FORMAT = AkgFormat()
NAME = sample_bank_files.AKG.name
READING = FormatReading(FORMAT, NAME)
parse, codes = READING.parse, READING.codes
KERNEL = "2.ZerosLike1.GreaterEqual3.Select123.4"
ANSWER = {"float32--": {"dim": "0 0 1024 1024"}}
ATTRIBUTES = {"attrs": {"enable_double_buffer": False}}


def bank(kernels: Any, indent: int = 4) -> str:
    return json.dumps(kernels, indent=indent) + "\n"


def shapes(*names: str) -> str:
    return bank({KERNEL: {"metadata": ATTRIBUTES} | dict.fromkeys(names, ANSWER), "1.Abs1.2": {}})


class TestContract(FormatTests):
    format = FORMAT
    file_name = NAME
    example = sample_bank_files.AKG.read_bytes()


class TestContractOfAnotherProcess(FormatTests):
    format = FORMAT
    file_name = "repository_cuda.json"
    example = bank(
        {
            KERNEL: {"metadata": ATTRIBUTES, "8_16--": ANSWER},
            "1.Mul1.Tile1.2": {"metadata": ATTRIBUTES},
            "12.GreaterEqual6.MatMul12_1_0.Sub2021.2223": {
                "64_1-.768": {"float16--": {"dim": "0 0 8 1", "bind_block": "3 1 1"}}
            },
        },
        indent=1,
    ).encode()


def test_record_has_operators_inputs_and_the_process_as_target() -> None:
    (record, _) = parse(shapes("8_16--")).iter_records()
    assert (record.key, record.soc_version) == (KERNEL, "aicore")
    assert record.op_type == "ZerosLike_GreaterEqual_Select"
    assert record.workload == {
        "compute": KERNEL,
        "operators": ["ZerosLike", "GreaterEqual", "Select"],
        "inputs": 2,
    }
    assert FORMAT.workload_words(record) == "ZerosLike + GreaterEqual + Select, inputs: 2"
    assert [*FORMAT.strategy_words(record)] == [
        "shapes: 1, attributes for the others",
        'metadata attrs: {"enable_double_buffer":false}',
        '8_16-- float32--: {"dim":"0 0 1024 1024"}',
    ]


def test_empty_repository_as_mindspore_ships_it_is_told() -> None:
    parsed = parse("{\n}\n", "repository_cpu.json")
    assert [finding.code for finding in parsed.findings] == ["AB115"]
    assert find_error(parsed) is None


@pytest.mark.parametrize(
    ("kernel", "pointer"),
    [
        ({"Fuzzy_MatMul": {"8": {"attrs": {}}}}, "/Fuzzy_MatMul"),
        ({"1.Abs1.2": {"8_8.8_8": {"float32-": {}}}}, "/1.Abs1.2/8_8.8_8"),
        ({"1.Abs1.2": {"8_8-": {"float32.float32": {}}}}, "/1.Abs1.2/8_8-/float32.float32"),
        ({"1.Abs1.2": {"8_8-": {"float32--": {}}}}, "/1.Abs1.2/8_8-/float32--"),
        ({"1.Abs1.2": {"8_8-": {"float32-": {}}}}, None),
        ({"2.BatchMatMul12_0_1.3": {"any_shape": {"float32--": {}}}}, None),
    ],
)
def test_trait_no_look_up_makes_is_told_with_its_place(kernel: Any, pointer: str | None) -> None:
    found = [*FORMAT.check(parse(bank(kernel)))]
    assert [(one.code, one.location.pointer) for one in found] == (
        [("AB313", pointer)] if pointer else []
    )


@pytest.mark.parametrize(
    "kernel", ["3", '{"8_8-": 3}', '{"8_8-": {"float32-": 3}}', '{"metadata": {"attrs": 3}}']
)
def test_kernel_the_look_up_fails_on_is_an_error(kernel: str) -> None:
    text = f'{{"1.Abs1.2": {kernel}}}'
    assert codes(text) == ["AB206"]
    with pytest.raises(RecordError):
        FORMAT.record(parse(text), 0)


def test_attributes_outside_attrs_and_a_kernel_that_comes_twice_are_told() -> None:
    assert codes(bank({"1.Abs1.2": {"metadata": {"enable_double_buffer": True}}})) == ["AB211"]
    assert codes('{"1.Abs1.2": {}, "1.Abs1.2": {}}') == ["AB301"]


def _merge(folder: Path, *texts: str, exit_code: int = 0) -> str:
    places = [folder / side / NAME for side in ("base", "ours", "theirs")]
    for path, text in zip(places, texts, strict=True):
        path.parent.mkdir(parents=True)
        path.write_text(text)
    base, *sides = map(str, places)
    out = folder / "out.json"
    outcome = golden_harness.run("aoebank", ["merge", "--base", base, *sides, "-o", str(out)])
    assert outcome.exit_code == exit_code, outcome
    return out.read_text() if out.exists() else ""


def test_shapes_that_two_branches_tuned_for_one_kernel_come_together(tmp_path: Path) -> None:
    before, ours, theirs = shapes("8_8--"), shapes("8_8--", "16_8--"), shapes("8_8--", "32_8--")
    assert _merge(tmp_path, before, ours, theirs) == shapes("8_8--", "16_8--", "32_8--")


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (shapes("8_8--", "16_8--").replace("1024", "512"), shapes("8_8--", "32_8--")),
        (shapes("16_8--"), shapes("8_8--", "32_8--")),
        (shapes("8_8--", "16_8--"), shapes("8_8--").replace("1024", "1024.0")),
    ],
    ids=["changed", "removed", "another number"],
)
def test_shape_that_was_changed_or_removed_is_a_conflict(
    tmp_path: Path, ours: str, theirs: str
) -> None:
    _merge(tmp_path, shapes("8_8--"), ours, theirs, exit_code=1)


def test_processes_are_never_merged(tmp_path: Path) -> None:
    for name in ("repository.json", "repository_cuda.json"):
        (tmp_path / name).write_text(shapes("8_8--"))
    call = ["merge", *map(str, sorted(tmp_path.iterdir())), "-o", str(tmp_path / "out.json")]
    for option in ((), ("--allow-other-soc",)):
        outcome = golden_harness.run("aoebank", [*call, *option])
        assert outcome.exit_code == 3
        assert "cuda" in outcome.stderr


def test_verbs_work_on_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for side in ("bank", "other"):
        Path(side).mkdir()
    file = Path("bank", NAME)
    file.write_text(shapes("8_8--"))
    Path("other", NAME).write_text(shapes("8_8--").replace("1024 1024", "8 8"))

    def run(*arguments: str, exit_code: int = 0) -> str:
        outcome = golden_harness.run("aoebank", arguments)
        assert outcome.exit_code == exit_code, outcome
        return outcome.stdout

    assert "aicore" in run("ls", "bank")
    assert "target:      aicore" in run("show", f"{file}:{KERNEL}")
    assert "0 0 1024 1024" in run("diff", "bank", "other", exit_code=1)
    assert "metadata" in run("textconv", str(file))
    assert KERNEL in run("query", "SELECT soc_version, key FROM records", "bank")
    run("validate", "bank")
    run("report", "bank", "-o", "page.html")
    run("convert", "bank", "-o", "rows.jsonl")
    run("convert", "rows.jsonl", "-o", "again")
    assert Path("again", NAME).read_text() == file.read_text()
    operators = "ZerosLike_GreaterEqual_Select"
    run("edit", "bank", "--op", operators, "--set", 'metadata={"attrs": {}}')
    assert '"metadata": {"attrs":{}}' in file.read_text()
    run("quarantine", "add", KERNEL, "bank", "--reason", "wrong result")
    run("pack", "bank", "-o", "bank.tar")
