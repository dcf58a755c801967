"""A record with an error never takes the place of a good one, in any format, by any policy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support import merge_files
from support.merge_files import NAMES, TIMED, Answer, key_of, make_file, record_text, records_of

from aoebank import BankFormatError, Severity
from aoebank.formats.faults import find_fault
from aoebank.formats.protocol import find_error
from aoebank.merging.decisions import Incumbent, MergeRules, Policy, Reason, Three
from aoebank.merging.file import FileMerge, merge_file
from aoebank.merging.merge_bytes import merge_ancestors, merge_bytes
from aoebank.merging.versions import MergeContext

WORTHLESS: list[Any] = [
    0,
    [],
    [{}],
    None,
    {},
    "",
    True,
    [0],
    [[]],
    [None],
    "x",
    [{"knowledge": {}}],
]
FORMATS = st.sampled_from([*NAMES])
POLICIES = st.sampled_from([*Policy])


def damaged(name: str, text: str, number: int) -> str:
    """Return the text of a record with something worthless in it, its key kept if it can be."""
    junk = json.dumps(WORTHLESS[number % len(WORTHLESS)])
    if name in ("unified", "vector"):
        _, end = json.JSONDecoder().raw_decode(text)
        return f"{text[:end]}: {junk}"
    value = json.loads(text)
    member = {"runtime_kb": "knowledge", "graph": "strategy", "cube": "tiling"}.get(
        name, "modelvalue"
    )
    if number >= len(WORTHLESS) and name == "runtime_kb":
        return json.dumps({**value, "op": "Conv3D" if number % 2 else "Nobody"})
    return json.dumps({**value, member: json.loads(junk)})


DAMAGE = st.integers(0, 2 * len(WORTHLESS) - 1)


def file_of(name: str, texts: dict[int, str]) -> bytes:
    return merge_files.write_file(name, [*texts.values()])


def merge(
    name: str, base: bytes | None, ours: bytes, theirs: bytes, policy: Policy = Policy.KEEP_BEST
) -> FileMerge:
    rules = MergeRules(policy=policy, untimed=Policy.UNION, incumbent=Incumbent.NONE)
    files = merge_files.versions(name, base, ours, theirs)
    return merge_file(files, NAMES[name], MergeContext(rules=rules, is_two_way=base is None))


def is_bad(name: str, data: bytes) -> bool:
    """Return whether `validate` has an error about a file."""
    parsed = merge_files.get(name, data)
    if find_error(parsed) is not None:
        return True
    return any(found.severity is Severity.ERROR for found in parsed.format.check(parsed))


@st.composite
def cases(draw: st.DrawFn) -> tuple[str, dict[int, str], dict[int, str], int]:
    """Draw a format, good records, the same with one of them damaged, and which one it is."""
    name = draw(FORMATS)
    cost = 10.0 if name in TIMED else None
    good = {
        key: record_text(name, key, Answer(cost_us=cost)) for key in range(draw(st.integers(1, 5)))
    }
    victim = draw(st.sampled_from([*good]))
    bad = {**good, victim: damaged(name, good[victim], draw(DAMAGE))}
    assume(is_bad(name, file_of(name, bad)))
    return name, good, bad, victim


@given(cases(), POLICIES, st.booleans(), st.sampled_from(["one-sided", "both", "two-way"]))
def test_bad_record_is_refused_or_a_conflict_and_the_good_one_stays(
    case: tuple[str, dict[int, str], dict[int, str], int], policy: Policy, is_ours: bool, how: str
) -> None:
    name, good, bad, victim = case
    cost = 20.0 if name in TIMED else None
    other = {**good, victim: record_text(name, victim, Answer(tile=7, cost_us=cost))}
    base = None if how == "two-way" else file_of(name, good)
    healthy = file_of(name, good if how == "one-sided" else other)
    broken = file_of(name, bad)
    if how == "two-way":  # there the policy may name the good side
        assume(policy not in (Policy.OURS, Policy.THEIRS))
    sides = (broken, healthy) if is_ours else (healthy, broken)
    chosen_is_good = how == "both" and policy is (Policy.THEIRS if is_ours else Policy.OURS)
    try:
        merged = merge(name, base, *sides, policy)
    except BankFormatError:
        return  # what cannot be read as a file is refused whole
    key = key_of(name, victim)
    if key not in records_of(name, broken):  # another op: its key went with it
        key = next(iter({*records_of(name, broken)} - {*records_of(name, file_of(name, good))}))
        if base is None:
            return
    conflicts = {conflict.key for conflict in merged.plan.conflicts}
    assert chosen_is_good or key in conflicts
    assert merged.data is not None
    if not is_ours:
        assert records_of(name, merged.data) == records_of(name, healthy)


@given(cases(), POLICIES)
def test_damage_that_was_there_before_is_no_conflict(
    case: tuple[str, dict[int, str], dict[int, str], int], policy: Policy
) -> None:
    name, _, bad, victim = case
    base = file_of(name, bad)
    new = file_of(name, {**bad, 9: record_text(name, 9, Answer(tile=3))})
    fixed = file_of(
        name,
        {
            **{key: text for key, text in bad.items() if key != victim},
            8: record_text(name, 8, Answer()),
        },
    )
    try:
        assert not merge(name, base, base, new, policy).plan.conflicts
        assert not merge(name, base, fixed, new, policy).plan.conflicts
    except BankFormatError:
        assert find_error(merge_files.get(name, base)) is not None


@given(cases())
def test_bases_that_are_merged_do_not_take_a_bad_record(
    case: tuple[str, dict[int, str], dict[int, str], int],
) -> None:
    name, good, bad, _ = case
    base, broken = file_of(name, good), file_of(name, bad)
    other = file_of(name, {**good, 9: record_text(name, 9, Answer())})
    for ours, theirs in ((other, broken), (broken, other)):
        data = merge_ancestors(Three(base=base, ours=ours, theirs=theirs), Path(NAMES[name]))
        assert data is not None
        assert records_of(name, base).items() <= records_of(name, data).items()


UNIFIED_KINDS = ["0", "[]", "[{}]", "null"]


@pytest.mark.parametrize("junk", UNIFIED_KINDS)
def test_conflict_tells_what_is_wrong_with_the_record(junk: str) -> None:
    base = make_file("unified", {0: Answer(), 1: Answer()})
    theirs = base.replace(
        merge_files.record_text("unified", 0, Answer()).split(":", 1)[1].encode(), junk.encode()
    )
    assert theirs != base
    merged = merge("unified", base, make_file("unified", {0: Answer(), 1: Answer(tile=2)}), theirs)
    (conflict,) = merged.plan.conflicts
    assert (conflict.reason, conflict.key) == (Reason.UNREADABLE, key_of("unified", 0))
    assert conflict.note.startswith("theirs: ")


@pytest.mark.parametrize("junk", UNIFIED_KINDS)
@pytest.mark.parametrize("is_ours", [True, False])
def test_new_record_that_cannot_be_read_is_a_conflict_with_a_base_and_without(
    junk: str, is_ours: bool
) -> None:
    good = make_file("unified", {0: Answer()})
    key = key_of("unified", 1)
    bad = good.replace(b"{\n", f'{{\n"{key}": {junk},\n'.encode(), 1)
    sides = (bad, good) if is_ours else (good, bad)
    for base in (good, None):
        (conflict,) = merge("unified", base, *sides).plan.conflicts
        assert (conflict.key, conflict.reason) == (key, Reason.UNREADABLE)


def test_new_record_with_an_error_readers_survive_comes_in_as_it_is() -> None:
    """Real banks gain records without a field the newest release wants; nothing is lost by them."""
    bad = json.loads(record_text("runtime_kb", 1, Answer()))
    bad["knowledge"] = {}
    base = make_file("runtime_kb", {0: Answer()})
    ours = make_file("runtime_kb", {0: Answer(tile=2)})
    theirs = base + json.dumps(bad).encode() + b"\n"
    merged = merge("runtime_kb", base, ours, theirs)
    assert not merged.plan.conflicts
    assert merged.data is not None
    assert len(records_of("runtime_kb", merged.data)) == 2


@pytest.mark.parametrize("is_ours", [False, True])
def test_record_whose_key_was_hit_is_not_removed(is_ours: bool) -> None:
    base = make_file("unified", {0: Answer(), 1: Answer(), 2: Answer()})
    hit = base.replace(key_of("unified", 1).encode(), b"X" + key_of("unified", 1)[1:].encode())
    other = make_file("unified", {0: Answer(), 1: Answer(), 2: Answer(tile=4)})
    merged = merge("unified", base, *((hit, other) if is_ours else (other, hit)))
    assert {conflict.key for conflict in merged.plan.conflicts} == {
        key_of("unified", 1),
        "X" + key_of("unified", 1)[1:],
    }


def test_removal_elsewhere_in_a_file_with_a_bad_new_record_is_a_removal() -> None:
    bad = json.loads(record_text("runtime_kb", 9, Answer()))
    bad["knowledge"] = {}
    base = make_file("runtime_kb", {0: Answer(), 1: Answer(), 2: Answer(), 3: Answer()})
    ours = make_file("runtime_kb", {0: Answer(tile=2), 1: Answer(), 2: Answer(), 3: Answer()})
    theirs = make_file("runtime_kb", {0: Answer(), 2: Answer(), 3: Answer()})
    merged = merge("runtime_kb", base, ours, theirs + json.dumps(bad).encode() + b"\n")
    assert not merged.plan.conflicts


@given(FORMATS, st.integers(0, 5))
def test_sound_records_have_no_fault(name: str, key: int) -> None:
    cost = 10.0 if name in TIMED else None
    assert (
        find_fault(merge_files.get(name, make_file(name, {key: Answer(cost_us=cost)})), 0) is None
    )


def test_driver_and_command_share_the_rule() -> None:
    base = make_file("unified", {0: Answer(), 1: Answer()})
    key = key_of("unified", 0)
    theirs = merge_files.write_file("unified", [f'"{key}": 0', record_text("unified", 1, Answer())])
    ours = make_file("unified", {0: Answer(), 1: Answer(tile=3)})
    merged = merge_bytes(
        Three(base=base, ours=ours, theirs=theirs), Path(NAMES["unified"]), MergeContext()
    )
    assert [conflict.key for conflict in merged.plan.conflicts] == [key]
    assert merged.data == ours


def test_change_of_a_record_that_was_as_bad_before_is_no_conflict() -> None:
    key = key_of("unified", 0)
    base, ours = (file_of("unified", {0: f'"{key}": [{junk}]'}) for junk in "01")
    for sides in ((ours, base), (base, ours)):
        merged = merge("unified", base, *sides)
        assert merged.plan.conflicts == ()
        assert merged.data == ours


@pytest.mark.parametrize("base", [None, {9: Answer(cost_us=1.0)}])
def test_key_in_another_spelling_is_a_conflict_or_told(base: dict[int, Answer] | None) -> None:
    def spelled(*numbers: int) -> bytes:
        return make_file("unified", {**(base or {}), **dict.fromkeys(numbers, Answer(cost_us=2.0))})

    key = key_of("unified", 1)
    capitals = spelled(1).replace(key.encode(), key.upper().encode())
    old = make_file("unified", base) if base else None
    (conflict,) = merge("unified", old, spelled(1, 2), capitals).plan.conflicts
    assert (conflict.key, conflict.reason) == (key.upper(), Reason.UNREADABLE)
    assert conflict.note.endswith(f"; {key} has this workload")
    (told,) = merge("unified", old, spelled(2), capitals).plan.decisions  # comes in, and is said
    assert (told.key, told.reason, told.conflict) == (key.upper(), Reason.THEIRS_ADDED, False)
    assert "AB302" in told.note
