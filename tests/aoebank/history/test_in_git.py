"""The same verbs on a bank that is committed: real git, branches and merges."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from support import version_banks as banks

from aoebank import HistoryError
from aoebank.history.blame import blame
from aoebank.history.edits import Kept, carry_out
from aoebank.history.log import log
from aoebank.history.restore import plan_restore, plan_revert
from aoebank.model.snapshot import HistorySource
from aoebank.selection import RecordFilter
from aoebank.storage.history.database import history_path
from aoebank.storage.sides.git import open_git_side
from aoebank.storage.sides.side import PathSide, SideKind
from aoebank.storage.sides.snapshots import open_snapshot_side
from aoebank.testing.factories import make_record

ALL = RecordFilter()
K1, K2, K3 = (make_record(number).key for number in (1, 2, 3))


def _commit(top: Path, message: str) -> str:
    banks.git(top, "add", "-A")
    banks.git(top, "commit", "-q", "-m", message)
    return banks.git(top, "rev-parse", "HEAD")


@pytest.fixture(params=[".", "banks/ä [b]*"])
def bank(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return a committed bank with three versions, at the top of its work tree or below."""
    root = tmp_path / str(request.param)
    root.mkdir(parents=True, exist_ok=True)
    banks.git(tmp_path, "init", "-q", "-b", "main")
    banks.put(root, make_record(1), make_record(2))
    _commit(tmp_path, "one")
    banks.git(tmp_path, "tag", "v1")
    (tmp_path / "README.md").write_text("no bank")
    if root != tmp_path:
        _commit(tmp_path, "not about the bank")
    banks.put(root, make_record(1, cost_us=5.0))
    _commit(tmp_path, "two\n\nwith a body")
    banks.put(root, make_record(3), op="LRN")
    _commit(tmp_path, "three")
    return root


def test_log_goes_by_commits(bank: Path) -> None:
    result = log(bank, wanted=ALL)
    assert result.kind is SideKind.GIT
    assert [version.version.message for version in result.versions] == [
        "three",
        "two\n\nwith a body",
        "one",
    ]
    assert result.versions[2].version.tags == ("v1",)
    assert result.versions[0].version.who == "Ann <ann@example.org>"
    assert result.versions[0].version.time.endswith("Z")
    assert [
        version.version.message for version in log(bank, wanted=RecordFilter(op=("LRN",))).versions
    ] == ["three"]


@pytest.mark.parametrize("setting", ["log.showSignature", "log.follow"])
def test_settings_of_a_user_change_no_log(bank: Path, tmp_path: Path, setting: str) -> None:
    """`git log` prints what signatures are worth, and stops at `log.follow` with a pathspec."""
    key = tmp_path / "key"
    made = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)]
    if shutil.which("ssh-keygen") and not subprocess.run(made, check=False).returncode:
        for name, value in (("gpg.format", "ssh"), ("user.signingKey", f"{key}.pub")):
            banks.git(bank, "config", name, value)
        banks.git(bank, "commit", "-q", "--amend", "-S", "--no-edit")
    before = [version.version for version in log(bank, wanted=ALL).versions]
    banks.git(bank, "config", setting, "true")
    assert [version.version for version in log(bank, wanted=ALL).versions] == before
    assert len(blame(bank, K1, wanted=ALL).records) == 1


def test_blame_names_the_commit(bank: Path) -> None:
    (found,) = blame(bank, K1, wanted=ALL).records
    assert [state.version.message for state in found.states if state.version] == [
        "two\n\nwith a body",
        "one",
    ]


def test_blame_follows_the_branch_a_record_came_from(bank: Path) -> None:
    banks.git(bank, "checkout", "-q", "-b", "side")
    banks.put(bank, make_record(2, cost_us=3.0))
    _commit(bank, "on the side")
    banks.git(bank, "checkout", "-q", "main")
    banks.put(bank, make_record(1), op="Elu")
    _commit(bank, "on main")
    banks.git(bank, "merge", "-q", "--no-ff", "-m", "merged", "side")
    (found,) = blame(bank, K2, wanted=ALL).records
    messages = [state.version.message for state in found.states if state.version]
    assert messages == ["on the side", "one"]


def test_blame_names_the_first_branch_that_has_the_record_in_a_merge_that_took_the_other_file(
    bank: Path,
) -> None:
    banks.git(bank, "checkout", "-q", "-b", "side")
    banks.put(bank, make_record(2, cost_us=3.0), make_record(9))
    _commit(bank, "on the side")
    banks.git(bank, "checkout", "-q", "main")
    banks.put(bank, make_record(2, cost_us=3.0))
    _commit(bank, "on main")
    banks.git(bank, "merge", "-q", "--no-ff", "-m", "merged", "-X", "theirs", "side")
    (found,) = blame(bank, K2, wanted=ALL).records
    assert [state.version.message for state in found.states if state.version][:1] == ["on main"]


def test_blame_finds_a_record_that_was_removed_with_its_file(bank: Path) -> None:
    banks.git(bank, "rm", "-q", "-r", ".")
    _commit(bank, "all gone")
    banks.put(bank, make_record(5), op="Elu")
    _commit(bank, "another")
    (found,) = blame(bank, K1, wanted=ALL).records
    messages = [state.version.message for state in found.states if state.version]
    assert messages == ["all gone", "two\n\nwith a body", "one"]
    assert not found.is_present


@pytest.mark.parametrize("name", ["put aside.json", "put aside.json.bak"])
def test_records_under_another_name_are_looked_for_in_json_only(bank: Path, name: str) -> None:
    (bank / name).write_bytes(banks.file_of(bank).read_bytes())
    _commit(bank, "put aside")
    is_bank = name.endswith(".json")
    newest = log(bank, wanted=ALL).versions[0]
    assert (newest.version.message == "put aside") == is_bank
    assert (name in open_git_side("HEAD", beside=bank, cwd=bank).names()) == is_bank
    assert (name in PathSide(label="", path=bank).names()) == is_bank


def test_commit_is_restored_and_git_keeps_what_was_there(bank: Path) -> None:
    plan = plan_restore(bank, "git:v1", ALL)
    kept = carry_out(plan, banks.author())
    assert banks.costs(bank) == {K1: 11.5, K2: 12.5}
    assert not banks.file_of(bank, "LRN").exists()
    assert kept == Kept()  # all of it was committed, so no snapshot is needed
    assert not history_path(bank).exists()
    readme = bank / "README.md"
    assert readme.exists() or bank.name != banks.git(bank, "rev-parse", "--show-toplevel")


def test_strangers_beside_the_bank_are_left_alone(bank: Path) -> None:
    own = banks.file_of(bank)
    strangers = [own.with_suffix(".bin"), own.with_name("notes.txt"), bank / ".hidden" / own.name]
    for version in ("old", "new"):
        for stranger in strangers:
            stranger.parent.mkdir(exist_ok=True)
            stranger.write_text(version)
        _commit(bank, version)
    carry_out(plan_restore(bank, "git:HEAD~1", ALL), banks.author())
    assert [stranger.read_text() for stranger in strangers] == ["new"] * 3


def test_tag_of_git_needs_its_prefix_and_the_error_says_so(bank: Path) -> None:
    with pytest.raises(HistoryError, match="no snapshot") as caught:
        plan_restore(bank, "v1", ALL)
    assert "git:REV" in caught.value.hint


def test_what_was_not_committed_is_recorded_first(bank: Path) -> None:
    banks.put(bank, make_record(7))
    mine = banks.file_of(bank).read_bytes()
    kept = carry_out(plan_restore(bank, "git:v1", ALL), banks.author())
    assert kept is not None
    assert kept.before is not None
    side = open_snapshot_side(kept.before.id, root=bank)
    name = banks.file_of(bank).relative_to(bank).as_posix()
    assert side.read(side.contents[name]) == mine
    status = banks.git(bank, "status", "--porcelain")
    assert "history.db" not in status


def test_part_of_a_commit_is_restored(bank: Path) -> None:
    carry_out(plan_restore(bank, "git:HEAD~1", RecordFilter(op=("LRN",))), banks.author())
    assert not banks.file_of(bank, "LRN").exists()
    carry_out(plan_restore(bank, "git:v1", RecordFilter(key=(K1,))), banks.author())
    assert banks.costs(bank)[K1] == 11.5


def test_commit_is_taken_back_record_by_record(bank: Path) -> None:
    banks.put(bank, make_record(8))
    carry_out(plan_revert(bank, "git:HEAD~1", RecordFilter(op=("Softmax",))), banks.author())
    assert banks.costs(bank) == {K1: 11.5, K2: 12.5, make_record(8).key: 18.5}
    assert banks.costs(bank, "LRN") == {K3: 13.5}


def test_merge_is_taken_back_against_its_first_parent(bank: Path) -> None:
    banks.git(bank, "checkout", "-q", "-b", "side")
    banks.put(bank, make_record(2, cost_us=3.0))
    _commit(bank, "bad drop")
    banks.git(bank, "checkout", "-q", "main")
    banks.put(bank, make_record(4), op="LRN")
    _commit(bank, "good work")
    banks.git(bank, "merge", "-q", "--no-ff", "-m", "merged", "side")
    carry_out(plan_revert(bank, "git:HEAD", ALL), banks.author())
    assert banks.costs(bank)[K2] == 12.5
    assert make_record(4).key in banks.costs(bank, "LRN")


@pytest.mark.parametrize("reference", ["git:nowhere", "git:--all", "git:", "git:HEAD~99"])
def test_unknown_revision_changes_nothing(bank: Path, reference: str) -> None:
    before = banks.state(bank)
    for plan in (plan_restore, plan_revert):
        with pytest.raises(HistoryError, match="unknown revision"):
            plan(bank, reference, ALL)
    assert banks.state(bank) == before


def test_snapshots_beside_git_are_asked_for_by_name(bank: Path) -> None:
    result = banks.snap(bank, "a snapshot")
    assert result.is_tracked
    assert log(bank, wanted=ALL).kind is SideKind.GIT
    found = log(bank, wanted=ALL, source=HistorySource.SNAPSHOTS)
    assert [version.version.message for version in found.versions] == ["a snapshot"]


def test_link_to_a_committed_bank_is_that_bank(bank: Path, tmp_path: Path) -> None:
    link = tmp_path.parent / f"link-{tmp_path.name}"
    link.symlink_to(bank)
    assert len(log(link, wanted=ALL).versions) == 3


def test_work_tree_with_other_files_is_no_history_of_a_bank(tmp_path: Path) -> None:
    banks.git(tmp_path, "init", "-q", "-b", "main")
    (tmp_path / "README.md").touch()
    _commit(tmp_path, "one")
    banks.put(tmp_path, make_record(1))
    assert not banks.snap(tmp_path, "mine").is_tracked
    assert log(tmp_path, wanted=ALL).kind is SideKind.SNAPSHOT


def test_bank_in_a_work_tree_that_is_not_committed_goes_by_snapshots(tmp_path: Path) -> None:
    banks.git(tmp_path, "init", "-q", "-b", "main")
    banks.put(tmp_path / "bank", make_record(1))
    with pytest.raises(HistoryError, match="no history"):
        log(tmp_path / "bank", wanted=ALL)
    with pytest.raises(HistoryError, match="no commit yet"):
        log(tmp_path / "bank", wanted=ALL, source=HistorySource.GIT)
    banks.snap(tmp_path / "bank", "mine")
    assert log(tmp_path / "bank", wanted=ALL).kind is SideKind.SNAPSHOT


def test_machine_without_git_still_has_snapshots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    banks.put(tmp_path, make_record(1))
    assert not banks.snap(tmp_path, "mine").is_tracked
    assert log(tmp_path, wanted=ALL).versions
    with pytest.raises(HistoryError, match="git is not installed"):
        log(tmp_path, wanted=ALL, source=HistorySource.GIT)
