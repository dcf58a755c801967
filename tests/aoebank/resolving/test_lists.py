"""TUNE_BANK_PATH as a list of banks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support import golden_harness
from support.faulty_system import FaultySystem
from support.resolve_world import QUERY, SOC, World

import aoebank
from aoebank import BankNotFoundError, BankPermissionError, Reader, Record, UsageError
from aoebank.resolving.run import workload_from_text

SHAPE = '{"op_type": "MatMulV3", "m": 16}'


def _record(cost_us: float) -> Record:
    workload = {"op_type": "MatMulV3", "m": 16}
    return aoebank.make_unified_record(
        workload=workload, strategy={"tile": int(cost_us)}, cost_us=cost_us, origin="test"
    )


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Return a world with three banks in a list, the second of which is the fastest."""
    made = World(tmp_path)
    for name, cost_us in (("a", 9.0), ("b", 4.0), ("c", 6.0)):
        made.bank(name, _record(cost_us))
    made.env["TUNE_BANK_PATH"] = os.pathsep.join(str(tmp_path / name) for name in "abc")
    return made


def test_first_answers_and_the_others_are_named(world: World) -> None:
    found = world.resolve(Reader.HOST, workload=workload_from_text(SHAPE, op_type=None))
    (answer,), (match,) = found.answers, found.matches
    assert answer.roots == tuple(world.base / name for name in "abc")
    assert answer.root == world.base / "a"
    assert match.used is not None
    assert match.used.record.cost_us == 9.0
    assert [hit.record.cost_us for hit in match.shadowed] == [4.0, 6.0]
    assert "AR301" in [hazard.code for hazard in found.hazards]  # it hides faster ones


def test_record_in_quarantine_leaves_the_answer_to_the_next(world: World) -> None:
    key = _record(1).key
    aoebank.quarantine_add(key, root=world.base / "a", reason="bad", keep=True)
    found = world.resolve(Reader.HOST, workload=workload_from_text(SHAPE, op_type=None))
    (match,) = found.matches
    assert match.used is not None
    assert match.used.record.cost_us == 4.0
    assert [hit.record.cost_us for hit in match.kept_out] == [9.0]
    assert "AR304" in [hazard.code for hazard in found.hazards]


def test_best_answers_where_the_variable_says_so(world: World) -> None:
    world.env["AOE_BANK_UNION"] = "best"
    found = world.resolve(Reader.HOST, workload=workload_from_text(SHAPE, op_type=None))
    (match,) = found.matches
    assert match.used is not None
    assert match.used.record.cost_us == 4.0
    world.env["AOE_BANK_UNION"] = "newest"
    with pytest.raises(UsageError, match="AOE_BANK_UNION: no such rule"):
        world.resolve(Reader.HOST)


def test_writes_go_to_the_first_that_may_be_written(world: World) -> None:
    world.forbidden[world.base / "a"] = os.W_OK
    (answer,) = world.resolve(Reader.HOST).answers
    assert answer.root == world.base / "b"
    assert len(answer.files) == 3
    assert [one.reason for one in answer.tried[:3]] == [
        *("looked up, not written", "looked up, and written", "looked up, not written")
    ]
    for name in "bc":
        world.forbidden[world.base / name] = os.W_OK
    (stopped,) = world.resolve(Reader.HOST).answers
    assert isinstance(stopped.stop, BankPermissionError)


def test_missing_member_is_named(world: World) -> None:
    world.env["TUNE_BANK_PATH"] += f"{os.pathsep}{world.base}/gone"
    (answer,) = world.resolve(Reader.HOST).answers
    assert isinstance(answer.stop, BankNotFoundError)
    assert answer.stop.path == world.base / "gone"
    with pytest.raises(BankNotFoundError, match="gone"):
        aoebank.resolve_bank(env=world.env, cwd=world.base)


def test_member_that_cannot_be_read_is_named(world: World, system: FaultySystem) -> None:
    may, closed = os.access, world.base / "b"
    system.replace("os.access", lambda path, mode: Path(path) != closed and may(path, mode))
    with pytest.raises(BankPermissionError, match="directory cannot be used") as caught:
        aoebank.resolve_bank(env=world.env, cwd=world.base, writes=False)
    assert caught.value.path == closed


def test_path_with_a_colon_that_is_there_is_one_path(world: World) -> None:
    root = world.folder(f"a:{SOC}")
    world.env["TUNE_BANK_PATH"] = str(root)
    (answer,) = world.resolve(Reader.HOST, query=QUERY).answers
    assert answer.roots == (root,) and answer.root == root
    assert aoebank.resolve_bank(env=world.env, cwd=world.base).roots == (root,)


@pytest.mark.parametrize("text", [":{}", "{}:", "::{}:"])
def test_empty_member_is_none(text: str, world: World) -> None:
    world.env["TUNE_BANK_PATH"] = text.format(world.base / "b")
    (answer,) = world.resolve(Reader.HOST, query=QUERY).answers
    assert answer.stop is None and answer.root == world.base / "b"
    assert aoebank.resolve_bank(env=world.env, cwd=world.base).roots == (world.base / "b",)


def test_programs_of_cann_take_the_list_for_one_path(world: World) -> None:
    (answer,) = world.resolve(Reader.UNIFIED).answers
    assert answer.stop is not None
    assert str(answer.stop.path) == world.env["TUNE_BANK_PATH"]


def test_commands_look_into_all_members(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(world.folder("elsewhere"))
    for name, value in world.env.items():
        monkeypatch.setenv(name, value)
    shown = golden_harness.run("aoebank", ["show", _record(1).key[:12]])
    assert shown.stdout.count("computes:") == 3
    sql = "SELECT min(cost_us), count(*) FROM records"
    assert aoebank.query(sql).rows == ((4.0, 3),)
    told = golden_harness.run("aoebank", ["resolve", "--reader", "host", "--shape", SHAPE])
    assert "3 banks, the first that has a record that fits answers; writes go to" in told.stdout
    assert told.stdout.count("hides") >= 2
    document = golden_harness.run("aoebank", ["resolve", "--reader", "host", "--json"]).stdout
    assert '"union": "first"' in document
