"""Cost of an all-reduce as a function of its size: a fitted line or a measured table."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from aoe.errors import MeasurementError

MISFIT = 0.15
"""Median relative residual above which a line describes the samples badly."""
_HUBER = 1.345
"""Residuals beyond so many standard deviations lose weight. Source: P. J. Huber, Robust
Statistics: 95 % efficiency for normal errors."""
_ROUNDS = 30
_MAD_TO_SIGMA = 1.4826
_LARGE_BYTES = 4 << 20


class CostSample(NamedTuple):
    """One measured all-reduce: its size and the time of the slowest rank."""

    bytes: int
    us: float


class CostModel(Protocol):
    """Seam of everything that says what an all-reduce costs."""

    def cost_us(self, size_bytes: float) -> float:
        """Return the time of an all-reduce of so many bytes."""
        ...

    def costs_us(self, sizes_bytes: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the time of each all-reduce, same shape, float64."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AllReduceCost:
    """Latency and a time per byte (the alpha-beta model)."""

    latency_us: float  # Time of an all-reduce of nothing
    us_per_byte: float  # Reciprocal of the algorithm bandwidth; 1e-3 is 1 GB/s
    # (fitted - measured) / measured of the samples, smallest size first; empty if the line was not
    # fitted.
    residuals: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        for name in ("latency_us", "us_per_byte"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{name} must be finite and not negative (got {value})")

    @property
    def misfit(self) -> float:
        """Median absolute relative residual, 0 if there are none."""
        return median(map(abs, self.residuals)) if self.residuals else 0.0

    def cost_us(self, size_bytes: float) -> float:
        """Return the time of an all-reduce of so many bytes."""
        return self.latency_us + self.us_per_byte * size_bytes

    def costs_us(self, sizes_bytes: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the time of each all-reduce, same shape, float64."""
        return self.latency_us + self.us_per_byte * sizes_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCost:
    """Measured times with straight lines between them.

    Below the first size the first time holds; beyond the last one the last line goes on.
    """

    sizes_bytes: tuple[float, ...]  # Increasing, two or more
    times_us: tuple[float, ...]  # Time at each size; never decreases

    def __post_init__(self) -> None:
        if len(self.sizes_bytes) != len(self.times_us) or len(self.sizes_bytes) < 2:
            raise ValueError("a table needs two sizes or more, and a time for each")
        if not all(math.isfinite(value) and value >= 0 for value in self.sizes_bytes):
            raise ValueError("sizes must be finite and not negative")
        if not all(math.isfinite(value) and value >= 0 for value in self.times_us):
            raise ValueError("times must be finite and not negative")
        if any(a >= b for a, b in zip(self.sizes_bytes, self.sizes_bytes[1:], strict=False)):
            raise ValueError("sizes must increase")
        if any(a > b for a, b in zip(self.times_us, self.times_us[1:], strict=False)):
            raise ValueError("times must not decrease")

    def cost_us(self, size_bytes: float) -> float:
        """Return the time of an all-reduce of so many bytes."""
        return float(self.costs_us(np.asarray([size_bytes], dtype=np.float64))[0])

    def costs_us(self, sizes_bytes: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the time of each all-reduce, same shape, float64."""
        (near, far), (near_us, far_us) = self.sizes_bytes[-2:], self.times_us[-2:]
        beyond = np.maximum(sizes_bytes - far, 0.0) * ((far_us - near_us) / (far - near))
        inside = np.interp(sizes_bytes, self.sizes_bytes, self.times_us)
        return np.asarray(inside + beyond, dtype=np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class InflatedCost:
    """Another cost made worse: what-if for jitter, contention and dispatch overhead."""

    base: CostModel  # The cost as measured
    factor: float = 1.0  # Multiplies every time
    extra_us: float = 0.0  # Added to every all-reduce after that

    def cost_us(self, size_bytes: float) -> float:
        """Return the time of an all-reduce of so many bytes."""
        return self.base.cost_us(size_bytes) * self.factor + self.extra_us

    def costs_us(self, sizes_bytes: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the time of each all-reduce, same shape, float64."""
        return self.base.costs_us(sizes_bytes) * self.factor + self.extra_us


def fit_cost(samples: Sequence[CostSample]) -> AllReduceCost:
    """Fit latency and time per byte, neither negative, to measured all-reduces.

    Least squares of the relative errors, so that small sizes count as much as large ones, with
    outliers weighted down (Huber weights, scale from the median absolute residual).

    Raises:
        MeasurementError: fewer than two different sizes, or a sample that is no time.
    """
    ordered = _checked(samples)
    sizes = np.array([sample.bytes for sample in ordered], dtype=np.float64)
    times = np.array([sample.us for sample in ordered], dtype=np.float64)
    weights = np.ones_like(times)
    latency, slope = _weighted_line(sizes, times, weights)
    for _ in range(_ROUNDS):
        errors = (latency + slope * sizes) / times - 1
        scale = _MAD_TO_SIGMA * float(np.median(np.abs(errors)))
        if scale < 1e-12:  # a line through at least half of the samples
            break
        weights = np.minimum(1.0, _HUBER * scale / np.maximum(np.abs(errors), 1e-300))
        latency, slope = _weighted_line(sizes, times, weights)
    residuals = (latency + slope * sizes) / times - 1
    return AllReduceCost(
        latency_us=latency, us_per_byte=slope, residuals=tuple(map(float, residuals))
    )


def tabulate_cost(samples: Sequence[CostSample]) -> TableCost:
    """Return the samples as a table: median per size, times made not to decrease.

    Raises:
        MeasurementError: as `fit_cost`.
    """
    times: dict[int, list[float]] = defaultdict(list)
    for sample in _checked(samples):
        times[sample.bytes].append(sample.us)
    medians = np.array([median(values) for values in times.values()])
    return TableCost(
        sizes_bytes=tuple(map(float, times)),
        times_us=tuple(map(float, np.maximum.accumulate(medians))),
    )


def choose_cost(samples: Sequence[CostSample], misfit: float = MISFIT) -> CostModel:
    """Return the fitted line, or the table where the line describes the samples badly.

    Args:
        samples: As for `fit_cost`.
        misfit: Median absolute relative residual of the line that is still good enough.

    Raises:
        MeasurementError: as `fit_cost`.
    """
    line = fit_cost(samples)
    return line if line.misfit <= misfit else tabulate_cost(samples)


def described_cost(cost: CostModel) -> str:
    """Return bandwidth and latency for people; the rate is that of bytes summed over all ranks."""
    us_per_byte = (cost.cost_us(2 * _LARGE_BYTES) - cost.cost_us(_LARGE_BYTES)) / _LARGE_BYTES
    latency = f"{cost.cost_us(0):.0f} us"
    if us_per_byte <= 0:
        return f"all-reduce in {latency} whatever its size"
    return f"all-reduce at {8e-3 / us_per_byte:.3g} Gbit/s and {latency}"


def cost_to_json(cost: CostModel) -> dict[str, Any]:
    """Return a cost as JSON keeps it; ValueError for one that has no such form."""
    if isinstance(cost, AllReduceCost):
        return {
            "kind": "line",
            "latency_us": round(cost.latency_us, 3),
            "us_per_byte": float(f"{cost.us_per_byte:.6g}"),
            "residuals": [round(residual, 4) for residual in cost.residuals],
        }
    if isinstance(cost, TableCost):
        times = [round(time_us, 3) for time_us in cost.times_us]
        return {"kind": "table", "sizes_bytes": list(cost.sizes_bytes), "times_us": times}
    raise ValueError(f"no JSON form of a {type(cost).__name__}")


def cost_from_json(value: Any) -> CostModel:
    """Return the cost `cost_to_json` wrote.

    Raises:
        ValueError: it is something else.
    """
    try:
        if value["kind"] == "line":
            return AllReduceCost(
                latency_us=float(value["latency_us"]),
                us_per_byte=float(value["us_per_byte"]),
                residuals=tuple(map(float, value.get("residuals", ()))),
            )
        if value["kind"] == "table":
            return TableCost(
                sizes_bytes=tuple(map(float, value["sizes_bytes"])),
                times_us=tuple(map(float, value["times_us"])),
            )
    except (KeyError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"not a cost of an all-reduce ({error!r})") from error
    raise ValueError(f"unknown kind of cost (got {value['kind']!r})")


def _checked(samples: Sequence[CostSample]) -> list[CostSample]:
    for sample in samples:
        if sample.bytes < 0 or not (math.isfinite(sample.us) and sample.us > 0):
            raise MeasurementError("all-reduce cost", "not a measured time", got=tuple(sample))
    if len({sample.bytes for sample in samples}) < 2:
        raise MeasurementError(
            "all-reduce cost",
            "too few sizes were measured",
            got=len({sample.bytes for sample in samples}),
            expected="two or more",
        )
    return sorted(samples)


def _weighted_line(
    sizes: NDArray[np.float64], times: NDArray[np.float64], weights: NDArray[np.float64]
) -> tuple[float, float]:
    """Return latency and slope >= 0 with the least weighted sum of squared relative errors."""
    span = float(sizes.max())  # the slope per largest size keeps the numbers near each other
    roots = np.sqrt(weights)
    latency_part, slope_part = roots / times, roots * (sizes / span) / times
    design = np.stack([latency_part, slope_part], axis=1)
    solution, *_ = np.linalg.lstsq(design, roots, rcond=None)
    if solution.min() < 0:  # the optimum lies on an axis; with two unknowns both can be tried
        alone = [
            float((column @ roots) / (column @ column)) for column in (latency_part, slope_part)
        ]
        choices = [np.array([alone[0], 0.0]), np.array([0.0, alone[1]])]
        solution = min(choices, key=lambda point: float(np.sum((design @ point - roots) ** 2)))
    latency, per_span = (float(value) for value in solution)
    return latency, per_span / span
