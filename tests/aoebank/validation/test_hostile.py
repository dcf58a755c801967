"""Whatever lies in a tree: an answer, in time that grows with its size, and no traceback."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import golden_harness
from support.faulty_system import FaultySystem
from support.tiers import few_every_day

from aoebank.formats.registry import FORMATS
from aoebank.validation.built_in import BuiltInBank
from aoebank.validation.run import validate

UNIFIED = "x86-64-v4_2_AiCore_x.json"
RUNTIME = "Ascend910B3_20_AiCore_x_runtime_kb.json"
NAMES = (
    UNIFIED,
    RUNTIME,
    f"{UNIFIED}.provenance.jsonl",
    "repository_ascend910B3_matmul.json",
    "Ascend310_AiCore_2_v001.json",
    "ascend910b3_l2cache.json",
    "Ascend910B3_gradient_fusion.json",
    "E=8,N=64,device_name=NVIDIA_H200.json",
    "a8w8_tuned_gemm.csv",
    "tunableop_results0.csv",
    "database_tuning_record.json",
    "repository.json",
    "v0_1_trtllm_fused_moe_NVIDIA_B200.py",
    "add-kernel_tuner.json",
    "add-t4-results.json",
    "MI300X-GEMM-A8W8.json",
    "odd.json",
    "odd.bin",
    "odd",
)


def hostile(lines: int) -> tuple[bytes, ...]:
    """Return files nobody means to write; those that have many lines have about so many."""
    return (
        b"",
        b"\n",
        b"{}",
        b"[]",
        b"null",
        b"\x00" * 4096,
        b"\xff\xfe{\x00}\x00",
        b"[" * 200_000,
        b'{"a":' * 200_000,
        b'"' + b"x" * 1_000_000,
        b"1" * 1_000_000,
        b'{"a": ' + b"9" * 50_000 + b"}",
        b"\n" * lines,
        b"{}\n" * lines,
        b"1e999\n" * 100,
        b'{"cost_time": NaN}',
        b"<<<<<<< a\n=======\n>>>>>>> b\n",
        b"\xef\xbb\xbf",
        b"\r\n\r\n",
        b'{"shape": {}, "tiling": []}\n' * 3,
        b'{"\\ud800": "\\udfff"}',
        b"[" + b'{"modelhash":' * (lines // 2),
        b"{" + b'"[[1]]":"\n' * (lines // 4),
    )


def demand_an_answer(folder: Path, names: Sequence[str], data: bytes) -> None:
    """Check files of these bytes: each is looked at, and every output tells what was found."""
    for name in names:
        (folder / name).write_bytes(data)
    result = validate([folder])
    assert result.files + result.passed_over == len(names)
    assert all(finding.message for finding in result.findings)
    for output in ("text", "json", "sarif", "junit", "github"):
        outcome = golden_harness.run(
            "aoebank", ["validate", str(folder), "--format", output, "--select", "AB5,AB11"]
        )
        assert outcome.exit_code in (0, 1)


@pytest.mark.parametrize("data", few_every_day(hostile(300), 4), ids=lambda data: repr(data[:20]))
def test_hostile_bytes_are_findings_under_all_names(tmp_path: Path, data: bytes) -> None:
    demand_an_answer(tmp_path, NAMES, data)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("data", hostile(20_000), ids=lambda data: repr(data[:20]))
def test_hostile_bytes_are_findings_under_any_name(tmp_path: Path, name: str, data: bytes) -> None:
    demand_an_answer(tmp_path, [name], data)


@given(data=st.binary(max_size=200))
def test_random_bytes_survive_check_and_fix_under_any_name(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    folder = tmp_path_factory.mktemp("random")
    for name in NAMES:
        (folder / name).write_bytes(data)
    outcome = golden_harness.run("aoebank", ["validate", str(folder), "--fix"])
    assert outcome.exit_code in (0, 1)
    assert outcome.stderr == ""


def test_every_format_is_among_the_names() -> None:
    for format_ in FORMATS:
        assert any(format_.parse_name(name) for name in NAMES), format_.name


def test_long_name_and_strange_paths_are_missing_or_found(tmp_path: Path) -> None:
    odd = tmp_path / "a\nb\udcff,:%.json"
    odd.write_bytes(b"[]")
    paths = [tmp_path / ("x" * 5000), odd]
    result = validate(paths)
    assert result.missing == (paths[0],)
    for output in ("text", "json", "sarif", "junit", "github"):
        outcome = golden_harness.run("aoebank", ["validate", str(tmp_path), "--format", output])
        assert outcome.exit_code in (0, 1)


@pytest.mark.parametrize(
    ("name", "code", "data"),
    [
        (RUNTIME, "AB112", b"\n" * 5000),
        (RUNTIME, "AB103", b"x\n" * 5000),
        ("repository_ascend910B3_matmul.json", "AB113", b"{}\n" * 5000),
        ("ascend910b3_l2cache.json", "AB205", b'{"a": 1}\n' * 2500),
        (f"{UNIFIED}.provenance.jsonl", "AB204", b"[]\n" * 5000),
        (UNIFIED, "AB103", b"{" + b'"aaaaaaaa":[\n' * 5000),
        ("Ascend310_AiCore_2_v001.json", "AB103", b"{" + b'"[[1]]":"\n' * 5000),
        (
            "Ascend910B3_gradient_fusion.json",
            "AB309",
            b"[" + b'{"modelhash":"x"},' * 4999 + b'{"modelhash":"x"}]',
        ),
    ],
)
def test_thousands_of_bad_lines_are_counted_and_a_thousand_listed(
    tmp_path: Path, name: str, code: str, data: bytes
) -> None:
    (tmp_path / name).write_bytes(data)
    found = [finding for finding in validate([tmp_path]).findings if finding.code == code]
    assert len(found) == 1001
    (rest,) = (finding for finding in found if not finding.location.line)
    assert rest.message == "more lines like those listed"
    assert int((rest.got or "").removesuffix(" more")) >= 4000


def test_loops_of_links_end(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
        for target in ("a", "b", "c"):
            (tmp_path / name / target).symlink_to(tmp_path / target)
    (tmp_path / "d").symlink_to("d")
    findings = validate([tmp_path]).findings
    assert {finding.code for finding in findings} == {"AB101", "AB511"}
    links = [str(finding.severity) for finding in findings if finding.code == "AB511"]
    assert (links.count("warning"), links.count("note")) == (3, 6)  # back, or beside


@pytest.mark.parametrize("suffix", ["", ".provenance.jsonl", ".aoe"])
def test_pipe_under_any_name_is_told_and_not_waited_for(tmp_path: Path, suffix: str) -> None:
    for name in (UNIFIED, RUNTIME, "repository_ascend910B3_matmul.json", "odd"):
        os.mkfifo(tmp_path / f"{name}{suffix}")
    os.mkfifo(tmp_path / "repository_ascend910B3_matmul.bin")
    outcome = golden_harness.run("aoebank", ["validate", str(tmp_path), "--fix"])
    assert outcome.exit_code in (0, 1)
    codes = {finding.code for finding in validate([tmp_path, *tmp_path.iterdir()]).findings}
    assert codes <= {"AB101", "AB505"}


def test_pipe_where_a_twin_a_bank_or_a_built_in_bank_should_be_is_not_waited_for(
    tmp_path: Path,
) -> None:
    cube = "repository_ascend910B3_matmul.json"
    (tmp_path / cube).write_bytes(b'{"shape": {}, "tiling": [], "cost_time": 1}\n')
    os.mkfifo(tmp_path / cube.replace(".json", ".bin"))
    os.mkfifo(tmp_path / UNIFIED)
    (tmp_path / f"{UNIFIED}.provenance.jsonl").write_bytes(b"{}\n")
    (tmp_path / "opp").mkdir()
    os.mkfifo(tmp_path / "opp" / cube)
    findings = validate([tmp_path], built_in=BuiltInBank(tmp_path / "opp")).findings
    closed = {finding.location.path.name for finding in findings if finding.code == "AB101"}
    assert closed == {cube, cube.replace(".json", ".bin"), UNIFIED}


@pytest.mark.parametrize("verb", ["ls", "show", "diff", "validate"])
def test_no_command_waits_for_a_pipe(tmp_path: Path, verb: str) -> None:
    os.mkfifo(tmp_path / UNIFIED)
    path = str(tmp_path / UNIFIED)
    more = {"diff": [path], "show": ["5" * 32]}.get(verb, [])
    outcome = golden_harness.run("aoebank", [verb, path, *more])
    assert outcome.exit_code in (1, 2, 3)


@pytest.mark.parametrize("name", NAMES)
def test_folder_named_like_a_file_is_a_folder(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "unified_bank" / name
    (folder / "deep.json").mkdir(parents=True)
    assert [finding.code for finding in validate([tmp_path]).findings] == []
    (folder / UNIFIED).write_bytes(b"{}")
    for paths in ([tmp_path], [folder], [folder / UNIFIED]):
        assert validate(paths).files == 1


@pytest.mark.parametrize("error", [PermissionError(13, "Permission denied"), OSError(5, "I/O")])
def test_unreadable_files_of_all_kinds_are_findings(
    tmp_path: Path, system: FaultySystem, error: OSError
) -> None:
    for name in NAMES:
        (tmp_path / name).write_bytes(b"{}")
        system.close(tmp_path / name, error)
    result = validate([tmp_path])
    assert {finding.code for finding in result.findings} == {"AB101"}
    told = {finding.location.path.name for finding in result.findings}
    assert {*NAMES} - told == {"odd.bin", "odd"}  # no names of banks, so nobody looks into them
    assert result.passed_over == 2


@pytest.mark.slow
@pytest.mark.parametrize("name", [UNIFIED, RUNTIME])
@pytest.mark.parametrize("head", [b'{"a": "', b'"', b"[" * 20, b""])
def test_line_of_100_megabytes_is_a_finding(tmp_path: Path, name: str, head: bytes) -> None:
    (tmp_path / name).write_bytes(head + b"x" * 100_000_000)
    assert validate([tmp_path]).findings
