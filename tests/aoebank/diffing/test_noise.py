"""Times: the noise band, the recorded spread, environments, means and weights."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.diff_sides import side_of

from aoebank import BankFormatError, BankNotFoundError, DiffResult, Event, Provenance, UsageError
from aoebank.diffing.result import TimeVerdict
from aoebank.diffing.run import DiffOptions, MeasuredPair, diff, facts_of, load_weights
from aoebank.formats.provenance import ProvenanceLog
from aoebank.parameters.context import parse_ratio
from aoebank.testing.factories import make_provenance, make_record

KEY = make_record().key
ONE, TWO = {"cpu": "one"}, {"cpu": "two"}


def compare(
    cost_a: float,
    cost_b: float,
    *,
    noise: float = 0.03,
    log_a: tuple[Provenance, ...] = (),
    log_b: tuple[Provenance, ...] = (),
) -> DiffResult:
    a = side_of(make_record(cost_us=cost_a), provenance=log_a)
    b = side_of(make_record(cost_us=cost_b), provenance=log_b)
    return diff(a, b, DiffOptions(noise_ratio=noise))


@pytest.mark.parametrize(
    ("cost_b", "verdict"),
    [
        (10.3, TimeVerdict.WITHIN_NOISE),
        (10.301, TimeVerdict.SLOWER),
        (10 / 1.03, TimeVerdict.WITHIN_NOISE),
        (9.7, TimeVerdict.FASTER),
        (9.71, TimeVerdict.WITHIN_NOISE),
    ],
)
def test_band_is_three_percent_on_both_sides(cost_b: float, verdict: TimeVerdict) -> None:
    (change,) = compare(10.0, cost_b).changes
    assert (change.verdict, change.noise_ratio) == (verdict, 0.03)


def test_without_noise_every_change_of_time_counts() -> None:
    assert compare(10.0, 10.0001, noise=0.0).changes[0].verdict is TimeVerdict.SLOWER


def test_wider_recorded_spread_of_either_side_is_the_band() -> None:
    wide = make_provenance(KEY, tuned_us=(8.0, 10.0, 12.0, 9.0, 11.0))
    for log_a, log_b in (((wide,), ()), ((), (wide,))):
        (change,) = compare(10.0, 11.0, log_a=log_a, log_b=log_b).changes
        assert change.verdict is TimeVerdict.WITHIN_NOISE
        assert change.noise_ratio == pytest.approx(0.14826)
    assert compare(10.0, 12.0, log_a=(wide,)).changes[0].verdict is TimeVerdict.SLOWER


def test_times_of_different_environments_are_shown_and_never_judged() -> None:
    log_a, log_b = (make_provenance(KEY, fingerprint=fingerprint) for fingerprint in (ONE, TWO))
    result = compare(10.0, 99.0, log_a=(log_a,), log_b=(log_b,))
    (change,) = result.changes
    assert change.verdict is TimeVerdict.NOT_COMPARABLE
    assert change.cost_ratio == 9.9
    assert result.regressions() == ()
    assert result.times() is None


def test_environment_is_the_one_of_the_entry_that_stored_the_record() -> None:
    stored = make_provenance(KEY, fingerprint=ONE)
    later = make_provenance(KEY, fingerprint=TWO, event=Event.RESERVED, tuned_us=(1.0, 9.0, 30.0))
    (change,) = compare(10.0, 20.0, log_a=(stored,), log_b=(stored, later)).changes
    assert (change.verdict, change.noise_ratio) == (TimeVerdict.SLOWER, 0.03)


def test_order_of_members_makes_no_other_environment() -> None:
    a, b = (
        make_provenance(
            KEY, fingerprint=dict(sorted({"x": 1, "y": 2}.items(), reverse=is_reversed))
        )
        for is_reversed in (False, True)
    )
    assert compare(10.0, 20.0, log_a=(a,), log_b=(b,)).changes[0].verdict is TimeVerdict.SLOWER


def test_unknown_environment_on_one_side_does_not_forbid_a_verdict() -> None:
    log = (make_provenance(KEY, fingerprint=ONE),)
    assert compare(10.0, 20.0, log_a=log).changes[0].verdict is TimeVerdict.SLOWER


def test_side_cars_are_read_only_when_a_time_has_to_be_judged() -> None:
    def refuse() -> ProvenanceLog:
        raise AssertionError("read")

    pair = MeasuredPair(load_a=refuse, load_b=refuse, noise_ratio=0.03)
    assert pair.judge(KEY, None, 1.0) == (TimeVerdict.UNKNOWN, 0.0)


def test_mean_is_geometric_and_weighted_by_use() -> None:
    a = side_of(make_record(0, cost_us=10.0), make_record(1, cost_us=10.0))
    uses = make_provenance(make_record(0).key, op_names=("n1", "n2", "n3"))
    again = make_provenance(make_record(0).key, op_names=("n1",), event=Event.RESERVED)
    b = side_of(make_record(0, cost_us=20.0), make_record(1, cost_us=5.0), provenance=(uses, again))
    times = diff(a, b).times()
    assert times is not None
    assert times.mean_ratio == pytest.approx(1)
    assert times.weighted_mean_ratio == pytest.approx(2**0.5)
    assert (times.records, times.worst_ratio) == (2, pytest.approx(2))


def test_weights_given_replace_those_of_the_side_cars_and_unnamed_keys_are_unused() -> None:
    a = side_of(make_record(0, cost_us=10.0), make_record(1, cost_us=10.0))
    b = side_of(make_record(0, cost_us=20.0), make_record(1, cost_us=5.0))
    times = diff(a, b, DiffOptions(weights={make_record(1).key: 7.0})).times()
    assert times is not None
    assert times.weighted_mean_ratio == pytest.approx(0.5)
    nothing = diff(a, b, DiffOptions(weights={})).times()
    assert nothing is not None
    assert nothing.weighted_mean_ratio is None


def test_same_node_of_two_models_is_two_uses() -> None:
    entries = [
        make_provenance(KEY, op_names=("n",), model={"sha256": sha, "name": "m"}) for sha in "aab"
    ]
    log = ProvenanceLog(entries=tuple(entries), findings=())
    assert len(facts_of(log).uses[KEY]) == 2


@pytest.mark.parametrize(
    ("text", "ratio"),
    [("3%", 0.03), ("0.03", 0.03), ("0", 0), (" 5 % ", 0.05), ("150%", 1.5), (".5", 0.5)],
)
def test_ratio_may_be_a_percentage_or_below_one(text: str, ratio: float) -> None:
    assert parse_ratio(text, option="--noise") == pytest.approx(ratio)


@pytest.mark.parametrize("text", ["", "3", "1", "-1%", "3 %%", "nan", "inf%", "x", "1e400%", "٣%"])
def test_anything_else_is_no_ratio(text: str) -> None:
    with pytest.raises(UsageError, match=r"--noise: is no ratio .*expected a percentage as 3%"):
        parse_ratio(text, option="--noise")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"[]", "not one JSON object"),
        (b"{", "not JSON"),
        (b"\xff", "not JSON"),
        (b'{"k": -1}', "weight of 'k' is not usable"),
        (b'{"k": true}', "not usable"),
        (b'{"k": 1e999}', "not usable"),
        (b'{"k": "1"}', "not usable"),
        (b'{"k": NaN}', "not JSON"),
    ],
)
def test_bad_weights_are_an_error(tmp_path: Path, text: bytes, problem: str) -> None:
    (tmp_path / "w.json").write_bytes(text)
    with pytest.raises(BankFormatError, match=problem):
        load_weights(tmp_path / "w.json")


def test_weights_that_are_not_there_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(BankNotFoundError, match="no such file"):
        load_weights(tmp_path / "w.json")


def test_weights_of_huge_spelling_are_refused_not_a_crash(tmp_path: Path) -> None:
    (tmp_path / "w.json").write_text('{"k": ' + "9" * 400 + "}")
    with pytest.raises(BankFormatError):
        load_weights(tmp_path / "w.json")
