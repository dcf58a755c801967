"""Decisions as data: saved, edited by a person, applied, refused when stale; conflicts settled."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import merge_files
from support.merge_files import NAMES, TIMED, Answer, make_file, records_of

from aoebank import BankFormatError, BankNotFoundError, HistoryError, MergeResult, UsageError
from aoebank.merging.decisions import Action, MergeRules, Policy, Reason
from aoebank.merging.document import conflict_path, load_verdicts, serialize_decisions, settle
from aoebank.merging.merge_bytes import QUARANTINE
from aoebank.merging.run import MergeRequest, merge
from aoebank.merging.sides import find_destination
from aoebank.model.digest import digest_of
from aoebank.model.quarantine import QuarantineEntry
from aoebank.storage.quarantine import serialize_quarantine
from aoebank.storage.sides.open import open_side

UNIFIED = "unified"
TODAY = date(2026, 3, 1)
START = '{"schema": "aoebank.merge-decisions/1", "decisions": '
FAIL = MergeRules(policy=Policy.FAIL)
BANKS = {
    "base": {0: 1, 1: 1, 2: 1, 3: 1},
    "a": {0: 2, 1: 1, 2: 2, 4: 1},
    "b": {0: 3, 1: 2, 3: 2, 5: 1},
}  # key -> tile; the keys 0 (both changed), 2 and 3 (removed and changed) are conflicts


def write_banks(folder: Path, name: str) -> dict[str, bytes]:
    files = {}
    for side, tiles in BANKS.items():
        cost = {tile: 100.0 / tile if name in TIMED else None for tile in (1, 2, 3)}
        answers = {key: Answer(tile=tile, cost_us=cost[tile]) for key, tile in tiles.items()}
        files[side] = make_file(name, answers)
        (folder / side).mkdir(exist_ok=True)
        (folder / side / NAMES[name]).write_bytes(files[side])
    return files


def run(folder: Path, out: str | None = None, *, verdicts: Path | None = None) -> MergeResult:
    """Merge b into a with base, conflicts left open."""
    base, a, b = (
        open_side(side, cwd=folder, default_root=lambda: folder) for side in ("base", "a", "b")
    )
    more: dict[str, Any] = {} if verdicts is None else {"verdicts": load_verdicts(verdicts)}
    return merge(
        MergeRequest(
            sides=(a, b),
            base=base,
            rules=FAIL,
            verbose=True,
            destination=find_destination(out, (a, b), cwd=folder) if out else None,
            **more,
        )
    )


def save(folder: Path, result: MergeResult, edit: Callable[[dict[str, Any]], None]) -> Path:
    """Save decisions as the command does, edited decision by decision."""
    path = folder / "decisions.json"
    path.write_bytes(serialize_decisions(result.steps, base=result.base, ours=result.sides[0]))
    return edit_decisions(path, edit)


def edit_decisions(path: Path, edit: Callable[[dict[str, Any]], None]) -> Path:
    document = json.loads(path.read_bytes())
    for decision in document["decisions"]:
        edit(decision)
    path.write_text(json.dumps(document))
    return path


def leave(decision: dict[str, Any]) -> None:
    """Edit nothing."""


def chooser(actions: Mapping[int, Action], name: str = UNIFIED) -> Callable[[Any], None]:
    keys = {merge_files.key_of(name, number): action for number, action in actions.items()}

    def edit(decision: dict[str, Any]) -> None:
        decision["action"] = keys.get(decision["key"], decision["action"])

    return edit


def merged(folder: Path, name: str = UNIFIED, side: str = "out") -> dict[int, bytes]:
    records = records_of(name, (folder / side / NAMES[name]).read_bytes())
    numbers = {merge_files.key_of(name, number): number for number in range(8)}
    return {numbers[key]: raw for key, raw in records.items()}


def test_decisions_left_as_they_are_give_the_same_result(tmp_path: Path) -> None:
    write_banks(tmp_path, UNIFIED)
    path = save(tmp_path, run(tmp_path, "first"), leave)
    run(tmp_path, "second", verdicts=path)
    first, second = (tmp_path / side / NAMES[UNIFIED] for side in ("first", "second"))
    assert first.read_bytes() == second.read_bytes()
    assert conflict_path(first).read_bytes() == conflict_path(second).read_bytes()


def test_every_decision_that_is_not_obvious_is_saved(tmp_path: Path) -> None:
    write_banks(tmp_path, UNIFIED)
    result = run(tmp_path)
    document = json.loads(serialize_decisions(result.steps, base=result.base, ours="a"))
    actions = {decision["key"]: decision["action"] for decision in document["decisions"]}
    expected = {0: "conflict", 1: "take-theirs", 2: "conflict", 3: "conflict", 5: "take-theirs"}
    assert actions == {merge_files.key_of(UNIFIED, key): action for key, action in expected.items()}


@pytest.mark.parametrize("name", [*NAMES])
def test_edited_actions_are_what_is_done(name: str, tmp_path: Path) -> None:
    files = {side: records_of(name, data) for side, data in write_banks(tmp_path, name).items()}
    chosen = {
        0: Action.TAKE_THEIRS,
        1: Action.TAKE_BASE,
        2: Action.REMOVE,
        3: Action.TAKE_THEIRS,
        5: Action.REMOVE,
    }
    path = save(tmp_path, run(tmp_path), chooser(chosen, name))
    result = run(tmp_path, "out", verdicts=path)
    assert result.conflicts == 0
    assert result.counts[Reason.PERSON] == 5
    keys = {number: merge_files.key_of(name, number) for number in range(6)}
    assert merged(tmp_path, name) == {
        0: files["b"][keys[0]],
        1: files["base"][keys[1]],
        3: files["b"][keys[3]],
        4: files["a"][keys[4]],
    }


def test_clean_decision_can_be_turned_down(tmp_path: Path) -> None:
    write_banks(tmp_path, UNIFIED)
    path = save(tmp_path, run(tmp_path), chooser({1: Action.KEEP_OURS, 5: Action.KEEP_OURS}))
    run(tmp_path, "out", verdicts=path)
    assert sorted(merged(tmp_path)) == [0, 1, 2, 4]
    assert b'"tile":1' in merged(tmp_path)[1]


def test_decision_about_records_that_changed_since_is_refused(tmp_path: Path) -> None:
    files = write_banks(tmp_path, UNIFIED)
    path = save(tmp_path, run(tmp_path), leave)
    bank = tmp_path / "b" / NAMES[UNIFIED]
    bank.write_bytes(files["b"].replace(b'"tile":3', b'"tile":7'))
    with pytest.raises(HistoryError, match="does not fit the sides"):
        run(tmp_path, "out", verdicts=path)
    bank.write_bytes(files["base"])
    with pytest.raises(HistoryError, match="does not fit the sides"):
        run(tmp_path, "out", verdicts=path)
    assert not (tmp_path / "out").exists()


def test_decision_about_a_file_no_side_has_is_refused(tmp_path: Path) -> None:
    write_banks(tmp_path, UNIFIED)
    path = save(tmp_path, run(tmp_path), lambda decision: decision.update(file="elsewhere.json"))
    with pytest.raises(HistoryError, match="no side has"):
        run(tmp_path, verdicts=path)


def test_action_without_a_record_for_it_is_refused(tmp_path: Path) -> None:
    write_banks(tmp_path, UNIFIED)
    result = run(tmp_path)
    with pytest.raises(UsageError, match="base has no such record"):
        run(tmp_path, verdicts=save(tmp_path, result, chooser({5: Action.TAKE_BASE})))
    with pytest.raises(UsageError, match="only one side"):
        run(tmp_path, verdicts=save(tmp_path, result, chooser({5: Action.KEEP_BOTH})))
    write_banks(tmp_path, "graph")
    (tmp_path / "a" / NAMES[UNIFIED]).unlink()


def keep_last_only(path: Path) -> None:
    document = json.loads(path.read_text())
    document["decisions"] = document["decisions"][-1:]
    path.write_text(json.dumps(document))


def test_decisions_taken_out_of_the_list_are_made_by_the_rules(tmp_path: Path) -> None:
    write_banks(tmp_path, UNIFIED)
    path = save(tmp_path, run(tmp_path), leave)
    keep_last_only(path)
    assert run(tmp_path, "out", verdicts=path).conflicts == 3


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"schema": "aoebank.merge-decisions/2"}',
        '{"schema": "aoebank.merge-decisions/1"}',
        '{"schema": "aoebank.merge-decisions/1", "decisions": [7]}',
        '{"schema": "aoebank.merge-decisions/1", "decisions": [{"file": "x", "key": "y"}]}',
        '{"schema": "aoebank.merge-decisions/1", "decisions": [{"file": "x", "action": "remove"}]}',
        START + '[{"file": "x", "key": "y", "action": "best"}]}',
        START + '[{"file": "x", "key": "y", "action": "remove", "ours": {"sha256": 7}}]}',
    ],
)
def test_what_is_no_list_of_decisions_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "decisions.json"
    path.write_text(text)
    with pytest.raises(BankFormatError):
        load_verdicts(path)
    conflicts = tmp_path / "bank.json.conflicts"
    conflicts.write_text(text)
    with pytest.raises(BankFormatError):
        settle(conflicts, today=TODAY)
    with pytest.raises(BankNotFoundError):
        load_verdicts(tmp_path / "absent")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(max_size=40) | st.binary(max_size=40))
def test_no_text_at_all_is_anything_but_refused(text: str | bytes, tmp_path: Path) -> None:
    path = tmp_path / "bank.json.conflicts"
    path.write_bytes(text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text)
    with pytest.raises(BankFormatError):
        settle(path, today=TODAY)


# Settling: the sides are long gone, the conflict file has all there is to know.


@pytest.fixture(params=[*NAMES])
def conflicts(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path]:
    """Return a format and the conflict file of a merge in it."""
    write_banks(tmp_path, request.param)
    assert run(tmp_path, "out").conflicts == 3
    return request.param, conflict_path(tmp_path / "out" / NAMES[request.param])


def test_conflict_file_has_the_records_of_all_versions(
    conflicts: tuple[str, Path],
) -> None:
    name, path = conflicts
    document = json.loads(path.read_text(encoding="utf-8"))
    for side, tiles in BANKS.items():
        cost = {tile: 100.0 / tile if name in TIMED else None for tile in (1, 2, 3)}
        word = {"a": "ours", "b": "theirs"}.get(side, side)
        texts = [decision[word]["record"] for decision in document["decisions"] if decision[word]]
        expected = [
            merge_files.record_text(name, key, Answer(tile=tiles[key], cost_us=cost[tiles[key]]))
            for key in (0, 2, 3)
            if key in tiles
        ]
        assert sorted(texts) == sorted(expected)
    assert document["decisions"][0]["action"] == "conflict"
    assert "aoebank merge --apply" in document["how_to_settle"]


def test_settled_conflicts_are_in_the_bank_and_the_file_is_gone(
    conflicts: tuple[str, Path],
) -> None:
    name, path = conflicts
    folder = path.parent.parent
    files = {side: records_of(name, (folder / side / NAMES[name]).read_bytes()) for side in "ab"}
    edit_decisions(
        path, chooser({0: Action.TAKE_THEIRS, 2: Action.REMOVE, 3: Action.TAKE_THEIRS}, name)
    )
    before = merged(folder, name)
    result = settle(path, today=TODAY)
    assert result.open == ()
    assert not path.exists()
    keys = [merge_files.key_of(name, number) for number in range(6)]
    after = merged(folder, name)
    assert (after[0], after[3]) == (files["b"][keys[0]], files["b"][keys[3]])
    assert sorted(after) == [0, 1, 3, 4, 5]
    assert [after[key] for key in (1, 4, 5)] == [before[key] for key in (1, 4, 5)]


def test_conflicts_still_open_stay_in_the_file(conflicts: tuple[str, Path]) -> None:
    name, path = conflicts
    edit_decisions(path, chooser({0: Action.KEEP_OURS}, name))
    result = settle(path, today=TODAY)
    assert [*result.settled.values()] == [Action.KEEP_OURS]
    assert len(result.open) == 2
    assert len(json.loads(path.read_text())["decisions"]) == 2
    assert settle(path, today=TODAY).settled == {}


def test_dry_run_of_settling_writes_nothing(conflicts: tuple[str, Path]) -> None:
    name, path = conflicts
    edit_decisions(path, chooser({0: Action.TAKE_BASE}, name))
    bank = path.with_name(NAMES[name])
    before = path.read_bytes(), bank.read_bytes()
    assert settle(path, today=TODAY, is_dry_run=True).settled
    assert (path.read_bytes(), bank.read_bytes()) == before


def test_bank_changed_since_the_merge_is_left_as_it_is(conflicts: tuple[str, Path]) -> None:
    name, path = conflicts
    edit_decisions(path, chooser({0: Action.TAKE_THEIRS}, name))
    bank = path.with_name(NAMES[name])
    bank.write_bytes(make_file(name, {0: Answer(tile=7)}))
    before = path.read_bytes(), bank.read_bytes()
    with pytest.raises(HistoryError, match="not what the merge wrote"):
        settle(path, today=TODAY)
    assert (path.read_bytes(), bank.read_bytes()) == before


def test_record_edited_in_the_conflict_file_is_refused(conflicts: tuple[str, Path]) -> None:
    name, path = conflicts

    def edit(decision: dict[str, Any]) -> None:
        chooser({0: Action.TAKE_THEIRS}, name)(decision)
        if decision["theirs"]:
            decision["theirs"]["record"] += " "

    edit_decisions(path, edit)
    with pytest.raises(BankFormatError, match="record of theirs was edited"):
        settle(path, today=TODAY)


def test_conflicts_of_a_file_that_was_deleted_can_bring_it_back(tmp_path: Path) -> None:
    files = write_banks(tmp_path, UNIFIED)
    other = NAMES[UNIFIED].replace("matmul", "other")
    changed = files["base"].replace(b'"tile":1', b'"tile":9', 1)
    (tmp_path / "base" / other).write_bytes(files["base"])
    (tmp_path / "b" / other).write_bytes(changed)
    run(tmp_path, "out")
    bank = tmp_path / "out" / other
    assert not bank.exists()
    edit_decisions(conflict_path(bank), chooser({0: Action.TAKE_THEIRS}))
    settle(conflict_path(bank), today=TODAY)
    key = merge_files.key_of(UNIFIED, 0)
    assert records_of(UNIFIED, bank.read_bytes()) == {key: records_of(UNIFIED, changed)[key]}


def test_both_answers_can_be_kept_where_there_is_room(tmp_path: Path) -> None:
    write_banks(tmp_path, UNIFIED)
    run(tmp_path, "out")
    path = conflict_path(tmp_path / "out" / NAMES[UNIFIED])
    edit_decisions(path, chooser({0: Action.KEEP_BOTH}))
    settle(path, today=TODAY)
    (record,) = [raw for key, raw in merged(tmp_path).items() if key == 0]
    assert record.count(b'"knowledge"') == 2
    edit_decisions(path, chooser({2: Action.KEEP_BOTH}))
    with pytest.raises(UsageError, match="cannot keep both"):
        settle(path, today=TODAY)


def test_choice_that_would_bring_a_known_bad_record_back_is_refused(tmp_path: Path) -> None:
    write_banks(tmp_path, UNIFIED)
    run(tmp_path, "out")
    path = conflict_path(tmp_path / "out" / NAMES[UNIFIED])
    edit_decisions(path, chooser({0: Action.TAKE_THEIRS}))
    entry = QuarantineEntry(
        key=merge_files.key_of(UNIFIED, 0),
        reason="wrong result",
        who="me",
        when="2026-01-01T00:00:00Z",
        strategy_sha256=digest_of({"tile": 3}),
    )
    quarantine = tmp_path / "out" / QUARANTINE
    quarantine.parent.mkdir()
    quarantine.write_bytes(serialize_quarantine([entry]))
    with pytest.raises(UsageError, match="under quarantine"):
        settle(path, today=TODAY)
    edit_decisions(path, chooser({0: Action.KEEP_OURS}))
    assert settle(path, today=TODAY).settled
