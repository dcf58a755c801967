"""`RUN_LOOP` of `aoe.ini` is the number of backward passes."""

from __future__ import annotations

import pytest

from aoe.errors import OptionError
from aoe.tasks.gradients.settings import DEFAULT_LOOPS, checked_loops


def test_loops_are_those_of_the_file() -> None:
    assert checked_loops(None) == DEFAULT_LOOPS
    assert checked_loops(4) == 4


def test_three_loops_are_too_few() -> None:
    with pytest.raises(OptionError, match=r"RUN_LOOP: too few .* \(got 3, expected 4 or more\)"):
        checked_loops(3)
