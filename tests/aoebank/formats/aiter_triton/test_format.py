"""Triton configurations of aiter: contract, names, gaps between classes of sizes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support import sample_bank_files
from support.format_reading import FormatReading
from support.golden_harness import answer

from aoebank.formats.aiter_triton.format import AiterTritonFormat
from aoebank.formats.names import BankName
from aoebank.testing.format_tests import FormatTests

FORMAT = AiterTritonFormat()
NAME = sample_bank_files.AITER_TRITON.name
READING = FormatReading(FORMAT, NAME)
parse, codes = READING.parse, READING.codes
ROW = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "num_warps": 4, "cache_modifier": None}


def bank(*names: str) -> str:
    return json.dumps(dict.fromkeys(names, ROW), indent=2)


class TestContract(FormatTests):
    format = FORMAT
    file_name = NAME
    example = sample_bank_files.AITER_TRITON.read_bytes()


class TestContractOfNamedClasses(FormatTests):
    format = FORMAT
    file_name = "MI350X-MOE-MX_FP4.json"
    example = json.dumps(dict.fromkeys(("small_M", "medium_M", "large_M"), ROW)).encode()


@pytest.mark.parametrize(
    ("name", "device", "kernel"),
    [
        (NAME, "MI300X", "GEMM-A8W8-N=1024-K=8192"),
        ("gfx950-GEMM-A16W16.json", "gfx950", "GEMM-A16W16"),
        ("MI350X-FF-A16W16-fused.json", "MI350X", "FF-A16W16-fused"),
    ],
)
def test_name_says_device_and_kernel(name: str, device: str, kernel: str) -> None:
    assert FORMAT.parse_name(name) == BankName(soc_version=device, op_type=kernel)
    assert FORMAT.build_name(BankName(soc_version=device, op_type=kernel)) == name


def test_workload_is_a_range_with_the_sizes_of_the_name() -> None:
    first, _, last = parse(bank("M_LEQ_8", "M_GEQ_64", "any")).iter_records()
    assert first.workload == {"class": "M_LEQ_8", "M_max": 8, "N": 1024, "K": 8192}
    assert last.workload == {"class": "any", "N": 1024, "K": 8192}


@pytest.mark.parametrize(
    ("names", "gap"),
    [
        (("M_LEQ_64", "M_LEQ_2048", "M_GEQ_4096"), "M from 2049 to 4095"),
        (("M_LEQ_2048", "M_LEQ_64"), "M from 2049 on"),
        (("M_LEQ_64", "M_GEQ_65"), ""),
        (("M_LEQ_64", "any"), ""),
        (("small", "large"), ""),
    ],
)
def test_sizes_without_a_class_are_told(names: tuple[str, ...], gap: str) -> None:
    found = [*FORMAT.check(parse(bank(*names)))]
    assert [finding.code for finding in found] == (["AB316"] if gap else [])
    assert not gap or (found[0].got or "").endswith(gap)


@pytest.mark.parametrize(
    ("row", "code"),
    [('{"BLOCK_SIZE_M": 48}', "AB404"), ('{"cache_modifier": "None"}', "AB411"), ("3", "AB206")],
)
def test_configuration_no_kernel_takes_is_told(row: str, code: str) -> None:
    assert codes(f'{{"small": {row}, "any": {{}}}}') == [code]
    assert codes('{"any": {}, "any": {}}') == ["AB301"]


def test_verbs_work_on_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for side, text in (
        ("base", bank("M_LEQ_8", "any")),
        ("ours", bank("M_LEQ_8", "M_LEQ_64", "any")),
        ("theirs", bank("M_LEQ_8", "any").replace('"num_warps": 4', '"num_warps": 8', 1)),
    ):
        Path(side).mkdir()
        Path(side, NAME).write_text(text)
    answer("merge", "--base", "base", "ours", "theirs", "-o", "out")
    expected = bank("M_LEQ_8", "M_LEQ_64", "any").replace('"num_warps": 4', '"num_warps": 8', 1)
    assert Path("out", NAME).read_text() == expected
    assert "MI300X" in answer("ls", "out")
    assert "M_max=64" in answer("show", f"out/{NAME}")
    assert "class=any" in answer("show", f"out/{NAME}:any")
    assert "4 -> 8" in answer("diff", "base", "theirs", exit_code=1)
    answer("edit", "out", "--op", "GEMM-A8W8-N=1024-K=8192", "--set", "num_warps=2")
    assert Path("out", NAME).read_text() == bank("M_LEQ_8", "M_LEQ_64", "any").replace(
        '"num_warps": 4', '"num_warps": 2'
    )
