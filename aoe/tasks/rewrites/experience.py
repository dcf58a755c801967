"""Predicted gains of strategies that were not measured yet, by the measurements of a bank.

A ridge regression of log speed-ups on what was done: how often each rule, another layout, pieces of
the batch. It orders what is tried and never decides: every strategy is measured as before.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from aoe.bank.records.subgraph import SubgraphStrategy
from aoe.schedule import Choice
from aoe.tasks.rewrites.space import StrategySpace
from aoe.tasks.rewrites.subgraphs import Subgraph

_DOUBT = 1.0
"""Penalty of the regression: a rule that was measured once is believed by half.
Source: Hoerl and Kennard, Ridge regression, Technometrics 12 (1970)."""
_COUNTED = re.compile(r"(?:(?P<count>[0-9]+) x )?(?P<word>.+)")
_CHUNKED = "batch in "
PIECES, PLAIN_LAYOUT = _CHUNKED.strip(), "plain layout"
"""What a strategy may be but rules, in its words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Experience:
    """Expected gain of each word of a strategy."""

    # Natural logarithm of the speed-up by word; a word that is not here brings nothing.
    effects: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, measured: Iterable[tuple[str, float]]) -> Experience:
        """Return the experience of measurements.

        Args:
            measured: Strategies in words, as records and notes have them, and their speed-ups.
        """
        rows = [
            (_words(text), math.log(speedup))
            for text, speedup in measured
            if 0 < speedup < math.inf
        ]
        names = sorted({name for words, _ in rows for name in words})
        if not names:
            return cls()
        from sklearn.linear_model import Ridge

        model = Ridge(alpha=_DOUBT, fit_intercept=False)
        model.fit(
            [[words[name] for name in names] for words, _ in rows], [target for _, target in rows]
        )
        return cls(effects=dict(zip(names, map(float, model.coef_), strict=True)))

    def expected_speedup(self, strategy: SubgraphStrategy) -> float:
        """Return the speed-up a strategy should have, 1 where nothing is known."""
        return self.expected_of(str(strategy))

    def expected_of(self, text: str) -> float:
        """Return the same for a strategy in words."""
        words = _words(text)
        return math.exp(sum(self.effects.get(word, 0.0) * count for word, count in words.items()))

    def ordered(self, choices: StrategySpace) -> StrategySpace:
        """Return the same strategies, what should be fastest first.

        What is expected to help, all together, becomes a guess of its own. Without experience the
        order stays.
        """
        if not self.effects or not choices.space.first_guesses:
            return choices
        guesses = list(choices.space.first_guesses)
        hopeful = self._hopeful(choices, guesses[0])
        if hopeful and hopeful not in guesses:
            guesses.append(hopeful)
        guesses.sort(key=lambda guess: -self.expected_speedup(choices.strategy(guess)))
        return replace(choices, space=replace(choices.space, first_guesses=tuple(guesses)))

    def _hopeful(
        self, choices: StrategySpace, everything: Mapping[str, Choice]
    ) -> dict[str, Choice] | None:
        """Return the guess with every rule and no rule that is expected to cost time."""
        guess = dict(everything)
        for applied, knob in choices.knob_of.items():
            if self.effects.get(str(applied), 0.0) < 0:
                guess[knob] = 0
        strategy = choices.strategy(guess)
        return None if strategy.is_default else guess


def kinds_in(subgraph: Subgraph) -> set[str]:
    """Return the words of all that can be done with a subgraph."""
    kinds = {str(applied) for applied in subgraph.matches}
    kinds |= {PIECES} if subgraph.chunkings else set()
    return kinds | ({PLAIN_LAYOUT} if subgraph.may_be_plain else set())


def kinds_of(strategy: SubgraphStrategy) -> set[str]:
    """Return the words of what a strategy does, each once."""
    return set(_words(str(strategy)))


def _words(text: str) -> Counter[str]:
    """Return the number of times a strategy has each word; a batch's pieces count together."""
    found: Counter[str] = Counter()
    for part in text.split(", "):
        match = _COUNTED.fullmatch(part)
        if match is None or part == "as it is":
            continue
        word = match["word"]
        if word.startswith(_CHUNKED):
            found[PIECES] += word.count("+")
        else:
            found[word] += int(match["count"] or 1)
    return found
