"""The workflow and the hooks we hand out do what they say."""

from __future__ import annotations

import re
from typing import Any

import pytest
from support.git_work_tree import ROOT, SAMPLES, WorkTree
from support.tiers import few_every_day

WORKFLOW = ROOT / "docs" / "examples" / "aoebank-check.yml"
HOOKS = ROOT / ".pre-commit-hooks.yaml"
UNIFIED = next(bank for bank in SAMPLES.values() if bank.name.endswith("_matmul.json"))
NAME = f"banks/{UNIFIED.name}"
INSTALL = "install"


def _steps() -> dict[str, str]:
    """Return the script of each step of the workflow by its name."""
    pattern = re.compile(
        r"- name: (.+)\n(?: {8}if: .+\n| {8}env:\n(?: {10}.+\n)+)?"
        r" {8}run: (?:\|\n((?: {10}.+\n)+)|(.+)\n)"
    )
    found = pattern.findall(WORKFLOW.read_text())
    return {name: block.replace(" " * 10, "") or line for name, block, line in found}


def _run_steps(tree: WorkTree, base: str) -> dict[str, int]:
    """Run the steps as GitHub does, but the installation; return their exit codes."""
    summary, variables = tree.home / "summary.md", tree.home / "variables"
    summary.touch()
    variables.touch()
    files = {"GITHUB_STEP_SUMMARY": str(summary), "GITHUB_ENV": str(variables)}
    tree.env = {**tree.env, **files, "BEFORE": base, "DEFAULT": "main"}
    codes = {}
    for name, script in _steps().items():
        if name != INSTALL:
            codes[name] = tree.run("bash", "-e", "-o", "pipefail", "-c", script).returncode
            pairs = (line.split("=", 1) for line in variables.read_text().splitlines())
            tree.env = {**tree.env, **dict(pairs)}
    return codes


def _pull_request(tree: WorkTree, merged: bytes) -> None:
    """Check out the merge GitHub made of two branches that both added a record."""
    tree.fork({NAME: UNIFIED.without(0, 1)}, {NAME: UNIFIED.without(0)}, {NAME: UNIFIED.without(1)})
    tree.git("checkout", "-q", "--detach")
    tree.try_git("merge", "-q", "--no-commit", "theirs")
    tree.commit("Merge theirs into main", {NAME: merged})


def test_every_step_of_the_workflow_is_found() -> None:
    assert [*_steps()] == [
        INSTALL,
        "what to compare with",
        "records are valid",
        "merges kept every record",
        "bank files are declared for the merge driver",
        "what changed",
    ]
    assert WORKFLOW.read_text().count("run: ") == len(_steps())


def test_good_pull_request_passes_and_shows_what_changed(tree: WorkTree) -> None:
    _pull_request(tree, UNIFIED.data)
    assert set(_run_steps(tree, "HEAD^1").values()) == {0}
    summary = (tree.home / "summary.md").read_text()
    assert UNIFIED.keys[0] in summary or UNIFIED.keys[1] in summary


@pytest.mark.slow
def test_merge_that_lost_a_record_fails_one_step(tree: WorkTree) -> None:
    _pull_request(tree, UNIFIED.without(0))
    failed = {name for name, code in _run_steps(tree, "HEAD^1").items() if code}
    assert failed == {"merges kept every record"}


@pytest.mark.slow
def test_conflict_marker_fails_the_pull_request(tree: WorkTree) -> None:
    _pull_request(tree, b"<<<<<<< ours\n" + UNIFIED.data)
    codes = _run_steps(tree, "HEAD^1")
    assert codes["records are valid"] == 1
    assert codes["merges kept every record"] == 1


@pytest.mark.slow
def test_push_without_a_merge_passes(tree: WorkTree) -> None:
    before = tree.commit("base", {NAME: UNIFIED.without(0)})
    tree.commit("add", {NAME: UNIFIED.data})
    assert set(_run_steps(tree, before).values()) == {0}


@pytest.mark.parametrize("before", few_every_day(["0" * 40, "1" * 40, ""]))
def test_first_push_of_a_branch_is_compared_with_where_it_left_main(
    tree: WorkTree, before: str
) -> None:
    tree.fork({NAME: UNIFIED.without(0, 1)}, {NAME: UNIFIED.without(0)}, {NAME: UNIFIED.without(1)})
    tree.git("update-ref", "refs/remotes/origin/main", "main")
    tree.git("checkout", "-q", "theirs")
    assert set(_run_steps(tree, before).values()) == {0}
    assert tree.env["BASE"] == tree.git("rev-parse", "main~1").strip()
    assert UNIFIED.keys[0] in (tree.home / "summary.md").read_text()


@pytest.mark.slow
def test_first_push_of_main_is_compared_with_its_first_commit(tree: WorkTree) -> None:
    first = tree.git("rev-list", "--max-parents=0", "HEAD").strip()
    tree.commit("base", {NAME: UNIFIED.without(0)})
    tree.git("update-ref", "refs/remotes/origin/main", "main")
    assert set(_run_steps(tree, "0" * 40).values()) == {0}
    assert tree.env["BASE"] == first


@pytest.mark.slow
def test_first_push_of_the_only_commit_passes(clone: WorkTree) -> None:
    clone.aoebank("git", "install")
    clone.commit("all", {NAME: UNIFIED.data})
    assert set(_run_steps(clone, "0" * 40).values()) == {0}


@pytest.mark.slow
def test_first_push_shows_a_merge_that_lost_a_record(tree: WorkTree) -> None:
    _pull_request(tree, UNIFIED.without(0))
    failed = {name for name, code in _run_steps(tree, "0" * 40).items() if code}
    assert failed == {"merges kept every record"}


@pytest.mark.slow
def test_bank_without_declaration_fails_one_step(clone: WorkTree) -> None:
    before = clone.commit("base", {NAME: UNIFIED.without(0)})
    clone.commit("add", {NAME: UNIFIED.data})
    failed = {name for name, code in _run_steps(clone, before).items() if code}
    assert failed == {"bank files are declared for the merge driver"}


def _hooks() -> dict[str, dict[str, str]]:
    """Return the members of each hook; every one is a line of its own."""
    hooks: dict[str, dict[str, str]] = {}
    members: dict[str, str] = {}
    for line in HOOKS.read_text().splitlines():
        name, _, value = line.removeprefix("- ").strip().partition(": ")
        if line.startswith("- "):
            members = hooks.setdefault(value, {})
        members[name] = value
    return hooks


def test_hooks_start_commands_that_there_are(tree: WorkTree) -> None:
    tree.commit("base", {NAME: UNIFIED.data})
    for name, hook in _hooks().items():
        words = hook["entry"].split()
        files = [NAME] if hook.get("pass_filenames") != "false" else []
        result = tree.run(*words, *files)
        assert result.returncode == 0, (name, result.stderr)


def test_hooks_see_every_bank_file_by_its_name() -> None:
    for hook in _hooks().values():
        if "files" in hook:
            for bank in SAMPLES.values():
                assert re.search(hook["files"], f"banks/{bank.name}")
            assert not re.search(hook["files"], "package.json")


def test_marker_hook_stops_markers_and_nothing_else(tree: WorkTree) -> None:
    entry = _hooks()["aoebank-conflict-markers"]["entry"].split()
    tree.write(NAME, UNIFIED.data[:-20])
    assert tree.run(*entry, NAME).returncode == 0
    tree.write(NAME, UNIFIED.data + b">>>>>>> theirs\n")
    assert tree.run(*entry, NAME).returncode == 1


@pytest.mark.parametrize("path", [WORKFLOW, HOOKS], ids=lambda path: path.name)
def test_file_is_yaml(path: Any) -> None:
    yaml = pytest.importorskip("yaml")
    assert yaml.safe_load(path.read_text())
