"""Whatever somebody writes into a bank, a schedule is refused by name or becomes a kernel.

Kernels are compiled by a worker, as in a run: a crash or a hang there fails the test.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support.contracts.kernels import kernel_target, operation, plain
from support.engine.mutations import mutated

from aoe.errors import RunError
from aoe.execute.runner import Runner
from aoe.kernels.registry import get_family
from aoe.schedule import schedule_from_json, schedule_to_json
from aoe.workload import Workload, workload_to_json

_DATA = plain(1, 12, 14, 14)
_QUICK, _MANY = 12, 60
_TIMEOUT_S = 120.0


def _cases() -> Mapping[str, Workload]:
    """Return small workloads: what is looked for does not depend on the size."""
    return {
        "elementwise": Workload(
            op_type="elementwise",
            inputs=(_DATA,),
            operations=(operation("Exp", "x0"),),
            output=_DATA,
        ),
        "lrn": Workload(
            op_type="lrn",
            inputs=(_DATA,),
            operations=(operation("LRN", "x0", size=5, beta=0.75),),
            output=_DATA,
        ),
        "softmax": Workload(
            op_type="softmax",
            inputs=(_DATA,),
            operations=(operation("Softmax", "x0", axis=1),),
            output=_DATA,
        ),
        "softmax_rows": Workload(
            op_type="softmax_rows",
            inputs=(_DATA, plain(12, 1, 14)),
            operations=(operation("Add", "x0 x1"), operation("Softmax", "t0", "t1", axis=-1)),
            output=_DATA,
        ),
        "instance_normalization": Workload(
            op_type="instance_normalization",
            inputs=(_DATA, plain(12), plain(12)),
            operations=(operation("InstanceNormalization", "x0 x1 x2"),),
            output=_DATA,
        ),
        "reductions": Workload(
            op_type="reductions",
            inputs=(_DATA,),
            operations=(operation("ReduceLogSumExp", "x0", axes=(1,), version=13),),
            output=plain(1, 1, 14, 14),
        ),
        "pooling": Workload(
            op_type="pooling",
            inputs=(_DATA,),
            operations=(operation("MaxPool", "x0", kernel_shape=(3, 3), pads=(1, 1, 1, 1)),),
            output=_DATA,
        ),
        "resizing": Workload(
            op_type="resizing",
            inputs=(_DATA,),
            operations=(operation("Resize", "x0", mode="linear", sizes=(1, 12, 30, 40)),),
            output=plain(1, 12, 30, 40),
        ),
        "movement": Workload(
            op_type="movement",
            inputs=(_DATA,),
            operations=(operation("Transpose", "x0", perm=(0, 2, 3, 1)),),
            output=plain(1, 14, 14, 12),
        ),
        "batch_normalization": Workload(
            op_type="batch_normalization",
            inputs=(_DATA, *(plain(12),) * 4),
            operations=(operation("BatchNormalization", "x0 x1 x2 x3 x4"),),
            output=_DATA,
        ),
        "matmul": Workload(
            op_type="matmul",
            inputs=(plain(12, 40), plain(40, 96, constant=True)),
            operations=(operation("MatMul", "x0 x1"),),
            output=plain(12, 96),
        ),
        "attention": Workload(
            op_type="attention",
            inputs=(plain(2, 12, 8), plain(2, 8, 20), plain(2, 20, 16)),
            operations=(
                operation("MatMul", "x0 x1"),
                operation("Softmax", "t0", "t1", axis=-1),
                operation("MatMul", "t1 x2", "t2"),
            ),
            output=plain(2, 12, 16),
        ),
    }


def _edited(workload: Workload, seed: int) -> list[Any]:
    """Return the steps of a legal schedule after a few edits; many still read as a schedule."""
    rng = random.Random(seed)
    family = get_family(workload.op_type)
    configurations = family.space(workload, kernel_target()).configurations()
    schedule = family.schedule(workload, rng.choice(configurations), kernel_target())
    steps: list[Any] = json.loads(json.dumps(mutated(schedule_to_json(schedule), rng)))
    return steps


def _readable(steps: list[Any]) -> bool:
    try:
        schedule_from_json(steps)
    except ValueError:
        return False
    return True


def _becomes_a_kernel(
    runner: Runner, workload: Workload, steps: list[Any], directory: Path
) -> bool:
    """Return whether steps became a kernel; what is neither that nor refused is an error."""
    asked = [("kernel", workload_to_json(workload), steps)]
    try:
        found: dict[str, str] = runner.call(
            "compile_kernels", timeout_s=_TIMEOUT_S, kernels=asked, directory=directory
        )
    except RunError as error:
        raise AssertionError(f"{json.dumps(steps)}: {error}") from error
    refused = runner.call(
        "check_schedule", timeout_s=_TIMEOUT_S, workload=workload_to_json(workload), schedule=steps
    )
    assert found["kernel"] or not refused, f"{json.dumps(steps)}: compiles, but: {refused}"
    return not found["kernel"]


@pytest.mark.slow
@pytest.mark.parametrize("name", _cases())
def test_edited_schedule_is_refused_or_compiled(name: str, runner: Runner, tmp_path: Path) -> None:
    _check_many(_cases()[name], runner, tmp_path, _QUICK)


@pytest.mark.slow
@pytest.mark.parametrize("name", _cases())
def test_many_edited_schedules_are_refused_or_compiled(
    name: str, runner: Runner, tmp_path: Path
) -> None:
    _check_many(_cases()[name], runner, tmp_path, _MANY)


def _check_many(workload: Workload, runner: Runner, directory: Path, count: int) -> None:
    edited = (_edited(workload, seed) for seed in range(8 * count))
    readable = [steps for steps in edited if _readable(steps)][:count]
    compiled = [_becomes_a_kernel(runner, workload, steps, directory) for steps in readable]
    assert any(compiled) and not all(compiled)
