"""Sizes as people read them."""

from __future__ import annotations

_UNIT = 1024


def size_text(size_bytes: float) -> str:
    """Return a number of bytes with the unit that suits it.

    >>> size_text(512), size_text(2048), size_text(3 << 20)
    ('512 B', '2.0 KiB', '3.0 MiB')
    """
    if size_bytes < _UNIT:
        return f"{size_bytes:.0f} B"
    size, unit = size_bytes / _UNIT, "KiB"
    for larger in ("MiB", "GiB"):
        if size >= _UNIT:
            size, unit = size / _UNIT, larger
    return f"{size:.1f} {unit}"
