"""Rewrite rules as values: a rule finds nodes and says which nodes take their place."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

import onnx

from aoe.graph.model_graph import ModelGraph


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """Nodes and constants that take the place of nodes of the imported model."""

    removed: tuple[int, ...]  # Indices into `graph.nodes`
    # Nodes in any order; what they make under a name of a removed node is read as before.
    added: tuple[onnx.NodeProto, ...]
    # Constants the added nodes read, or that take the place of a result.
    initializers: tuple[onnx.TensorProto, ...] = ()
    # (name, other): whatever reads `name` reads `other` from now on.
    aliases: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteMatch:
    """Nodes a rule may take the place of."""

    rule: str  # Name of the rule
    nodes: tuple[str, ...]  # Names of the nodes, for messages
    edit: Edit  # What stands there then


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteRefusal:
    """Nodes a rule looked at and left alone."""

    rule: str  # Name of the rule
    nodes: tuple[str, ...]  # Names of the nodes, for messages
    why: str  # The precondition that does not hold
    is_fault: bool = False  # True if the rule itself has failed, which is a bug


Finding = RewriteMatch | RewriteRefusal


class RuleUse(StrEnum):
    """When a rule is applied."""

    ALWAYS = "always"
    """To every model, before ONNX Runtime optimises it: nothing is lost by it anywhere."""
    MEASURED = "measured"
    """Where a search or a trial has found the model faster with it."""
    ALLOWED = "allowed"
    """Where the precision a user allows says so: it drops roundings of the model."""
    INEXACT = "inexact"
    """Where somebody trains the model again: it computes something else with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteRule:
    """A way to write a piece of a graph."""

    name: str  # Unique in the registry, in words with hyphens
    what: str  # What becomes what, one sentence without a full stop
    needs: str  # Preconditions, in the same form
    # Yields every match of a graph and what was refused; matches may overlap.
    find: Callable[[ModelGraph], Iterable[Finding]]
    tolerance: float = 0.0  # Largest difference of a result, relative to its largest magnitude
    version: int = 1  # Counted up when the same graph is rewritten otherwise
    # True if parts of a match are matches again: a model may be cut there.
    is_divisible: bool = False
    use: RuleUse = RuleUse.MEASURED  # When it is applied
    # Operators without which it finds nothing; () if that is not known.
    op_types: tuple[str, ...] = ()
    # True if ONNX Runtime does the same when it loads a model: there is nothing to choose.
    is_done_anyway: bool = False

    @property
    def exact(self) -> bool:
        """True if results keep their bits (ONNX Runtime on this CPU, optimised or not)."""
        return self.tolerance == 0

    def findings(self, graph: ModelGraph) -> Iterator[Finding]:
        """Yield the matches of the rule; if it fails, a refusal takes the place of the rest."""
        try:
            yield from self.find(graph)
        except Exception as error:  # a bug of one rule costs its own matches, never a run
            place = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{place.filename.rpartition('/')[2]}:{place.lineno}"
            why = f"it failed: {type(error).__name__}: {error} ({where})"
            yield RewriteRefusal(rule=self.name, nodes=(), why=why, is_fault=True)
