"""Near-equal sets of kernels: the lighter one is taken, and a limit holds."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
from support.engine.judging import model_of

from aoe.tuning.validation.memory_pruning import not_worth_their_memory, within_memory
from aoe.tuning.validation.model_validator import ModelValidator

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
    case.judge = ModelValidator(
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
