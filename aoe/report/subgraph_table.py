"""Report on subgraph tuning, for people and as a document."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from aoe.report.whole_model import (
    TIMES,
    ModelTuningReport,
    first_reason,
    reason_of_drops,
    recalled_note,
    recalled_times,
)
from aoebank import plural

if TYPE_CHECKING:
    from pathlib import Path

    from aoe.runs.subgraphs.result import SgatResult
    from aoe.tasks.rewrites.lookup import TunedSubgraph
    from aoebank import Text


@dataclass(frozen=True, slots=True, kw_only=True)
class SubgraphTuningReport(ModelTuningReport):
    """Result of subgraph tuning of a model."""

    result: SgatResult
    schema: str = "aoe.sgat/1"

    def write_tasks(self, text: Text) -> None:
        result = self.result
        if not result.subgraphs:
            text.line("no rule matches anything in this model")
            return
        note = recalled_note(recalled_times(result.subgraphs, "subgraphs"))
        text.line(f"subgraphs, times for one place in the model{note}:")
        text.columns(
            result.subgraphs,
            ("subgraph", "n", lambda tuned: tuned.subgraph.op_name),
            ("places", "r", lambda tuned: str(len(tuned.subgraph.occurrences))),
            ("nodes", "r", lambda tuned: str(len(tuned.subgraph.segment.nodes))),
            *TIMES,
            ("bank", "-", lambda tuned: tuned.outcome.value),
            ("form", "-", self._form),
        )

    def _form(self, tuned: TunedSubgraph) -> str:
        if tuned.strategy is None:
            return "as it is"
        is_used = tuned.subgraph.graph_id in self.result.used_ids
        return str(tuned.strategy) if is_used else f"{tuned.strategy} (not in the model)"

    def nothing_kept(self) -> str:
        return "no other form is kept"

    def bank(self) -> Path:
        return self.result.bank_file

    def reason_for_nothing(self) -> str:
        from aoe.results.files import ONLY_LOOKED_UP
        from aoe.tasks.rewrites.lookup import rewrite_summary

        subgraphs = self.result.subgraphs
        if not subgraphs:
            return "no rule matches anything in this model"
        if not self.result.validation.undecided and any(one.untried for one in subgraphs):
            return rewrite_summary(subgraphs, kept=0)
        left = self.result.validation.undecided or first_reason(
            subgraphs,
            (
                f"{{}} subgraphs are not in the bank, and were {ONLY_LOOKED_UP}",
                lambda one: ONLY_LOOKED_UP in one.reason,
            ),
            ("{} subgraphs are not decided", lambda one: one.is_undecided),
        )
        if left or any(tuned.strategy is not None for tuned in subgraphs):
            return left or reason_of_drops(self.result.validation, "forms")
        alone = self.result.won_alone
        beside = f", also with {plural(alone, 'kernel')} that won by themselves" if alone else ""
        return f"every subgraph is fastest as it is{beside}"
