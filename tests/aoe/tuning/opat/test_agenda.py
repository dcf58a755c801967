"""What is tuned first, and with how many trials."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.engine.families import chain_workload
from support.engine.tuning import make_bank, make_estimate, make_measurement, make_operator

from aoe.graph.regions import Region
from aoe.kernels.family import KernelTarget
from aoe.results.files import RepoOutcome
from aoe.schedule import Configuration, Schedule
from aoe.testing.fakes import RATES, RecordingProgress, ScriptedRunner, make_target
from aoe.testing.kernels import operation, plain
from aoe.tuning.mode import TuneSettings
from aoe.tuning.opat.agenda import Agenda, TunedOperators, tune_found
from aoe.tuning.opat.loop import SearchResult, TrialRecord
from aoe.tuning.opat.operator import OperatorTools, TunedOperator
from aoe.tuning.opat.operators import FoundOperators, Operator
from aoe.workload import Precision, Workload

_MODEL_US = 100_000.0
_TRIALS = 24


def _agenda(model_us: float = _MODEL_US, trials: int = _TRIALS) -> Agenda:
    return Agenda(
        rates=RATES, target=KernelTarget.of(make_target()), model_us=model_us, trials=trials
    )


def _first(agenda: Agenda, *operators: Operator) -> Operator:
    return agenda.next(operators)[0]


def _product(columns: int = 512, precision: Precision = Precision.FLOAT32) -> Workload:
    return Workload(
        op_type="matmul",
        inputs=(plain(512, 512), plain(512, columns, constant=True)),
        operations=(operation("MatMul", "x0 x1"),),
        output=plain(512, columns),
        precision=precision,
    )


def _chain(op_type: str = "Exp", rows: int = 64) -> Workload:
    return chain_workload((op_type,), shape=(1, 16, rows, 64))


def _operator(workload: Workload, default_us: float, places: int = 1) -> Operator:
    """Return an operator at places of its own, but for the precision it is computed in."""
    names = tuple(f"n{number}" for number in range(places))
    made = make_operator(workload, op_names=names)
    first = sum(map(ord, str((workload.operations, workload.output.shape))))
    regions = tuple(
        replace(region, nodes=(1000 * first + number,))
        for number, region in enumerate(made.regions)
    )
    return replace(made, regions=regions, default_us=default_us)


def _tuned(operator: Operator, speedup: float | None) -> TunedOperator:
    """Return an operator that was searched with four trials; None: nothing was won."""
    measurement = make_measurement(speedup or 1.0)
    trial = TrialRecord(configuration=Configuration({}), measurement=measurement)
    return TunedOperator(
        operator=operator,
        outcome=RepoOutcome.ADD if speedup else RepoOutcome.UNSATISFIED,
        reason="",
        schedule=Schedule(()) if speedup else None,
        speedup=speedup or 1.0,
        estimate=make_estimate(speedup or 1.0),
        search=SearchResult(trials=(trial,) * 4),
    )


def test_what_takes_longest_comes_first_among_equals() -> None:
    short, long = _operator(_chain("Exp"), 2000), _operator(_chain("Tanh"), 3000)
    assert _first(_agenda(), short, long) is long


def test_distance_from_the_roofline_counts_not_time() -> None:
    # 512^3 multiply-adds at 1e5 a microsecond are 1,342 us; Tanh moves 0.5 MiB, 5 us
    product, chain = _operator(_product(), 1400), _operator(_chain("Tanh"), 1000)
    assert _first(_agenda(), product, chain) is chain


def test_lower_precision_has_more_room() -> None:
    target = KernelTarget.of(make_target())
    agenda = replace(_agenda(), target=replace(target, vector_lanes=16, bf16_dot=True))
    exact, rounded = (
        _operator(_product(precision=precision), 1400)
        for precision in (Precision.FLOAT32, Precision.BFLOAT16)
    )
    assert _first(agenda, exact, rounded) is rounded


def test_operators_as_fast_as_they_can_be_get_two_trials() -> None:
    assert _agenda().budget(_operator(_product(), 1342)) == 2
    assert _agenda().budget(_operator(_product(), 1000)) == 2  # faster than the roofline: noise


@pytest.mark.parametrize(
    ("saved_us", "trials"),
    [(5000, 24), (1000, 24), (750, 18), (500, 12), (250, 6), (150, 6), (50, 4), (20, 2), (0, 2)],
)
def test_budget_follows_what_the_model_may_gain(saved_us: float, trials: int) -> None:
    operator = _operator(_chain(), saved_us + 8 * 65536 / 1e5)
    assert _agenda().budget(operator) == trials


def test_sums_of_products_get_half_of_the_candidates() -> None:
    assert _agenda().budget(_operator(_product(), 9000)) == _TRIALS // 2


@pytest.mark.parametrize(
    ("left_s", "trials"), [(math.inf, 24), (33.0, 24), (16.2, 12), (8.1, 6), (1.0, 4), (0.0, 4)]
)
def test_little_time_is_shared_out_among_all_that_wait(left_s: float, trials: int) -> None:
    agenda = replace(_agenda(), left_s=lambda: left_s)
    waiting = [_operator(_chain(name), 9000) for name in ("Exp", "Tanh")]
    # (24 trials + 3) of 0.6 s for each of two
    assert agenda.next(waiting)[1] == trials


def test_hurry_gives_nothing_more_trials_than_it_is_worth() -> None:
    agenda = replace(_agenda(), left_s=lambda: 0.1)
    assert agenda.next([_operator(_product(), 1342)])[1] == 2


def test_budget_never_exceeds_what_the_user_gives() -> None:
    agenda = _agenda(trials=3)
    assert [agenda.budget(_operator(_chain(), us)) for us in (9e4, 1.0)] == [3, 2]
    assert _agenda(trials=1).budget(_operator(_chain(), 1.0)) == 1


def test_what_has_failed_thrice_waits_and_gets_fewer_trials() -> None:
    agenda = _agenda()
    known, other = _operator(_product(768), 3800), _operator(_chain(), 1200)
    assert _first(agenda, known, other) is known
    before = agenda.budget(known)
    for columns in (256, 384, 640):
        agenda.learn(_tuned(_operator(_product(columns), 3000), None), seconds=4.0)
    assert _first(agenda, known, other) is other
    assert agenda.budget(known) < before


def test_what_was_won_raises_hopes_again() -> None:
    agenda = _agenda()
    operator = _operator(_product(768), 3500)
    agenda.learn(_tuned(_operator(_product(256), 3000), None), seconds=4.0)
    low = agenda.budget(operator)
    for columns in (384, 640):
        agenda.learn(_tuned(_operator(_product(columns), 3000), 3.0), seconds=4.0)
    assert agenda.budget(operator) > low


def test_other_kinds_are_not_blamed() -> None:
    agenda = _agenda()
    before = agenda.budget(_operator(_chain("Tanh"), 900))
    for rows in (8, 16, 32):
        agenda.learn(_tuned(_operator(_chain("Exp", rows), 3000), None), seconds=1.0)
    assert agenda.budget(_operator(_chain("Tanh"), 900)) == before


def test_slow_trials_cost_a_place_in_the_queue() -> None:
    agenda = _agenda()
    product, chain = _operator(_product(), 3300), _operator(_chain("Tanh"), 1000)
    assert _first(agenda, product, chain) is product
    agenda.learn(_tuned(_operator(_product(256), 3000), 3.0), seconds=60.0)
    assert _first(agenda, product, chain) is chain


def test_places_that_one_precision_has_won_leave_less_room_to_another() -> None:
    agenda = _agenda()
    exact, rounded = (
        _operator(_product(precision=precision), 4000)
        for precision in (Precision.FLOAT32, Precision.BFLOAT16)
    )
    alone = agenda.budget(exact)
    agenda.learn(_tuned(rounded, 2.9), seconds=1.0)  # 1,379 us are left, the roof is at 1,342
    assert agenda.budget(exact) == 2 < alone


def test_machine_too_busy_to_tell_teaches_nothing() -> None:
    agenda = _agenda()
    operator = _operator(_chain(), 700)
    before = agenda.budget(operator)
    undecided = replace(_tuned(_operator(_chain(rows=32), 9000), None), estimate=None)
    for _ in range(3):
        agenda.learn(undecided, seconds=1.0)
    assert agenda.budget(operator) == before


def test_every_place_of_an_operator_counts() -> None:
    once, often = _operator(_chain("Exp"), 300), _operator(_chain("Tanh"), 300, places=40)
    # moving 0.5 MiB takes 5.2 us: forty places leave 90 of 300 us
    assert _first(_agenda(), once, often) is once


# ---- all operators of a model ----


def _found(*operators: Operator, fused: tuple[Operator, ...] = ()) -> FoundOperators:
    return FoundOperators(fused=fused, operators=operators, refusals=())


def _told(
    tmp_path: Path,
    found: FoundOperators,
    runner: ScriptedRunner,
    apart: Callable[[FoundOperators, Sequence[Region]], FoundOperators] | None = None,
    **chosen: Any,
) -> tuple[TunedOperators, list[str]]:
    """Return what became of the operators, and their types in the order they were tuned in."""
    told: list[str] = []
    settings = TuneSettings(model=Path("net.onnx"), trials=4, search="random", **chosen)
    tools = OperatorTools(
        settings=settings,
        runner=runner,  # type: ignore[arg-type]
        bank=make_bank(tmp_path),
        progress=RecordingProgress(),
        left_s=lambda: math.inf,
    )
    tuned = tune_found(
        found,
        take_apart=apart or (lambda found, lost: found),
        agenda=_agenda(),
        tools=tools,
        tell=lambda one: told.append(one.operator.workload.operations[-1].op_type),
    )
    return tuned, told


def test_each_operator_is_tuned_once_by_falling_promise(tmp_path: Path) -> None:
    found = _found(*(_operator(_chain(name), us) for name, us in _TIMES.items()))
    tuned, told = _told(tmp_path, found, ScriptedRunner())
    assert told == ["Tanh", "Exp", "Erf"]
    assert len(tuned.operators) == 3


_TIMES = {"Exp": 3000, "Tanh": 9000, "Erf": 2000}


def _apart(
    found: FoundOperators, lost: Sequence[Region], part: Operator, parts: list[int]
) -> FoundOperators:
    parts.append(len(lost))
    known = [one for one in found.operators if one.key != part.key]
    return replace(found, operators=(*known, part))


def test_parts_of_what_was_not_won_take_their_place_in_the_queue(tmp_path: Path) -> None:
    fused = _operator(_chain("Sin"), 5000)
    part, other = _operator(_chain("Tanh"), 4000), _operator(_chain("Exp"), 2000)
    parts: list[int] = []
    _, told = _told(
        tmp_path,
        _found(other, fused=(fused,)),
        ScriptedRunner(candidate=lambda _: 1.0),
        lambda found, lost: _apart(found, lost, part, parts),
    )
    assert told == ["Sin", "Tanh", "Exp"]
    assert parts == [1]


def test_nothing_is_taken_apart_while_another_precision_may_win(tmp_path: Path) -> None:
    exact = _operator(_product(), 9000)
    rounded = _operator(_product(precision=Precision.BFLOAT16), 8000)
    part = _operator(_chain("Tanh"), 100)
    for speedup, parts_of in ((1.0, [2]), (2.0, [])):
        parts: list[int] = []
        runner = ScriptedRunner(candidate=lambda _, speedup=speedup: speedup)
        bank = tmp_path / str(speedup)
        bank.mkdir()
        _told(
            bank,
            _found(fused=(exact, rounded)),
            runner,
            lambda found, lost, parts=parts: _apart(found, lost, part, parts),
        )
        assert parts == parts_of


def test_operator_that_gets_more_places_later_has_them_all(tmp_path: Path) -> None:
    fused, known = _operator(_chain("Sin"), 5000), _operator(_chain("Tanh"), 8000)
    more = _operator(_chain("Tanh"), 13000, places=2)
    tuned, told = _told(
        tmp_path,
        _found(known, fused=(fused,)),
        ScriptedRunner(candidate=lambda schedule: 1.0),
        lambda found, lost: _apart(found, lost, more, []),
    )
    assert told == ["Tanh", "Sin"]
    assert sorted(len(one.operator.regions) for one in tuned.operators) == [1, 2]


@pytest.mark.parametrize("most", [0, 1, 5, 6, 100])
def test_candidates_of_the_whole_run_are_counted(most: int, tmp_path: Path) -> None:
    found = _found(*(_operator(_chain(name), us) for name, us in _TIMES.items()))
    tuned, told = _told(tmp_path, found, ScriptedRunner(), max_tuning_count=most)
    trials = [len(one.search.trials) if one.search else 0 for one in tuned.operators]
    assert sum(trials) <= most and len(told) == 3
    assert most > 12 or sum(trials) == most  # three operators with four candidates each
    for one, count in zip(tuned.operators, trials, strict=True):
        assert count or one.reason == "max_tuning_count was reached"


def test_search_cut_by_the_count_proves_no_more_than_it_tried(tmp_path: Path) -> None:
    found = _found(_operator(_chain("Tanh"), 9000))
    slow = ScriptedRunner(candidate=lambda _: 1.0)
    _told(tmp_path, found, slow, max_tuning_count=2)
    again, _ = _told(tmp_path, found, slow)
    (operator,) = again.operators
    assert operator.search is not None and len(operator.search.trials) > 2
