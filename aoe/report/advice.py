"""Low performers, their causes, and what actions were shown to bring."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from aoe.advice.causes import LowPerformer
from aoe.advice.folder import AdvisedModel, FolderAdvice
from aoe.advice.run import ModelAdvice
from aoe.advice.trying import TrialVerdict, TriedAction
from aoe.report.folder import ManyModelsReport
from aoe.report.profiles import lost_share
from aoe.report.quantities import (
    interval_text,
    speedup_members,
    speedup_text,
    time_text,
    title_of,
)
from aoe.report.written import ReportWithFiles
from aoebank import members, plural

if TYPE_CHECKING:
    from aoebank import AoebankError, Column, Text

_MOST_ROWS = 20
_VERDICTS = {
    TrialVerdict.GAIN: "gain",
    TrialVerdict.NO_GAIN: "tried, no gain",
    TrialVerdict.UNDECIDED: "tried, undecided",
    TrialVerdict.FAILED: "does not fit",
    TrialVerdict.BUSY: "machine too busy to tell",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceReport(ReportWithFiles):
    """Advice, and what was written with it."""

    advice: ModelAdvice
    schema: str = "aoe.advise/1"

    def document(self) -> Mapping[str, object]:
        """Return every low performer and every action; see `docs/advise.md`."""
        return {**advice_to_json(self.advice), "written": self.files}

    def write(self, text: Text) -> None:
        write_advice(text, self.advice)
        self.write_files(text)


def advice_to_json(advice: ModelAdvice) -> dict[str, object]:
    """Return the members of a document that are about one model."""
    profile = advice.profile
    return {
        **members(
            profile, "model soc_version cpu_model threads model_us:4 operators_us:4 lost_us:4"
        ),
        "low_performers": [_low(one) for one in advice.low],
        "actions": [_action(one) for one in advice.tried],
        **members(advice, "not_tried of_untuned worth_tuning"),
    }


def write_advice(text: Text, advice: ModelAdvice) -> None:
    """Write what was found about one model."""
    for line in _head(advice):
        text.line(line)
    _write_low(text, advice)
    _write_actions(text, advice)


def verdict_text(one: TriedAction) -> str:
    """Return the verdict on an action in words, and whether the model has to be trained again."""
    verdict = _VERDICTS[one.verdict]
    return f"{verdict}, needs retraining" if one.needs_retraining else verdict


def by_gain(tried: Sequence[TriedAction]) -> list[TriedAction]:
    """Return actions in the order for people: actions that gain come first, by speed-up."""
    return sorted(tried, key=_order)


def causes_text(one: LowPerformer) -> str:
    """Return the causes with what says so."""
    return "; ".join(f"{found.cause.value}: {found.detail}" for found in one.causes)


def _head(advice: ModelAdvice) -> Iterator[str]:
    profile = advice.profile
    yield (
        f"{profile.model}: {time_text(profile.model_us)} a run, "
        f"{plural(profile.threads, 'thread')} on {profile.cpu_model}"
    )
    yield (
        f"operators {time_text(profile.operators_us)}, of which {time_text(profile.lost_us)} are "
        f"lost; {plural(len(advice.low), 'low performer')}"
    )
    for caveat in profile.caveats:
        yield f"do not believe these figures: {caveat}"


def _write_low(text: Text, advice: ModelAdvice) -> None:
    if not advice.low:
        return
    text.line()
    text.columns(
        advice.low,
        ("operator", "n", lambda one: title_of(one.operator)),
        ("computes", "-", lambda one: one.operator.kind),
        ("us", "r", lambda one: f"{one.operator.median_us:.1f}"),
        ("lost us", "r", lambda one: "-" if one.operator.lost_us is None else f"{one.room_us:.1f}"),
        ("cause", "-", lambda one: causes_text(one) or "-"),
        most=_MOST_ROWS,
    )


def _write_actions(text: Text, advice: ModelAdvice) -> None:
    text.line()
    if not advice.tried:
        text.line("no action applies")
    else:
        on = "the untuned model inside, on this CPU" if advice.of_untuned else "this CPU"
        text.line(f"actions, each tried in pairs on {on} (figures in AOE's articles are an NPU's):")
        text.columns(
            by_gain(advice.tried),
            ("action", "-", lambda one: one.action),
            ("speed-up", "r", lambda one: speedup_text(one.estimate)),
            ("interval", "r", lambda one: interval_text(one.estimate)),
            ("verdict", "-", verdict_text),
            ("what", "-", what_text),
        )
    if advice.not_tried:
        text.line(f"not tried (--most): {', '.join(advice.not_tried)}")


def _order(one: TriedAction) -> tuple[bool, float]:
    speedup = one.estimate.median if one.estimate is not None else 0.0
    return (one.verdict is not TrialVerdict.GAIN, -speedup)


def what_text(one: TriedAction) -> str:
    """Return the effect of an action, with the reason of its verdict."""
    return f"{one.what} ({one.reason})" if one.reason else one.what


def _low(one: LowPerformer) -> dict[str, object]:
    operator = one.operator
    return {
        **members(operator, "name op_names kind median_us:4 lost_us:4"),
        "causes": [{"cause": found.cause.value, "detail": found.detail} for found in one.causes],
    }


def _action(one: TriedAction) -> dict[str, object]:
    estimate = one.estimate
    return {
        **members(one, "action what op_names needs_retraining about_us=room_us:4 verdict"),
        **speedup_members(estimate),
        "pairs": 0 if estimate is None else estimate.pairs,
        "reason": one.reason,
    }


SUMMARY: tuple[Column[tuple[Path, ModelAdvice]], ...] = (
    ("model", "n", lambda one: one[0].name),
    ("a run", "r", lambda one: time_text(one[1].profile.model_us)),
    ("lost", "r", lambda one: f"{lost_share(one[1].profile):.0%}"),
    ("low performers", "r", lambda one: str(len(one[1].low))),
    ("best gain", "-", lambda one: _best(one[1], needs_retraining=False)),
    ("retrained", "-", lambda one: _best(one[1], needs_retraining=True)),
)
"""Columns of the table of all models."""


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
            "causes": [
                members(one, "cause models operators lost_us=room_us:4")
                for one in self.advice.causes()
            ],
            "actions": [
                members(one, "action needs_retraining tried gains best:4")
                for one in self.advice.actions()
            ],
            "written": self.files,
        }

    def write(self, text: Text) -> None:
        for path, advice in self.advice.advised:
            text.line((f"== {path.name} ==", "bold"))
            write_advice(text, advice)
            text.line()
        _write_summary(text, self.advice)
        self.write_files(text)


def _best(advice: ModelAdvice, *, needs_retraining: bool) -> str:
    for one in by_gain(advice.tried):
        if one.verdict is TrialVerdict.GAIN and one.needs_retraining is needs_retraining:
            assert one.estimate is not None
            return f"{one.estimate.median:.3f}x {one.action}"
    return "-"


def _write_summary(text: Text, advice: FolderAdvice) -> None:
    text.line((f"== all of {advice.folder} ==", "bold"))
    text.columns(advice.advised, *SUMMARY)
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
