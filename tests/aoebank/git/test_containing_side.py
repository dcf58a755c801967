"""Git takes the side whose edit contains the other's, says so, and can be told not to."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.git_work_tree import SAMPLES, WorkTree

from aoebank import Record

BANK = next(bank for bank in SAMPLES.values() if "runtime_kb" in bank.name)


def _fork(tree: WorkTree) -> tuple[str, bytes]:
    """Let theirs change one member of a record, and ours that and one more."""
    record = next(iter(BANK.records(BANK.data).values()))
    names = ("singleCoreM", "singleCoreN")

    def with_members(*chosen: str) -> bytes:
        def change(old: Record) -> Record:
            strategy = dict(old.strategy)  # type: ignore[arg-type]
            for name in chosen:
                value = strategy[name]
                assert isinstance(value, int)
                strategy[name] = value + 16
            return replace(old, strategy=strategy)

        return BANK.changed(0, change)

    ours = with_members(*names)
    tree.fork({BANK.name: BANK.data}, {BANK.name: ours}, {BANK.name: with_members(names[0])})
    return record.key, ours


def test_driver_takes_the_containing_side_and_says_so(tree: WorkTree) -> None:
    key, ours = _fork(tree)
    output = tree.git("merge", "--no-edit", "theirs")
    assert f"  {key}: contains-other, ours: it has all the other side changed, and more" in output
    assert tree.read(BANK.name) == ours
    assert tree.aoebank("git", "verify-merge").returncode == 0


def test_driver_leaves_a_conflict_where_the_rule_is_switched_off(tree: WorkTree) -> None:
    _fork(tree)
    tree.git("config", "aoebank.merge.containment", "false")
    assert tree.try_git("merge", "--no-edit", "theirs").returncode == 1
    tree.git("commit", "-q", "-a", "--no-edit")
    tree.git("config", "--unset", "aoebank.merge.containment")
    tree.run("rm", f"{BANK.name}.conflicts")
    assert tree.aoebank("git", "verify-merge").returncode == 0
    tree.git("config", "aoebank.merge.containment", "perhaps")
    assert tree.aoebank("git", "verify-merge").returncode == 2


@pytest.mark.parametrize("options", [(), ("--no-containment",)])
def test_command_takes_it_unless_told_not_to(tree: WorkTree, options: tuple[str, ...]) -> None:
    _fork(tree)
    places = [f"git:{name}:{BANK.name}" for name in ("main", "theirs", "main~1")]
    result = tree.aoebank("merge", *places[:2], "--base", places[2], "--dry-run", *options)
    assert result.returncode == (1 if options else 0)
    words = "conflict: two strategies" if options else "one side's edit contains the other's"
    assert words in result.stdout
