"""What names of algorithms say, and which part of a family's space they leave."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pytest
from support.engine.families import chain_workload

from aoe.kernels.algorithms import allowed_space, is_allowed, precision_of
from aoe.kernels.elementwise import Elementwise
from aoe.kernels.family import KernelTarget
from aoe.kernels.roofline import first_algorithms
from aoe.schedule import Choice, Configuration, Knob, Schedule, Space
from aoe.workload import Precision, Workload

_STRICT, _FLOAT32, _BFLOAT16, _INT8, _INT4 = Precision
_TARGET = KernelTarget(vector_lanes=8, threads=2)
_NAMES = ("direct", "winograd_4x4", "direct_bf16", "product_tiles", "panels_int8", "rows_int4")


@dataclass(frozen=True, slots=True)
class Several(Elementwise):
    """Offers algorithms under a knob of a name of its own."""

    knob: str = "algorithm"

    def space(self, workload: Workload, target: KernelTarget) -> Space:
        def legal(values: Mapping[str, Choice]) -> bool:
            return values["size"] != 4

        return Space(
            knobs=(Knob(self.knob, _NAMES), Knob("size", (1, 2, 4))),
            constraint=legal,
            first_guesses=tuple({self.knob: name, "size": 2} for name in _NAMES),
        )

    def schedule(
        self, workload: Workload, configuration: Configuration, target: KernelTarget
    ) -> Schedule:
        return Schedule(algorithm=str(configuration[self.knob]))


@pytest.mark.parametrize(
    ("algorithm", "precision"),
    [
        ("", _STRICT),
        ("direct", _STRICT),
        ("winograd_2x2", _FLOAT32),
        ("rows_winograd", _FLOAT32),
        ("direct_bf16", _BFLOAT16),
        ("bf16_weights", _BFLOAT16),
        ("product_tiles", _BFLOAT16),
        ("winograd_bf16", _BFLOAT16),
        ("panels_int8", _INT8),
        ("rows_int4", _INT4),
        ("tiles_of_rows", _STRICT),
    ],
)
def test_name_tells_the_precision(algorithm: str, precision: Precision) -> None:
    assert precision_of(algorithm) is precision


def test_float32_takes_all_that_rounds_no_factor_and_the_others_their_own() -> None:
    allowed = {
        precision: [name for name in _NAMES if is_allowed(name, precision)]
        for precision in Precision
    }
    assert allowed == {
        _STRICT: ["direct"],
        _FLOAT32: ["direct", "winograd_4x4"],
        _BFLOAT16: ["direct_bf16", "product_tiles"],
        _INT8: ["panels_int8"],
        _INT4: ["rows_int4"],
    }


@pytest.mark.parametrize("knob", ["algorithm", "form"])
@pytest.mark.parametrize("precision", list(Precision))
def test_space_holds_the_allowed_algorithms_only(knob: str, precision: Precision) -> None:
    workload = replace(chain_workload(), precision=precision)
    space = allowed_space(Several(knob=knob), workload, _TARGET)
    assert space is not None
    names = [name for name in _NAMES if is_allowed(name, precision)]
    found = {(str(values[knob]), values["size"]) for values in space.configurations()}
    assert found == {(name, size) for name in names for size in (1, 2)}
    assert [guess[knob] for guess in space.first_guesses] == names


def test_family_without_algorithms_keeps_its_space_in_float32_and_has_none_below() -> None:
    family, workload = Elementwise(), chain_workload()
    for precision in (_STRICT, _FLOAT32):
        space = allowed_space(family, replace(workload, precision=precision), _TARGET)
        assert space is not None
        whole = family.space(workload, _TARGET)
        assert space.configurations() == whole.configurations()
    for precision in (_BFLOAT16, _INT8, _INT4):
        assert allowed_space(family, replace(workload, precision=precision), _TARGET) is None


class _Ranking(Several):
    """Counts how often its configurations are ranked."""

    rankings = 0

    def space(self, workload: Workload, target: KernelTarget) -> Space:
        type(self).rankings += 1
        return super().space(workload, target)


def test_algorithms_a_family_begins_with_are_ranked_once_for_each_workload() -> None:
    family, workload = _Ranking(), chain_workload()
    wide = replace(workload, precision=_BFLOAT16)
    for _ in range(3):  # partition, budget and look-up ask one after another
        assert first_algorithms(family, chain_workload(), _TARGET) == {"direct", "winograd_4x4"}
        assert first_algorithms(family, wide, _TARGET) == {"direct_bf16", "product_tiles"}
    assert _Ranking.rankings == 2
    assert not first_algorithms(Elementwise(), wide, _TARGET)
