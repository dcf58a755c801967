"""In which order the models of a comparison are loaded."""

from __future__ import annotations

import subprocess

import pytest
from support.engine.tuning import make_measurement

from aoe.child_python import python_command
from aoe.execute.accuracy import Deviation
from aoe.execute.tasks import ComparisonTerms, ModelComparison, comparison_rounds, joined_comparison
from aoe.measurement import MeasurePolicy
from aoe.measurement.memory import mean_memory


@pytest.mark.parametrize(
    ("pairs", "orders", "expected"),
    [
        (12, (False, True), [(False, 6), (True, 6)]),
        (12, (True, False), [(True, 6), (False, 6)]),
        (11, (True, False), [(True, 11)]),
        (12, (False,), [(False, 12)]),
        (4, (True,), [(True, 4)]),
    ],
)
def test_each_order_has_a_round_unless_one_is_asked_for(
    pairs: int, orders: tuple[bool, ...], expected: list[tuple[bool, int]]
) -> None:
    policy = MeasurePolicy(pairs_min=pairs, pairs_max=pairs)
    rounds = comparison_rounds(policy, ComparisonTerms(orders=orders))
    assert [(first, share.pairs_max) for first, share, _ in rounds] == expected


def test_pairs_of_all_rounds_are_one_comparison() -> None:
    rounds = [
        ModelComparison(
            measurement=make_measurement(2.0, 6),
            deviation=Deviation(max_abs_err=0.0, excess=0.0),
        )
    ] * 2
    assert len(joined_comparison(rounds, mean_memory).measurement.tuned_us) == 12


def test_worker_that_compares_models_starts_without_kernel_families() -> None:
    asked = "import aoe.execute.tasks; print('aoe.kernels.registry' in sys.modules)"
    done = subprocess.run(python_command(asked), capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
