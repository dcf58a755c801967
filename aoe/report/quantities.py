"""Times for people."""

from __future__ import annotations

SHORTEST_US = 1e-6
"""A time below this is drawn as none: a picosecond is an error of rounding."""


def time_text(time_us: float) -> str:
    """Return a time with the unit that suits it, three digits or more.

    >>> time_text(12.34), time_text(4567.8), time_text(12_345_678)
    ('12.3 us', '4.57 ms', '12.35 s')
    """
    if time_us < 1000:
        return f"{time_us:.1f} us"
    if time_us < 1_000_000:
        time_ms = time_us / 1000
        return f"{time_ms:.2f} ms" if time_ms < 100 else f"{time_ms:.1f} ms"
    return f"{time_us / 1e6:.2f} s"
