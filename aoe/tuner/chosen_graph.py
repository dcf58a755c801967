"""The graphs a run has chosen in the place of the imported model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import onnx

from aoe.execute.tasks import ModelComparison
from aoe.om.file import SubgraphUse
from aoe.workload import Precision
from aoebank import plural


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenGraph:
    """Another form of the imported model, which computes the same, or what accuracy allows."""

    proto: onnx.ModelProto  # The rewrite; ONNX Runtime optimises it as it does the imported model
    uses: tuple[SubgraphUse, ...]  # What was done, for the manifest of the tuned model
    precision: Precision = Precision.FLOAT32  # The lowest it computes in, without kernels
    # Its speed-up without kernels where operator tuning without it may be faster; None where the
    # bank of rewrites says whether that is to be tried.
    speedup: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenForm:
    """How a model is written: as it was imported, or in the form tried beside it."""

    proto: onnx.ModelProto | None  # The model every mode begins with; None for the imported one
    is_uint8: bool = False  # True if the form that was tried has int8 activations as uint8
    constants: int = 0  # Constants of which it has the float values
    # Number of places rewrite rules have changed in it, by their names.
    rules: Mapping[str, int] = field(default_factory=dict)
    # Number of operators in the place of which their functions stand in it, by their types.
    functions: Mapping[str, int] = field(default_factory=dict)
    speedup: float | None = None  # Of that form over the imported model, None if not measured
    # What this run has measured of the form that was taken, None where that is from the bank.
    comparison: ModelComparison | None = None
    is_stored: bool = False  # True if the bank had it: nothing of it was measured in this run
    # True if ONNX Runtime computes something else from the imported model: it stays however slow.
    is_needed: bool = False

    @property
    def what(self) -> str:
        """What distinguishes the form that was tried from the imported model."""
        parts = [
            *(["int8 activations written as uint8"] if self.is_uint8 else []),
            *([f"{plural(self.constants, 'constant')} dequantised once"] if self.constants else []),
            *(f"{rule} at {plural(count, 'place')}" for rule, count in self.rules.items()),
            *(f"the function of {op} ({count})" for op, count in self.functions.items()),
        ]
        return ", ".join(parts)

    def __str__(self) -> str:
        gain = "not measured" if self.speedup is None else f"{self.speedup:.3g}x"
        found = f"{self.what}: {gain}{', as in the bank' if self.is_stored else ''}"
        return found if self.proto is not None else f"the model stays as it is; {found}"


@runtime_checkable
class ChoosesGraph(Protocol):
    """A mode's result that has chosen a graph."""

    @property
    def chosen(self) -> ChosenGraph | None:
        """The graph, None if the imported one stays."""
        ...


@runtime_checkable
class HasWrittenForm(Protocol):
    """A mode's result that knows how its model is written."""

    @property
    def written_as(self) -> WrittenForm | None:
        """The form, None for a model of which there is no other."""
        ...


def chosen_before(results: Sequence[object]) -> ChosenGraph | None:
    """Return the graph that results of earlier modes have chosen last, None if none did."""
    graphs = [result.chosen for result in results if isinstance(result, ChoosesGraph)]
    return next((graph for graph in reversed(graphs) if graph is not None), None)


def form_before(results: Sequence[object]) -> WrittenForm | None:
    """Return the form of a model that the first of the earlier modes has chosen."""
    forms = [result.written_as for result in results if isinstance(result, HasWrittenForm)]
    return next((form for form in forms if form is not None), None)
