"""Surrogate models: predict the log time of configurations from the trials so far."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

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
