"""What shows that a machine has a CANN toolkit, and what does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from aoebank import find_cann_program, find_toolkit


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


def _program(path: Path, text: str = "#!/bin/sh\necho cann\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("name", ["ASCEND_TOOLKIT_HOME", "ASCEND_HOME_PATH"])
@pytest.mark.parametrize("below", ["bin/aoe", "tools/aoe/bin/aoe"])
def test_aoe_of_cann_is_found_where_a_variable_says(tmp_path: Path, name: str, below: str) -> None:
    program = _program(tmp_path / below)
    assert find_cann_program({name: str(tmp_path)}).program == program


def test_aoe_of_cann_is_found_at_home_in_the_path_and_beside_the_compiler(tmp_path: Path) -> None:
    home = _program(tmp_path / "home/Ascend/ascend-toolkit/latest/bin/aoe")
    assert find_cann_program({"HOME": str(tmp_path / "home")}).program == home
    in_path = _program(tmp_path / "bin/aoe")
    assert find_cann_program({"PATH": str(tmp_path / "bin")}).program == in_path
    _program(tmp_path / "cann/bin/atc")
    beside = _program(tmp_path / "cann/tools/aoe/bin/aoe")
    assert find_cann_program({"PATH": str(tmp_path / "cann/bin")}).program == beside


@pytest.mark.parametrize(
    "text",
    [
        "#!/usr/bin/python3\nimport sys\nfrom aoe.cli.app import main\nsys.exit(main())\n",
        '#!/bin/sh\nexec python -m aoe "$@"\n',
    ],
)
def test_aoe_of_this_engine_is_never_taken_for_it(tmp_path: Path, text: str) -> None:
    own = _program(tmp_path / "own/aoe", text)
    other = _program(tmp_path / "cann/aoe")
    only_own = find_cann_program({"PATH": str(own.parent)})
    assert only_own.program is None
    assert f"PATH, {own.parent}: that is this program" in only_own.tried
    both = find_cann_program({"PATH": f"{own.parent}:{other.parent}"})
    assert both.program == other


def test_search_in_vain_says_every_place(tmp_path: Path) -> None:
    (tmp_path / "toolkit").mkdir()
    tried = find_cann_program({"ASCEND_HOME_PATH": str(tmp_path / "toolkit"), "HOME": "/h"}).tried
    assert "ASCEND_TOOLKIT_HOME is not set" in tried
    assert f"ASCEND_HOME_PATH={tmp_path / 'toolkit'}: none" in tried
    assert "/usr/local/Ascend/ascend-toolkit/latest: none" in tried
    assert "/h/Ascend/cann: none" in tried
    assert "no atc in PATH" in tried
