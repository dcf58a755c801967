"""A profile as JSON: nothing is lost on the way there and back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.engine.profiles import make_operator_profile, make_profile

from aoe.errors import OptionError
from aoe.profiling.counters import HardwareCounters
from aoe.profiling.document import SCHEMA, profile_from_json, profile_to_json, read_profile
from aoe.profiling.figures import ProfiledModel


def _profile() -> ProfiledModel:
    return make_profile(
        make_operator_profile("a", us_by_threads={1: 180.0, 2: 100.0}, warm_us=70.0),
        make_operator_profile("b", roofline_us=None, reads=("a",), output_shape=(4,)),
        by_threads={1: 300.0, 2: 210.0},
        counters=HardwareCounters(per_run={"cycles": 2e6, "instructions": 3e6}, reason=""),
    )


def test_document_and_back_is_the_same_profile() -> None:
    value = json.loads(json.dumps(profile_to_json(_profile()), allow_nan=False))
    assert profile_from_json(value) == _profile()


def test_document_has_what_follows_from_the_figures() -> None:
    value = profile_to_json(_profile())
    first = value["operators"][0]
    assert (first["lost_us"], first["peak_share"], first["best_threads"]) == (60.0, 0.4, 2)
    assert value["best_threads"] == 2
    assert value["counters"]["instructions_per_cycle"] == 1.5
    assert [kind["kind"] for kind in value["kinds"]] == ["Conv"]


def test_file_that_was_written_is_read(tmp_path: Path) -> None:
    file = tmp_path / "p.json"
    file.write_text(json.dumps({"schema": SCHEMA, **profile_to_json(_profile())}))
    assert read_profile(file) == _profile()


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"schema": "aoe.profile/1"}', '{"schema": "aoe.profile/9"}']
)
def test_what_is_no_profile_is_told_with_the_way_out(tmp_path: Path, text: str) -> None:
    file = tmp_path / "p.json"
    file.write_text(text)
    with pytest.raises(OptionError, match=r"p\.json: no profile") as caught:
        read_profile(file)
    assert "aoe profile MODEL --json" in caught.value.hint


def test_number_larger_than_any_float_is_no_profile(tmp_path: Path) -> None:
    document = {"schema": SCHEMA, **profile_to_json(_profile())}
    document["peak"]["gflops_per_s"] = 10**400
    file = tmp_path / "p.json"
    file.write_text(json.dumps(document))
    with pytest.raises(OptionError, match=r"p\.json: no profile"):
        read_profile(file)


def test_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="cannot be read: No such file"):
        read_profile(tmp_path / "p.json")
