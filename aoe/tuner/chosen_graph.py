"""The graph a mode has chosen for the modes that follow in a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import onnx

from aoe.om.file import SubgraphUse


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenGraph:
    """Another rewrite of the imported model, which computes the same."""

    proto: onnx.ModelProto  # The rewrite; ONNX Runtime optimises it as it does the imported model
    uses: tuple[SubgraphUse, ...]  # What was done, for the manifest of the tuned model


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
