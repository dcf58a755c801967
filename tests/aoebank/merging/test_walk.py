"""Conflicts settled by a person: in a real terminal, and by `git mergetool`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.terminals import Shown, run_on_terminal

import aoebank
from aoebank import Bank, Record, UsageError

SOC = "x86-64-v4"
COMMAND = "from aoebank.__main__ import main; import sys; sys.exit(main())"
ASKED = "q quit:"


def _record(number: int, tile: int) -> Record:
    return aoebank.make_unified_record(
        workload={"op_type": "Foo", "m": number},
        strategy={"tile": tile},
        cost_us=None,
        origin="test",
    )


def _file(root: Path) -> Path:
    return Bank(root).unified_file(soc_version=SOC, core_num=2, op_type="Foo")


def _put(root: Path, tiles: dict[int, int]) -> None:
    for number, tile in tiles.items():
        Bank(root).put(_file(root), [_record(number, tile)])


def _tiles(root: Path) -> dict[int, int]:
    found = {}
    for one in Bank(root).iter_records(_file(root)):
        workload, strategy = one.workload, one.strategy
        assert isinstance(workload, dict)
        assert isinstance(strategy, dict)
        found[int(workload["m"])] = int(strategy["tile"])
    return found


@pytest.fixture
def merged(tmp_path: Path) -> Path:
    """Return a merged bank with three open conflicts: the base has 1, ours 2, theirs 3."""
    for name, tile in (("base", 1), ("ours", 2), ("theirs", 3)):
        _put(tmp_path / name, dict.fromkeys((10, 20, 30), tile))
    sides = (tmp_path / "ours", tmp_path / "theirs")
    aoebank.merge(*sides, base=tmp_path / "base", output=tmp_path / "merged")
    return tmp_path / "merged"


def _conflicts(root: Path) -> Path:
    return _file(root).with_name(f"{_file(root).name}.conflicts")


def _walk(root: Path, *typed: str, **env: str) -> Shown:
    arguments = ["aoebank", "merge", "--apply", str(_conflicts(root)), "-i"]
    return run_on_terminal(
        f"import sys; sys.argv = {arguments!r}\n{COMMAND}",
        cwd=root,
        width=100,
        env={"NO_COLOR": "1", **env},
        answers=[(ASKED, f"{line}\n") for line in typed],
    )


def test_each_conflict_is_shown_beside_the_base_and_takes_what_was_typed(merged: Path) -> None:
    shown = _walk(merged, "t", "b", "o")
    assert (shown.exit_code, shown.settings_kept) == (0, True), shown.text
    assert sorted(_tiles(merged).values()) == [1, 2, 3]
    assert not _conflicts(merged).exists()
    drawn = "\n".join(shown.drawn)
    assert "conflict 1 of 3" in drawn
    assert "op_type=Foo m=10" in drawn
    words = [line.split() for line in shown.drawn]
    assert ["answer", "tile=1", "tile=2", "tile=3"] in words
    assert ["/tile", "1", "2", "3"] in words


def test_undo_takes_the_last_choice_back_and_quit_keeps_the_others(merged: Path) -> None:
    shown = _walk(merged, "t", "t", "u", "s", "q")
    assert shown.exit_code == 1, shown.text
    assert sorted(_tiles(merged).values()) == [2, 2, 3]
    left = json.loads(_conflicts(merged).read_text())["decisions"]
    assert [one["action"] for one in left] == ["conflict", "conflict"]


def test_what_is_no_answer_is_asked_again_and_remove_removes(merged: Path) -> None:
    shown = _walk(merged, "x", "r", "i", "q")
    assert shown.exit_code == 1, shown.text
    assert [*_tiles(merged).values()] == [2]
    assert shown.text.count(ASKED) == 4


def test_editor_makes_a_record_of_its_own(merged: Path, tmp_path: Path) -> None:
    editor = tmp_path / "editor.py"
    editor.write_text(
        "import re, sys; p = sys.argv[1]; t = open(p).read()\n"
        "open(p, 'w').write(re.sub(r'\"tile\": ?3', '\"tile\": 77', t))\n"
    )
    shown = _walk(merged, "e", "q", EDITOR=f"{sys.executable} {editor}")
    assert shown.exit_code == 1, shown.text
    assert 77 in _tiles(merged).values()
    broken = tmp_path / "broken.py"
    broken.write_text("import sys; open(sys.argv[1], 'w').write('{')\n")
    again = _walk(merged, "e", "q", EDITOR=f"{sys.executable} {broken}")
    assert sorted(_tiles(merged).values()) == [2, 2, 77], again.text


@pytest.mark.parametrize("editor", ["rm", "'", "/nowhere/editor", "false"])
def test_editor_that_fails_costs_no_choice(merged: Path, editor: str) -> None:
    shown = _walk(merged, "t", "e", "t", "q", EDITOR=editor)
    assert shown.exit_code == 1, shown.text
    assert "EDITOR: editor failed" in shown.text
    assert sorted(_tiles(merged).values()) == [2, 3, 3]


def test_nothing_is_asked_without_a_terminal_or_a_conflict_file(merged: Path) -> None:
    with pytest.raises(UsageError, match="needs a terminal"):
        aoebank.settle(_conflicts(merged), interactive=True)
    with pytest.raises(UsageError, match="without a conflict file"):
        aoebank.merge(merged, merged, output=merged, interactive=True)


def test_git_mergetool_settles_a_conflicted_bank(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    env = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    env |= {"PYTHONPATH": os.pathsep.join(sys.path)}
    for who in ("AUTHOR", "COMMITTER"):
        env |= {f"GIT_{who}_NAME": "a", f"GIT_{who}_EMAIL": "a@b"}

    def run(*arguments: str, code: int = 0) -> str:
        done = subprocess.run(arguments, cwd=work, env=env, capture_output=True, text=True)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def change(tile: int) -> None:
        _put(work, {10: tile})
        run("git", "add", "-A")
        run("git", "commit", "-qm", str(tile))

    ours = (sys.executable, "-m", "aoebank")
    run("git", "init", "-q", "-b", "main")
    run(*ours, "git", "install", "--mergetool", "--command", " ".join(ours))
    assert run("git", "config", "mergetool.aoebank.cmd").startswith(" ".join(ours))
    change(1)
    run("git", "checkout", "-qb", "theirs")
    change(3)
    run("git", "checkout", "-q", "main")
    change(2)
    run("git", "merge", "theirs", code=1)
    code = (
        "import subprocess, sys; sys.exit(subprocess.run("
        "['git', 'mergetool', '--no-prompt', '-t', 'aoebank']).returncode)"
    )
    shown = run_on_terminal(code, cwd=work, width=100, env=env, answers=[(ASKED, "t\n")])
    assert shown.exit_code == 0, shown.text
    assert _tiles(work) == {10: 3}
    assert not run("git", "ls-files", "-u")
    run("git", "commit", "-qm", "merged")
    run(*ours, "git", "uninstall")
    run("git", "config", "mergetool.aoebank.cmd", code=1)
