"""Near-equal sets of kernels: the lighter one is taken, and a limit holds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from support.engine.validating import FINAL, SCREEN, ValidatedModel, model_of

from aoe.execute.messages import ModelPart
from aoe.measurement.memory import MemoryUse, ModelMemory
from aoe.ort.inputs import MADE_UP
from aoe.validation.comparing import ModelComparer
from aoe.validation.memory_pruning import (
    PEAK_RATIO,
    excess_bytes,
    fitting,
    not_worth_their_memory,
    within_memory,
)
from aoe.validation.model_validator import ModelValidator
from aoe.validation.time_reserve import ModelCosts

MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    name: str
    gain_us: float
    kept: float
    work: float = 1.0
    kind: str = "convolution"


def _kept(part: Part) -> float:
    return part.kept * MIB


def _heavy(*parts: Part) -> dict[str, str]:
    return not_worth_their_memory(parts, _kept)


BIG = Part(name="big", gain_us=1000, kept=50)


def test_part_that_saves_next_to_nothing_for_its_memory_is_left_out() -> None:
    found = _heavy(BIG, Part(name="small", gain_us=5, kept=20))
    assert found == {"small": "it keeps 20.0 MiB for 0.5% of what is saved"}


@pytest.mark.parametrize(
    "part",
    [
        Part(name="gains", gain_us=20, kept=20),
        Part(name="light", gain_us=5, kept=0.5),
        Part(name="nothing kept", gain_us=0, kept=0),
    ],
    ids=lambda part: part.name,
)
def test_part_that_gains_or_is_light_stays(part: Part) -> None:
    assert _heavy(BIG, part) == {}


def test_all_that_is_left_out_is_a_hundredth_of_the_gain_at_most() -> None:
    many = [Part(name=f"p{n}", gain_us=4, kept=2 + n) for n in range(20)]
    found = _heavy(BIG, *many)
    assert len(found) == 2  # of 1080 us, 10.8
    assert set(found) == {"p19", "p18"}  # most memory for the same gain


def test_one_part_at_least_stays() -> None:
    assert len(_heavy(*(Part(name=f"p{n}", gain_us=0, kept=9) for n in range(3)))) == 2
    assert _heavy(BIG) == {}


def test_limit_leaves_out_what_does_least_work_for_what_it_keeps() -> None:
    parts = [
        Part(name="deep", gain_us=9, kept=30, work=10),
        Part(name="early", gain_us=1, kept=10, work=100),
        Part(name="plain", gain_us=1, kept=0, work=1),
    ]
    kept, left_out = within_memory(parts, _kept, lambda part: part.work, 20 * MIB)
    assert [part.name for part in kept] == ["early", "plain"]
    assert left_out == {"deep": "it keeps 30.0 MiB, and all may keep 20.0 MiB"}


@pytest.mark.parametrize(("limit", "count"), [(math.inf, 2), (40 * MIB, 2), (39 * MIB, 1), (0, 0)])
def test_limit_is_for_all_together(limit: float, count: int) -> None:
    parts = [Part(name=name, gain_us=1, kept=20) for name in ("a", "b")]
    kept, left_out = within_memory(parts, _kept, lambda part: part.work, limit)
    assert len(kept) == count and len(left_out) == 2 - count


def test_judge_takes_the_lighter_of_two_near_equal_models() -> None:
    case = model_of(0.3, 0.2, 0.001)
    heavy = case.kernels[2].name
    case.validator = ModelValidator(
        case.comparer, case.steps.append, lambda kernel: 8 * MIB * (kernel.name == heavy)
    )
    found = case.judged()
    assert case.numbers(found.kept) == [0, 1]
    assert found.dropped[heavy] == "it keeps 8.0 MiB for 0.2% of what is saved"
    assert found.drops[heavy].is_final
    assert any(heavy in step for step in case.steps)


def test_judge_keeps_small_gains_that_keep_nothing() -> None:
    case = model_of(0.3, 0.2, 0.001)
    assert case.numbers(case.judged().kept) == [0, 1, 2]


def _memory(untuned: float, tuned: float, peak: bool = True) -> ModelMemory:
    uses = [
        MemoryUse(resident_bytes=mib * MIB, peak_bytes=mib * MIB if peak else None)
        for mib in (untuned, tuned)
    ]
    return ModelMemory(baseline=uses[0], tuned=uses[1])


@pytest.mark.parametrize(
    ("memory", "excess"),
    [
        (_memory(100, 120), 10),
        (_memory(100, 109), -1),
        (_memory(100, 120, peak=False), 10),  # what stays, where no peak is known
        (_memory(4, 13.9), -0.1),  # 10 MiB more are allowed whatever a model takes
        (None, -math.inf),
    ],
)
def test_tuned_model_may_take_a_tenth_more_at_its_peak(
    memory: ModelMemory | None, excess: float
) -> None:
    assert excess_bytes(memory, PEAK_RATIO) / MIB == pytest.approx(excess)
    weights = 10 * MIB  # which a session of the file itself holds
    assert excess_bytes(memory, PEAK_RATIO, weights) <= excess_bytes(memory, PEAK_RATIO) - weights
    assert excess_bytes(memory, math.inf) == -math.inf


def _fitting(parts: Sequence[Part], room: float, taken: float = 1.0, more: float = 0.0) -> set[str]:
    """Return what stays where a session takes `taken` of what parts keep, and `more` MiB each."""

    def excess_of(some: Sequence[Part]) -> float:
        return (sum(taken * part.kept + more for part in some) - room) * MIB

    kept = fitting(parts, _kept, excess_of)
    assert excess_of(kept) <= 0
    return {part.name for part in kept}


_SOME = [
    Part(name="best", gain_us=100, kept=10),
    Part(name="good", gain_us=60, kept=20),
    Part(name="small", gain_us=3, kept=4),
    Part(name="poor", gain_us=20, kept=40),
    Part(name="free", gain_us=1, kept=0),
]


def test_what_saves_least_for_its_memory_goes_until_the_rest_fits() -> None:
    assert _fitting(_SOME, room=100) == {part.name for part in _SOME}
    assert _fitting(_SOME, room=35) == {"best", "good", "small", "free"}
    assert _fitting(_SOME, room=12) == {"best", "free"}
    assert _fitting(_SOME, room=0) == {"free"}


@pytest.mark.parametrize("taken", [0.4, 2])
def test_no_more_goes_than_a_measurement_shows_to_be_too_much(taken: float) -> None:
    assert _fitting(_SOME, room=40 * taken, taken=taken) == {"best", "good", "small", "free"}


def test_memory_nobody_keeps_is_given_back_by_what_saves_least() -> None:
    parts = [Part(name=f"p{n}", gain_us=n, kept=0) for n in range(8)]
    assert _fitting(parts, room=4, more=1) == {"p4", "p5", "p6", "p7"}
    assert _fitting(parts, room=0, more=1) == set()


def _limited(
    model: ValidatedModel, kept_mib: dict[int, float], taken: float = 1.0
) -> ValidatedModel:
    """Return a model whose kernels keep that much, of which a session of 100 MiB takes a part."""
    names = {model.kernels[number].name: mib for number, mib in kept_mib.items()}

    def memory(baseline: ModelPart, tuned: ModelPart) -> ModelMemory:
        held = model.assembly.contents.get(str(tuned.model), frozenset())
        return _memory(100, 100 + taken * sum(names.get(name, 0.0) for name in held))

    model.runner.memory = memory
    model.validator = ModelValidator(
        model.comparer,
        model.steps.append,
        lambda kernel: names.get(kernel.name, 0.0) * MIB,
        PEAK_RATIO,
    )
    return model


def test_judge_drops_what_takes_too_much_memory_and_proves_the_rest() -> None:
    case = _limited(model_of(0.3, 0.2, 0.05), {0: 6, 1: 20})
    found = case.judged()
    assert case.numbers(found.kept) == [0, 2]
    assert found.memory == _memory(100, 106)
    heavy = case.kernels[1].name
    assert found.dropped == {
        heavy: "with it the model takes more memory at its peak than 1.10x of what ONNX Runtime"
        " takes"
    }
    assert found.drops[heavy].is_final
    assert found.estimate.median == pytest.approx(1 / 0.65, rel=0.02)


@pytest.mark.parametrize(("new_mib", "kept", "alone"), [(0.5, [0, 1, 2], 0), (20, [0, 1], 2)])
def test_memory_of_believed_kernels_is_seen_by_the_last_comparison_alone(
    new_mib: float, kept: list[int], alone: int
) -> None:
    case = _limited(model_of(0.3, 0.2, 0.05), {0: 3, 1: 3, 2: new_mib})
    found = case.judged(believed=(0, 1), kept_share=1.0)
    assert case.numbers(found.kept) == kept
    assert len(case.runner.asked("compare_models")) - case.runner.restarts == alone
    too_much = _limited(model_of(0.3, 0.2, 0.05), {0: 6, 1: 20, 2: 0.5})
    found = too_much.judged(believed=(0, 1), kept_share=1.0)
    assert too_much.numbers(found.kept) == [0, 2]


def test_kernel_that_went_for_the_peak_is_not_proven_again_with_the_rest() -> None:
    case = _limited(model_of(0.3, 0.2, -0.08, promised=(0.3, 0.2, 0.05)), {0: 6, 1: 20, 2: 0.5})
    found = case.judged(believed=(0, 1), kept_share=1.0)
    assert case.numbers(found.kept) == [0] and len(found.drops) == 2
    assert len([step for step in case.steps if case.kernels[1].name in step]) == 1


def test_second_run_holds_what_an_earlier_one_has_kept_to_the_limit() -> None:
    case = _limited(model_of(0.3, 0.2), {0: 6, 1: 20})
    assert case.numbers(case.confirmed().kept) == [0]


def test_model_that_is_not_measured_keeps_the_limit_too() -> None:
    case = model_of(0.3, 0.2)
    policies = {"screen": SCREEN, "final": FINAL, "costs": ModelCosts(run_s=1e-3)}
    case.comparer = ModelComparer(case.assembly, case.runner, **policies, inputs=MADE_UP)
    case = _limited(case, {0: 6, 1: 20})
    assert case.numbers(case.validator.take(case.kernels).kept) == [0]


def test_memory_that_no_kernel_is_known_to_keep_is_seen_by_the_last_comparison() -> None:
    case = _limited(model_of(0.3, 0.2), {0: 0, 1: 0})
    case.runner.memory = lambda baseline, tuned: _memory(
        100, 100 + 20 * (case.kernels[1].name in case.assembly.contents[str(tuned.model)])
    )
    assert case.numbers(case.judged().kept) == [0]


def test_model_that_does_not_fit_takes_no_time_of_the_lighter_one() -> None:
    """One process shows what it takes; the others are for the model that is proven then."""
    case = _limited(model_of(0.3, 0.2), {0: 0, 1: 0})
    case.runner.memory = lambda baseline, tuned: _memory(
        100, 100 + 20 * (case.kernels[1].name in case.assembly.contents[str(tuned.model)])
    )
    light = _limited(model_of(0.3), {0: 0})
    assert light.numbers(light.judged().kept) == [0] == case.numbers(case.judged().kept)
    assert case.runner.restarts == light.runner.restarts + 1
