"""What is different in the most similar workload of before, in words."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.engine.families import chain_workload

from aoe.tuner.reuse.kinds import Reuse, ReuseKind, ReuseSummary, nearest_change, reuse_to_json
from aoe.workload import Precision

NOW = chain_workload(("Exp", "Tanh"), shape=(1, 8, 64, 64))


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ((1, 8, 56, 56), "shape changed 56->64"),
        ((1, 16, 64, 64), "shape changed 16->8"),
        ((1, 16, 56, 64), "shape changed 1x16x56x64->1x8x64x64"),
        ((8, 64, 64), "shape changed 8x64x64->1x8x64x64"),
    ],
)
def test_shapes_are_told_as_shortly_as_they_say_it(shape: tuple[int, ...], words: str) -> None:
    assert nearest_change(NOW, [chain_workload(("Exp", "Tanh"), shape=shape)]) == words


def test_the_nearest_is_told() -> None:
    others = [chain_workload(("Exp", "Tanh"), shape=(1, 8, side, side)) for side in (7, 60, 512)]
    assert nearest_change(NOW, others) == "shape changed 60->64"


def test_other_operators_are_nothing_alike() -> None:
    assert nearest_change(NOW, []) == ""
    assert nearest_change(NOW, [chain_workload(("Tanh", "Exp"), shape=(1, 8, 64, 64))]) == ""


def test_precision_is_told() -> None:
    other = replace(NOW, precision=Precision.BFLOAT16)
    assert nearest_change(NOW, [other]) == "precision changed bfloat16->float32"


def test_summary_counts_every_kind() -> None:
    part = Reuse(key="7", op_type="lrn", op_names=("n",), kind=ReuseKind.NEW, reason="no like")
    summary = ReuseSummary(base="out", parts=(part,))
    assert str(summary) == "0 reused, 0 retuned, 1 new, 0 dropped"
    told = reuse_to_json(summary)
    assert told is not None
    assert told["counts"] == {"reused": 0, "retuned": 0, "new": 1, "dropped": 0}
    assert reuse_to_json(None) is None
