"""Times have the unit that suits them."""

from __future__ import annotations

import pytest

from aoe.report.quantities import time_text


@pytest.mark.parametrize(
    ("time_us", "text"),
    [(0, "0.0 us"), (999.9, "999.9 us"), (1000, "1.00 ms"), (123_456, "123.5 ms"), (2e6, "2.00 s")],
)
def test_times_have_units(time_us: float, text: str) -> None:
    assert time_text(time_us) == text
