"""Who wins where both sides changed a key: times, noise, machines, policies, overrides."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from support import golden_harness, merge_files
from support.merge_files import NAMES, Answer, make_file

from aoebank import BankFormatError, Event, Provenance, UsageError
from aoebank.formats.provenance import ProvenanceLog, parse_provenance, serialize_provenance
from aoebank.formats.registry import get_format
from aoebank.merging.decisions import (
    Action,
    Decision,
    Incumbent,
    MergeRules,
    Override,
    Policy,
    Reason,
    parse_override,
)
from aoebank.merging.file import FileMerge, merge_file
from aoebank.merging.versions import MergeContext, Versions
from aoebank.model.timing import NOISE_RATIO, Measurements, Times
from aoebank.parameters.context import parse_ratio

UNIFIED = "unified"
A, B = Answer(tile=1, cost_us=100.0), Answer(tile=2, cost_us=100.0)
KEY = merge_files.key_of(UNIFIED, 0)


def decide(
    ours: Answer,
    theirs: Answer,
    rules: MergeRules | None = None,
    *,
    base: Answer | None = None,
    name: str = UNIFIED,
    logs: tuple[ProvenanceLog, ProvenanceLog] | None = None,
) -> Decision:
    """Return the decision about one key; two-way without a base."""
    none = ProvenanceLog(entries=(), findings=())
    logs = logs or (none, none)
    base_data, *sides = (
        make_file(name, {0: answer}) if answer else None for answer in (base, ours, theirs)
    )
    context = MergeContext(
        rules=rules or MergeRules(),
        is_two_way=base is None,
        times_of_ours=Measurements(lambda: logs[0].entries),
        times_of_theirs=Measurements(lambda: logs[1].entries),
        verbose=True,
    )
    files = merge_files.versions(name, base_data, *sides)
    plan = merge_file(files, merge_files.NAMES[name], context).plan
    (decision,) = plan.decisions
    return decision


def merge(
    base: bytes | None,
    ours: bytes,
    theirs: bytes,
    rules: MergeRules | None = None,
    *,
    name: str = UNIFIED,
) -> FileMerge:
    """Return the merge of one file; two-way without a base."""
    context = MergeContext(rules=rules or MergeRules(), is_two_way=base is None)
    return merge_file(merge_files.versions(name, base, ours, theirs), "x", context)


def log(
    cost_us: float, fingerprint: dict[str, str] | None = None, *, scatter: float = 0.0
) -> ProvenanceLog:
    samples = tuple(cost_us * (1 + scatter * step) for step in (-2, -1, 0, 1, 2))
    entry = Provenance(
        key=KEY,
        event=Event.ADD,
        time="2026-01-02T03:04:05Z",
        engine="aoe 1",
        fingerprint=fingerprint or {},
        tuned_us=samples,
    )
    return parse_provenance(serialize_provenance(entry), Path("x.provenance.jsonl"))


@pytest.mark.parametrize("base", [None, Answer(tile=9, cost_us=500.0)])
def test_faster_record_wins_when_the_gap_exceeds_noise(base: Answer | None) -> None:
    slow, fast = A, replace(B, cost_us=90.0)
    assert decide(slow, fast, base=base).action is Action.TAKE_THEIRS
    assert decide(fast, slow, base=base).action is Action.KEEP_OURS
    assert decide(slow, fast, base=base).reason is Reason.FASTER


def test_ours_wins_a_two_way_merge_inside_the_noise_band() -> None:
    decision = decide(A, replace(B, cost_us=98.0))
    assert decision.action is Action.KEEP_OURS
    assert decision.reason is Reason.INSIDE_NOISE
    assert decision.note == "2.0 % is within 3.0 %"


def test_without_incumbent_the_smaller_time_wins_inside_the_noise_band() -> None:
    rules = MergeRules(incumbent=Incumbent.NONE)
    assert decide(A, replace(B, cost_us=98.0), rules).action is Action.TAKE_THEIRS
    assert decide(replace(B, cost_us=98.0), A, rules).action is Action.KEEP_OURS


def test_with_a_base_the_side_that_kept_its_strategy_wins_inside_the_noise_band() -> None:
    base = replace(A, cost_us=101.0)
    other = replace(B, cost_us=98.0)
    assert decide(A, other, base=base).action is Action.KEEP_OURS
    assert decide(other, A, base=base).action is Action.TAKE_THEIRS


def test_noise_band_is_what_the_rules_say() -> None:
    theirs = replace(B, cost_us=98.0)
    assert decide(A, theirs, MergeRules(noise_ratio=0.01)).reason is Reason.FASTER
    assert decide(A, replace(B, cost_us=60.0), MergeRules(noise_ratio=1)).reason is (
        Reason.INSIDE_NOISE
    )


def test_recorded_scatter_widens_the_noise_band() -> None:
    theirs = replace(B, cost_us=90.0)
    logs = (log(100.0, scatter=0.2), log(90.0))
    assert decide(A, theirs, logs=logs).reason is Reason.INSIDE_NOISE
    assert decide(A, theirs, logs=(log(100.0), log(90.0))).reason is Reason.FASTER


def test_times_of_different_machines_are_not_compared() -> None:
    theirs = replace(B, cost_us=10.0)
    logs = (log(100.0, {"cpu": "a"}), log(10.0, {"cpu": "b"}))
    decision = decide(A, theirs, logs=logs)
    assert decision.conflict
    assert decision.reason is Reason.OTHER_MACHINE
    same = (log(100.0, {"cpu": "a"}), log(10.0, {"cpu": "a"}))
    assert decide(A, theirs, logs=same).reason is Reason.FASTER


def test_time_of_a_known_machine_is_not_compared_with_one_of_nobody_knows_which() -> None:
    theirs = replace(B, cost_us=10.0)
    logs = (log(100.0, {"cpu": "a"}), ProvenanceLog(entries=(), findings=()))
    assert decide(A, theirs, logs=logs).reason is Reason.OTHER_MACHINE
    assert decide(A, theirs, MergeRules(times=Times.ANY), logs=logs).reason is Reason.FASTER


def test_strict_times_need_known_machines() -> None:
    theirs = replace(B, cost_us=10.0)
    assert decide(A, theirs, MergeRules(times=Times.STRICT)).reason is Reason.OTHER_MACHINE


def test_entry_meant_is_the_one_with_the_time_of_the_record() -> None:
    """After a merge a side-car holds the entries of both sides."""
    both = ProvenanceLog(
        entries=(*log(100.0, {"cpu": "a"}).entries, *log(90.0, {"cpu": "b"}).entries), findings=()
    )
    assert decide(A, replace(B, cost_us=90.0), logs=(both, both)).reason is Reason.OTHER_MACHINE
    assert decide(A, replace(B, cost_us=90.0), logs=(both, log(90.0, {"cpu": "a"}))).reason is (
        Reason.FASTER
    )


def test_two_strategies_without_two_times_are_a_conflict() -> None:
    for ours, theirs in (
        (A, Answer(tile=2)),
        (Answer(tile=1), B),
        (Answer(tile=1), Answer(tile=2)),
    ):
        decision = decide(ours, theirs)
        assert decision.conflict
        assert decision.reason is Reason.NO_TIMES
        assert decision.action is Action.KEEP_OURS


@pytest.mark.parametrize(
    ("untimed", "action"),
    [
        (Policy.OURS, Action.KEEP_OURS),
        (Policy.THEIRS, Action.TAKE_THEIRS),
        (Policy.UNION, Action.KEEP_BOTH),
    ],
)
def test_untimed_policy_decides_where_times_do_not(untimed: Policy, action: Action) -> None:
    decision = decide(A, Answer(tile=2), MergeRules(untimed=untimed))
    assert (decision.action, decision.conflict) == (action, False)


def test_same_strategy_is_never_a_conflict_and_keeps_the_time() -> None:
    decision = decide(Answer(tile=1), A)
    assert decision.reason is Reason.SAME_STRATEGY
    assert decision.action is Action.TAKE_THEIRS
    assert decide(A, Answer(tile=1)).action is Action.KEEP_OURS


@pytest.mark.parametrize("name", ["runtime_kb", "graph", "gradient"])
def test_formats_without_times_ask_for_a_policy(name: str) -> None:
    assert decide(Answer(tile=1), Answer(tile=2), name=name).conflict
    rules = MergeRules(untimed=Policy.THEIRS)
    assert decide(Answer(tile=1), Answer(tile=2), rules, name=name).action is Action.TAKE_THEIRS
    union = decide(Answer(tile=1), Answer(tile=2), MergeRules(policy=Policy.UNION), name=name)
    assert union.reason is Reason.NO_ROOM
    assert union.conflict


def test_removed_against_changed_is_a_conflict_unless_a_side_is_chosen() -> None:
    file = {0: A, 1: A}
    base, ours = make_file(UNIFIED, file), make_file(UNIFIED, {1: A})
    theirs = make_file(UNIFIED, {0: B, 1: A})
    for policy, conflict in (
        (Policy.KEEP_BEST, True),
        (Policy.UNION, True),
        (Policy.FAIL, True),
        (Policy.OURS, False),
        (Policy.THEIRS, False),
    ):
        for left, right in ((ours, theirs), (theirs, ours)):
            merged = merge(base, left, right, MergeRules(policy=policy))
            assert bool(merged.plan.conflicts) is conflict
            chosen = right if policy is Policy.THEIRS else left
            assert merge_files.records_of(UNIFIED, merged.data) == merge_files.records_of(
                UNIFIED, chosen
            )


def test_last_override_that_fits_counts() -> None:
    overrides = (
        parse_override("soc=Ascend910*:ours"),
        parse_override("op=mat*,key=*:theirs"),
        parse_override("op=Softmax:fail"),
    )
    assert decide(A, B, MergeRules(overrides=overrides)).action is Action.TAKE_THEIRS
    assert decide(A, B, MergeRules(overrides=overrides[:1])).action is Action.KEEP_OURS
    key = parse_override(f"key={KEY[:8]}*:fail")
    assert decide(A, B, MergeRules(policy=Policy.OURS, overrides=(key,))).conflict


def test_override_is_read_as_written() -> None:
    assert parse_override("soc=A*,op=B:union") == Override(
        policy=Policy.UNION, soc_version="A*", op_type="B"
    )


@pytest.mark.parametrize(
    "text", ["", ":ours", "op=:ours", "op=a", "op=a:best", "a:ours", "op=a,op=b:ours", "op=a:"]
)
def test_anything_else_is_no_override(text: str) -> None:
    with pytest.raises(UsageError, match="is no override"):
        parse_override(text)


def test_noise_is_that_of_diff() -> None:
    assert MergeRules().noise_ratio == NOISE_RATIO
    assert parse_ratio("3%", option="--noise") == NOISE_RATIO
    with pytest.raises(UsageError):
        parse_ratio("three", option="--noise")


def test_rules_without_a_meaning_are_refused() -> None:
    with pytest.raises(ValueError, match="keep-best"):
        MergeRules(untimed=Policy.KEEP_BEST)
    with pytest.raises(ValueError, match="noise_ratio"):
        MergeRules(noise_ratio=-0.1)


@pytest.mark.parametrize(
    ("a", "b", "words"),
    [
        ("Ascend910B2_24_AiCore_matmul.json", "Ascend910B1_24_AiCore_matmul.json", "soc_version"),
        ("Ascend910B2_24_AiCore_matmul.json", "Ascend910B2_20_AiCore_matmul.json", "core_num"),
        ("Ascend910B2_24_AiCore_matmul.json", "Ascend910B2_24_AiCore_conv.json", "op_type"),
    ],
)
def test_banks_for_other_targets_are_not_merged_unless_told(a: str, b: str, words: str) -> None:
    data = make_file(UNIFIED, {0: A})
    ours, theirs = (get_format(UNIFIED).parse(data, Path(name)) for name in (a, b))
    files = Versions(base=None, ours=ours, theirs=theirs)
    with pytest.raises(BankFormatError, match=words):
        merge_file(files, "x", MergeContext(is_two_way=True))
    told = MergeContext(rules=MergeRules(may_differ_in_soc=True), is_two_way=True)
    if words == "op_type":
        with pytest.raises(BankFormatError, match=words):
            merge_file(files, "x", told)
    else:
        assert merge_file(files, "x", told).data == data


def test_version_lines_of_graph_banks_must_agree_where_both_changed() -> None:
    base = make_file("graph", {0: Answer()})
    ours = make_file("graph", {0: Answer(tile=2)})
    theirs = make_file("graph", {1: Answer()}).replace(b"2.1", b"3.0")
    with pytest.raises(BankFormatError, match="version line differs"):
        merge(base, ours, theirs, name="graph")
    assert merge(base, base, theirs, name="graph").data == theirs
    assert merge(None, b'{"version": "2.1"}\n', theirs, name="graph").data == theirs


def test_union_keeps_every_candidate_of_both_sides_byte_for_byte() -> None:
    ours = make_file(UNIFIED, {0: Answer(tile=1, cost_us=20.0)})
    theirs = make_file(UNIFIED, {0: Answer(tile=2, cost_us=10)}, merge_files.Style(is_spaced=True))
    merged = merge(None, ours, theirs, MergeRules(policy=Policy.UNION)).data
    assert merged is not None
    parsed = merge_files.get(UNIFIED, merged)
    candidates = json.loads(merged)[KEY]
    assert [candidate["cost_time"] for candidate in candidates] == [10, 20.0]
    for side in (ours, theirs):
        (raw,) = merge_files.records_of(UNIFIED, side).values()
        assert raw[raw.index(b"[{") + 1 : -1] in parsed.raw(0)
    assert [*parsed.format.check(parsed)] == []


def test_union_does_not_repeat_what_both_sides_have() -> None:
    one = make_file(UNIFIED, {0: Answer(tile=1, cost_us=20.0)})
    other = one.replace(b",", b" , ")
    assert merge(None, one, other, MergeRules(policy=Policy.UNION)).data == one


def test_record_that_cannot_be_read_is_a_conflict_and_stays_byte_for_byte() -> None:
    ours = make_file(UNIFIED, {0: A, 1: A}).replace(b'"knowledge"', b'"knowlege"', 1)
    theirs = make_file(UNIFIED, {0: B, 1: A})
    merged = merge(None, ours, theirs)
    assert [conflict.reason for conflict in merged.plan.conflicts] == [Reason.UNREADABLE]
    assert merged.data == ours
    assert merge(None, ours, theirs, MergeRules(policy=Policy.THEIRS)).data == theirs


@pytest.mark.parametrize("is_ours", [True, False])
def test_time_nobody_can_have_measured_never_wins(is_ours: bool) -> None:
    odd, sound = Answer(tile=1, cost_us=1e-300), Answer(tile=2, cost_us=50.0)
    for incumbent in Incumbent:
        rules = MergeRules(incumbent=incumbent)
        found = decide(*((odd, sound) if is_ours else (sound, odd)), rules)
        assert (found.reason, found.conflict) == (Reason.IMPLAUSIBLE, True)
        assert "1e-300 us is shorter than any kernel takes" in found.note
    same = decide(*((odd, replace(sound, tile=1)) if is_ours else (replace(sound, tile=1), odd)))
    assert same.action is (Action.TAKE_THEIRS if is_ours else Action.KEEP_OURS)


def test_time_out_of_line_with_its_neighbours_is_a_conflict() -> None:
    near = {key: Answer(tile=1, cost_us=100.0) for key in range(1, 5)}
    ours = make_file(UNIFIED, {0: Answer(tile=1, cost_us=0.9), **near})
    theirs = make_file(UNIFIED, {0: Answer(tile=2, cost_us=0.01), **near})
    (conflict,) = merge(None, ours, theirs).plan.conflicts
    assert conflict.reason is Reason.IMPLAUSIBLE
    assert "at the pace of its neighbours" in conflict.note


def repeated(name: str, *answers: Answer) -> bytes:
    """Return a file with several records of one key."""
    return merge_files.write_file(name, [merge_files.record_text(name, 0, one) for one in answers])


@pytest.mark.parametrize("name", sorted(merge_files.TIMED))
@pytest.mark.parametrize("costs", [(7.0, 10.0), (10.0, 7.0)])
@pytest.mark.parametrize("is_ours", [True, False])
def test_fastest_record_of_a_repeated_key_counts_for_its_side(
    name: str, costs: tuple[float, float], is_ours: bool
) -> None:
    twice = repeated(name, *(Answer(tile=int(cost), cost_us=cost) for cost in costs))
    once = make_file(name, {0: Answer(tile=8, cost_us=8.0)})
    merged = merge(None, *((twice, once) if is_ours else (once, twice)), name=name)
    assert merged.data is not None
    best = merge_files.record_text(name, 0, Answer(tile=7, cost_us=7.0)).encode()
    parsed = merge_files.get(name, merged.data)
    assert [parsed.raw(number) for number in range(len(parsed))] == [best]
    (decision,) = merged.plan.decisions
    assert (decision.reason, decision.conflict) == (Reason.FASTER, False)
    assert [kept.record.cost_us for kept in decision.left_out] == [10.0]
    assert "7 us in line" in decision.note


@pytest.mark.parametrize("name", sorted({*NAMES} - {"gradient"}))
def test_repeated_key_comes_out_once_with_a_decision_though_nobody_changed_it(name: str) -> None:
    twice = repeated(name, Answer(tile=1), Answer(tile=2))
    known = merge_files.get(name, twice)
    merged = merge(twice, twice, twice, name=name)
    assert merged.data is not None
    parsed = merge_files.get(name, merged.data)
    used = known.find(known.keys[0])
    assert used is not None
    assert [parsed.raw(number) for number in range(len(parsed))] == [known.raw(used)]
    (decision,) = merged.plan.decisions
    assert decision.reason is Reason.DUPLICATE
    assert {kept.record.raw for kept in decision.left_out} == {known.raw(1 - used)}


def test_record_readers_use_counts_within_the_noise_band_and_where_it_has_no_time() -> None:
    for costs, used in (((100.0, 101.0), 101.0), ((5.0, None), None)):
        ours = repeated(UNIFIED, *(Answer(tile=n, cost_us=cost) for n, cost in enumerate(costs)))
        merged = merge(None, ours, ours)
        assert merged.data is not None
        (record,) = merge_files.get(UNIFIED, merged.data).iter_records()
        assert record.cost_us == used


def test_sound_record_counts_where_the_other_one_of_its_key_cannot_be_read() -> None:
    ours = merge_files.write_file(UNIFIED, [merge_files.record_text(UNIFIED, 0, A), f'"{KEY}": 0'])
    assert merge_files.get(UNIFIED, ours).keys == [KEY, KEY]
    merged = merge(None, ours, make_file(UNIFIED, {0: Answer(tile=9, cost_us=200.0)}))
    assert merged.data is not None
    assert merged.data == make_file(UNIFIED, {0: A})
    assert not merged.plan.conflicts
    assert dict(merged.plan.hidden) == {"ours": 1}


@pytest.mark.parametrize("name", [*NAMES])
def test_broken_file_is_refused(name: str) -> None:
    good = make_file(name, {0: A, 1: A} if name in merge_files.TIMED else {0: Answer()})
    broken = good[: len(good) // 2 - 5]
    for ours, theirs in ((good, broken), (broken, good)):
        with pytest.raises(BankFormatError):
            merge(None, ours, theirs, name=name)


def test_unknown_field_comes_in_where_the_other_side_has_spelled_the_record_anew() -> None:
    base, ours = (
        make_file(UNIFIED, {0: A}, merge_files.Style(is_spaced=spaced)) for spaced in (False, True)
    )
    theirs = base.replace(b'"cost_time"', b'"later":1,"cost_time"')
    assert len({base, ours, theirs}) == 3
    for sides in ((ours, theirs), (theirs, ours)):
        merged = merge(base, *sides).data
        assert merged is not None
        assert json.loads(merged) == json.loads(theirs)


def test_union_has_the_fastest_first_and_those_without_a_time_last() -> None:
    ours, theirs = make_file(UNIFIED, {0: Answer(tile=1)}), make_file(UNIFIED, {0: B})
    for sides in ((ours, theirs), (theirs, ours)):
        merged = merge(None, *sides, MergeRules(policy=Policy.UNION)).data
        assert merged is not None
        (candidates,) = json.loads(merged).values()
        assert [one["knowledge"] for one in candidates] == [
            one["knowledge"] for file in (theirs, ours) for one in json.loads(file)[KEY]
        ]


def test_times_of_files_without_a_target_decide_nothing_across_targets(tmp_path: Path) -> None:
    files = [tmp_path / "a.json", tmp_path / "b.json"]
    for number, file in enumerate(files):
        file.write_bytes(make_file(UNIFIED, {0: Answer(tile=1 + number, cost_us=9.0 - number)}))
    call = ["merge", *map(str, files), "-o", str(tmp_path / "out.json")]
    assert golden_harness.run("aoebank", call).exit_code == 0
    (tmp_path / "out.json").unlink()
    outcome = golden_harness.run("aoebank", [*call, "--allow-other-soc"])
    assert outcome.exit_code == 1
    assert "conflict: times for different targets" in outcome.stdout
    assert (tmp_path / "out.json").read_bytes() == files[0].read_bytes()
