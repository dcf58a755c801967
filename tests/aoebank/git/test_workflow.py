"""The action, the workflow and the hooks we hand out do what they say."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.git_work_tree import ROOT, SAMPLES, WorkTree
from support.tiers import few_every_day

WORKFLOW = ROOT / "docs" / "examples" / "aoebank-check.yml"
HOOKS = ROOT / ".pre-commit-hooks.yaml"
UNIFIED = next(bank for bank in SAMPLES.values() if bank.name.endswith("_matmul.json"))
NAME = f"banks/{UNIFIED.name}"
ACTION = ROOT / ".github" / "actions" / "aoebank" / "action.yml"
INSTALL, COMMENT = "install", "comment"


EXPRESSION = re.compile(r"\$\{\{ (.+?) \}\}")


def _steps() -> dict[str, dict[str, Any]]:
    """Return each step of the action that has a script by its name."""
    steps = yaml.safe_load(ACTION.read_text())["runs"]["steps"]
    return {step["name"]: step for step in steps if "run" in step}


def _run_steps(tree: WorkTree, base: str, **inputs: str) -> dict[str, int]:
    """Run the steps as GitHub does, but the installation; return their exit codes."""
    files = {
        name: tree.home / name.lower()
        for name in ("GITHUB_STEP_SUMMARY", "GITHUB_ENV", "GITHUB_OUTPUT")
    }
    for file in files.values():
        file.touch()
    tree.env = {**tree.env, **{name: str(file) for name, file in files.items()}}
    known = {
        **{f"inputs.{name}": text for name, text in {**_defaults(), **inputs}.items()},
        "github.event.repository.default_branch": "main",
        "github.event.pull_request.number": "7",
        "github.token": "token",
        "runner.temp": str(tree.home),
    }
    codes = {}
    for name, step in _steps().items():
        if name == INSTALL or (name == COMMENT and inputs.get("comment") != "true"):
            continue
        given = {
            variable: EXPRESSION.sub(lambda found: known.get(found[1], base), text)
            for variable, text in step.get("env", {}).items()
        }
        tree.env = {**tree.env, **given}
        codes[name] = tree.run("bash", "-e", "-o", "pipefail", "-c", step["run"]).returncode
        pairs = (line.split("=", 1) for line in files["GITHUB_ENV"].read_text().splitlines())
        tree.env = {**tree.env, **dict(pairs)}
    return codes


def _defaults() -> dict[str, str]:
    inputs = yaml.safe_load(ACTION.read_text())["inputs"]
    return {name: value["default"] for name, value in inputs.items()}


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
        COMMENT,
    ]
    assert all(step["shell"] == "bash" for step in _steps().values())


def test_workflow_uses_the_action_with_inputs_and_outputs_it_has() -> None:
    (used,) = (
        step
        for step in yaml.safe_load(WORKFLOW.read_text())["jobs"]["banks"]["steps"]
        if "/aoebank/" in step.get("uses", "")
    )
    place = used["uses"].partition("/aoebank/")[2].partition("@")[0]
    assert (ROOT / place / "action.yml") == ACTION and used["with"].keys() <= _defaults().keys()
    outputs = yaml.safe_load(ACTION.read_text())["outputs"]
    named = re.findall(r"steps\.banks\.outputs\.(\w+)", WORKFLOW.read_text())
    assert named and {*named} <= outputs.keys()


def test_good_pull_request_passes_and_shows_what_changed(tree: WorkTree) -> None:
    _pull_request(tree, UNIFIED.data)
    assert set(_run_steps(tree, "HEAD^1").values()) == {0}
    summary = (tree.home / "github_step_summary").read_text()
    assert UNIFIED.keys[0] in summary or UNIFIED.keys[1] in summary
    outputs = dict(
        line.split("=", 1) for line in (tree.home / "github_output").read_text().splitlines()
    )
    assert json.loads(Path(outputs["sarif"]).read_text())["version"] == "2.1.0"
    assert Path(outputs["difference"]).read_text() == summary


def test_pull_request_that_adds_the_folder_of_the_banks_passes(tree: WorkTree) -> None:
    before = tree.commit("base", {"notes.txt": b"no bank\n"})
    tree.commit("banks", {f"banks/{NAME}": UNIFIED.data})
    assert set(_run_steps(tree, before, path="banks").values()) == {0}


def test_difference_becomes_one_comment_of_the_pull_request(tree: WorkTree) -> None:
    _pull_request(tree, UNIFIED.data)
    program = tree.home / "bin" / "gh"
    program.parent.mkdir(exist_ok=True)
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@" > "$HOME/asked"\ncp "$5" "$HOME/body"\n')
    program.chmod(0o755)
    tree.env = {**tree.env, "PATH": f"{program.parent}{os.pathsep}{tree.env['PATH']}"}
    tree.env["HOME"] = str(tree.home)
    assert set(_run_steps(tree, "HEAD^1", comment="true").values()) == {0}
    assert (tree.home / "asked").read_text().split()[:4] == ["pr", "comment", "7", "--body-file"]
    assert (tree.home / "body").read_text() == (tree.home / "github_step_summary").read_text()


def test_regression_fails_where_a_bound_is_given(tree: WorkTree) -> None:
    before = tree.commit("base", {NAME: UNIFIED.data})
    text = UNIFIED.data.decode()
    slower = re.sub(r'("cost_time": ?)([\d.]+)', lambda m: f"{m[1]}{float(m[2]) * 2}", text)
    assert slower != text
    tree.commit("slower", {NAME: slower.encode()})
    assert _run_steps(tree, before)["what changed"] == 0
    assert _run_steps(tree, before, **{"fail-on-regression": "5%"})["what changed"] == 1


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
    assert UNIFIED.keys[0] in (tree.home / "github_step_summary").read_text()


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


def test_hooks_are_yaml() -> None:
    assert yaml.safe_load(HOOKS.read_text())
