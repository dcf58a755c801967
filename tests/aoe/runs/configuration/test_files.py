"""Files of settings: comments are tolerated, unknown keys are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from aoe.errors import OptionError
from aoe.runs.configuration.files import find_ini, read_config

_TUTORIAL = """// what is tuned
{
    "job_type": "subgraph",     // or 1
    "tuning_time_limit": 3600,
    // "max_tuning_count": 10,
    "max_tuning_count": 1000,
    "search_algorithm": "bayesian",
    "target_metric": "latency"
}
"""


def _written(folder: Path, text: str, name: str = "sgat_config.json") -> Path:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    return folder / name


def test_lines_of_comment_are_passed_over(tmp_path: Path) -> None:
    found = read_config(_written(tmp_path, _TUTORIAL))
    assert found.values == {
        "job_type": "subgraph",
        "tuning_time_limit": 3600,
        "max_tuning_count": 1000,
        "search": "bayesian",
        "target_metric": "latency",
    }
    assert found.keys["search"] == "search_algorithm"


def test_slashes_in_a_text_are_no_comment(tmp_path: Path) -> None:
    found = read_config(_written(tmp_path, '{"job_type": "//2\\"//"} // end'))
    assert found.values == {"job_type": '//2"//'}


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ('{"max_tuning_cout": 1}', "'max_tuning_cout'", "did you mean max_tuning_count?"),
        ('{"Search_Algorithm": "x"}', "no such setting", "did you mean search_algorithm?"),
        ('{"colour": 1}', "expected job_type or stages or tuning_time_limit", None),
        ('{"job_type": 1, "job_type": 2}', "'job_type' is there twice", None),
        ("[1]", "not an object", None),
        ("{", "cannot be read", None),
        ("[" * 100_000, "cannot be read", None),
    ],
)
def test_what_cannot_be_meant_is_refused(
    text: str, message: str, hint: str | None, tmp_path: Path
) -> None:
    file = _written(tmp_path, text)
    with pytest.raises(OptionError) as caught:
        read_config(file)
    assert str(file) in str(caught.value) and message in str(caught.value)
    assert caught.value.hint == (hint or "")


def test_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="No such file"):
        read_config(tmp_path / "none.json")


def test_ini_is_read_as_cann_ships_it(tmp_path: Path) -> None:
    text = "[COMMON]\n# workspace\nWORK_PATH=./\n# [1:64]\nTUNING_PARALLEL_NUM=8\nRUN_LOOP=10\n"
    found = read_config(_written(tmp_path, text, "aoe.ini"))
    assert found.values == {"work_path": "./", "tuning_parallel_num": "8", "run_loop": "10"}


def test_unknown_key_of_an_ini_is_refused_but_not_in_a_toolkit(tmp_path: Path) -> None:
    text = "[COMMON]\nRUN_LOOPS=10\nRUN_LOOP=11\n"
    own = _written(tmp_path, text, "work/aoe.ini")
    with pytest.raises(OptionError, match="RUN_LOOPS") as caught:
        find_ini({}, own.parent)
    assert caught.value.hint == "did you mean RUN_LOOP?"
    _written(tmp_path, text, "cann/tools/aoe/conf/aoe.ini")
    found = find_ini({"ASCEND_TOOLKIT_HOME": str(tmp_path / "cann")}, tmp_path)
    assert found is not None and found.values == {"run_loop": "11"}


def test_ini_is_looked_for_here_then_at_home_then_in_a_toolkit(tmp_path: Path) -> None:
    env = {"HOME": str(tmp_path / "home"), "ASCEND_HOME_PATH": str(tmp_path / "cann")}
    places = ["work/aoe.ini", "home/.config/aoe/aoe.ini", "cann/conf/aoe.ini"]
    for loop, place in enumerate(places, 1):
        _written(tmp_path, f"[COMMON]\nRUN_LOOP={loop}\n", place)
    for loop, place in enumerate(places, 1):
        found = find_ini(env, tmp_path / "work")
        assert found is not None and found.values == {"run_loop": str(loop)}
        found.path.unlink()
        assert found.path == tmp_path / place
    assert find_ini(env, tmp_path / "work") is None


def test_ini_that_is_none_is_told(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="cannot be read") as caught:
        read_config(_written(tmp_path, "RUN_LOOP=1\n", "x.ini"))
    assert "\n" not in str(caught.value)


def test_section_that_is_not_read_is_refused_but_not_in_a_toolkit(tmp_path: Path) -> None:
    text = "[common]\nRUN_LOOP=10\n"
    with pytest.raises(OptionError, match=r"no such section \(got \[common\]"):
        read_config(_written(tmp_path, text, "own.ini"))
    _written(tmp_path, text, "cann/conf/aoe.ini")
    found = find_ini({"ASCEND_HOME_PATH": str(tmp_path / "cann")}, tmp_path)
    assert found is not None and not found.values
