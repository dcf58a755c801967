"""What subgraph tuning did, for people and as a document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aoe.report.last_line import finished_line, looked_up_finish
from aoe.report.reuse import write_reuse
from aoe.report.whole_model import (
    busy_note,
    gain_line,
    looked_up_line,
    places_document,
    unchanged_line,
    write_damaged,
    write_dropped,
    write_load,
)
from aoebank import Report, plural

if TYPE_CHECKING:
    from aoe.tuning.sgat.result import SgatResult
    from aoe.tuning.tasks.rewrites.lookup import TunedSubgraph
    from aoebank import Text

_COLUMNS = ("subgraph", "places", "nodes", "before us", "after us", "speed-up", "bank", "form")
_KINDS = "nrrrrr--"


@dataclass(frozen=True, slots=True, kw_only=True)
class SubgraphTuningReport(Report):
    """What subgraph tuning made of a model."""

    result: SgatResult
    schema: str = "aoe.sgat/1"

    def document(self) -> Mapping[str, object]:
        return places_document(self.result)

    def write(self, text: Text) -> None:
        result = self.result
        if result.subgraphs:
            text.line("subgraphs, times for one place in the model:")
            text.table(_COLUMNS, [_cells(tuned, result) for tuned in result.subgraphs], _KINDS)
        else:
            text.line("no rule matches anything in this model")
        write_reuse(text, result.reuse)
        text.line(_whole_model(result))
        write_load(text, result)
        write_dropped(text, result)
        text.line(f"tuned model: {result.om_file}")
        write_damaged(text, result)
        has_records = result.bank_file.exists()
        text.line(f"bank: {result.bank_file}" + ("" if has_records else " (no record yet)"))
        if result.validation.kept and not result.validation.is_measured:
            parts = plural(len(result.validation.kept), "subgraph")
            text.line(looked_up_finish(result, parts))
            return
        reason, note = _reason_for_nothing(result), busy_note(result)
        text.line(finished_line(result, reason, note=note))


def _whole_model(result: SgatResult) -> str:
    """Return the line on the speed of the model."""
    if not result.validation.kept:
        return unchanged_line(result, "no other form is kept")
    if not result.validation.is_measured:
        return looked_up_line(plural(len(result.validation.kept), "subgraph"))
    return gain_line(result)


def _reason_for_nothing(result: SgatResult) -> str:
    """Return in one line why the model stays as it is."""
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
