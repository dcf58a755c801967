"""Caches of Kernel Tuner: contract, open files, NaN, failures, heads that differ."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from support import golden_harness, sample_bank_files
from support.format_reading import FormatReading
from support.golden_harness import answer

from aoebank import Bank, BankFormatError
from aoebank.formats.kernel_tuner.format import KernelTunerFormat
from aoebank.formats.registry import find_format
from aoebank.testing.format_tests import FormatTests

FORMAT = KernelTunerFormat()
NAME = sample_bank_files.KERNEL_TUNER.name
READING = FormatReading(FORMAT, NAME)
parse, places = READING.parse, READING.pointers
SAMPLE = sample_bank_files.KERNEL_TUNER.read_bytes()
HEAD = {
    "device_name": "NVIDIA A100",
    "kernel_name": "add",
    "problem_size": [4096, 16],
    "tune_params_keys": ["block_size_x", "use_lds", "f"],
    "tune_params": {"block_size_x": [32, 64, 128], "use_lds": [True, False], "f": [0.5, 1e-05]},
    "objective": "time",
    "compiler": "nvcc 13.0",
}
PREFIX = "NVIDIA A100/add/4096x16/"


def row(
    block: int, time: object = 0.25, *, lds: bool = True, f: float = 0.5, **more: object
) -> str:
    """Return a result as Kernel Tuner's writer spells it."""
    result = {"block_size_x": block, "use_lds": lds, "f": f}
    result |= {} if time is None else {"time": time}
    return f'"{block},{lds},{f}": {json.dumps(result | more)}'


def bank(*rows: str, end: str = "}\n}", **head: object) -> bytes:
    """Return a cache; its last line has no end, as in those its writer closed."""
    start = json.dumps({**HEAD, **head}, indent="").removesuffix("\n}")
    results = ",\n".join(rows)
    return f'{start},\n"cache": {{\n{results}{end}'.encode()


def open_bank(*rows: str) -> bytes:
    return bank(*rows, end="," if rows else "")


class TestContract(FormatTests):
    format = FORMAT
    file_name = NAME
    example = SAMPLE


class TestContractOfFailuresAndConstants(FormatTests):
    format = FORMAT
    file_name = "kernel_tuner_A100.json"
    example = bank(
        row(32, None, __error__="CompilationFailedConfig"),
        row(64, "RuntimeFailedConfig", lds=False),
        row(128, 0.5, energy=float("nan"), power=[float("inf"), float("-inf"), "a NaN"]),
        row(32, 0.75, f=1e-05, NaN="Infinity and beyond"),
    )


class TestContractOfAFileOnALine(FormatTests):
    format = FORMAT
    file_name = NAME
    example = json.dumps(json.loads(SAMPLE), indent=4).encode()


def test_record_has_microseconds_device_kernel_and_configuration() -> None:
    record = FORMAT.record(parse(bank(row(32, times=[0.2, 0.3], **{"GB/s": 7.5}))), 0)
    assert (record.key, record.soc_version, record.op_type) == (
        f"{PREFIX}32,True,0.5",
        "NVIDIA A100",
        "add",
    )
    assert record.cost_us == pytest.approx(250)
    assert record.workload == {
        "problem_size": [4096, 16],
        "block_size_x": 32,
        "use_lds": True,
        "f": 0.5,
    }
    assert record.strategy == {"GB/s": 7.5}
    assert record.extra == {"time": 0.25, "times": [0.2, 0.3], "head": HEAD}
    assert [*FORMAT.strategy_words(record)] == ['2 runs "GB/s"=7.5']


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (row(32, None, __error__="CompilationFailedConfig"), "does not compile"),
        (row(32, "RuntimeFailedConfig"), "fails when it runs"),
        (row(32, "InvalidConfig"), "not allowed by the restrictions"),
    ],
)
def test_failure_is_no_time_and_no_finding(result: str, words: str) -> None:
    record = FORMAT.record(parse(bank(result)), 0)
    assert record.cost_us is None
    assert [*FORMAT.strategy_words(record)] == [words]
    assert places(bank(result)) == []


@pytest.mark.parametrize(
    ("result", "code", "member"),
    [
        (row(64, float("nan")), "AB402", "/time"),
        (row(64, float("inf")), "AB402", "/time"),
        (row(64, 0), "AB402", "/time"),
        (row(64, "slow"), "AB206", "/time"),
        (row(64).replace("64,True", "64,true"), "AB313", ""),
        (row(64).replace('"f": 0.5, ', ""), "AB205", ""),
        ('"64,True,0.5": 3', "AB206", ""),
        (row(64)[:-1] + ', "x": 1, "x": 2}', "AB109", "/x"),
    ],
)
def test_bad_result_is_told_with_its_place(result: str, code: str, member: str) -> None:
    name = json.loads("{" + result.split(":")[0] + ": 0}").popitem()[0]
    pointer = f"/cache/{name}{member}"
    assert places(bank(row(32), result)) == [(code, pointer)]


def test_nan_is_the_best_of_a_file_only_where_it_stands_first() -> None:
    assert places(bank(row(32, float("nan")), row(64))) == [("AB415", "/cache/32,True,0.5/time")]
    record = FORMAT.record(parse(bank(row(32, float("nan")))), 0)
    assert (record.cost_us, record.extra["time"]) == (None, "NaN")


def test_what_a_head_lacks_is_told_once_and_as_a_note_for_the_code() -> None:
    assert places(bank(row(32), row(64), device_name="")) == [("AB315", "")]
    plain = (
        bank(row(32), row(64))
        .replace(b'"compiler": "nvcc 13.0",\n', b"")
        .replace(b',\n"compiler": "nvcc 13.0"', b"")
    )
    assert places(plain) == [("AB319", "")]


@pytest.mark.parametrize("end", [",", ",\n", "", "\n"])
def test_open_cache_is_read_written_and_stays_open(end: str) -> None:
    data = bank(row(32), row(64, float("nan")), end=end)
    parsed = parse(data)
    assert places(data)[0] == ("AB119", "")
    assert len(parsed) == 2
    assert FORMAT.serialize(parsed, {}) == data
    new = replace(FORMAT.record(parse(bank(row(128))), 0), origin=None)
    wider = FORMAT.serialize(parsed, {new.key: new})
    assert wider == bank(row(32), row(64, float("nan")), row(128), end=end)
    assert FORMAT.serialize(parse(wider), {new.key: None}) == data


def test_open_cache_without_results_takes_some_and_gives_them_back() -> None:
    parsed = parse(open_bank())
    records = [*parse(bank(row(32), row(64))).iter_records()]
    wider = FORMAT.serialize(parsed, {record.key: record for record in records})
    assert wider == open_bank(row(32), row(64)).replace(b"{\n\n", b"{\n")
    bare = FORMAT.serialize(parse(wider), dict.fromkeys(parse(wider).keys))
    assert len(parse(bare)) == 0
    assert FORMAT.serialize(parse(bare), {record.key: record for record in records}) == wider


def test_line_cut_short_hides_no_other_and_is_an_error() -> None:
    data = bank(row(32), row(64), row(128)[:20], end="")
    assert [code for code, _ in places(data)] == ["AB103"]
    assert parse(data).keys == [f"{PREFIX}32,True,0.5", f"{PREFIX}64,True,0.5"]


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"[]", "AB201"),
        (b'{"device_name": "x", "cache": []}', "AB206"),
        (b'{"device_name": "x"}', "AB205"),
        (b'{"device_name": NaN, "cache": {', "AB119"),
        (b'{"device_name" "x", "cache": {', "AB103"),
        (b'{"cache": {}, "objective" 1}', "AB103"),
        (b'{"cache": {}} x', "AB107"),
        (b'{"cache": {}, "a": 1, "a": 2}', "AB109"),
    ],
)
def test_what_is_no_cache_is_told(data: bytes, code: str) -> None:
    assert [finding.code for finding in parse(data).findings if finding.code != "AB115"] == [code]


def test_head_behind_the_results_counts() -> None:
    head = json.dumps(HEAD)[1:-1]
    data = f'{{"cache": {{{row(32)}}}, {head}}}'.encode()
    assert parse(data).keys == [f"{PREFIX}32,True,0.5"]


def test_any_name_is_a_cache_by_its_content() -> None:
    for data in (SAMPLE, bank(row(32)), open_bank(), FORMAT.empty):
        assert find_format(Path("A100.json"), data[:4096]) == find_format(Path(NAME))
    assert find_format(Path("package.json"), b'{"name": "cache", "version": "1"}') is None


def test_record_of_another_head_is_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / NAME
    file.write_bytes(bank(row(32)))
    other = FORMAT.record(parse(bank(row(64), device_name="NVIDIA H100")), 0)
    with pytest.raises(BankFormatError, match="made under another head"):
        Bank(tmp_path).put(file, [replace(other, soc_version=None)])
    alone = replace(other, soc_version=None, extra={"time": 0.25})
    with pytest.raises(BankFormatError, match="of another device, kernel or problem size"):
        Bank(tmp_path).put(file, [alone])
    assert file.read_bytes() == bank(row(32))
    Bank(tmp_path).put(file, [replace(alone, key=f"{PREFIX}64,True,0.5")])
    assert file.read_bytes() == bank(row(32), row(64))


def test_files_of_two_devices_are_not_merged_and_of_one_by_time(tmp_path: Path) -> None:
    sides = (
        bank(row(32), row(64, 0.5)),
        open_bank(row(32, 0.125), row(128)),
        bank(row(32), device_name="NVIDIA H100"),
    )
    paths = [tmp_path / side / "cache.json" for side in "abc"]
    for path, data in zip(paths, sides, strict=True):
        path.parent.mkdir()
        path.write_bytes(data)
    out = tmp_path / "cache.json"
    call = ["merge", str(paths[0]), str(paths[1]), "-o", str(out)]
    assert golden_harness.run("aoebank", call).exit_code == 0
    assert out.read_bytes() == bank(row(32, 0.125), row(128), row(64, 0.5))
    for option in ((), ("--allow-other-soc",)):
        call = ["merge", str(paths[0]), str(paths[2]), "-o", str(tmp_path / "x.json"), *option]
        call += ["--base", str(paths[0]), "--allow-unrelated"] if option else []
        outcome = golden_harness.run("aoebank", call)
        assert outcome.exit_code == 3
        assert "NVIDIA H100" in outcome.stderr


def test_verbs_work_on_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bank").mkdir()
    file = Path("bank", NAME)
    failure = row(64, None, __error__="CompilationFailedConfig")
    file.write_bytes(bank(row(32, **{"GB/s": float("nan")}), failure))
    assert "kernel_tuner" in answer("ls", "bank")
    assert "target:      NVIDIA A100" in answer("show", str(file))
    assert "does not compile" in answer("show", f"{file}:{PREFIX}64,True,0.5")
    sql = "SELECT soc_version, op_type, cost_us FROM records"
    assert "NVIDIA A100" in answer("query", sql, "bank")
    assert 'device_name: "NVIDIA A100"' in answer("textconv", str(file))
    json.loads(answer("show", str(file), "--json"))
    answer("validate", "bank")
    answer("edit", "bank", "--op", "add", "--set", "GB/s=8.5", "--where", "f=0.5")
    edited = bank(
        row(32, **{"GB/s": 8.5}),
        row(64, None, __error__="CompilationFailedConfig", **{"GB/s": 8.5}),
    )
    assert file.read_bytes() == edited
    outcome = golden_harness.run("aoebank", ["edit", "bank", "--op", "add", "--set", "time=1"])
    assert outcome.exit_code in (2, 3)
    answer("convert", "bank", "-o", "rows.jsonl")
    answer("convert", "rows.jsonl", "-o", "again")
    assert Path("again", NAME).read_bytes() == edited
    answer("snapshot", "bank")
    key = f"{PREFIX}64,True,0.5"
    answer("quarantine", "add", key, "bank", "--reason", "wrong")
    assert file.read_bytes() == bank(row(32, **{"GB/s": 8.5}))
