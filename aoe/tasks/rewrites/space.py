"""The strategies of a subgraph as a search space.

A rule with few occurrences is decided for each of them, one with many for all of them at once.
Where two rules that are chosen want the same node, the one that stands first in the table gets it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from aoe.bank.records.subgraph import AppliedRule, FusionGroup, SubgraphStrategy
from aoe.schedule import Choice, Knob, Space
from aoe.tasks.rewrites.subgraphs import Subgraph

_PLACES_MAX = 2
"""Places of a rule up to which each is decided for itself."""
_LAYOUT, _BATCH = "layout", "batch"
_BLOCKED, _PLAIN, _WHOLE = "blocked", "plain", "whole"
_OFF, _ON = 0, 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategySpace:
    """Search space of a subgraph."""

    space: Space  # The choices
    knob_of: Mapping[AppliedRule, str]  # The knob that decides about each occurrence of a rule
    chunks_of: Mapping[str, tuple[int, ...]]  # What the words of the batch stand for
    # The kernel a knob is about, with the positions it needs for itself; what stands first gets a
    # node two want.
    group_of: Mapping[str, tuple[FusionGroup, frozenset[int]]] = field(default_factory=dict)

    def strategy(self, configuration: Mapping[str, Choice]) -> SubgraphStrategy:
        """Return the strategy a configuration stands for; several may stand for one."""
        taken: set[int] = set()
        rewrites = []
        for applied, knob in self.knob_of.items():
            if configuration[knob] == _ON and taken.isdisjoint(applied.nodes):
                taken.update(applied.nodes)
                rewrites.append(applied)
        groups = []
        for knob, (group, owned) in self.group_of.items():
            if configuration[knob] == _ON and taken.isdisjoint(owned):
                taken.update(owned)
                groups.append(group)
        return SubgraphStrategy(
            rewrites=tuple(rewrites),
            groups=tuple(groups),
            blocked=configuration.get(_LAYOUT, _BLOCKED) == _BLOCKED,
            chunks=self.chunks_of.get(str(configuration.get(_BATCH, _WHOLE)), ()),
        )

    def configuration(self, strategy: SubgraphStrategy) -> dict[str, Choice] | None:
        """Return a configuration that stands for a strategy of another subgraph, None for none.

        What there is no knob for is left out.
        """
        values: dict[str, Choice] = {knob.name: knob.choices[0] for knob in self.space.knobs}
        for applied in strategy.rewrites:
            if applied in self.knob_of:
                values[self.knob_of[applied]] = _ON
        knobs = {group: knob for knob, (group, _) in self.group_of.items()}
        values |= {knobs[group]: _ON for group in strategy.groups if group in knobs}
        if not strategy.blocked and _LAYOUT in values:
            values[_LAYOUT] = _PLAIN
        chunks = "+".join(map(str, strategy.chunks))
        if chunks in self.chunks_of:
            values[_BATCH] = chunks
        is_new = self.space.is_legal(values) and not self.strategy(values).is_default
        return values if is_new else None

    def seeded(self, strategies: Iterable[SubgraphStrategy]) -> tuple[StrategySpace, bool]:
        """Return the space with the best strategies of similar subgraphs as first guesses.

        The flag is True if there was anything to begin with.
        """
        found = [values for one in strategies if (values := self.configuration(one)) is not None]
        guesses = [*found, *self.space.first_guesses]
        unique = [guess for at, guess in enumerate(guesses) if guess not in guesses[:at]]
        space = replace(self.space, first_guesses=tuple(unique))
        return replace(self, space=space), bool(found)


def strategy_space(subgraph: Subgraph, *, plain: bool = True) -> StrategySpace:
    """Return the strategies of a subgraph.

    First guesses are every rewrite, then each alone, and a plain layout last, which goes with
    nothing else: most rewrites are for the blocked one.

    Args:
        subgraph: The subgraph.
        plain: False to leave the layout as it is.
    """
    occurrences = Counter(applied.rule for applied in subgraph.matches)
    knob_of = {}
    for applied in subgraph.matches:
        is_single = occurrences[applied.rule] <= _PLACES_MAX
        nodes = "_".join(map(str, applied.nodes))
        knob_of[applied] = f"{applied.rule} {nodes}" if is_single else applied.rule
    knobs = [Knob(name, (_OFF, _ON)) for name in dict.fromkeys(knob_of.values())]
    default: dict[str, Choice] = {knob.name: _OFF for knob in knobs}
    chunks_of = {"+".join(map(str, chunks)): chunks for chunks in subgraph.chunkings}
    may_be_plain = plain and subgraph.may_be_plain
    if may_be_plain:
        knobs.append(Knob(_LAYOUT, (_BLOCKED, _PLAIN)))
        default[_LAYOUT] = _BLOCKED
    if chunks_of:
        knobs.append(Knob(_BATCH, (_WHOLE, *chunks_of)))
        default[_BATCH] = _WHOLE
    rules = list(dict.fromkeys(knob_of.values()))
    guesses = [{**default, **dict.fromkeys(rules, _ON)}] if rules else []
    if len(rules) > 1:
        guesses += [{**default, name: _ON} for name in rules]
    if may_be_plain:
        guesses.append({**default, _LAYOUT: _PLAIN})

    def goes_together(values: Mapping[str, Choice]) -> bool:
        is_plain = values.get(_LAYOUT, _BLOCKED) == _PLAIN
        return not is_plain or {**values, _LAYOUT: _BLOCKED} == default

    return StrategySpace(
        space=Space(knobs=tuple(knobs), constraint=goes_together, first_guesses=tuple(guesses)),
        knob_of=knob_of,
        chunks_of=chunks_of,
    )
