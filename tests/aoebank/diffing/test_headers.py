"""The text before the records counts for all of them: a change of it is told."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import golden_harness

from aoebank.diffing.report import header_text
from aoebank.diffing.result import DiffResult
from aoebank.diffing.run import diff
from aoebank.storage.sides.side import PathSide

TRITON = "E=8,N=1024,device_name=NVIDIA_H200.json"
ROW = '"1": {"BLOCK_SIZE_M": 16}'
TABLE = "a8w8_tuned_gemm.csv"
PRODUCT = "cu_num,M,N,K,kernelId,splitK,us,{}\n80,16,1536,7168,8,0,19.3,0.0\n"


def changed(folder: Path, name: str, a: str, b: str) -> DiffResult:
    sides = []
    for side, text in (("a", a), ("b", b)):
        file = folder / side / name
        file.parent.mkdir()
        file.write_text(text)
        sides.append(PathSide(label=side, path=file.parent))
    return diff(*sides)


@pytest.mark.parametrize(
    ("name", "text", "a", "b", "told"),
    [
        (
            TRITON,
            '{"triton_version": "%s", ' + ROW + "}",
            "3.4.0",
            "3.5.0",
            '"triton_version": "3.4.0" -> "triton_version": "3.5.0"',
        ),
        (TABLE, PRODUCT.replace("{}", "%s"), "err", "errRatio", "err -> errRatio"),
    ],
)
def test_header_that_changed_is_told_and_no_record_is(
    tmp_path: Path, name: str, text: str, a: str, b: str, told: str
) -> None:
    result = changed(tmp_path, name, text % a, text % b)
    assert result.changes == ()
    assert [(one.file, header_text(one)) for one in result.headers] == [(name, told)]


def test_every_output_tells_it_and_the_answer_is_one(tmp_path: Path) -> None:
    text = '{"triton_version": "%s", ' + ROW + "}"
    changed(tmp_path, TRITON, text % "3.4.0", text % "3.5.0")
    for output in ((), ("--html",), ("--markdown",), ("--json",)):
        sides = [str(tmp_path / "a"), str(tmp_path / "b")]
        outcome = golden_harness.run("aoebank", ["diff", *sides, *output])
        assert outcome.exit_code == 1
        assert "3.5.0" in outcome.stdout
        assert "target" in outcome.stdout or output != ("--html",)


def test_equal_headers_and_a_file_without_records_have_no_change(tmp_path: Path) -> None:
    assert changed(tmp_path, TRITON, "{" + ROW + "}", "{}").headers == ()
