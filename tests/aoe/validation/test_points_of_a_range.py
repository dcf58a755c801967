"""One judgement of a model at all points of a range, on a clock that knows what each call takes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from support.engine.fakes import ScriptedRunner
from support.engine.validating import FINAL, SCREEN, ValidatedModel, model_of

from aoe.execute.tasks import WHOLE_MODELS, ComparisonTerms
from aoe.measurement import MeasurePolicy, Outcome
from aoe.ort.inputs import ModelInputs
from aoe.tuner.policies import final_policy, variant_policy
from aoe.validation.comparing import ModelComparer, PointInputs
from aoe.validation.model_validator import ModelValidator, ValidationResult
from aoe.validation.time_reserve import PROCESSES, ModelCosts, one_process_of

_GPT2 = ModelCosts(load_s=1.2, write_s=0.5).at_points([0.03, 0.08, 1.3])
_MINILM = ModelCosts(load_s=0.15, write_s=0.1).at_points([0.001, 0.003, 0.037])
_LARGEST = 2


def _point(number: int) -> ModelInputs:
    return ModelInputs(shapes={"x": (number,)})


def _number(inputs: ModelInputs) -> int:
    return dict(inputs.shapes)["x"][0]


@dataclass(slots=True, kw_only=True)
class _RangeRunner(ScriptedRunner):
    """A machine on whose clock comparisons take what their sessions, calls and pairs take."""

    run_s: tuple[float, ...]  # Seconds of a call at each point
    load_s: float  # Of a session
    # Speed-up at a point, or how the tuned model fails there; as `model` says elsewhere.
    gains: Mapping[int, float | Outcome] = field(default_factory=dict)
    left_s: float = math.inf  # Seconds until the time limit
    slowness: float = 1.0  # How many times as long everything takes

    def __post_init__(self) -> None:
        self.model_at = self._gain_at

    def _gain_at(self, inputs: ModelInputs) -> Any:
        gain = self.gains.get(_number(inputs))
        return None if gain is None else lambda baseline, tuned: gain

    def call(self, task: str, *, timeout_s: float, **arguments: Any) -> Any:
        if task == "compare_unusual":  # runs alone: next to nothing beside a comparison
            return ScriptedRunner.call(self, task, timeout_s=timeout_s, **arguments)
        terms: ComparisonTerms = arguments.get("terms", WHOLE_MODELS)
        points = [(one.inputs, one.policy) for one in terms.points]
        points.append((arguments["inputs"], arguments["policy"]))
        sessions = 2 * len(terms.orders) if points[-1][1].pairs_max >= 12 else 2
        took_s = 1.0 + sessions * self.load_s
        for inputs, policy in points:
            runs = sessions * (2 + policy.warmup) + 2 * policy.pairs_max
            took_s += runs * self.run_s[_number(inputs)]
        self.left_s -= self.slowness * took_s
        return ScriptedRunner.call(self, task, timeout_s=timeout_s, **arguments)

    def pairs(self) -> list[list[int]]:
        """Return the pairs of each comparison, by points."""
        asked = [call.arguments for call in self.asked("compare_models")]
        return [
            [*(one.policy.pairs_max for one in each["terms"].points), each["policy"].pairs_max]
            for each in asked
        ]


def _range(
    *saves: float,
    costs: ModelCosts = _MINILM,
    final: MeasurePolicy = FINAL,
    weights: tuple[float, ...] = (1, 1, 1),
    **facts: Any,
) -> ValidatedModel:
    """Return a model over a range whose kernels save these shares of its time."""
    case = model_of(*saves)
    run_s = (*costs.elsewhere_s, costs.run_s)
    runner = _RangeRunner(
        run_s=run_s, load_s=costs.load_s, model=case.machine, jitter=0.0005, drift=0.0, **facts
    )
    *others, largest = weights
    comparer = ModelComparer(
        case.assembly,
        runner,  # type: ignore[arg-type]
        screen=SCREEN,
        final=final,
        inputs=_point(len(others)),
        left_s=lambda: runner.left_s,
        costs=costs,
        elsewhere=[PointInputs(inputs=_point(n), weight=one) for n, one in enumerate(others)],
        weight=largest,
    )
    validator = ModelValidator(comparer, case.steps.append)
    return replace(case, runner=runner, comparer=comparer, validator=validator)


def _shares(found: ValidationResult) -> list[float]:
    return [one.estimate.median for one in found.points]


def test_processes_are_shared_by_all_points_and_their_mean_is_the_gain() -> None:
    case = _range(0.2, gains={0: 1.0, 1: 1.5})
    found = case.judged()
    assert case.numbers(found.kept) == [0]
    assert _shares(found) == pytest.approx([1.0, 1.5, 1.25], rel=0.01)
    assert found.estimate.median == pytest.approx((1.0 * 1.5 * 1.25) ** (1 / 3), rel=0.01)
    proof = [pairs for pairs in case.runner.pairs() if min(pairs) > 1]  # type: ignore[attr-defined]
    assert len(proof) <= PROCESSES


def test_mean_is_weighted_by_the_calls_of_each_point() -> None:
    found = _range(0.2, gains={0: 1.0, 1: 1.5}, weights=(8, 1, 1)).judged()
    assert found.estimate.median == pytest.approx((1.5 * 1.25) ** 0.1, rel=0.01)


@pytest.mark.parametrize(("saves", "is_kept"), [(0.25, True), (-0.3, False)])
@pytest.mark.parametrize(
    ("limit_s", "costs", "slowness"),
    [
        (150, _GPT2, 1.3),
        (75, _GPT2, 1.2),
        (60, _GPT2, 1.0),
        (30, _MINILM, 1.3),
        (20, _MINILM, 1.2),
    ],
)
def test_what_is_kept_of_a_short_limit_is_enough_for_a_verdict(
    limit_s: float, costs: ModelCosts, slowness: float, saves: float, is_kept: bool
) -> None:
    """A fifth of the limit is over before the operators are known, the rest of it is searched."""
    left_s = 0.8 * limit_s
    screen, final = variant_policy(2, left_s=left_s), final_policy(2, left_s=left_s)
    kept_s = costs.validation_s(left_s, screen, one_process_of(final)) - costs.finishing_s
    assert left_s - kept_s > 0.2 * left_s  # there is something to judge
    case = _range(saves, costs=costs, final=final, left_s=kept_s, slowness=slowness)
    found = case.judged()
    assert bool(found.kept) is is_kept
    assert found.undecided == ""


def test_long_calls_have_few_pairs_in_a_hurry_and_short_ones_many() -> None:
    case = _range(0.25, costs=_GPT2, left_s=60.0)
    assert case.judged().kept
    assert case.runner.pairs()[-1] == [10, 10, 2]  # type: ignore[attr-defined]


def test_sure_loss_at_one_point_leaves_the_model_as_it_was() -> None:
    case = _range(0.4, gains={0: 0.8})
    found = case.judged()
    assert found.kept == () and found.points == ()
    assert set(found.dropped.values()) == {"the model is slower with it at a point of the range"}


@pytest.mark.parametrize("left_s", [math.inf, 12.0])
def test_wrong_result_at_another_point_is_never_accepted(left_s: float) -> None:
    case = _range(0.2, 0.2, gains={1: Outcome.CORRECTNESS}, left_s=left_s)
    found = case.judged()
    assert found.kept == ()
    assert all("computes something else" in reason for reason in found.dropped.values())


def test_kernel_that_is_wrong_at_another_point_goes_alone() -> None:
    case = _range(0.2, 0.2)
    wrong = model_of(0.2, 0.2, wrong=[1])
    wrong.machine.assembly = case.assembly
    case.runner.model_at = lambda inputs: wrong.machine if _number(inputs) == 0 else None
    assert case.numbers(case.judged().kept) == [0]


def test_kernel_that_loses_at_another_point_goes_alone() -> None:
    case = _range(0.2, 0.2)
    losing = model_of(0.2, -0.3)
    losing.machine.assembly = case.assembly
    case.runner.model_at = lambda inputs: losing.machine if _number(inputs) == 0 else None
    found = case.judged()
    assert case.numbers(found.kept) == [0]
    assert all("as fast without it" in reason for reason in found.dropped.values())


def test_point_without_weight_is_tested_for_results_and_told_nothing_of() -> None:
    case = _range(0.25, weights=(1, 0, 1), left_s=12.0)
    found = case.judged()
    assert case.numbers(found.kept) == [0]
    assert [one.number for one in found.points] == [0, 2]
    assert {pairs[1] for pairs in case.runner.pairs()} == {1}  # type: ignore[attr-defined]
    wrong = _range(0.25, weights=(1, 0, 1), left_s=12.0, gains={1: Outcome.CORRECTNESS})
    assert wrong.judged().kept == ()


def test_model_without_kernels_is_timed_with_few_calls() -> None:
    case = _range(costs=_GPT2)
    found = case.confirmed()
    assert found.kept == () and found.points == ()
    assert case.runner.pairs() == [[10, 10, 2]]  # type: ignore[attr-defined]


def test_what_an_earlier_run_has_kept_is_measured_in_one_process() -> None:
    case = _range(0.2, gains={0: 0.9})
    found = case.confirmed()
    assert case.numbers(found.kept) == [0]  # noise undoes nothing
    assert _shares(found) == pytest.approx([0.9, 1.25, 1.25], rel=0.01)
    assert len(case.runner.pairs()) == 1  # type: ignore[attr-defined]
