"""D9: when a workload is tuned, and what becomes of its record."""

from __future__ import annotations

from dataclasses import replace
from itertools import repeat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.engine.families import chain_workload
from support.engine.tuning import guess_of, make_bank, make_estimate, make_verdict

from aoe.bank.operators import OperatorBank
from aoe.bank.records.operator import StoredAnswer
from aoe.measurement import SpeedupEstimate
from aoe.results.files import RepoOutcome
from aoe.schedule import Schedule
from aoe.tasks.operators.lookup import (
    ACCEPT_SPEEDUP,
    NOTABLE_SPEEDUP,
    OperatorLookup,
    look_up,
    settle,
)
from aoebank import Event

_EXP = chain_workload(("Exp",))


def _stored() -> StoredAnswer:
    schedule, configuration = guess_of(_EXP)
    return StoredAnswer(
        key="k",
        schedule=schedule,
        configuration=configuration,
        cost_us=10.0,
        speedup=2.0,
        speedup_low=2.0,
        file=Path("bank.json"),
    )


def _looked_up(
    bank: OperatorBank,
    *,
    repeat_tune: bool = False,
    trials: int = 8,
    invalid_reason: str = "",
    share: float = 1.0,
) -> OperatorLookup:
    return look_up(
        bank,
        _EXP,
        repeat_tune=repeat_tune,
        trials=trials,
        invalid_reason_of=lambda schedule: invalid_reason,
        share=share,
    )


# ---- before the search ----


def test_few_answers_of_ranges_are_checked(tmp_path: Path) -> None:
    checked = list[Schedule]()

    def invalid_reason_of(schedule: Schedule) -> str:
        checked.append(schedule)
        return "too large"

    found = look_up(
        make_bank(tmp_path),
        _EXP,
        repeat_tune=False,
        trials=8,
        invalid_reason_of=invalid_reason_of,
        covering=repeat(_stored()),
    )
    assert found.tune and found.covering is None and len(checked) == 4


def test_hit_under_an_old_name_says_so(tmp_path: Path) -> None:
    old = make_bank(tmp_path, soc_version="x86-64-v4")
    old.save(_EXP, *guess_of(_EXP), make_verdict(Event.ADD, 2.0))
    found = _looked_up(make_bank(tmp_path, soc_version="x86-64-zen4"), repeat_tune=False, trials=8)
    assert not found.tune
    assert found.stored is not None and found.stored.speedup == 2.0
    assert found.reason == "in the bank, under the old name x86-64-v4"


def test_hopeless_workload_is_not_searched_again_unless_repeat_tune(tmp_path: Path) -> None:
    bank = make_bank(tmp_path)
    bank.note([(_EXP, make_verdict(Event.UNSATISFIED, limit=8))])
    found = _looked_up(bank, repeat_tune=False, trials=8)
    assert not found.tune
    assert found.stored is None
    assert "default was best" in found.reason
    assert _looked_up(bank, repeat_tune=False, trials=9).tune
    assert _looked_up(bank, repeat_tune=True, trials=8).tune


@pytest.mark.parametrize(
    ("share", "tune"), [(1.0, True), (0.05, True), (0.02, False), (0.0, False)]
)
def test_noise_is_looked_at_again_only_where_the_model_may_gain(
    tmp_path: Path, share: float, tune: bool
) -> None:
    """Of 5 % of the model's time a tenth of a percent is to be expected, of 2 % less."""
    bank = make_bank(tmp_path)
    verdict = make_verdict(Event.UNSATISFIED, 1.02, limit=8)
    bank.note([(_EXP, replace(verdict, estimate=make_estimate(1.02, 0.08)))])
    assert _looked_up(bank, share=share).tune is tune


def test_profile_that_reads_another_share_looks_at_nothing_again(tmp_path: Path) -> None:
    """What is expected hardly depends on how large an operator seems; what might be at most did."""
    bank = make_bank(tmp_path)
    slow = replace(make_verdict(Event.UNSATISFIED, limit=8), estimate=make_estimate(0.98, 0.1))
    bank.note([(_EXP, slow)])
    assert {_looked_up(bank, share=share).tune for share in (0.008, 0.012, 0.016)} == {False}


def test_record_nobody_can_read_is_a_miss_that_says_why(tmp_path: Path) -> None:
    bank = make_bank(tmp_path)
    bank.save(_EXP, *guess_of(_EXP), make_verdict(Event.ADD, 2.0))
    file = bank.file("elementwise")
    file.write_text(file.read_text().replace('"split"', '"spilt"', 1))
    found = _looked_up(make_bank(tmp_path))
    assert (found.stored, found.tune) == (None, True)
    assert "unknown step (got 'spilt'" in found.invalid_reason


def test_flawed_record_is_not_searched_for_again_and_again(tmp_path: Path) -> None:
    bank = make_bank(tmp_path)
    bank.save(_EXP, *guess_of(_EXP), make_verdict(Event.ADD, 2.0))
    bank.note([(_EXP, make_verdict(Event.UNSATISFIED, limit=8))])
    found = _looked_up(bank, invalid_reason="y: no such loop")
    assert (found.stored, found.tune, found.invalid_reason) == (None, False, "y: no such loop")


# ---- after it: the whole truth table ----

_BEST = {
    "none": None,
    "slower": make_estimate(0.8),
    "barely": make_estimate(ACCEPT_SPEEDUP + 0.001, 0.01),
    "good": make_estimate(2.0),
}
_NOW = {
    "none": None,
    "slower": make_estimate(0.9),
    "same": make_estimate(2.0),
    "almost": make_estimate(2.0 / (NOTABLE_SPEEDUP - 0.001)),
}

_EXPECTED = {
    # (hit, best candidate, the record's strategy now)
    (False, "none", "none"): RepoOutcome.UNSATISFIED,
    (False, "slower", "none"): RepoOutcome.UNSATISFIED,
    (False, "barely", "none"): RepoOutcome.UNSATISFIED,
    (False, "good", "none"): RepoOutcome.ADD,
    (True, "none", "none"): RepoOutcome.RESERVED,
    (True, "none", "slower"): RepoOutcome.RESERVED,
    (True, "none", "same"): RepoOutcome.RESERVED,
    (True, "none", "almost"): RepoOutcome.RESERVED,
    (True, "slower", "almost"): RepoOutcome.RESERVED,
    (True, "barely", "almost"): RepoOutcome.RESERVED,
    (True, "good", "almost"): RepoOutcome.RESERVED,
    (True, "slower", "none"): RepoOutcome.RESERVED,
    (True, "slower", "slower"): RepoOutcome.RESERVED,
    (True, "slower", "same"): RepoOutcome.RESERVED,
    (True, "barely", "none"): RepoOutcome.RESERVED,
    (True, "barely", "slower"): RepoOutcome.RESERVED,
    (True, "barely", "same"): RepoOutcome.RESERVED,
    (True, "good", "none"): RepoOutcome.UPDATE,
    (True, "good", "slower"): RepoOutcome.UPDATE,
    (True, "good", "same"): RepoOutcome.RESERVED,
}


@pytest.mark.parametrize(("case", "outcome"), _EXPECTED.items(), ids=str)
def test_outcome_follows_the_table(case: tuple[bool, str, str], outcome: RepoOutcome) -> None:
    hit, best, now = case
    assert settle(_stored() if hit else None, _BEST[best], _NOW[now]) is outcome


_ESTIMATES = st.none() | st.builds(make_estimate, st.floats(0.1, 10), st.floats(0, 0.05))


@given(best=_ESTIMATES, now=_ESTIMATES, hit=st.booleans())
def test_nothing_is_written_that_is_not_surely_better_than_the_default(
    best: SpeedupEstimate | None, now: SpeedupEstimate | None, hit: bool
) -> None:
    outcome = settle(_stored() if hit else None, best, now)
    if outcome in (RepoOutcome.ADD, RepoOutcome.UPDATE):
        assert best is not None
        assert best.low > ACCEPT_SPEEDUP
    assert (outcome in (RepoOutcome.UPDATE, RepoOutcome.RESERVED)) == hit
