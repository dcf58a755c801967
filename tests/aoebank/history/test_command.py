"""Commands about versions, from end to end: what they write to disk and say about it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from support import golden_harness
from support import version_banks as banks

from aoebank.testing.factories import make_record

K1, K2, K3 = (make_record(number).key for number in (1, 2, 3))


@pytest.fixture
def bank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the bank the environment names, with two records."""
    root = tmp_path / "bank"
    banks.put(root, make_record(1), make_record(2))
    monkeypatch.setenv("TUNE_BANK_PATH", str(root))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", "/dev/null")
    (tmp_path / "gitconfig").write_text("[user]\nname = Ann Example\nemail = ann@example.org\n")
    monkeypatch.chdir(tmp_path)
    return root


def _run(*arguments: str, exit_code: int = 0) -> str:
    outcome = golden_harness.run("aoebank", arguments)
    assert outcome.exit_code == exit_code, outcome
    return outcome.stdout or outcome.stderr


def _json(*arguments: str, exit_code: int = 0) -> Any:
    outcome = golden_harness.run("aoebank", [*arguments, "--json"])
    assert outcome.exit_code == exit_code, outcome
    assert outcome.stderr == ""
    return json.loads(outcome.stdout)


def test_story_of_a_bad_drop(bank: Path) -> None:
    first = _run("snapshot", "-m", "good", "--tag", "v1")
    assert re.fullmatch(r"snapshot [0-9a-f]{12}: 1 file, 2 records: 2 added, tag v1\n", first), (
        first
    )
    banks.put(bank, make_record(1, tile=99, cost_us=3.0), make_record(3))
    assert _run("snapshot", "--dry-run") == "would record: 1 added, 1 changed\n"
    _run("snapshot", "-m", "drop")
    assert "drop" in _run("blame", K1[:8])
    text = _run("revert", "latest", "--key", K1)
    assert "took back 1 record" in text
    assert banks.costs(bank) == {K1: 11.5, K2: 12.5, K3: 13.5}
    text = _run("restore", "v1")
    assert f"  {K3}  removed" in text
    assert "the result is snapshot" in text
    assert banks.costs(bank) == {K1: 11.5, K2: 12.5}
    messages = [version["message"] for version in _json("log")["versions"]]
    assert [message.split()[0] for message in messages] == ["restore", "revert", "drop", "good"]
    assert "4 snapshots" in _run("log", "--verify")


def test_author_is_the_one_git_knows(bank: Path) -> None:
    snapshot = _json("snapshot")["snapshot"]
    assert snapshot["who"] == "Ann Example <ann@example.org>"
    assert set(snapshot["environment"]) == {"aoebank", "python", "host", "machine", "cpu_model"}
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", snapshot["time"])


def test_author_without_git_is_the_login(bank: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    assert re.fullmatch(r".+@.*", _json("snapshot")["snapshot"]["who"])
    monkeypatch.setenv("PATH", "/nowhere")
    banks.put(bank, make_record(3))
    assert re.fullmatch(r".+@.*", _json("snapshot")["snapshot"]["who"])


def test_dry_runs_write_nothing(bank: Path) -> None:
    _run("snapshot", "--tag", "v1")
    banks.put(bank, make_record(3))
    before = banks.state(bank)
    history = (bank / ".aoebank" / "history.db").read_bytes()
    for arguments in (
        ("snapshot",),
        ("restore", "v1"),
        ("revert", "v1"),
        ("quarantine", "add", K1, "--reason", "x"),
    ):
        assert _json(*arguments, "--dry-run")["dry_run"] is True
        _run(*arguments, "--dry-run")
    assert banks.state(bank) == before
    assert (bank / ".aoebank" / "history.db").read_bytes() == history
    assert not (bank / ".aoebank" / "quarantine.jsonl").exists()


def test_restore_says_what_it_wrote(bank: Path) -> None:
    _run("snapshot", "--tag", "v1")
    banks.put(bank, make_record(3))
    document = _json("restore", "v1", str(bank))
    assert document["dry_run"] is False
    assert [file["what"] for file in document["files"]] == ["changed"]
    assert document["records"][0]["key"] == K3
    assert len(document["snapshots"]["before"]) == len(document["snapshots"]["after"]) == 64


def test_revert_with_a_conflict_exits_1_and_does_the_rest(bank: Path) -> None:
    _run("snapshot")
    banks.put(bank, make_record(1, tile=9), make_record(3))
    _run("snapshot")
    banks.put(bank, make_record(1, tile=5))
    document = _json("revert", "latest", exit_code=1)
    (conflict,) = document["conflicts"]
    assert conflict["key"] == K1
    assert [conflict[name] is None for name in ("before", "version", "now")] == [False] * 3
    assert [record["kind"] for record in document["records"]] == ["removed"]
    assert set(banks.costs(bank)) == {K1, K2}


def test_quarantine_from_end_to_end(bank: Path) -> None:
    old = banks.file_of(bank).read_bytes()
    text = _run(
        "quarantine",
        "add",
        K1[:8],
        "--reason",
        "aicore error",
        "--ticket",
        "T-1",
        "--until",
        "2099-12-31",
        "--evidence",
        "plog of 3 March",
    )
    assert f"in quarantine: {K1}  x86-64-v4, Softmax, strategy " in text
    assert f"removed from the bank: {banks.file_of(bank).relative_to(bank)}: {K1}" in text
    assert set(banks.costs(bank)) == {K2}
    assert "evidence: plog of 3 March" in _run("quarantine", "list")
    assert _run("validate", str(bank)).endswith("0 errors, 0 warnings, 0 notes\n")
    banks.file_of(bank).write_bytes(old)  # an old branch brings it back
    assert "AB513" in _run("validate", str(bank), exit_code=1)
    assert "in the bank" in _run("quarantine", "list", exit_code=1)
    assert f"out of quarantine: {K1}" in _run("quarantine", "rm", K1[:6])
    assert _run("validate", str(bank)).endswith("0 errors, 0 warnings, 0 notes\n")
    assert _run("quarantine", "list") == "0 entries, 0 active\n"


def test_quarantine_without_reason_is_refused(bank: Path) -> None:
    assert "--reason" in _run("quarantine", "add", K1, exit_code=2)
    assert "--reason" in _run("quarantine", "add", K1, "--reason", " ", exit_code=2)
    assert not (bank / ".aoebank").exists()


def test_tag_is_listed_in_all_places(bank: Path) -> None:
    _run("snapshot")
    assert _run("tag") == "no tag\n"
    _run("tag", "v1")
    assert "(v1)" in _run("log")
    assert "(v1)" in _run("blame", K1)
    _run("tag", "--force", exit_code=2)
    assert _run("tag", "v1", "--delete").startswith("v1 no longer means")


def test_damaged_history_is_told_and_the_bank_is_untouched(bank: Path) -> None:
    _run("snapshot", "--tag", "v1")
    history = bank / ".aoebank" / "history.db"
    history.write_bytes(b"x" * 5000)
    before = banks.state(bank)
    for arguments in (
        ("snapshot",),
        ("log",),
        ("log", "--verify"),
        ("tag",),
        ("tag", "v2"),
        ("restore", "v1"),
        ("revert", "v1"),
        ("blame", K1),
        ("diff", "snapshot:v1", str(bank)),
    ):
        document = _json(*arguments, exit_code=3)
        assert document["error"]["code"] == "history"
        assert "damaged" in document["error"]["message"]
    assert banks.state(bank) == before
    assert history.read_bytes() == b"x" * 5000


def test_verify_exits_1_for_a_changed_history(bank: Path) -> None:
    _run("snapshot")
    banks.tamper(bank, "UPDATE snapshot SET who = 'somebody else'")
    text = _run("log", "--verify", exit_code=1)
    assert "the id is not the hash of what it says" in text
    assert _json("log", "--verify", exit_code=1)["problems"]


def test_terminal_is_safe_from_what_a_history_holds(bank: Path) -> None:
    _run("snapshot", "-m", "\x1b[2J", "--tag", "v1")
    for arguments in (("log",), ("blame", K1), ("restore", "v1", "--dry-run")):
        assert "\x1b" not in _run(*arguments)


def test_diff_takes_snapshots(bank: Path) -> None:
    _run("snapshot", "--tag", "v1")
    banks.put(bank, make_record(3))
    assert K3 in _run("diff", "snapshot:v1", str(bank), exit_code=1)
    assert "unknown snapshot" in _run("diff", "snapshot:v9", str(bank), exit_code=3)


def test_bank_is_found_upward_from_the_current_directory_and_named(
    bank: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    banks.put(other, make_record(3))
    banks.snap(other, "of the other bank", tag="v1")
    monkeypatch.chdir(banks.file_of(other).parent)
    for command in (["log"], ["tag"], ["blame", K3], ["restore", "v1"], ["snapshot"]):
        outcome = golden_harness.run("aoebank", command)
        assert outcome.exit_code == 0, outcome
        assert outcome.stderr == f"bank: {other}\n"
    banks.put(other, make_record(4))
    assert make_record(4).key in _run("diff", "snapshot:v1", str(other), exit_code=1)
    assert _json("log")["root"] == str(other)
    assert banks.costs(bank) == {K1: 11.5, K2: 12.5}


def test_log_shows_the_first_line_of_a_message_and_the_document_all(bank: Path) -> None:
    _run("snapshot", "-m", "drop of March\n\n" + "a template\n" * 40)
    assert "a template" not in _run("log")
    assert _json("log")["versions"][0]["message"].count("a template") == 40
