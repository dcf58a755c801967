"""Low performers, their causes, and what actions were shown to bring."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aoe.advice.causes import LowPerformer
from aoe.advice.run import ModelAdvice
from aoe.advice.trying import TrialVerdict, TriedAction
from aoe.report.profiling.text import ReportWithFiles
from aoe.report.quantities import (
    interval_text,
    speedup_members,
    speedup_text,
    time_text,
    title_of,
)
from aoebank import members, plural

if TYPE_CHECKING:
    from aoebank import Text

_MOST_ROWS = 20
_VERDICTS = {
    TrialVerdict.GAIN: "gain",
    TrialVerdict.NO_GAIN: "tried, no gain",
    TrialVerdict.FAILED: "does not fit",
    TrialVerdict.BUSY: "machine too busy to tell",
}
_DIGITS = 4


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
    """Return actions in the order for people: those that gain first, by their speed-up."""
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
        on = " on the untuned model inside" if advice.of_untuned else ""
        text.line(f"actions, each tried in pairs{on}:")
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
