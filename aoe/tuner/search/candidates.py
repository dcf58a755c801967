"""The configurations a model ranks, as rows of one matrix of features."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from aoe.schedule import Configuration, Space
from aoe.tuner.search.surrogate import Floats

Rows = NDArray[np.intp]


class Candidates:
    """The listed configurations of a space, which of them are open, and their features.

    Attributes:
        listed: The configurations, one a row; a sample if the space is too large to list.
        features: What the surrogate sees, shape (rows, features), each feature scaled to 0..1.
    """

    def __init__(self, space: Space, seed: int) -> None:
        self.listed = list(space.configurations(seed))
        self._space = space
        self._row = {configuration: row for row, configuration in enumerate(self.listed)}
        self._open = np.ones(len(self.listed), dtype=np.bool_)
        features = space.features(self.listed)
        self._low = features.min(axis=0, initial=math.inf)
        width = features.max(axis=0, initial=-math.inf) - self._low
        self._width = np.where(width > 0, width, 1.0)
        self.features = self._scaled(features)

    def rows(self, configurations: Iterable[Configuration]) -> Rows:
        """Return the row of each configuration; one that has none yet is given the next."""
        wanted = list(configurations)
        new = [configuration for configuration in wanted if configuration not in self._row]
        if new:
            self._row.update(
                (configuration, len(self.listed) + at) for at, configuration in enumerate(new)
            )
            self.listed += new
            self._open = np.concatenate([self._open, np.ones(len(new), dtype=np.bool_)])
            self.features = np.concatenate([self.features, self._scaled(self._space.features(new))])
        return np.array([self._row[configuration] for configuration in wanted], dtype=np.intp)

    def open_rows(self) -> Rows:
        """Return the rows of the configurations that are not closed."""
        return np.flatnonzero(self._open)

    def draw_open(self, rng: random.Random) -> Configuration | None:
        """Return any configuration that is not closed."""
        rows = self.open_rows()
        return self.listed[int(rows[rng.randrange(rows.size)])] if rows.size else None

    def close(self, configuration: Configuration) -> None:
        """Take a configuration out: it was handed out, or told."""
        self._open[self.rows((configuration,))] = False

    def _scaled(self, features: Floats) -> Floats:
        scaled: Floats = (features - self._low) / self._width
        return scaled
