from __future__ import annotations

import pytest
from rewrite_blocks import BLOCKS
from support.contracts.rewrites import matches_of, view

from aoe.tasks.rewrites.subgraphs import RULES


def test_every_rule_is_measured_on_a_block() -> None:
    assert set(BLOCKS) == set(RULES)


@pytest.mark.parametrize("rule", list(BLOCKS))
def test_every_block_holds_what_its_rule_is_about(rule: str) -> None:
    for label, make in BLOCKS[rule].items():
        assert matches_of(view(make()), RULES[rule]), label
