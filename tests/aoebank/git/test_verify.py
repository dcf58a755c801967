"""`aoebank git verify-merge` finds what a merge did to records."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest
from support import merge_files
from support.git_work_tree import SAMPLES, SOME_FORMATS, SampleBank, WorkTree
from support.tiers import few_every_day

from aoebank.model.quarantine import QuarantineEntry
from aoebank.storage.quarantine import serialize_quarantine

UNIFIED = next(bank for bank in SAMPLES.values() if bank.name.endswith("_matmul.json"))
NAME, KEYS = UNIFIED.name, UNIFIED.keys


def _verify(tree: WorkTree, *arguments: str) -> list[dict[str, Any]]:
    """Return the merges of the document; the exit code must fit them."""
    result = tree.aoebank("git", "verify-merge", "--json", *arguments)
    merges: list[dict[str, Any]] = json.loads(result.stdout)["merges"]
    assert result.returncode == int(any(merge["problems"] for merge in merges)), result.stderr
    return merges


def _faults(tree: WorkTree, *arguments: str) -> list[tuple[str, str]]:
    """Return fault and key of each problem of HEAD."""
    (merge,) = _verify(tree, *arguments)
    return [(problem["fault"], problem["key"]) for problem in merge["problems"]]


def _merge_as(tree: WorkTree, files: dict[str, bytes | None]) -> None:
    """Commit a merge of `theirs` whose files are as somebody, or some host, left them."""
    tree.try_git("merge", "--no-commit", "--no-ff", "theirs")
    tree.commit("merge", files)
    assert tree.git("rev-list", "--parents", "-1", "HEAD").count(" ") == 2


def _fork_additions(tree: WorkTree, bank: SampleBank = UNIFIED) -> None:
    tree.fork(
        {bank.name: bank.without(0, 1)}, {bank.name: bank.without(0)}, {bank.name: bank.without(1)}
    )


def _fork_conflict(tree: WorkTree) -> tuple[bytes, bytes]:
    """Let both sides give record 0 another strategy; there is nothing to tell which to take."""
    ours, theirs = UNIFIED.bumped(0, 1), UNIFIED.bumped(0, 2)
    tree.fork({NAME: UNIFIED.data}, {NAME: ours}, {NAME: theirs})
    return ours, theirs


@SOME_FORMATS
def test_merge_of_the_driver_is_in_order(tree: WorkTree, bank: SampleBank) -> None:
    _fork_additions(tree, bank)
    tree.git("merge", "-q", "--no-edit", "theirs")
    (merge,) = _verify(tree)
    assert merge["problems"] == []
    assert merge["files"] == 1
    assert merge["commit"] == tree.git("rev-parse", "HEAD").strip()


@SOME_FORMATS
def test_record_that_is_gone_is_lost(clone: WorkTree, bank: SampleBank) -> None:
    _fork_additions(clone, bank)
    _merge_as(clone, {bank.name: bank.without(0)})
    assert _faults(clone) == [("lost", bank.keys[0])]


@SOME_FORMATS
def test_record_of_no_parent_is_invented(clone: WorkTree, bank: SampleBank) -> None:
    _fork_additions(clone, bank)
    _merge_as(clone, {bank.name: bank.bumped(3, 7)})
    assert _faults(clone) == [("invented", bank.keys[3])]


def test_text_merge_that_mixes_two_records_is_found(clone: WorkTree) -> None:
    """As AITER's history has it: the strategy of one side with the time of the other."""
    ours, theirs = UNIFIED.bumped(0, 1), UNIFIED.retimed(0, 99.5)
    clone.fork({NAME: UNIFIED.data}, {NAME: ours}, {NAME: theirs})
    _merge_as(clone, {NAME: UNIFIED.retimed(0, 99.5, of=ours)})
    assert _faults(clone, "--policy", "ours") == [("invented", KEYS[0])]
    assert _faults(clone, "--policy", "ours", "--allow-choice") == [("invented", KEYS[0])]


def test_key_that_is_there_twice_is_a_duplicate(clone: WorkTree) -> None:
    _fork_additions(clone)
    lines = UNIFIED.data.split(b"\n")
    doubled = b"\n".join([*lines[:2], lines[1], *lines[2:]])
    _merge_as(clone, {NAME: doubled})
    assert ("duplicate", KEYS[0]) in _faults(clone)


@SOME_FORMATS
def test_conflict_marker_is_found_at_its_line(clone: WorkTree, bank: SampleBank) -> None:
    _fork_additions(clone, bank)
    _merge_as(clone, {bank.name: b"<<<<<<< ours\n" + bank.data})
    (merge,) = _verify(clone)
    assert [(problem["fault"], problem["line"]) for problem in merge["problems"]] == [
        ("markers", 1)
    ]


def test_file_that_is_broken_is_found(clone: WorkTree) -> None:
    _fork_additions(clone)
    _merge_as(clone, {NAME: UNIFIED.data[:-20]})
    assert [fault for fault, _ in _faults(clone)] == ["broken"]


def test_record_one_side_removed_is_back(clone: WorkTree) -> None:
    clone.fork({NAME: UNIFIED.data}, {NAME: UNIFIED.without(0)}, {NAME: UNIFIED.without(1)})
    _merge_as(clone, {NAME: UNIFIED.without(0)})
    assert _faults(clone) == [("returned", KEYS[1])]


def test_slower_record_of_the_two_is_the_wrong_one(clone: WorkTree) -> None:
    ours = UNIFIED.bumped(0, 1, of=UNIFIED.retimed(0, 300.0))
    theirs = UNIFIED.bumped(0, 2, of=UNIFIED.retimed(0, 200.0))
    clone.fork({NAME: UNIFIED.data}, {NAME: ours}, {NAME: theirs})
    _merge_as(clone, {NAME: ours})
    assert _faults(clone) == [("different", KEYS[0])]
    assert _faults(clone, "--allow-choice") == []
    assert _faults(clone, "--policy", "ours") == []
    assert _faults(clone, "--override", "op=matmul:ours") == []


def test_policy_of_git_config_counts(clone: WorkTree) -> None:
    ours, _ = _fork_conflict(clone)
    clone.git("config", "aoebank.merge.policy", "theirs")
    _merge_as(clone, {NAME: ours})
    assert _faults(clone) == [("different", KEYS[0])]
    assert _faults(clone, "--policy", "fail") == []


@pytest.mark.parametrize("number", few_every_day([0, 1]))
def test_person_may_settle_a_conflict_with_either_record(clone: WorkTree, number: int) -> None:
    sides = _fork_conflict(clone)
    _merge_as(clone, {NAME: sides[number]})
    (merge,) = _verify(clone, "--policy", "fail")
    assert merge["problems"] == []
    assert merge["choices"] == 1


def test_person_may_not_settle_a_conflict_with_a_record_of_their_own(clone: WorkTree) -> None:
    _fork_conflict(clone)
    _merge_as(clone, {NAME: UNIFIED.bumped(0, 5)})
    assert _faults(clone, "--policy", "fail") == [("invented", KEYS[0])]


@pytest.mark.slow
def test_choice_about_one_key_excuses_no_other(clone: WorkTree) -> None:
    ours, _ = _fork_conflict(clone)
    _merge_as(clone, {NAME: UNIFIED.without(4, of=ours)})
    assert _faults(clone, "--policy", "fail") == [("lost", KEYS[4])]


def test_file_only_one_side_changed_must_be_as_it_left_it(clone: WorkTree) -> None:
    clone.fork({NAME: UNIFIED.data}, {"x": b""}, {NAME: UNIFIED.without(0)})
    _merge_as(clone, {NAME: UNIFIED.data})
    assert _faults(clone) == [("returned", KEYS[0])]


@pytest.mark.slow
def test_new_spelling_of_the_same_records_is_in_order(clone: WorkTree) -> None:
    _fork_additions(clone)
    spelled = json.dumps(json.loads(UNIFIED.data), indent=1).encode()
    _merge_as(clone, {NAME: spelled})
    assert _faults(clone) == []


def test_file_that_both_parents_have_must_not_go(clone: WorkTree) -> None:
    _fork_additions(clone)
    _merge_as(clone, {NAME: None})
    assert _faults(clone) == [("file", "")]


@pytest.mark.slow
def test_file_one_side_removed_must_not_come_back(clone: WorkTree) -> None:
    clone.fork({NAME: UNIFIED.data}, {NAME: None}, {"x": b""})
    _merge_as(clone, {NAME: UNIFIED.data})
    assert _faults(clone) == [("file", "")]


@pytest.mark.parametrize("committed", [None, UNIFIED.without(0)], ids=["gone", "kept"])
def test_file_removed_and_changed_is_for_a_person(clone: WorkTree, committed: bytes | None) -> None:
    clone.fork({NAME: UNIFIED.data}, {NAME: None}, {NAME: UNIFIED.without(0)})
    _merge_as(clone, {NAME: committed} if committed else {})
    if committed is None:
        clone.git("rm", "-q", NAME)
        clone.git("commit", "-q", "--amend", "--no-edit")
    assert _faults(clone) == []


def test_bank_file_of_no_parent_is_found(clone: WorkTree) -> None:
    _fork_additions(clone)
    _merge_as(clone, {NAME: UNIFIED.data, "new_1_AiCore_x.json": UNIFIED.data})
    (merge,) = _verify(clone)
    assert [(problem["fault"], problem["path"]) for problem in merge["problems"]] == [
        ("file", "new_1_AiCore_x.json")
    ]


def test_other_files_do_not_matter(clone: WorkTree) -> None:
    clone.fork({"a.txt": b"0"}, {"a.txt": b"1"}, {"a.txt": b"2"})
    _merge_as(clone, {"a.txt": b"3", "b.txt": b""})
    (merge,) = _verify(clone)
    assert (merge["files"], merge["problems"]) == (0, [])


@pytest.mark.slow
def test_renamed_file_is_followed(tree: WorkTree) -> None:
    new = NAME.replace("Ascend910B2", "Ascend950PR")
    tree.fork(
        {NAME: UNIFIED.without(0)}, {NAME: None, new: UNIFIED.without(0, 1)}, {NAME: UNIFIED.data}
    )
    tree.git("merge", "-q", "--no-edit", "theirs")
    assert _faults(tree) == []
    tree.commit("lose one", {new: UNIFIED.without(0, 1)})
    tree.git("reset", "-q", "--soft", "HEAD~1")
    tree.git("commit", "-q", "--amend", "--no-edit")
    assert _faults(tree) == [("lost", KEYS[0])]


@pytest.mark.slow
def test_criss_cross_merge_is_in_order(tree: WorkTree) -> None:
    tree.fork(
        {NAME: UNIFIED.without(0, 1, 2, 3)},
        {NAME: UNIFIED.without(1, 2, 3)},
        {NAME: UNIFIED.without(0, 2, 3)},
    )
    ours = tree.git("rev-parse", "main").strip()
    tree.git("merge", "-q", "--no-edit", "theirs")
    tree.git("checkout", "-q", "theirs")
    tree.git("merge", "-q", "--no-edit", ours)
    tree.commit("drop 0, add 2", {NAME: UNIFIED.without(0, 3)})
    tree.git("checkout", "-q", "main")
    tree.commit("add 3", {NAME: UNIFIED.without(2)})
    tree.git("merge", "-q", "--no-edit", "theirs")
    assert _faults(tree) == []
    assert {*UNIFIED.records(tree.read(NAME))} == {*KEYS} - {KEYS[0]}
    tree.write(NAME, UNIFIED.data)
    tree.git("commit", "-q", "-a", "--amend", "--no-edit")
    assert _faults(tree) == [("returned", KEYS[0])]


@pytest.mark.slow
def test_unrelated_histories_are_merged_from_nothing(tree: WorkTree) -> None:
    tree.commit("ours", {NAME: UNIFIED.without(0)})
    tree.git("checkout", "-q", "--orphan", "theirs")
    tree.commit("theirs", {NAME: UNIFIED.without(1)})
    tree.git("checkout", "-q", "main")
    tree.git("merge", "-q", "--no-edit", "--allow-unrelated-histories", "theirs")
    assert _faults(tree) == []


def _commit_octopus(tree: WorkTree, data: bytes) -> None:
    """Commit a merge of main, which has no record 0, and branches without 1 and 2, as `data`."""
    tree.commit("base", {NAME: UNIFIED.without(0, 1, 2)})
    for number in (1, 2):
        tree.git("checkout", "-q", "-b", f"branch{number}", "main")
        tree.commit(f"add {number}", {NAME: UNIFIED.without(*{0, 1, 2} - {number})})
    tree.git("checkout", "-q", "main")
    tree.commit("add 0", {NAME: UNIFIED.without(1, 2)})
    parents = [f"-p{name}" for name in ("main", "branch1", "branch2")]
    tree.write(NAME, data)
    tree.git("add", NAME)
    merge = tree.git("commit-tree", "-m", "octopus", *parents, tree.git("write-tree").strip())
    tree.git("reset", "-q", "--hard", merge.strip())


def test_octopus_that_lost_a_branch_is_found(clone: WorkTree) -> None:
    _commit_octopus(clone, UNIFIED.without(2))
    assert _faults(clone) == [("lost", KEYS[2])]
    (merge,) = _verify(clone)
    assert (merge["note"], merge["files"]) == ("", 1)
    clone.write(NAME, UNIFIED.data)
    clone.git("commit", "-q", "--amend", "--no-edit", "-a")
    assert _faults(clone) == []


def test_octopus_without_a_bank_is_in_order(clone: WorkTree) -> None:
    clone.commit("base", {"x": b""})
    for branch in ("one", "two"):
        clone.git("checkout", "-q", "-b", branch, "main")
        clone.commit(branch, {branch: b""})
    clone.git("checkout", "-q", "main")
    clone.commit("own", {"y": b""})
    clone.git("merge", "-q", "--no-edit", "one", "two")
    (merge,) = _verify(clone)
    assert (merge["note"], merge["files"]) == ("", 0)


@pytest.mark.parametrize("is_new", [True, False])
def test_bank_that_git_moved_to_where_no_reader_looks_is_found(
    clone: WorkTree, is_new: bool
) -> None:
    read, moved = f"Ascend910B2/unified_bank/{NAME}", f"archive/{NAME}"
    beside = "Ascend910B2/unified_bank/notes.txt"
    base = {beside: b"1\n" * 20} if is_new else {read: UNIFIED.without(0), beside: b"1\n" * 20}
    gone: dict[str, bytes | None] = {beside: None, "archive/notes.txt": b"1\n" * 20}
    gone |= {} if is_new else {read: None, moved: UNIFIED.without(0)}
    clone.fork(base, gone, {read: UNIFIED.data})  # theirs tunes what ours has put away
    _merge_as(clone, {moved: UNIFIED.data})
    (merge,) = _verify(clone)
    (problem,) = merge["problems"]
    assert (problem["fault"], problem["path"]) == ("file", moved)
    assert read in problem["message"]


def test_commit_that_is_no_merge_is_noted(clone: WorkTree) -> None:
    clone.commit("first")
    assert _verify(clone)[0]["note"] == "no merge: has no parent"
    clone.commit("second")
    assert _verify(clone)[0]["note"] == "no merge: has one parent"


@pytest.mark.slow
def test_range_holds_its_merges_oldest_first(clone: WorkTree) -> None:
    _fork_additions(clone)
    start = clone.git("rev-parse", "HEAD").strip()
    _merge_as(clone, {NAME: UNIFIED.data})
    clone.commit("between")
    clone.git("checkout", "-q", "theirs")
    clone.commit("more", {NAME: UNIFIED.without(1, 2)})
    clone.git("checkout", "-q", "main")
    _merge_as(clone, {NAME: UNIFIED.data})
    for text in (f"{start}..HEAD", f"{start}..", f"{start}...main"):
        merges = _verify(clone, text)
        assert [len(merge["problems"]) for merge in merges] == [0, 1]
    assert _verify(clone, "HEAD..HEAD") == []
    assert len(_verify(clone, "HEAD", f"{start}..HEAD")) == 2


@pytest.mark.slow
def test_processes_do_not_grow_with_the_files(
    clone: WorkTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[object] = []

    class Counted(subprocess.Popen[bytes]):
        def __init__(self, command: Any, **options: Any) -> None:
            started.append(command)
            super().__init__(command, **options)

    numbers = []
    for files in (1, 12):
        names = [f"{number}/{NAME}" for number in range(files)]
        clone.git("checkout", "-q", "--orphan", f"of-{files}")
        clone.git("branch", "-D", "theirs") if files > 1 else None
        clone.git("checkout", "-q", "-B", "main")
        clone.fork(
            dict.fromkeys(names, UNIFIED.without(0, 1)),
            dict.fromkeys(names, UNIFIED.without(0)),
            dict.fromkeys(names, UNIFIED.without(1)),
        )
        _merge_as(clone, dict.fromkeys(names, UNIFIED.data))
        started.clear()
        with monkeypatch.context() as patched:
            patched.setattr(subprocess, "Popen", Counted)
            (merge,) = _verify(clone)
        assert merge["files"] == files
        numbers.append(len(started))
    assert numbers[0] == numbers[1]


def test_merged_quarantine_entry_must_not_get_lost(tree: WorkTree) -> None:
    name = ".aoebank/quarantine.jsonl"
    lines = [_entry(key) for key in KEYS[:3]]
    tree.fork({name: lines[0]}, {name: lines[0] + lines[1]}, {name: lines[0] + lines[2]})
    _merge_as(tree, {name: lines[0] + lines[1]})
    (merge,) = _verify(tree)
    assert [problem["fault"] for problem in merge["problems"]] == ["lost"]
    tree.write(name, b"".join(sorted(lines)))
    tree.git("commit", "-q", "-a", "--amend", "--no-edit")
    assert _faults(tree) == []


def _entry(key: str) -> bytes:
    entry = QuarantineEntry(key=key, reason="hangs", who="a", when="2026-01-02T03:04:05Z")
    return serialize_quarantine([entry])


def test_record_under_quarantine_stays_out_of_the_merge(tree: WorkTree) -> None:
    name = ".aoebank/quarantine.jsonl"
    tree.commit("quarantine", {name: _entry(KEYS[0])})
    _fork_additions(tree)
    tree.git("merge", "-q", "--no-edit", "theirs")
    assert {*UNIFIED.records(tree.read(NAME))} == {*KEYS} - {KEYS[0]}
    assert _faults(tree) == []
    tree.write(NAME, UNIFIED.data)
    tree.git("commit", "-q", "-a", "--amend", "--no-edit")
    assert _faults(tree) == [("returned", KEYS[0])]


def test_line_of_a_side_car_must_not_get_lost_nor_invented(tree: WorkTree) -> None:
    name = f"{NAME}.provenance.jsonl"
    tree.fork({name: b"{}\n"}, {name: b'{}\n{"a":1}\n'}, {name: b'{}\n{"b":2}\n'})
    tree.git("merge", "-q", "--no-edit", "theirs")
    assert tree.read(name) == b'{}\n{"a":1}\n{"b":2}\n'
    assert _faults(tree) == []
    tree.write(name, b'{}\n{"a":1}\n{"c":2}\n<<<<<<< x\n')
    tree.git("commit", "-q", "-a", "--amend", "--no-edit")
    assert [fault for fault, _ in _faults(tree)] == ["invented", "markers", "lost"]


def test_broken_parent_cannot_be_judged_and_fails(clone: WorkTree) -> None:
    clone.fork({NAME: UNIFIED.data}, {NAME: UNIFIED.without(0)}, {NAME: UNIFIED.data[:-20]})
    _merge_as(clone, {NAME: UNIFIED.without(0)})
    (merge,) = _verify(clone)
    assert [problem["fault"] for problem in merge["problems"]] == ["broken"]
    assert "theirs of" in merge["problems"][0]["message"]


@pytest.mark.slow
def test_garbage_in_a_file_told_by_its_content_is_found(clone: WorkTree) -> None:
    clone.fork(
        {"bank.json": UNIFIED.without(0, 1)},
        {"bank.json": UNIFIED.without(0)},
        {"bank.json": UNIFIED.without(1)},
    )
    _merge_as(clone, {"bank.json": b"<<<<<<< ours\n" + UNIFIED.data})
    assert [fault for fault, _ in _faults(clone)] == ["broken"]


@pytest.mark.parametrize(
    "revision", few_every_day(["nowhere", "HEAD..nowhere", "--all", "HEAD:x", ""], 2)
)
def test_unknown_revision_is_an_error(clone: WorkTree, revision: str) -> None:
    clone.commit("first")
    result = clone.aoebank("git", "verify-merge", "--json", "--", revision)
    assert result.returncode == 3
    assert json.loads(result.stdout)["error"]["message"].endswith(
        "unknown revision (expected a commit, a branch or a tag)"
    )


def test_shallow_clone_is_an_error(tree: WorkTree) -> None:
    _fork_additions(tree)
    tree.git("merge", "-q", "--no-edit", "theirs")
    shallow = tree.top.with_name("shallow")
    tree.git("clone", "-q", "--depth=2", f"file://{tree.top}", str(shallow))
    result = tree.aoebank("git", "verify-merge", cwd=shallow)
    assert result.returncode == 3
    assert "fetch-depth: 0" in result.stderr


def test_bad_policy_is_a_usage_error(clone: WorkTree) -> None:
    clone.commit("first")
    for option, value in (
        ("--policy", "best"),
        ("--noise", "x"),
        ("--override", "x"),
        ("--untimed", "keep-best"),
    ):
        assert clone.aoebank("git", "verify-merge", option, value).returncode == 2


def test_text_names_the_merge_and_the_record(clone: WorkTree) -> None:
    _fork_additions(clone)
    _merge_as(clone, {NAME: UNIFIED.without(0)})
    result = clone.aoebank("git", "verify-merge")
    commit = clone.git("rev-parse", "HEAD")[:10]
    assert result.stdout == (
        f"{commit} merge\n"
        f"  lost {NAME} {KEYS[0]}: a parent has this record, the merge commit does not\n"
        "  1 bank file compared with what merging the parents gives: 1 difference\n"
        "  way out: merge again where `aoebank git install` was run, "
        "or mend these records and commit that\n"
    )


def test_github_shows_each_problem_at_its_line(clone: WorkTree) -> None:
    _fork_additions(clone)
    _merge_as(clone, {NAME: UNIFIED.bumped(3, 7)})
    result = clone.aoebank("git", "verify-merge", "--format", "github")
    assert result.returncode == 1
    assert result.stdout.startswith(
        f"::error file={NAME},line=5,title=aoebank verify-merge%3A invented::{KEYS[3]}: "
    )


@pytest.mark.slow
def test_bare_repository_of_a_host_can_be_verified(tree: WorkTree) -> None:
    _fork_additions(tree)
    tree.git("merge", "-q", "--no-edit", "theirs")
    bare = tree.top.with_name("bare.git")
    tree.git("clone", "-q", "--bare", str(tree.top), str(bare))
    result = tree.aoebank("git", "verify-merge", cwd=bare)
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize("is_ours", few_every_day([False, True]))
def test_record_with_an_error_in_the_place_of_a_good_one_is_broken(
    clone: WorkTree, is_ours: bool
) -> None:
    key = KEYS[0]
    damaged = UNIFIED.spoiled(0)
    healthy = UNIFIED.bumped(1, 1)
    ours, theirs = (damaged, healthy) if is_ours else (healthy, damaged)
    clone.fork({NAME: UNIFIED.data}, {NAME: ours}, {NAME: theirs})
    both = UNIFIED.spoiled(0, of=healthy)
    _merge_as(clone, {NAME: both})
    assert _faults(clone) == [("broken", key)]
    assert _faults(clone, "--allow-choice") == []
    clone.git("reset", "-q", "--hard", "HEAD^")
    _merge_as(clone, {NAME: healthy})
    assert _faults(clone) == []


@pytest.mark.slow
def test_record_whose_op_was_changed_is_lost_and_the_other_one_broken(clone: WorkTree) -> None:
    name, data = _runtime_bank()
    lines = data.splitlines(keepends=True)
    other = lines[0].replace(b'"op":"MatMulV3"', b'"op":"Nobody"')
    assert other != lines[0]
    ours = data + merge_files.record_text("runtime_kb", 9, merge_files.Answer()).encode() + b"\n"
    clone.fork({name: data}, {name: ours}, {name: other + b"".join(lines[1:])})
    _merge_as(clone, {name: ours.replace(lines[0], other)})
    assert sorted(fault for fault, _ in _faults(clone)) == ["broken", "lost"]
    clone.git("reset", "-q", "--hard", "HEAD^")
    _merge_as(clone, {name: ours})
    assert _faults(clone) == []


def _runtime_bank() -> tuple[str, bytes]:
    answers = {number: merge_files.Answer() for number in range(3)}
    return merge_files.NAMES["runtime_kb"], merge_files.make_file("runtime_kb", answers)
