"""The replay benchmark, small: text merges do harm, ours does none."""

from __future__ import annotations

from types import ModuleType

import pytest
from support.scripts import load_script


@pytest.fixture(scope="module")
def replay() -> ModuleType:
    return load_script("benchmarks/merge_replay.py")


def test_merging_records_has_no_false_conflict_and_loses_and_invents_nothing(
    replay: ModuleType,
) -> None:
    counts = replay.replay(merges=25, seed=3)
    ours = counts[replay.OURS]
    assert ours.merges == 25
    assert ours.false_conflicts == ours.lost == ours.invented == 0
    assert ours.duplicates == ours.broken == 0
    for way, total in counts.items():
        assert way == replay.OURS or total.conflicts > ours.conflicts
    text = counts["text, one line per record"]
    assert text.false_conflicts > 0


def test_counting_finds_what_it_is_there_for(replay: ModuleType) -> None:
    case = replay.Case(base={"a": 1, "b": 1}, ours={"a": 2, "b": 1, "c": 1}, theirs={"a": 1})
    assert case.expected == {"a", "c"}
    assert case.contested == set()
    counts = replay.Counts()
    counts.add(case, replay.Outcome(records=(("a", 7), ("a", 2))))
    assert (counts.lost, counts.invented, counts.duplicates) == (1, 1, 1)
    counts.add(case, replay.Outcome(has_conflict=True))
    counts.add(case, replay.Outcome(is_broken=True))
    assert (counts.conflicts, counts.false_conflicts, counts.broken) == (1, 1, 1)
    twice = replay.read(b'{"a": [{"x": {"y": 1}}], "a": []}').records
    assert twice == (("a", [{"x": {"y": 1}}]), ("a", []))
    assert replay.read(b"{").is_broken


def test_same_seed_gives_the_same_histories(replay: ModuleType) -> None:
    from random import Random

    one, other = (list(replay.make_cases(Random(1), 5)) for _ in range(2))
    assert one == other
