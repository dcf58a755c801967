"""Schedules as data: their text, their JSON, and what they refuse."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError, fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aoe.schedule import (
    STEP_KINDS,
    Atomic,
    ComputeAt,
    ComputeRoot,
    Fuse,
    Memory,
    NeverPartition,
    Parallel,
    Reorder,
    Schedule,
    Split,
    StoreIn,
    Tail,
    Unroll,
    Vectorize,
    schedule_from_json,
    schedule_to_json,
)

EVERY_STEP = Schedule(
    steps=(
        Split("y", "x", "xo", "xi", 64, Tail.GUARD),
        Split("y", "r", "ro", "ri", 4),
        Fuse("y", "n", "c", "nc"),
        Reorder("y", ("xi", "ri", "xo", "ro")),
        Vectorize("y", "xi", 16),
        Unroll("y", "ri", 4),
        Parallel("y", "ro"),
        Parallel("y", "nc", 8),
        ComputeAt("squares", "y", "xo"),
        StoreIn("squares", Memory.STACK),
        ComputeRoot("weights"),
        Atomic("squares.update"),
        NeverPartition("y", "xo"),
    )
)

names = st.text(min_size=1, max_size=6)
counts = st.integers(1, 10**6)
steps = st.one_of(
    st.builds(Split, names, names, names, names, counts, st.sampled_from(Tail)),
    st.builds(Fuse, names, names, names, names),
    st.builds(Reorder, names, st.lists(names, min_size=2, max_size=5, unique=True).map(tuple)),
    st.builds(Vectorize, names, names, counts),
    st.builds(Unroll, names, names, counts),
    st.builds(Parallel, names, names, st.none() | counts),
    st.builds(ComputeAt, names, names, names),
    st.builds(ComputeRoot, names),
    st.builds(Atomic, names),
    st.builds(NeverPartition, names, names),
    st.builds(StoreIn, names, st.sampled_from(Memory)),
)
schedules = st.builds(Schedule, st.lists(steps, max_size=8).map(tuple))


@given(schedules)
def test_json_brings_back_the_same_schedule(schedule: Schedule) -> None:
    text = json.dumps(schedule_to_json(schedule))
    again = schedule_from_json(json.loads(text))
    assert again == schedule
    assert hash(again) == hash(schedule)
    assert json.dumps(schedule_to_json(again)) == text


@given(schedules)
def test_text_has_a_line_for_each_step_that_names_its_stage(schedule: Schedule) -> None:
    lines = [str(Schedule((step,))) for step in schedule.steps]
    assert "\n".join(lines) == str(schedule)
    for line, step in zip(lines, schedule.steps, strict=True):
        assert line.startswith(f"{step.stage}: ")


def test_text_of_every_step() -> None:
    assert str(EVERY_STEP).splitlines() == [
        "y: split x -> xo, xi by 64 (guard)",
        "y: split r -> ro, ri by 4",
        "y: fuse n, c -> nc",
        "y: reorder xi, ri, xo, ro",
        "y: vectorize xi by 16",
        "y: unroll ri by 4",
        "y: parallel ro",
        "y: parallel nc by 8",
        "squares: compute at y xo",
        "squares: store in stack",
        "weights: compute root",
        "squares.update: atomic",
        "y: never partition xo",
    ]


def test_json_of_every_step_is_what_banks_hold() -> None:
    # These lists are in banks: a change here breaks them.
    assert schedule_to_json(EVERY_STEP) == [
        ["split", "y", "x", "xo", "xi", 64, "guard"],
        ["split", "y", "r", "ro", "ri", 4, "auto"],
        ["fuse", "y", "n", "c", "nc"],
        ["reorder", "y", ["xi", "ri", "xo", "ro"]],
        ["vectorize", "y", "xi", 16],
        ["unroll", "y", "ri", 4],
        ["parallel", "y", "ro", None],
        ["parallel", "y", "nc", 8],
        ["compute_at", "squares", "y", "xo"],
        ["store_in", "squares", "stack"],
        ["compute_root", "weights"],
        ["atomic", "squares.update"],
        ["never_partition", "y", "xo"],
    ]


def test_every_kind_of_step_is_known_and_tried_here() -> None:
    assert {type(step) for step in EVERY_STEP.steps} == set(STEP_KINDS.values())


def test_json_holds_plain_values_only() -> None:
    assert all(
        type(part) in (str, int, list, type(None))
        for step in schedule_to_json(EVERY_STEP)
        for part in step
    )


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({}, r"schedule: must be a list of steps \(got dict\)"),
        ("split", r"schedule: must be a list"),
        ([["unroll", "y", "x", 2], 5], r"schedule\[1\]: must be a list that starts"),
        ([[]], r"schedule\[0\]: must be a list that starts"),
        ([["tile", "y"]], r"schedule\[0\]: unknown step \(got 'tile', expected split, fuse"),
        ([[["split"]]], r"schedule\[0\]: unknown step"),
        ([["unroll", "y", "x"]], r"schedule\[0\]: unroll takes stage, var, factor \(got 2"),
        ([["compute_root", "y", "x"]], r"schedule\[0\]: compute_root takes stage \(got 2"),
        ([["unroll", "y", "x", 0]], r"schedule\[0\]: unroll: factor: .* \(got 0\)"),
        ([["vectorize", "y", "x", True]], r"vectorize: factor: .* \(got True\)"),
        ([["vectorize", "y", "x", 8.0]], r"vectorize: factor: .* \(got 8.0\)"),
        ([["parallel", "y", "x", -1]], r"parallel: task_size: .* \(got -1\)"),
        ([["vectorize", "", "x", 8]], r"must have a name \(got ''\)"),
        ([["vectorize", "y", ["x"], 8]], r"must have a name"),
        ([["split", "y", "x", "o", "i", 4, "trim"]], r"schedule\[0\]: split: .*'trim'"),
        ([["store_in", "y", None]], r"schedule\[0\]: store_in: "),
        ([["store_in", "y", ["stack"]]], r"schedule\[0\]: store_in: "),
        ([["reorder", "y", ["x"]]], r"reorder: order: must name two loops or more"),
        ([["reorder", "y", ["x", "x"]]], r"reorder: order: names a loop twice"),
        ([["reorder", "y", "xy"]], r"reorder: order: must name two loops"),
        ([["reorder", "y", ["x", 3]]], r"must have a name \(got 3\)"),
    ],
)
def test_bad_json_is_refused_with_its_place(value: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        schedule_from_json(value)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from([*STEP_KINDS, "x"]),
    lambda inner: (
        st.lists(inner, max_size=7) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=12,
)


@given(json_values)
def test_any_json_is_a_schedule_or_a_value_error(value: object) -> None:
    try:
        schedule = schedule_from_json(value)
    except ValueError:
        return
    assert schedule_to_json(schedule) == value


def test_steps_cannot_be_changed() -> None:
    step = Unroll("y", "x", 2)
    with pytest.raises(FrozenInstanceError):
        step.factor = 3  # type: ignore[misc]


@pytest.mark.parametrize("kind", STEP_KINDS.values())
def test_every_step_starts_with_its_stage(kind: type) -> None:
    assert fields(kind)[0].name == "stage"


def test_schedules_are_told_apart_in_a_set() -> None:
    first, second = Schedule((Unroll("y", "x", 2),)), Schedule((Unroll("y", "x", 4),))
    assert len({first, second, Schedule((Unroll("y", "x", 2),))}) == 2


def test_an_unknown_tail_or_memory_is_refused_by_the_step_itself() -> None:
    with pytest.raises(ValueError, match=r"tail.*guard\|shift_inwards\|round_up\|auto"):
        Split("y", "x", "o", "i", 4, "trim")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"memory.*stack\|heap"):
        StoreIn("y", "disk")  # type: ignore[arg-type]
