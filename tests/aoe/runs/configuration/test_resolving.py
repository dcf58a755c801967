"""One precedence for every setting, and one table of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from aoe.errors import OptionError
from aoe.runs.configuration.options import SETTINGS
from aoe.runs.configuration.resolving import SettingSource, configure, settings_of
from aoe.tuner.mode import JobType, TuneSettings

_TWO_VALUES: Mapping[str, tuple[str, str]] = {
    "job_type": ("2", "4"),
    "stage": ("sgat:5", "opat"),
    "tuning_time_limit": ("5", "6"),
    "max_tuning_count": ("7", "8"),
    "kernel_memory": ("0", "64"),
    "trials": ("3", "4"),
    "search": ("random", "exhaustive"),
    "target_metric": ("latency", "latency"),
    "seed": ("1", "2"),
    "soc_version": ("host", "x86-64-zen5"),
    "aicore_num": ("1", "2"),
    "device": ("0", "1"),
    "workers": ("4", "tcp://farm:8786"),
    "compile_processes": ("1", "32"),
    "tuning_parallel_num": ("1", "64"),
    "run_loop": ("1", "2048"),
    "work_path": ("here", "there"),
    "repeat_tune": ("True", "False"),
    "accept_busy": ("True", "False"),
    "bank": ("a", "b"),
    "bank_union": ("first", "best"),
    "built_in_bank": ("off", "b"),
    "c_compiler": ("cc", "gcc"),
    "cache_size": ("1G", "2G"),
    "scratch": ("/a", "/b"),
    "locks": ("/a", "/b"),
}


def test_every_row_is_tried_here() -> None:
    assert set(_TWO_VALUES) == set(SETTINGS)
    names = [row.variable for row in SETTINGS.values() if row.variable]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("name", SETTINGS)
def test_option_counts_more_than_file_than_variable_than_default(name: str, tmp_path: Path) -> None:
    row = SETTINGS[name]
    first, second = _TWO_VALUES[name]
    env = {row.variable: second} if row.variable else {}
    config = _file(tmp_path, name, second)

    def source(options: Mapping[str, object], env: Mapping[str, str], file: bool) -> SettingSource:
        found = configure(options, env=env, cwd=tmp_path, config=config if file else None)
        return found.check().settings[name].source

    assert source({}, {}, file=False) is SettingSource.DEFAULT
    if env:
        assert source({}, env, file=False) is SettingSource.ENVIRONMENT
        assert source({}, {row.variable: ""}, file=False) is SettingSource.DEFAULT
    if config is not None:
        stronger = SettingSource.ENVIRONMENT if row.variable_first else SettingSource.FILE
        assert source({}, env, file=True) is stronger
    chosen = configure({name: first}, env=env, cwd=tmp_path, config=config).check().settings[name]
    assert chosen.source is SettingSource.OPTION
    assert chosen.value == row.parse("test", first)


def _file(folder: Path, name: str, value: str) -> Path | None:
    row = SETTINGS[name]
    if row.key:
        (folder / "sgat_config.json").write_text(f'{{"{row.key}": "{value}"}}')
        return folder / "sgat_config.json"
    if row.ini_key:
        (folder / "own.ini").write_text(f"[COMMON]\n{row.ini_key}={value}\n")
        return folder / "own.ini"
    return None


def test_only_the_work_path_is_an_exception() -> None:
    assert [row.name for row in SETTINGS.values() if row.variable_first] == ["work_path"]


def test_config_counts_more_than_aoe_ini(tmp_path: Path) -> None:
    (tmp_path / "aoe.ini").write_text("[COMMON]\nRUN_LOOP=30\nTUNING_PARALLEL_NUM=2\n")
    (tmp_path / "own.ini").write_text("[COMMON]\nRUN_LOOP=40\n")
    found = configure({}, env={}, cwd=tmp_path, config=Path("own.ini"))
    assert found.get("run_loop", int) == 40
    assert found.get("tuning_parallel_num", int) == 2
    assert found.settings["run_loop"].place == f"{tmp_path / 'own.ini'}: RUN_LOOP"


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ({"TE_PARALLEL_COMPILER": "0"}, "TE_PARALLEL_COMPILER: out of range (got 0, expected 1 to"),
        ({"TE_PARALLEL_COMPILER": "33"}, "expected 1 to 32"),
        ({"TE_PARALLEL_COMPILER": "many"}, "TE_PARALLEL_COMPILER: not a whole number"),
        ({"ASCEND_DEVICE_ID": "-1"}, "ASCEND_DEVICE_ID: out of range"),
        ({"REPEAT_TUNE": "yes"}, "REPEAT_TUNE: not a switch"),
        ({"AOE_CACHE_SIZE": "much"}, "AOE_CACHE_SIZE: not a size"),
    ],
)
def test_value_out_of_range_is_in_its_place_and_raised_by_check(
    env: dict[str, str], message: str, tmp_path: Path
) -> None:
    found = configure({}, env=env, cwd=tmp_path)
    assert [one.error is not None for one in found.settings.values()].count(True) == 1
    with pytest.raises(OptionError) as caught:
        found.check()
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_tuning_count", True),
        ("max_tuning_count", 1.5),
        ("max_tuning_count", [1]),
        ("tuning_time_limit", "nan"),
        ("tuning_time_limit", 10**400),
        ("tuning_time_limit", -1),
        ("job_type", {"a": 1}),
        ("search", "annealing"),
    ],
)
def test_value_of_another_kind_is_refused(name: str, value: object, tmp_path: Path) -> None:
    with pytest.raises(OptionError):
        configure({name: value}, env={}, cwd=tmp_path).check()


def test_metric_nobody_knows_is_refused(tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text('{"target_metric": "energy"}')
    with pytest.raises(OptionError, match=r"target_metric.*latency or throughput"):
        configure({}, env={}, cwd=tmp_path, config=Path("c.json")).check()


def test_settings_of_a_run_are_those_of_its_configuration(tmp_path: Path) -> None:
    (tmp_path / "aoe.ini").write_text("[COMMON]\nRUN_LOOP=30\nWORK_PATH=w\nTUNING_PARALLEL_NUM=6\n")
    (tmp_path / "c.json").write_text(
        '{"job_type": "operator", "tuning_time_limit": 60, "max_tuning_count": 9, '
        '"kernel_memory": 64, "search_algorithm": "random", "target_metric": "throughput"}'
    )
    env = {"TE_PARALLEL_COMPILER": "3", "ASCEND_DEVICE_ID": "0", "REPEAT_TUNE": "True"}
    found = configure({"seed": 5}, env=env, cwd=tmp_path, config=Path("c.json"))
    settings = settings_of(Path("m.onnx"), {}, found)
    expected: dict[str, Any] = {
        "job_types": (JobType.OPAT,),
        "tuning_time_limit_s": 60.0,
        "max_tuning_count": 9,
        "kernel_memory_mib": 64,
        "search": "random",
        "target_metric": "throughput",
        "trials": 24,
        "seed": 5,
        "batch": 6,
        "run_loop": 30,
        "work_path": Path("w"),
        "compile_processes": 3,
        "device_id": 0,
        "repeat_tune": True,
        "accept_busy": False,
        "core_num": None,
    }
    assert {name: getattr(settings, name) for name in expected} == expected


def test_defaults_are_those_of_the_settings_themselves(tmp_path: Path) -> None:
    plain = TuneSettings(model=Path("m.onnx"))
    assert settings_of(Path("m.onnx"), {}, configure({}, env={}, cwd=tmp_path)) == plain


@pytest.mark.parametrize("text", ["subgraph", "operator", "gradient", "operator tuning", 2, "2"])
def test_job_types_are_numbers_or_words(text: object, tmp_path: Path) -> None:
    found = configure({"job_type": text}, env={}, cwd=tmp_path).settings["job_type"]
    assert isinstance(found.value, tuple) and isinstance(found.value[0], JobType)


# ---- stages ----


def test_stages_are_modes_with_seconds_each(tmp_path: Path) -> None:
    found = configure({"stage": ["sgat:28800", "2:0.5"]}, env={}, cwd=tmp_path).check()
    assert found.job_types == (JobType.SGAT, JobType.OPAT)
    settings = settings_of(Path("m"), {}, found)
    assert settings.job_types == (JobType.SGAT, JobType.OPAT)
    assert settings.stage_limits_s == (28800.0, 0.5)
    assert settings.tuning_time_limit_s is None


def test_stage_without_seconds_has_no_limit_and_a_list_may_be_one_text(tmp_path: Path) -> None:
    found = configure({"stage": "opat, sgat:3"}, env={}, cwd=tmp_path).check()
    assert found.settings["stage"].value == ((JobType.OPAT, None), (JobType.SGAT, 3.0))


@pytest.mark.parametrize(
    ("stages", "problem"),
    [
        (["tiling:5"], "unknown job type"),
        (["opat:-1"], "not a number of seconds"),
        (["opat:"], "not a number of seconds"),
        (["opat:5", "2:6"], "a mode is there twice"),
        (["gdat:5"], "gradient tuning is no stage"),
        ([""], "unknown job type"),
        ([5.0], "unknown job type"),
        ([None], "neither a text nor a number"),
    ],
)
def test_stage_that_cannot_be_meant_is_refused(
    stages: list[object], problem: str, tmp_path: Path
) -> None:
    with pytest.raises(OptionError, match=f"--stage: {problem}"):
        configure({"stage": stages}, env={}, cwd=tmp_path).check()


@pytest.mark.parametrize("other", [{"job_type": "2"}, {"tuning_time_limit": 5}])
def test_stage_and_what_it_says_already_contradict_each_other(
    other: dict[str, object], tmp_path: Path
) -> None:
    with pytest.raises(OptionError, match="--stage: given together with --") as refused:
        configure({"stage": ["sgat:5"], **other}, env={}, cwd=tmp_path).check()
    assert "a stage says what is tuned" in refused.value.hint


def test_stages_of_the_command_line_count_more_than_a_file(tmp_path: Path) -> None:
    config = tmp_path / "c.json"
    config.write_text('{"job_type": "operator", "tuning_time_limit": 60}')
    found = configure({"stage": ["sgat:5"]}, env={}, cwd=tmp_path, config=config).check()
    assert settings_of(Path("m"), {}, found).stage_limits_s == (5.0,)
    config.write_text('{"stages": ["sgat:5", "opat:6"]}')
    found = configure({}, env={}, cwd=tmp_path, config=config).check()
    assert found.job_types == (JobType.SGAT, JobType.OPAT)
    with pytest.raises(OptionError, match="given together with --job_type"):
        configure({"job_type": "2"}, env={}, cwd=tmp_path, config=config).check()


def test_text_with_a_nul_is_refused_by_the_place_it_stands_in(tmp_path: Path) -> None:
    (tmp_path / "aoe.ini").write_text("[COMMON]\nWORK_PATH=a\0b\n")
    with pytest.raises(OptionError, match=r"aoe\.ini: WORK_PATH: a text with a NUL character"):
        configure({}, env={}, cwd=tmp_path, config=None).check()
