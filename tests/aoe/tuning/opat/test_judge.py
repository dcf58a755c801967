"""The whole model has the last word."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from support.engine.tuning import make_kernel

from aoe.errors import RunError, RunTimeoutError
from aoe.execute.messages import ModelPart
from aoe.measurement import MeasurePolicy, Outcome
from aoe.ort.inputs import MADE_UP
from aoe.testing.fakes import ScriptedRunner
from aoe.tuning.opat.assembly import ChosenKernel
from aoe.tuning.opat.judge import Judge, Judgement

_SCREEN = MeasurePolicy(pairs_min=7, pairs_max=7, warmup=0)
_FINAL = MeasurePolicy(pairs_min=21, pairs_max=21, warmup=0)


@dataclass
class FakeAssembly:
    """Remembers which kernels each model file holds."""

    contents: dict[str, frozenset[str]] = field(default_factory=dict)
    untuned: ModelPart = field(default_factory=lambda: ModelPart(model=Path("fallback.onnx")))

    def write_model(self, kernels: Sequence[ChosenKernel], name: str = "model.onnx") -> ModelPart:
        self.contents[name] = frozenset(kernel.source.name for kernel in kernels)
        return ModelPart(model=Path(name), optimize=False)


@dataclass
class Machine:
    """What each kernel does to the time of the model, and which ones are wrong or deadly.

    Attributes:
        saves: Share of the model's time a kernel saves, by kernel name; negative costs time.
        wrong: Kernels with which the model computes something else.
        deadly: Kernels the worker dies of.
        together: Kernels that are wrong only together.
    """

    assembly: FakeAssembly
    saves: dict[str, float]
    wrong: frozenset[str] = frozenset()
    deadly: frozenset[str] = frozenset()
    together: frozenset[str] = frozenset()

    def __call__(self, baseline: ModelPart, tuned: ModelPart) -> float | Outcome | RunError:
        names = self.assembly.contents.get(str(tuned.model), frozenset())
        if names & self.deadly:
            return RunError("compare_models", "the worker ended with signal 11")
        if names & self.wrong or (self.together and self.together <= names):
            return Outcome.CORRECTNESS
        return self._time(baseline) / self._time(tuned)

    def _time(self, part: ModelPart) -> float:
        names = self.assembly.contents.get(str(part.model), frozenset())
        return 1.0 - sum(self.saves[name] for name in names)


@dataclass
class Case:
    """A judge with its kernels and what it said."""

    kernels: list[ChosenKernel]
    judge: Judge
    runner: ScriptedRunner
    assembly: FakeAssembly
    steps: list[str] = field(default_factory=list)

    def judged(self) -> Judgement:
        return self.judge.judge(self.kernels, self.steps.append)

    def confirmed(self) -> Judgement:
        return self.judge.confirm(self.kernels, self.steps.append)

    def numbers(self, kernels: Sequence[ChosenKernel]) -> list[int]:
        return sorted(self.kernels.index(kernel) for kernel in kernels)


def _case(
    *saves: float,
    wrong: Sequence[int] = (),
    deadly: Sequence[int] = (),
    together: Sequence[int] = (),
    jitter: float = 0.0005,
) -> Case:
    kernels = [make_kernel(number, gain_us=1000 * saved) for number, saved in enumerate(saves)]
    names = [kernel.source.name for kernel in kernels]
    assembly = FakeAssembly()
    machine = Machine(
        assembly,
        dict(zip(names, saves, strict=True)),
        wrong=frozenset(names[i] for i in wrong),
        deadly=frozenset(names[i] for i in deadly),
        together=frozenset(names[i] for i in together),
    )
    runner = ScriptedRunner(model=machine, jitter=jitter)
    policies = {"screen": _SCREEN, "final": _FINAL}
    judge = Judge(assembly, runner, **policies, inputs=MADE_UP)  # type: ignore[arg-type]
    return Case(kernels, judge, runner, assembly)


def test_helpful_kernels_stay_and_the_gain_is_measured_afresh() -> None:
    case = _case(0.2, 0.1, 0.1)
    found = case.judged()
    assert case.numbers(found.kept) == [0, 1, 2]
    assert found.dropped == {}
    assert found.estimate.median == pytest.approx(1 / 0.6, rel=0.01)
    assert found.estimate.pairs == 21
    assert case.steps == []


@pytest.mark.parametrize("harmful", [0, 1, 2, 3, 4])
def test_harmful_kernel_is_found_and_dropped(harmful: int) -> None:
    saves = [0.1, 0.08, 0.06, 0.05, 0.04]
    saves[harmful] = -0.1
    case = _case(*saves)
    found = case.judged()
    assert case.numbers(found.kept) == [n for n in range(5) if n != harmful]
    name = case.kernels[harmful].source.name
    assert list(found.dropped) == [name]
    assert "as fast without it" in found.dropped[name]
    assert name in case.steps[0]


def test_several_harmful_kernels_are_all_dropped() -> None:
    case = _case(0.3, -0.05, 0.2, -0.06, 0.1, -0.04)
    found = case.judged()
    assert case.numbers(found.kept) == [0, 2, 4]


def test_helpful_groups_are_not_taken_apart() -> None:
    case = _case(*[0.05] * 10)
    case.judged()
    assert len(case.runner.asked("compare_models")) == 4  # right?, two groups, the final one


def test_kernel_that_makes_no_difference_stays() -> None:
    case = _case(0.2, 0.0)
    found = case.judged()
    assert 0 in case.numbers(found.kept)
    assert set(found.dropped) <= {case.kernels[1].source.name}


@pytest.mark.parametrize("wrong", [[0], [2], [0, 3], [0, 1, 2, 3]])
def test_wrong_kernels_are_found_and_dropped(wrong: list[int]) -> None:
    case = _case(0.1, 0.1, 0.1, 0.1, wrong=wrong)
    found = case.judged()
    assert case.numbers(found.kept) == [n for n in range(4) if n not in wrong]
    assert {case.kernels[n].source.name for n in wrong} == set(found.dropped)
    assert found.comparison.deviation.acceptable


@pytest.mark.parametrize("deadly", [[1], [0, 1]])
def test_kernels_the_worker_dies_of_are_dropped(deadly: list[int]) -> None:
    case = _case(0.1, 0.1, 0.1, deadly=deadly)
    found = case.judged()
    assert case.numbers(found.kept) == [n for n in range(3) if n not in deadly]


def test_kernels_that_are_wrong_only_together_never_stay_together() -> None:
    """Each half is right alone; the final comparison still sees whether the whole is."""
    case = _case(0.1, 0.1, 0.1, 0.1, together=[0, 3])
    found = case.judged()
    assert not {0, 3} <= set(case.numbers(found.kept))
    assert found.comparison.deviation.acceptable


def test_model_that_is_wrong_in_the_end_is_left_untuned() -> None:
    case = _case(0.1, 0.1)
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
    case = _case(0.002, 0.002, jitter=0.002)
    found = case.judged()
    assert found.kept == ()
    assert len(found.dropped) == 2
    assert found.estimate.median == pytest.approx(1, abs=0.01)
    assert case.assembly.contents["model.onnx"] == frozenset()


def test_nothing_to_judge_is_measured_all_the_same() -> None:
    case = _case()
    found = case.judged()
    assert found.kept == ()
    assert found.dropped == {}
    assert found.estimate.median == pytest.approx(1, abs=0.01)
    assert len(case.runner.asked("compare_models")) == 1


def test_model_written_last_is_the_one_that_was_measured() -> None:
    case = _case(0.2, -0.1, 0.1)
    found = case.judged()
    kept = frozenset(kernel.source.name for kernel in found.kept)
    assert case.assembly.contents["model.onnx"] == kept


def test_kept_kernels_are_in_the_order_of_their_names() -> None:
    case = _case(0.05, 0.05, 0.05, 0.05)
    names = [kernel.source.name for kernel in case.judged().kept]
    assert names == sorted(names)


def test_number_of_comparisons_is_bounded() -> None:
    case = _case(*[0.0] * 64, jitter=0.01)
    case.judged()
    assert len(case.runner.asked("compare_models")) <= 1 + 24 + 2


def test_untuned_model_that_cannot_be_run_is_an_error() -> None:
    case = _case(0.1)
    case.runner.model = lambda *_: RunTimeoutError("compare_models", "no answer")
    with pytest.raises(RunError, match="no answer"):
        case.judged()


# ---- a second run ----


def test_confirming_measures_once_and_keeps_everything() -> None:
    case = _case(0.1, -0.02, 0.0)
    found = case.confirmed()
    assert case.numbers(found.kept) == [0, 1, 2]
    assert len(case.runner.asked("compare_models")) == 1


@pytest.mark.parametrize("jitter", [0.0005, 0.2])
def test_noise_undoes_nothing(jitter: float) -> None:
    case = _case(-0.05, jitter=jitter)
    assert case.numbers(case.confirmed().kept) == [0]


@pytest.mark.parametrize(("wrong", "deadly"), [([1], []), ([], [1])])
def test_confirming_drops_the_one_that_computes_wrongly_or_dies(
    wrong: list[int], deadly: list[int]
) -> None:
    case = _case(0.1, 0.1, 0.1, wrong=wrong, deadly=deadly)
    found = case.confirmed()
    assert case.numbers(found.kept) == [0, 2]
    assert list(found.dropped) == [case.kernels[1].source.name]


def test_confirming_keeps_nothing_when_every_kernel_is_wrong() -> None:
    case = _case(0.1, 0.1, wrong=[0, 1])
    found = case.confirmed()
    assert found.kept == ()
    assert len(found.dropped) == 2
