"""Results in the T4 format: contract, units, outcomes, names of the schema and of the writer."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from support import golden_harness, sample_bank_files
from support.format_reading import FormatReading
from support.golden_harness import answer

from aoebank import Bank, BankFormatError
from aoebank.formats.names import BankName
from aoebank.formats.registry import find_format
from aoebank.formats.t4.format import T4Format
from aoebank.testing.format_tests import FormatTests

FORMAT = T4Format()
NAME = sample_bank_files.T4.name
READING = FormatReading(FORMAT, NAME)
parse, places = READING.parse, READING.pointers
SAMPLE = sample_bank_files.T4.read_bytes()
METADATA = {"timeunit": "milliseconds", "device_name": "NVIDIA A100"}
KEY = "NVIDIA A100/vector_add/block_size_x="


def item(block: int, time: object = 0.25, outcome: str = "correct", **more: object) -> str:
    """Return a result with the members its schema asks for."""
    return json.dumps(
        {
            "configuration": {"block_size_x": block},
            "times": {"compilation_time": 3.5, "runtimes": []},
            "invalidity": outcome,
            "correctness": 1,
            "measurements": [{"name": "time", "value": time, "unit": "ms"}],
            **more,
        }
    )


def bank(*items: str, **metadata: object) -> bytes:
    told, results = json.dumps(metadata or METADATA), ", ".join(items)
    return f'{{"results": [{results}], "schema_version": "1.0.0", "metadata": {told}}}'.encode()


class TestContract(FormatTests):
    format = FORMAT
    file_name = NAME
    example = SAMPLE


class TestContractOfOutcomes(FormatTests):
    format = FORMAT
    file_name = "t4-results.json"
    example = bank(
        item(32, "", "compile", timestamp="2026"),
        item(64, float("nan"), "runtime", objectives=["time"]),
        item(128, 2, objectives=["GFLOP/s"], measurements=[]),
        item(256, "NaN of an observer", "timeout"),
        kernel_name="k",
        **METADATA,
    )


class TestContractOfAnIndentedFile(FormatTests):
    format = FORMAT
    file_name = NAME
    example = json.dumps(json.loads(SAMPLE), indent=2).encode()


def test_record_has_configuration_outcome_and_microseconds() -> None:
    record = FORMAT.record(parse(bank(item(32))), 0)
    assert (record.key, record.soc_version, record.op_type) == (
        f"{KEY}32",
        "NVIDIA A100",
        "vector_add",
    )
    assert record.cost_us == pytest.approx(250)
    assert record.workload == {"block_size_x": 32}
    assert record.strategy == {"invalidity": "correct", "correctness": 1}
    assert [*FORMAT.strategy_words(record)] == ["correct time=0.25 ms"]


@pytest.mark.parametrize(
    ("more", "cost_us"),
    [
        ({}, 250),
        ({"measurements": [{"name": "time", "value": 0.25}]}, 250),
        ({"measurements": [{"name": "time", "value": 0.25, "unit": "s"}]}, 250_000),
        ({"measurements": [{"name": "time", "value": 0.25, "unit": "furlong"}]}, None),
        ({"objectives": ["energy"]}, 250),
        ({"measurements": [{"name": "energy", "value": 2, "unit": "J"}]}, None),
        ({"measurements": [{"name": "t2", "value": 3, "unit": "us"}], "objectives": ["t2"]}, 3),
        ({"outcome": "runtime"}, None),
        ({"measurements": "none"}, None),
    ],
)
def test_time_is_the_measurement_that_counts(
    more: dict[str, object], cost_us: float | None
) -> None:
    (record,) = parse(bank(item(32, **more))).iter_records()  # type: ignore[arg-type]
    assert record.cost_us == (None if cost_us is None else pytest.approx(cost_us))


@pytest.mark.parametrize(
    ("result", "code", "pointer"),
    [
        (item(64, float("nan")), "AB402", "/measurements/0/value"),
        (item(64, 0), "AB402", "/measurements/0/value"),
        (item(64, ""), "AB402", "/measurements/0/value"),
        (item(64, 1, "broken"), "AB404", "/invalidity"),
        (item(64).replace('"correctness": 1, ', ""), "AB205", ""),
        (item(64).replace('"configuration"', '"config"'), "AB205", ""),
        ("3", "AB204", ""),
        (item(32), "AB305", ""),
        (item(32, "", "compile"), "AB306", ""),
        (item(64, times=3), "AB206", "/times"),
    ],
)
def test_bad_item_is_told_with_its_place(result: str, code: str, pointer: str) -> None:
    assert places(bank(item(32), result)) == [(code, f"/results/1{pointer}")]


def test_order_of_parameters_and_spelling_of_the_file_do_not_count_for_the_key() -> None:
    one, other = (
        item(32, configuration=value) for value in ({"a": 1, "b": "x"}, {"b": "x", "a": 1})
    )
    assert [code for code, _ in places(bank(one, other))] == ["AB305"]


def test_nan_that_stands_first_is_told_as_the_best() -> None:
    assert places(bank(item(32, float("nan")), item(64))) == [
        ("AB415", "/results/0/measurements/0/value")
    ]


def test_missing_device_and_names_of_the_writer_are_told_once_a_file() -> None:
    written = item(32, times={"compilation": 1, "benchmark": 2, "runtimes": []})
    assert places(bank(written, item(64), timeunit="milliseconds")) == [
        ("AB315", ""),
        ("AB224", ""),
    ]


def test_file_that_lacks_its_end_is_an_error_here() -> None:
    data = bank(item(32), item(64))
    for cut in (data[: data.index(b"]", 900 if len(data) > 900 else -200)], data[:-1]):
        assert "AB103" in {code for code, _ in places(cut)}


@pytest.mark.parametrize(
    ("name", "kernel"),
    [(NAME, "vector_add"), ("t4_results.json", None), ("a_b-T4_results.json", "a_b")],
)
def test_name_says_the_kernel(name: str, kernel: str | None) -> None:
    assert FORMAT.parse_name(name) == BankName(soc_version=None, op_type=kernel)
    assert find_format(Path("vector_add-results.json"), SAMPLE[:4096]) == find_format(Path(NAME))


def test_new_time_is_written_into_the_measurement(tmp_path: Path) -> None:
    file = tmp_path / NAME
    file.write_bytes(bank(item(32), item(64)))
    record = FORMAT.record(parse(file.read_bytes()), 0)
    Bank(tmp_path).put(file, [replace(record, cost_us=125.0)])
    assert file.read_bytes() == bank(item(32, 0.125), item(64))
    with pytest.raises(BankFormatError, match="without loss"):
        other = FORMAT.record(
            parse(bank(item(32, measurements=[{"name": "energy", "value": 1}]))), 0
        )
        Bank(tmp_path).put(file, [replace(other, cost_us=125.0)])


def test_files_under_other_metadata_are_not_merged(tmp_path: Path) -> None:
    sides = (bank(item(32)), bank(item(32, 0.125), item(64)), bank(item(32), device_name="H100"))
    paths = [tmp_path / side / NAME for side in "abc"]
    for path, data in zip(paths, sides, strict=True):
        path.parent.mkdir()
        path.write_bytes(data)
    out = tmp_path / NAME
    call = ["merge", str(paths[0]), str(paths[1]), "-o", str(out)]
    assert golden_harness.run("aoebank", call).exit_code == 0
    assert out.read_bytes() == bank(item(32, 0.125), item(64))
    call = ["merge", str(paths[0]), str(paths[2]), "-o", str(tmp_path / "x.json")]
    outcome = golden_harness.run("aoebank", [*call, "--allow-other-soc"])
    assert outcome.exit_code == 3
    assert "H100" in outcome.stderr


def test_verbs_work_on_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bank").mkdir()
    file = Path("bank", NAME)
    file.write_bytes(bank(item(32), item(64, float("nan"))))
    assert "vector_add" in answer("ls", "bank")
    assert "target:      NVIDIA A100" in answer("show", str(file))
    json.loads(answer("show", str(file), "--json"))
    assert "NVIDIA A100" in answer("query", "SELECT soc_version, cost_us FROM records", "bank")
    answer("textconv", str(file))
    edit = ("edit", "bank", "--op", "vector_add", "--set", 'invalidity="runtime"')
    answer(*edit, "--where", "block_size_x=64")
    edited = bank(item(32), item(64, float("nan"), "runtime"))
    assert file.read_bytes() == edited
    answer("convert", "bank", "-o", "rows.jsonl")
    answer("convert", "rows.jsonl", "-o", "again")
    assert Path("again", NAME).read_bytes() == edited
