"""Where one side's edit of the base contains the other's, that side is taken, and it is said."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aoebank import Record
from aoebank.merging.decisions import Action, MergeRules, Policy, Reason
from aoebank.merging.key_versions import TwoAnswers, choose, find_containing
from aoebank.model.timing import Measurements

RULES = MergeRules()
GONE = "gone"  # an edit that takes a member out
leaves = st.one_of(st.integers(0, 3), st.booleans(), st.lists(st.integers(0, 2), max_size=2))
trees: st.SearchStrategy[Any] = st.recursive(
    leaves, lambda inner: st.dictionaries(st.sampled_from("abcd"), inner, max_size=3), max_leaves=8
)
strategies = st.dictionaries(st.sampled_from("abcd"), trees, max_size=4)


def answers(base: Any, ours: Any, theirs: Any, **cost_us: float) -> TwoAnswers:
    def record(strategy: Any, name: str) -> Record:
        return Record(key="k", workload={}, strategy=strategy, cost_us=cost_us.get(f"{name}_us"))

    nothing = Measurements(tuple)
    return TwoAnswers(
        ours=record(ours, "ours"),
        theirs=record(theirs, "theirs"),
        base=None if base is None else record(base, "base"),
        incumbent=None,
        times_of_ours=nothing,
        times_of_theirs=nothing,
    )


def edited(value: Any, edits: dict[str, Any]) -> Any:
    """Return members with some set, and some taken out."""
    return {name: new for name, new in {**value, **edits}.items() if new != GONE}


edits = st.dictionaries(st.sampled_from("abcdef"), st.one_of(st.just(GONE), trees), max_size=4)


@given(strategies, edits, edits)
def test_side_with_all_the_edits_of_the_other_contains_it(base: Any, few: Any, more: Any) -> None:
    small, big = edited(base, few), edited(base, {**more, **few})
    found = find_containing(answers(base, big, small))
    assert found is Action.KEEP_OURS or (found is Action.TAKE_THEIRS and big == base)
    assert find_containing(answers(base, small, big)) is not None


@given(strategies, strategies, strategies)
def test_containing_side_is_what_both_edits_together_give(
    base: Any, ours: Any, theirs: Any
) -> None:
    found = find_containing(answers(base, ours, theirs))
    together = _both(base, ours, theirs)
    if found is not None:
        taken = ours if found is Action.KEEP_OURS else theirs
        assert together is not None
        assert repr(_sorted(together)) == repr(_sorted(taken))


@given(strategies, strategies, strategies)
def test_which_side_is_ours_makes_no_difference(base: Any, ours: Any, theirs: Any) -> None:
    one = choose(answers(base, ours, theirs), Policy.KEEP_BEST, RULES)
    other = choose(answers(base, theirs, ours), Policy.KEEP_BEST, RULES)
    assert one.reason is other.reason
    if one.reason is Reason.CONTAINS:
        assert {one.action, other.action} == {Action.KEEP_OURS, Action.TAKE_THEIRS}


@given(strategies, strategies, strategies)
def test_switched_off_it_is_a_conflict(base: Any, ours: Any, theirs: Any) -> None:
    both = answers(base, ours, theirs)
    on = choose(both, Policy.KEEP_BEST, RULES)
    off = choose(both, Policy.KEEP_BEST, MergeRules(takes_containing=False))
    assert off.reason is not Reason.CONTAINS
    assert (off.reason is Reason.NO_TIMES) == (on.reason in (Reason.NO_TIMES, Reason.CONTAINS))


def _both(base: Any, ours: Any, theirs: Any) -> Any:
    """Return a member-wise three-way merge; None where both sides change one differently."""
    same = lambda a, b: repr(_sorted(a)) == repr(_sorted(b))  # noqa: E731 - 1 is not True
    if same(ours, theirs) or same(theirs, base):
        return ours
    if same(ours, base):
        return theirs
    if isinstance(base, list) and isinstance(ours, list) and isinstance(theirs, list):
        if len(base) != len(ours) or len(base) != len(theirs):
            return None
        items = [_both(*trio) for trio in zip(base, ours, theirs, strict=True)]
        return None if None in items else items
    if not all(isinstance(value, dict) for value in (base, ours, theirs)):
        return None
    merged: dict[str, Any] = {}
    for name in {**base, **ours, **theirs}:
        trio = [value.get(name, GONE) for value in (base, ours, theirs)]
        result = _both(*trio)
        if result is None:
            return None
        merged[name] = result
    return {name: value for name, value in merged.items() if value != GONE}


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _sorted(value[name]) for name in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    ("base", "ours", "theirs"),
    [
        ({"a": 1}, {"a": 2}, {"a": 3}),
        ({"a": 1, "b": 1}, {"a": 2, "b": 1}, {"a": 1, "b": 2}),
        ({"a": 1}, {}, {"a": 2}),
        ({"a": [1, 2]}, {"a": [1, 2, 3]}, {"a": [1, 2, 4]}),
        ({"a": [1]}, {"a": [0, 1, 2]}, {"a": [1, 2]}),  # where an item came in is not known
        ({"a": 1}, {"a": True, "b": 1}, {"a": 1.0}),
        (None, {"a": 1, "b": 2}, {"a": 1}),
    ],
)
def test_edits_that_are_apart_stay_a_conflict(base: Any, ours: Any, theirs: Any) -> None:
    assert find_containing(answers(base, ours, theirs)) is None
    choice = choose(answers(base, ours, theirs), Policy.KEEP_BEST, RULES)
    assert (choice.reason, choice.conflict) == (Reason.NO_TIMES, True)


def test_other_times_are_edits_too() -> None:
    base, theirs, ours = {"a": 1}, {"a": 2}, {"a": 2, "b": 3}
    assert find_containing(answers(base, ours, theirs)) is Action.KEEP_OURS
    assert find_containing(answers(base, ours, theirs, ours_us=5.0)) is Action.KEEP_OURS
    assert find_containing(answers(base, ours, theirs, theirs_us=5.0)) is None


@pytest.mark.parametrize("untimed", [Policy.OURS, Policy.THEIRS])
def test_a_policy_somebody_asked_for_comes_first(untimed: Policy) -> None:
    both = answers({"a": 1}, {"a": 2, "b": 3}, {"a": 2})
    wanted = MergeRules(untimed=untimed)
    assert choose(both, Policy.KEEP_BEST, wanted).reason is Reason.POLICY
    assert choose(both, Policy.FAIL, RULES).conflict
