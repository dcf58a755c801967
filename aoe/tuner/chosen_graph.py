"""The graph a mode has chosen for the modes that follow in a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import onnx

from aoe.om.file import SubgraphUse
from aoe.workload import Precision


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenGraph:
    """Another form of the imported model, which computes the same, or what accuracy allows."""

    proto: onnx.ModelProto  # The rewrite; ONNX Runtime optimises it as it does the imported model
    uses: tuple[SubgraphUse, ...]  # What was done, for the manifest of the tuned model
    precision: Precision = Precision.FLOAT32  # The lowest it computes in, without kernels
    # Its speed-up without kernels where operator tuning without it may be faster; None where the
    # bank of rewrites says whether that is to be tried.
    speedup: float | None = None


@runtime_checkable
class ChoosesGraph(Protocol):
    """A mode's result that has chosen a graph."""

    @property
    def chosen(self) -> ChosenGraph | None:
        """The graph, None if the imported one stays."""
        ...


def chosen_before(results: Sequence[object]) -> ChosenGraph | None:
    """Return the graph that results of earlier modes have chosen last, None if none did."""
    graphs = [result.chosen for result in results if isinstance(result, ChoosesGraph)]
    return next((graph for graph in reversed(graphs) if graph is not None), None)
