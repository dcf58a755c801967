"""Print the polynomial coefficients of `aoe/kernels/math/coefficients.py`.

Each polynomial is a near-minimax fit: least squares in float64 on Chebyshev nodes, reweighted by
Lawson's iteration until the largest error is level, then coefficients rounded to float32 from
the constant term upwards, refitting the rest after each rounding. Needs NumPy only.

Run: python benchmarks/fit_math_functions.py
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
_NODES = 4001


def fit(
    function: Callable[[Array], Array],
    weight: Callable[[Array], Array],
    low: float,
    high: float,
    degree: int,
) -> tuple[list[float], float]:
    """Fit `function` on [low, high] with error `weight * (polynomial - function)` levelled.

    Returns:
        float32 coefficients, constant term first, and the largest weighted error.
    """
    angle = (np.arange(_NODES) + 0.5) * math.pi / _NODES
    x = (low + high) / 2 + (high - low) / 2 * np.cos(angle)
    y, w = function(x), weight(x)
    powers = x[:, None] ** np.arange(degree + 1)[None, :]
    fixed: list[float] = []
    for first in range(degree + 1):
        rest = y - powers[:, :first] @ np.array(fixed, dtype=np.float64)
        solved = _lawson(powers[:, first:], rest, w)
        fixed.append(float(np.float32(solved[0])))
    error = float(np.max(np.abs(w * (powers @ np.array(fixed) - y))))
    return fixed, error


def _lawson(powers: Array, y: Array, w: Array) -> Array:
    """Return least-squares coefficients reweighted towards the minimax ones."""
    lawson = np.ones_like(y)
    scale = np.max(np.abs(powers), axis=0)
    best, best_error = np.zeros(powers.shape[1]), math.inf
    for _ in range(40):
        root = np.sqrt(lawson) * w
        solved = np.linalg.lstsq(powers / scale * root[:, None], y * root, rcond=None)[0] / scale
        error = np.abs(w * (powers @ solved - y))
        if error.max() < best_error:
            best, best_error = solved, error.max()
        lawson = lawson * error
        total = lawson.sum()
        if total <= 0:
            break
        lawson = lawson / total * len(y)
    return best


def fit_rational(
    function: Callable[[Array], Array], high: float, above: int, below: int
) -> tuple[list[float], list[float], float]:
    """Fit an odd function on [0, high] by x P(x^2) / Q(x^2), relative error levelled.

    The equation is linearised by multiplying with Q, weighted with the Q of the round before.

    Returns:
        float32 coefficients of P and of Q, constant term first, and the largest relative error.
    """
    x = high / 2 * (1 + np.cos((np.arange(_NODES) + 0.5) * math.pi / _NODES))
    square, ratio = (x / high) ** 2, function(x) / x
    upper = square[:, None] ** np.arange(above + 1)
    lower = square[:, None] ** np.arange(1, below + 1)
    divisor, lawson = np.ones_like(x), np.ones_like(x)
    best, best_error = np.zeros(above + below + 1), math.inf
    for _ in range(60):
        weight = np.sqrt(lawson) / (ratio * np.abs(divisor))
        matrix = np.concatenate([upper, -ratio[:, None] * lower], axis=1)
        solved = np.linalg.lstsq(matrix * weight[:, None], ratio * weight, rcond=None)[0]
        divisor = 1 + lower @ solved[above + 1 :]
        error = np.abs(upper @ solved[: above + 1] / divisor / ratio - 1)
        if error.max() < best_error:
            best, best_error = solved, float(error.max())
        lawson = lawson * (error / error.max() + 1e-3) ** 0.7
        lawson = lawson / lawson.mean()
    powers = high ** (2.0 * np.arange(max(above, below) + 1))
    numerator = best[: above + 1] / powers[: above + 1]
    denominator = np.concatenate([[1.0], best[above + 1 :]]) / powers[: below + 1]
    return _rounded(numerator), _rounded(denominator), best_error


def _rounded(values: Array) -> list[float]:
    return [float(np.float32(value)) for value in values]


def _erf(x: Array) -> Array:
    return np.array([math.erf(v) for v in x])


def _scaled_erfc(x: Array) -> Array:
    """exp(x^2) erfc(x), by the continued fraction where the product would underflow."""
    values = []
    for v in x:
        if v < 5:
            values.append(math.exp(v * v) * math.erfc(v))
            continue
        tail = 0.0
        for k in range(60, 0, -1):
            tail = (k / 2) / (v + tail)
        values.append(1 / (math.sqrt(math.pi) * (v + tail)))
    return np.array(values)


ERFC_SCALE = 0.5
TANH_LIMIT, ERF_LIMIT = 9.0, 3.95


def main() -> None:
    """Fit every polynomial and print name, degree, error and coefficients."""
    half_ln2 = math.log(2) / 2 * 1.0001
    root = math.sqrt(0.5)

    def exp_rest(r: Array) -> Array:
        big = np.abs(r) > 1e-3
        safe = np.where(big, r, 1.0)
        series = 0.5 + r / 6 + r * r / 24 + r**3 / 120
        return np.where(big, (np.expm1(safe) - safe) / (safe * safe), series)

    def expm1_ratio(r: Array) -> Array:
        big = np.abs(r) > 1e-5
        safe = np.where(big, r, 1.0)
        return np.where(big, np.expm1(safe) / safe, 1 + r / 2)

    def log_rest(f: Array) -> Array:
        big = np.abs(f) > 1e-2
        safe = np.where(big, f, 1.0)
        series = sum((-1) ** k * f**k / (k + 3) for k in range(8))
        return np.where(big, (np.log1p(safe) - safe + safe**2 / 2) / safe**3, series)

    def log1p_ratio(t: Array) -> Array:
        return np.log1p(t) / t

    def erfc_of_t(t: Array) -> Array:
        x = (1 / t - 1) / ERFC_SCALE
        return _scaled_erfc(x) / t

    def sin_rest(s: Array) -> Array:
        return (np.sin(np.sqrt(s)) / np.sqrt(s) - 1) / s

    def cos_rest(s: Array) -> Array:
        return (np.cos(np.sqrt(s)) - 1 + s / 2) / (s * s)

    quarter = (math.pi / 4 * 1.0001) ** 2
    jobs = (
        ("EXP", exp_rest, lambda r: r * r, -half_ln2, half_ln2, 4),
        ("EXPM1", expm1_ratio, np.abs, -half_ln2, half_ln2, 4),
        ("LOG", log_rest, lambda f: np.abs(f) ** 2, root - 1, 1 / root - 1, 8),
        ("LOG1P", log1p_ratio, lambda t: 1 / log1p_ratio(t), 1e-9, 1.0, 10),
        ("ERFC", erfc_of_t, lambda t: 1 / erfc_of_t(t), 1 / (1 + 10.1 * ERFC_SCALE), 1.0, 9),
        ("SIN", sin_rest, lambda s: s, 1e-4, quarter, 2),
        ("COS", cos_rest, lambda s: s * s, 1e-2, quarter, 2),
    )
    for name, function, weight, low, high, degree in jobs:
        coefficients, error = fit(function, weight, low, high, degree)
        print(f"# {name}: degree {degree} on [{low:.6g}, {high:.6g}], error {error:.2g}")
        _print(name, coefficients)
    rational = (("TANH", np.tanh, TANH_LIMIT, 5, 3), ("ERF", _erf, ERF_LIMIT, 5, 5))
    for name, function, limit, above, below in rational:
        numerator, denominator, error = fit_rational(function, limit, above, below)
        degrees = f"degrees {above} and {below}"
        print(f"# {name}: x P(x^2) / Q(x^2), {degrees}, on [0, {limit}], error {error:.2g}")
        _print(f"{name}_ABOVE", numerator)
        _print(f"{name}_BELOW", denominator)


def _print(name: str, coefficients: list[float]) -> None:
    print(f"{name} = (")
    for value in coefficients:
        print(f"    {value!r},")
    print(")")


if __name__ == "__main__":
    main()
