"""Report on a bank that was measured again, for people and as a document."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aoe.report.quantities import speedup_members
from aoe.workload import TRAINING_CONVOLUTION, TRAINING_LOOP
from aoebank import Report, members, plural, words_of

if TYPE_CHECKING:
    from aoe.measurement import SpeedupEstimate
    from aoe.runs.verify_records import DecidedOperator, VerifiedBank, VerifiedModel, VerifiedRecord
    from aoebank import Text

_KEY_DIGITS = 8
_OF_TRAINING = (TRAINING_CONVOLUTION, TRAINING_LOOP)
_RECORDED = {"speedup": "speedup", "low": "low", "time": "time", "by": "engine"}


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedBankReport(Report):
    """Recorded gains beside the gains measured now."""

    result: VerifiedBank
    schema: str = "aoe.verify/1"

    @property
    def about(self) -> str:
        """Root of the bank."""
        return str(self.result.root)

    @property
    def exit_code(self) -> int:
        """That of the first model's error; else 1 if a gain is weaker or lost."""
        errors = (one.error for one in self.result.models if one.error is not None)
        return next((error.exit_code for error in errors), 0 if self.result.holds else 1)

    def document(self) -> Mapping[str, object]:
        result = self.result
        return {
            **members(
                result,
                "bank=root soc_version=target.soc_version core_num=target.core_num "
                "holds dry_run left",
            ),
            "records": [_record(one) for one in result.records],
            "decided": [_decided(one) for one in result.decided],
            "models": [_model(one) for one in result.models],
            "passed_over": [
                {"file": str(one.file), "key": one.key, "reason": one.reason}
                for one in result.passed_over
            ],
        }

    def write(self, text: Text) -> None:
        result = self.result
        if result.records:
            text.line(_headline(result))
            text.columns(
                result.records,
                ("operator", "-", lambda one: one.one.op_type),
                ("computes", "-", lambda one: words_of(one.one.record).computes),
                ("record", "-", lambda one: one.one.record.key[:_KEY_DIGITS]),
                ("recorded", "r", _recorded),
                ("measured", "r", lambda one: _times(one.found.estimate)),
                ("interval", "r", lambda one: _interval(one.found.estimate)),
                ("verdict", "-", lambda one: one.found.verdict.value),
                ("why", "-", lambda one: one.found.reason or "-"),
            )
        for one in result.decided:
            text.line(_decision(one))
        for model in result.models:
            text.line(_model_line(model))
            if model.om_file is not None:
                text.line(f"tuned model: {model.om_file}")
        reasons = Counter(one.reason for one in result.passed_over if one.is_there)
        for reason, count in sorted(reasons.items()):
            text.line(f"{plural(count, 'record')} not measured: {reason}")
        for missing in result.passed_over:
            if not missing.is_there:
                text.line(missing.reason)
        if result.left:
            text.line(f"{plural(result.left, 'record')} not asked for")
        verdicts = Counter(one.found.verdict.value for one in result.records)
        counts = ", ".join(f"{count} {word}" for word, count in sorted(verdicts.items()))
        text.line(f"{plural(len(result.records), 'record')} measured: {counts or 'nothing to do'}")
        written = sum(one.written for one in result.records)
        written += sum(one.written for one in result.decided)
        where = "nothing was written (--dry-run)" if result.dry_run else f"{written} written back"
        noted = sum(one.written for one in result.models)
        if noted:
            where += f", new verdicts of {plural(noted, 'whole model')}"
        text.line(f"bank: {result.root}, {where}")


def _headline(result: VerifiedBank) -> str:
    """Return the line on what was compared with what."""
    if any(one.one.op_type == "gradients" for one in result.records):
        return "gains over DDP's own buckets, of a training step:"
    if result.records and all(one.one.op_type in _OF_TRAINING for one in result.records):
        return "gains over PyTorch's own operators, the region of a training alone:"
    has_subgraphs = any(one.model is not None for one in result.records)
    alone = "operator or subgraph alone" if has_subgraphs else "operator alone"
    trained = any(one.one.op_type in _OF_TRAINING for one in result.records)
    besides = ", of regions of a training over PyTorch's own operators" if trained else ""
    return f"gains over ONNX Runtime's own kernel, the {alone}{besides}:"


def _recorded(one: VerifiedRecord) -> str:
    return "-" if one.one.recorded is None else f"{one.one.recorded.speedup:.2f}x"


def _times(estimate: SpeedupEstimate | None) -> str:
    return "-" if estimate is None else f"{estimate.median:.2f}x"


def _interval(estimate: SpeedupEstimate | None) -> str:
    return "-" if estimate is None else f"{estimate.low:.2f} to {estimate.high:.2f}"


def _decision(one: DecidedOperator) -> str:
    """Return the line about an operator that a busy machine had left undecided."""
    estimate, found = one.found.estimate, one.found
    figure = f"{_times(estimate)} ({_interval(estimate)})" if estimate else ""
    what = {
        "holds": "faster, now a record",
        "lost": "no gain, the next tuning searches it",
    }.get(found.verdict.value, "still undecided")
    name = ", ".join(one.one.op_names) or one.one.workload.op_type
    why = "" if found.verdict.value == "holds" else found.reason
    return (
        f"left undecided by a busy machine: {name}: {', '.join(filter(None, (what, figure, why)))}"
    )


def _decided(one: DecidedOperator) -> Mapping[str, object]:
    return {
        **members(
            one,
            "file op_type=one.workload.op_type op_names=one.op_names "
            "verdict=found.verdict reason=found.reason",
        ),
        **speedup_members(one.found.estimate),
        "written": one.written,
    }


def _model_line(one: VerifiedModel) -> str:
    """Return the line about a whole model."""
    from aoe.runs.verify_models import NOTHING_TO_JUDGE

    name = f"whole model {one.model.name}{f' ({one.shapes})' if one.shapes else ''}"
    found = one.found
    if found is None:
        return f"{name}: {NOTHING_TO_JUDGE}"
    estimate = found.estimate
    figure = f"{_times(estimate)} ({_interval(estimate)})" if estimate else ""
    if one.processes:
        figure += f" in {one.processes} process{'es' * (one.processes > 1)}"
    counts = f"{len(one.kept)} kept, {len(one.dropped)} dropped"
    words = ", ".join(filter(None, (found.verdict.value, figure, found.reason, counts)))
    return f"{name}: {words}"


def _model(one: VerifiedModel) -> Mapping[str, object]:
    from aoe.runs.verify_models import NOTHING_TO_JUDGE

    found = one.found
    return {
        "model": str(one.model),
        "shapes": one.shapes,
        "verdict": found.verdict.value if found is not None else None,
        "reason": found.reason if found is not None else NOTHING_TO_JUDGE,
        **speedup_members(found.estimate if found is not None else None),
        "processes": one.processes,
        "kept": list(one.kept),
        "dropped": [{"name": name, "reason": why} for name, why in sorted(one.dropped.items())],
        "om": str(one.om_file) if one.om_file is not None else None,
        "written": one.written,
    }


def _record(one: VerifiedRecord) -> Mapping[str, object]:
    recorded, estimate = one.one.recorded, one.found.estimate
    return {
        **members(one.one, "file key=record.key op_type op_names"),
        "model": str(one.model) if one.model is not None else None,
        **members(one.found, "verdict reason"),
        **{
            f"recorded_{name}": getattr(recorded, attribute) if recorded is not None else None
            for name, attribute in _RECORDED.items()
        },
        "drift": [*one.one.drift.hard, *one.one.drift.soft],
        **speedup_members(estimate),
        "pairs": estimate.pairs if estimate is not None else 0,
        "written": one.written,
    }
