"""Banks as other projects ship them: read, written back byte for byte, findings that are known.

Nothing of these projects is in this repository: the tests download their wheels, and are skipped
where that fails.
"""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from aoebank.formats.protocol import ParsedFile, find_error
from aoebank.formats.registry import find_format
from aoebank.validation.run import validate

pytestmark = pytest.mark.slow
_TIMEOUT_S = 240


def _unpack(requirement: str, folder: Path, is_wanted: Callable[[str], bool]) -> None:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "-q", requirement]
    try:
        subprocess.run(
            [*command, "--only-binary=:all:", "-d", str(folder)],
            check=True,
            capture_output=True,
            timeout=_TIMEOUT_S,
        )
    except (subprocess.SubprocessError, OSError):
        pytest.skip(f"{requirement} cannot be downloaded here")
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        for name in filter(is_wanted, archive.namelist()):
            archive.extract(name, folder)
    wheel.unlink()


def _parse(path: Path) -> ParsedFile | None:
    data = path.read_bytes()
    known = find_format(path, data[:4096])
    return None if known is None else known.parse(data, path)


def _check_round_trip(parsed: ParsedFile) -> int:
    """Write every record as it was, then anew; return how many records there are."""
    format_, data = parsed.format, parsed.data
    assert format_.serialize(parsed, {}) == data
    records = [*parsed.iter_records()]
    if find_error(parsed) is None and len({*parsed.keys}) == len(records):
        assert format_.serialize(parsed, {record.key: record for record in records}) == data
    fresh = {record.key: replace(record) for record in records}
    again = format_.parse(format_.serialize(parsed, fresh), parsed.path)
    assert {record.key: record for record in again.iter_records()} == fresh
    return len(records)


def test_configurations_of_sglang_are_read_and_written_back(tmp_path: Path) -> None:
    _unpack("sglang==0.5.23", tmp_path, lambda name: ",device_name=" in name)
    parsed = [file for path in sorted(tmp_path.rglob("*.json")) if (file := _parse(path))]
    assert {file.format.name for file in parsed} == {"vllm"}
    assert sum(map(_check_round_trip, parsed)) == 9778
    codes = Counter(finding.code for finding in validate([tmp_path]).findings)
    assert codes["AB206"] == 3  # rows that are null
    assert codes["AB518"] == 2
    assert codes["AB519"] > 20
    assert {*codes} <= {"AB105", "AB106", "AB206", "AB518", "AB519", "AB522"}


def test_banks_of_aiter_are_read_and_written_back(tmp_path: Path) -> None:
    def is_bank(name: str) -> bool:
        is_table = name.startswith("aiter/configs/") and name.endswith(".csv")
        return is_table or name.startswith("aiter/ops/triton/configs/")

    _unpack("amd-aiter==0.1.7.post2.dev18", tmp_path, is_bank)
    parsed = [file for path in sorted(tmp_path.rglob("*.csv")) if (file := _parse(path))]
    assert sum(map(_check_round_trip, parsed)) == 6936
    classes = [file for path in sorted(tmp_path.rglob("*.json")) if (file := _parse(path))]
    assert {file.format.name for file in classes} == {"aiter_triton"}
    assert sum(map(_check_round_trip, classes)) > 600
    findings = validate([tmp_path]).findings
    assert sum(one.code == "AB316" for one in findings) == 5
    slipped = [one for one in findings if one.code == "AB220"]
    assert [(one.location.path.name, one.location.line) for one in slipped] == [
        ("tuned_fmoe.csv", 162)
    ]


def test_repositories_of_akg_are_read_and_written_back(tmp_path: Path) -> None:
    _unpack("mindspore==2.10.0", tmp_path, lambda name: "/akg/config/repository" in name)
    paths = sorted(tmp_path.rglob("*.json"))
    counts = {file.path.name: _check_round_trip(file) for path in paths if (file := _parse(path))}
    assert counts == {"repository.json": 86, "repository_cpu.json": 0, "repository_cuda.json": 25}
    found = Counter((one.code, one.location.line) for one in validate([tmp_path]).findings)
    # an attribute outside attrs, a kernel under no trait, four types for two shapes
    expected = [("AB115", 0), ("AB211", 236), ("AB313", 1596), ("AB313", 2016)]
    assert found == Counter(expected)


def test_tactics_of_flashinfer_are_read_and_never_found(tmp_path: Path) -> None:
    _unpack("flashinfer-python==0.7.2", tmp_path, lambda name: "/tuning_configs/v" in name)
    parsed = [file for path in sorted(tmp_path.rglob("*.py")) if (file := _parse(path))]
    assert [_check_round_trip(file) for file in parsed] == [58, 34]
    codes = Counter(one.code for one in validate([tmp_path]).findings)
    assert codes == Counter({"AB313": 92})
