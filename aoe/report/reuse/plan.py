"""What a tuning would do, as text or as one document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aoe.tuning.reuse.kinds import ReuseKind, part_to_json

if TYPE_CHECKING:
    from aoe.tuning.planning.model import TuningPlan
    from aoe.tuning.reuse.kinds import Reuse
    from aoebank import AoebankError, Text

_COLUMNS = ("", "part", "places", "family", "share", "why")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanReport:
    """What a tuning would reuse, tune again, tune anew and drop."""

    plan: TuningPlan
    schema: str = "aoe.plan/1"
    error: AoebankError | None = None
    exit_code: int = 0

    def document(self) -> Mapping[str, object]:
        """Return every subgraph and operator with the reason."""
        plan = self.plan
        return {
            "model": plan.model,
            "soc_version": plan.soc_version,
            "core_num": plan.core_num,
            "base": plan.base,
            "counts": {kind.value: plan.reuse.count(kind) for kind in ReuseKind},
            "most_s": round(plan.most_s, 1),
            "subgraphs": [part_to_json(part) for part in plan.subgraphs.parts],
            "operators": [
                {**part_to_json(part), "share": round(plan.shares.get(part.key, 0.0), 5)}
                for part in plan.operators.parts
            ],
        }

    def write(self, text: Text) -> None:
        """Write a row for each part, how many of each there are, and how long it would take."""
        plan = self.plan
        if plan.reuse.parts:
            text.table(_COLUMNS, map(self._row, plan.reuse.parts), "nnrnr-")
        text.line(f"{plan.model} for {plan.soc_version}, {plan.core_num} threads")
        text.line(f"against {plan.base}: {plan.reuse}")
        to_tune = plan.reuse.count(ReuseKind.RETUNED) + plan.reuse.count(ReuseKind.NEW)
        if to_tune:
            text.line(f"searching takes about {max(1, round(plan.most_s))} s at most")
        else:
            text.line("nothing is to be searched")

    def _row(self, part: Reuse) -> tuple[str, ...]:
        share = self.plan.shares.get(part.key)
        return (
            part.kind.value,
            part.op_names[0] if part.op_names else part.key,
            str(len(part.op_names)),
            part.op_type,
            "-" if share is None else f"{share:.1%}",
            part.reason,
        )
