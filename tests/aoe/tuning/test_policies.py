"""How much of a time limit is kept for judging."""

from __future__ import annotations

import math

import pytest

from aoe.tuning.policies import final_policy, judging_s


def test_nothing_is_kept_of_no_limit() -> None:
    assert judging_s(None, 1e6) == 0.0


def test_slow_models_keep_more_but_never_more_than_a_quarter() -> None:
    fast, slow, slowest = (judging_s(120.0, ms * 1e3) for ms in (1.0, 20.0, 1000.0))
    assert 0 < fast < slow < slowest == 30.0
    assert judging_s(0.0, 1e6) == 0.0


@pytest.mark.parametrize(
    ("loops", "least", "most"), [(1, 20, 60), (30, 30, 60), (2048, 2048, 2048)]
)
def test_run_loop_raises_what_is_measured_and_never_lowers_it(
    loops: int, least: int, most: int
) -> None:
    policy = final_policy(2, run_loop=loops)
    assert (policy.pairs_min, policy.pairs_max, policy.enough_s) == (least, most, math.inf)
