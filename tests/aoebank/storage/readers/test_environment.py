"""Which directory is the bank: TUNE_BANK_PATH > ASCEND_CACHE_PATH/aoe_data > HOME."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from support.faulty_system import FaultySystem

from aoebank import (
    BankNotFoundError,
    BankPermissionError,
    current_environment,
    resolve_bank,
)


@pytest.fixture
def places(tmp_path: Path) -> Callable[[str], str]:
    def make(name: str) -> str:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        return str(folder)

    return make


def test_empty_variable_counts_as_unset(tmp_path: Path, places: Callable[[str], str]) -> None:
    env = {"TUNE_BANK_PATH": "", "ASCEND_CACHE_PATH": "", "HOME": places("h")}
    assert resolve_bank(env=env, cwd=tmp_path).variable == "HOME"


def test_relative_path_is_relative_to_the_directory_given(
    tmp_path: Path, places: Callable[[str], str]
) -> None:
    places("banks")
    (tmp_path / "run").mkdir()
    found = resolve_bank(env={"TUNE_BANK_PATH": "../banks"}, cwd=tmp_path / "run")
    assert found.root == tmp_path / "banks"


@pytest.mark.parametrize("variable", ["TUNE_BANK_PATH", "ASCEND_CACHE_PATH"])
def test_path_that_does_not_exist_is_an_error_and_not_passed_over(
    tmp_path: Path, places: Callable[[str], str], variable: str
) -> None:
    env = {variable: str(tmp_path / "gone"), "HOME": places("h")}
    with pytest.raises(BankNotFoundError) as caught:
        resolve_bank(env=env, cwd=tmp_path)
    assert caught.value.variable == variable
    assert str(caught.value).startswith(f"{variable}: {tmp_path}/gone: does not exist")
    assert f"unset {variable}" in caught.value.hint


def test_file_in_place_of_the_directory_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BankNotFoundError, match="is not a directory") as caught:
        resolve_bank(env={"TUNE_BANK_PATH": "file"}, cwd=tmp_path)
    assert caught.value.hint == "name a directory, or unset TUNE_BANK_PATH"


@pytest.mark.parametrize("env", [{}, {"HOME": ""}])
def test_nothing_set_is_an_error_that_names_home(tmp_path: Path, env: dict[str, str]) -> None:
    with pytest.raises(BankNotFoundError, match="HOME not set"):
        resolve_bank(env=env, cwd=tmp_path)


@pytest.mark.parametrize("missing", [os.R_OK, os.W_OK, os.X_OK])
def test_directory_without_one_permission_is_an_error(
    tmp_path: Path, places: Callable[[str], str], system: FaultySystem, missing: int
) -> None:
    system.replace("os.access", lambda path, mode: not mode & missing)  # root may all
    with pytest.raises(BankPermissionError) as caught:
        resolve_bank(env={"TUNE_BANK_PATH": places("t")}, cwd=tmp_path)
    assert isinstance(caught.value, PermissionError)
    assert "chmod u+rwx" in caught.value.hint


def test_current_environment_is_a_copy() -> None:
    env = current_environment()
    assert env == dict(os.environ)
    assert env is not os.environ


def test_root_that_may_only_be_read_is_for_what_does_not_write(
    tmp_path: Path, system: FaultySystem
) -> None:
    env = {"TUNE_BANK_PATH": str(tmp_path)}
    system.replace("os.access", lambda path, mode: not mode & os.W_OK)
    with pytest.raises(BankPermissionError):
        resolve_bank(env=env, cwd=tmp_path)
    assert resolve_bank(env=env, cwd=tmp_path, writes=False).root == tmp_path
    system.replace("os.access", lambda path, mode: mode == os.X_OK)
    with pytest.raises(BankPermissionError):
        resolve_bank(env=env, cwd=tmp_path, writes=False)
