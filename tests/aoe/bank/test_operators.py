"""The engine's view of a bank: what it finds, believes, writes and remembers."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType

import pytest
from support.contracts.kernels import operation, plain
from support.engine.families import chain_workload
from support.engine.tuning import (
    guess_of,
    guesses_of,
    make_bank,
    make_estimate,
    make_journal,
    make_verdict,
)

from aoe.bank.operators import OperatorBank, key_of
from aoe.bank.sources import kernel_source
from aoe.bank.verdicts import BankNote, KeptKernel, left_open_members
from aoe.measurement import Scatter
from aoe.schedule import Configuration, Schedule
from aoe.workload import Precision, Workload
from aoebank import (
    Bank,
    Event,
    Provenance,
    make_unified_record,
)
from aoebank.formats.provenance import parse_provenance

_EXP = chain_workload(("Exp",))
_TANH = chain_workload(("Tanh",))


def _save(
    bank: OperatorBank,
    workload: Workload = _EXP,
    speedup: float = 2.0,
    event: Event = Event.ADD,
) -> None:
    bank.save(workload, *guess_of(workload), make_verdict(event, speedup, limit=8))


def _judged(event: Event, low: float = 0.995, high: float = 1.0) -> BankNote:
    """Return what a whole model made of a kernel."""
    estimate = replace(make_estimate(1.0), low=low, high=high)
    return BankNote.of_model(event, ("n0",), reason="measured", estimate=estimate)


def _is_hopeless(bank: OperatorBank, workload: Workload, trials: int) -> bool:
    """Return whether a search is known to have found nothing, and noise did not decide that."""
    found = bank.failed_search(workload, trials, threshold=1.03)
    return found is not None and not found.is_open


def test_kernel_the_model_of_an_earlier_result_has_kept_is_known(tmp_path: Path) -> None:
    base = make_bank(tmp_path / "base", model="earlier")
    for workload, verdict in ((_EXP, Event.KEPT), (_TANH, Event.DROPPED)):
        _save(base, workload)
        base.note([(workload, _judged(verdict))])
    journal = make_journal(tmp_path / "own", model="changed")
    bank = OperatorBank(journal, core_num=2, base=Bank(tmp_path / "base"))
    assert bank.kept_before(_EXP) is not None
    assert bank.kept_before(_TANH) is None
    assert bank.model_verdict(_EXP) is None  # this model has still to be asked
    bank.adopt(_EXP)
    assert bank.kept_before(_EXP) is not None
    assert make_bank(tmp_path / "own").kept_before(_EXP) is not None  # it came with the record


def test_kernel_another_model_of_the_bank_has_kept_last_is_known(tmp_path: Path) -> None:
    first = make_bank(tmp_path, model="first")
    for workload, verdict in ((_EXP, Event.KEPT), (_TANH, Event.DROPPED)):
        _save(first, workload)
        first.note([(workload, _judged(verdict))])
    assert first.kept_before(_EXP) is None  # it is its own verdict
    second = make_bank(tmp_path, model="second")
    assert second.kept_before(_EXP) is not None
    assert second.kept_before(_TANH) is None
    assert make_bank(tmp_path, model="second", cpu_model="Other").kept_before(_EXP) is None
    make_bank(tmp_path, model="third").note([(_EXP, _judged(Event.DROPPED))])
    assert make_bank(tmp_path, model="fourth").kept_before(_EXP) is None
    _save(first, event=Event.UPDATE)
    assert make_bank(tmp_path, model="fifth").kept_before(_EXP) is None


def test_line_of_a_kept_kernel_says_where_it_stood_and_how_processes_scattered(
    tmp_path: Path,
) -> None:
    bank = make_bank(tmp_path)
    _save(bank)
    verdict = BankNote.of_model(
        Event.KEPT,
        ("n0",),
        reason="faster",
        estimate=replace(make_estimate(1.1), low=1.095, high=1.105),
        scatter=Scatter(deviation=0.012, processes=5),
        promise=0.125,
        surroundings={"b", "a"},
    )
    bank.note([(_EXP, verdict)])
    journal = make_journal(tmp_path / "own", model="changed")
    found = OperatorBank(journal, core_num=2, base=Bank(tmp_path)).kept_before(_EXP)
    assert found is not None and found.kept_share == pytest.approx(0.8, rel=0.001)
    assert replace(found, kept_share=None) == KeptKernel(
        is_settled=True,
        surroundings=frozenset({"a", "b"}),
        scatter=Scatter(deviation=0.012, processes=5),
    )


@pytest.mark.parametrize("promise", [None, "0.1", 0.0, -0.1, 1])
def test_share_of_a_promise_nobody_can_read_is_none(promise: object) -> None:
    line = Provenance(
        key="k",
        event=Event.KEPT,
        time="2026-01-02T03:04:05Z",
        engine="aoe",
        search={"reason": "x", "model_speedup": [1.1, 1.2], "model_promise": promise},
    )
    assert KeptKernel.of(line).kept_share is None


def test_usual_share_of_a_promise_is_that_of_models_judged_here(tmp_path: Path) -> None:
    def note(bank: OperatorBank, low: float, high: float) -> None:
        estimate = replace(make_estimate(1.1), low=low, high=high)
        verdict = BankNote.of_model(Event.KEPT, ("n0",), reason="x", estimate=estimate, promise=0.2)
        bank.note([(_EXP, verdict)])

    bank = make_bank(tmp_path, model="own")
    assert bank.usual_kept_share(["elementwise"]) is None
    for name, gain in (("first", 1.10), ("second", 1.14), ("third", 1.16)):
        note(make_bank(tmp_path, model=name), gain - 0.001, gain + 0.001)
    note(make_bank(tmp_path, model="noisy"), 1.0, 1.4)
    elsewhere = make_bank(tmp_path, model="elsewhere", cpu_model="Other")
    note(elsewhere, 1.019, 1.021)
    found = make_bank(tmp_path, model="own").usual_kept_share(["elementwise"])
    assert found == pytest.approx(0.7, rel=0.01)
    behind = OperatorBank(
        make_journal(tmp_path / "own", model="own"), core_num=2, base=Bank(tmp_path)
    )
    assert behind.usual_kept_share(["elementwise"]) == found


@pytest.mark.parametrize(
    "odd", [None, 3, [0.01], [0.01, 2], [0.01, "5"], ["0.01", 5], [-0.01, 5], [math.inf, 5]]
)
def test_scatter_nobody_can_read_is_none(odd: object) -> None:
    line = Provenance(
        key="k",
        event=Event.KEPT,
        time="2026-01-02T03:04:05Z",
        engine="aoe",
        search={"reason": "x", "model_scatter": odd, "surroundings": odd},
    )
    assert KeptKernel.of(line).scatter is None


def test_kernel_that_was_replaced_since_is_none_an_earlier_model_has_kept(tmp_path: Path) -> None:
    base = make_bank(tmp_path / "base", model="earlier")
    _save(base)
    base.note([(_EXP, _judged(Event.KEPT))])
    _save(base, event=Event.UPDATE)
    bank = OperatorBank(make_journal(tmp_path / "own"), core_num=2, base=Bank(tmp_path / "base"))
    assert bank.kept_before(_EXP) is None


def test_verdict_of_noise_is_believed_the_second_time(tmp_path: Path) -> None:
    bank = make_bank(tmp_path)
    _save(bank)
    wide = _judged(Event.DROPPED, 0.95, 1.05)
    for verdict in (None, Event.DROPPED):
        bank.note([(_EXP, wide)])
        assert bank.model_verdict(_EXP) is verdict
    bank.note([(_EXP, _judged(Event.KEPT, 0.99, 1.06))])  # once so, once so: asked again
    assert bank.model_verdict(_EXP) is None
    _save(bank, event=Event.UPDATE)
    bank.note([(_EXP, wide)])
    assert bank.model_verdict(_EXP) is None


def test_file_is_named_after_target_and_family(tmp_path: Path) -> None:
    file = make_bank(tmp_path).file("lrn")
    assert file == tmp_path / "x86-64-test" / "unified_bank" / "x86-64-test_2_AiCore_lrn.json"


def test_saved_record_is_found_by_another_run(tmp_path: Path) -> None:
    _save(make_bank(tmp_path))
    schedule, configuration = guess_of(_EXP)
    found = make_bank(tmp_path, model="other").find(_EXP)
    assert found is not None
    assert found.key == key_of(_EXP)
    assert found.schedule == schedule
    assert found.configuration == configuration
    assert found.cost_us == 500.0
    assert found.speedup == 2.0


def test_key_depends_on_the_computation_and_on_nothing_else(tmp_path: Path) -> None:
    assert key_of(_EXP) == key_of(chain_workload(("Exp",)))
    assert key_of(_EXP) != key_of(_TANH)
    assert key_of(_EXP) != key_of(chain_workload(("Exp",), shape=(1, 8, 32, 33)))


def test_empty_bank_is_a_miss_and_is_not_created(tmp_path: Path) -> None:
    bank = make_bank(tmp_path / "new")
    assert bank.find(_EXP) is None
    assert bank.nearest(_EXP) == ()
    assert bank.model_verdict(_EXP) is None
    assert not _is_hopeless(bank, _EXP, 1)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("strategy", "invalid_reason"),
    [
        ({"tiling": 1}, None),
        ({"engine": "other", "knobs": {}, "steps": []}, None),
        ("text", None),
        ({"engine": "aoe"}, "schedule: must be a list of steps (got NoneType)"),
        (
            {"engine": "aoe", "knobs": {}, "steps": [["no_such_step"]]},
            "schedule[0]: unknown step (got 'no_such_step'",
        ),
        ({"engine": "aoe", "knobs": {}, "steps": "text"}, "schedule: must be a list of steps"),
        ({"engine": "aoe", "knobs": 3, "steps": []}, "knobs: must be an object"),
        ({"engine": "aoe", "knobs": {"tile": [1]}, "steps": []}, "of numbers and words (got {"),
        ({"engine": "aoe", "knobs": {"tile": True}, "steps": []}, "of numbers and words (got {"),
    ],
)
def test_strategy_this_version_cannot_replay_is_a_miss(
    tmp_path: Path, strategy: object, invalid_reason: str | None
) -> None:
    bank = make_bank(tmp_path)
    _save(bank)
    stored = Bank(tmp_path).find(bank.file("elementwise"), key_of(_EXP))
    assert stored is not None
    Bank(tmp_path).put(
        bank.file("elementwise"),
        [make_unified_record(workload=stored.workload, strategy=strategy, cost_us=1.0, origin="x")],
    )
    fresh = make_bank(tmp_path)
    assert fresh.find(_EXP) is None
    assert fresh.nearest(_EXP) == ()
    found = fresh.invalid_reason(_EXP)
    assert found is None if invalid_reason is None else invalid_reason in str(found)
    _save(fresh)
    assert fresh.find(_EXP) is not None
    assert fresh.invalid_reason(_EXP) is None


def test_record_that_is_broken_is_a_miss_that_says_why(tmp_path: Path) -> None:
    bank = make_bank(tmp_path)
    _save(bank)
    file = bank.file("elementwise")
    file.write_text(file.read_text().replace('"cost_time": 500.0', '"cost_time": "fast"'))
    fresh = make_bank(tmp_path)
    assert fresh.find(_EXP) is None
    assert "cost_time" in str(fresh.invalid_reason(_EXP))
    assert fresh.quarantine_reason(_EXP) is None


def test_unscheduled_kernel_is_a_strategy_too(tmp_path: Path) -> None:
    bank = make_bank(tmp_path)
    bank.save(_EXP, Schedule(), Configuration({}), make_verdict(Event.ADD, 2.0))
    found = make_bank(tmp_path).find(_EXP)
    assert found is not None
    assert found.schedule == Schedule()


def test_nearest_are_the_same_operators_of_the_nearest_size(tmp_path: Path) -> None:
    bank = make_bank(tmp_path)
    sizes = {(1, 8, 32, 64): 2, (1, 8, 320, 320): 1, (1, 8, 32, 40): 0}
    for shape, number in sizes.items():
        workload = chain_workload(("Exp",), shape=shape)
        configuration = guesses_of(workload)[0].changed("marker", number)
        bank.save(workload, guess_of(workload)[0], configuration, make_verdict(Event.ADD, 2.0))
    _save(bank, _TANH)
    assert all(near.is_of_this_run for near in bank.nearest(_EXP))
    found = make_bank(tmp_path).nearest(_EXP)
    assert not any(near.is_of_this_run for near in found)
    assert [near.configuration["marker"] for near in found] == [0, 2, 1]
    assert len(make_bank(tmp_path).nearest(_EXP, limit=1)) == 1
    assert {near.speedup for near in found} == {2.0}
    elsewhere = make_bank(tmp_path, onnxruntime="1.24.0").nearest(_EXP)
    assert {near.speedup for near in elsewhere} == {None} and len(elsewhere) == len(found)


def _convolution(channels: int, side: int, group: int = 1) -> Workload:
    image = plain(1, channels, 56, 56)
    attributes = {} if group == 1 else {"group": group}
    return Workload(
        op_type="conv_nchw",
        inputs=(image, plain(channels, channels // group, side, side)),
        operations=(operation("Conv", "x0 x1", kernel_shape=(side, side), **attributes),),
        output=image,
    )


def test_nearest_convolution_is_one_with_filters_of_about_the_same_size(tmp_path: Path) -> None:
    bank = make_bank(tmp_path)
    for number, (channels, side) in enumerate([(64, 1), (32, 3), (64, 5)]):
        workload = _convolution(channels, side)
        configuration = Configuration({"marker": number})
        bank.save(workload, Schedule(), configuration, make_verdict(Event.ADD, 2.0))
    found = bank.nearest(_convolution(64, 3))
    assert found[0].configuration["marker"] == 2


def test_nearest_convolution_of_another_geometry_promises_no_speedup(tmp_path: Path) -> None:
    bank = make_bank(tmp_path)
    bank.save(_convolution(64, 3), Schedule(), Configuration({}), make_verdict(Event.ADD, 2.0))
    promised = {
        (channels, side, group): bank.nearest(_convolution(channels, side, group))[0].speedup
        for channels, side, group in [(32, 3, 1), (64, 5, 1), (64, 3, 64)]
    }
    assert promised == {(32, 3, 1): 2.0, (64, 5, 1): None, (64, 3, 64): None}


@contextmanager
def _parsed_lines() -> Iterator[list[int]]:
    """Yield the number of lines of each parse of a side-car, whoever asks for it."""
    lines: list[int] = []

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code is parse_provenance.__code__:
            lines.append(frame.f_locals["data"].count(b"\n"))

    sys.setprofile(note)
    try:
        yield lines
    finally:
        sys.setprofile(None)


@pytest.mark.parametrize("count", [10, 40])
def test_run_over_many_records_parses_each_line_once(tmp_path: Path, count: int) -> None:
    """For each operator of a run everything is asked and something written."""
    workloads = [chain_workload(("Exp",), shape=(1, 8, 8, extent + 1)) for extent in range(count)]
    for workload in workloads:
        _save(make_bank(tmp_path), workload)
    bank = make_bank(tmp_path)
    with _parsed_lines() as lines:
        for workload in workloads:
            assert bank.find(workload) is not None
            assert len(bank.nearest(workload)) == 1
            assert bank.model_verdict(workload) is None
            assert not _is_hopeless(bank, workload, 1)
            _save(bank, workload, event=Event.UPDATE)
    assert sum(lines) == count + (count - 1)  # those that were there, and what was added between


def test_equal_configurations_are_offered_once(tmp_path: Path) -> None:
    bank = make_bank(tmp_path)
    schedule, configuration = guess_of(_EXP)
    for extent in (33, 34):
        workload = chain_workload(("Exp",), shape=(1, 8, 32, extent))
        bank.save(workload, schedule, configuration, make_verdict(Event.ADD, 2.0))
    assert [near.configuration for near in bank.nearest(_EXP)] == [configuration]


# ---- what is believed ----


@pytest.mark.parametrize(
    "changed", [{"cpu_model": "Other"}, {"halide": "22"}, {"onnxruntime": "2"}, {"core_num": 4}]
)
def test_verdicts_of_another_environment_are_not_believed(
    tmp_path: Path, changed: dict[str, object]
) -> None:
    bank = make_bank(tmp_path)
    bank.note([(_EXP, make_verdict(Event.UNSATISFIED, limit=10))])
    bank.note([(_TANH, _judged(Event.DROPPED))])
    other = make_bank(tmp_path, **changed)
    assert not _is_hopeless(other, _EXP, 1)
    assert other.model_verdict(_TANH) is None


def test_success_after_a_hopeless_search_is_not_hopeless(tmp_path: Path) -> None:
    bank = make_bank(tmp_path)
    bank.note([(_EXP, make_verdict(Event.UNSATISFIED, limit=10))])
    _save(bank)
    assert not _is_hopeless(bank, _EXP, 1)


@pytest.mark.parametrize("limit", [None, "10", 10.5, [10]])
def test_odd_side_car_is_no_verdict(tmp_path: Path, limit: object) -> None:
    bank = make_bank(tmp_path)
    bank.note([(_EXP, make_verdict(Event.UNSATISFIED, limit=limit))])
    assert not _is_hopeless(bank, _EXP, 1)


@pytest.mark.parametrize(
    ("low", "high", "believed"),
    [(0.98, 1.0, True), (0.9, 1.02, True), (1.02, 1.035, True), (0.99, 1.1, False)],
)
def test_wide_interval_around_the_threshold_proves_nothing(
    tmp_path: Path, low: float, high: float, believed: bool
) -> None:
    bank = make_bank(tmp_path)
    verdict = make_verdict(Event.UNSATISFIED, limit=10)
    estimate = replace(make_estimate(1.0), low=low, high=high)
    bank.note([(_EXP, replace(verdict, estimate=estimate))])
    assert _is_hopeless(bank, _EXP, 10) is believed


def test_best_candidate_of_a_search_noise_decided_is_looked_at_once_more(tmp_path: Path) -> None:
    bank = make_bank(tmp_path)
    _, best = guess_of(_EXP)
    wide = replace(make_estimate(1.0), low=0.99, high=1.1)
    for is_again in (False, True):
        search = {"limit": 10, **left_open_members(best, is_again=is_again)}
        bank.note([(_EXP, replace(make_verdict(Event.UNSATISFIED, **search), estimate=wide))])
        found = make_bank(tmp_path).failed_search(_EXP, 10, threshold=1.03)
        assert found is not None and found.is_open is not is_again
        assert found.best == (None if is_again else best)
        assert (found.expected > 0) is not is_again
    assert make_bank(tmp_path).failed_search(_EXP, 11, threshold=1.03) is None


@pytest.mark.parametrize("best", [None, 3, {"tile": [1]}, {"tile": None}])
def test_candidate_nobody_can_read_leaves_a_search_to_make(tmp_path: Path, best: object) -> None:
    bank = make_bank(tmp_path)
    verdict = make_verdict(Event.UNSATISFIED, limit=10, best=best)
    estimate = replace(make_estimate(1.0), low=0.99, high=1.1)
    bank.note([(_EXP, replace(verdict, estimate=estimate))])
    found = bank.failed_search(_EXP, 10, threshold=1.03)
    assert found is not None and (found.is_open, found.best) == (True, None)


def test_verdict_of_a_model_is_its_own(tmp_path: Path) -> None:
    bank = make_bank(tmp_path)
    _save(bank)
    bank.note([(_EXP, _judged(Event.DROPPED))])
    assert make_bank(tmp_path).model_verdict(_EXP) is Event.DROPPED
    assert make_bank(tmp_path, model="other").model_verdict(_EXP) is None
    bank.note([(_EXP, _judged(Event.KEPT))])
    assert make_bank(tmp_path).model_verdict(_EXP) is Event.KEPT


@pytest.mark.parametrize(
    ("low", "high", "settled"),
    [
        (1.49, 1.51, {Event.KEPT, Event.DROPPED}),  # narrow
        (0.99, 1.009, {Event.KEPT, Event.DROPPED}),
        (1.11, 1.15, {Event.KEPT}),  # further from 1 than it is wide
        (0.7, 0.8, {Event.DROPPED}),
        (1.05, 1.2, set()),
        (0.9, 0.99, set()),
        (0.95, 1.1, set()),
    ],
)
def test_verdict_is_judged_again_if_its_interval_is_wide_and_near_1(
    tmp_path: Path, low: float, high: float, settled: set[Event]
) -> None:
    for event in (Event.KEPT, Event.DROPPED):
        bank = make_bank(tmp_path / event)
        _save(bank)
        bank.note([(_EXP, _judged(event, low, high))])
        found = make_bank(tmp_path / event).model_verdict(_EXP)
        assert found is (event if event in settled else None)


def test_gain_that_was_expected_is_settled_however_wide_its_interval(tmp_path: Path) -> None:
    estimate = replace(make_estimate(1.08), low=1.01, high=1.15)
    for event in (Event.KEPT, Event.DROPPED):
        bank = make_bank(tmp_path / event)
        _save(bank)
        note = BankNote.of_model(event, ("n0",), reason="x", estimate=estimate, is_as_expected=True)
        bank.note([(_EXP, note)])
        found = make_bank(tmp_path / event).model_verdict(_EXP)
        assert found is (event if event is Event.KEPT else None)


def test_verdict_that_no_time_decided_is_settled(tmp_path: Path) -> None:
    bank = make_bank(tmp_path)
    _save(bank)
    bank.note([(_EXP, BankNote.of_model(Event.DROPPED, (), reason="wrong", estimate=None))])
    assert bank.model_verdict(_EXP) is Event.DROPPED


@pytest.mark.parametrize(
    "search",
    [
        {},
        {"reason": 3},
        *({"reason": "x", "model_speedup": odd} for odd in ("1", [1.0], [0.0, 1.0], ["1", "1"], 1)),
        {"reason": "x", "model_speedup": [1.1, 1.0]},
    ],
)
def test_verdict_nobody_can_read_is_none(tmp_path: Path, search: dict[str, object]) -> None:
    """Lines of earlier versions say nothing about the interval: they are judged once more."""
    bank = make_bank(tmp_path)
    bank.note([(_EXP, BankNote(event=Event.DROPPED, search=search))])
    assert bank.model_verdict(_EXP) is None


@pytest.mark.parametrize("model", ["net", "other"])
def test_replaced_record_has_no_verdict_yet(tmp_path: Path, model: str) -> None:
    bank = make_bank(tmp_path)
    _save(bank)
    bank.note([(_EXP, _judged(Event.DROPPED))])
    _save(make_bank(tmp_path, model=model), speedup=3.0, event=Event.UPDATE)
    assert make_bank(tmp_path).model_verdict(_EXP) is None


@pytest.mark.parametrize("event", [Event.RESERVED, Event.UNSATISFIED])
def test_verdict_survives_a_search_that_changed_nothing(tmp_path: Path, event: Event) -> None:
    bank = make_bank(tmp_path)
    bank.note([(_EXP, _judged(Event.KEPT))])
    bank.note([(_EXP, make_verdict(event))])
    assert bank.model_verdict(_EXP) is Event.KEPT


# ---- what is written ----


def test_notes_of_several_families_go_to_their_files(tmp_path: Path) -> None:
    bank = make_bank(tmp_path)
    other = replace(_EXP, op_type="lrn")
    bank.note([(_EXP, _judged(Event.KEPT)), (other, _judged(Event.DROPPED))])
    assert bank.model_verdict(_EXP) is Event.KEPT
    assert bank.model_verdict(other) is Event.DROPPED
    assert bank.find(_EXP) is None


def test_precisions_share_neither_records_nor_guesses(tmp_path: Path) -> None:
    bank = make_bank(tmp_path)
    lower = replace(_EXP, precision=Precision.BFLOAT16)
    _save(bank, lower)
    assert make_bank(tmp_path).find(_EXP) is None
    assert make_bank(tmp_path).nearest(_EXP) == ()
    assert make_bank(tmp_path).find(lower) is not None
    assert len(make_bank(tmp_path).nearest(lower)) == 1


def test_copy_has_the_records_asked_for_and_all_that_was_noted_of_them(tmp_path: Path) -> None:
    bank = make_bank(tmp_path / "all")
    _save(bank)
    _save(bank, _TANH)
    bank.note([(_EXP, _judged(Event.KEPT))])
    missing = chain_workload(("Neg",))
    for _ in range(2):  # a second run into the same place repeats nothing
        bank.copy_to(tmp_path / "new" / "copy", [_EXP, missing])
    copy = make_bank(tmp_path / "new" / "copy")
    found, stored = copy.find(_EXP), bank.find(_EXP)
    assert found is not None and stored is not None
    assert replace(found, file=stored.file) == stored
    assert (copy.find(_TANH), copy.find(missing)) == (None, None)
    events = [entry.event for entry in Bank(tmp_path / "new" / "copy").iter_provenance(found.file)]
    assert events == [Event.ADD, Event.KEPT]
    assert copy.model_verdict(_EXP) is Event.KEPT


def test_copy_keeps_what_is_there_and_nothing_is_copied_onto_itself(tmp_path: Path) -> None:
    first, second = make_bank(tmp_path / "first"), make_bank(tmp_path / "second")
    _save(first)
    _save(second, _TANH)
    first.copy_to(tmp_path / "second", [_EXP])
    assert second.find(_TANH) is not None and second.find(_EXP) is not None
    before = {file: file.read_bytes() for file in tmp_path.rglob("*.json*")}
    first.copy_to(tmp_path / "second" / ".." / "first", [_EXP])
    assert {file: file.read_bytes() for file in tmp_path.rglob("*.json*")} == before


# ---- fingerprints ----


def _bank_of(root: Path, source: str | None, **fingerprint: str) -> OperatorBank:
    """Return a bank whose kernels are made by a certain source."""
    journal = make_journal(root, **fingerprint)
    return OperatorBank(journal, core_num=2, source_of=lambda op_type: source)


def test_record_carries_the_source_its_kernel_is_made_by(tmp_path: Path) -> None:
    bank = make_bank(tmp_path)
    _save(bank)
    (line,) = Bank(tmp_path).iter_provenance(bank.file("elementwise"))
    assert line.fingerprint["kernel_source"] == kernel_source("elementwise")
    found = make_bank(tmp_path).find(_EXP)
    assert found is not None
    assert found.remeasure_reasons == ()


def test_record_of_another_kernel_source_is_a_miss_with_the_reason(tmp_path: Path) -> None:
    _save(_bank_of(tmp_path, "a"))
    changed = _bank_of(tmp_path, "b")
    assert changed.find(_EXP) is None
    assert changed.invalid_reason(_EXP) == "kernel source changed: stale"
    assert changed.nearest(_EXP) != ()  # its knobs are good guesses still
    _save(changed, event=Event.UPDATE)
    assert _bank_of(tmp_path, "b").find(_EXP) is not None
    assert _bank_of(tmp_path, "a").find(_EXP) is None


def test_record_of_a_cpu_with_more_instructions_is_a_miss(tmp_path: Path) -> None:
    _save(make_bank(tmp_path, features="avx2-avx512"))
    assert make_bank(tmp_path).find(_EXP) is None
    assert make_bank(tmp_path).invalid_reason(_EXP) == "instructions that are not here: avx512"


def test_record_of_another_library_version_is_used_and_doubted(tmp_path: Path) -> None:
    _save(make_bank(tmp_path))
    found = make_bank(tmp_path, onnxruntime="1.31.0").find(_EXP)
    assert found is not None
    assert found.remeasure_reasons == (
        "onnxruntime 1.23.0 -> 1.31.0: soft mismatch, to be checked again",
    )


def test_record_without_fingerprint_is_used_and_doubted(tmp_path: Path) -> None:
    bank = make_bank(tmp_path)
    _save(bank)
    bank.file("elementwise").with_name(f"{bank.file('elementwise').name}.provenance.jsonl").unlink()
    found = make_bank(tmp_path).find(_EXP)
    assert found is not None
    assert found.remeasure_reasons[0].startswith("no fingerprint")


def test_verdicts_about_another_kernel_source_are_not_believed(tmp_path: Path) -> None:
    bank = _bank_of(tmp_path, "a")
    bank.note([(_EXP, make_verdict(Event.UNSATISFIED, limit=8))])
    _save(bank, _TANH)
    bank.note([(_TANH, _judged(Event.KEPT))])
    assert _is_hopeless(bank, _EXP, 8)
    assert bank.model_verdict(_TANH) is Event.KEPT
    changed = _bank_of(tmp_path, "b")
    assert not _is_hopeless(changed, _EXP, 8)
    assert changed.model_verdict(_TANH) is None
