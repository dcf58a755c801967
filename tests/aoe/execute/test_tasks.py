"""In which order the models of a comparison are loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.engine.tuning import make_measurement

from aoe.execute import tasks
from aoe.execute.accuracy import Deviation
from aoe.execute.messages import ModelPart
from aoe.execute.tasks import ComparisonTerms, ModelComparison, compare_parts
from aoe.measurement import MeasurePolicy
from aoe.ort.inputs import MADE_UP


@pytest.mark.parametrize(
    ("pairs", "tuned_first", "orders"),
    [
        (12, None, [(False, 6), (True, 6)]),
        (11, None, [(False, 11)]),
        (12, False, [(False, 12)]),
        (4, True, [(True, 4)]),
    ],
)
def test_each_order_has_a_round_unless_one_is_asked_for(
    pairs: int,
    tuned_first: bool | None,
    orders: list[tuple[bool, int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[tuple[bool, int]] = []

    def once(
        setup: Any, quiet: Any, models: Any, policy: MeasurePolicy, *_: Any, tuned_first: bool
    ) -> ModelComparison:
        seen.append((tuned_first, policy.pairs_max))
        return ModelComparison(
            measurement=make_measurement(2.0, policy.pairs_max),
            deviation=Deviation(max_abs_err=0.0, excess=0.0),
        )

    monkeypatch.setattr(tasks, "_compare_once", once)
    part = ModelPart(model=Path("model.onnx"))
    found = compare_parts(
        None,  # type: ignore[arg-type]
        None,  # type: ignore[arg-type]
        (part, part),
        MeasurePolicy(pairs_min=pairs, pairs_max=pairs),
        MADE_UP,
        ComparisonTerms(tuned_first=tuned_first),
    )
    assert seen == orders
    assert len(found.measurement.tuned_us) == pairs
