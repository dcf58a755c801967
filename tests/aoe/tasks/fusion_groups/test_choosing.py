"""Which scopes go together, weighed in full and along the chain."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace

import pytest
from support.engine.tuning import make_operator, make_tuned, matrix_product, placed_operator

from aoe.bank.records.subgraph import ComputeLevel, FusionGroup
from aoe.device.forks import NO_TIME
from aoe.graph.fusing import FusionRuling
from aoe.schedule import ComputeAt, ComputeRoot, Schedule, Split
from aoe.tasks.fusion_groups.choosing import (
    FusionSet,
    best_sets,
    fusion_space,
    with_parts,
    without_overlap,
)
from aoe.tasks.fusion_groups.kernels import WonKernels, level_of, source_of
from aoe.tasks.operators.operators import FoundOperators
from aoe.tasks.rewrites.subgraphs import FusionCandidate, Subgraph


def _group(*nodes: int) -> FusionGroup:
    return FusionGroup(family="elementwise", nodes=nodes)


def _owned(groups: Mapping[FusionGroup, float]) -> dict[FusionGroup, frozenset[int]]:
    return {group: frozenset(group.nodes) for group in groups}


def test_two_parts_beat_the_whole_where_they_save_more() -> None:
    gains = {_group(0, 1, 2): 5.0, _group(0, 1): 3.0, _group(2): 2.5, _group(1, 2): 4.0}
    best = best_sets(gains, _owned(gains))
    assert set(best[0]) == {_group(0, 1), _group(2)}
    assert set(best[1]) == {_group(0, 1, 2)}


def _saved(chosen: FusionSet, gains: Mapping[FusionGroup, float]) -> float:
    return sum(gains[group] for group in chosen)


@pytest.mark.parametrize("seed", range(20))
def test_along_a_chain_the_best_set_is_found_as_if_all_were_weighed(
    seed: int,
) -> None:
    rng = random.Random(seed)
    intervals = {(a, b) for a in range(6) for b in range(a + 1, 7) if rng.random() < 0.4}
    gains = {_group(*range(a, b)): rng.uniform(0.1, 9) for a, b in sorted(intervals)[:10]}
    weighed = best_sets(gains, _owned(gains))[0]
    found = best_sets(gains, _owned(gains), enumerated=0)[0]
    assert _saved(found, gains) == pytest.approx(_saved(weighed, gains))


def test_scopes_that_interlock_never_share_a_node() -> None:
    gains = {_group(0, 3): 2.0, _group(1, 2): 2.0, _group(2, 3): 3.5, _group(4): 1.0}
    for chosen in best_sets(gains, _owned(gains), enumerated=0):
        nodes = [at for group in chosen for at in group.nodes]
        assert len(nodes) == len(set(nodes))


def test_space_gives_a_node_two_want_to_the_scope_that_saves_more() -> None:
    gains = {_group(0, 1): 1.0, _group(1, 2): 2.0, _group(3): 0.5}
    choices = fusion_space(gains, _owned(gains))
    everything = {knob.name: 1 for knob in choices.space.knobs}
    assert choices.strategy(everything).groups == (_group(1, 2), _group(3))
    first = choices.strategy(choices.space.first_guesses[0])
    assert set(first.groups) == {_group(1, 2), _group(3)}


def test_space_finds_the_sets_of_its_like() -> None:
    gains = {_group(0, 1): 1.0, _group(2): 2.0}
    choices = fusion_space(gains, _owned(gains))
    strategy = choices.strategy(choices.space.first_guesses[0])
    values = choices.configuration(strategy)
    assert values is not None
    assert choices.strategy(values) == strategy


def test_nothing_to_gain_is_nothing_to_choose() -> None:
    assert fusion_space({}, {}).space.knobs == ()


@pytest.mark.parametrize(
    ("steps", "level"),
    [
        ((), ComputeLevel.INLINED),
        ((ComputeAt("sums", "y", "n"),), ComputeLevel.ROW),
        ((Split("y", "n", "no", "ni", 4), ComputeAt("sums", "y", "no")), ComputeLevel.TILE),
        ((ComputeAt("sums", "y", "n"), ComputeRoot("padded")), ComputeLevel.MATERIALISED),
    ],
)
def test_level_is_that_of_the_producer_furthest_away(
    steps: tuple[object, ...], level: ComputeLevel
) -> None:
    assert level_of(Schedule(steps)) is level  # type: ignore[arg-type]


def _subgraph(**groups: tuple[tuple[int, ...], bool, str]) -> Subgraph:
    return Subgraph(
        graph_id="1",
        occurrences=(),
        groups={
            _group(*nodes): FusionCandidate(
                ruling=FusionRuling(fusion_class="", nodes=(), why=why),
                owned=frozenset(nodes),
                regions=(),
                is_operator=is_operator,
            )
            for nodes, is_operator, why in groups.values()
        },
    )


def test_first_come_those_of_operator_tuning_then_the_largest_beside_them() -> None:
    found = _subgraph(
        largest=((0, 1, 2, 3), True, "too many"),
        larger=((0, 1, 2), False, ""),
        operator=((2, 3), True, ""),
        beside=((0, 1), False, ""),
        alone=((0,), False, ""),
    )
    assert without_overlap(found) == (_group(2, 3), _group(0, 1))


def test_parts_of_what_was_lost_join_the_others() -> None:
    region = make_operator(matrix_product()).regions[0]
    inner, outer = (
        replace(placed_operator(matrix_product(), 1.0), regions=(replace(region, nodes=nodes),))
        for nodes in ((1, 2), (2, 3))
    )
    found = FoundOperators(fused=(), operators=(), refusals=())
    lost = replace(region, nodes=(0, 1, 2))
    assert with_parts([inner, outer], found, [lost]).operators == (inner,)


def test_kernel_without_the_time_to_be_compiled_leaves_its_subgraph_open() -> None:
    tuned = make_tuned("n0")
    won = WonKernels({tuned.operator.key: tuned})
    subgraph = _subgraph(one=((0,), True, ""))
    (group,) = subgraph.groups
    candidate = replace(subgraph.groups[group], regions=tuned.operator.regions)
    subgraph = replace(subgraph, groups={group: candidate})
    assert won.of(subgraph) and not won.is_open(subgraph)
    won.drop({source_of(tuned).name: NO_TIME})
    assert not won.of(subgraph) and won.is_open(subgraph)
