"""Kernel families that do wrong, and workloads for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from aoe.kernels.elementwise import Elementwise
from aoe.kernels.family import KernelTarget, Pipeline
from aoe.schedule import Configuration, Schedule
from aoe.target import Target
from aoe.workload import Operation, TensorSpec, Workload


def chain_workload(
    op_types: tuple[str, ...] = ("Exp",),
    *,
    shape: tuple[int, ...] = (1, 8, 32, 32),
    attributes: Mapping[str, Mapping[str, Any]] | None = None,
) -> Workload:
    """Return a chain of unary operators of the element-wise family."""
    spec = TensorSpec(shape=shape)
    return Workload(
        op_type="elementwise",
        inputs=(spec,),
        operations=tuple(
            Operation(
                op_type=op_type,
                version=6,
                inputs=(f"t{i - 1}" if i else "x0",),
                output=f"t{i}",
                attributes=(attributes or {}).get(op_type, {}),
            )
            for i, op_type in enumerate(op_types)
        ),
        output=spec,
    )


def schedules_of(workload: Workload, target: Target, count: int) -> list[Schedule]:
    """Return the schedules of the first configurations of an element-wise workload's space."""
    family, facts = Elementwise(), KernelTarget.of(target)
    space = family.space(workload, facts)
    found = [Configuration(guess) for guess in space.first_guesses]
    found += [
        configuration for configuration in space.configurations() if configuration not in found
    ]
    schedules = [family.schedule(workload, configuration, facts) for configuration in found]
    return list(dict.fromkeys(schedules))[:count]


@dataclass(frozen=True, slots=True)
class Substituted(Elementwise):
    """Computes other operators than the workload asks for.

    Attributes:
        operations: What it computes instead.
    """

    operations: tuple[Operation, ...] = ()

    def pipeline(self, workload: Workload, algorithm: str = "") -> Pipeline:
        """Return the algorithm of the other operators."""
        return Elementwise.pipeline(self, replace(workload, operations=self.operations))
