"""Search spaces: what may be chosen for a schedule, which choices go together, what is near."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Choice = int | str
"""Value a knob can take."""
Values = Mapping[str, Choice]
"""Choices for the knobs, by their names; `Configuration` is the immutable form."""

ENUMERATED_MAX = 20_000
"""Legal configurations up to which a space is listed in full."""
WALKED_MAX = 400_000
"""Combinations, legal or not, up to which listing is tried at all: about a second."""
SAMPLED = 5_000
"""Configurations drawn from a space that is too large to list."""
MISSES_MAX = 1_000
"""Random draws in a row without anything new after which a space counts as used up."""


@dataclass(frozen=True, slots=True)
class Knob:
    """One decision of a space: its name and what may be chosen, integers in rising order."""

    name: str
    choices: tuple[Choice, ...]

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("a knob must have a name")
        kinds = {type(choice) for choice in self.choices}
        if kinds not in ({int}, {str}) or len(set(self.choices)) < len(self.choices):
            raise ValueError(
                f"{self.name}: choices must be distinct, all int or all str (got {self.choices!r})"
            )
        if self.is_ordinal and list(self.choices) != sorted(self.choices, key=int):
            raise ValueError(f"{self.name}: choices must rise (got {self.choices!r})")

    @property
    def is_ordinal(self) -> bool:
        """True if the choices are numbers, so that some of them are close to each other."""
        return isinstance(self.choices[0], int)


class Configuration(Mapping[str, Choice]):
    """Choices of a candidate, one for each knob: immutable, hashable, equal whatever the order."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, Choice]) -> None:
        self._values = dict(sorted(values.items()))

    def __getitem__(self, name: str) -> Choice:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        return hash(tuple(self._values.items()))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Configuration):
            return self._values == other._values
        return super().__eq__(other)

    def __repr__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self._values.items()) or "default"

    def changed(self, name: str, value: Choice) -> Configuration:
        """Return the configuration with another value for one knob."""
        return Configuration({**self._values, name: value})


def _anything_goes(values: Mapping[str, Choice]) -> bool:
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """All configurations a search may propose."""

    knobs: tuple[Knob, ...]  # The decisions
    # True for a legal combination of choices; asked only for choices of `knobs`.
    constraint: Callable[[Mapping[str, Choice]], bool] = _anything_goes
    # Configurations an expert would try, best first; each must be legal.
    first_guesses: tuple[Mapping[str, Choice], ...] = ()
    _listed: dict[int | None, tuple[Configuration, ...] | None] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        names = [knob.name for knob in self.knobs]
        if len(set(names)) < len(names):
            raise ValueError(f"a space names each knob once (got {names})")
        for guess in self.first_guesses:
            if not self.is_legal(guess):
                raise ValueError(f"first guess is not in the space (got {dict(guess)})")

    @property
    def combinations(self) -> int:
        """Number of combinations of choices, legal or not."""
        return math.prod(len(knob.choices) for knob in self.knobs)

    @property
    def is_enumerable(self) -> bool:
        """True if `configurations` lists every legal configuration."""
        return self._all_legal() is not None

    @property
    def size(self) -> int:
        """Number of legal configurations, or of all combinations if too many to list."""
        listed = self._all_legal()
        return self.combinations if listed is None else len(listed)

    def is_legal(self, values: Mapping[str, Choice]) -> bool:
        """True if `values` chooses for each knob, and for no other, and may be combined so."""
        return (
            len(values) == len(self.knobs)
            and all(values.get(knob.name) in knob.choices for knob in self.knobs)
            and self.constraint(values)
        )

    def configurations(self, seed: int = 0) -> tuple[Configuration, ...]:
        """Return all legal configurations, or a sample of a space too large to list.

        Args:
            seed: Decides on the sample; the first guesses are always part of it.
        """
        listed = self._all_legal()
        if listed is None and seed not in self._listed:
            self._listed[seed] = tuple(itertools.islice(self.draw(random.Random(seed)), SAMPLED))
        return listed if listed is not None else self._listed[seed] or ()

    def draw(self, rng: random.Random) -> Iterator[Configuration]:
        """Yield the first guesses, then distinct random legal configurations.

        Ends when `MISSES_MAX` draws in a row brought nothing new.
        """
        seen: set[Configuration] = set()
        misses = 0
        guesses = [Configuration(guess) for guess in self.first_guesses]
        while misses < MISSES_MAX:
            drawn = (
                guesses.pop(0)
                if guesses
                else Configuration({knob.name: rng.choice(knob.choices) for knob in self.knobs})
            )
            if drawn in seen or not self.constraint(drawn):
                misses += 1
                continue
            misses = 0
            seen.add(drawn)
            yield drawn

    def neighbours(self, configuration: Configuration) -> tuple[Configuration, ...]:
        """Return the legal configurations that differ in one knob, by one place if ordinal."""
        near: list[Configuration] = []
        for knob in self.knobs:
            at = knob.choices.index(configuration[knob.name])
            places: Iterable[int] = range(len(knob.choices))
            if knob.is_ordinal:
                places = (place for place in (at - 1, at + 1) if 0 <= place < len(knob.choices))
            changed = (configuration.changed(knob.name, knob.choices[place]) for place in places)
            near.extend(neighbour for neighbour in changed if neighbour != configuration)
        return tuple(neighbour for neighbour in near if self.constraint(neighbour))

    def features(self, configurations: Iterable[Mapping[str, Choice]]) -> NDArray[np.float64]:
        """Return the features of configurations: shape (configurations, features), float64.

        A knob of positive integers is its binary logarithm, one that has a zero log2(1 + x), any
        other integer its place; strings are one-hot. A knob without a choice is left out.
        """
        codes = {knob.name: _codes(knob) for knob in self.knobs if len(knob.choices) > 1}
        rows = [
            [number for name, code in codes.items() for number in code[configuration[name]]]
            for configuration in configurations
        ]
        width = sum(len(next(iter(code.values()))) for code in codes.values())
        return np.array(rows, dtype=np.float64).reshape(len(rows), width)

    def _all_legal(self) -> tuple[Configuration, ...] | None:
        if None not in self._listed:
            self._listed[None] = self._enumerate()
        return self._listed[None]

    def _enumerate(self) -> tuple[Configuration, ...] | None:
        if self.combinations > WALKED_MAX:
            return None
        names = [knob.name for knob in self.knobs]
        combined = (
            dict(zip(names, choices, strict=True))
            for choices in itertools.product(*(knob.choices for knob in self.knobs))
        )
        legal = (Configuration(values) for values in combined if self.constraint(values))
        listed = tuple(itertools.islice(legal, ENUMERATED_MAX + 1))
        return listed if len(listed) <= ENUMERATED_MAX else None


def _codes(knob: Knob) -> dict[Choice, tuple[float, ...]]:
    """Return the features of each choice of a knob."""
    places = range(len(knob.choices))
    if not knob.is_ordinal:
        return {
            choice: tuple(float(place == at) for place in places)
            for at, choice in enumerate(knob.choices)
        }
    numbers = [int(choice) for choice in knob.choices]
    if min(numbers) < 0:
        return {choice: (float(at),) for at, choice in enumerate(knob.choices)}
    shift = 1 if min(numbers) == 0 else 0
    return {
        choice: (math.log2(number + shift),)
        for choice, number in zip(knob.choices, numbers, strict=True)
    }
