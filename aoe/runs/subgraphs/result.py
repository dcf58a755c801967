"""Result of a run of subgraph tuning, and its files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aoe.bank.records.subgraph import SubgraphStrategy, feature_to_json
from aoe.bank.remembered import RememberedOperator, remembered_to_json
from aoe.graph.rewrites.layout import INTO_RULE, SUNK_RULE, THROUGH_RULE
from aoe.results.files import (
    Gain,
    GainKind,
    RepoOutcome,
    write_json,
)
from aoe.results.sgat import SgatReport, SubgraphResult
from aoe.runs.model_mode import (
    ModelTuning,
    task_members,
    trial_members,
)
from aoe.tasks.operators.chosen_kernel import ChosenKernel
from aoe.tasks.rewrites.lookup import TunedSubgraph
from aoe.tasks.rewrites.subgraphs import Subgraph, features_of
from aoe.tuner.chosen_graph import ChosenGraph
from aoe.tuner.mode import JobType
from aoe.validation.candidates import ValidatedPart
from aoe.validation.model_validator import ValidationResult
from aoe.validation.rewrite_assembly import ChosenRewrite


@dataclass(frozen=True, slots=True, kw_only=True)
class SgatResult(ModelTuning[ValidatedPart]):
    """Result of a run of subgraph tuning."""

    job = JobType.SGAT

    bank_file: Path  # The bank's file of subgraphs for this target
    # Every subgraph with something to choose, those of the optimised graph last.
    subgraphs: tuple[TunedSubgraph, ...]
    without_options: int  # Distinct subgraphs without
    # Pieces that cannot be tuned by themselves: first node and reason.
    refused: tuple[tuple[str, str], ...]
    used_ids: frozenset[str]  # Identities of the subgraphs that are otherwise in the tuned model
    # The graph for the modes that follow; None if the imported one stays.
    chosen: ChosenGraph | None
    report: SgatReport  # Contents of AOE's result file
    won_alone: int = 0  # Kernels of subgraphs that are faster by themselves than what they compute

    @property
    def schema(self) -> str:
        """Of the summary."""
        return "aoe.sgat_summary/1"

    def rows(self) -> list[dict[str, Any]]:
        """Return the subgraphs as the summary has them."""
        return [_row(tuned, self) for tuned in self.subgraphs]

    def own_members(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the number of undecided subgraphs, and refusals."""
        return {
            "undecided_subgraphs": sum(tuned.is_undecided for tuned in self.subgraphs),
            "subgraphs_without_options": self.without_options,
            "left_to_onnxruntime": [
                {"node": node, "reason": reason} for node, reason in self.refused
            ],
        }


def with_kernels(
    rewrites: ValidationResult[ChosenRewrite],
    kernels: ValidationResult[ChosenKernel] | None,
    *,
    is_rewritten: bool = False,
) -> ValidationResult[ValidatedPart]:
    """Return the judgement on the final model: rewrites, and kernels in the graph they have left.

    Figures are those of the last comparison that ended with a model other than before.

    Args:
        rewrites: Their validation.
        kernels: That of the kernels, None without any.
        is_rewritten: True if the mode began with another graph than the imported one; then
            only the last comparison was held against that.
    """
    last: ValidationResult[Any] = rewrites
    if kernels is not None and (kernels.kept or is_rewritten or not rewrites.kept):
        last = kernels
    return ValidationResult(
        kept=(*rewrites.kept, *(kernels.kept if kernels is not None else ())),
        drops=rewrites.drops | (kernels.drops if kernels is not None else {}),
        comparison=last.comparison,
        estimate=last.estimate,
        graph_chosen=is_rewritten,
    )


def subgraph_result(tuned: TunedSubgraph) -> SubgraphResult:
    """Return the row of a subgraph in the result file."""
    tried = [trial.measurement for trial in tuned.trials]
    layout = format_gain(tuned)
    return SubgraphResult(
        repo_key=tuned.subgraph.graph_id,
        outcome=tuned.outcome,
        strategy=str(tuned.strategy) if tuned.strategy is not None else "",
        before_us=tuned.before_us,
        after_us=tuned.after_us,
        failed=tuned.outcome is RepoOutcome.UNSATISFIED
        and bool(tried)
        and not any(found.is_correct for found in tried),
        gains=(layout,) if layout is not None else (),
    )


def write_subgraph_details(result: SgatResult) -> None:
    """Write `subgraph_tuning/`, a file for each subgraph.

    Raises:
        OutputError: one of them cannot be written.
    """
    folder = result.places.results
    for tuned in result.subgraphs:
        file = folder / "subgraph_tuning" / f"{tuned.subgraph.graph_id}.json"
        write_json(file, _detail(tuned, result))


def _row(tuned: TunedSubgraph, result: SgatResult) -> dict[str, Any]:
    return {
        "graph_id": tuned.subgraph.graph_id,
        "places": list(tuned.subgraph.occurrence_names),
        "nodes": len(tuned.subgraph.segment.nodes),
        "strategy": str(tuned.strategy) if tuned.strategy is not None else None,
        **task_members(tuned, in_model=tuned.subgraph.graph_id in result.used_ids),
        "dropped": next(
            (
                drop.reason
                for name, drop in result.validation.drops.items()
                if tuned.subgraph.graph_id in name
            ),
            None,
        ),
    }


def _detail(tuned: TunedSubgraph, result: SgatResult) -> dict[str, Any]:
    subgraph = tuned.subgraph
    return {
        "schema": "aoe.subgraph_tuning/1",
        "graph_id": subgraph.graph_id,
        "nodes": list(subgraph.segment.op_names),
        "options": list(subgraph.options),
        "refused": [
            {"rule": refusal.rule, "nodes": list(refusal.nodes), "why": refusal.why}
            for refusal in subgraph.refusals
        ],
        "outcome": tuned.outcome.value,
        "reason": tuned.reason,
        "strategy": str(tuned.strategy) if tuned.strategy is not None else None,
        "trials": [
            {
                "strategy": str(trial.strategy),
                **trial_members(trial.measurement),
            }
            for trial in tuned.trials
        ],
        **subgraph_memory(
            tuned.subgraph, result.remembered.get(subgraph.graph_id, RememberedOperator())
        ),
    }


def subgraph_memory(subgraph: Subgraph, remembered: RememberedOperator) -> dict[str, Any]:
    """Return the bank's members of a subgraph, with the nodes of its record."""
    feature = {"feature": feature_to_json(features_of(subgraph.segment))}
    return {"feature": feature, **remembered_to_json(remembered)}


_LAYOUT_RULES = frozenset(rule.name for rule in (THROUGH_RULE, SUNK_RULE, INTO_RULE))
"""Rules that move Transposes or remove them."""


def format_gain(tuned: TunedSubgraph) -> Gain | None:
    """Return the gain of the layout alone, None where none was chosen.

    That is what the strategy gains over the same one without its layouts, which its search has
    measured beside it; where it has not, nothing is said.
    """
    strategy, before_us, after_us = tuned.strategy, tuned.before_us, tuned.after_us
    modified = tuned.outcome in (RepoOutcome.ADD, RepoOutcome.UPDATE)
    if not modified or strategy is None or before_us is None or after_us is None:
        return None
    rest = _without_layouts(strategy)
    speedup = 1.0 if rest.is_default else _measured(tuned, rest)
    if rest == strategy or speedup is None:
        return None
    gain = Gain(kind=GainKind.FORMAT, before_us=before_us / speedup, after_us=after_us)
    return gain if gain.before_us > gain.after_us else None


def _without_layouts(strategy: SubgraphStrategy) -> SubgraphStrategy:
    kept = tuple(one for one in strategy.rewrites if one.rule not in _LAYOUT_RULES)
    return replace(strategy, rewrites=kept, blocked=True)


def _measured(tuned: TunedSubgraph, strategy: SubgraphStrategy) -> float | None:
    """Return the speed-up a strategy had in the search, None without it."""
    found = (trial.measurement for trial in tuned.trials if trial.strategy == strategy)
    return next((one.speedup for one in found if one.is_correct), None)
