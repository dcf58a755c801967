"""Format of vLLM and SGLang: contract, names, properties of a file, rows nobody finds."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support import golden_harness, sample_bank_files
from support.format_reading import FormatReading
from support.golden_harness import answer

from aoebank import RecordError
from aoebank.formats.names import BankName
from aoebank.formats.protocol import find_error
from aoebank.formats.vllm.format import VllmFormat
from aoebank.testing.format_tests import FormatTests

FORMAT = VllmFormat()
NAME = sample_bank_files.VLLM.name
READING = FormatReading(FORMAT, NAME)
parse, codes = READING.parse, READING.codes
EXAMPLE = sample_bank_files.VLLM.read_bytes()
ROW = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 128, "num_warps": 4}
SGLANG = "E=8,N=1024,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128, 128].json"


def bank(**rows: Any) -> str:
    return json.dumps({name.removeprefix("m"): row for name, row in rows.items()}, indent=4)


class TestContract(FormatTests):
    format = FORMAT
    file_name = NAME
    example = EXAMPLE


class TestContractOfSglang(FormatTests):
    format = FORMAT
    file_name = SGLANG
    example = json.dumps({"1": ROW, "16": ROW, "4": ROW, "58368": ROW}, indent=2).encode()


class TestContractOfAFileWithItsVersionLast(FormatTests):
    format = FORMAT
    file_name = "N=512,K=7168,device_name=AMD_Instinct_MI300X,dtype=int8_w8a8.json"
    example = json.dumps({"1": ROW, "2": ROW, "4": ROW, "triton_version": "3.4.0"}).encode()


@pytest.mark.parametrize(
    ("name", "device", "workload"),
    [
        (NAME, "NVIDIA_H200", "E=8,N=1024,dtype=fp8_w8a8,block_shape=[128,128]"),
        (SGLANG, "NVIDIA_H200", "E=8,N=1024,dtype=fp8_w8a8,block_shape=[128,128]"),
        ("E=8,N=96,device_name=NVIDIA_H20-3e_down.json", "NVIDIA_H20-3e", "E=8,N=96_down"),
        (
            "E=8,N=96,device_name=Intel(R)_Arc(TM)_Pro,dtype=int4_w4a16,backend=x_down.json",
            "Intel(R)_Arc(TM)_Pro",
            "E=8,N=96,dtype=int4_w4a16,backend=x_down",
        ),
        (
            "headdim=64,dstate=128,device_name=NVIDIA_B200,cache_dtype=float32.json",
            "NVIDIA_B200",
            "headdim=64,dstate=128,cache_dtype=float32",
        ),
    ],
)
def test_name_says_device_and_workload(name: str, device: str, workload: str) -> None:
    assert FORMAT.parse_name(name) == BankName(soc_version=device, op_type=workload)
    built = FORMAT.build_name(BankName(soc_version=device, op_type=workload))
    assert built == name.replace(" ", "")


def test_workload_has_the_sizes_of_the_name() -> None:
    record = FORMAT.record(parse(EXAMPLE), 0)
    assert (record.key, record.soc_version) == ("8", "NVIDIA_H200")
    sizes = {"M": 8, "E": 8, "N": 1024, "dtype": "fp8_w8a8", "block_shape": [128, 128]}
    assert record.workload == sizes


def test_triton_version_is_no_row_and_stays_where_it_is() -> None:
    parsed = parse(EXAMPLE)
    assert "triton_version" not in parsed.keys
    assert FORMAT.header(parsed) == '"triton_version": "3.5.0"'
    emptied = FORMAT.serialize(parsed, dict.fromkeys(parsed.keys))
    assert json.loads(emptied) == {"triton_version": "3.5.0"}
    first = replace(FORMAT.record(parsed, 0), key="4")
    again = FORMAT.serialize(parse(emptied), {"4": first})
    assert list(json.loads(again)) == ["triton_version", "4"]
    assert again.startswith(b'{\n    "triton_version": "3.5.0",\n    "4": {\n')
    assert codes('{"triton_version": 3.5, "1": {}}') == ["AB206"]


@pytest.mark.parametrize(
    "name", ["default", "M_LEQ_16", "-1", "1.5", "", "1_0", "9" * 5000, "0" * 5000]
)
def test_row_named_by_no_number_is_an_error(name: str) -> None:
    assert codes(bank(m1=ROW, **{f"m{name}": ROW})) == ["AB313"]


def test_blank_in_a_key_is_told_and_mended(tmp_path: Path) -> None:
    data = bank(**{"m 1": ROW, "m16": ROW, "m032": ROW})
    assert codes(data) == ["AB314", "AB314"]
    assert parse(data).keys == ["1", "16", "32"]
    file = tmp_path / NAME
    file.write_text(data)
    answer("validate", "--fix", "--fix-class", "key", str(file))
    assert file.read_text() == bank(m1=ROW, m16=ROW, m32=ROW)


def test_row_that_comes_twice_counts_where_readers_take_it() -> None:
    data = '{"16": {"BLOCK_SIZE_M": 16}, " 16": {"BLOCK_SIZE_M": 32}}'
    assert codes(data) == ["AB301", "AB314"]
    parsed = parse(data)
    assert FORMAT.record(parsed, parsed.places["16"]).strategy == {"BLOCK_SIZE_M": 32}


@pytest.mark.parametrize(
    ("row", "code"),
    [
        ({"BLOCK_SIZE_M": 48}, "AB404"),
        ({"num_warps": 0}, "AB404"),
        ({"BLOCKSIZE_M": 16}, "AB211"),
        ({"USE_TMA": "False"}, "AB411"),
    ],
)
def test_value_no_kernel_takes_is_told(row: dict[str, Any], code: str) -> None:
    assert codes(bank(m1=ROW, m2={**ROW, **row})) == [code]


def test_infinity_no_json_has_is_told() -> None:
    data = bank(m1=ROW, m2=ROW).replace('"BLOCK_SIZE_M": 16', '"BLOCK_SIZE_M": 1e999', 1)
    assert codes(data) == ["AB404"]


def test_row_without_a_configuration_cannot_be_read() -> None:
    data = bank(m1=ROW, m512=None)
    assert codes(data) == ["AB206"]
    with pytest.raises(RecordError) as caught:
        FORMAT.record(parse(data), 1)
    assert (caught.value.line, caught.value.pointer) == (8, "/512")


def test_file_without_a_device_is_told(tmp_path: Path) -> None:
    (tmp_path / "E=8,N=64,device_name=,dtype=fp8_w8a8.json").write_text(bank(m1=ROW))
    shown = answer("validate", str(tmp_path), exit_code=0)
    assert "AB518" in shown
    assert "AB502" not in shown


def test_verbs_work_on_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    name = "triton_3_5_0/" + SGLANG
    for side, data in (
        ("base", bank(m1=ROW, m16=ROW, m64=ROW)),
        ("ours", bank(m1=ROW, m16={**ROW, "num_warps": 8}, m64=ROW)),
        ("theirs", bank(m1=ROW, m16=ROW, m32=ROW, m64=ROW)),
    ):
        (tmp_path / side / name).parent.mkdir(parents=True)
        (tmp_path / side / name).write_text(data)
    answer("merge", "--base", "base", "ours", "theirs", "--output", "out")
    merged = (tmp_path / "out" / name).read_text()
    assert merged == bank(m1=ROW, m16={**ROW, "num_warps": 8}, m32=ROW, m64=ROW)
    assert answer("ls", "out").startswith("target       cores")
    shown = answer("show", f"out/{name}:16")
    assert "M=16 E=8 N=1024" in shown
    assert "target:      NVIDIA_H200" in shown
    assert "4 -> 8" in answer("diff", "base", "ours", exit_code=1)
    assert "record 16" in answer("textconv", f"out/{name}")
    counted = answer("query", "SELECT soc_version, count(*) AS n FROM records GROUP BY 1", "out")
    assert "NVIDIA_H200" in counted
    answer("snapshot", "out", "--soc", "NVIDIA_H200")
    assert "triton_3_5_0" not in answer("log", "out")


def test_rows_of_two_devices_are_never_one_file(tmp_path: Path) -> None:
    sides = [tmp_path / SGLANG, tmp_path / SGLANG.replace("H200", "H20")]
    for side, rows in zip(sides, (bank(m1=ROW), bank(m2=ROW)), strict=True):
        side.write_text(rows)
    for option in ((), ("--allow-other-soc",)):
        arguments = ["merge", *map(str, sides), "-o", str(tmp_path / "out.json"), *option]
        outcome = golden_harness.run("aoebank", arguments)
        assert outcome.exit_code == 3
        assert "bank file is for another target" in outcome.stderr
        assert "--allow-other-soc" not in outcome.stderr


def test_files_of_two_triton_versions_are_never_one(tmp_path: Path) -> None:
    sides = [tmp_path / "a" / NAME, tmp_path / "b" / NAME]
    for side, version in zip(sides, ("3.4.0", "3.5.0"), strict=True):
        side.parent.mkdir()
        side.write_text(json.dumps({"triton_version": version, "1": ROW}))
    outcome = golden_harness.run("aoebank", ["merge", *map(str, sides), "-o", str(tmp_path / NAME)])
    assert outcome.exit_code == 3
    assert '"triton_version": "3.5.0"' in outcome.stderr
    assert find_error(parse(sides[0].read_bytes())) is None
