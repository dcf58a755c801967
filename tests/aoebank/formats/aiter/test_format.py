"""Tables of aiter: contract, devices in keys, slipped and ragged rows, losses refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support import sample_bank_files
from support.format_reading import FormatReading
from support.golden_harness import answer, run

import aoebank
from aoebank import Bank, BankFormatError
from aoebank.formats.aiter.format import AiterFormat
from aoebank.model.json_value import JsonValue
from aoebank.testing.format_tests import FormatTests

FORMAT = AiterFormat()
NAME = sample_bank_files.AITER.name
READING = FormatReading(FORMAT, NAME)
parse, findings, places = READING.parse, READING.findings, READING.columns
HEADER = "cu_num,M,N,K,kernelId,splitK,us,kernelName,errRatio"
ROW = "80,16,512,256,3,0,9.5,gemm_16x64,0.0"
FMOE_HEADER = (
    "cu_num,token,model_dim,inter_dim,expert,topk,act_type,dtype,q_dtype_a,q_dtype_w,q_type,"
    "use_g1u1,doweight_stage1,block_m,ksplit,us1,kernelName1,err1,us2,kernelName2,err2,us,"
    "run_1stage,tflops,bw"
)
FMOE_ROW = (
    "256,{token},7168,512,256,8,ActivationType.Silu,torch.bfloat16,torch.float8_e4m3fn,"
    "torch.float8_e4m3fn,QuantType.per_Tensor,1,0,32,0,278.8859,stage1_32x512,0.0%,141.0514,"
    "stage2_32x128,2.8%,{us},{one},26.85,6715.17"
)


def lines(*rows: str) -> bytes:
    return "".join(f"{row}\n" for row in rows).encode()


class TestContract(FormatTests):
    format = FORMAT
    file_name = NAME
    example = sample_bank_files.AITER.read_bytes()


class TestContractOfMoeLayers(FormatTests):
    format = FORMAT
    file_name = "tuned_fmoe.csv"
    example = lines(
        FMOE_HEADER, *(FMOE_ROW.format(token=2**n, us="419.9373", one=0) for n in range(4))
    )[:-1]


class TestContractOfAListToTune(FormatTests):
    format = FORMAT
    file_name = "llama_untuned_gemm_bf16.csv"
    example = lines("M,N,K,bias,dtype", *(f"{m},512,256,False,torch.bfloat16" for m in (1, 16, 8)))


class TestContractOfAnotherSpelling(FormatTests):
    format = FORMAT
    file_name = "bf16_tuned_gemm.csv"
    example = lines(
        "M,N,K,dtype,gfx,cu_num,libtype,us,kernelName,err_ratio,note",
        '16,64,64,torch.bfloat16,gfx942,80,asm,8.30,"a,b",0.0,',
        "32,64,64,torch.bfloat16,gfx942,80,asm,1e1,x,0.0,seen twice",
        "16,64,64,torch.bfloat16,gfx950,256,asm,8.30,x,,",
    )


def test_key_has_the_device_and_the_workload() -> None:
    parsed = parse(TestContractOfAnotherSpelling.example)
    assert parsed.keys[0] == "gfx=gfx942,cu_num=80,M=16,N=64,K=64,dtype=torch.bfloat16"
    record = FORMAT.record(parsed, 0)
    assert (record.soc_version, record.cost_us) == ("gfx942-cu80", 8.3)
    assert record.workload == {"M": 16, "N": 64, "K": 64, "dtype": "torch.bfloat16"}
    assert record.strategy == {"libtype": "asm", "kernelName": "a,b"}
    assert record.extra == {"errRatio": 0.0}
    assert len({*parsed.keys}) == 3


def test_row_that_slipped_by_a_column_is_an_error() -> None:
    good, bad = (
        FMOE_ROW.format(token=32, us="419.9373", one=0),
        FMOE_ROW.format(token=64, us="0.0", one=419),
    )
    found = findings(lines(FMOE_HEADER, good, bad), "tuned_fmoe.csv")
    assert {(one.code, one.location.line) for one in found} == {("AB220", 3), ("AB402", 3)}
    assert found[0].location.column == bad.index(",419,") + 2


@pytest.mark.parametrize(
    ("row", "code", "column"),
    [
        ("80,32,512,256,3,0,9.5", "AB219", 19),
        (ROW + ",1", "AB219", len(ROW) + 2),
        ('80,32,512,256,3,0,9.5,"gemm,0.0', "AB219", 1),
        (HEADER, "AB221", 1),
        (HEADER.replace("errRatio", "err"), "AB221", 1),
        (HEADER + ",bw", "AB221", 1),
        ("80,32,512,256,gemm_16x64,0,9.5,3,0.0", "AB220", 15),
        ("80,32,512,256,3,0,nan,gemm,0.0", "AB402", 19),
        ("80,32,512,256,3,0,inf,gemm,0.0", "AB402", 19),
        ("80,32,512,256,3,0,-1,gemm,0.0", "AB402", 19),
        ("80, 32,512,256,3,0,9.5,gemm,0.0", "AB314", 1),
        ("80,16,512,256,4,0,9.5,gemm,0.0", "AB306", 1),
        (ROW, "AB305", 1),
        ("", "AB112", 1),
    ],
)
def test_bad_row_is_told_with_its_place(row: str, code: str, column: int) -> None:
    found = places(lines(HEADER, ROW, row, "256,16,512,256,3,0,9.5,gemm_16x64,0.0"))
    assert (code, 3, column) in found
    assert {line for _, line, _ in found} == {3}


def test_truncated_table_keeps_its_whole_rows() -> None:
    data = lines(HEADER, ROW, ROW.replace("16,", "32,", 1))
    parsed = parse(data[:-8])
    assert len(parsed) == 1
    assert [one.code for one in parsed.findings] == ["AB219"]


def test_table_without_a_workload_or_a_device_is_told() -> None:
    assert [one.code for one in findings(lines("a,b,us", "1,2,3"))] == ["AB205"]
    assert [one.code for one in findings(lines("M,N,K,us", "1,2,3,4.5"))] == ["AB315"]


def test_record_with_a_column_the_table_lacks_is_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / NAME
    file.write_bytes(lines(HEADER, ROW))
    record = FORMAT.record(parse(lines(HEADER, ROW)), 0)
    with pytest.raises(BankFormatError, match="the table has no column libtype"):
        Bank(tmp_path).put(file, [replace(record, strategy={"libtype": "asm"})])
    assert file.read_bytes() == lines(HEADER, ROW)


@pytest.mark.parametrize("value", ["16", " gemm", [1]])
def test_value_no_column_holds_is_refused_by_name(tmp_path: Path, value: JsonValue) -> None:
    file = tmp_path / NAME
    file.write_bytes(lines(HEADER, ROW))
    op = NAME.removesuffix(".csv")
    with pytest.raises(BankFormatError, match="column holds no such value"):
        aoebank.edit(file, op=op, assign={"kernelName": value})
    assert file.read_bytes() == lines(HEADER, ROW)


def test_rows_come_under_their_own_header_where_the_other_table_has_none(tmp_path: Path) -> None:
    """Under the other one they would have their numbers in other columns."""
    other = "cu_num,M,N,K,splitK,kernelId,us,kernelName,errRatio"
    for name, data in (("a", lines(other)), ("b", lines(HEADER, ROW))):
        (tmp_path / name).mkdir()
        (tmp_path / name / NAME).write_bytes(data)
    for number, sides in enumerate((("a", "b"), ("b", "a"), ("a", "b", "a"))):
        out = tmp_path / f"out{number}"
        result = aoebank.merge(*(tmp_path / side for side in sides), output=out)
        assert (out / NAME).read_bytes() == lines(HEADER, ROW), sides
        assert result.moves.added == (sides[0] != "b")


def test_rows_of_a_conflict_are_shown_under_the_header_of_their_table(tmp_path: Path) -> None:
    """Their columns are not those of a table nobody wrote yet."""
    header, row = "gfx,cu_num,M,N,K,kernelName", "gfx942,80,16,512,256,{}"
    for side in ("a", "b"):
        (tmp_path / side).mkdir()
        (tmp_path / side / NAME).write_bytes(lines(header, row.format(f"gemm_{side}")))
    out = tmp_path / "out"
    answer("merge", str(tmp_path / "a"), str(tmp_path / "b"), "-o", str(out), exit_code=1)
    page = tmp_path / "page.html"
    call = ["merge", "--apply", str(out / f"{NAME}.conflicts"), "--html", str(page), "--json"]
    assert run("aoebank", call).exit_code == 0
    assert "cannot be read" not in page.read_text()
    assert all(f"gemm_{side}" in page.read_text() for side in ("a", "b"))


def test_target_asked_for_is_that_of_the_row(tmp_path: Path) -> None:
    """The path of a table names none."""
    other = ROW.replace("80,", "256,", 1)
    file = tmp_path / NAME
    file.write_bytes(lines(HEADER, ROW, other))
    aoebank.snapshot(tmp_path)
    slower = [row.replace("9.5", "99.5") for row in (ROW, other)]
    file.write_bytes(lines(HEADER, *slower))
    aoebank.restore("latest", tmp_path, soc="cu80")
    assert file.read_bytes() == lines(HEADER, ROW, slower[1])
    blamed = aoebank.blame("cu_num=", tmp_path, soc="cu80").records
    key = "cu_num=256,M=16,N=512,K=256"
    assert [one.key for one in blamed] == [key.replace("256", "80", 1)]
    for soc in ("cu80", "cu256"):
        call = ["quarantine", "add", key, str(tmp_path), "--reason", "wrong", "--soc", soc]
        assert run("aoebank", call).exit_code == (0 if soc == "cu256" else 3)
    assert file.read_bytes() == lines(HEADER, ROW)
    told = {finding.code for finding in aoebank.validate(tmp_path).findings}
    assert "AB514" not in told  # the entry is for a row such a table may have


def test_merge_keeps_rows_of_every_device(tmp_path: Path) -> None:
    for side, rows in (
        ("base", [ROW]),
        ("ours", [ROW, "256,16,512,256,3,0,9.5,gemm_16x64,0.0"]),
        ("theirs", [ROW.replace("9.5", "7.5"), "304,16,512,256,3,0,1.5,gemm_16x64,0.0"]),
    ):
        (tmp_path / side).mkdir()
        (tmp_path / side / NAME).write_bytes(lines(HEADER, *rows))
    out = tmp_path / "out"
    call = ["merge", "--base", *(str(tmp_path / side) for side in ("base", "ours", "theirs"))]
    answer(*call, "-o", str(out))
    assert (out / NAME).read_bytes() == lines(
        HEADER,
        ROW.replace("9.5", "7.5"),
        "304,16,512,256,3,0,1.5,gemm_16x64,0.0",
        "256,16,512,256,3,0,9.5,gemm_16x64,0.0",
    )


def test_verbs_work_on_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bank").mkdir()
    file = Path("bank", NAME)
    other = "256,16,512,256,3,0,9.5,gemm_16x64,0.0"
    file.write_bytes(lines(HEADER, ROW, other))
    Path("old").mkdir()
    Path("old", NAME).write_bytes(lines(HEADER, ROW.replace("9.5", "19.5"), other))
    assert "a8w8_tuned_gemm" in answer("ls", "bank")
    assert "kernelId=3" in answer("show", f"{file}:cu_num=80,M=16,N=512,K=256")
    shown = answer("diff", "old", "bank", exit_code=1)
    assert "19.5" in shown
    assert "cu_num=80" in shown
    assert "19.5" not in answer("diff", "old", "bank", "--soc", "cu256")
    sql = "SELECT soc_version, count(*) AS n FROM records GROUP BY 1 ORDER BY 1"
    assert answer("query", sql, "bank").split()[2:6] == ["cu256", "1", "cu80", "1"]
    assert "record cu_num=80" in answer("textconv", str(file))
    edited = ["edit", "bank", "--op", "a8w8_tuned_gemm", "--soc", "cu80", "--set", "splitK=1"]
    answer(*edited)
    assert file.read_bytes() == lines(HEADER, ROW.replace(",3,0,", ",3,1,"), other)
    file.write_bytes(lines(HEADER, ROW, "256, 16, 512,256,3,0,9.5,gemm_16x64,0.0"))
    answer("validate", "--fix", "--fix-class", "key", "bank")
    assert file.read_bytes() == lines(HEADER, ROW, other)
    answer("convert", "bank", "-o", "rows.jsonl")
    answer("convert", "rows.jsonl", "-o", "again")
    assert Path("again", NAME).read_bytes() == file.read_bytes()
    answer("pack", "bank", "-o", "bank.tar.gz")
    answer("snapshot", "bank")
