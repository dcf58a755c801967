"""`aoebank git install` and `uninstall`."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from support.git_work_tree import SAMPLES, WorkTree
from support.tiers import few_every_day

from aoebank.git.install import driver_settings

BANK = next(iter(SAMPLES.values()))
DRIVER = driver_settings()["merge.aoebank.driver"]


def _snapshot(clone: WorkTree) -> tuple[bytes, ...]:
    """Return all that an installation may touch."""
    git_dir = clone.top / ".git"
    files = (git_dir / "config", git_dir / "info" / "exclude", clone.top / ".gitattributes")
    return tuple(path.read_bytes() if path.exists() else b"(absent)" for path in files)


def _install(clone: WorkTree, *options: str, verb: str = "install", cwd: Path | None = None) -> str:
    result = clone.aoebank("git", verb, *options, cwd=cwd)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_install_registers_and_declares(clone: WorkTree) -> None:
    output = _install(clone)
    assert clone.git("config", "--local", "merge.aoebank.driver").strip() == DRIVER
    assert clone.git("config", "--local", "diff.aoebank.textconv").strip() == "aoebank textconv --"
    for bank in SAMPLES.values():
        shown = clone.git("check-attr", "merge", "diff", "text", "--", f"deep/{bank.name}")
        assert shown.count(": aoebank") == 2
        assert "text: unset" in shown
    assert f"+merge.aoebank.driver = {DRIVER}" in output
    assert "commit .gitattributes" in output


@pytest.mark.parametrize(
    "name",
    [
        "x_AiCore_y.json.provenance.jsonl",
        ".aoebank/quarantine.jsonl",
        "banks/a/.aoebank/quarantine.jsonl",
    ],
)
def test_files_of_lines_go_to_the_driver_too(tree: WorkTree, name: str) -> None:
    assert "merge: aoebank" in tree.git("check-attr", "merge", "--", name)


@pytest.mark.parametrize("name", ["package.json", "a/tsconfig.json", "x.py", "AiCore.json"])
def test_other_files_stay_with_git(tree: WorkTree, name: str) -> None:
    assert "merge: unspecified" in tree.git("check-attr", "merge", "--", name)


def test_formats_that_are_named_are_the_only_ones_git_is_told_of(clone: WorkTree) -> None:
    names = ("E=8,N=64,device_name=NVIDIA_H200.json", "a8w8_tuned_gemm.csv", BANK.name)
    for name in names:
        (clone.top / name).write_bytes(BANK.data if name == BANK.name else b"{}")
    clone.git("add", "--", *names)
    _install(clone, "--format", "vllm", "--format", "aiter")
    shown = clone.git("check-attr", "merge", "--", *names).splitlines()
    assert [line.rpartition(" ")[2] for line in shown] == ["aoebank", "aoebank", "unspecified"]
    check = clone.aoebank("git", "check")
    assert (check.returncode, "2 of 2 bank files" in check.stdout) == (0, True), check.stdout
    _install(clone)  # without a name it is all of them again
    assert "aoebank" in clone.git("check-attr", "merge", "--", BANK.name)


def test_format_there_is_none_of_is_refused_and_nothing_is_written(clone: WorkTree) -> None:
    before = _snapshot(clone)
    result = clone.aoebank("git", "install", "--format", "vlm")
    assert (result.returncode, _snapshot(clone)) == (2, before)
    assert "expected one of" in result.stderr


def test_second_install_changes_nothing(clone: WorkTree) -> None:
    _install(clone)
    before = _snapshot(clone)
    assert "nothing to do" in _install(clone)
    assert _snapshot(clone) == before


def test_dry_run_changes_nothing_and_says_what_it_would(clone: WorkTree) -> None:
    before = _snapshot(clone)
    assert "would change" in _install(clone, "--dry-run")
    assert _snapshot(clone) == before


@pytest.mark.parametrize(
    "written",
    [
        b"*.png binary\n",
        b"*.png binary",
        b"\r\n# mine\r\n*.json text\r\n",
        b"\xef\xbb\xbf*.c text\n",
        b"# caf\xe9\n",
    ],
)
def test_uninstall_gives_back_what_people_wrote(clone: WorkTree, written: bytes) -> None:
    clone.write(".gitattributes", written)
    config, exclude, _ = _snapshot(clone)
    _install(clone)
    installed = clone.read(".gitattributes")
    assert installed.startswith(written)
    _install(clone, verb="uninstall")
    left = clone.read(".gitattributes")
    assert left == written or left == written + b"\n"
    assert _snapshot(clone)[:2] == (config, exclude)


def test_uninstall_removes_a_file_that_held_nothing_else(clone: WorkTree) -> None:
    _install(clone)
    _install(clone, verb="uninstall")
    assert not (clone.top / ".gitattributes").exists()
    assert clone.try_git("config", "--get-regexp", "aoebank").returncode == 1


def test_uninstall_keeps_settings_of_people(clone: WorkTree) -> None:
    _install(clone)
    clone.git("config", "aoebank.merge.policy", "ours")
    clone.git("config", "merge.aoebank.note", "mine")
    _install(clone, verb="uninstall")
    left = clone.git("config", "--local", "--get-regexp", "aoebank").splitlines()
    assert sorted(left) == ["aoebank.merge.policy ours", "merge.aoebank.note mine"]


def test_uninstall_where_nothing_is_installed_changes_nothing(clone: WorkTree) -> None:
    before = _snapshot(clone)
    _install(clone, verb="uninstall")
    assert _snapshot(clone) == before


def test_lines_somebody_moved_stay_where_they_are(clone: WorkTree) -> None:
    _install(clone)
    block = clone.read(".gitattributes")
    clone.write(".gitattributes", block + b"*.json text\n")
    _install(clone)
    assert clone.read(".gitattributes") == block + b"*.json text\n"


def test_old_or_doubled_lines_are_replaced_by_those_of_this_version(clone: WorkTree) -> None:
    _install(clone)
    block = clone.read(".gitattributes")
    old = b"# >>> aoebank: version 0\n*.json merge=aoebank\n# <<< aoebank\n"
    clone.write(".gitattributes", b"a text\n" + old + b"b text\n" + block + b"c text\n")
    _install(clone)
    assert clone.read(".gitattributes") == b"a text\n" + block + b"b text\nc text\n"


@pytest.mark.parametrize("mark", [b"# >>> aoebank: version 1\n", b"# <<< aoebank\n"])
def test_half_a_block_is_an_error_and_nothing_is_changed(clone: WorkTree, mark: bytes) -> None:
    clone.write(".gitattributes", b"a text\n" + mark + b"b text\n")
    before = _snapshot(clone)
    result = clone.aoebank("git", "install")
    assert result.returncode == 3
    assert "half a block" in result.stderr
    assert _snapshot(clone) == before


def test_command_is_what_git_starts(clone: WorkTree) -> None:
    program = clone.home / "bin" / "aoebank"
    elsewhere = clone.home / "my programs" / "aoebank"
    elsewhere.parent.mkdir()
    program.rename(elsewhere)
    result = clone.run(str(elsewhere), "git", "install", "--command", f"'{elsewhere}'")
    assert result.returncode == 0, result.stderr
    clone.fork(
        {BANK.name: BANK.without(0, 1)}, {BANK.name: BANK.without(0)}, {BANK.name: BANK.without(1)}
    )
    clone.git("merge", "-q", "--no-edit", "theirs")
    assert BANK.records(clone.read(BANK.name)) == BANK.records(BANK.data)
    assert clone.git("log", "-p")


def test_install_works_from_a_folder_below(clone: WorkTree) -> None:
    below = clone.top / "a" / "b"
    below.mkdir(parents=True)
    _install(clone, cwd=below)
    assert (clone.top / ".gitattributes").exists()
    assert not (below / ".gitattributes").exists()


@pytest.mark.slow
def test_install_in_a_linked_work_tree_registers_for_all(clone: WorkTree) -> None:
    clone.commit("first")
    linked = clone.top.with_name("linked")
    clone.git("worktree", "add", "-q", str(linked))
    _install(clone, cwd=linked)
    assert (linked / ".gitattributes").exists()
    assert clone.git("config", "--local", "merge.aoebank.driver").strip() == DRIVER
    assert b"aoebank-tmp" in (clone.top / ".git" / "info" / "exclude").read_bytes()


@pytest.mark.slow
def test_install_in_a_submodule_leaves_the_outer_one_alone(clone: WorkTree, tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    clone.git("init", "-q", str(inner))
    clone.git("commit", "-q", "--allow-empty", "-m", "x", cwd=inner)
    clone.git("-c", "protocol.file.allow=always", "submodule", "-q", "add", str(inner), "banks")
    before = _snapshot(clone)
    _install(clone, cwd=clone.top / "banks")
    assert _snapshot(clone) == before
    assert (clone.top / "banks" / ".gitattributes").exists()
    driver = clone.git("config", "--local", "merge.aoebank.driver", cwd=clone.top / "banks")
    assert driver.strip() == DRIVER


def test_bare_repository_gets_its_lines_in_info_attributes(clone: WorkTree) -> None:
    bare = clone.top.with_name("bare.git")
    clone.git("init", "-q", "--bare", str(bare))
    _install(clone, cwd=bare)
    assert b"merge=aoebank" in (bare / "info" / "attributes").read_bytes()
    assert not (bare / ".gitattributes").exists()


def test_global_install_writes_the_files_of_the_user(clone: WorkTree) -> None:
    before = _snapshot(clone)
    _install(clone, "--global")
    assert _snapshot(clone) == before
    folder = clone.home / ".config" / "git"
    assert b"merge=aoebank" in (folder / "attributes").read_bytes()
    assert b"aoebank-tmp" in (folder / "ignore").read_bytes()
    assert "merge: aoebank" in clone.git("check-attr", "merge", "--", BANK.name)
    clone.fork(
        {BANK.name: BANK.without(0, 1)}, {BANK.name: BANK.without(0)}, {BANK.name: BANK.without(1)}
    )
    clone.git("merge", "-q", "--no-edit", "theirs")
    _install(clone, "--global", verb="uninstall")
    assert "merge: unspecified" in clone.git("check-attr", "merge", "--", BANK.name)


@pytest.mark.slow
def test_global_install_writes_the_files_settings_name(clone: WorkTree) -> None:
    clone.git("config", "--global", "core.attributesFile", "~/my attributes")
    _install(clone, "--global")
    assert b"merge=aoebank" in (clone.home / "my attributes").read_bytes()
    clone.env = {**clone.env, "XDG_CONFIG_HOME": str(clone.home / "xdg")}
    _install(clone, "--global")
    assert (clone.home / "xdg" / "git" / "ignore").exists()


def test_global_install_needs_no_repository(clone: WorkTree, tmp_path: Path) -> None:
    _install(clone, "--global", cwd=tmp_path)
    assert clone.git("config", "--global", "merge.aoebank.driver").strip() == DRIVER


def test_install_outside_of_git_is_an_error(clone: WorkTree, tmp_path: Path) -> None:
    result = clone.aoebank("git", "install", cwd=tmp_path)
    assert result.returncode == 3
    assert "not in a git repository" in result.stderr


def test_install_in_the_git_directory_is_an_error(clone: WorkTree) -> None:
    result = clone.aoebank("git", "install", cwd=clone.top / ".git")
    assert result.returncode == 3
    assert "cd into the work tree" in result.stderr


def test_install_without_git_says_so(clone: WorkTree) -> None:
    clone.env = {**clone.env, "PATH": str(clone.home / "bin")}
    result = clone.run("/bin/sh", str(clone.home / "bin" / "aoebank"), "git", "install")
    assert result.returncode == 3
    assert "git is not installed" in result.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_read_only_repository_is_an_error(clone: WorkTree) -> None:
    (clone.top / ".git").chmod(0o500)
    result = clone.aoebank("git", "install")
    (clone.top / ".git").chmod(0o700)
    assert result.returncode == 3


def test_locked_settings_are_an_error(clone: WorkTree) -> None:
    (clone.top / ".git" / "config.lock").touch()
    before = _snapshot(clone)
    result = clone.aoebank("git", "install")
    assert result.returncode == 3
    assert "could not lock config file" in result.stderr
    assert _snapshot(clone) == before


def test_document_holds_every_setting_and_file(clone: WorkTree) -> None:
    document = json.loads(_install(clone, "--json"))
    assert document["schema"] == "aoebank.git-install/1"
    assert {setting["key"]: setting["after"] for setting in document["settings"]}[
        "merge.aoebank.driver"
    ] == DRIVER
    assert [Path(file["path"]).name for file in document["files"]] == [".gitattributes", "exclude"]
    assert all(entry["changed"] for entry in document["settings"] + document["files"])
    again = json.loads(_install(clone, "--json"))
    assert not any(entry["changed"] for entry in again["settings"] + again["files"])


def test_error_is_a_document_too(clone: WorkTree, tmp_path: Path) -> None:
    result = clone.aoebank("git", "check", "--json", cwd=tmp_path)
    document = json.loads(result.stdout)
    assert document["schema"] == "aoebank.git-check/1"
    assert document["error"]["code"] == "history"


@pytest.mark.slow
@pytest.mark.parametrize(
    "folder", few_every_day(['it\'s; $(touch x) "here" merge-driver', "my programs"])
)
def test_program_in_a_folder_with_a_blank_is_started(clone: WorkTree, folder: str) -> None:
    program = clone.home / folder / "aoebank"
    program.parent.mkdir()
    (clone.home / "bin" / "aoebank").rename(program)
    _install(clone, "--command", str(program))
    clone.fork(
        {BANK.name: BANK.without(0, 1)}, {BANK.name: BANK.without(0)}, {BANK.name: BANK.without(1)}
    )
    clone.git("merge", "-q", "--no-edit", "theirs")
    assert BANK.records(clone.read(BANK.name)) == BANK.records(BANK.data)
    assert "record " in clone.git("log", "-1", "-p", "-m", "--first-parent")
    assert clone.run(str(program), "git", "check").returncode == 0
    assert not (clone.top / "x").exists()


def test_command_of_several_words_stays_one(clone: WorkTree) -> None:
    _install(clone, "--command", "env X=1 aoebank")
    setting = clone.git("config", "merge.aoebank.driver")
    assert setting.startswith("env X=1 aoebank merge-driver ")
    assert clone.aoebank("git", "check").returncode == 0


@pytest.mark.slow
def test_uninstall_forgets_the_texts_git_kept(clone: WorkTree) -> None:
    _install(clone)
    clone.commit("one", {BANK.name: BANK.data})
    clone.commit("two", {BANK.name: BANK.without(0)})
    clone.git("notes", "add", "-m", "mine")
    clone.git("log", "-p")
    ref = "refs/notes/textconv/aoebank"
    assert ref in clone.git("for-each-ref")
    result = clone.aoebank("git", "uninstall", "--dry-run")
    assert f"would forget {ref}" in result.stdout
    assert ref in clone.git("for-each-ref")
    result = clone.aoebank("git", "uninstall", "--json")
    assert json.loads(result.stdout)["forgotten"] == [ref]
    assert "textconv" not in clone.git("for-each-ref")
    assert "refs/notes/commits" in clone.git("for-each-ref")
    assert "nothing to do" in clone.aoebank("git", "uninstall").stdout


def test_hook_is_asked_for_and_runs_before_what_was_there(clone: WorkTree) -> None:
    hook = clone.top / ".git" / "hooks" / "pre-commit"
    assert "aoebank git install --hook" in _install(clone)
    assert not hook.exists()
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nexec true\n")
    hook.chmod(0o755)
    _install(clone, "--hook")
    lines = hook.read_text().splitlines()
    assert (lines[0], lines[2], lines[-1]) == (
        "#!/bin/sh",
        "aoebank git check --conflicts || exit 1",
        "exec true",
    )
    assert "nothing to do" in _install(clone)  # an installation leaves the hook where it is
    _install(clone, verb="uninstall")
    assert hook.read_text() == "#!/bin/sh\nexec true\n"


def test_hook_that_held_nothing_else_comes_and_goes(clone: WorkTree) -> None:
    hook = clone.top / ".git" / "hooks" / "pre-commit"
    _install(clone, "--hook")
    assert os.access(hook, os.X_OK)
    _install(clone, verb="uninstall")
    assert not hook.exists()


def test_hook_in_another_language_is_left_alone(clone: WorkTree) -> None:
    hook = clone.top / ".git" / "hooks" / "pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/usr/bin/env python3\n")
    result = clone.aoebank("git", "install", "--hook")
    assert result.returncode == 3
    assert "hook is no shell script" in result.stderr
    assert hook.read_text() == "#!/usr/bin/env python3\n"
    assert clone.aoebank("git", "install", "--hook", "--global").returncode == 2
