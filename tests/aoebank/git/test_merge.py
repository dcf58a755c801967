"""Git merges banks with our driver: merge, rebase, cherry-pick, stash, diff, log."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from support.git_work_tree import EVERY_FORMAT, SAMPLES, SOME_FORMATS, SampleBank, WorkTree
from support.tiers import few_every_day

from aoebank import Record
from aoebank.formats.provenance import serialize_provenance
from aoebank.testing.factories import make_provenance

UNIFIED = next(bank for bank in SAMPLES.values() if bank.name.endswith("_matmul.json"))


def test_records_added_on_both_sides_are_all_there(tree: WorkTree) -> None:
    banks = SAMPLES.values()
    tree.fork(
        {bank.name: bank.without(0, 1) for bank in banks},
        {bank.name: bank.without(0) for bank in banks},
        {bank.name: bank.without(1) for bank in banks},
    )
    tree.git("merge", "-q", "--no-edit", "theirs")
    for bank in banks:
        merged = bank.records(tree.read(bank.name))
        assert merged == bank.records(bank.data)
        sides = (bank.without(0), bank.without(1))
        raws = {record.raw for data in sides for record in bank.records(data).values()}
        assert {record.raw for record in merged.values()} <= raws


def _fork_conflict(tree: WorkTree, *banks: SampleBank) -> bytes:
    """Let both sides give record 0 another strategy; return the last file of theirs."""
    tree.git("config", "aoebank.merge.policy", "fail")
    ours = {bank.name: bank.bumped(0, 1) for bank in banks}
    theirs = {bank.name: bank.bumped(0, 2, of=bank.without(5)) for bank in banks}
    tree.fork({bank.name: bank.data for bank in banks}, ours, theirs)
    return theirs[banks[-1].name]


@pytest.fixture(scope="module")
def conflicts(
    installed: WorkTree, tmp_path_factory: pytest.TempPathFactory
) -> tuple[WorkTree, subprocess.CompletedProcess[str]]:
    """Return a work tree in which a bank of each format is in conflict, and what git said."""
    tree = installed.copy(tmp_path_factory.mktemp("conflicts"))
    _fork_conflict(tree, *SAMPLES.values())
    return tree, tree.try_git("merge", "--no-edit", "theirs")


@EVERY_FORMAT
def test_conflict_leaves_a_valid_file_with_our_record(
    conflicts: tuple[WorkTree, subprocess.CompletedProcess[str]], bank: SampleBank
) -> None:
    tree, result = conflicts
    assert result.returncode == 1
    assert f"UU {bank.name}" in tree.git("status", "--porcelain")
    merged = bank.records(tree.read(bank.name))
    assert merged[bank.keys[0]] == bank.records(bank.bumped(0, 1))[bank.keys[0]]
    assert bank.keys[5] not in merged  # what is no conflict is merged
    assert b"<<<<" not in tree.read(bank.name)


@EVERY_FORMAT
def test_conflict_file_has_both_records_and_is_seen_in_status(
    conflicts: tuple[WorkTree, subprocess.CompletedProcess[str]], bank: SampleBank
) -> None:
    tree, result = conflicts
    assert f"{bank.name}.conflicts" in result.stdout
    document = json.loads(tree.read(f"{bank.name}.conflicts"))
    assert [decision["key"] for decision in document["decisions"]] == [bank.keys[0]]
    assert f"?? {bank.name}.conflicts" in tree.git("status", "--porcelain")


def test_merge_of_two_ancestors_leaves_the_conflict_file(
    conflicts: tuple[WorkTree, subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    tree, _ = conflicts
    told = tree.read(f"{UNIFIED.name}.conflicts")
    files = [tmp_path / name for name in "OAB"]
    for file in files:
        file.write_bytes(UNIFIED.bumped(0, 1))
    result = tree.aoebank("merge-driver", "--inner", *map(str, files), "7", UNIFIED.name)
    assert result.returncode == 0
    assert tree.read(f"{UNIFIED.name}.conflicts") == told


@pytest.mark.slow
def test_conflict_file_goes_when_the_merge_is_made_again(tree: WorkTree) -> None:
    theirs = _fork_conflict(tree, UNIFIED)
    tree.try_git("merge", "--no-edit", "theirs")
    tree.git("merge", "--abort")
    tree.git("config", "aoebank.merge.policy", "theirs")
    tree.git("merge", "-q", "--no-edit", "theirs")
    assert not (tree.top / f"{UNIFIED.name}.conflicts").exists()
    assert UNIFIED.records(tree.read(UNIFIED.name)) == UNIFIED.records(theirs)


def _fork_times(tree: WorkTree, ours_us: float, theirs_us: float) -> None:
    """Let both sides find another strategy for record 0, which took 380 us."""
    ours, theirs = UNIFIED.retimed(0, ours_us), UNIFIED.retimed(0, theirs_us)
    tree.fork(
        {UNIFIED.name: UNIFIED.data},
        {UNIFIED.name: UNIFIED.bumped(0, 1, of=ours)},
        {UNIFIED.name: UNIFIED.bumped(0, 2, of=theirs)},
    )


def _cost(tree: WorkTree, number: int = 0) -> float | None:
    return UNIFIED.records(tree.read(UNIFIED.name))[UNIFIED.keys[number]].cost_us


def test_noise_setting_decides_what_a_gap_is(tree: WorkTree) -> None:
    _fork_times(tree, 210.0, 200.0)
    tree.git("config", "aoebank.merge.noise", "50%")
    tree.git("config", "--add", "aoebank.merge.override", "op=nothing*:fail")
    plan = tree.aoebank("merge-driver", "--json", "--dry-run", *_versions(tree), "7", UNIFIED.name)
    assert json.loads(plan.stdout)["decisions"][0]["reason"] == "inside-noise"


def _versions(tree: WorkTree) -> tuple[str, str, str]:
    """Return files of the home folder with base, ours and theirs, as git hands them out."""
    base = tree.git("merge-base", "main", "theirs").strip()
    for name, commit in (("base", base), ("ours", "main"), ("theirs", "theirs")):
        text = tree.git("show", "--no-textconv", f"{commit}:{UNIFIED.name}")
        (tree.home / name).write_text(text)
    return str(tree.home / "base"), str(tree.home / "ours"), str(tree.home / "theirs")


@pytest.mark.slow
def test_override_setting_beats_the_policy(tree: WorkTree) -> None:
    _fork_times(tree, 200.0, 300.0)
    tree.git("config", "--add", "aoebank.merge.override", "op=matmul:theirs")
    tree.git("merge", "-q", "--no-edit", "theirs")
    assert _cost(tree) == 300.0


@pytest.mark.parametrize(
    ("setting", "value"),
    few_every_day(
        [
            ("polcy", "ours"),
            ("policy", "best"),
            ("noise", "little"),
            ("untimed", "keep-best"),
            ("override", "matmul"),
        ],
        2,
    ),
)
def test_setting_without_meaning_stops_the_merge_and_keeps_ours(
    tree: WorkTree, setting: str, value: str
) -> None:
    _fork_times(tree, 200.0, 300.0)
    tree.git("config", f"aoebank.merge.{setting}", value)
    result = tree.try_git("merge", "--no-edit", "theirs")
    assert result.returncode
    assert f"git config aoebank.merge.{setting}" in result.stdout + result.stderr
    assert _cost(tree) == 200.0
    is_begun = (tree.top / ".git" / "MERGE_HEAD").exists()  # git from 2.42 on begins no merge
    assert is_begun is ("UU" in tree.git("status", "--porcelain"))


def test_rebase_merges_every_commit(tree: WorkTree) -> None:
    tree.fork(
        {UNIFIED.name: UNIFIED.without(0, 1, 2)},
        {UNIFIED.name: UNIFIED.without(1, 2)},
        {UNIFIED.name: UNIFIED.without(0, 2)},
    )
    tree.git("checkout", "-q", "theirs")
    tree.commit("theirs again", {UNIFIED.name: UNIFIED.without(0)})
    tree.git("rebase", "-q", "main")
    assert UNIFIED.records(tree.read(UNIFIED.name)) == UNIFIED.records(UNIFIED.data)
    assert tree.git("rev-list", "--count", "main..HEAD").strip() == "2"


def test_cherry_pick_brings_over_one_change(tree: WorkTree) -> None:
    tree.fork(
        {UNIFIED.name: UNIFIED.without(0, 1, 2)},
        {UNIFIED.name: UNIFIED.without(1, 2)},
        {UNIFIED.name: UNIFIED.without(0, 2)},
    )
    tree.git("cherry-pick", "theirs")
    assert {*UNIFIED.records(tree.read(UNIFIED.name))} == {*UNIFIED.keys} - {UNIFIED.keys[2]}


@pytest.mark.slow
def test_revert_takes_out_one_change_and_keeps_later_ones(tree: WorkTree) -> None:
    tree.commit("base", {UNIFIED.name: UNIFIED.without(0, 1)})
    added = tree.commit("add 0", {UNIFIED.name: UNIFIED.without(1)})
    tree.commit("add 1", {UNIFIED.name: UNIFIED.data})
    tree.git("revert", "--no-edit", added)
    assert {*UNIFIED.records(tree.read(UNIFIED.name))} == {*UNIFIED.keys} - {UNIFIED.keys[0]}


@pytest.mark.slow
def test_checkout_with_merge_keeps_uncommitted_records(tree: WorkTree) -> None:
    tree.fork({UNIFIED.name: UNIFIED.without(0, 1)}, {}, {UNIFIED.name: UNIFIED.without(0)})
    tree.write(UNIFIED.name, UNIFIED.without(1))
    tree.git("checkout", "-q", "-m", "theirs")
    assert UNIFIED.records(tree.read(UNIFIED.name)) == UNIFIED.records(UNIFIED.data)


@SOME_FORMATS
def test_file_added_on_both_sides_is_merged(tree: WorkTree, bank: SampleBank) -> None:
    tree.fork({}, {bank.name: bank.without(0)}, {bank.name: bank.without(1)})
    tree.git("merge", "-q", "--no-edit", "theirs")
    assert bank.records(tree.read(bank.name)) == bank.records(bank.data)


def test_file_removed_by_one_side_and_changed_by_the_other_stays_whole(tree: WorkTree) -> None:
    tree.fork(
        {UNIFIED.name: UNIFIED.data}, {UNIFIED.name: None}, {UNIFIED.name: UNIFIED.without(0)}
    )
    assert "modify/delete" in tree.try_git("merge", "--no-edit", "theirs").stdout
    assert tree.read(UNIFIED.name) == UNIFIED.without(0)


@pytest.mark.slow
def test_renamed_soc_takes_the_records_of_the_other_side_along(tree: WorkTree) -> None:
    new = UNIFIED.name.replace("Ascend910B2", "Ascend950PR")
    tree.fork(
        {UNIFIED.name: UNIFIED.without(0)},
        {UNIFIED.name: None, new: UNIFIED.without(0, 1)},
        {UNIFIED.name: UNIFIED.data},
    )
    tree.git("merge", "-q", "--no-edit", "theirs")
    assert not (tree.top / UNIFIED.name).exists()
    assert {*UNIFIED.records(tree.read(new))} == {*UNIFIED.keys} - {UNIFIED.keys[1]}


@pytest.mark.slow
@SOME_FORMATS
@pytest.mark.parametrize("mover", few_every_day(["ours", "theirs"]))
def test_record_added_to_a_renamed_file_ends_in_the_renamed_file(
    tree: WorkTree, bank: SampleBank, mover: str
) -> None:
    new = f"moved/{bank.name}"
    moved = {bank.name: None, new: bank.without(0)}
    added = {bank.name: bank.data}
    sides = (moved, added) if mover == "ours" else (added, moved)
    tree.fork({bank.name: bank.without(0)}, *sides)
    tree.git("merge", "-q", "--no-edit", "theirs")
    assert not (tree.top / bank.name).exists()
    assert bank.records(tree.read(new)) == bank.records(bank.data)
    assert tree.aoebank("git", "verify-merge").returncode == 0


def test_a_rename_git_does_not_see_is_a_conflict_and_loses_nothing(tree: WorkTree) -> None:
    new = UNIFIED.name.replace("Ascend910B2", "Ascend950PR")
    tree.fork(
        {UNIFIED.name: UNIFIED.without(0)},
        {UNIFIED.name: None, new: UNIFIED.without(0, 1, 2, 3, 4)},
        {UNIFIED.name: UNIFIED.data},
    )
    assert tree.try_git("merge", "-q", "theirs").returncode == 1
    assert f"DU {UNIFIED.name}" in tree.git("status", "--porcelain")
    assert UNIFIED.records(tree.read(UNIFIED.name)) == UNIFIED.records(UNIFIED.data)


@pytest.mark.slow
def test_octopus_merges_each_branch_in_turn(tree: WorkTree) -> None:
    tree.commit("base", {UNIFIED.name: UNIFIED.without(0, 1, 2)})
    for number in (0, 1, 2):
        others = {0, 1, 2} - {number}
        tree.git("checkout", "-q", "-b", f"branch{number}", "main")
        tree.commit(f"add {number}", {UNIFIED.name: UNIFIED.without(*others)})
    tree.git("checkout", "-q", "main")
    result = tree.try_git("merge", "--no-edit", "branch0", "branch1", "branch2")
    # git's octopus strategy knows no drivers: it gives up, and nothing is changed
    assert result.returncode
    tree.git("reset", "-q", "--hard")
    for number in (0, 1, 2):
        tree.git("merge", "-q", "--no-edit", f"branch{number}")
    assert UNIFIED.records(tree.read(UNIFIED.name)) == UNIFIED.records(UNIFIED.data)


@pytest.mark.slow
def test_bases_that_disagree_do_not_hide_a_conflict(tree: WorkTree) -> None:
    tree.git("config", "aoebank.merge.policy", "fail")
    ours, theirs = UNIFIED.bumped(0, 1), UNIFIED.bumped(0, 2)
    tree.fork({UNIFIED.name: UNIFIED.data}, {UNIFIED.name: ours}, {UNIFIED.name: theirs})
    first = tree.git("rev-parse", "main").strip()
    tree.try_git("merge", "theirs")
    tree.commit("keep ours")
    tree.git("checkout", "-q", "theirs")
    tree.try_git("merge", first)
    tree.commit("keep theirs")
    tree.git("checkout", "-q", "main")
    assert tree.try_git("merge", "--no-edit", "theirs").returncode == 1
    assert UNIFIED.records(tree.read(UNIFIED.name)) == UNIFIED.records(ours)


@pytest.mark.slow
def test_binary_twin_of_a_cube_bank_keeps_ours(tree: WorkTree) -> None:
    bank = next(bank for bank in SAMPLES.values() if "repository" in bank.name)
    binary_cache = bank.name.replace(".json", ".bin")
    tree.fork(
        {bank.name: bank.without(0, 1), binary_cache: b"old"},
        {bank.name: bank.without(0)},
        {bank.name: bank.without(1)},
    )
    result = tree.try_git("merge", "--no-edit", "theirs")
    assert result.returncode
    assert "twin" in result.stderr
    assert tree.read(bank.name) == bank.without(0)


def _without_program(tree: WorkTree, how: str) -> None:
    """Take the program away: gone, not to be started, or without its package."""
    program = tree.home / "bin" / "aoebank"
    if how == "gone":
        program.unlink()
    elif how == "no interpreter":
        program.write_text("#!/no/such/python\n")
    else:
        program.write_text("#!/bin/sh\necho No module named aoebank >&2\nexit 1\n")


@pytest.mark.parametrize("how", few_every_day(["gone", "no interpreter", "no package"]))
@pytest.mark.parametrize("operation", few_every_day(["merge", "rebase", "cherry-pick"]))
def test_clone_without_the_program_gets_both_versions_between_markers(
    tree: WorkTree, how: str, operation: str
) -> None:
    ours, theirs = UNIFIED.without(0), UNIFIED.without(1)
    tree.fork({UNIFIED.name: UNIFIED.without(0, 1)}, {UNIFIED.name: ours}, {UNIFIED.name: theirs})
    _without_program(tree, how)
    assert tree.try_git(operation, "theirs").returncode == 1
    assert re.search(f"^(UU|AA) {UNIFIED.name}$", tree.git("status", "--porcelain"), re.MULTILINE)
    merged = tree.read(UNIFIED.name)
    assert b"<<<<<<< ours\n" in merged
    assert b">>>>>>> theirs (aoebank does not start)\n" in merged
    lines = {line for line in merged.splitlines() if not line.startswith((b"<<", b"==", b">>"))}
    assert lines >= {*ours.splitlines()} | {*theirs.splitlines()}  # nothing is dropped
    result = tree.aoebank("validate", UNIFIED.name)
    assert result.returncode == 1
    assert "AB104" in result.stdout


@pytest.mark.slow
def test_merge_that_took_ours_without_the_program_is_told(tree: WorkTree) -> None:
    ours, theirs = UNIFIED.without(0), UNIFIED.without(1)
    tree.fork({UNIFIED.name: UNIFIED.without(0, 1)}, {UNIFIED.name: ours}, {UNIFIED.name: theirs})
    program = (tree.home / "bin" / "aoebank").read_bytes()
    _without_program(tree, "gone")
    tree.try_git("merge", "theirs")
    tree.git("add", UNIFIED.name)
    tree.git("commit", "-q", "--no-edit")
    (tree.home / "bin" / "aoebank").write_bytes(program)
    assert "markers" in tree.aoebank("git", "verify-merge").stdout
    tree.write(UNIFIED.name, ours)
    tree.git("commit", "-q", "-a", "--amend", "--no-edit")
    result = tree.aoebank("git", "verify-merge")
    assert result.returncode == 1
    assert f"lost {UNIFIED.name} {UNIFIED.keys[0]}" in result.stdout


@pytest.mark.parametrize("command", few_every_day(["no-such-program", "false"]))
def test_driver_of_an_older_installation_that_does_not_start_keeps_ours(
    tree: WorkTree, command: str
) -> None:
    tree.git("config", "merge.aoebank.driver", f"{command} merge-driver %O %A %B %L %P")
    tree.fork(
        {UNIFIED.name: UNIFIED.without(0, 1)},
        {UNIFIED.name: UNIFIED.without(0)},
        {UNIFIED.name: UNIFIED.without(1)},
    )
    assert tree.try_git("merge", "--no-edit", "theirs").returncode
    assert tree.read(UNIFIED.name) == UNIFIED.without(0)


def test_hostile_path_is_merged_like_any_other(tree: WorkTree) -> None:
    name = "a b/$(touch x)'\"\n;&*/" + UNIFIED.name
    tree.fork({name: UNIFIED.without(0, 1)}, {name: UNIFIED.without(0)}, {name: UNIFIED.without(1)})
    tree.git("merge", "-q", "--no-edit", "theirs")
    assert UNIFIED.records(tree.read(name)) == UNIFIED.records(UNIFIED.data)
    assert not (tree.top / "x").exists()


@pytest.mark.slow
def test_merge_started_below_the_top_finds_its_files(tree: WorkTree) -> None:
    name = f"banks/deep/{UNIFIED.name}"
    tree.git("config", "aoebank.merge.policy", "fail")
    tree.fork({name: UNIFIED.data}, {name: UNIFIED.bumped(0, 1)}, {name: UNIFIED.bumped(0, 2)})
    result = tree.run("git", "merge", "theirs", cwd=tree.top / "banks")
    assert result.returncode == 1
    assert (tree.top / f"{name}.conflicts").exists()


@pytest.mark.slow
@SOME_FORMATS
def test_edited_conflict_file_settles_the_merge(tree: WorkTree, bank: SampleBank) -> None:
    theirs = _fork_conflict(tree, bank)
    tree.try_git("merge", "theirs")
    conflicts = f"{bank.name}.conflicts"
    text = tree.read(conflicts).replace(b'"action": "conflict"', b'"action": "take-theirs"')
    tree.write(conflicts, text)
    result = tree.aoebank("merge", "--apply", conflicts)
    assert result.returncode == 0, result.stderr
    merged, key = tree.read(bank.name), bank.keys[0]
    assert bank.records(merged)[key].raw == bank.records(theirs)[key].raw
    tree.commit("settled")
    verdict = tree.aoebank("git", "verify-merge")
    assert verdict.returncode == 0, verdict.stdout
    decided = "1 record in conflict, all decided against the first parent"
    assert decided in verdict.stdout


def _provenance(record: Record, host: str) -> bytes:
    return serialize_provenance(
        make_provenance(
            record.key, fingerprint={"host": host}, tuned_us=(record.cost_us or 1.0,) * 2
        )
    )


def _fork_hosts(tree: WorkTree, hosts: tuple[str, str]) -> None:
    """Let both sides find another strategy for record 0, each on its machine."""
    side_car = f"{UNIFIED.name}.provenance.jsonl"
    files: list[dict[str, bytes | None]] = []
    for number, (host, cost_us) in enumerate(zip(hosts, (300.0, 200.0), strict=True), 1):
        data = UNIFIED.bumped(0, number, of=UNIFIED.retimed(0, cost_us))
        line = _provenance(UNIFIED.records(data)[UNIFIED.keys[0]], host)
        files.append({UNIFIED.name: data, side_car: line})
    tree.fork({UNIFIED.name: UNIFIED.data, side_car: b""}, *files)


COMMANDS = pytest.mark.parametrize(
    "command",
    few_every_day(
        [(("merge", "--no-edit", "theirs"),), (("cherry-pick", "theirs"),), (("rebase", "theirs"),)]
    ),
    ids=["merge", "cherry-pick", "rebase"],
)


@COMMANDS
def test_times_of_one_machine_are_compared(tree: WorkTree, command: tuple[str, ...]) -> None:
    _fork_hosts(tree, ("a", "a"))
    tree.git(*command)
    assert _cost(tree) == 200.0
    lines = tree.read(f"{UNIFIED.name}.provenance.jsonl").splitlines()
    assert len(lines) == 2


@COMMANDS
def test_times_of_two_machines_are_not_compared(tree: WorkTree, command: tuple[str, ...]) -> None:
    _fork_hosts(tree, ("a", "b"))
    assert tree.try_git(*command).returncode
    document = json.loads(tree.read(f"{UNIFIED.name}.conflicts"))
    assert [decision["reason"] for decision in document["decisions"]] == ["other-machine"]


@pytest.mark.slow
def test_renamed_file_brings_its_side_car_along(tree: WorkTree) -> None:
    _fork_hosts(tree, ("a", "b"))
    new = UNIFIED.name.replace("Ascend910B2", "Ascend950PR")
    for suffix in ("", ".provenance.jsonl"):
        tree.git("mv", UNIFIED.name + suffix, new + suffix)
    tree.commit("rename")
    assert tree.try_git("merge", "--no-edit", "theirs").returncode
    document = json.loads(tree.read(f"{new}.conflicts"))
    assert [decision["reason"] for decision in document["decisions"]] == ["other-machine"]


@pytest.mark.slow
def test_broken_quarantine_stops_the_merge_of_its_banks(tree: WorkTree) -> None:
    tree.fork(
        {UNIFIED.name: UNIFIED.without(0, 1)},
        {UNIFIED.name: UNIFIED.without(0)},
        {UNIFIED.name: UNIFIED.without(1)},
    )
    tree.write(".aoebank/quarantine.jsonl", b"<<<<<<< ours\n")
    result = tree.try_git("merge", "--no-edit", "theirs")
    assert result.returncode
    assert "quarantine.jsonl:1" in result.stderr
    assert tree.read(UNIFIED.name) == UNIFIED.without(0)
