"""A conflict git met cannot be overlooked; choices are kept, and applied in that merge alone."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from support.git_work_tree import SAMPLES, WorkTree
from support.tiers import few_every_day

BANK = next(bank for bank in SAMPLES.values() if bank.name.endswith("_matmul.json"))
NAME = f"banks/{BANK.name}"
FILE = f"{NAME}.conflicts"
OURS, THEIRS = BANK.bumped(0, 1), BANK.bumped(0, 2)


@pytest.fixture
def forked(tree: WorkTree) -> WorkTree:
    """Return a work tree with two branches that gave record 0 another strategy."""
    tree.git("config", "aoebank.merge.policy", "fail")
    tree.fork({NAME: BANK.data}, {NAME: OURS}, {NAME: THEIRS})
    return tree


@pytest.fixture
def merging(forked: WorkTree) -> WorkTree:
    """Return a work tree in the middle of a merge with one conflict."""
    assert forked.try_git("merge", "-q", "--no-edit", "theirs").returncode == 1
    return forked


def _check(tree: WorkTree, *options: str, cwd: Path | None = None) -> dict[str, list[str]]:
    """Return the paths of each problem by its code."""
    result = tree.aoebank("git", "check", "--json", *options, cwd=cwd)
    problems = json.loads(result.stdout)["problems"]
    assert result.returncode == (1 if problems else 0)
    return {problem["code"]: problem["paths"] for problem in problems}


def _unsettled(tree: WorkTree, *revisions: str) -> list[tuple[str, str]]:
    """Return commit (empty for the work tree) and path of what verify-merge calls unsettled."""
    result = tree.aoebank("git", "verify-merge", "--json", *revisions)
    merges = json.loads(result.stdout)["merges"]
    found = [
        (merge["commit"], problem["path"])
        for merge in merges
        for problem in merge["problems"]
        if problem["fault"] == "unsettled"
    ]
    assert result.returncode == 1 if found else result.returncode in (0, 1)
    return found


def _choose(tree: WorkTree, action: str = "take-theirs") -> bytes:
    """Choose an action for every conflict; return the file."""
    data = tree.read(FILE).replace(b'"action": "conflict"', f'"action": "{action}"'.encode())
    tree.write(FILE, data)
    return data


def _document(tree: WorkTree) -> dict[str, Any]:
    document = json.loads(tree.read(FILE))
    assert isinstance(document, dict)
    return document


def _apply(tree: WorkTree) -> tuple[int, str]:
    result = tree.aoebank("merge", "--apply", FILE)
    return result.returncode, result.stderr


@pytest.mark.slow
def test_commit_of_everything_cannot_pass_check_or_verify(merging: WorkTree) -> None:
    merging.git("add", "-A")
    assert _check(merging) == {"conflict_file": [FILE]}
    merging.git("commit", "-q", "--no-edit")
    assert _check(merging) == {"conflict_file": [FILE]}
    assert _check(merging, "--committed") == {"conflict_file": [FILE]}
    commit = merging.git("rev-parse", "HEAD").strip()
    assert _unsettled(merging) == [(commit, FILE), ("", FILE)]
    other = merging.top.with_name("other")
    merging.git("clone", "-q", str(merging.top), str(other))
    assert _check(merging, "--committed", cwd=other) == {"conflict_file": [FILE]}


def test_commit_of_the_bank_alone_cannot_pass_check_or_verify(merging: WorkTree) -> None:
    merging.git("commit", "-q", "-a", "--no-edit")
    assert _check(merging) == {"unsettled": [FILE]}
    assert _unsettled(merging) == [("", FILE)]
    output = merging.aoebank("git", "verify-merge")
    assert f"unsettled {FILE}: conflicts nobody settled: 1 open" in output.stdout
    assert "1 record in conflict, all as the first parent has them" in output.stdout


@pytest.mark.slow
def test_conflict_file_that_somebody_ignores_is_found_all_the_same(merging: WorkTree) -> None:
    merging.write(".gitignore", b"*.conflicts\n")
    assert _check(merging) == {"unsettled": [FILE]}


def test_settled_conflict_is_in_order(merging: WorkTree) -> None:
    _choose(merging)
    assert _apply(merging)[0] == 0
    assert merging.read(NAME) == THEIRS
    merging.git("add", "-A")
    merging.git("commit", "-q", "--no-edit")
    assert _check(merging) == {}
    output = merging.aoebank("git", "verify-merge")
    assert output.returncode == 0
    assert "1 record in conflict, all decided against the first parent" in output.stdout


@pytest.mark.slow
def test_merge_commit_can_be_settled_after_the_fact(merging: WorkTree) -> None:
    merging.git("commit", "-q", "-a", "--no-edit")
    _choose(merging)
    assert _apply(merging) == (0, "")
    merging.git("commit", "-q", "-a", "--amend", "--no-edit")
    assert _check(merging) == {}
    assert _unsettled(merging) == []


ABORTS = {
    "merge": (["merge", "theirs"], ["merge", "--abort"]),
    "reset": (["merge", "theirs"], ["reset", "-q", "--hard"]),
    "rebase": (["rebase", "theirs"], ["rebase", "--abort"]),
    "rebase-apply": (["rebase", "--apply", "theirs"], ["rebase", "--abort"]),
    "cherry-pick": (["cherry-pick", "theirs"], ["cherry-pick", "--abort"]),
    "revert": (["revert", "--no-edit", "HEAD~1"], ["revert", "--abort"]),
}


@pytest.mark.slow
@pytest.mark.parametrize(("start", "abort"), few_every_day(ABORTS.values()), ids=ABORTS.keys())
def test_abort_leaves_a_file_the_next_command_calls_stale(
    forked: WorkTree, start: list[str], abort: list[str]
) -> None:
    if start[0] == "revert":
        forked.commit("first change", {NAME: BANK.bumped(0, 5)})
        forked.commit("second change", {NAME: BANK.bumped(0, 7)})
    assert forked.try_git(*start).returncode == 1
    assert _check(forked) == {"unsettled": [FILE]}
    assert _unsettled(forked) == [("", FILE)]
    forked.git(*abort)
    before = forked.read(NAME)
    assert _check(forked) == {"stale_conflict": [FILE]}
    assert _unsettled(forked) == []
    _choose(forked)
    code, error = _apply(forked)
    assert code == 3
    assert "given up" in error or "another branch" in error
    assert forked.read(NAME) == before
    hint = forked.aoebank("git", "check").stdout.rpartition("hint: ")[2].splitlines()[0]
    assert forked.run("sh", "-c", hint).returncode == 0
    assert _check(forked) == {}


CONTINUED = {
    "rebase": (["rebase", "theirs"], ["rebase", "--continue"]),
    "cherry-pick": (["cherry-pick", "theirs"], ["cherry-pick", "--continue"]),
}


@pytest.mark.parametrize(
    ("start", "go_on"), few_every_day(CONTINUED.values()), ids=CONTINUED.keys()
)
def test_conflict_of_a_rebase_or_a_cherry_pick_is_settled_in_it(
    forked: WorkTree, start: list[str], go_on: list[str]
) -> None:
    forked.try_git(*start)
    merged = forked.read(NAME)
    _choose(forked)
    forked.git("add", NAME)
    assert _check(forked) == {"unsettled": [FILE]}
    assert _apply(forked) == (0, "")
    assert forked.read(NAME) != merged
    forked.git("add", NAME)
    forked.git(*go_on)
    assert _check(forked) == {}


@pytest.mark.slow
@pytest.mark.parametrize(("start", "go_on"), CONTINUED.values(), ids=CONTINUED.keys())
def test_conflict_a_rebase_went_over_stays_unsettled(
    forked: WorkTree, start: list[str], go_on: list[str]
) -> None:
    forked.try_git(*start)
    forked.write("more", b"")  # else the commit would be empty, and left out
    forked.git("add", NAME, "more")
    forked.git(*go_on)
    assert _check(forked) == {"unsettled": [FILE]}
    _choose(forked)
    code, error = _apply(forked)
    assert code == 3
    assert "commits were made since" in error


@pytest.mark.slow
def test_stash_pop(forked: WorkTree) -> None:
    forked.write(NAME, BANK.bumped(0, 3))
    forked.git("stash")
    forked.commit("meanwhile", {NAME: BANK.without(5, of=BANK.bumped(0, 4))})
    assert forked.try_git("stash", "pop").returncode == 1
    assert _check(forked) == {"unsettled": [FILE]}
    _choose(forked)
    assert _apply(forked) == (0, "")
    records = BANK.records(forked.read(NAME))
    assert records[BANK.keys[0]] == BANK.records(BANK.bumped(0, 3))[BANK.keys[0]]
    assert BANK.keys[5] not in records
    assert _check(forked) == {}


@pytest.mark.slow
def test_stash_pop_that_was_undone_is_stale(forked: WorkTree) -> None:
    forked.write(NAME, BANK.bumped(0, 3))
    forked.git("stash")
    forked.commit("meanwhile", {NAME: BANK.bumped(0, 4)})
    forked.try_git("stash", "pop")
    forked.git("checkout", "-q", "HEAD", "--", NAME)
    assert _check(forked) == {"stale_conflict": [FILE]}


def test_merging_again_keeps_what_was_chosen(merging: WorkTree) -> None:
    _choose(merging)
    merging.git("merge", "--abort")
    result = merging.try_git("merge", "--no-edit", "theirs")
    assert "1 choice you made there before is kept" in result.stdout
    (decision,) = _document(merging)["decisions"]
    assert decision["action"] == "take-theirs"
    assert _apply(merging) == (0, "")
    assert merging.read(NAME) == THEIRS


@pytest.mark.slow
def test_merging_one_file_again_keeps_what_was_chosen(merging: WorkTree) -> None:
    chosen = _choose(merging)
    merging.git("checkout", "-m", "--", NAME)
    assert merging.read(FILE) == chosen


@pytest.mark.slow
@pytest.mark.parametrize("edit", few_every_day([b"{ half", b"\xff", None]))
def test_choices_about_other_records_are_set_aside(merging: WorkTree, edit: bytes | None) -> None:
    old = _choose(merging) if edit is None else edit
    merging.write(FILE, old)
    merging.git("merge", "--abort")
    merging.git("checkout", "-q", "-b", "more", "theirs")
    merging.write(NAME, BANK.bumped(0, 9))
    merging.git("commit", "-q", "-a", "-m", "again")
    merging.git("checkout", "-q", "main")
    result = merging.try_git("merge", "--no-edit", "more")
    (aside,) = merging.top.glob("banks/*.old-*")
    assert aside.read_bytes() == old
    assert f"choices of an earlier merge are kept in banks/{aside.name}" in result.stdout
    assert [decision["action"] for decision in _document(merging)["decisions"]] == ["conflict"]
    assert aside.name not in merging.git("status", "--porcelain", "--untracked-files=all")


@pytest.mark.slow
def test_another_policy_sets_choices_aside_and_leaves_no_conflict(merging: WorkTree) -> None:
    old = _choose(merging, "keep-ours")
    merging.git("-c", "aoebank.merge.policy=theirs", "checkout", "-m", "--", NAME)
    assert merging.read(NAME) == THEIRS
    assert not (merging.top / FILE).exists()
    (aside,) = merging.top.glob("banks/*.old-*")
    assert aside.read_bytes() == old


def test_apply_refuses_during_a_merge_of_something_else(merging: WorkTree) -> None:
    _choose(merging)
    merging.git("merge", "--abort")
    merging.git("checkout", "-q", "-b", "other", "main~1")
    merging.git("commit", "-q", "--allow-empty", "-m", "x")
    merging.git("checkout", "-q", "main")
    merging.git("merge", "-q", "--no-commit", "--no-ff", "other")
    code, error = _apply(merging)
    assert code == 3
    assert "given up" in error
    assert merging.read(NAME) == OURS
    assert _check(merging) == {"stale_conflict": [FILE]}


@pytest.mark.slow
def test_apply_refuses_on_another_branch_with_the_same_records(merging: WorkTree) -> None:
    merging.git("merge", "--abort")
    _choose(merging)
    merging.git("checkout", "-q", "-b", "other", "main~1")
    merging.commit("same", {NAME: OURS})
    code, error = _apply(merging)
    assert code == 3
    assert "another branch" in error
    assert merging.read(NAME) == OURS


@pytest.mark.slow
def test_apply_refuses_conflicts_of_aoebank_merge_on_another_branch(forked: WorkTree) -> None:
    forked.write("theirs.json", THEIRS)
    forked.write("base.json", BANK.data)
    options = ["--policy", "fail", "--base", "base.json", "-o", NAME]
    assert forked.aoebank("merge", *options, NAME, "theirs.json").returncode == 1
    _choose(forked)
    forked.git("checkout", "-q", "-b", "other", "main~1")
    forked.write(NAME, OURS)
    assert _apply(forked)[0] == 3
    forked.git("checkout", "-q", "--", NAME)
    forked.git("checkout", "-q", "main")
    assert _apply(forked) == (0, "")
    assert forked.read(NAME) == THEIRS


@pytest.mark.slow
def test_linked_work_tree_has_conflicts_of_its_own(forked: WorkTree) -> None:
    linked = forked.top.with_name("linked")
    forked.git("worktree", "add", "-q", "-b", "side", str(linked), "main")
    assert forked.run("git", "merge", "-q", "theirs", cwd=linked).returncode == 1
    assert _check(forked, cwd=linked) == {"unsettled": [FILE]}
    assert _check(forked) == {}
    place = linked / FILE
    place.write_bytes(place.read_bytes().replace(b'"conflict"', b'"take-theirs"'))
    assert forked.aoebank("merge", "--apply", FILE, cwd=linked).returncode == 0
    assert (linked / NAME).read_bytes() == THEIRS
    assert _check(forked, cwd=linked) == {}


@pytest.mark.slow
def test_sparse_checkout_without_the_folder_of_the_bank(forked: WorkTree) -> None:
    forked.git("sparse-checkout", "set", "--cone", "elsewhere")
    assert not (forked.top / NAME).exists()
    assert forked.try_git("merge", "-q", "theirs").returncode == 1
    assert _check(forked) == {"unsettled": [FILE]}
    _choose(forked)
    assert _apply(forked) == (0, "")
    assert forked.read(NAME) == THEIRS
    assert _check(forked) == {}


@pytest.mark.slow
def test_clone_without_the_driver_is_told_by_verify(forked: WorkTree) -> None:
    other = forked.top.with_name("other")
    forked.git("clone", "-q", str(forked.top), str(other))
    merge = forked.run("git", "merge", "-q", "--no-edit", "origin/theirs", cwd=other)
    assert merge.returncode == 1
    forked.git("checkout", "--ours", "--", NAME, cwd=other)
    forked.git("add", "-A", cwd=other)
    forked.git("commit", "-q", "--no-edit", cwd=other)
    assert _check(forked, cwd=other).keys() == {"not_registered"}
    result = forked.aoebank("git", "verify-merge", "--policy", "fail", cwd=other)
    assert "1 record in conflict, all as the first parent has them" in result.stdout


def test_message_shows_the_shape_and_the_fields_that_differ(forked: WorkTree) -> None:
    output = forked.try_git("merge", "--no-edit", "theirs").stdout
    (decision,) = _document(forked)["decisions"]
    assert decision["workload"]
    lines = output[output.index(BANK.keys[0]) :].splitlines()
    assert lines[1] == f"    {decision['workload']}"
    assert decision["op_type"] in lines[1]
    (pointer,) = decision["differs"]
    assert re.fullmatch(rf"    {re.escape(pointer)}: ours -?\d+, theirs -?\d+", lines[2])


@pytest.mark.slow
def test_removed_against_changed_shows_the_change(forked: WorkTree) -> None:
    forked.git("checkout", "-q", "theirs")
    forked.commit("gone", {NAME: BANK.without(0)})
    forked.git("checkout", "-q", "main")
    output = forked.try_git("merge", "--no-edit", "theirs").stdout
    assert re.search(r"deleted-and-changed.*\n.*\n    /\S+: base -?\d+, ours -?\d+\n", output)


@pytest.mark.slow
def test_empty_and_foreign_conflict_files_are_nobodys_problem_or_told(tree: WorkTree) -> None:
    tree.commit("base", {NAME: BANK.data})
    tree.write("notes.conflicts", b"with my neighbours\n")
    assert _check(tree) == {}
    tree.write(FILE, b"")
    assert _check(tree) == {"unsettled": [FILE]}
    assert "cannot be read" in tree.aoebank("git", "check").stdout


def test_hook_stops_commits_until_conflicts_are_settled(merging: WorkTree) -> None:
    merging.aoebank("git", "install", "--hook")
    merging.git("add", NAME)
    stopped = merging.try_git("commit", "-q", "--no-edit")
    assert stopped.returncode == 1
    assert FILE in stopped.stdout + stopped.stderr
    merging.git("add", FILE)
    assert merging.try_git("commit", "-q", "--no-edit").returncode == 1
    merging.git("rm", "-q", "--cached", FILE)
    _choose(merging)
    assert merging.try_git("commit", "-q", "--no-edit").returncode == 1  # chosen, not applied
    assert _apply(merging) == (0, "")
    merging.git("add", NAME)
    merging.git("commit", "-q", "--no-edit")
    assert _unsettled(merging) == []
