"""The laws of merging, for every format and any way a file may be written."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import merge_files
from support.merge_files import NAMES, TIMED, Answer, Style, make_file, records_of

from aoebank.formats.protocol import find_error
from aoebank.merging.decisions import Action, FilePlan, Incumbent, MergeRules, Policy
from aoebank.merging.file import FileMerge, merge_file
from aoebank.merging.versions import MergeContext

KEYS = st.integers(0, 7)
STYLES = st.builds(
    Style,
    newline=st.sampled_from(["\n", "\r\n"]),
    has_bom=st.booleans(),
    ends_with_newline=st.booleans(),
    is_spaced=st.booleans(),
)
COSTS = st.one_of(st.none(), st.sampled_from([10.0, 10.1, 10.2, 12.5, 20.0, 100]))
FORMATS = st.sampled_from([*NAMES])
POLICIES = st.sampled_from([*Policy])


@st.composite
def banks(draw: st.DrawFn, name: str, *, timed: bool | None = None) -> bytes:
    """Draw a file; `timed` says whether all records have a time, or none, or some."""
    costs = COSTS if timed is None else st.sampled_from([10.0, 10.1, 11.0, 20.0]) if timed else None
    answers = draw(
        st.dictionaries(
            KEYS,
            st.builds(
                Answer,
                tile=st.integers(1, 3),
                cost_us=costs if name in TIMED and costs is not None else st.none(),
            ),
            max_size=6,
        )
    )
    return make_file(name, answers, draw(STYLES))


@st.composite
def cases(draw: st.DrawFn, *, count: int = 3, timed: bool | None = None) -> tuple[str, list[bytes]]:
    name = draw(FORMATS)
    return name, [draw(banks(name, timed=timed)) for _ in range(count)]


def merge(
    name: str,
    base: bytes | None,
    ours: bytes | None,
    theirs: bytes | None,
    rules: MergeRules | None = None,
    *,
    is_two_way: bool = False,
) -> FileMerge:
    context = MergeContext(rules=rules or MergeRules(), is_two_way=is_two_way, verbose=True)
    versions = merge_files.versions(name, base, ours, theirs)
    return merge_file(versions, merge_files.NAMES[name], context)


def plan_of(
    name: str,
    base: bytes | None,
    ours: bytes | None,
    theirs: bytes | None,
    rules: MergeRules | None = None,
    *,
    is_two_way: bool = False,
) -> FilePlan:
    return merge(name, base, ours, theirs, rules, is_two_way=is_two_way).plan


def merge3(
    name: str,
    base: bytes | None,
    ours: bytes | None,
    theirs: bytes | None,
    rules: MergeRules | None = None,
) -> bytes | None:
    return merge(name, base, ours, theirs, rules).data


def merge2(name: str, ours: bytes, theirs: bytes, rules: MergeRules | None = None) -> bytes:
    merged = merge(name, None, ours, theirs, rules, is_two_way=True).data
    assert merged is not None
    return merged


@given(case=cases(count=2), policy=POLICIES)
def test_same_change_on_both_sides_is_the_result(
    case: tuple[str, list[bytes]], policy: Policy
) -> None:
    name, (base, side) = case
    assert merge3(name, base, side, side, MergeRules(policy=policy)) == side


@given(case=cases(count=2), policy=POLICIES)
def test_change_on_one_side_is_the_result_byte_for_byte(
    case: tuple[str, list[bytes]], policy: Policy
) -> None:
    name, (base, side) = case
    rules = MergeRules(policy=policy)
    assert merge3(name, base, base, side, rules) == side
    assert merge3(name, base, side, base, rules) == side
    for plan in (plan_of(name, base, base, side), plan_of(name, base, side, base)):
        assert plan.conflicts == ()


@given(case=cases(count=1), policy=POLICIES)
def test_file_deleted_on_one_side_and_unchanged_on_the_other_is_gone(
    case: tuple[str, list[bytes]], policy: Policy
) -> None:
    name, (base,) = case
    assert merge3(name, base, None, base, MergeRules(policy=policy)) is None
    assert merge3(name, base, base, None, MergeRules(policy=policy)) is None
    assert merge3(name, None, base, None) == merge3(name, None, None, base) == base


@given(case=cases(), policy=POLICIES)
def test_no_record_is_invented(case: tuple[str, list[bytes]], policy: Policy) -> None:
    name, (base, ours, theirs) = case
    rules = MergeRules(policy=policy, untimed=Policy.FAIL)
    inputs = [records_of(name, side) for side in (base, ours, theirs)]
    for merged in (merge3(name, base, ours, theirs, rules), merge2(name, ours, theirs, rules)):
        for key, raw in records_of(name, merged).items():
            if policy is Policy.UNION and name == "unified":
                continue  # told of candidates in test_union.py
            assert raw in [records.get(key) for records in inputs]


@given(case=cases(), policy=POLICIES)
def test_no_record_is_lost_without_a_decision_that_says_so(
    case: tuple[str, list[bytes]], policy: Policy
) -> None:
    name, (base, ours, theirs) = case
    plan = plan_of(name, base, ours, theirs, MergeRules(policy=policy))
    merged = records_of(name, merge3(name, base, ours, theirs, MergeRules(policy=policy)))
    old, said = records_of(name, base), {decision.key: decision for decision in plan.decisions}
    mine, yours = records_of(name, ours), records_of(name, theirs)
    for key in mine.keys() | yours.keys():
        for side, other in ((mine, yours), (yours, mine)):
            raw = side.get(key)
            if raw is None or merged.get(key) == raw:
                continue
            unchanged = _says_the_same(name, raw, old.get(key))
            assert unchanged or key in said or _says_the_same(name, raw, other.get(key))


def _says_the_same(name: str, a: bytes, b: bytes | None) -> bool:
    """Return whether records differ in white space only, which is no reason to say anything."""
    return b is not None and b"".join(a.split()) == b"".join(b.split())


@given(case=cases(), policy=POLICIES)
def test_result_is_a_valid_bank_with_each_key_once(
    case: tuple[str, list[bytes]], policy: Policy
) -> None:
    name, (base, ours, theirs) = case
    for merged in (
        merge3(name, base, ours, theirs, MergeRules(policy=policy)),
        merge2(name, ours, theirs, MergeRules(policy=policy)),
    ):
        if merged is None:
            continue
        parsed = merge_files.get(name, merged)
        assert find_error(parsed) is None
        assert len({*parsed.keys}) == len(parsed.keys)
        blank = [finding for finding in parsed.findings if finding.code == "AB112"]
        assert blank == []


@given(case=cases(count=2))
def test_keep_best_does_not_depend_on_which_side_is_ours_without_incumbent(
    case: tuple[str, list[bytes]],
) -> None:
    name, (a, b) = case
    rules = MergeRules(incumbent=Incumbent.NONE)
    undecided = {
        conflict.key for conflict in plan_of(name, None, a, b, rules, is_two_way=True).conflicts
    }
    one, other = (records_of(name, merge2(name, *pair, rules)) for pair in ((a, b), (b, a)))
    _assert_same_records(one, other, undecided)


@given(case=cases())
def test_keep_best_with_a_base_does_not_depend_on_which_side_is_ours(
    case: tuple[str, list[bytes]],
) -> None:
    name, (base, a, b) = case
    undecided = {conflict.key for conflict in plan_of(name, base, a, b).conflicts}
    assert undecided == {conflict.key for conflict in plan_of(name, base, b, a).conflicts}
    one = records_of(name, merge3(name, base, a, b))
    other = records_of(name, merge3(name, base, b, a))
    _assert_same_records(one, other, undecided)


def _assert_same_records(
    one: dict[str, bytes], other: dict[str, bytes], undecided: set[str]
) -> None:
    for key in (one.keys() | other.keys()) - undecided:
        a, b = one.get(key), other.get(key)
        assert a is not None
        assert b is not None
        assert b"".join(a.split()) == b"".join(b.split())  # of two spellings ours stays


@given(case=cases(timed=True), policy=st.sampled_from([Policy.OURS, Policy.THEIRS]))
def test_ours_and_theirs_are_associative(case: tuple[str, list[bytes]], policy: Policy) -> None:
    _check_associative(case, MergeRules(policy=policy))


@given(case=cases(timed=True))
def test_keep_best_is_associative_without_incumbent_where_all_have_times(
    case: tuple[str, list[bytes]],
) -> None:
    if case[0] in TIMED:
        _check_associative(case, MergeRules(incumbent=Incumbent.NONE))


def _check_associative(case: tuple[str, list[bytes]], rules: MergeRules) -> None:
    name, (a, b, c) = case
    left = merge2(name, merge2(name, a, b, rules), c, rules)
    right = merge2(name, a, merge2(name, b, c, rules), rules)
    _assert_same_records(records_of(name, left), records_of(name, right), set())


@given(case=cases(count=2), policy=POLICIES)
def test_merging_again_changes_nothing(case: tuple[str, list[bytes]], policy: Policy) -> None:
    name, (a, b) = case
    rules = MergeRules(policy=policy)
    once = merge2(name, a, b, rules)
    if policy is not Policy.THEIRS:
        assert merge2(name, once, b, rules) == once
    assert merge2(name, once, once, rules) == once
    assert merge2(name, once, a, replace(rules, policy=Policy.OURS)) == once


@given(case=cases())
def test_conflict_leaves_the_record_of_ours(case: tuple[str, list[bytes]]) -> None:
    name, (base, ours, theirs) = case
    merged = records_of(name, merge3(name, base, ours, theirs, MergeRules(policy=Policy.FAIL)))
    mine = records_of(name, ours)
    for decision in plan_of(name, base, ours, theirs, MergeRules(policy=Policy.FAIL)).conflicts:
        assert decision.action is Action.KEEP_OURS
        assert merged.get(decision.key) == mine.get(decision.key)


@pytest.mark.parametrize("name", [*NAMES])
def test_order_of_ours_stays_and_new_records_stand_beside_their_neighbours(
    name: str,
) -> None:
    ours = make_file(name, {key: Answer() for key in (5, 1, 3)})
    theirs = make_file(name, {key: Answer() for key in (0, 1, 2, 3, 4, 5, 6)})
    merged = merge_files.get(name, merge2(name, ours, theirs))
    expected = [merge_files.key_of(name, key) for key in (5, 0, 6, 1, 2, 3, 4)]
    assert merged.keys == expected


@pytest.mark.parametrize("name", [*NAMES])
def test_records_without_a_neighbour_come_last(name: str) -> None:
    ours = make_file(name, {key: Answer() for key in (2, 1)})
    theirs = make_file(name, {key: Answer() for key in (9, 8)})
    merged = merge_files.get(name, merge2(name, ours, theirs))
    assert merged.keys == [merge_files.key_of(name, key) for key in (2, 1, 9, 8)]


@given(cases())
def test_what_changes_for_us_is_counted(case: tuple[str, list[bytes]]) -> None:
    name, (base, ours, theirs) = case
    merged = merge(name, base, ours, theirs)
    before, after = records_of(name, ours), records_of(name, merged.data or b"")
    moves = merged.plan.moves
    assert moves.added == len(after.keys() - before.keys())
    assert moves.removed == len(before.keys() - after.keys())
    changed = {key for key in before.keys() & after.keys() if before[key] != after[key]}
    assert moves.changed >= len(changed)  # the same answer spelled anew counts too
