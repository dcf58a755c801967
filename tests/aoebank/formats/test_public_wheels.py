"""Banks as other projects ship them: read, written back byte for byte, findings that are known.

Nothing of these projects is in this repository: the tests download their wheels, and are skipped
where that fails.
"""

from __future__ import annotations

import os
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


_DATABASE = """
import tvm
from tvm import s_tir, te
from tvm.s_tir import meta_schedule as ms

a, b = (te.placeholder((64, 64), name=name) for name in "ab")
k = te.reduce_axis((0, 64), "k")
c = te.compute((64, 64), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
function = te.create_prim_func([a, b, c])
database = ms.database.JSONDatabase(work_dir=".")
workload = database.commit_workload(tvm.IRModule({"main": function}))
target = tvm.target.Target({"kind": "llvm", "num-cores": 2, "mcpu": "icelake-server"})
for factor, seconds in ((4, [3e-5, 4e-5]), (8, [1e-5 / 3]), (16, [1e10])):
    schedule = s_tir.Schedule(tvm.IRModule({"main": function}))
    schedule.split(schedule.get_loops(schedule.get_sblock("C"))[0], [None, factor])
    types = ms.arg_info.ArgInfo.from_prim_func(function)
    record = ms.database.TuningRecord(schedule.trace, workload, seconds, target, types)
    database.commit_tuning_record(record)
"""


def test_database_that_tvm_writes_is_read_and_written_back(tmp_path: Path) -> None:
    wheels, folder = tmp_path / "tvm", tmp_path / "database"
    folder.mkdir()
    install = [sys.executable, "-m", "pip", "install", "-q", "--target", str(wheels)]
    needed = ("apache-tvm==0.25.0", "apache-tvm-ffi==0.1.12")
    environment = {**os.environ, "PYTHONPATH": str(wheels)}
    try:
        subprocess.run([*install, *needed], check=True, capture_output=True, timeout=_TIMEOUT_S)
    except (subprocess.SubprocessError, OSError):
        pytest.skip("apache-tvm cannot be downloaded here")
    subprocess.run([sys.executable, "-c", _DATABASE], check=True, cwd=folder, env=environment)
    file = _parse(folder / "database_tuning_record.json")
    assert file is not None
    records = [*file.iter_records()]
    assert [record.cost_us for record in records] == [
        pytest.approx(35),
        pytest.approx(10 / 3),
        None,
    ]
    assert {record.soc_version for record in records} == {"llvm-icelake-server"}
    for record in records:  # numbers in TVM's own spelling
        written = file.format.serialize(file, {record.key: replace(record)})
        assert written.splitlines() == [record.raw]
    findings = validate([folder]).findings
    assert [(one.code, one.location.line) for one in findings] == [("AB401", 3)]


def test_repositories_of_akg_are_read_and_written_back(tmp_path: Path) -> None:
    _unpack("mindspore==2.10.0", tmp_path, lambda name: "/akg/config/repository" in name)
    parsed = [_parse(path) for path in sorted(tmp_path.rglob("*.json"))]
    counts = {file.path.name: _check_round_trip(file) for file in parsed if file is not None}
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
