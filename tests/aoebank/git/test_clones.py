"""Git's own operations on banks, where the work tree is not the plain one of one clone."""

from __future__ import annotations

import pytest
from support.git_work_tree import SAMPLES, SOME_FORMATS, SampleBank, WorkTree
from support.tiers import few_every_day

UNIFIED = next(bank for bank in SAMPLES.values() if bank.name.endswith("_matmul.json"))
NAME = f"banks/{UNIFIED.name}"


def _fork(tree: WorkTree, name: str = NAME, bank: SampleBank = UNIFIED) -> None:
    """Let both sides add a record, and each change a file of its own."""
    tree.fork(
        {name: bank.without(0, 1), "far/a": b"1\n", "near/b": b"1\n"},
        {name: bank.without(0), "far/a": b"2\n"},
        {name: bank.without(1), "near/b": b"2\n"},
    )


def _records_of(tree: WorkTree, revision: str = "HEAD", bank: SampleBank = UNIFIED) -> object:
    return bank.records(tree.git("show", f"{revision}:{NAME}").encode())


@pytest.mark.slow
@pytest.mark.parametrize("kept", ["banks", "near", "far"])
def test_sparse_checkout_merges_banks_in_it_and_outside(tree: WorkTree, kept: str) -> None:
    _fork(tree)
    tree.git("sparse-checkout", "set", "--cone", kept)
    tree.git("merge", "-q", "--no-edit", "theirs")
    assert _records_of(tree) == UNIFIED.records(UNIFIED.data)
    assert (tree.top / NAME).exists() == (kept == "banks")
    assert tree.git("status", "--porcelain") == ""


@pytest.mark.parametrize(
    "options", few_every_day([["--filter=blob:none"], ["--depth=3"], []]), ids=str
)
def test_clone_of_any_kind_pulls_with_the_drivers_once_installed(
    tree: WorkTree, options: list[str]
) -> None:
    _fork(tree)
    tree.git("config", "uploadpack.allowFilter", "true")
    other = tree.top.with_name("other")
    source = f"file://{tree.top}"
    tree.git("clone", "-q", *options, "--no-single-branch", source, str(other))
    assert tree.aoebank("git", "install", cwd=other).returncode == 0
    tree.git("merge", "-q", "--no-edit", "origin/theirs", cwd=other)
    found = UNIFIED.records((other / NAME).read_bytes())
    assert found == UNIFIED.records(UNIFIED.data)


@pytest.mark.slow
def test_pull_with_rebase_and_autostash_keeps_all_three_records(tree: WorkTree) -> None:
    tree.commit("base", {NAME: UNIFIED.without(0, 1, 2)})
    other = tree.top.with_name("other")
    tree.git("clone", "-q", str(tree.top), str(other))
    assert tree.aoebank("git", "install", cwd=other).returncode == 0
    tree.commit("upstream", {NAME: UNIFIED.without(1, 2)})
    (other / NAME).write_bytes(UNIFIED.without(0, 2))
    tree.git("commit", "-q", "-a", "-m", "mine", cwd=other)
    (other / NAME).write_bytes(UNIFIED.without(0))
    tree.git("pull", "-q", "--rebase", "--autostash", cwd=other)
    found = UNIFIED.records((other / NAME).read_bytes())
    assert found == UNIFIED.records(UNIFIED.data)
    assert tree.git("stash", "list", cwd=other) == ""


@pytest.mark.slow
@SOME_FORMATS
def test_range_of_commits_is_picked_in_a_linked_work_tree(tree: WorkTree, bank: SampleBank) -> None:
    name = f"banks/{bank.name}"
    tree.commit("base", {name: bank.without(0, 1, 2)})
    tree.git("checkout", "-q", "-b", "theirs")
    tree.commit("one", {name: bank.without(1, 2)})
    tree.commit("two", {name: bank.without(2)})
    tree.git("checkout", "-q", "main")
    tree.commit("ours", {name: bank.without(0, 1)})
    linked = tree.top.with_name("linked")
    tree.git("worktree", "add", "-q", "-b", "other", str(linked), "main")
    tree.git("cherry-pick", "main..theirs", cwd=linked)
    assert bank.records((linked / name).read_bytes()) == bank.records(bank.data)
