"""Strategies of subgraphs in the bank: to and fro, stale ones, verdicts, and what validate says."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.engine.tuning import make_estimate, make_journal, make_measurement
from support.version_banks import keep_out

from aoe.bank import subgraphs
from aoe.bank.records.subgraph import (
    AppliedRule,
    ComputeLevel,
    FusionGroup,
    NodeFeature,
    SubgraphStrategy,
    feature_to_json,
    group_to_json,
    strategy_of,
)
from aoe.bank.sources import rule_source, source_of
from aoe.bank.subgraphs import SubgraphBank
from aoe.bank.verdicts import BankNote
from aoebank import Bank, Event, Record, diff, make_graph_record, merge, validate
from aoebank.model.digest import digest_of
from aoebank.model.quarantine import QuarantineEntry, answer_digest

SPLIT = AppliedRule(rule="convolution-split", version=1, nodes=(0, 1, 3))
MEAN = AppliedRule(rule="mean-to-global-pool", version=2, nodes=(4,))
CHAIN = FusionGroup(family="elementwise", nodes=(1, 2))
TILED = FusionGroup(family="matmul", nodes=(3, 4), level=ComputeLevel.TILE)
STRATEGIES = (
    SubgraphStrategy(),
    SubgraphStrategy(rewrites=(SPLIT,)),
    SubgraphStrategy(rewrites=(SPLIT, replace(SPLIT, nodes=(2,)), MEAN), blocked=False),
    SubgraphStrategy(chunks=(4, 4)),
    SubgraphStrategy(rewrites=(MEAN,), chunks=(4, 3), blocked=False),
    SubgraphStrategy(groups=(CHAIN, replace(CHAIN, nodes=(0,)), TILED)),
)
NODES = [
    NodeFeature(op_type="Conv", shapes=((1, 3, 8, 8), (16, 3, 3, 3), ()), item_bytes=(4, 4, 0)),
    *[NodeFeature(op_type="Relu", shapes=((1, 16, 8, 8),), item_bytes=(4,))] * 4,
]


def _record(strategy: SubgraphStrategy, **group: Any) -> Record:
    return make_graph_record(
        graph_id="7",
        feature=feature_to_json(NODES),
        groups=[{**group_to_json(strategy, len(NODES)), **group}],
        end_to_end_ns=1000,
    )


def _note(event: Event, speedup: float = 1.5, **search: Any) -> BankNote:
    return BankNote(
        event=event,
        op_names=("n0",),
        estimate=make_estimate(speedup),
        measurement=make_measurement(speedup),
        search=search,
    )


def _bank(root: Path, *, anonymous: bool = False, **changes: Any) -> SubgraphBank:
    return SubgraphBank(make_journal(root, **changes), anonymous=anonymous)


@pytest.mark.parametrize("as_before", [False, True])
def test_subgraph_in_quarantine_is_the_same_when_it_is_measured_again(
    tmp_path: Path, as_before: bool
) -> None:
    bank, strategy = _bank(tmp_path), STRATEGIES[1]
    assert bank.save("7", NODES, strategy, _note(Event.ADD, 1.5)) == ""
    (record,) = Bank(tmp_path).iter_records(bank.file)
    entry = QuarantineEntry(
        key="7",
        reason="wrong on one machine",
        who="Ann",
        when="2026-01-01T00:00:00Z",
        strategy_sha256=digest_of(record.strategy) if as_before else answer_digest(record),
    )
    keep_out(tmp_path, entry)
    assert entry.holds(record)
    refused = bank.save("7", NODES, strategy, _note(Event.ADD, 1.7))
    assert ("wrong on one machine" in refused) is not as_before  # older entries name the time, too
    assert bank.save("7", NODES, STRATEGIES[3], _note(Event.ADD, 1.7)) == ""


@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
def test_strategy_comes_back_from_its_record(strategy: SubgraphStrategy) -> None:
    assert strategy_of(_record(strategy)) == strategy


def test_record_says_scopes_and_pieces_node_by_node() -> None:
    group = group_to_json(SubgraphStrategy(rewrites=(SPLIT, MEAN), chunks=(4, 4)), 5)
    assert group == {
        "cut": [2, 2, 2, 2, 2],
        "fusionType": [True, True, False, True, True],
        "scopeId": [-1, -1, -3, -1, -5],
        "ubPass": {
            "convolution-split@1": [0, 1, 3],
            "mean-to-global-pool@2": [4],
            "chunks": [4, 4],
        },
    }


def test_record_says_which_nodes_one_kernel_computes_and_where_its_values_live() -> None:
    group = group_to_json(SubgraphStrategy(groups=(CHAIN, replace(CHAIN, nodes=(0,)), TILED)), 5)
    assert group == {
        "cut": [1, 1, 1, 1, 1],
        "fusionType": [True, True, True, True, True],
        "scopeId": [-1, -3, -3, -5, -5],
        "ubPass": {
            "kernel.elementwise.inlined": [1, 2],
            "kernel.elementwise.inlined#2": [0],
            "kernel.matmul.tile": [3, 4],
        },
    }
    levels = [group.level for group in strategy_of(_record_of(group)).groups]
    assert levels == [ComputeLevel.INLINED, ComputeLevel.INLINED, ComputeLevel.TILE]


def _record_of(group: dict[str, Any]) -> Record:
    return _record(SubgraphStrategy(), **group)


@pytest.mark.parametrize(
    "group",
    [
        {"ubPass": {"kernel.elementwise.inlined": [9]}},
        {"ubPass": {"kernel.elementwise.inlined": [1, 1]}},
        {"ubPass": {"kernel.elementwise.elsewhere": [1]}},
        {"ubPass": {"AutomaticUbFusion": [1]}},
        {"ubPass": {"convolution-split@1": [9]}},
        {"ubPass": {"convolution-split@1": []}},
        {"ubPass": {"convolution-split@1": [0], "mean-to-global-pool@2": [0]}},
        {"ubPass": {"convolution-split@1": "0"}},
        {"ubPass": {"convolution-split@1": [True]}},
        {"ubPass": {"chunks": [4, 4]}},
        {"ubPass": {"chunks": [0, 4]}, "cut": [2] * 5},
        {"ubPass": []},
    ],
)
def test_strategy_that_makes_no_sense_is_refused_with_a_reason(group: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"\w+"):
        strategy_of(_record(SubgraphStrategy(), **group))


def test_strategy_is_told_in_words() -> None:
    assert [str(strategy) for strategy in STRATEGIES] == [
        "as it is",
        "convolution-split@1",
        "2 x convolution-split@1, mean-to-global-pool@2, plain layout",
        "batch in 4+4",
        "mean-to-global-pool@2, plain layout, batch in 4+3",
        "elementwise kernel for 2, elementwise kernel for 1, matmul kernel for 2",
    ]


def test_saved_strategy_is_found_with_its_figures(tmp_path: Path) -> None:
    assert _bank(tmp_path).find("7") is None
    assert _bank(tmp_path).save("7", NODES, STRATEGIES[2], _note(Event.ADD)) == ""
    found = _bank(tmp_path).find("7")
    assert found is not None
    assert (found.strategy, found.invalid_reason, found.speedup) == (STRATEGIES[2], "", 1.5)
    assert found.cost_us == pytest.approx(make_measurement(1.5).latency_us, rel=1e-5)


def test_name_of_the_model_is_in_the_record_unless_it_is_nobody_s_business(tmp_path: Path) -> None:
    for anonymous in (False, True):
        bank = _bank(tmp_path / str(anonymous), anonymous=anonymous)
        bank.save("7", NODES, STRATEGIES[1], _note(Event.ADD))
        line = json.loads(bank.file.read_text().splitlines()[1])
        assert ("modelName" in line["strategy"]) != anonymous


def test_record_of_another_engine_is_there_with_the_reason_it_is_no_use(tmp_path: Path) -> None:
    bank = _bank(tmp_path)
    bank.save("7", NODES, STRATEGIES[1], _note(Event.ADD))
    text = bank.file.read_text().replace("convolution-split@1", "AutomaticUbFusion")
    bank.file.write_text(text)
    found = _bank(tmp_path).find("7")
    assert found is not None and found.strategy is None
    assert "no rule of this engine (got 'AutomaticUbFusion')" in found.invalid_reason


def test_search_that_found_nothing_is_believed_for_the_same_options(tmp_path: Path) -> None:
    bank = _bank(tmp_path)
    bank.note([("7", _note(Event.UNSATISFIED, options=["a", "b"]))])
    assert bank.is_hopeless("7", ["a", "b"])
    assert not bank.is_hopeless("7", ["a", "b", "c"])
    assert not bank.is_hopeless("8", ["a", "b"])
    assert not _bank(tmp_path, onnxruntime="9.9").is_hopeless("7", ["a", "b"])


@pytest.mark.parametrize(
    ("speedup", "half_width", "believed"),
    [(0.9, 0.05, True), (1.005, 0.004, True), (1.0, 0.2, False), (1.5, 0.6, False)],
)
def test_search_that_noise_decided_is_not_believed(
    tmp_path: Path, speedup: float, half_width: float, believed: bool
) -> None:
    bank = _bank(tmp_path)
    note = replace(
        _note(Event.UNSATISFIED, options=["a"]), estimate=make_estimate(speedup, half_width)
    )
    bank.note([("7", note)])
    assert bank.is_hopeless("7", ["a"], threshold=1.01) is believed


def test_search_noise_has_decided_twice_is_made_no_third_time(tmp_path: Path) -> None:
    bank = _bank(tmp_path)
    wide = replace(_note(Event.UNSATISFIED, options=["a"]), estimate=make_estimate(1.0, 0.2))
    others = replace(wide, search={"options": ["b"]})
    for note, is_hopeless in ((others, False), (wide, False), (wide, True), (others, True)):
        bank.note([("7", note)])
        options = list(note.search["options"])
        assert bank.is_hopeless("7", options, threshold=1.01) is is_hopeless
    bank.save("7", NODES, STRATEGIES[1], _note(Event.ADD))
    bank.note([("7", wide)])
    assert not bank.is_hopeless("7", ["a"], threshold=1.01)


def _verdict(event: Event, **search: Any) -> BankNote:
    """Return what a whole model made of a form."""
    found = BankNote.of_model(
        event, ("n0",), reason="x", estimate=make_estimate(1.2, 0.001), surroundings={"a"}
    )
    return BankNote(event=event, op_names=("n0",), search={**found.search, **search})


@pytest.mark.parametrize(
    ("notes", "is_known"),
    [
        ([_verdict(Event.KEPT)], True),
        ([_verdict(Event.KEPT), _verdict(Event.KEPT, beside_operators=True)], True),
        ([_verdict(Event.KEPT), _verdict(Event.DROPPED, beside_operators=True)], False),
        ([_verdict(Event.DROPPED)], False),
        ([], False),
        ([_verdict(Event.KEPT), _note(Event.UPDATE)], False),
    ],
)
def test_form_the_model_of_an_earlier_result_has_kept_is_known(
    tmp_path: Path, notes: list[BankNote], is_known: bool
) -> None:
    base = _bank(tmp_path / "base", model="earlier")
    base.save("7", NODES, STRATEGIES[1], _note(Event.ADD))
    base.note([("7", note) for note in notes])
    journal = make_journal(tmp_path / "own", model="changed")
    bank = SubgraphBank(journal, base=Bank(tmp_path / "base"))
    found = bank.kept_in_base("7")
    assert (found is not None) is is_known
    if found is not None:
        assert (found.is_settled, found.surroundings) == (True, frozenset({"a"}))
    bank.save("7", NODES, STRATEGIES[2], _note(Event.ADD))  # another one is used here
    assert bank.kept_in_base("7") is None
    assert base.kept_in_base("7") is None


def test_model_s_verdict_is_of_the_record_as_it_is(tmp_path: Path) -> None:
    bank = _bank(tmp_path)
    bank.save("7", NODES, STRATEGIES[1], _note(Event.ADD))
    assert bank.model_verdict("7") is None
    bank.note([("7", _note(Event.DROPPED))])
    assert bank.model_verdict("7") is Event.DROPPED
    assert _bank(tmp_path, model="other").model_verdict("7") is None
    bank.save("7", NODES, STRATEGIES[2], _note(Event.UPDATE))
    assert bank.model_verdict("7") is None


def test_records_travel_with_what_was_noted(tmp_path: Path) -> None:
    bank = _bank(tmp_path / "a")
    bank.save("7", NODES, STRATEGIES[1], _note(Event.ADD))
    for _ in range(2):
        bank.copy_to(tmp_path / "b", ["7", "7", "8"])
    copy = _bank(tmp_path / "b")
    assert copy.file.read_bytes() == bank.file.read_bytes()
    side_car = bank.file.with_name(bank.file.name + ".provenance.jsonl")
    assert copy.file.with_name(side_car.name).read_bytes() == side_car.read_bytes()


def test_bank_is_valid_and_two_of_them_merge(tmp_path: Path) -> None:
    ours, theirs = _bank(tmp_path / "a"), _bank(tmp_path / "b")
    ours.save("7", NODES, STRATEGIES[1], _note(Event.ADD))
    theirs.save("7", NODES, STRATEGIES[1], _note(Event.ADD))
    theirs.save("8", [*NODES, *NODES], STRATEGIES[4], _note(Event.ADD))
    for root in ("a", "b"):
        assert list(validate(tmp_path / root).findings) == []
    (change,) = diff(tmp_path / "a", tmp_path / "b").changes
    assert (change.kind.value, change.key) == ("added", "8")
    merge(tmp_path / "a", tmp_path / "b", output=tmp_path / "merged")
    merged = _bank(tmp_path / "merged")
    for key, strategy in (("7", STRATEGIES[1]), ("8", STRATEGIES[4])):
        stored = merged.find(key)
        assert stored is not None and stored.strategy == strategy
    assert list(validate(tmp_path / "merged").findings) == []


def test_merge_keeps_the_faster_strategy_of_a_subgraph(tmp_path: Path) -> None:
    slower, faster = _bank(tmp_path / "a"), _bank(tmp_path / "b")
    slower.save("7", NODES, STRATEGIES[1], _note(Event.ADD, 1.2))
    faster.save("7", NODES, STRATEGIES[5], _note(Event.ADD, 1.6))
    found = merge(tmp_path / "a", tmp_path / "b", output=tmp_path / "merged")
    assert found.conflicts == 0
    stored = _bank(tmp_path / "merged").find("7")
    assert stored is not None and stored.strategy == STRATEGIES[5]


# ---- fingerprints ----


def test_record_carries_the_source_of_its_rules(tmp_path: Path) -> None:
    strategy = SubgraphStrategy(rewrites=(SPLIT,))
    bank = _bank(tmp_path)
    assert bank.save("7", NODES, strategy, _note(Event.ADD)) == ""
    (line,) = Bank(tmp_path).iter_provenance(bank.file)
    assert line.fingerprint["kernel_source"] == rule_source(["convolution-split"])
    (record,) = Bank(tmp_path).iter_records(bank.file)
    assert source_of(record) == line.fingerprint["kernel_source"]
    found = _bank(tmp_path).find("7")
    assert found is not None
    assert (found.strategy, found.remeasure_reasons) == (strategy, ())


def test_record_of_changed_rules_is_refused_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _bank(tmp_path).save("7", NODES, SubgraphStrategy(rewrites=(SPLIT,)), _note(Event.ADD))
    monkeypatch.setattr(subgraphs, "rule_source", lambda rules: "another")
    found = _bank(tmp_path).find("7")
    assert found is not None
    assert found.strategy is None
    assert found.invalid_reason == "kernel source changed: stale"


def test_record_of_another_library_version_is_doubted(tmp_path: Path) -> None:
    _bank(tmp_path).save("7", NODES, SubgraphStrategy(chunks=(4, 4)), _note(Event.ADD))
    found = _bank(tmp_path, onnxruntime="1.31.0").find("7")
    assert found is not None
    assert found.strategy is not None
    assert found.remeasure_reasons == (
        "onnxruntime 1.23.0 -> 1.31.0: soft mismatch, to be checked again",
    )


# ---- an earlier result ----


def test_subgraph_of_an_earlier_result_is_found_and_taken_over(tmp_path: Path) -> None:
    strategy = SubgraphStrategy(rewrites=(SPLIT,))
    base = _bank(tmp_path / "base")
    base.save("7", NODES, strategy, _note(Event.ADD))
    base.note([("8", _note(Event.UNSATISFIED, 1.0, options=["a"]))])
    bank = SubgraphBank(make_journal(tmp_path / "own"), base=Bank(tmp_path / "base"))
    found = bank.find("7")
    assert found is not None
    assert (found.strategy, found.is_base) == (strategy, True)
    assert bank.is_hopeless("8", ["a"])
    for graph_id in ("7", "8", "9"):
        bank.adopt(graph_id)
        bank.adopt(graph_id)
    alone = _bank(tmp_path / "own")
    taken = alone.find("7")
    assert taken is not None
    assert (taken.strategy, taken.is_base, taken.remeasure_reasons) == (strategy, False, ())
    assert alone.is_hopeless("8", ["a"])
    assert len([*Bank(tmp_path / "own").iter_provenance(alone.file)]) == 2


def test_own_subgraph_goes_before_that_of_an_earlier_result(tmp_path: Path) -> None:
    own = SubgraphStrategy(chunks=(4, 4))
    _bank(tmp_path / "base").save("7", NODES, SubgraphStrategy(rewrites=(SPLIT,)), _note(Event.ADD))
    _bank(tmp_path / "own").save("7", NODES, own, _note(Event.ADD))
    bank = SubgraphBank(make_journal(tmp_path / "own"), base=Bank(tmp_path / "base"))
    bank.adopt("7")
    found = bank.find("7")
    assert found is not None
    assert (found.strategy, found.is_base) == (own, False)
