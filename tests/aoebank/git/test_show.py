"""`git diff` and `git log -p` show records."""

from __future__ import annotations

import pytest
from support.git_work_tree import SAMPLES, WorkTree

UNIFIED = next(bank for bank in SAMPLES.values() if bank.name.endswith("_matmul.json"))
GRADIENT = next(bank for bank in SAMPLES.values() if "gradient" in bank.name)


def test_diff_shows_the_record_that_changed_and_no_other(tree: WorkTree) -> None:
    tree.commit("base", {UNIFIED.name: UNIFIED.data})
    tree.write(UNIFIED.name, UNIFIED.retimed(0, 123.5))
    shown = tree.git("diff")
    added = [line for line in shown.splitlines() if line.startswith("+") and "+++" not in line]
    assert any("123.5" in line for line in added)
    assert not any(key in "\n".join(added) for key in UNIFIED.keys[1:])


def test_log_shows_records_of_a_file_that_is_one_line(tree: WorkTree) -> None:
    tree.commit("base", {GRADIENT.name: GRADIENT.without(0)})
    tree.commit("add", {GRADIENT.name: GRADIENT.data})
    shown = tree.git("log", "-p", "-1")
    assert GRADIENT.keys[0] in shown
    assert GRADIENT.data.decode() not in shown


@pytest.mark.slow
def test_cached_text_is_the_same_as_the_first_one(tree: WorkTree) -> None:
    tree.commit("base", {UNIFIED.name: UNIFIED.without(0)})
    tree.commit("add", {UNIFIED.name: UNIFIED.data})
    assert tree.git("log", "-p") == tree.git("log", "-p")
    assert tree.git("for-each-ref", "refs/notes/textconv/aoebank")


def test_merge_commit_can_be_shown_again(tree: WorkTree) -> None:
    tree.fork(
        {UNIFIED.name: UNIFIED.without(0, 1)},
        {UNIFIED.name: UNIFIED.without(0)},
        {UNIFIED.name: UNIFIED.without(1)},
    )
    tree.git("merge", "-q", "--no-edit", "theirs")
    assert tree.git("show", "--remerge-diff", "--format=") == ""
    assert not list(tree.top.glob("*.conflicts"))


@pytest.mark.slow
def test_showing_an_old_merge_again_leaves_conflict_files_alone(tree: WorkTree) -> None:
    tree.git("config", "aoebank.merge.policy", "fail")
    tree.fork(
        {UNIFIED.name: UNIFIED.data},
        {UNIFIED.name: UNIFIED.bumped(0, 1)},
        {UNIFIED.name: UNIFIED.bumped(0, 2)},
    )
    tree.try_git("merge", "theirs")
    conflicts = tree.top / f"{UNIFIED.name}.conflicts"
    conflicts.unlink()
    tree.commit("settled", {UNIFIED.name: UNIFIED.bumped(0, 2)})
    assert tree.git("show", "--remerge-diff", "--format=")
    assert not conflicts.exists()
    conflicts.write_bytes(b"of another merge")
    tree.git("show", "--remerge-diff", "--format=")
    assert conflicts.read_bytes() == b"of another merge"


@pytest.mark.slow
def test_names_that_look_like_options_are_shown_and_merged(tree: WorkTree) -> None:
    name = f"--debug{UNIFIED.name}"
    tree.fork({name: UNIFIED.without(0, 1)}, {name: UNIFIED.without(0)}, {name: UNIFIED.without(1)})
    tree.write(name, UNIFIED.retimed(2, 123.5, of=UNIFIED.without(0)))
    assert "123.5" in tree.git("diff")  # git hands the file of the work tree out by its name
    tree.git("checkout", "-q", "--", name)
    tree.git("merge", "-q", "--no-edit", "theirs")
    assert UNIFIED.records(tree.read(name)) == UNIFIED.records(UNIFIED.data)
    assert tree.aoebank("git", "check").returncode == 0
    for command in ("textconv", "validate", "ls", "show"):
        assert tree.aoebank(command, "--", name).returncode == 0, command
    assert tree.aoebank("diff", "--", name, f"git:HEAD:{name}").returncode == 0
    assert tree.aoebank("diff", "--", "git:HEAD^", "git:HEAD").returncode == 1
