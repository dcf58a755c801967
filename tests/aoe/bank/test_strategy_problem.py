"""The engine's check of its strategies, as `aoebank validate` uses it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import aoebank
from aoe.bank.records.operator import strategy_problem

ROOT = Path(__file__).resolve().parents[3]
SAMPLES = ROOT / "sample_banks" / "x86-64-icelake" / "unified_bank"


def write_bank(root: Path, **changed: Any) -> Path:
    """Write the first record of a sample bank with other members in its strategy."""
    sample = next(SAMPLES.glob("*_lrn.json"))
    key, answers = next(iter(json.loads(sample.read_text()).items()))
    answers[0]["knowledge"] |= changed
    (root / sample.name).write_text(json.dumps({key: answers}))
    return root


def codes(path: Path) -> list[str | None]:
    found = aoebank.validate(path, select="AB410", strategy_problem=strategy_problem).findings
    return [finding.got for finding in found]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"steps": "rm -rf"}, "schedule: must be a list of steps"),
        ({"steps": [["rm", "-rf"]]}, "unknown step (got 'rm'"),
        ({"steps": [["vectorize", "y"]]}, "vectorize takes stage, var, factor"),
        ({"knobs": None}, "knobs: must be an object"),
    ],
)
def test_strategy_the_engine_takes_for_a_miss_is_a_finding(
    tmp_path: Path, changed: dict[str, Any], said: str
) -> None:
    (problem,) = codes(write_bank(tmp_path, **changed))
    assert problem is not None
    assert said in problem


def test_strategies_of_this_engine_and_of_others_have_no_finding(tmp_path: Path) -> None:
    assert codes(SAMPLES) == []
    assert codes(write_bank(tmp_path, engine="another", steps="rm -rf")) == []
