"""Equal ways to write a model: the rules subgraph tuning chooses from, each at all its places."""

from __future__ import annotations

from collections.abc import Iterator

from aoe.advice.actions.protocol import AdviceAction, Proposal
from aoe.graph.model_graph import ModelGraph
from aoe.graph.rewrites.editing import apply_edits, choose_apart
from aoe.graph.rewrites.protocol import RewriteMatch
from aoe.graph.rewrites.registry import RULES
from aoe.target import Target


def propose_rewrites(graph: ModelGraph, target: Target) -> Iterator[Proposal]:
    """Yield the model once for each rule that matches, `Pow` as products among them."""
    for rule in RULES.values():
        if rule.is_done_anyway:
            continue
        found = [one for one in rule.findings(graph) if isinstance(one, RewriteMatch)]
        chosen = choose_apart(graph, found)
        if chosen:
            yield Proposal(
                action=rule.name,
                what=rule.what,
                op_names=tuple(dict.fromkeys(name for match in chosen for name in match.nodes)),
                edited=apply_edits(graph.proto, [match.edit for match in chosen]),
                needs_retraining=False,
            )


REWRITES = AdviceAction(name="equal-rewrites", propose=propose_rewrites)
