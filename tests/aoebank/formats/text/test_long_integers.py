"""Integers Python refuses to read: an error with a place, and no command ends by one."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from support.git_work_tree import SAMPLES, SampleBank
from support.golden_harness import run

from aoebank import validate
from aoebank.formats.lines import LineIndex
from aoebank.formats.text.checks import check_text

LIMIT = 4300
LONG = "1" * 5000
_INTEGER = re.compile(rb"(?<=[:\[,])( ?)[0-9]+(?=[,}\]\n])")


def findings(text: str) -> list[str]:
    data = text.encode()
    found = check_text(data, Path("a.json"), LineIndex(data))
    return [f"{item.location.line}:{item.location.column} {item.got}" for item in found]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[%s]" % ("1" * LIMIT), []),
        ("[%s]" % ("1" * (LIMIT + 1)), ["1:2 4301 digits"]),
        ("[-%s]" % ("1" * (LIMIT + 1)), ["1:3 4301 digits"]),
        (f'{{"a": {LONG}}}\n{{"b":{LONG}2}}', ["1:7 5000 digits", "2:6 5001 digits"]),
        (f'{{"{LONG}": "\\"{LONG}", "a": 1}}', []),
        (f"[0.{LONG}, 1e{LONG}, 1e-{LONG}, {LONG}.5]", []),
        (f"[1e5, {LONG}]", ["1:7 5000 digits"]),
    ],
)
def test_integers_beyond_the_limit_are_found_and_nothing_else(
    text: str, expected: list[str]
) -> None:
    assert findings(text) == expected


@pytest.mark.parametrize("blanks", [0, 1, 2149, 2150, 2151, 4299, 4300])
def test_no_place_in_a_file_hides_one(blanks: int) -> None:
    number = "7" * (LIMIT + 1)
    assert findings(f"[{' ' * blanks}{number}]") == [f"1:{blanks + 2} 4301 digits"]
    assert findings(f"{' ' * blanks}{number}") == [f"1:{blanks + 1} 4301 digits"]


def with_long_integer(bank: SampleBank) -> bytes:
    """Return the bank with another last integer; in strings of vector banks there is JSON too."""
    *_, last = _INTEGER.finditer(bank.data)
    return bank.data[: last.end(1)] + b"8" * 5000 + bank.data[last.end() :]


@pytest.mark.parametrize(
    "bank",
    # in tactics of FlashInfer the last one stands in a text
    [b for b in SAMPLES.values() if _INTEGER.search(b.data) and not b.name.endswith(".py")],
    ids=lambda one: one.name,
)
def test_no_command_ends_by_one(bank: SampleBank, tmp_path: Path) -> None:
    data = with_long_integer(bank)
    for name, content in (("a", bank.data), ("b", data)):
        (tmp_path / name).mkdir()
        (tmp_path / name / bank.name).write_bytes(content)
    found = {finding.code for finding in validate(tmp_path / "b").findings}
    assert "AB116" in found
    a, b = (str(tmp_path / name / bank.name) for name in "ab")
    tree = str(tmp_path / "b")
    commands = [
        *(["validate", b, *more] for more in ([], ["--json"], ["--fix", "--dry-run"])),
        *(["validate", tree, "--format", form] for form in ("sarif", "junit", "github")),
        *([verb, b, *more] for verb in ("ls", "show", "textconv") for more in ([], ["--json"])),
        *(["diff", *pair, "--json"] for pair in ((a, b), (b, a), (b, b))),
        *(["merge", *pair, "--dry-run", "--json"] for pair in ((a, b), (b, a), (b, b))),
        ["merge", "--base", a, b, a, "-o", str(tmp_path / "out.json")],
        ["merge-driver", a, b, a, "7", bank.name],
        ["snapshot", tree],
        ["log", tree],
        ["diff", f"snapshot:latest:{tree}", tree],
        ["restore", "latest", tree, "--dry-run"],
        ["quarantine", "add", bank.keys[0], tree, "--reason", "x", "--dry-run"],
        ["blame", bank.keys[0], tree],
    ]
    for command in commands:
        outcome = run("aoebank", command)
        assert outcome.exit_code in (0, 1, 3), (command, outcome.stderr)
        assert "internal error" not in outcome.stderr
        if "--json" in command:
            json.loads(outcome.stdout)
    assert (tmp_path / "b" / bank.name).read_bytes() == data
