"""What of a subgraph's gain is the layout's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest
from support.engine.tuning import make_measurement

from aoe.bank.records.subgraph import AppliedRule, SubgraphStrategy
from aoe.graph.rewrites.layout import INTO_RULE
from aoe.measurement import Measurement, Outcome
from aoe.results.files import Gain, GainKind, RepoOutcome
from aoe.runs.subgraphs.result import format_gain
from aoe.tasks.rewrites.lookup import StrategyTrial, TunedSubgraph

_TURNED = AppliedRule(rule=INTO_RULE.name, version=1, nodes=(0,))
_SPLIT = AppliedRule(rule="convolution-split", version=1, nodes=(1,))
_ONLY_SPLIT = SubgraphStrategy(rewrites=(_SPLIT,))


def _tuned(strategy: SubgraphStrategy | None, *trials: tuple[SubgraphStrategy, Any]) -> Any:
    return TunedSubgraph(
        subgraph=cast("Any", None),
        outcome=RepoOutcome.ADD,
        reason="",
        strategy=strategy,
        before_us=120.0,
        after_us=60.0,
        speedup=2.0,
        trials=tuple(
            StrategyTrial(
                strategy=tried,
                measurement=make_measurement(result)
                if isinstance(result, float)
                else Measurement.failure(result, "no"),
            )
            for tried, result in trials
        ),
    )


@pytest.mark.parametrize(
    "strategy",
    [
        SubgraphStrategy(blocked=False),
        SubgraphStrategy(rewrites=(_TURNED,)),
        SubgraphStrategy(rewrites=(_TURNED,), blocked=False),
    ],
)
def test_all_is_the_layout_s_where_nothing_else_was_chosen(strategy: SubgraphStrategy) -> None:
    assert format_gain(_tuned(strategy)) == Gain(
        kind=GainKind.FORMAT, before_us=120.0, after_us=60.0
    )


def test_else_it_is_what_the_form_gains_over_itself_without_layouts() -> None:
    both = SubgraphStrategy(rewrites=(_SPLIT, _TURNED))
    gain = format_gain(_tuned(both, (_ONLY_SPLIT, 1.5)))
    assert gain is not None
    assert (gain.before_us, gain.after_us) == (pytest.approx(80.0), 60.0)


def test_where_that_was_not_measured_nothing_is_said() -> None:
    both = SubgraphStrategy(rewrites=(_SPLIT, _TURNED))
    assert format_gain(_tuned(both)) is None
    assert format_gain(_tuned(both, (_ONLY_SPLIT, Outcome.RUNTIME))) is None
    assert format_gain(_tuned(both, (_ONLY_SPLIT, 2.5))) is None  # it was no gain


def test_form_without_layouts_has_no_such_gain() -> None:
    assert format_gain(_tuned(_ONLY_SPLIT)) is None
    assert format_gain(_tuned(None)) is None
    kept = replace(_tuned(SubgraphStrategy(blocked=False)), outcome=RepoOutcome.RESERVED)
    assert format_gain(kept) is None
