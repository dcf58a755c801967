"""How much of a time limit is kept for judging."""

from __future__ import annotations

from aoe.tuning.policies import judging_s


def test_nothing_is_kept_of_no_limit() -> None:
    assert judging_s(None, 1e6) == 0.0


def test_slow_models_keep_more_but_never_more_than_a_quarter() -> None:
    fast, slow, slowest = (judging_s(120.0, ms * 1e3) for ms in (1.0, 20.0, 1000.0))
    assert 0 < fast < slow < slowest == 30.0
    assert judging_s(0.0, 1e6) == 0.0
