"""A file a person named that is no bank file: one error, in every verb."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import golden_harness
from support import sample_bank_files as samples

VERBS = (
    "validate FILE",
    "fmt FILE",
    "ls FILE",
    "show FILE",
    "show FILE:0123abcd",
    "stats FILE",
    "report FILE",
    "textconv FILE",
    "diff FILE FILE",
    "diff FILE BANK",
    "merge BANK FILE -o out.json",
    "convert FILE -o rows.csv",
    "edit FILE --op matmul --set a=1",
    "prune FILE",
    "stale FILE",
    "query SELECT FILE",
)


@pytest.mark.parametrize("command", VERBS)
@pytest.mark.parametrize(
    "content", ['{"bad": 1}', '[{"name": "AddN", "hash": "1"}]', "remember the milk\n"]
)
def test_verb_says_once_that_it_is_no_bank_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, content: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tactics.json").write_text(content)
    Path("bank.json").write_bytes(samples.UNIFIED.read_bytes())
    words = {"FILE": "tactics.json", "BANK": "bank.json", "SELECT": "SELECT 1"}
    arguments = [
        words.get(word, word.replace("FILE:", "tactics.json:")) for word in command.split()
    ]
    outcome = golden_harness.run("aoebank", arguments)
    told = outcome.stdout + outcome.stderr
    assert outcome.exit_code in (1, 3), told
    assert told.count("is no bank file") == 1, told
    assert Path("tactics.json").read_text() == content


@pytest.mark.parametrize("content", ["", "{}\n", "[]", " \n"])
def test_file_without_content_may_become_one(tmp_path: Path, content: str) -> None:
    file = tmp_path / "tuned.json"
    file.write_text(content)
    outcome = golden_harness.run("aoebank", ["diff", str(file), str(samples.UNIFIED)])
    assert "is no bank file" not in outcome.stderr
