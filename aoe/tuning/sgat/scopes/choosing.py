"""Which scopes of a subgraph go together: what is measured of each says what sets should save.

A node is in one kernel at most. Where there are few scopes every set of them is weighed; else the
best one is found from left to right: what the first nodes save at best is known when the next one
is looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from aoe.bank.records.subgraph import KernelScope
from aoe.graph.regions import Region
from aoe.schedule import Choice, Knob, Space
from aoe.tuning.opat.operators import FoundOperators, Operator
from aoe.tuning.sgat.space import StrategySpace
from aoe.tuning.sgat.subgraphs import Subgraph

_ENUMERATED = 10
"""Scopes up to which all sets are weighed: a thousand."""
_GUESSES = 3
"""Sets that are measured for being expected to save most."""
_OFF, _ON = 0, 1

ScopeSet = tuple[KernelScope, ...]


def best_sets(
    gains_us: Mapping[KernelScope, float],
    owned: Mapping[KernelScope, frozenset[int]],
    *,
    enumerated: int = _ENUMERATED,
) -> list[ScopeSet]:
    """Return sets of scopes without a node in common, what should save most first.

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
    scopes: Sequence[KernelScope], owned: Mapping[KernelScope, frozenset[int]]
) -> Iterator[ScopeSet]:
    """Yield every set of scopes that share no node."""
    if not scopes:
        yield ()
        return
    first, rest = scopes[0], scopes[1:]
    yield from _all_sets(rest, owned)
    apart = [scope for scope in rest if owned[scope].isdisjoint(owned[first])]
    for others in _all_sets(apart, owned):
        yield (first, *others)


def _along_the_chain(
    gains_us: Mapping[KernelScope, float],
    owned: Mapping[KernelScope, frozenset[int]],
) -> ScopeSet:
    """Return the best set whose scopes do not interlock, and what else finds room beside it.

    Dynamic programming over the places between two nodes: the best set in front of one is the best
    in front of the last place, or a scope that ends here with the best set in front of that.
    """
    ends: dict[int, list[KernelScope]] = {}
    for scope in gains_us:
        ends.setdefault(max(owned[scope]) + 1, []).append(scope)
    best: dict[int, tuple[float, ScopeSet]] = {0: (0.0, ())}
    for before, place in pairwise(range(max(ends) + 1)):
        options = [best[before]]
        for scope in ends.get(place, ()):
            saved_us, others = best[min(owned[scope])]
            options.append((saved_us + gains_us[scope], (*others, scope)))
        best[place] = max(options, key=lambda option: option[0])
    chosen = list(best[max(ends)][1])
    for scope in sorted(gains_us, key=lambda one: -gains_us[one]):
        if all(owned[scope].isdisjoint(owned[other]) for other in chosen):
            chosen.append(scope)
    return tuple(chosen)


def without_overlap(subgraph: Subgraph) -> tuple[KernelScope, ...]:
    """Return scopes of a subgraph that share no node: those of operator tuning, then the largest.

    Only what AOE's classes allow is among them.
    """
    scopes, taken = subgraph.scopes, set[int]()
    chosen = []
    for scope in sorted(
        subgraph.allowed_scopes,
        key=lambda one: (not scopes[one].is_operator, -len(scopes[one].owned), one.nodes),
    ):
        if taken.isdisjoint(scopes[scope].owned):
            taken |= scopes[scope].owned
            chosen.append(scope)
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


def scope_space(
    gains_us: Mapping[KernelScope, float],
    owned: Mapping[KernelScope, frozenset[int]],
) -> StrategySpace:
    """Return the sets of scopes as strategies; guesses are those expected to save most.

    Where two scopes that are chosen want the same node, the one that saves more gets it.

    Args:
        gains_us: What each saves alone.
        owned: Positions each needs for itself.
    """
    scopes = sorted(gains_us, key=lambda scope: (-gains_us[scope], scope.nodes))
    names = {f"{scope.family} {'_'.join(map(str, scope.nodes))}": scope for scope in scopes}
    default: dict[str, Choice] = dict.fromkeys(names, _OFF)
    guesses = [
        {**default, **{name: _ON for name, scope in names.items() if scope in chosen}}
        for chosen in best_sets(gains_us, owned)
    ]
    return StrategySpace(
        space=Space(
            knobs=tuple(Knob(name, (_OFF, _ON)) for name in names), first_guesses=tuple(guesses)
        ),
        knob_of={},
        chunks_of={},
        scope_of={name: (scope, owned[scope]) for name, scope in names.items()},
    )
