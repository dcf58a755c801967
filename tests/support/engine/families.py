"""Kernel families that do wrong, and workloads for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import halide as hl

from aoe.kernels.conv_nchwc.family import Convolution
from aoe.kernels.elementwise import Elementwise
from aoe.kernels.family import KernelTarget, PackedInput, Pipeline, Support
from aoe.schedule import Choice, Configuration, Knob, Schedule, Space
from aoe.target import Target
from aoe.workload import Operation, Precision, TensorSpec, Workload


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
    """Computes other operators than the workload asks for."""

    operations: tuple[Operation, ...] = ()  # What it computes instead

    def pipeline(self, workload: Workload, algorithm: str = "") -> Pipeline:
        """Return the algorithm of the other operators."""
        return Elementwise.pipeline(self, replace(workload, operations=self.operations))


_LOWER = "_bf16"


class RoundedConvolution(Convolution):
    """Winograd's F(2x2, 3x3), with weights rounded to bfloat16 where the precision is lower.

    Stands for families whose kernels of lower precision need a CPU that has it.
    """

    def supports(self, workload: Workload) -> Support:
        """Tell whether the workload can be computed in float32."""
        return Convolution.supports(self, _exact(workload))

    def pipeline(self, workload: Workload, algorithm: str = "") -> Pipeline:
        """Return the algorithm; the names of lower precision end in `_bf16`."""
        found = Convolution.pipeline(self, _exact(workload), algorithm.removesuffix(_LOWER))
        if not algorithm.endswith(_LOWER):
            return found
        packings = {number: _rounded(packing) for number, packing in found.packings.items()}
        return replace(found, packings=packings)

    def space(self, workload: Workload, target: KernelTarget) -> Space:
        """Return the space of float32, under other names where the precision is lower."""
        found = Convolution.space(self, _exact(workload), target)
        if not workload.precision.is_lower:
            return found

        def legal(values: Mapping[str, Choice]) -> bool:
            return found.is_legal(_named(values, lower=False))

        knobs = [k if k.name != "algorithm" else Knob(k.name, _LOWER_NAMES) for k in found.knobs]
        guesses = [_named(guess, lower=True) for guess in found.first_guesses]
        allowed = tuple(guess for guess in guesses if guess["algorithm"] in _LOWER_NAMES)
        return Space(knobs=tuple(knobs), constraint=legal, first_guesses=allowed)

    def schedule(
        self, workload: Workload, configuration: Configuration, target: KernelTarget
    ) -> Schedule:
        """Return the steps of the algorithm in float32, under the name of this one."""
        exact = Configuration(_named(configuration, lower=False))
        found = Convolution.schedule(self, _exact(workload), exact, target)
        return replace(found, algorithm=str(configuration["algorithm"]))


_LOWER_NAMES = (f"winograd_2x2{_LOWER}",)


def _exact(workload: Workload) -> Workload:
    lower = workload.precision.is_lower
    return replace(workload, precision=Precision.FLOAT32) if lower else workload


def _named(values: Mapping[str, Choice], *, lower: bool) -> dict[str, Choice]:
    name = str(values["algorithm"]).removesuffix(_LOWER)
    return {**values, "algorithm": f"{name}{_LOWER}" if lower else name}


def _rounded(packing: PackedInput) -> PackedInput:
    exact = packing.output
    exact.compute_root()
    rounded = hl.Func("rounded")
    place = exact.args()
    rounded[place] = hl.cast(hl.Float(32), hl.cast(hl.BFloat(16), exact[place]))
    return replace(packing, output=rounded)
