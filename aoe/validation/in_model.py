"""Times of kernels in the whole model, node by node, beside the nodes they replace.

A kernel that wins alone may lose among its neighbours: its operands are cold there, and what it
replaces may have worked in place, or in the layout its neighbours have. One profile of the model
with all kernels and one without any tell that of every kernel at once. They choose what is
compared; they prove nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aoe.errors import RunError
from aoe.tasks.operators.chosen_kernel import ChosenKernel
from aoe.tuner.tune_context import TuneContext
from aoe.validation.candidates import Drop
from aoe.validation.kernel_assembly import Assembly
from aoe.validation.time_reserve import ModelCosts

_MOST_SHARE = 0.1
"""Most of the time left that the profiles may take."""
_TIMEOUT_S = 60.0
_SURE_LOSS = 1.05
"""Factor by which a kernel has to take longer than what it replaces: medians of a few runs of the
profiler are within 5 % of each other on a quiet machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeInModel:
    """Time of a kernel in one run of the model, all occurrences together."""

    kernel_us: float  # Its nodes
    replaced_us: float  # The nodes they take the places of, in the model without kernels

    @property
    def is_loss(self) -> bool:
        """True if the model is surely slower where it stands."""
        return self.kernel_us > _SURE_LOSS * self.replaced_us

    def drop(self, kernel: ChosenKernel) -> Drop:
        """Return why the kernel goes back; a run with more time compares the model without it."""
        return Drop(
            reason=f"in the model it takes {self.kernel_us:.0f} us for what takes "
            f"{self.replaced_us:.0f} us without it, though it saves {kernel.gain_us:.0f} us alone",
            is_final=False,
        )


def times_in_model(
    tuning: TuneContext,
    assembly: Assembly,
    kernels: Sequence[ChosenKernel],
    costs: ModelCosts,
    left_s: float,
) -> Mapping[str, TimeInModel]:
    """Return the times of kernels in the model, by name; empty where they cannot be told in time.

    Args:
        tuning: The model.
        assembly: Puts it together.
        kernels: Kernels in the library.
        costs: What things take with this model.
        left_s: Seconds until the time limit.
    """
    most_s = min(_MOST_SHARE * left_s, _TIMEOUT_S)
    if costs.in_turns_s > most_s:
        return {}
    parts = assembly.write_graph("plain.onnx"), assembly.write_model(kernels, "variant.onnx")
    try:
        plain_us, tuned_us = tuning.machine.runner.call(
            "profile_models",
            timeout_s=_TIMEOUT_S + most_s,
            models=parts,
            inputs=tuning.subject.inputs,
            most_s=most_s,
        )
    except RunError:  # the comparison of the whole model says it, too
        return {}
    found = {}
    for kernel in kernels:
        places = assembly.replaced_nodes(kernel)
        if all(node in tuned_us for node in places):
            replaced = (name for names in places.values() for name in names)
            found[kernel.name] = TimeInModel(
                kernel_us=sum(tuned_us[node] for node in places),
                replaced_us=sum(plain_us.get(name, 0.0) for name in replaced),
            )
    return found
