"""Environment variables of a run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.faulty_system import FaultySystem

from aoe.errors import OptionError, OutputError
from aoe.settings import (
    cache_limit,
    cache_path,
    environment,
    parse_switch,
    repeat_tune,
    with_bank,
    work_path,
)


@pytest.mark.parametrize("word", ["on", "true", "True", "TRUE", "1"])
def test_switch_on(word: str) -> None:
    assert parse_switch("--x", word, default=False)


@pytest.mark.parametrize("word", ["off", "false", "False", "0"])
def test_switch_off(word: str) -> None:
    assert not parse_switch("--x", word, default=True)


@pytest.mark.parametrize("default", [True, False])
def test_switch_not_given_is_its_default(default: bool) -> None:
    assert parse_switch("--x", None, default=default) is default
    assert parse_switch("--x", "", default=default) is default


@pytest.mark.parametrize("word", ["yes", "2", "onn", " "])
def test_switch_with_another_word_is_refused(word: str) -> None:
    with pytest.raises(OptionError, match="REPEAT_TUNE: not a switch") as caught:
        parse_switch("REPEAT_TUNE", word, default=False)
    assert repr(word) in str(caught.value)


def test_repeat_tune_is_off_unless_the_variable_says_so() -> None:
    assert not repeat_tune({})
    assert repeat_tune({"REPEAT_TUNE": "True"})
    assert not repeat_tune({"REPEAT_TUNE": "False"})


def test_work_path_is_here_without_the_variable(tmp_path: Path) -> None:
    assert work_path({}, tmp_path) == tmp_path
    assert work_path({"ASCEND_WORK_PATH": ""}, tmp_path) == tmp_path


def test_work_path_is_aoe_data_below_the_variable_and_is_created(tmp_path: Path) -> None:
    found = work_path({"ASCEND_WORK_PATH": str(tmp_path / "new" / "deep")}, tmp_path)
    assert found == tmp_path / "new" / "deep" / "aoe_data"
    assert found.is_dir()


def test_relative_work_path_is_below_the_current_directory(tmp_path: Path) -> None:
    assert work_path({"ASCEND_WORK_PATH": "w"}, tmp_path) == tmp_path / "w" / "aoe_data"


def test_work_path_that_is_a_file_is_refused_by_the_variable_s_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="ASCEND_WORK_PATH: cannot be used") as caught:
        work_path({"ASCEND_WORK_PATH": str(tmp_path / "file")}, tmp_path)
    assert str(tmp_path / "file") in str(caught.value)


def test_cache_follows_xdg_then_home() -> None:
    assert cache_path({"XDG_CACHE_HOME": "/c", "HOME": "/h"}) == Path("/c/aoe")
    assert cache_path({"HOME": "/h"}) == Path("/h/.cache/aoe")
    assert cache_path({}) is None


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("", 10 << 30),
        ("0", 0),
        ("123", 123),
        ("5k", 5 << 10),
        ("500M", 500 << 20),
        ("2GB", 2 << 30),
    ],
)
def test_cache_has_a_limit(text: str, size: int) -> None:
    assert cache_limit({"AOE_CACHE_SIZE": text}) == size
    assert cache_limit({}) == 10 << 30


@pytest.mark.parametrize("text", ["-1", "much", "1.5G", "5X", "G"])
def test_cache_limit_that_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match="AOE_CACHE_SIZE: not a size") as caught:
        cache_limit({"AOE_CACHE_SIZE": text})
    assert repr(text) in str(caught.value)


def test_environment_is_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AOE_TEST_VARIABLE", "1")
    found = environment()
    monkeypatch.setenv("AOE_TEST_VARIABLE", "2")
    assert found["AOE_TEST_VARIABLE"] == "1"


def test_bank_that_may_not_be_written_is_for_reading(tmp_path: Path, system: FaultySystem) -> None:
    system.replace("os.access", lambda path, mode: not mode & os.W_OK)
    assert with_bank({}, tmp_path, writes=False) == {"TUNE_BANK_PATH": str(tmp_path)}
    with pytest.raises(OutputError, match="expected permission to read, write and search it"):
        with_bank({}, tmp_path)
    system.replace("os.access", lambda path, mode: False)
    with pytest.raises(OutputError, match="expected permission to read and search it"):
        with_bank({}, tmp_path, writes=False)
