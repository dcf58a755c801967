"""Times nobody can have measured: too short for a kernel, for the tensors, beside the others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from aoebank import JsonObject, Record, workload_key
from aoebank.formats.plausibility import TimeCheck, find_time_problem
from aoebank.formats.protocol import ParsedFile
from aoebank.formats.registry import get_format


def matmul(size: int) -> JsonObject:
    shape = [size, size]
    return {"op_type": "matmul", "A_shape": shape, "B_shape": shape, "C_shape": shape}


def record(cost_us: float, size: int = 16) -> Record:
    return Record(key="k", workload=matmul(size), strategy={}, cost_us=cost_us)


def bank(*answers: tuple[int, list[float]]) -> ParsedFile:
    members = {
        workload_key(matmul(size)): [
            {"knowledge": {}, "info_dict": matmul(size), "cost_time": cost} for cost in costs
        ]
        for size, costs in answers
    }
    path = Path("Ascend910B2_24_AiCore_matmul.json")
    return get_format("unified").parse(json.dumps(members).encode(), path)


@pytest.mark.parametrize("cost_us", [1e-300, 5e-324, 9e-4])
def test_time_shorter_than_a_call_is_not_plausible(cost_us: float) -> None:
    assert "shorter than any kernel" in find_time_problem(record(cost_us))


def test_time_is_held_against_the_tensors_of_the_workload() -> None:
    assert "too short for 16777216 elements" in find_time_problem(record(0.1, 4096))
    assert not find_time_problem(record(0.2, 4096))


def test_layer_of_experts_is_held_against_its_neighbours() -> None:
    def layer(tokens: int, cost_us: float) -> Record:
        workload = {"token": tokens, "model_dim": 7168, "inter_dim": 256, "expert": 257, "topk": 9}
        return Record(key="k", workload=workload, strategy={}, cost_us=cost_us)

    neighbours = [layer(tokens, 90.0 + tokens) for tokens in (16, 32, 128)]
    assert find_time_problem(layer(64, 0.02), neighbours=neighbours)
    assert not find_time_problem(layer(64, 60.0), neighbours=neighbours)


def test_table_that_is_read_in_part_does_not_count() -> None:
    workload = {"op_type": "Gather", "x_shape": [10**6, 1024], "y_shape": [1, 1024]}
    assert not find_time_problem(Record(key="k", workload=workload, strategy={}, cost_us=0.5))


def test_time_is_held_against_other_answers_and_neighbours() -> None:
    assert find_time_problem(record(0.01), rivals=[record(11.0)])
    assert not find_time_problem(record(0.01), rivals=[record(9.0)])
    neighbours = [record(cost, 64) for cost in (500.0, 600.0, 700.0)]
    assert find_time_problem(record(0.02), neighbours=neighbours)
    assert not find_time_problem(record(0.02), neighbours=neighbours[:2])
    assert not find_time_problem(record(0.04), neighbours=neighbours)


def iter_time_problems(parsed: ParsedFile) -> Iterator[tuple[int, str]]:
    check = TimeCheck(parsed)
    for number, found in enumerate(parsed.iter_records()):
        check.add(number, found)
    return check.problems()


def test_check_finds_candidates_and_records_that_are_out_of_line() -> None:
    plain = [(size, [float(size)]) for size in (16, 17, 18, 19)]
    assert [*iter_time_problems(bank(*plain))] == []
    ((number, problem),) = iter_time_problems(bank((32, [0.005]), *plain))
    assert (number, problem.startswith("0.005 us, at the pace")) == (0, True)
    ((number, problem),) = iter_time_problems(bank((32, [0.005, 32.0])))
    assert "another answer" in problem
