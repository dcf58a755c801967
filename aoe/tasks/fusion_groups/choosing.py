"""Sets of fusion groups to measure, ranked by the savings of the single groups.

A node is in one kernel at most. Where there are few scopes every set of them is weighed; else the
best one is found from left to right: what the first nodes save at best is known when the next one
is looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from aoe.bank.records.subgraph import FusionGroup
from aoe.graph.regions import Region
from aoe.schedule import Choice, Knob, Space
from aoe.tasks.operators.operators import FoundOperators, Operator
from aoe.tasks.rewrites.space import StrategySpace
from aoe.tasks.rewrites.subgraphs import Subgraph

_ENUMERATED = 10
"""Scopes up to which all sets are weighed: a thousand."""
_GUESSES = 3
"""Sets that are measured for being expected to save most."""
_OFF, _ON = 0, 1

FusionSet = tuple[FusionGroup, ...]


def best_sets(
    gains_us: Mapping[FusionGroup, float],
    owned: Mapping[FusionGroup, frozenset[int]],
    *,
    enumerated: int = _ENUMERATED,
) -> list[FusionSet]:
    """Return sets of disjoint fusion groups, the largest expected saving first.

    Args:
        gains_us: What each saves in one run of its subgraph, alone.
        owned: Positions each needs for itself.
        enumerated: Scopes up to which all sets are weighed.
    """
    if len(gains_us) <= enumerated:
        sets = list(_all_sets(list(gains_us), owned))
    else:
        first = _along_the_chain(gains_us, owned)
        sets = [first, *(tuple(s for s in first if s != left) for left in first)]
    found = sorted(filter(None, sets), key=lambda one: (-sum(map(gains_us.__getitem__, one)),))
    return found[:_GUESSES]


def _all_sets(
    groups: Sequence[FusionGroup], owned: Mapping[FusionGroup, frozenset[int]]
) -> Iterator[FusionSet]:
    """Yield every set of disjoint fusion groups."""
    if not groups:
        yield ()
        return
    first, rest = groups[0], groups[1:]
    yield from _all_sets(rest, owned)
    apart = [group for group in rest if owned[group].isdisjoint(owned[first])]
    for others in _all_sets(apart, owned):
        yield (first, *others)


def _along_the_chain(
    gains_us: Mapping[FusionGroup, float],
    owned: Mapping[FusionGroup, frozenset[int]],
) -> FusionSet:
    """Return the best set of groups in the order of nodes, and further groups that fit beside it.

    Dynamic programming over the places between two nodes: the best set in front of one is the best
    in front of the last place, or a scope that ends here with the best set in front of that.
    """
    ends: dict[int, list[FusionGroup]] = {}
    for group in gains_us:
        ends.setdefault(max(owned[group]) + 1, []).append(group)
    best: dict[int, tuple[float, FusionSet]] = {0: (0.0, ())}
    for before, place in pairwise(range(max(ends) + 1)):
        options = [best[before]]
        for group in ends.get(place, ()):
            saved_us, others = best[min(owned[group])]
            options.append((saved_us + gains_us[group], (*others, group)))
        best[place] = max(options, key=lambda option: option[0])
    chosen = list(best[max(ends)][1])
    for group in sorted(gains_us, key=lambda one: -gains_us[one]):
        if all(owned[group].isdisjoint(owned[other]) for other in chosen):
            chosen.append(group)
    return tuple(chosen)


def without_overlap(subgraph: Subgraph) -> tuple[FusionGroup, ...]:
    """Return disjoint fusion groups of a subgraph: those of operator tuning, then the largest.

    Only what AOE's classes allow is among them.
    """
    groups, taken = subgraph.groups, set[int]()
    chosen = []
    for group in sorted(
        subgraph.allowed_fusion_groups,
        key=lambda one: (not groups[one].is_operator, -len(groups[one].owned), one.nodes),
    ):
        if taken.isdisjoint(groups[group].owned):
            taken |= groups[group].owned
            chosen.append(group)
    return tuple(chosen)


def parts_of(places: Iterable[Region], others: Iterable[Operator]) -> tuple[Operator, ...]:
    """Return operators that compute a part of what is computed at one of some places."""
    wholes = [frozenset(place.nodes) for place in places]
    return tuple(
        one
        for one in others
        if any(whole.issuperset(region.nodes) for region in one.regions for whole in wholes)
    )


def with_parts(
    later: Sequence[Operator], found: FoundOperators, lost: Sequence[Region]
) -> FoundOperators:
    """Return operators with the parts of what was lost; see `tune_found`.

    Args:
        later: Operators that compute nodes of others.
        found: The others.
        lost: Places of these for which no kernel was found.
    """
    return replace(found, operators=(*found.operators, *parts_of(lost, later)))


def fusion_space(
    gains_us: Mapping[FusionGroup, float],
    owned: Mapping[FusionGroup, frozenset[int]],
) -> StrategySpace:
    """Return the sets of fusion groups as strategies; guesses are those expected to save most.

    Where two scopes that are chosen want the same node, the one that saves more gets it.

    Args:
        gains_us: What each saves alone.
        owned: Positions each needs for itself.
    """
    groups = sorted(gains_us, key=lambda group: (-gains_us[group], group.nodes))
    names = {f"{group.family} {'_'.join(map(str, group.nodes))}": group for group in groups}
    default: dict[str, Choice] = dict.fromkeys(names, _OFF)
    guesses = [
        {**default, **{name: _ON for name, group in names.items() if group in chosen}}
        for chosen in best_sets(gains_us, owned)
    ]
    return StrategySpace(
        space=Space(
            knobs=tuple(Knob(name, (_OFF, _ON)) for name in names), first_guesses=tuple(guesses)
        ),
        knob_of={},
        chunks_of={},
        group_of={name: (group, owned[group]) for name, group in names.items()},
    )
