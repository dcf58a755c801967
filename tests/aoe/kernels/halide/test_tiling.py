"""Loop plans."""

from __future__ import annotations

import pytest

from aoe.kernels.family import KernelTarget
from aoe.kernels.halide.iteration import Axis
from aoe.kernels.halide.tiling import (
    RowNest,
    best_tasks,
    estimate_us,
    guided_space,
    inner_steps,
    parallel_steps,
    row_schedule,
    row_space,
    task_choices,
    task_chunk,
    tile_choices,
    tile_steps,
    vector_choices,
)
from aoe.schedule import Configuration, Fuse, Knob, Parallel, Reorder, Split, Tail

TARGET = KernelTarget(vector_lanes=16, threads=4)


@pytest.mark.parametrize(
    ("extent", "expected"),
    [
        (1, (1,)),
        (3, (2, 4)),
        (8, (8,)),
        (15, (8, 16)),
        (16, (16,)),
        (40, (16, 32)),
        (1000, (16, 32, 64)),
    ],
)
def test_vectors_fit_the_loop_or_are_the_next_power_of_two(
    extent: int, expected: tuple[int, ...]
) -> None:
    assert vector_choices(extent, 16) == expected


def test_small_work_is_not_shared_out() -> None:
    assert task_choices(5.0, 1000, TARGET) == (1,)


def test_tasks_are_multiples_of_the_threads() -> None:
    assert task_choices(1000.0, 1000, TARGET) == (1, 4, 8, 16, 32, 64)


def test_tasks_are_not_more_than_the_parts() -> None:
    assert task_choices(1000.0, 9, TARGET) == (1, 4, 8)


def test_one_thread_has_one_task() -> None:
    assert task_choices(1e6, 1000, KernelTarget(vector_lanes=16, threads=1)) == (1,)


def test_best_tasks_are_each_worth_handing_over() -> None:
    assert best_tasks(100.0, (1, 4, 8, 16)) == 8
    assert best_tasks(12.0, (1, 4)) == 1


def test_estimate_is_bound_by_memory_or_by_computing() -> None:
    assert estimate_us(16_000, 3.0, 10_000, TARGET) == 1.0
    assert estimate_us(16_000, 30.0, 10_000, TARGET) == 10.0


@pytest.mark.parametrize(
    ("extents", "tasks", "multiple", "expected"),
    [
        ((64, 100), 8, 1, (0, 8)),
        ((4, 100), 8, 1, (1, 50)),
        ((4, 100), 8, 32, (1, 64)),
        ((3, 5, 7), 100, 1, (2, 1)),
        ((2, 6, 900), 8, 1, (1, 2)),
        ((10,), 4, 16, (0, 10)),
    ],
)
def test_cut_is_the_outermost_loop_that_gives_enough_tasks(
    extents: tuple[int, ...], tasks: int, multiple: int, expected: tuple[int, int]
) -> None:
    assert task_chunk(extents, tasks, multiple) == expected


def test_shared_out_loop_keeps_its_name_inside_a_task() -> None:
    assert parallel_steps("y", (Axis("n", 2), Axis("c", 6), Axis("hw", 900)), 8) == (
        Split("y", "c", "task", "c", 2, Tail.SHIFT_INWARDS),
        Fuse("y", "n", "task", "task"),
        Parallel("y", "task"),
    )


def test_one_task_needs_no_steps() -> None:
    assert parallel_steps("y", (Axis("n", 5),), 1) == ()


def test_tiles_are_walked_inside_the_loops_around_them() -> None:
    outer = (Axis("n", 2), Axis("hw_tile", 4))
    inner = inner_steps("y", "hw", 32, 8, 1)
    assert tile_steps("y", Axis("hw", 32), outer, ("lane", "hw", "c"), inner) == (
        Split("y", "hw", "hw_tile", "hw", 32, Tail.SHIFT_INWARDS),
        *inner,
        Reorder("y", ("lane", "hw", "c", "hw_tile", "n")),
    )


def test_tiles_double_up_to_the_whole_loop() -> None:
    assert tile_choices(100, 16) == (16, 32, 64, 100)
    assert tile_choices(8, 16) == (8,)


def test_guided_space_passes_over_illegal_and_repeated_guesses() -> None:
    knobs = (Knob("tile", (1, 2, 4)), Knob("kind", ("a", "b")))
    guesses = [(4, "a"), (1, "b"), (4, "a"), (2, "a"), (2, "b")]
    space = guided_space(knobs, guesses, lambda values: values["tile"] != 1)
    assert [tuple(guess.values()) for guess in space.first_guesses] == [
        (4, "a"),
        (2, "a"),
        (2, "b"),
    ]
    assert all(configuration["tile"] != 1 for configuration in space.configurations())


def test_guided_space_keeps_few_guesses() -> None:
    space = guided_space((Knob("tile", tuple(range(1, 20))),), [(tile,) for tile in range(1, 20)])
    assert [guess["tile"] for guess in space.first_guesses] == [1, 2, 3, 4, 5, 6]


def test_tail_is_guarded_only_where_it_cannot_be_shifted() -> None:
    assert inner_steps("y", "x", 5, 8, 1)[0] == Split("y", "x", "x", "lane", 8, Tail.GUARD)
    assert inner_steps("y", "x", 9, 8, 1)[0] == Split("y", "x", "x", "lane", 8, Tail.SHIFT_INWARDS)
    assert inner_steps("y", "x", 9, 1, 1) == ()


NESTS = {
    "flat": ((100_003,), 80.0),
    "rows": ((64, 12_544), 200.0),
    "short rows": ((400, 7), 3.0),
    "blocks": ((4, 3136, 16), 60.0),
    "few rows": ((3, 50_000), 100.0),
    "rank 4": ((3, 5, 2, 9), 1.0),
    "one": ((1,), 0.0),
}


@pytest.mark.parametrize("name", NESTS)
@pytest.mark.parametrize("heavy", [True, False])
def test_space_is_small_and_every_part_of_it_has_a_schedule(name: str, heavy: bool) -> None:
    extents, work_us = NESTS[name]
    axes = tuple(Axis(f"d{i}", extent) for i, extent in enumerate(extents))
    nest = RowNest(stage="y", axes=axes, work_us=work_us)
    space = row_space(nest, TARGET, heavy=heavy)
    assert 1 <= space.size <= 500
    assert 1 <= len(space.first_guesses) <= 6
    for configuration in space.configurations():
        shared = any(isinstance(s, Parallel) for s in row_schedule(nest, configuration).steps)
        assert shared == (configuration["tasks"] != 1)


def test_row_cut_into_tasks_has_no_loop_left_to_unroll_over() -> None:
    nest = RowNest(stage="y", axes=(Axis("c", 5), Axis("hw", 32)), work_us=1000.0)
    space = row_space(nest, TARGET, heavy=False)
    cut = [c for c in space.configurations() if c["tasks"] == 8 and c["vector"] == 32]
    assert [c["unroll"] for c in cut] == [1]


def test_blocks_are_unrolled_over_pixels() -> None:
    axes = (Axis("co", 4), Axis("hw", 49), Axis("ci", 16))
    nest = RowNest(stage="y", axes=axes, work_us=1.0)
    chosen = Configuration({"inner": "row", "vector": 16, "unroll": 4, "tasks": 1})
    steps = row_schedule(nest, chosen).steps
    assert Split("y", "hw", "hw", "hw_u", 4, Tail.SHIFT_INWARDS) in steps
