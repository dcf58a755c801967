"""The same pairs judged by four rules."""

from __future__ import annotations

from disturbed_pairs import RULES, judged, table

from aoe.measurement import CpuUse, MachineLoad, PairedSamples

_BUSY = MachineLoad(use=CpuUse(wall_s=2.0, cpu_s=1.0, waited_s=1.0), threads=2)


def _pairs(clean: int, lost: int, waited: int) -> tuple[PairedSamples, list[bool]]:
    """Make pairs of 1.2 times, of which those that are disturbed read 1.0."""
    base = (120.0,) * clean + (100.0,) * (lost + waited)
    tuned = (100.0,) * len(base)
    marks = (False,) * clean + (True,) * (lost + waited)
    is_lost = [False] * clean + [True] * lost + [False] * waited
    # mixed, so that neighbours are not correlated
    turns = sorted(range(len(base)), key=lambda place: place * 7 % len(base))
    base, marks = tuple(base[turn] for turn in turns), tuple(marks[turn] for turn in turns)
    return PairedSamples(base, tuned, base, tuned, marks), [is_lost[turn] for turn in turns]


def test_each_rule_leaves_out_what_it_names() -> None:
    found = judged(*_pairs(10, 8, 12), _BUSY)
    assert [found.left[rule] for rule in RULES] == [30, 22, 10, 10]
    assert [len(found.by_rule[rule].ratios) for rule in RULES] == [30, 22, 10, 10]


def test_threads_are_looked_at_by_the_last_rule_alone() -> None:
    pairs, lost = _pairs(22, 0, 0)
    shares = (0.5,) * 12 + (0.0,) * 10
    found = judged(
        pairs._replace(baseline_pool_share=shares, tuned_pool_share=(0.0,) * 22), lost, _BUSY
    )
    assert [found.left[rule] for rule in RULES] == [22, 22, 22, 10]


def test_table_has_the_measurements_in_which_enough_pairs_keep_their_cores() -> None:
    some, few = judged(*_pairs(10, 8, 2), _BUSY), judged(*_pairs(4, 20, 2), _BUSY)
    lines = table({"itself": [some, few]}).splitlines()
    assert len(lines) == 2 + 2 * len(RULES)
    assert lines[4] == (
        "| itself | 2 | lost cores and waits | 50.0% | 100.0% | 50.0% | 1.10x +-0.0% |"
    )
    assert lines[-1] == (
        "| itself, ten keep their cores | 1 | and unlike threads | 100.0% | 100.0% | 100.0% "
        "| 1.20x +-0.0% |"
    )
