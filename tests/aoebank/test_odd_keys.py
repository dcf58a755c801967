"""Keys and texts nobody should write: told as findings and conflicts, never an internal error."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support import golden_harness, merge_files
from support.merge_files import NAMES, Answer
from support.tiers import few_every_day

ODD = ["", "\\ud800", "\\u0000", "x\\ud800y", "\\n", " "]


def files_with(name: str, key: str) -> tuple[bytes, bytes, bytes]:
    """Return a base, ours and theirs, both sides with other answers under an odd key."""
    texts = [merge_files.record_text(name, 0, Answer(tile=tile)) for tile in (1, 2, 3)]
    first = texts[0]
    old = first[: json.JSONDecoder().raw_decode(first)[1]]
    plain = merge_files.record_text(name, 1, Answer())
    found = [
        merge_files.write_file(name, [text.replace(old, f'"{key}"', 1), plain]) for text in texts
    ]
    return found[0], found[1], found[2]


@pytest.fixture
def sides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("key", few_every_day(ODD))
@pytest.mark.parametrize("name", ["unified", "vector"])
@pytest.mark.parametrize("is_odd_text", [False, True])
def test_no_command_ends_with_an_internal_error(
    sides: Path, name: str, key: str, is_odd_text: bool
) -> None:
    for side, data in zip(("base", "ours", "theirs"), files_with(name, key), strict=True):
        data = data.replace(b'"tile"', b'"\\udfff"') if is_odd_text else data
        (sides / side).mkdir()
        (sides / side / NAMES[name]).write_bytes(data)
    places = [f"{side}/{NAMES[name]}" for side in ("base", "ours", "theirs")]
    calls = [
        ["show", places[1]],
        ["ls", "ours"],
        ["textconv", places[1]],
        ["validate", "ours"],
        ["diff", "base", "theirs"],
        ["diff", "--format", "html", "base", "theirs"],
        ["diff", "--format", "markdown", "base", "theirs"],
        ["merge", "ours", "theirs", "--dry-run"],
        ["merge", "--base", "base", "ours", "theirs", "-o", "new", "--decisions", "d.json"],
        ["merge", "ours", "theirs", "--policy", "union", "-o", "union"],
        ["merge-driver", *places, "7", NAMES[name]],
        ["validate", "--fix", "ours"],
    ]
    for call in calls:
        for more in ([], ["--json"]):
            if "--format" in call and more:
                continue
            outcome = golden_harness.run("aoebank", [*call, *more])
            assert "internal error" not in outcome.stdout + outcome.stderr, (call, outcome)
            assert outcome.exit_code in (0, 1, 3), call


def test_conflicts_about_odd_keys_are_settled(sides: Path) -> None:
    base, ours, theirs = files_with("unified", "\\ud800")
    for side, data in (("base", base), ("ours", ours), ("theirs", theirs)):
        (sides / side).mkdir()
        (sides / side / NAMES["unified"]).write_bytes(data)
    outcome = golden_harness.run(
        "aoebank", ["merge", "--base", "base", "ours", "theirs", "-o", "new"]
    )
    assert outcome.exit_code == 1
    conflicts = sides / "new" / f"{NAMES['unified']}.conflicts"
    text = conflicts.read_text(encoding="utf-8").replace(
        '"action": "conflict"', '"action": "take-theirs"'
    )
    conflicts.write_text(text, encoding="utf-8")
    outcome = golden_harness.run("aoebank", ["merge", "--apply", str(conflicts)])
    assert outcome.exit_code == 0, outcome.stderr
    assert (sides / "new" / NAMES["unified"]).read_bytes() == theirs
