"""How much measuring a decision needs, and what it may take where time is short."""

from __future__ import annotations

import math

import pytest

from aoe.tuner.policies import final_policy, variant_policy


def test_without_a_limit_a_busy_machine_is_waited_for() -> None:
    assert final_policy(2).tries == 3 and variant_policy(2).tries == 2


def test_little_time_left_means_shorter_measurements_and_no_waiting() -> None:
    short, long = final_policy(2, left_s=20.0), final_policy(2, left_s=600.0)
    assert short.enough_s < long.enough_s == final_policy(2).enough_s
    assert short.tries == variant_policy(2, left_s=20.0).tries == 1
    assert final_policy(2, left_s=0.0).enough_s > 0


def test_operator_that_is_the_model_has_most_of_the_time_to_decide() -> None:
    whole, most, half = (final_policy(2, left_s=45.0, share=share) for share in (1.0, 0.8, 0.5))
    assert whole.enough_s == final_policy(2).enough_s > most.enough_s > half.enough_s
    assert whole.pairs_max > most.pairs_max > half.pairs_max
    assert whole.pairs_min == half.pairs_min
    assert half == final_policy(2, left_s=45.0)


@pytest.mark.parametrize(
    ("loops", "least", "most"), [(1, 20, 60), (30, 30, 60), (2048, 2048, 2048)]
)
def test_run_loop_raises_what_is_measured_and_never_lowers_it(
    loops: int, least: int, most: int
) -> None:
    policy = final_policy(2, run_loop=loops)
    assert (policy.pairs_min, policy.pairs_max, policy.enough_s) == (least, most, math.inf)
