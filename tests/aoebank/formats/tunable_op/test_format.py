"""Results of TunableOp: contract, validators, times in milliseconds, lines that are none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support import golden_harness, sample_bank_files
from support.format_reading import FormatReading
from support.golden_harness import answer

from aoebank import Bank, BankFormatError
from aoebank.formats.tunable_op.format import TunableOpFormat
from aoebank.testing.format_tests import FormatTests

FORMAT = TunableOpFormat()
NAME = sample_bank_files.TUNABLE_OP.name
READING = FormatReading(FORMAT, NAME)
parse, places = READING.parse, READING.columns
HEAD = "Validator,PT_VERSION,2.14.0\nValidator,GCN_ARCH_NAME,gfx942:sramecc+:xnack-\n"
LINE = "GemmTunableOp_float_NT,nt_512_4096_64,Gemm_Rocblas_12,0.0323"


def bank(*lines: str, head: str = HEAD) -> bytes:
    return (head + "".join(f"{line}\n" for line in lines)).encode()


class TestContract(FormatTests):
    format = FORMAT
    file_name = NAME
    example = sample_bank_files.TUNABLE_OP.read_bytes()


class TestContractOfAListToTune(FormatTests):
    format = FORMAT
    file_name = "tunableop_untuned0.csv"
    example = bank(
        *(f"GemmTunableOp_float_TN,tn_{m}_4096_64_ld_64_64_{m}" for m in (8, 16, 32)), head=""
    )


class TestContractOfLinesWithAndWithoutTimes(FormatTests):
    format = FORMAT
    file_name = "tunableop_results_full0.csv"
    example = bank(
        LINE, LINE.replace("512", "8"), "A_B_NN,nn_1_2_3,Default", "C_D_NN,nn_x,y,1e-1,z"
    )


def test_record_has_microseconds_the_device_and_the_validators() -> None:
    record = FORMAT.record(parse(bank(LINE)), 0)
    assert (record.key, record.soc_version) == (
        "GemmTunableOp_float_NT,nt_512_4096_64",
        "gfx942:sramecc+:xnack-",
    )
    assert record.cost_us == pytest.approx(32.3)
    assert record.workload == {"params": "nt_512_4096_64", "M": 512, "N": 4096, "K": 64}
    assert record.strategy == {"solution": "Gemm_Rocblas_12"}
    assert record.extra["validators"] == {
        "PT_VERSION": "2.14.0",
        "GCN_ARCH_NAME": "gfx942:sramecc+:xnack-",
    }


@pytest.mark.parametrize(
    ("line", "code", "column"),
    [
        ("GemmTunableOp_float_NT", "AB219", 1),
        ("GemmTunableOp_float_NT,nt_8_8_8", "AB219", 1),
        ("GemmTunableOp_float_NT,8,Default,1", "AB313", 1),
        ("Validator,PT_VERSION,2.14.0", "AB221", 1),
        ("GemmTunableOp_float_NT,nt_8_8_8,0.0323,Gemm_Rocblas_12", "AB220", 40),
        ("GemmTunableOp_float_NT,nt_8_8_8,Gemm_Rocblas_12,nan", "AB402", 49),
        ("GemmTunableOp_float_NT,nt_8_8_8,Gemm_Rocblas_12,0", "AB402", 49),
        ("GemmTunableOp_float_NT, nt_8_8_8,Gemm_Rocblas_12,1", "AB314", 1),
        (LINE.replace("12,", "13,"), "AB306", 1),
        (LINE, "AB305", 1),
    ],
)
def test_bad_line_is_told_with_its_place(line: str, code: str, column: int) -> None:
    assert places(bank(LINE, line, LINE.replace("512", "8"))) == [(code, 4, column)]


def test_results_without_a_device_are_told() -> None:
    assert places(bank(LINE, head="Validator,PT_VERSION,2.14.0\n")) == [("AB315", 2, 1)]


def test_record_of_other_validators_is_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / NAME
    file.write_bytes(bank(LINE))
    record = FORMAT.record(parse(bank(LINE, head=HEAD.replace("gfx942", "gfx950"))), 0)
    with pytest.raises(BankFormatError, match="made under other validators"):
        Bank(tmp_path).put(file, [replace(record, soc_version=None)])
    for strategy in ({"solution": "a,b"}, {"solution": "a", "splitK": 2}):
        with pytest.raises(BankFormatError):
            own = FORMAT.record(parse(bank(LINE)), 0)
            Bank(tmp_path).put(file, [replace(own, strategy=strategy)])
    assert file.read_bytes() == bank(LINE)


def test_files_of_two_devices_are_not_merged_and_of_one_by_time(tmp_path: Path) -> None:
    paths = [tmp_path / side / NAME for side in "abc"]
    other = bank(LINE.replace("gfx942", "x"), head=HEAD.replace("gfx942", "gfx950"))
    faster = LINE.replace("_12,0.0323", "_99,0.0123")
    for path, data in zip(paths, (bank(LINE), bank(faster), other), strict=True):
        path.parent.mkdir()
        path.write_bytes(data)
    out = tmp_path / NAME
    call = ["merge", str(paths[0]), str(paths[1]), "-o", str(out)]
    assert golden_harness.run("aoebank", call).exit_code == 0
    assert out.read_bytes() == bank(faster)
    call = ["merge", str(paths[0]), str(paths[2]), "-o", str(tmp_path / "x.csv")]
    for option in ((), ("--allow-other-soc",)):
        outcome = golden_harness.run("aoebank", [*call, *option])
        assert outcome.exit_code == 3
        assert "gfx950" in outcome.stderr


def test_verbs_work_on_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bank").mkdir()
    file = Path("bank", NAME)
    file.write_bytes(bank(LINE))
    assert "tunable_op" in answer("ls", "bank")
    assert "target:      gfx942:sramecc+:xnack-" in answer("show", str(file))
    sql = "SELECT soc_version, op_type, cost_us FROM records"
    assert "gfx942:sramecc+:xnack-" in answer("query", sql, "bank")
    assert "solution" in answer("textconv", str(file))
    edit = ("edit", "bank", "--op", "GemmTunableOp_float_NT", "--set", 'solution="Default"')
    answer(*edit)
    assert file.read_bytes() == bank(LINE.replace("Gemm_Rocblas_12", "Default"))
    answer("convert", "bank", "-o", "rows.jsonl")
    answer("convert", "rows.jsonl", "-o", "again")
    assert Path("again", NAME).read_bytes() == file.read_bytes()
    answer("snapshot", "bank")
