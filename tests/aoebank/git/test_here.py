"""Commands without a path mean the banks of the repository, also of a bare one."""

from __future__ import annotations

from pathlib import Path

from support.git_work_tree import SAMPLES, WorkTree

BANK = next(bank for bank in SAMPLES.values() if bank.name.endswith("_matmul.json"))
NAME = f"banks/{BANK.name}"


def committed(folder: Path) -> WorkTree:
    """Return a repository with a bank that changed once."""
    tree = WorkTree(folder)
    for data in (BANK.data, BANK.bumped(0, 1)):
        tree.write(NAME, data)
        tree.git("add", ".")
        tree.git("commit", "-q", "-m", "tune")
    return tree


def say(tree: WorkTree, *arguments: str, cwd: Path | None = None, exit_code: int = 0) -> str:
    result = tree.aoebank(*arguments, cwd=cwd)
    assert result.returncode == exit_code, result.stderr
    return result.stdout


def test_log_blame_and_diff_go_by_the_repository_one_is_in(tmp_path: Path) -> None:
    tree = committed(tmp_path)
    key = BANK.keys[0]
    assert say(tree, "log").count("git:") == 2
    told = say(tree, "blame", key[:8])
    assert [line.split()[0] for line in told.splitlines() if "git:" in line] == ["changed", "added"]
    (change,) = (line for line in told.splitlines() if " -> " in line)
    assert change.lstrip().startswith("/")
    assert "no difference" in say(tree, "diff")
    tree.write(NAME, BANK.bumped(0, 2))
    assert "1 strategy changed" in say(tree, "diff", exit_code=1)


def test_bare_clone_tells_where_a_record_is_from(tmp_path: Path) -> None:
    tree = committed(tmp_path)
    bare = tmp_path / "bare.git"
    tree.git("clone", "-q", "--bare", str(tree.top), str(bare))
    here, there = (say(tree, "blame", BANK.keys[0], cwd=cwd) for cwd in (tree.top, bare))
    assert here == there
    assert "no longer" not in there
    assert say(tree, "log", cwd=bare).count("git:") == 2
    assert "1 strategy changed" in say(
        tree, "diff", "git:HEAD~1", "git:HEAD", cwd=bare, exit_code=1
    )
