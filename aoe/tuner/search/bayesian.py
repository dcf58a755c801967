"""Bayesian search: the default, made for a few dozen trials that cost a second each.

A surrogate model predicts the log time of configurations from the trials so far.
"""

from __future__ import annotations

import math
import random
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from aoe.schedule import Configuration, Space
from aoe.tuner.search.book import BookedSearch
from aoe.tuner.search.protocol import Trial

Floats = NDArray[np.float64]

TREES = 64
"""Trees of a forest: past this, replays gain nothing and predictions get slow."""


class Surrogate(Protocol):
    """A model that predicts with an honest doubt."""

    def fit(self, features: Floats, log_time: Floats, *, tune: bool) -> None:
        """Learn from trials; `tune` also fits the model's own parameters again."""
        ...

    def predict(self, features: Floats) -> tuple[Floats, Floats]:
        """Return the mean and the standard deviation of the log time of each row."""
        ...


class GaussianProcess:
    """Gaussian process, Matern 5/2 with a length scale per feature, and noise.

    The bounds are broad on purpose.

    Source: replays on 8 recorded GPU kernel spaces, where tight bounds cost 2-7 points of the
        optimum after 50 trials.
    """

    def __init__(self, *, dimensions: int, seed: int) -> None:
        from sklearn.gaussian_process import GaussianProcessRegressor
        from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

        self._regressor = GaussianProcessRegressor
        self._seed = seed
        self._prior = ConstantKernel(1.0, (1e-2, 1e2)) * Matern(
            length_scale=np.full(dimensions, 1.0), length_scale_bounds=(5e-2, 1e2), nu=2.5
        ) + WhiteKernel(1e-2, (1e-6, 1.0))
        self._fitted = self._prior
        self._process: Any = None

    def fit(self, features: Floats, log_time: Floats, *, tune: bool) -> None:
        """Condition on the trials, with a new kernel if `tune`."""
        process = self._regressor(
            kernel=self._prior if tune else self._fitted,
            optimizer="fmin_l_bfgs_b" if tune else None,
            normalize_y=True,
            random_state=self._seed,
        )
        with _unimpressed():
            process.fit(features, log_time)
        self._process, self._fitted = process, process.kernel_

    def predict(self, features: Floats) -> tuple[Floats, Floats]:
        """Return the posterior mean and standard deviation."""
        with _unimpressed():
            mean, deviation = self._process.predict(features, return_std=True)
        return mean, deviation


class RandomForest:
    """Random forest; the doubt is the spread among its trees.

    It bears cliffs and one-hot features better than a Gaussian process does.
    """

    def __init__(self, *, seed: int) -> None:
        from sklearn.ensemble import RandomForestRegressor

        self._forest = RandomForestRegressor(n_estimators=TREES, random_state=seed, n_jobs=1)

    def fit(self, features: Floats, log_time: Floats, *, tune: bool) -> None:
        """Grow all trees again; there is nothing to tune."""
        self._forest.fit(features, log_time)

    def predict(self, features: Floats) -> tuple[Floats, Floats]:
        """Return the mean and the spread of the trees' answers."""
        answers = np.stack([tree.predict(features) for tree in self._forest.estimators_])
        return answers.mean(axis=0), answers.std(axis=0)


def expected_improvement(mean: Floats, deviation: Floats, best: float) -> Floats:
    """Return by how much each log time is expected to fall below `best`, never negative.

    In log time an improvement of 0.01 is 1 % of the time.

    Source: D. R. Jones et al., Efficient Global Optimization, J. Global Optimization 13, 1998.
    """
    from scipy.special import ndtr

    deviation = np.maximum(deviation, 1e-9)
    gap = (best - mean) / deviation
    density = np.exp(-0.5 * gap**2) / np.sqrt(2 * np.pi)
    improvement: Floats = np.maximum(deviation * (gap * ndtr(gap) + density), 0.0)
    return improvement


@contextmanager
def _unimpressed() -> Iterator[None]:
    """Ignore what a Gaussian process warns of: few points rarely determine every length scale."""
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.filterwarnings("ignore", message="Predicted variances smaller than 0")
        yield


@contextmanager
def single_threaded() -> Iterator[None]:
    """Keep the linear algebra on this thread: its workers spin on into the next measurement."""
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    import_module("scipy.linalg")  # the limit reaches only libraries that are loaded

    with threadpool_limits(limits=1):
        yield


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


SEEDS = 8
"""Trials before the model has a say: first guesses, warm starts, then random ones."""
TUNE_EVERY = 2
"""Trials after which the model's own parameters are fitted again."""
POLISH_SHARE = 5
"""The last one in so many trials of the budget polish the best. Source: Helion's 468-run study."""
POLISHED = 2
"""Configurations whose neighbours are polished."""
FAILURE_RATIO = 1.5
"""A failed trial counts as this much slower than the slowest correct one."""
FAILING_SHARE = 0.3
"""Failures above this share make cliffs that a forest models better."""
CONVERGED_GAIN = 0.01
"""Expected improvement that is not worth a trial."""
CONVERGED_TRIALS = 10
"""Model trials in a row without a worthwhile expectation that make a search converged."""


class BayesianSearch(BookedSearch):
    """Expected improvement over the listed legal configurations, and a polish at the end.

    Source: replays on 8 recorded kernel spaces: 0.90-0.91 of the optimum after 50 trials, where
        a genetic search had 0.81 and random search 0.78.
    """

    def _begin(self, first: tuple[Configuration, ...], seed: int, budget: int) -> None:
        self._seed = seed
        self._known = Candidates(self._space, seed)
        self._rng = random.Random(seed)
        listed = self._known.listed
        self._seeds = [*first, *self._rng.sample(listed, min(len(first) + SEEDS, len(listed)))]
        self._seeds_left = max(SEEDS, len(first))
        self._polish_trials = max(1, budget // POLISH_SHARE)
        self._surrogate: Surrogate | None = None
        self._tuned_at = 0
        self._dull_trials = 0

    @property
    def is_converged(self) -> bool:
        """True if 10 trials in a row promised less than 1 % and the best is polished."""
        return self._dull_trials >= CONVERGED_TRIALS and not self._unpolished()

    def tell(self, configuration: Configuration, trial: Trial) -> None:
        """Report the trial of a configuration."""
        super().tell(configuration, trial)
        self._known.close(configuration)

    def _next(self) -> Configuration | None:
        chosen = self._chosen()
        if chosen is not None:
            self._known.close(chosen)
        return chosen

    def _chosen(self) -> Configuration | None:
        while self._seeds and self._seeds_left > 0:
            configuration = self._seeds.pop(0)
            if self._book.is_new(configuration):
                self._seeds_left -= 1
                return configuration
        if self._book.best is None:
            return self._known.draw_open(self._rng)  # no correct trial yet: nothing to model
        near = self._unpolished()
        if near and (self._book.room <= self._polish_trials or self._is_dull):
            return self._most_promising(self._known.rows(near))[0]
        self._known.rows(near)  # in a space too large to list, the neighbours join the ranking
        fresh = self._known.open_rows()
        if not fresh.size:
            return None
        configuration, gain = self._most_promising(fresh)
        self._dull_trials = self._dull_trials + 1 if gain < CONVERGED_GAIN else 0
        return configuration

    @property
    def _is_dull(self) -> bool:
        return self._dull_trials >= CONVERGED_TRIALS

    def _unpolished(self) -> list[Configuration]:
        """Return the neighbours of the best that are new."""
        best = [trial.configuration for trial in self._book.ranked()[:POLISHED]]
        near = dict.fromkeys(neighbour for one in best for neighbour in self._space.neighbours(one))
        return [neighbour for neighbour in near if self._book.is_new(neighbour)]

    def _most_promising(self, rows: Rows) -> tuple[Configuration, float]:
        """Return the configuration with the largest expected improvement, and that."""
        with single_threaded():
            surrogate, best = self._fitted()
            mean, deviation = surrogate.predict(self._known.features[rows])
            gain = expected_improvement(mean, deviation, best)
        chosen = int(np.argmax(gain))
        return self._known.listed[int(rows[chosen])], float(gain[chosen])

    def _fitted(self) -> tuple[Surrogate, float]:
        """Return the surrogate, having learnt from all trials, and the best log time."""
        told = self._known.rows(self._book.told)
        features = self._known.features[told]
        log_time = _log_times(self._book.told.values())
        kind = self._surrogate_kind()
        tune = not isinstance(self._surrogate, kind) or len(told) - self._tuned_at >= TUNE_EVERY
        if not isinstance(self._surrogate, kind):
            self._surrogate = (
                RandomForest(seed=self._seed)
                if kind is RandomForest
                else GaussianProcess(dimensions=features.shape[1], seed=self._seed)
            )
        if tune:
            self._tuned_at = len(told)
        self._surrogate.fit(features, log_time, tune=tune)
        if self._book.pending:
            # What is being measured is taken to come out as predicted, so that configurations
            # asked for at the same time differ.
            waiting = self._known.features[self._known.rows(self._book.pending)]
            believed, _ = self._surrogate.predict(waiting)
            self._surrogate.fit(
                np.concatenate([features, waiting]),
                np.concatenate([log_time, believed]),
                tune=False,
            )
        return self._surrogate, float(log_time.min())

    def _surrogate_kind(self) -> type[GaussianProcess] | type[RandomForest]:
        open_knobs = [knob for knob in self._space.knobs if len(knob.choices) > 1]
        categorical = sum(not knob.is_ordinal for knob in open_knobs)
        if self._book.failure_share() > FAILING_SHARE or 2 * categorical > len(open_knobs):
            return RandomForest
        return GaussianProcess


def _log_times(trials: Iterable[Trial]) -> Floats:
    """Return the log of each trial's time relative to the baseline; failures are slow."""
    log_times = [
        -math.log(trial.speedup) if trial.speedup is not None else math.nan for trial in trials
    ]
    found = np.array(log_times, dtype=np.float64)
    return np.where(np.isnan(found), np.nanmax(found) + math.log(FAILURE_RATIO), found)
