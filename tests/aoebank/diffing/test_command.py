"""`aoebank diff` where the golden files do not look."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support import golden_harness
from support.diff_sides import file_name, unified

from aoebank.testing.factories import make_record

run = golden_harness.run


def bank(root: Path, cost_us: float, tile: int = 16) -> str:
    path = root / file_name()
    path.parent.mkdir(parents=True)
    path.write_bytes(unified(make_record(cost_us=cost_us, tile=tile)))
    return str(root)


@pytest.mark.parametrize(
    ("cost_b", "options", "code"),
    [
        (10.0, [], 0),
        (10.1, [], 1),
        (20.0, [], 1),
        (5.0, [], 1),
        (10.0, ["--fail-on-regression", "5%"], 0),
        (20.0, ["--fail-on-regression", "5%"], 1),
        (5.0, ["--fail-on-regression", "5%"], 0),
        (10.4, ["--fail-on-regression", "5%"], 0),
        (10.4, ["--fail-on-regression", "0"], 1),
        (10.2, ["--fail-on-regression", "0"], 0),
        (10.2, ["--fail-on-regression", "1%", "--noise", "0"], 1),
        (10.6, ["--fail-on-regression", "5%", "--noise", "10%"], 0),
    ],
)
def test_exit_code_says_whether_it_differs_or_got_slower(
    tmp_path: Path, cost_b: float, options: list[str], code: int
) -> None:
    a, b = bank(tmp_path / "a", 10.0), bank(tmp_path / "b", cost_b)
    outcome = run("aoebank", ["diff", a, b, *options])
    assert (outcome.exit_code, outcome.stderr) == (code, "")


@pytest.mark.parametrize("form", ["text", "json", "markdown", "html"])
def test_every_form_has_the_same_exit_code_and_names_the_record(tmp_path: Path, form: str) -> None:
    a, b = bank(tmp_path / "a", 10.0), bank(tmp_path / "b", 20.0, tile=8)
    outcome = run("aoebank", ["diff", a, b, "--format", form, "--fail-on-regression", "5%"])
    assert outcome.exit_code == 1
    assert make_record().key in outcome.stdout


def test_html_goes_out_whole_with_an_error_beside_it(tmp_path: Path) -> None:
    a, b = bank(tmp_path / "a", 10.0), bank(tmp_path / "b", 20.0)
    (tmp_path / "b" / "x_1_AiCore_y.json").write_bytes(b"\xff")
    outcome = run("aoebank", ["diff", a, b, "--format", "html"])
    assert outcome.exit_code == 3
    assert outcome.stdout.endswith("</html>\n")
    assert "bytes are not UTF-8" in outcome.stdout
    assert outcome.stderr.startswith("error: ")


def test_side_that_cannot_be_read_is_never_no_difference(tmp_path: Path) -> None:
    a, b = bank(tmp_path / "a", 10.0), bank(tmp_path / "b", 10.0)
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
    (tmp_path / "b" / "x_1_AiCore_y.json").write_bytes(pointer)
    for options in ([], ["--skip-broken"], ["--format", "markdown"], ["--format", "html"]):
        outcome = run("aoebank", ["diff", a, b, *options])
        assert "no difference" not in outcome.stdout
        assert "1 file not compared" in outcome.stdout
    outcome = run("aoebank", ["diff", a, b])
    assert "is a Git LFS pointer" in outcome.stderr
    assert "hint: git lfs pull" in outcome.stderr


def test_filter_that_no_record_meets_is_never_no_difference(tmp_path: Path) -> None:
    a, b = bank(tmp_path / "a", 10.0), bank(tmp_path / "b", 10.0)
    outcome = run("aoebank", ["diff", a, b, "--op", "Softmaxx", "--fail-on-regression", "5%"])
    assert outcome.exit_code == 0
    assert outcome.stdout.splitlines()[0] == "no record to compare"
    outcome = run("aoebank", ["diff", a, b, "--op", "softmax"])
    assert outcome.exit_code == 2
    assert "got softmax, expected Softmax" in outcome.stderr


def test_json_stays_one_document_with_a_broken_file(tmp_path: Path) -> None:
    a, b = bank(tmp_path / "a", 10.0), bank(tmp_path / "b", 20.0)
    (tmp_path / "b" / "x_1_AiCore_y.json").write_bytes(b"\xff")
    outcome = run("aoebank", ["diff", a, b, "--json"])
    document = json.loads(outcome.stdout)
    assert outcome.exit_code == 3
    assert document["error"] == document["not_compared"][0]
    assert [change["kind"] for change in document["changes"]] == ["slower"]


def test_extreme_times_stay_finite_in_json(tmp_path: Path) -> None:
    a, b = bank(tmp_path / "a", 1e-300), bank(tmp_path / "b", 1e300)
    for sides in ((a, b), (b, a)):
        outcome = run("aoebank", ["diff", *sides, "--json"])
        assert json.loads(outcome.stdout)["times"]["records"] == 1


@pytest.mark.parametrize("option", ["--noise", "--fail-on-regression"])
def test_bad_ratio_is_wrong_usage(tmp_path: Path, option: str) -> None:
    a = bank(tmp_path / "a", 10.0)
    outcome = run("aoebank", ["diff", a, a, option, "many"])
    assert outcome.exit_code == 2
    assert outcome.stderr.startswith(f"error: {option}: is no ratio")
