"""The whole model has the last word."""

from __future__ import annotations

import re

import pytest
from support.engine.fakes import MEMORY
from support.engine.validating import ValidatedModel, model_of

from aoe.errors import RunError, RunTimeoutError, WorkerDiedError
from aoe.execute.accuracy import AS_BEFORE, Deviation, different
from aoe.execute.messages import ModelPart
from aoe.measurement import Outcome, Scatter
from aoe.validation.group_tests import MOST_COMPARISONS
from aoe.validation.model_validator import correct_kernels
from aoe.validation.time_reserve import PROCESSES, ModelCosts


def test_helpful_kernels_stay_and_the_gain_is_measured_afresh() -> None:
    case = model_of(0.2, 0.1, 0.1)
    found = case.judged()
    assert case.numbers(found.kept) == [0, 1, 2]
    assert found.dropped == {}
    assert found.estimate.median == pytest.approx(1 / 0.6, rel=0.01)
    assert found.estimate.pairs == 4 * case.runner.restarts
    assert case.steps == []


def test_dropped_kernels_are_told_with_their_evidence() -> None:
    case = model_of(0.1, 0.08, -0.1, promised=(0.1, 0.08, 0.05))
    found = case.judged()
    assert case.numbers(found.kept) == [0, 1]
    name = case.kernels[2].source.name
    assert list(found.dropped) == [name]
    assert "as fast without it" in found.dropped[name]
    assert name in case.steps[0]
    estimate = found.drops[name].estimate
    assert estimate is not None and estimate.high < 1


@pytest.mark.parametrize("wrong", [[0], [2], [0, 3], [0, 1, 2, 3]])
def test_wrong_kernels_are_found_and_dropped(wrong: list[int]) -> None:
    case = model_of(0.1, 0.1, 0.1, 0.1, wrong=wrong)
    found = case.judged()
    assert case.numbers(found.kept) == [n for n in range(4) if n not in wrong]
    assert {case.kernels[n].source.name for n in wrong} == set(found.dropped)
    assert found.comparison.deviation.acceptable


@pytest.mark.parametrize("deadly", [[1], [0, 1]])
def test_kernels_the_worker_dies_of_are_dropped(deadly: list[int]) -> None:
    case = model_of(0.1, 0.1, 0.1, deadly=deadly)
    found = case.judged()
    assert case.numbers(found.kept) == [n for n in range(3) if n not in deadly]


@pytest.mark.parametrize("hanging", [[1], [0], [0, 1, 2]])
def test_kernels_the_clock_has_ended_in_the_model_are_left_to_a_later_run(
    hanging: list[int],
) -> None:
    case = model_of(0.1, 0.1, 0.1, hanging=hanging)
    found = case.judged()
    assert case.numbers(found.kept) == [n for n in range(3) if n not in hanging]
    assert found.undecided.startswith("not decided, the model did not answer in time with it")
    for kernel in case.kernels:
        assert found.is_decided(kernel) == (case.machine.numbers[kernel.source.name] not in hanging)


def _odd_with(case: ValidatedModel, odd: set[int], answer: Deviation | RunError) -> None:
    """Let the model give an answer on unusual inputs where it has one of some kernels."""

    def unusual(baseline: ModelPart, tuned: ModelPart, with_nan: bool) -> Deviation | RunError:
        held = case.assembly.contents.get(str(tuned.model), frozenset())
        is_odd = any(case.machine.numbers[name] in odd for name in held)
        return answer if is_odd else AS_BEFORE

    case.runner.unusual = unusual


@pytest.mark.parametrize(
    "answer",
    [
        different("on inputs times 30: result 0: 3 instead of 4 at [0]"),
        WorkerDiedError("compare_unusual", "the worker ended with signal 11"),
    ],
    ids=["wrong", "dies"],
)
@pytest.mark.parametrize("odd", [{0}, {1, 3}])
def test_kernels_that_are_wrong_on_unusual_inputs_only_are_found_and_dropped(
    answer: Deviation | RunError, odd: set[int]
) -> None:
    case = model_of(0.1, 0.1, 0.1, 0.1)
    _odd_with(case, odd, answer)
    found = case.judged()
    assert case.numbers(found.kept) == [n for n in range(4) if n not in odd]
    assert all("something else" in reason for reason in found.dropped.values())


def test_lone_kernel_goes_with_the_words_of_what_is_wrong() -> None:
    case = model_of(0.1)
    _odd_with(case, {0}, different("on inputs times 30: result 0: 3 instead of 4 at [0]"))
    (reason,) = case.judged().dropped.values()
    assert reason.endswith(
        "something else with it: on inputs times 30: result 0: 3 instead of 4 at [0]"
    )


def test_kernel_an_earlier_run_has_kept_is_tried_on_unusual_inputs_too() -> None:
    case = model_of(0.1, 0.1, 0.1)
    _odd_with(case, {1}, different("on inputs of zeros: result 0: nan instead of 0 at [0]"))
    assert case.numbers(case.confirmed().kept) == [0, 2]


def test_model_is_run_on_unusual_inputs_once_for_each_choice_of_kernels() -> None:
    case = model_of(0.1, 0.1, 0.1)
    assert case.numbers(case.judged().kept) == [0, 1, 2]
    assert len(case.runner.asked("compare_unusual")) == 1


def test_inputs_onnx_runtime_itself_dies_of_are_no_fault_of_a_kernel() -> None:
    case = model_of(0.1, 0.1)
    died = WorkerDiedError("compare_unusual", "the worker ended with signal 11")
    case.runner.unusual = lambda baseline, tuned, with_nan: died if with_nan else AS_BEFORE
    assert case.numbers(case.judged().kept) == [0, 1]
    assert not case.runner.asked("compare_unusual")[-1].arguments["with_nan"]


def test_kernels_that_are_wrong_only_together_never_stay_together() -> None:
    """Each half is right alone; the final comparison still sees whether the whole is."""
    case = model_of(0.1, 0.1, 0.1, 0.1, together=[0, 3])
    found = case.judged()
    assert not {0, 3} <= set(case.numbers(found.kept))
    assert found.comparison.deviation.acceptable


def test_model_that_is_wrong_in_the_end_is_left_untuned() -> None:
    case = model_of(0.1, 0.1)
    scripted = case.runner.model

    def wrong_in_the_end(baseline: ModelPart, tuned: ModelPart) -> float | Outcome | RunError:
        is_final = str(tuned.model) == "model.onnx" and case.assembly.contents["model.onnx"]
        return Outcome.CORRECTNESS if is_final else scripted(baseline, tuned)

    case.runner.model = wrong_in_the_end
    found = case.judged()
    assert found.kept == ()
    assert all("computes something else" in reason for reason in found.dropped.values())
    assert found.comparison.deviation.acceptable


def test_model_that_is_not_faster_is_left_untuned() -> None:
    case = model_of(0.0, 0.0, promised=(0.01, 0.01), jitter=0.002)
    found = case.judged()
    assert found.kept == ()
    (reason,) = {*found.dropped.values()}
    assert re.fullmatch(
        r"the whole model is not proven faster with it: [01]\.\d{3}x, 99 % interval from 0\.\d{3}x",
        reason,
    )
    assert len(found.dropped) == 2
    assert all(drop.estimate is not None for drop in found.drops.values())
    assert found.estimate.median == pytest.approx(1, abs=0.01)
    assert case.assembly.contents["model.onnx"] == frozenset()


_SHORT_S, _COSTS = 30.0, ModelCosts(load_s=2.0, run_s=0.1)
"""Too short for five processes, and for the comparisons of group tests."""


def test_in_a_hurry_the_largest_are_tried_where_the_whole_gains_nothing() -> None:
    saves = (0.1, 0.08, 0.06, 0.05, 0.04, -0.12, -0.12, -0.1)
    case = model_of(*saves, promised=(*saves[:5], 0.01, 0.01, 0.01), left_s=_SHORT_S, costs=_COSTS)
    found = case.judged()
    assert case.numbers(found.kept) == [0, 1, 2, 3, 4]
    assert found.estimate.median == pytest.approx(case.true_speedup(found.kept), rel=0.01)
    assert len(found.dropped) == 3 and not any(drop.is_final for drop in found.drops.values())
    (reason,) = {*found.dropped.values()}
    assert re.search(
        r"the whole model is .* it: [01]\.\d{3}x.*; it is 1\.\d{3}x without it", reason
    )
    assert sum(step.startswith("put back ") for step in case.steps) == 3


def test_in_a_hurry_the_largest_are_those_that_save_most_in_the_model() -> None:
    """Alone, those that cost time in the model save most."""
    promised = [0.1] * 5 + [0.09] * 5
    in_model = dict.fromkeys(range(5), 0.0) | dict.fromkeys(range(5, 10), 0.06)
    case = model_of(
        *[-0.06] * 5,
        *[0.06] * 5,
        promised=promised,
        left_s=_SHORT_S,
        costs=_COSTS,
        in_model=in_model,
    )
    found = case.judged()
    assert case.numbers(found.kept) == [5, 6, 7, 8, 9]


def test_largest_that_gain_nothing_either_are_not_kept() -> None:
    case = model_of(*[-0.01] * 8, promised=[0.01] * 8, left_s=_SHORT_S, costs=_COSTS)
    assert case.judged().kept == ()


def test_gain_below_one_percent_counts_if_it_is_sure() -> None:
    case = model_of(0.002, 0.002)
    found = case.judged()
    assert case.numbers(found.kept) == [0, 1]
    assert 1 < found.estimate.low < 1 / 0.996 < found.estimate.high


def test_final_figures_come_from_fresh_processes() -> None:
    case = model_of(0.05, jitter=0.1)
    case.judged()
    assert case.runner.restarts >= PROCESSES
    case = model_of(0.2)  # without noise to speak of, fewer will do
    case.judged()
    assert case.runner.restarts == 3


def test_memory_is_told_and_a_model_without_kernels_takes_what_it_took() -> None:
    assert model_of(0.2).judged().memory == MEMORY
    unchanged = model_of().judged().memory
    assert unchanged is not None
    assert unchanged.tuned == unchanged.baseline == MEMORY.baseline


def test_nothing_to_judge_is_measured_all_the_same() -> None:
    case = model_of()
    found = case.judged()
    assert found.kept == ()
    assert found.dropped == {}
    assert found.estimate.median == pytest.approx(1, abs=0.01)
    assert len(case.runner.asked("compare_models")) == 1


def test_model_written_last_is_the_one_that_was_measured() -> None:
    case = model_of(0.2, -0.1, 0.1)
    found = case.judged()
    kept = frozenset(kernel.source.name for kernel in found.kept)
    assert case.assembly.contents["model.onnx"] == kept


def test_kept_kernels_are_in_the_order_of_their_names() -> None:
    case = model_of(0.05, 0.05, 0.05, 0.05)
    names = [kernel.source.name for kernel in case.judged().kept]
    assert names == sorted(names)


def test_number_of_comparisons_is_bounded() -> None:
    case = model_of(*[0.0] * 64, promised=[0.02] * 64, jitter=0.01)
    case.judged()
    asked = len(case.runner.asked("compare_models"))
    assert asked == MOST_COMPARISONS + PROCESSES + 1  # groups, all, none


def test_untuned_model_that_cannot_be_run_is_an_error() -> None:
    case = model_of(0.1)
    case.runner.model = lambda *_: RunTimeoutError("compare_models", "no answer")
    with pytest.raises(RunError, match="no answer"):
        case.judged()


# ---- a second run ----


def test_confirming_measures_once_and_keeps_everything() -> None:
    case = model_of(0.1, -0.02, 0.0)
    found = case.confirmed()
    assert case.numbers(found.kept) == [0, 1, 2]
    assert len(case.runner.asked("compare_models")) == 1


@pytest.mark.parametrize("jitter", [0.0005, 0.2])
def test_noise_undoes_nothing(jitter: float) -> None:
    case = model_of(-0.05, jitter=jitter)
    assert case.numbers(case.confirmed().kept) == [0]


@pytest.mark.parametrize(("wrong", "deadly"), [([1], []), ([], [1])])
def test_confirming_drops_the_one_that_computes_wrongly_or_dies(
    wrong: list[int], deadly: list[int]
) -> None:
    case = model_of(0.1, 0.1, 0.1, wrong=wrong, deadly=deadly)
    found = case.confirmed()
    assert case.numbers(found.kept) == [0, 2]
    assert list(found.dropped) == [case.kernels[1].source.name]


def test_confirming_keeps_nothing_when_every_kernel_is_wrong() -> None:
    case = model_of(0.1, 0.1, wrong=[0, 1])
    found = case.confirmed()
    assert found.kept == ()
    assert len(found.dropped) == 2


# ---- what was judged before ----


def test_believed_kernels_have_no_test_of_their_own() -> None:
    case = model_of(0.1, 0.1, 0.05, promised=(0.2, 0.2, 0.05))
    found = case.judged(believed=(0, 1))
    assert case.numbers(found.kept) == [0, 1, 2]
    groups = len(case.runner.asked("compare_models")) - case.runner.restarts
    assert groups == 1  # without the new one, which keeps its promise
    everything = model_of(0.1, 0.1)
    assert len(everything.judged(believed=(0, 1)).kept) == 2
    assert len(everything.runner.asked("compare_models")) == everything.runner.restarts


def test_new_kernel_has_no_test_either_where_the_whole_shows_what_it_saves() -> None:
    case = model_of(0.1, 0.1, 0.05, promised=(0.2, 0.2, 0.05))
    found = case.judged(believed=(0, 1), kept_share=0.5)
    assert case.numbers(found.kept) == [0, 1, 2]
    assert len(case.runner.asked("compare_models")) == case.runner.restarts


@pytest.mark.parametrize("save", [0.0, -0.08])
def test_whole_that_saves_less_than_it_should_has_its_new_kernel_tested(save: float) -> None:
    case = model_of(0.1, 0.1, save, promised=(0.2, 0.2, 0.05))
    found = case.judged(believed=(0, 1), kept_share=0.5)
    assert case.numbers(found.kept) == ([0, 1, 2] if save == 0 else [0, 1])
    assert len(case.runner.asked("compare_models")) > case.runner.restarts


def test_known_scatter_ends_the_judgement_of_what_is_believed_after_one_process() -> None:
    case = model_of(0.1, 0.1, 0.05, promised=(0.2, 0.2, 0.05))
    scatter = Scatter(deviation=0.004, processes=3)
    found = case.judged(believed=(0, 1), kept_share=0.5, scatter=scatter)
    assert case.numbers(found.kept) == [0, 1, 2]
    assert (case.runner.restarts, len(case.runner.asked("compare_models"))) == (1, 1)
    assert found.estimate.low < 1 / 0.75 < found.estimate.high
    assert found.scatter == scatter


@pytest.mark.parametrize(("kept_share", "processes"), [(1.0, 1), (None, 2), (1.5, 2)])
def test_gain_that_is_the_expected_one_needs_no_narrow_interval(
    kept_share: float | None, processes: int
) -> None:
    case = model_of(0.06, 0.06, 0.02, jitter=0.0)
    scatter = Scatter(deviation=0.015, processes=4)
    found = case.judged(believed=(0, 1), kept_share=kept_share, scatter=scatter)
    assert case.numbers(found.kept) == [0, 1, 2]
    assert bool(found.as_expected) is (kept_share == 1)
    assert case.runner.restarts == processes
    assert 1 < found.estimate.low < 1 / 0.86 < found.estimate.high


def test_new_kernel_has_no_test_where_the_whole_falls_short_within_noise() -> None:
    case = model_of(0.15, 0.04, 0.01, promised=(0.15, 0.05, 0.01), jitter=0.0)
    found = case.judged(
        believed=(0, 1), kept_share=1.0, scatter=Scatter(deviation=0.015, processes=4)
    )
    assert case.numbers(found.kept) == [0, 1, 2]
    noted = [
        found.verdict(one, ("n",), frozenset()).search.get("as_expected") for one in found.kept
    ]
    assert sorted(noted, key=str) == [None, True, True]  # a later run looks at the new one
    assert len(case.runner.asked("compare_models")) == case.runner.restarts


def test_whole_that_falls_short_beyond_one_standard_error_has_its_new_kernel_tested() -> None:
    case = model_of(0.15, 0.03, 0.01, promised=(0.15, 0.055, 0.01), jitter=0.0)
    known = Scatter(deviation=0.015, processes=4)
    found = case.judged(believed=(0, 1), kept_share=1.0, scatter=known)
    assert case.numbers(found.kept) == [0, 1, 2] and not found.as_expected
    assert len(case.runner.asked("compare_models")) > case.runner.restarts


@pytest.mark.parametrize("facts", [{"wrong": [1]}, {"deadly": [1]}])
def test_believed_kernel_that_computes_wrongly_here_is_found(facts: dict[str, list[int]]) -> None:
    case = model_of(0.1, 0.1, 0.1, **facts)  # type: ignore[arg-type]
    found = case.judged(believed=(0, 1))
    assert case.numbers(found.kept) == [0, 2]
    assert list(found.dropped) == [case.kernels[1].source.name]
    assert any("every kernel is looked at" in step for step in case.steps)


def test_believed_kernel_that_takes_all_of_the_gain_is_found() -> None:
    case = model_of(0.05, -0.1, 0.04, promised=(0.05, 0.05, 0.04))
    found = case.judged(believed=(0, 1), proven=(0, 1))
    assert case.numbers(found.kept) == [0, 2]
    assert list(found.dropped) == [case.kernels[1].source.name]
    assert found.estimate.low > 1


def test_model_without_a_gain_has_one_last_comparison_where_no_kernel_loses() -> None:
    case = model_of(0.0, 0.0, 0.0, promised=(0.01, 0.01, 0.01), jitter=0.002)
    found = case.judged(believed=(0, 1), proven=(0, 1))
    assert found.kept == ()
    (reason,) = {*found.dropped.values()}
    assert reason.startswith("the whole model is not proven faster with it: ")
    assert case.runner.restarts <= 2 * PROCESSES
    assert case.assembly.contents["model.onnx"] == frozenset()


def test_busy_machine_decides_nothing_about_believed_kernels() -> None:
    case = model_of(0.1, 0.1)
    case.runner.given_share = 0.5
    found = case.judged(believed=(0,))
    assert found.kept == () and "machine was busy" in found.undecided
    assert not any("every kernel" in step for step in case.steps)


def test_own_kernels_are_proven_and_only_what_is_open_is_looked_at() -> None:
    case = model_of(0.1, 0.1, 0.02, promised=(0.3, 0.3, 0.02))
    found = case.judged(believed=(0, 1), is_own=True)
    assert case.numbers(found.kept) == [0, 1, 2]
    assert case.runner.restarts == 0  # no proof once more
    assert len(case.runner.asked("compare_models")) == 2
    losing = model_of(0.1, 0.1, -0.08, promised=(0.1, 0.1, 0.05))
    again = losing.judged(believed=(0, 1), is_own=True)
    assert losing.numbers(again.kept) == [0, 1]
    assert "as fast without it" in again.dropped[losing.kernels[2].source.name]


def test_own_kernel_that_went_wrong_since_is_found_and_what_was_dropped_stays_so() -> None:
    case = model_of(0.1, 0.1, -0.08, promised=(0.1, 0.1, 0.05), wrong=[1])
    found = case.judged(believed=(0, 1), is_own=True)
    assert case.kernels[1] not in found.kept and case.kernels[0] in found.kept


def test_wrong_kernels_cost_themselves_alone() -> None:
    case = model_of(*[0.1] * 7, wrong=[1, 5])
    right, drops = correct_kernels(case.comparer, case.kernels, case.steps.append)
    assert case.numbers(right) == [0, 2, 3, 4, 6]
    assert {drop.reason for drop in drops.values()} == {"the model computes something else with it"}
    assert {case.machine.numbers[name] for name in drops} == {1, 5}
