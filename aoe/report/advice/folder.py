"""Advice on a directory of models: a section each, and what they have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from aoe.advice.folder import ActionSummary, AdvisedModel, CauseSummary, FolderAdvice
from aoe.advice.trying import TrialVerdict
from aoe.report.advice.text import advice_to_json, by_gain, write_advice
from aoe.report.folder import ManyModelsReport
from aoe.report.profiling.text import ReportWithFiles
from aoe.report.quantities import time_text
from aoebank import members, plural

if TYPE_CHECKING:
    from aoe.advice.run import ModelAdvice
    from aoebank import AoebankError, Text

SUMMARY_COLUMNS = ("model", "a run", "lost", "low performers", "best gain", "retrained")
"""Of the table of all models."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderAdviceReport(ManyModelsReport, ReportWithFiles):
    """Advice on a directory, and what was written with it."""

    advice: FolderAdvice
    schema: str = "aoe.advise-folder/1"

    @property
    def errors(self) -> Sequence[AoebankError | None]:
        """The error of each model that could not be profiled."""
        return [model.error for model in self.advice.models]

    def document(self) -> Mapping[str, object]:
        """Return the advice on each model, then causes and actions of all; see `docs/advise.md`."""
        return {
            "folder": str(self.advice.folder),
            "models": [_model_to_json(model) for model in self.advice.models],
            "causes": [_cause_to_json(one) for one in self.advice.causes()],
            "actions": [_action_to_json(one) for one in self.advice.actions()],
            "written": self.files,
        }

    def write(self, text: Text) -> None:
        for path, advice in self.advice.advised:
            text.line((f"== {path.name} ==", "bold"))
            write_advice(text, advice)
            text.line()
        _write_summary(text, self.advice)
        self.write_files(text)


def summary_row(path: Path, advice: ModelAdvice) -> Sequence[str]:
    """Return the cells of a model under `SUMMARY_COLUMNS`."""
    profile = advice.profile
    return (
        path.name,
        time_text(profile.model_us),
        f"{profile.lost_us / (profile.operators_us or 1.0):.0%}",
        str(len(advice.low)),
        _best(advice, needs_retraining=False),
        _best(advice, needs_retraining=True),
    )


def _best(advice: ModelAdvice, *, needs_retraining: bool) -> str:
    for one in by_gain(advice.tried):
        if one.verdict is TrialVerdict.GAIN and one.needs_retraining is needs_retraining:
            assert one.estimate is not None
            return f"{one.estimate.median:.3f}x {one.action}"
    return "-"


def _write_summary(text: Text, advice: FolderAdvice) -> None:
    text.line((f"== all of {advice.folder} ==", "bold"))
    text.table(SUMMARY_COLUMNS, [summary_row(*one) for one in advice.advised], "nrrr--")
    causes, actions = advice.causes(), advice.actions()
    if causes:
        text.line()
        text.columns(
            causes,
            ("cause", "-", lambda one: one.cause),
            ("models", "r", lambda one: str(one.models)),
            ("operators", "r", lambda one: str(one.operators)),
            ("lost", "r", lambda one: time_text(one.room_us)),
        )
    if actions:
        text.line()
        text.columns(
            actions,
            ("action", "-", lambda one: one.action),
            ("tried on", "r", lambda one: str(one.tried)),
            ("gains on", "r", lambda one: str(len(one.gains))),
            ("best", "r", lambda one: f"{one.best:.3f}x" if one.gains else "-"),
            ("needs retraining", "-", lambda one: "yes" if one.needs_retraining else "no"),
        )
    for model in advice.models:
        if model.error is not None:
            text.line(f"{model.path.name}: no advice: {model.error}")
    text.line(f"{len(advice.advised)} of {plural(len(advice.models), 'model')} profiled")


def _model_to_json(model: AdvisedModel) -> dict[str, object]:
    if model.advice is not None:
        return {"file": str(model.path), "advice": advice_to_json(model.advice)}
    assert model.error is not None
    error = {"code": model.error.code, "message": str(model.error)}
    return {"file": str(model.path), "error": error}


def _cause_to_json(one: CauseSummary) -> dict[str, object]:
    return members(one, "cause models operators lost_us=room_us:4")


def _action_to_json(one: ActionSummary) -> dict[str, object]:
    return members(one, "action needs_retraining tried gains best:4")
