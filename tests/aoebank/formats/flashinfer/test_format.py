"""Tactics of FlashInfer: contract, keys of too few fields, Python that is no dictionary."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import golden_harness, sample_bank_files
from support.format_reading import FormatReading
from support.golden_harness import answer

from aoebank import Bank, BankFormatError
from aoebank.formats.flashinfer.format import FlashInferFormat
from aoebank.formats.text.json_text import JsonTextError
from aoebank.formats.text.python_text import dumps_literal, scan_literal
from aoebank.testing.format_tests import FormatTests

FORMAT = FlashInferFormat()
NAME = sample_bank_files.FLASHINFER.name
READING = FormatReading(FORMAT, NAME)
parse, codes = READING.parse, READING.codes
OP = "trtllm::fused_moe::gemm1"


def key(rows: int, extras: str = ", ('fp8', torch.float16)") -> str:
    return f"('{OP}', 'MoERunner', (({rows}, 512), (0,)){extras})"


def member(rows: int, tactic: str = "5", extras: str = ", ('fp8', torch.float16)") -> str:
    return f'    "{key(rows, extras)}": (\n        0,\n        {tactic},\n    ),\n'


def bank(*members: str) -> bytes:
    return f"best_configs = {{\n{''.join(members)}}}\n".encode()


class TestContract(FormatTests):
    format = FORMAT
    file_name = NAME
    example = sample_bank_files.FLASHINFER.read_bytes()


class TestContractOfAnotherSpelling(FormatTests):
    format = FORMAT
    file_name = "v0_1_trtllm_fused_moe_NVIDIA_GB200.py"
    example = (
        "# made by hand\nbest_configs = {  # keys\n"
        "'(\"a\", \"B\", ((1,),), ())': (0, 5), \"('ä', 'B', ((1,),), ())\": (1, -1),\n\n"
        "  \"('a', 'B', ((2,),), (None, True))\" : (0, (128, (1, 2), 'x'))\n}\n# end"
    ).encode()


def test_record_has_operator_shapes_and_the_device() -> None:
    (record,) = parse(bank(member(16))).iter_records()
    assert (record.key, record.soc_version, record.op_type) == (key(16), "NVIDIA_B200", OP)
    assert record.workload == {
        "operator": OP,
        "runner": "MoERunner",
        "shapes": [[16, 512], [0]],
        "extras": ["fp8", "torch.float16"],
    }
    assert record.strategy == {"runner": 0, "tactic": 5}
    assert FORMAT.workload_words(record) == "MoERunner 16x512 by 0"


@pytest.mark.parametrize("extras", ["", ", (), ()", ", 5", ", ("])
def test_key_of_other_fields_than_the_look_up_asks_with_is_told(extras: str) -> None:
    found = [*FORMAT.check(parse(bank(member(16), member(32, extras=extras))))]
    assert [(one.code, one.location.line) for one in found] == [("AB313", 6)]


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (bank(member(16, "5, 6")), "AB206"),
        (bank(member(16, "f(5)")), "AB103"),
        (bank(member(16), member(16)), "AB301"),
        (bank(member(16)) + b"x = 1\n", "AB107"),
        (b"x = {}\n", "AB201"),
        (bank(member(16, "9" * 5000)), "AB116"),
        (bank(member(16)).replace(b"),\n}", b"),\n"), "AB103"),
        (bank(member(16)).replace(b"),\n}", b")\n  'x', }"), "AB103"),
    ],
)
def test_what_is_no_dictionary_of_tactics_is_told(data: bytes, code: str) -> None:
    assert code in codes(data)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda items: st.lists(items, max_size=3),
        max_leaves=8,
    )
)
def test_literal_is_what_python_reads(value: object) -> None:
    text = dumps_literal(value)  # type: ignore[arg-type]

    def listed(read: object) -> object:
        return [*map(listed, read)] if isinstance(read, tuple) else read

    assert listed(ast.literal_eval(text)) == value
    assert scan_literal(text, 0) == (value, len(text))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r"'a\x41\u00e9\'\n'", "aAé'\n"),
        ("(1)", 1),
        ("(1,)", [1]),
        ("( # one\n 1 , 2.5e3,\n)", [1, 2500.0]),
        ("[]", []),
        ("torch.float8_e4m3fn", "torch.float8_e4m3fn"),
    ],
)
def test_literal_of_another_spelling_is_read(text: str, value: object) -> None:
    assert scan_literal(text, 0) == (value, len(text))


@pytest.mark.parametrize(
    "text", ["", r"'\x'", "(1 2)", "(1", "'a", "1_000", "0x1", "(" * 200, "-a", "+"]
)
def test_what_is_no_literal_is_refused(text: str) -> None:
    with pytest.raises(JsonTextError):
        scan_literal(text, 0)


def test_record_with_more_than_a_tactic_is_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / NAME
    file.write_bytes(bank(member(16)))
    (own,) = parse(bank(member(16))).iter_records()
    for record in (
        replace(own, cost_us=3.0),
        replace(own, strategy={"tactic": 5}),
        replace(own, extra={"a": 1}),
    ):
        with pytest.raises(BankFormatError, match=r"without loss|no runner"):
            Bank(tmp_path).put(file, [record])
    assert file.read_bytes() == bank(member(16))


def test_verbs_work_on_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for side, data in (
        ("base", bank(member(16), member(32))),
        ("ours", bank(member(16), member(32), member(64))),
        ("theirs", bank(member(16, "6"), member(32))),
    ):
        Path(side).mkdir()
        Path(side, NAME).write_bytes(data)
    answer("merge", "--base", "base", "ours", "theirs", "-o", "out")
    file = Path("out", NAME)
    assert file.read_bytes() == bank(member(16, "6"), member(32), member(64))
    assert "NVIDIA_B200" in answer("ls", "out")
    assert "MoERunner 64x512" in answer("show", str(file))
    assert "tactic" in answer("textconv", str(file))
    assert "5 -> 6" in answer("diff", "base", "theirs", exit_code=1)
    assert OP in answer("query", "SELECT soc_version, op_type FROM records", "out")
    answer("validate", "out")
    answer("edit", "out", "--op", OP, "--set", "tactic=3")
    assert file.read_bytes() == bank(member(16, "3"), member(32, "3"), member(64, "3"))
    answer("convert", "out", "-o", "rows.jsonl")
    answer("convert", "rows.jsonl", "-o", "again")
    assert Path("again", NAME).read_bytes() == file.read_bytes()


def test_another_gpu_is_never_merged(tmp_path: Path) -> None:
    for name in (NAME, NAME.replace("B200", "GB200")):
        (tmp_path / name).write_bytes(bank(member(16)))
    call = ["merge", *map(str, sorted(tmp_path.iterdir())), "-o", str(tmp_path / "out.py")]
    for option in ((), ("--allow-other-soc",)):
        outcome = golden_harness.run("aoebank", [*call, *option])
        assert outcome.exit_code == 3
        assert "GB200" in outcome.stderr
