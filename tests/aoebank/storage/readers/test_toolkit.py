"""What shows that a machine has a CANN toolkit, and what does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from aoebank.storage.readers.toolkit import find_toolkit


@pytest.mark.parametrize("name", ["ASCEND_TOOLKIT_HOME", "ASCEND_HOME_PATH", "ASCEND_OPP_PATH"])
def test_variable_of_set_env_shows_it(name: str) -> None:
    assert find_toolkit({name: "/opt/ascend"}) == name
    assert find_toolkit({name: ""}) == ""


def test_installation_below_home_shows_it(tmp_path: Path) -> None:
    place = tmp_path / "Ascend" / "ascend-toolkit" / "latest"
    (place / "bin").mkdir(parents=True)
    assert find_toolkit({"HOME": str(tmp_path)}) == str(place)


def test_banks_below_home_do_not(tmp_path: Path) -> None:
    (tmp_path / "Ascend" / "cann" / "data" / "aoe").mkdir(parents=True)
    (tmp_path / "Ascend" / "latest" / "data").mkdir(parents=True)
    assert find_toolkit({"HOME": str(tmp_path)}) == ""


def test_compiler_in_the_path_shows_it_and_an_aoe_does_not(tmp_path: Path) -> None:
    for name in ("aoe", "atc"):
        program = tmp_path / name
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
        found = find_toolkit({"PATH": str(tmp_path)})
        assert found == (str(program) if name == "atc" else "")
