"""What result files share: AOE's words, and never half a file."""

from __future__ import annotations

import csv
import json
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from aoe.errors import OutputError
from aoe.folders.locks import take_lock
from aoe.results.files import (
    improvement_percent,
    replaced,
    result_name,
    timestamp_of,
    write_json,
    write_table,
    write_text,
)

_NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


def test_name_is_that_of_aoe() -> None:
    name = result_name("gdat", "20260301120000123", 77)
    assert name == "aoe_result_gdat_20260301120000123_pid77.json"


def test_time_stamp_is_aoe_s() -> None:
    assert timestamp_of(_NOW) == "20260102030405678"
    assert timestamp_of(_NOW.replace(microsecond=999)) == "20260102030405000"


def test_improvement_is_relative_to_the_time_after_tuning() -> None:
    assert improvement_percent(134 / 99) == pytest.approx(35.35, abs=0.01)
    assert improvement_percent(1.0) == 0
    assert improvement_percent(0.5) == -50


# ---- writing ----


def test_json_is_written_with_its_directories(tmp_path: Path) -> None:
    file = tmp_path / "a" / "b" / "x.json"
    write_json(file, {"name": "Größe", "list": [1, 2.5, None]})
    assert json.loads(file.read_text("utf-8")) == {"name": "Größe", "list": [1, 2.5, None]}
    assert "Größe" in file.read_text("utf-8")
    assert file.stat().st_mode & 0o777 == 0o644


def test_table_is_csv(tmp_path: Path) -> None:
    write_table(tmp_path / "t.csv", ("a", "b"), [{"a": 1, "b": 'x,"y"'}, {"a": 2, "b": ""}])
    with (tmp_path / "t.csv").open(newline="") as file:
        assert list(csv.DictReader(file)) == [{"a": "1", "b": 'x,"y"'}, {"a": "2", "b": ""}]


@pytest.mark.usefixtures("no_room")
def test_full_disk_keeps_the_old_file_and_says_what_to_do(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    file.write_text("old")
    with pytest.raises(OutputError, match="cannot be written: No space left on device") as caught:
        write_text(file, "new")
    assert str(file) in str(caught.value)
    assert "--output" in str(caught.value.hint)
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


def test_interrupted_writing_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_text(tmp_path / "x.json", "new")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("where", ["file/x.json", "file/deep/x.json"])
def test_file_in_the_way_is_an_output_error(tmp_path: Path, where: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot be written"):
        write_text(tmp_path / where, "x")


def test_directory_in_the_way_is_an_output_error(tmp_path: Path) -> None:
    (tmp_path / "x.json").mkdir()
    with pytest.raises(OutputError, match="cannot be written"):
        write_text(tmp_path / "x.json", "x")
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]


def test_name_as_long_as_the_file_system_allows_can_be_written(tmp_path: Path) -> None:
    write_text(tmp_path / ("n" * 250 + ".json"), "x")


def test_readers_never_see_half_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "x.json"
    write_json(file, {"n": 0})
    seen: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda _: seen.append(json.loads(file.read_text())["n"]))
    for n in (1, 2, 3):
        write_json(file, {"n": n})
    assert seen == [0, 1, 2]


def test_name_of_a_file_that_is_no_text_can_be_written(tmp_path: Path) -> None:
    name = os.fsdecode(b"n\xfft.onnx")
    write_json(tmp_path / "x.json", {"path": name})
    assert json.loads((tmp_path / "x.json").read_text()) == {"path": name}


def test_what_a_killed_writer_left_goes_with_the_next_write(tmp_path: Path) -> None:
    left, held, young, other = (
        tmp_path / name
        for name in (".x.json.abcdefgh", ".x.json.12345678", ".x.json._bcdefgh", ".x.json.own")
    )
    for path in (left, held, young, other):
        path.write_text("half")
        os.utime(path, (1e9, 1e9))
    os.utime(young)
    with take_lock(held) or pytest.fail("held"):
        os.utime(held, (1e9, 1e9))
        write_json(tmp_path / "x.json", 1)
    assert {path.name for path in tmp_path.iterdir()} == {
        "x.json",
        held.name,
        young.name,
        other.name,
    }


def test_what_a_killed_run_left_of_its_result_file_goes_with_the_next_run(tmp_path: Path) -> None:
    left, other = (
        tmp_path / f".aoe_result_{mode}_20260101000000000_pid7.json.abcdefgh"
        for mode in ("opat", "gdat")
    )
    for path in (left, other):
        path.write_text("half")
        os.utime(path, (1e9, 1e9))
    write_json(tmp_path / "aoe_result_opat_20260102000000000_pid123.json", 1)
    assert not left.exists()
    assert other.exists()


def test_file_being_written_is_not_swept(tmp_path: Path) -> None:
    with replaced(tmp_path / "x.json") as sink:
        (temporary,) = tmp_path.iterdir()
        os.utime(temporary, (1e9, 1e9))
        write_json(tmp_path / "x.json", "second")
        sink.write(b"first")
    assert (tmp_path / "x.json").read_text() == "first"
