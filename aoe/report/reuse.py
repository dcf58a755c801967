"""Reports on the parts a tuning reuses from an earlier result, before and after it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aoe.report.quantities import figure
from aoe.tuner.reuse.covering_records import range_lines
from aoe.tuner.reuse.kinds import ReuseKind, part_to_json
from aoebank import Report, members, plural

if TYPE_CHECKING:
    from aoe.runs.planning import TuningPlan
    from aoe.tuner.reuse.kinds import Reuse, ReuseSummary
    from aoebank import Text

_MOST_ROWS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanReport(Report):
    """Plan of a tuning: parts to reuse, tune again, tune anew and drop."""

    plan: TuningPlan
    schema: str = "aoe.plan/1"

    @property
    def about(self) -> str:
        """File of the model."""
        return str(self.plan.model)

    def document(self) -> Mapping[str, object]:
        plan = self.plan
        return {
            **members(plan, "model soc_version core_num base=reuse.base"),
            **({"group": plan.group} if plan.group else {}),
            "counts": {kind.value: plan.reuse.count(kind) for kind in ReuseKind},
            "most_s": round(plan.most_s, 1),
            "ranges": list(plan.ranges),
            **({"left": dict(plan.left)} if plan.left else {}),
            **{
                f"{job.subject}s": [_task(part, kind.shares) for part in kind.reuse.parts]
                for job, kind in plan.kinds.items()
            },
        }

    def write(self, text: Text) -> None:
        plan = self.plan
        if plan.reuse.parts:
            text.columns(
                plan.reuse.parts,
                ("", "n", lambda part: part.kind.value),
                ("part", "n", _name),
                ("places", "r", lambda part: str(len(part.op_names))),
                ("family", "n", lambda part: part.op_type),
                ("share", "r", lambda part: figure(plan.shares.get(part.key), ".1%")),
                ("why", "-", lambda part: part.reason),
            )
        where = plan.group or plural(plan.core_num, "thread")
        text.line(f"{plan.model} for {plan.soc_version}, {where}")
        text.line(f"against {plan.reuse.base}: {plan.reuse}")
        to_tune = plan.reuse.count(ReuseKind.RETUNED) + plan.reuse.count(ReuseKind.NEW)
        if to_tune:
            text.line(f"searching takes about {max(1, round(plan.most_s))} s at most")
        else:
            text.line("nothing is to be searched")
        for line in range_lines(plan.ranges):
            text.line(line)
        for reason, count in plan.left.items():
            text.line(f"{plural(count, 'region')} left to PyTorch: {reason}")


def _task(part: Reuse, shares: Mapping[str, float] | None) -> Mapping[str, object]:
    share = {} if shares is None else {"share": round(shares.get(part.key, 0.0), 5)}
    return {**part_to_json(part), **share}


def write_reuse(text: Text, summary: ReuseSummary | None) -> None:
    """Write how many operators became what; what was not reused, or is doubtful, line by line."""
    if summary is None:
        return
    text.line(f"against {summary.base}: {summary}")
    told = [part for part in summary.parts if _is_told(part)]
    if told:
        text.columns(
            told,
            ("", "n", lambda part: part.kind.value),
            ("operator", "n", _name),
            ("family", "n", lambda part: part.op_type),
            ("why", "-", lambda part: part.reason),
            most=_MOST_ROWS,
            rest="in the JSON document",
        )


def _name(part: Reuse) -> str:
    return part.op_names[0] if part.op_names else part.key


def _is_told(part: Reuse) -> bool:
    return part.kind is not ReuseKind.REUSED or ";" in part.reason
