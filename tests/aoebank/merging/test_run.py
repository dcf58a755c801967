"""Merging files and trees on disk: what is written, and when nothing is."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from support import merge_files
from support.faulty_system import FaultySystem, name_of
from support.merge_files import NAMES, Answer, Style, make_file, records_of

from aoebank import (
    AoebankError,
    BankFormatError,
    BankNotFoundError,
    BankPathError,
    BankPermissionError,
    HistoryError,
    MergeResult,
    Severity,
    UsageError,
)
from aoebank.formats.provenance import SUFFIX
from aoebank.merging.decisions import MergeRules, Policy, Reason
from aoebank.merging.document import conflict_path, load_verdicts, serialize_decisions
from aoebank.merging.merge_bytes import QUARANTINE
from aoebank.merging.run import MergeRequest, merge
from aoebank.merging.sides import find_destination
from aoebank.merging.versions import find_exclusions
from aoebank.model.digest import digest_of
from aoebank.model.quarantine import QuarantineEntry
from aoebank.storage.quarantine import serialize_quarantine
from aoebank.storage.sides.open import open_side
from aoebank.storage.sides.side import Side

UNIFIED = "unified"
FILE = f"Ascend910B2/unified_bank/{NAMES[UNIFIED]}"
A, B, C = (Answer(tile=tile, cost_us=100.0 / tile) for tile in (1, 2, 4))
TODAY = date(2026, 3, 1)


def write(root: Path, files: Mapping[str, bytes | str]) -> Path:
    for name, data in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.encode() if isinstance(data, str) else data)
    return root


def content(root: Path) -> dict[str, bytes]:
    """Return all that lies in a folder, hidden and temporary files too."""
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def run(
    cwd: Path,
    *sides: str,
    base: str | None = None,
    out: str | None = None,
    rules: MergeRules | None = None,
    built_in: Path | None = None,
    **more: Any,
) -> MergeResult:
    def side(text: str) -> Side:
        return open_side(text, beside=sides[0], cwd=cwd, default_root=lambda: cwd)

    opened = tuple(map(side, sides))
    return merge(
        MergeRequest(
            sides=opened,
            base=side(base) if base else None,
            rules=rules or MergeRules(),
            destination=find_destination(out, opened, cwd=cwd) if out else None,
            exclusions=find_exclusions(
                opened, output=cwd / out if out else None, built_in=built_in, today=TODAY
            ),
            **more,
        )
    )


def unified(answers: Mapping[int, Answer]) -> bytes:
    return make_file(UNIFIED, answers)


@pytest.fixture
def banks(tmp_path: Path) -> Path:
    """Return a folder with three versions of a tree: base, a and b."""
    write(tmp_path / "base", {FILE: unified({0: A, 1: A, 2: A})})
    write(tmp_path / "a", {FILE: unified({0: B, 1: A, 2: A, 3: A})})
    write(tmp_path / "b", {FILE: unified({0: C, 1: B, 4: A})})
    return tmp_path


def test_three_way_merge_of_trees_writes_a_new_tree(banks: Path) -> None:
    before = content(banks)
    result = run(banks, "a", "b", base="base", out="out")
    assert result.conflicts == 0
    assert content(banks / "out") == {FILE: unified({0: C, 1: B, 4: A, 3: A})}
    assert {name: data for name, data in content(banks).items() if "out" not in name} == before


def test_merge_into_a_side_replaces_its_files(banks: Path) -> None:
    run(banks, "a", "b", base="base", out="a")
    assert content(banks / "a") == {FILE: unified({0: C, 1: B, 4: A, 3: A})}
    other = unified({0: C, 1: B, 4: A})
    assert content(banks / "b") == {FILE: other}


def test_files_of_one_side_only_come_along_or_stay_away(banks: Path) -> None:
    names = [FILE.replace("matmul", op) for op in ("add", "both", "gone", "kept", "new")]
    same = unified({7: A})
    write(banks / "base", {names[1]: same, names[2]: same, names[3]: same})
    write(banks / "a", {names[0]: same, names[2]: same, names[3]: unified({7: B})})
    write(banks / "b", {names[4]: same})
    result = run(banks, "a", "b", base="base", out="a")
    assert sorted(content(banks / "a")) == sorted(
        [FILE, names[0], names[3], f"{names[3]}.conflicts", names[4]]
    )
    (conflict,) = [decision for decision in result.steps[0].decisions if decision.conflict]
    assert conflict.reason is Reason.DELETED_AND_CHANGED
    assert records_of(UNIFIED, (banks / "a" / names[3]).read_bytes()) == records_of(
        UNIFIED, unified({7: B})
    )


def test_side_cars_become_one_and_go_with_their_bank(banks: Path) -> None:
    lines = [f'{{"n": {number}}}\n' for number in range(4)]
    write(banks / "base", {FILE + SUFFIX: lines[0]})
    write(banks / "a", {FILE + SUFFIX: lines[0] + lines[1]})
    write(banks / "b", {FILE + SUFFIX: lines[0] + lines[2]})
    run(banks, "a", "b", base="base", out="a")
    assert (banks / "a" / (FILE + SUFFIX)).read_text() == "".join(lines[:3])
    (banks / "b" / FILE).unlink()
    (banks / "b" / (FILE + SUFFIX)).unlink()
    other = FILE.replace("matmul", "x")
    for side in ("b", "base"):
        write(banks / side, {other: unified({0: A})})
    write(banks / "c", content(banks / "base"))
    run(banks, "c", "b", base="base", out="c")
    assert sorted(content(banks / "c")) == [other]


def test_more_sides_come_in_from_the_left(banks: Path) -> None:
    result = run(banks, "base", "a", "b", out="out")
    assert [step.theirs for step in result.steps] == ["a", "b"]
    merged = records_of(UNIFIED, (banks / "out" / FILE).read_bytes())
    assert merged == records_of(UNIFIED, unified({0: C, 1: B, 2: A, 3: A, 4: A}))


def test_conflicts_of_every_step_are_in_the_conflict_file(banks: Path) -> None:
    rules = MergeRules(policy=Policy.FAIL)
    result = run(banks, "base", "a", "b", out="out", rules=rules)
    document = json.loads((banks / "out" / f"{FILE}.conflicts").read_text())
    assert len(document["decisions"]) == result.conflicts == 3
    texts = [decision["theirs"]["record"].encode() for decision in document["decisions"]]
    assert {*records_of(UNIFIED, unified({0: B})).values()} <= {*texts}


def test_sides_in_git_are_merged_like_those_on_disk(banks: Path) -> None:
    def git(*arguments: str) -> None:
        subprocess.run(
            ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments],
            cwd=banks,
            check=True,
            capture_output=True,
        )

    git("init", "-q", "-b", "main")
    for tag in ("base", "a", "b"):
        write(banks / "bank", content(banks / tag))
        git("add", "bank")
        git("commit", "-q", "-m", tag)
        git("tag", f"v-{tag}")
    run(banks, "bank", "git:v-b:bank", base="git:v-base:bank", out="out")
    assert content(banks / "out") == content(banks / "bank")
    run(banks, "git:v-a:bank", "git:v-b:bank", base="git:v-base:bank", out="other")
    assert content(banks / "other") == {FILE: unified({0: C, 1: B, 4: A, 3: A})}


def test_unknown_files_are_told_of_and_left_alone(banks: Path) -> None:
    write(banks / "b", {"notes.txt": "x", "x.json.provenance.jsonl": "{}\n"})
    result = run(banks, "a", "b", out="a")
    assert sorted(file.path.name for file in result.other_files) == [
        "notes.txt",
        "x.json.provenance.jsonl",
    ]
    assert sorted(content(banks / "a")) == [FILE]


def quarantine(**members: Any) -> dict[str, bytes]:
    """Return the quarantine of a tree, with an entry for key 0."""
    entry = QuarantineEntry(
        key=merge_files.key_of(UNIFIED, 0),
        reason="hangs",
        who="me",
        when="2026-01-01T00:00:00Z",
        **members,
    )
    return {QUARANTINE: serialize_quarantine([entry])}


def test_quarantined_records_stay_out_whichever_side_has_them(banks: Path) -> None:
    key = merge_files.key_of(UNIFIED, 0)
    write(banks / "b", quarantine())
    result = run(banks, "a", "b", out="out")
    assert result.counts[Reason.QUARANTINE] == 1
    assert key not in records_of(UNIFIED, (banks / "out" / FILE).read_bytes())
    assert content(banks / "out")[QUARANTINE] == content(banks / "b")[QUARANTINE]
    again = run(banks, "out", "a", out="out")
    assert again.counts[Reason.QUARANTINE] == 1
    assert key not in records_of(UNIFIED, (banks / "out" / FILE).read_bytes())


def test_quarantine_of_one_strategy_leaves_the_other_one_in_while_it_holds(banks: Path) -> None:
    key = merge_files.key_of(UNIFIED, 0)
    bad = digest_of({"tile": 4})
    for out, until, winner in (("out", None, B), ("later", date(2026, 2, 28), C)):
        write(banks / "a", quarantine(strategy_sha256=bad, until=until))
        run(banks, "a", "b", out=out)
        merged = records_of(UNIFIED, (banks / out / FILE).read_bytes())
        assert merged[key] == records_of(UNIFIED, unified({0: winner}))[key]


def test_removing_a_quarantined_record_is_no_decision_of_the_merge(banks: Path) -> None:
    write(banks / "base", quarantine())
    write(banks / "a", {FILE: unified({1: A, 2: A})})
    write(banks / "b", {FILE: unified({0: A, 1: A})})
    result = run(banks, "a", "b", base="base", out="a")
    assert result.counts[Reason.QUARANTINE] == 0
    assert content(banks / "a")[FILE] == unified({1: A})


def test_person_cannot_bring_back_what_is_under_quarantine(banks: Path) -> None:
    write(banks / "b", quarantine())
    steps = run(banks, "a", "b", verbose=True).steps
    document = json.loads(serialize_decisions(steps, base=None, ours="a"))
    for decision in document["decisions"]:
        decision["action"] = "keep-ours"
    write(banks, {"choices.json": json.dumps(document)})
    with pytest.raises(UsageError, match="quarantine"):
        run(banks, "a", "b", verdicts=load_verdicts(banks / "choices.json"))


def test_broken_quarantine_stops_the_merge(banks: Path) -> None:
    write(banks / "b", {QUARANTINE: "nonsense\n"})
    refuse(banks, BankFormatError, "quarantine", "a", "b", out="a")


def test_records_the_built_in_bank_does_better_are_dropped(banks: Path) -> None:
    fast = unified({0: Answer(tile=9, cost_us=30.0), 1: Answer(tile=9, cost_us=30.0)})
    write(banks / "opp", {FILE: fast})
    result = run(banks, "a", "b", out="out", built_in=banks / "opp")
    merged = records_of(UNIFIED, (banks / "out" / FILE).read_bytes())
    assert merge_files.key_of(UNIFIED, 0) in merged  # 25 us
    assert merge_files.key_of(UNIFIED, 1) not in merged  # 50 us
    assert result.counts[Reason.BUILT_IN_FASTER] == 1
    with pytest.raises(BankNotFoundError):
        run(banks, "a", "b", built_in=banks / "absent")


def test_new_record_of_the_other_side_is_dropped_where_the_built_in_bank_is_faster(
    banks: Path,
) -> None:
    slow, fast = Answer(tile=2, cost_us=50.0), Answer(tile=9, cost_us=30.0)
    write(banks / "a", {FILE: unified({0: A})})
    write(banks / "b", {FILE: unified({0: A, 1: slow, 2: A})})
    write(banks / "opp", {FILE: unified({1: fast})})
    result = run(banks, "a", "b", out="out", built_in=banks / "opp")
    assert result.counts[Reason.BUILT_IN_FASTER] == 1
    assert content(banks / "out")[FILE] == unified({0: A, 2: A})


def test_conflict_stays_one_where_the_built_in_bank_is_faster(banks: Path) -> None:
    write(banks / "opp", {FILE: unified({0: Answer(tile=9, cost_us=1.0)})})
    result = run(
        banks, "a", "b", out="out", built_in=banks / "opp", rules=MergeRules(policy=Policy.FAIL)
    )
    assert result.counts[Reason.BUILT_IN_FASTER] == 0
    assert result.conflicts == 2
    merged = records_of(UNIFIED, (banks / "out" / FILE).read_bytes())
    assert merge_files.key_of(UNIFIED, 0) in merged


def cube(answers: Mapping[int, Answer]) -> bytes:
    return make_file("cube", answers)


def test_binary_twin_goes_with_its_bank_or_stops_the_merge(tmp_path: Path) -> None:
    file, binary_cache = NAMES["cube"], NAMES["cube"].replace(".json", ".bin")
    write(tmp_path / "a", {file: cube({0: A}), binary_cache: b"twin of a"})
    write(tmp_path / "b", {file: cube({0: A})})
    run(tmp_path, "a", "b", out="out")
    assert content(tmp_path / "out") == {file: cube({0: A}), binary_cache: b"twin of a"}
    (tmp_path / "c").mkdir()
    sides = f"a/{file}", f"b/{file}", f"b/{file}"  # the first two are one side to the third
    run(tmp_path, *sides, out=f"c/{file}")
    assert content(tmp_path / "c") == content(tmp_path / "out")
    write(tmp_path / "b", {file: cube({0: A, 1: B})})
    before = content(tmp_path)
    with pytest.raises(BankPathError, match="twin"):
        run(tmp_path, "a", "b", out="a")
    assert content(tmp_path) == before


@pytest.mark.parametrize("name", [*NAMES])
def test_every_format_is_merged_in_place(name: str, tmp_path: Path) -> None:
    old, new = (Answer(tile=tile) for tile in (1, 2))
    style = Style(newline="\r\n", has_bom=True)
    files = {
        "base": make_file(name, {0: old, 1: old, 2: old}, style),
        "a": make_file(name, {0: new, 1: old, 2: old}, style),
        "b": make_file(name, {0: old, 1: old, 3: new}),
    }
    for folder, data in files.items():
        write(tmp_path / folder, {NAMES[name]: data})
    sides = [f"{folder}/{NAMES[name]}" for folder in ("a", "b", "base")]
    result = run(tmp_path, *sides[:2], base=sides[2], out=sides[0])
    assert result.conflicts == 0
    merged = (tmp_path / sides[0]).read_bytes()
    parsed = merge_files.get(name, merged)
    assert parsed.keys == [merge_files.key_of(name, key) for key in (0, 1, 3)]
    assert merged.startswith(b"\xef\xbb\xbf")
    errors = [
        finding for finding in parsed.format.check(parsed) if finding.severity is Severity.ERROR
    ]
    assert errors == []


# Bad input: a clear error, nothing changed.


def refuse(cwd: Path, error: type[AoebankError], words: str, *sides: str, **more: Any) -> None:
    """Run a merge that must fail and leave every byte and every folder as it is."""
    before = content(cwd), sorted(path.name for path in cwd.rglob("*"))
    with pytest.raises(error, match=words):
        run(cwd, *sides, **more)
    assert (content(cwd), sorted(path.name for path in cwd.rglob("*"))) == before


def test_one_broken_file_stops_the_merge_of_the_whole_tree(banks: Path) -> None:
    last = FILE.replace("matmul", "zzz")
    write(banks / "b", {last: b'{"0": ['})
    refuse(banks, BankFormatError, "zzz", "a", "b", out="a")
    refuse(banks, BankFormatError, "zzz", "a", "b", out="new/deep/out")


def test_broken_base_stops_the_merge(banks: Path) -> None:
    write(banks / "base", {FILE: b"<<<<<<< ours\n"})
    refuse(banks, BankFormatError, "conflict marker", "a", "b", base="base", out="a")


def test_unrelated_base_is_refused_unless_told(banks: Path) -> None:
    write(banks / "base", {FILE: unified({8: A, 9: A})})
    refuse(banks, HistoryError, "shares no record", "a", "b", base="base", out="a")
    write(banks / "base", {"elsewhere/" + NAMES[UNIFIED]: unified({8: A})})
    (banks / "base" / FILE).unlink()
    refuse(banks, HistoryError, "shares no record", "a", "b", base="base", out="a")
    rules = MergeRules(may_be_unrelated=True)
    run(banks, "a", "b", base="base", out="a", rules=rules)


def test_empty_base_is_related_to_everything(banks: Path) -> None:
    write(banks / "base", {FILE: b"{}\n"})
    assert run(banks, "a", "b", base="base", out="out").counts[Reason.FASTER] == 2


@pytest.mark.parametrize(
    ("sides", "error", "words"),
    [
        (("a", "absent"), BankNotFoundError, "no such file"),
        (("snapshot:nowhere", "a"), HistoryError, "no history"),
    ],
)
def test_sides_that_are_no_banks_are_refused(
    banks: Path, sides: tuple[str, ...], error: type[AoebankError], words: str
) -> None:
    refuse(banks, error, words, *sides, out="a")


def test_two_trees_for_different_targets_are_refused_unless_told(banks: Path) -> None:
    other = NAMES[UNIFIED].replace("B2", "B1")
    write(banks, {other: unified({0: A})})
    sides = (f"a/{FILE}", other)
    refuse(banks, BankFormatError, "soc_version", *sides, out="out.json")
    run(banks, *sides, out="out.json", rules=MergeRules(may_differ_in_soc=True))
    write(banks / "x", {NAMES[UNIFIED]: unified({0: A})})
    write(banks / "y", {other: unified({0: A})})
    refuse(banks, BankFormatError, "soc_version", "x", "y", out="z")
    run(banks, "x", "y", out="z", rules=MergeRules(may_differ_in_soc=True))


@pytest.mark.parametrize(
    ("out", "kept", "reason"),
    [
        ("out.json", A, Reason.OWN_TARGET),
        (NAMES[UNIFIED], A, Reason.OWN_TARGET),
        (NAMES[UNIFIED].replace("B2", "B1"), B, Reason.OWN_TARGET),
        (NAMES[UNIFIED].replace("B2", "B3"), A, Reason.OTHER_TARGET),
    ],
)
def test_times_of_two_chips_decide_nothing(
    banks: Path, out: str, kept: Answer, reason: Reason
) -> None:
    own, other = NAMES[UNIFIED], NAMES[UNIFIED].replace("B2", "B1")
    write(banks, {f"x/{own}": unified({0: A, 1: A}), f"y/{other}": unified({0: B, 1: A, 2: C})})
    rules = MergeRules(may_differ_in_soc=True)
    result = run(banks, f"x/{own}", f"y/{other}", out=out, rules=rules)
    assert {**result.counts} == {Reason.SAME: 1, reason: 1, Reason.THEIRS_ADDED: 1}
    assert (banks / out).read_bytes() == unified({0: kept, 1: A, 2: C})
    told = replace(rules, untimed=Policy.THEIRS)  # says what else is to be done
    run(banks, f"x/{own}", f"y/{other}", out="told.json", rules=told)
    assert (banks / "told.json").read_bytes() == unified({0: B, 1: A, 2: C})


def test_result_for_another_target_than_its_name_says_is_refused(banks: Path) -> None:
    out = NAMES[UNIFIED].replace("B2", "B1")
    refuse(banks, BankFormatError, "soc_version", f"a/{FILE}", f"b/{FILE}", out=out)


def test_place_that_would_be_overwritten_is_refused(banks: Path) -> None:
    refuse(banks, BankPathError, "none of the sides", "a", "b", out="base")
    refuse(banks, BankPathError, "inside of a side", "a", "b", out="a/merged")
    refuse(banks, BankNotFoundError, "another kind", "a", "b", out=f"base/{FILE}")
    refuse(banks, UsageError, "cannot be written", "a", "b", out="git:HEAD")


def test_empty_folder_is_a_place_for_a_tree(banks: Path) -> None:
    (banks / "out").mkdir()
    run(banks, "a", "b", out="out")
    assert content(banks / "out")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_read_only_place_is_refused(banks: Path) -> None:
    (banks / "a" / FILE).parent.chmod(0o500)
    try:
        refuse(banks, BankPermissionError, "cannot write here", "a", "b", out="a")
    finally:
        (banks / "a" / FILE).parent.chmod(0o700)


def test_place_below_a_file_is_refused(banks: Path) -> None:
    write(banks, {"file": "x"})
    refuse(banks, BankPathError, "cannot write here", "a", "b", out="file/out")


def test_unreadable_folder_stops_the_merge_since_its_files_would_count_as_removed(
    banks: Path, system: FaultySystem
) -> None:
    (banks / "b" / "closed").mkdir()
    system.close(banks / "b" / "closed")
    refuse(banks, BankPathError, "permission denied", "a", "b", out="a")


def test_file_whose_content_is_in_a_backup_is_refused(banks: Path) -> None:
    write(banks / "a", {FILE: b"", f"{FILE}.aoe": unified({0: A})})
    refuse(banks, BankFormatError, "backup", "a", "b", base="base", out="a")


def test_file_changed_while_the_merge_ran_is_left_as_it_is(
    banks: Path, system: FaultySystem
) -> None:
    def meddle(descriptor: int) -> None:
        if NAMES[UNIFIED] in name_of(descriptor):
            (banks / "a" / FILE).write_bytes(unified({5: A}))

    system.before("os.fsync", meddle)
    with pytest.raises(BankPathError, match="changed meanwhile"):
        run(banks, "a", "b", out="a")
    assert content(banks / "a") == {FILE: unified({5: A})}


@pytest.mark.parametrize("sides", [("a", "b"), ("b", "a"), ("a", "b", "base"), ("base", "b", "a")])
@pytest.mark.parametrize("name", [FILE, FILE + SUFFIX])
def test_what_came_into_the_destination_since_it_was_read_is_not_lost(
    banks: Path, system: FaultySystem, name: str, sides: tuple[str, ...]
) -> None:
    """The side-car is read before the last file is decided, so it may have grown since."""
    for side, line in (("a", "1"), ("b", "2")):
        write(banks / side, {FILE + SUFFIX: f"{line}\n"})
    before = content(banks)

    def meddle(descriptor: int) -> None:
        if NAMES[UNIFIED] in name_of(descriptor):
            (banks / "a" / name).write_bytes(before[f"a/{name}"] + b"\n")

    system.before("os.fsync", meddle)
    with pytest.raises(BankPathError, match="changed meanwhile"):
        run(banks, *sides, out="a")
    before["a/" + name] += b"\n"
    assert content(banks) == before


def test_result_takes_the_place_of_a_link_and_what_it_leads_to_stays(banks: Path) -> None:
    before, out = (banks / "a" / FILE).read_bytes(), banks / NAMES[UNIFIED]
    out.symlink_to(banks / "a" / FILE)
    run(banks, out.name, f"b/{FILE}", out=out.name)
    assert not out.is_symlink()
    assert merge_files.get(UNIFIED, out.read_bytes()).keys[-1:] == [merge_files.key_of(UNIFIED, 3)]
    assert (banks / "a" / FILE).read_bytes() == before


def test_mode_of_a_replaced_file_stays(banks: Path) -> None:
    (banks / "a" / FILE).chmod(0o604)
    run(banks, "a", "b", out="a")
    assert (banks / "a" / FILE).stat().st_mode & 0o777 == 0o604


def test_unsettled_conflicts_of_an_earlier_merge_are_not_overwritten(banks: Path) -> None:
    rules = MergeRules(policy=Policy.FAIL)
    run(banks, "a", "b", out="a", rules=rules)
    assert conflict_path(banks / "a" / FILE).exists()
    before = content(banks)
    with pytest.raises(BankPathError, match="not settled"):
        run(banks, "a", "base", out="a", rules=replace(rules, policy=Policy.FAIL))
    assert content(banks) == before


def test_large_trees_are_merged_by_several_processes_with_the_same_result(
    banks: Path,
) -> None:
    names = [FILE.replace("matmul", f"op{number}") for number in range(7)]
    for number, name in enumerate(names):
        write(banks / "a", {name: unified({number: A, 1: A})})
        write(banks / "b", {name: unified({number: B, 2: A})})
    alone = run(banks, "a", "b", out="alone", verbose=True)
    together = run(banks, "a", "b", out="together", verbose=True, count=lambda _: 3)
    assert content(banks / "together") == content(banks / "alone")
    assert together.steps == alone.steps
    assert together.counts == alone.counts
    write(banks / "b", {names[0]: b"{", names[2]: b"{"})
    refuse(banks, BankFormatError, "op", "a", "b", out="third")


def test_merge_of_five_sides_counts_each_record_once(tmp_path: Path) -> None:
    sides = [
        {0: A, 1: A},
        {0: A, 1: A, 2: A},
        {0: A, 1: replace(B, cost_us=50.0), 2: A},
        {0: A, 1: replace(C, cost_us=20.0), 2: A, 3: A},
        {0: A, 1: A, 2: A, 3: A},
    ]
    names = [f"{number}/{FILE}" for number in range(len(sides))]
    data = (make_file(UNIFIED, answers) for answers in sides)
    write(tmp_path, dict(zip(names, data, strict=True)))
    result = run(tmp_path, *(str(number) for number in range(len(sides))), out="out")
    counts = {reason: number for reason, number in result.counts.items() if number}
    assert sum(counts.values()) == 4
    assert counts == {Reason.SAME: 1, Reason.FASTER: 1, Reason.THEIRS_ADDED: 2}
    moves = (result.moves.added, result.moves.changed, result.moves.removed)
    assert moves == (2, 1, 0)
