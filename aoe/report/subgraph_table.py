"""What subgraph tuning did, for people and as a document."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from aoe.report.whole_model import ModelTuningReport

if TYPE_CHECKING:
    from pathlib import Path

    from aoe.tuning.sgat.result import SgatResult
    from aoe.tuning.tasks.rewrites.lookup import TunedSubgraph
    from aoebank import Text

_COLUMNS = ("subgraph", "places", "nodes", "before us", "after us", "speed-up", "bank", "form")
_KINDS = "nrrrrr--"


@dataclass(frozen=True, slots=True, kw_only=True)
class SubgraphTuningReport(ModelTuningReport):
    """What subgraph tuning made of a model."""

    result: SgatResult
    schema: str = "aoe.sgat/1"

    def write_tasks(self, text: Text) -> None:
        result = self.result
        if not result.subgraphs:
            text.line("no rule matches anything in this model")
            return
        text.line("subgraphs, times for one place in the model:")
        text.table(_COLUMNS, [_cells(tuned, result) for tuned in result.subgraphs], _KINDS)

    def nothing_kept(self) -> str:
        return "no other form is kept"

    def bank(self) -> Path:
        return self.result.bank_file

    def reason_for_nothing(self) -> str:
        result = self.result
        if not result.subgraphs:
            return "no rule matches anything in this model"
        if undecided := result.validation.undecided:
            return undecided
        untried = sum(tuned.is_untried for tuned in result.subgraphs)
        if untried:
            return f"a limit left {untried} of {len(result.subgraphs)} subgraphs untried"
        from aoe.results.files import ONLY_LOOKED_UP

        count = len(result.subgraphs)
        missing = sum(ONLY_LOOKED_UP in tuned.reason for tuned in result.subgraphs)
        if missing:
            return f"{missing} of {count} subgraphs are not in the bank, and were {ONLY_LOOKED_UP}"
        open_ones = sum(tuned.is_undecided for tuned in result.subgraphs)
        if open_ones:
            return f"{open_ones} of {count} subgraphs are not decided"
        if not any(tuned.strategy is not None for tuned in result.subgraphs):
            return "every subgraph is fastest as it is"
        return "the whole model is not faster with the forms that win alone"


def _cells(tuned: TunedSubgraph, result: SgatResult) -> tuple[str, ...]:
    subgraph = tuned.subgraph
    is_used = subgraph.graph_id in result.used_ids
    form = str(tuned.strategy) if tuned.strategy is not None else "as it is"
    return (
        subgraph.op_name,
        str(len(subgraph.places)),
        str(len(subgraph.segment.nodes)),
        f"{tuned.before_us:.1f}" if tuned.before_us else "-",
        f"{tuned.after_us:.1f}" if tuned.after_us else "-",
        f"{tuned.speedup:.2f}x" if tuned.speedup else "-",
        tuned.outcome.value,
        form if is_used or tuned.strategy is None else f"{form} (not in the model)",
    )
