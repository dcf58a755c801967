"""Rewritten subgraphs: a strategy's list of rules, applied."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import onnx

from aoe.bank.records.subgraph import AppliedRule, SubgraphStrategy
from aoe.graph.rewrites.editing import apply_edits
from aoe.graph.rewrites.protocol import RewriteMatch, RewriteRefusal, RewriteRule
from aoe.graph.subgraphs.chunks import in_chunks
from aoe.graph.subgraphs.plain import in_plain_layout
from aoe.graph.subgraphs.segment import Segment

_CHUNKED_TOLERANCE = 1e-5
"""A smaller batch may be summed up in another order."""
_PLAIN_TOLERANCE = 1e-4
"""So is another layout, over thousands of elements. Source: as rules with sums in another order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRewrites:
    """Matches and refusals of the rules in a subgraph."""

    matches: Mapping[AppliedRule, RewriteMatch]  # By rule, in the order of the table, and place
    refusals: tuple[RewriteRefusal, ...]  # Nodes looked at and left alone, with the reason


def find_rewrites(segment: Segment, rules: Mapping[str, RewriteRule]) -> FoundRewrites:
    """Return every place a rule matches; of several ways at the same nodes the first counts."""
    matches: dict[AppliedRule, RewriteMatch] = {}
    refusals = []
    for rule in rules.values():
        for found in rule.findings(segment.graph):
            if isinstance(found, RewriteRefusal):
                refusals.append(found)
            else:
                nodes = tuple(sorted(found.edit.removed))
                applied = AppliedRule(rule=rule.name, version=rule.version, nodes=nodes)
                matches.setdefault(applied, found)
    return FoundRewrites(matches=matches, refusals=tuple(refusals))


def rewrite_of(
    segment: Segment, strategy: SubgraphStrategy, rules: Mapping[str, RewriteRule]
) -> onnx.ModelProto | str:
    """Return the model a strategy makes of a subgraph, or a sentence on why it cannot.

    Args:
        segment: The subgraph.
        strategy: Made for this or an equal subgraph.
        rules: By name.
    """
    edits = []
    if strategy.rewrites:
        named = {a.rule: rules[a.rule] for a in strategy.rewrites if a.rule in rules}
        found = find_rewrites(segment, named).matches
        for applied in strategy.rewrites:
            invalid_reason = _invalid_reason(applied, named, found)
            if invalid_reason:
                return invalid_reason
            edits.append(found[applied].edit)
    try:
        rewrite = apply_edits(segment.proto, edits)
    except ValueError as error:
        return f"the rewrites do not go together: {error}"
    if not strategy.blocked:
        rewrite = in_plain_layout(rewrite)
    return in_chunks(segment, rewrite, strategy.chunks) if strategy.chunks else rewrite


def tolerance_of(strategy: SubgraphStrategy, rules: Mapping[str, RewriteRule]) -> float:
    """Return the allowed deviation relative to the largest magnitude; 0 for equal bits."""
    tolerances = [rules[applied.rule].tolerance for applied in strategy.rewrites]
    if not strategy.blocked:
        tolerances.append(_PLAIN_TOLERANCE)
    if strategy.chunks:
        tolerances.append(_CHUNKED_TOLERANCE)
    return max(tolerances, default=0.0)


def _invalid_reason(
    applied: AppliedRule,
    rules: Mapping[str, RewriteRule],
    found: Mapping[AppliedRule, RewriteMatch],
) -> str:
    """Return the reason why a rule cannot be applied again; empty if it can."""
    rule = rules.get(applied.rule)
    if rule is None:
        return f"this version has no rule {applied.rule}"
    if rule.version != applied.version:
        return f"rule {applied.rule} is version {rule.version} now, not {applied.version}"
    if applied not in found:
        return f"rule {applied.rule} does not match at nodes {list(applied.nodes)} any more"
    return ""
