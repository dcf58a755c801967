"""Banks as other projects ship them: read, written back byte for byte, findings that are known.

Nothing of these projects is in this repository: the tests download their wheels, and are skipped
where that fails.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from support import sample_bank_files

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


_WRITER = """
import sys, types
from types import SimpleNamespace as Values
from pathlib import Path

root, out = Path(sys.argv[1]), Path(sys.argv[2])
package = types.ModuleType("kernel_tuner")
package.__path__ = [str(root / "kernel_tuner")]


class Left(types.ModuleType):  # what it imports to tune with, and not to write with
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


sys.modules |= {name: Left(name) for name in ("xmltodict", "constraint")}
sys.modules["kernel_tuner"] = package
from kernel_tuner import file_utils, util

class Options(dict):
    __getattr__ = dict.__getitem__

space = {"block_size_x": [32, 64, 128], "use_lds": [True, False], "f": [0.5, 1e-05]}
options = Options(simulation_mode=False, tune_params=space, objective="time")
kernel = Values(kernel_name="add", problem_size=(4096, 16))
device = Values(name="NVIDIA A100-PCIE-40GB")
runner = Values(get_device_info=lambda: device, simulation_mode=False, dev=device)
path = str(out / "A100.json")
cache = util.process_cache(path, kernel, options, runner)
(out / "started.json").write_bytes(Path(path).read_bytes())
steps = {"compile_time": 440.9, "verification_time": 0, "benchmark_time": 1.1}
results = []
for block, more in (
    (32, {"__error__": util.CompilationFailedConfig()}),
    (64, {"time": float("nan"), "times": [float("nan"), 0.5]}),
    (128, {"time": 0.25, "times": [0.25], "GB/s": 12.5}),
):
    result = {"block_size_x": block, "use_lds": True, "f": 1e-05, **more, **steps}
    result["timestamp"] = "2026-11-29 10:00:00.123456+00:00"
    util.store_cache(f"{block},True,1e-05", result, path, cache)
    results.append({**result, "strategy_time": 1.0, "framework_time": 2.0})
(out / "open.json").write_bytes(Path(path).read_bytes())
util.close_cache(path)
file_utils.store_output_file(str(out / "add-results.json"), results, space)
print(util.get_best_config(results[1:], "time")["block_size_x"])
"""
_READER = """
import json, sys
writer = sys.argv.pop(1)
exec(open(writer).read().partition("class Options")[0])
from kernel_tuner import util
for name in sys.argv[3:]:
    print(json.dumps(sorted(util.read_cache(name, open_cache=True)["cache"])))
    util.store_cache("new", {"time": 1.5}, name, {})
    util.close_cache(name)
"""


def _run(script: str, folder: Path, *arguments: Path) -> str:
    place = folder / f"script{len(script)}.py"
    place.write_text(script)
    command = [sys.executable, str(place), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, timeout=_TIMEOUT_S, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_files_of_kernel_tuner_are_read_written_back_and_read_by_it(tmp_path: Path) -> None:
    _unpack("kernel-tuner==1.5.0", tmp_path, lambda name: name.startswith("kernel_tuner/"))
    out = tmp_path / "out"
    out.mkdir()
    assert _run(_WRITER, tmp_path, tmp_path, out) == "64\n"  # a NaN that stands first is the best
    files = {path.name: _parse(path) for path in sorted(out.iterdir())}
    assert {
        name: (file.format.name, len(file)) for name, file in files.items() if file is not None
    } == {
        "A100.json": ("kernel_tuner", 3),
        "add-results.json": ("t4", 3),
        "open.json": ("kernel_tuner", 3),
        "started.json": ("kernel_tuner", 0),
    }
    for file in files.values():
        assert file is not None
        _check_round_trip(file)
    codes = {
        path.name: sorted({one.code for one in validate([path]).findings}) for path in out.iterdir()
    }
    assert codes == {
        "A100.json": ["AB319", "AB402"],
        "add-results.json": ["AB224", "AB315", "AB402"],
        "open.json": ["AB119", "AB319", "AB402"],
        "started.json": ["AB115", "AB119"],
    }
    # what is written here is read there, and written on
    records = [*files["A100.json"].iter_records()]  # type: ignore[union-attr]
    for name in ("started.json", "open.json", "A100.json"):
        file = files[name]
        assert file is not None
        wanted = {record.key: replace(record) for record in records[1:]} | {records[0].key: None}
        (out / name).write_bytes(file.format.serialize(file, wanted))
    script = tmp_path / "writer.py"
    script.write_text(_WRITER)
    names = [out / name for name in ("started.json", "open.json", "A100.json")]
    told = _run(_READER, tmp_path, script, tmp_path, out, *names)
    assert told.splitlines() == ['["128,True,1e-05", "64,True,1e-05"]'] * 3
    for name in names:
        again = _parse(name)
        assert again is not None
        assert [key.rpartition("/")[2] for key in again.keys][-1] == "new"
        assert [one.code for one in again.findings] == []


def test_schema_of_t4_takes_what_is_written_here(tmp_path: Path) -> None:
    _unpack("kernel-tuner==1.5.0", tmp_path, lambda name: name.endswith("results-schema.json"))
    (schema,) = tmp_path.rglob("results-schema.json")
    parsed = _parse(sample_bank_files.T4)
    assert parsed is not None
    fresh = {record.key: replace(record) for record in parsed.iter_records()}
    for data in (parsed.data, parsed.format.serialize(parsed, fresh)):
        Draft202012Validator(json.loads(schema.read_bytes())).validate(json.loads(data))


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
