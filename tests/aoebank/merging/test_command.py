"""`aoebank merge` from the command line, beyond what the golden files show."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support import golden_harness, merge_files
from support.merge_files import NAMES, Answer, make_file

from aoebank.merging.decisions import Policy

UNIFIED = "unified"
FILES = {
    "a": {0: Answer(tile=1, cost_us=100.0), 1: Answer(tile=1, cost_us=50.0)},
    "b": {0: Answer(tile=2, cost_us=90.0), 1: Answer(tile=2, cost_us=60.0), 2: Answer(cost_us=7.0)},
}


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the current directory, with two trees in it."""
    for side, answers in FILES.items():
        (tmp_path / side).mkdir()
        (tmp_path / side / NAMES[UNIFIED]).write_bytes(make_file(UNIFIED, answers))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def aoebank(*words: str) -> golden_harness.Outcome:
    return golden_harness.run("aoebank", ["merge", *words])


def tiles(work: Path, side: str) -> dict[int, object]:
    records = json.loads((work / side / NAMES[UNIFIED]).read_bytes())
    numbers = {merge_files.key_of(UNIFIED, number): number for number in range(3)}
    return {numbers[key]: value[0]["knowledge"]["tile"] for key, value in records.items()}


def test_saved_decisions_are_edited_and_applied(work: Path) -> None:
    assert aoebank("a", "b", "--dry-run", "--decisions", "choices.json").exit_code == 0
    assert not (work / "out").exists()
    path = work / "choices.json"
    document = json.loads(path.read_bytes())
    assert document["schema"] == "aoebank.merge-decisions/1"
    for decision in document["decisions"]:
        decision["action"] = "keep-ours"
    path.write_text(json.dumps(document))
    outcome = aoebank("a", "b", "-o", "out", "--apply", "choices.json")
    assert outcome.exit_code == 0
    assert tiles(work, "out") == {0: 1, 1: 1}


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (Policy.KEEP_BEST, {0: 2, 1: 1, 2: 1}),
        (Policy.OURS, {0: 1, 1: 1, 2: 1}),
        (Policy.THEIRS, {0: 2, 1: 2, 2: 1}),
        (Policy.FAIL, {0: 1, 1: 1, 2: 1}),
        (Policy.UNION, {0: 2, 1: 1, 2: 1}),
    ],
)
def test_policy_is_obeyed(work: Path, policy: Policy, expected: dict[int, int]) -> None:
    outcome = aoebank("a", "b", "-o", "out", "--policy", policy)
    assert outcome.exit_code == (1 if policy is Policy.FAIL else 0)
    assert tiles(work, "out") == expected


def test_noise_decides_what_counts_as_faster(work: Path) -> None:
    aoebank("a", "b", "-o", "out", "--noise", "15%")
    assert tiles(work, "out")[0] == 1
    assert aoebank("a", "b", "-o", "out2", "--noise", "15").exit_code == 2


def test_conflicts_are_settled_from_the_conflict_file(work: Path) -> None:
    aoebank("a", "b", "-o", "a", "--policy", "fail")
    path = work / "a" / f"{NAMES[UNIFIED]}.conflicts"
    outcome = aoebank("--apply", str(path), "--json")
    assert outcome.exit_code == 1
    assert len(json.loads(outcome.stdout)["open"]) == 2
    path.write_text(path.read_text().replace('"action": "conflict"', '"action": "take-theirs"'))
    assert aoebank("--apply", str(path)).exit_code == 0
    assert tiles(work, "a") == {0: 2, 1: 2, 2: 1}
    assert not path.exists()


@pytest.mark.parametrize(("side", "wanted"), [("theirs", 2), ("ours", 1)])
def test_all_settles_what_nobody_decided(work: Path, side: str, wanted: int) -> None:
    aoebank("a", "b", "-o", "a", "--policy", "fail")
    path = work / "a" / f"{NAMES[UNIFIED]}.conflicts"
    other = "keep-ours" if side == "theirs" else "take-theirs"
    path.write_text(path.read_text().replace('"action": "conflict"', f'"action": "{other}"', 1))
    assert aoebank("--apply", str(path), "--all", side, "--dry-run").exit_code == 0
    assert path.exists()
    assert aoebank("--apply", str(path), "--all", side).exit_code == 0
    assert tiles(work, "a") == {0: 3 - wanted, 1: wanted, 2: 1}  # the first was decided
    assert not path.exists()


def test_all_settles_saved_decisions_too(work: Path) -> None:
    words = ("a", "b", "-o", "out", "--policy", "fail")
    aoebank(*words, "--dry-run", "--decisions", "saved.json")
    assert aoebank(*words, "--apply", "saved.json").exit_code == 1
    again = ("a", "b", "-o", "out2", "--policy", "fail", "--apply", "saved.json", "--all", "theirs")
    assert aoebank(*again).exit_code == 0
    assert tiles(work, "out2") == {0: 2, 1: 2, 2: 1}


def test_apply_without_sides_says_what_it_takes(work: Path) -> None:
    outcome = aoebank("--apply", "a.conflict")
    assert outcome.exit_code == 3
    assert "error: a.conflict: no such file (expected a .conflicts file)" in outcome.stderr
    (work / "saved.json").write_text("{}")
    outcome = aoebank("--apply", "saved.json")
    assert outcome.exit_code == 2
    assert "hint: aoebank merge --apply saved.json A B -o DST" in outcome.stderr
    (work / "saved.json.conflicts").write_text("{}")
    outcome = aoebank("--apply", "saved.json")
    assert "hint: aoebank merge --apply saved.json.conflicts\n" in outcome.stderr


def test_all_needs_apply_and_a_side(work: Path) -> None:
    assert aoebank("a", "b", "-o", "out", "--all", "ours").exit_code == 2
    aoebank("a", "b", "-o", "a", "--policy", "fail")
    outcome = aoebank("--apply", f"a/{NAMES[UNIFIED]}.conflicts", "--all", "base")
    assert outcome.exit_code == 2
    assert "ours or theirs" in outcome.stderr


def test_json_has_every_decision_with_its_records(work: Path) -> None:
    document = json.loads(aoebank("a", "b", "-o", "out", "--json").stdout)
    assert [decision["reason"] for decision in document["decisions"]] == [
        "faster",
        "faster",
        "theirs-added",
    ]
    assert document["decisions"][0]["ours"]["record"].startswith('"')
    assert document["written"] == [f"out/{NAMES[UNIFIED]}"]


def test_decisions_that_cannot_be_written_are_an_error(work: Path) -> None:
    (work / "file").write_text("")
    assert aoebank("a", "b", "--dry-run", "--decisions", "file/choices.json").exit_code == 3
