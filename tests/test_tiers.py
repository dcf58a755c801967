"""Tests are ordered by recorded durations, and the slow tier is cut into slices."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import tiers
from support.tiers import Part, few_every_day

_ROOT = Path(__file__).resolve().parents[1]
_NO_CACHE = ("-p", "no:cacheprovider")
_FILES = st.dictionaries(
    st.text("abc", min_size=1), st.tuples(st.integers(1, 9), st.floats(0, 500)), min_size=1
)


def _tests(files: dict[str, tuple[int, float]]) -> Sequence[str]:
    return [f"{file}::{at}" for file, (count, _) in files.items() for at in range(count)]


def _slices(files: dict[str, tuple[int, float]], slice_s: float) -> Sequence[frozenset[Part]]:
    """Divide files, of which the number of tests and the seconds are given."""
    durations = {file: seconds for file, (_, seconds) in files.items()}
    return tiers.slices_of(files, durations, slice_s)


@given(files=_FILES, slice_s=st.floats(20, 400))
def test_every_test_is_in_one_slice_and_no_slice_is_much_longer(
    files: dict[str, tuple[int, float]], slice_s: float
) -> None:
    seconds_of = {file: seconds / count for file, (count, seconds) in files.items()}
    found: list[str] = []
    for parts in _slices(files, slice_s):
        tests = tiers.tests_of(parts, _tests(files))
        found += tests
        # a part has at most one test more than its share of the file
        more_s = sum(seconds_of[part.file] for part in parts)
        took_s = sum(seconds_of[tiers.file_of(test)] for test in tests)
        assert took_s <= 1.5 * slice_s + more_s + 1e-6
    assert sorted(found) == sorted(_tests(files))


def test_short_files_stay_whole() -> None:
    files = {"a": (4, 90.0), "b": (4, 60.0), "c": (4, 40.0)}
    assert [{part.file for part in parts} for parts in _slices(files, 200)] == [{"a", "b", "c"}]
    assert len(_slices(files, 100)) == 2


def test_longest_file_is_first_and_unknown_ones_are_in_between() -> None:
    durations = {"short": 0.1, "long": 30.0}
    assert tiers.longest_first(["new", "short", "long"], durations) == ["long", "new", "short"]


@pytest.mark.parametrize(
    ("expression", "tier"),
    [("", "everyday"), ("slow", "slow"), ("not slow", "everyday"), ("slow and not gpu", "slow")],
)
def test_tier_is_what_the_mark_expression_asks_for(expression: str, tier: str) -> None:
    assert tiers.tier_of(expression) == tier


def test_durations_of_files_that_were_not_run_stay(tmp_path: Path) -> None:
    file = tmp_path / "durations.json"
    here = "tests/test_tiers.py"
    tiers.save_durations(tiers.SLOW, {here: 9.0, "tests/gone.py": 5.0}, file)
    tiers.save_durations(tiers.EVERYDAY, {here: 1.26}, file)
    assert json.loads(file.read_text()) == {"everyday": {here: 1.3}, "slow": {here: 9.0}}


@pytest.mark.parametrize("value", few_every_day(["first", "second"]))
def test_parameters_behind_the_first_are_slow(value: str, request: pytest.FixtureRequest) -> None:
    slow = request.node.get_closest_marker("slow") is not None
    assert slow == (value == "second")


@given(st.integers())
def test_property_is_tried_in_both_tiers(number: int) -> None:
    assert number * 0 == 0


@pytest.mark.parametrize(
    ("options", "names"),
    few_every_day(
        [
            ([], ["[first]", "in_both_tiers"]),
            (["-m", "slow"], ["[second]", "in_both_tiers"]),
            (["-m", "not slow"], ["[first]", "in_both_tiers"]),
        ],
        2,
    ),
)
def test_mark_expression_chooses_the_tier(options: list[str], names: list[str]) -> None:
    chosen = "test_parameters_behind or in_both_tiers"
    done = _pytest("-vv", "--collect-only", *_NO_CACHE, "-k", chosen, *options)
    found = [line for line in done.stdout.splitlines() if "::" in line or "Function" in line]
    assert len(found) == len(names), done.stdout
    assert all(name in line for name, line in zip(names, found, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize(("limit_s", "outcome"), [(0, "skipped"), (300, "passed")])
def test_slice_begins_no_test_behind_its_limit(limit_s: int, outcome: str) -> None:
    here = str(Path(__file__).relative_to(_ROOT))
    slices = tiers.slices_of(tiers.files_with_tests(), tiers.load_durations(tiers.SLOW))
    (number,) = (at for at, parts in enumerate(slices) if here in {part.file for part in parts})
    of_slice = ("-m", "slow", "--slice", str(number), "--slice-limit", str(limit_s))
    done = _pytest("-rs", *_NO_CACHE, "-k", "test_parameters_behind", *of_slice)
    assert done.returncode == 0, done.stdout
    assert f"1 {outcome}" in done.stdout
    assert (f"its slice has taken {limit_s} s" in done.stdout) == (outcome == "skipped")


@pytest.mark.slow
def test_test_of_a_slice_that_failed_is_tried_again(tmp_path: Path) -> None:
    """Its place in the file is another one then, since others are not collected."""
    record = tmp_path / "v" / "cache" / "lastfailed"
    record.parent.mkdir(parents=True)
    failed = f"{Path(__file__).relative_to(_ROOT)}::test_parameters_behind_the_first_are_slow"
    chosen = ("-k", "test_parameters_behind", "--last-failed-no-failures", "none")
    for number in range(2):  # it is in one of them at most
        record.write_text(json.dumps({f"{failed}[second]": True}))
        asked = ("-o", f"cache_dir={tmp_path}", "--last-failed", *chosen)
        done = _pytest(*asked, "-m", "slow", "--slice", str(number))
        assert "1 passed" in done.stdout, done.stdout


def _pytest(*options: str) -> subprocess.CompletedProcess[str]:
    """Run pytest on this file."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "0", *options, str(Path(__file__))],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
