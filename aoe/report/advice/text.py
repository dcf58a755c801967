"""Low performers, their causes, and what actions were shown to bring."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from aoe.advice.causes import LowPerformer
from aoe.advice.run import ModelAdvice
from aoe.advice.trying import TrialVerdict, TriedAction
from aoe.report.profiling.text import title_of, write_files
from aoe.report.quantities import time_text
from aoebank import plural

if TYPE_CHECKING:
    from aoebank import AoebankError, Text

_MOST_ROWS = 20
_VERDICTS = {
    TrialVerdict.GAIN: "gain",
    TrialVerdict.NO_GAIN: "tried, no gain",
    TrialVerdict.FAILED: "does not fit",
    TrialVerdict.BUSY: "machine too busy to tell",
}
_DIGITS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceReport:
    """Advice, and what was written with it.

    Attributes:
        advice: What was found.
        written: Files.
        is_dry_run: True if they were not written.
    """

    advice: ModelAdvice
    written: tuple[Path, ...] = ()
    is_dry_run: bool = False
    schema: str = "aoe.advise/1"
    error: AoebankError | None = None
    exit_code: int = 0

    def document(self) -> Mapping[str, object]:
        """Return every low performer and every action; see `docs/advise.md`."""
        written = [] if self.is_dry_run else [str(file) for file in self.written]
        return {**advice_to_json(self.advice), "written": written}

    def write(self, text: Text) -> None:
        """Write the low performers, then the actions, those that gain first."""
        write_advice(text, self.advice)
        write_files(text, self.written, is_dry_run=self.is_dry_run)


def advice_to_json(advice: ModelAdvice) -> dict[str, object]:
    """Return the members of a document that are about one model."""
    profile = advice.profile
    return {
        "model": profile.model,
        "soc_version": profile.soc_version,
        "cpu_model": profile.cpu_model,
        "threads": profile.threads,
        "model_us": round(profile.model_us, _DIGITS),
        "operators_us": round(profile.operators_us, _DIGITS),
        "lost_us": round(profile.lost_us, _DIGITS),
        "low_performers": [_low(one) for one in advice.low],
        "actions": [_action(one) for one in advice.tried],
        "not_tried": list(advice.not_tried),
        "of_untuned": advice.of_untuned,
        "worth_tuning": list(advice.worth_tuning),
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
    text.table(
        ["operator", "computes", "us", "lost us", "cause"],
        [
            [
                title_of(one.operator),
                one.operator.kind,
                f"{one.operator.median_us:.1f}",
                "-" if one.operator.lost_us is None else f"{one.room_us:.1f}",
                causes_text(one) or "-",
            ]
            for one in advice.low[:_MOST_ROWS]
        ],
        "n-rr-",
    )
    if len(advice.low) > _MOST_ROWS:
        text.line((f"{len(advice.low) - _MOST_ROWS} more with --json", "dim"))


def _write_actions(text: Text, advice: ModelAdvice) -> None:
    text.line()
    if not advice.tried:
        text.line("no action applies")
    else:
        on = " on the untuned model inside" if advice.of_untuned else ""
        text.line(f"actions, each tried in pairs{on}:")
        text.table(
            ["action", "speed-up", "interval", "verdict", "what"],
            [_cells(one) for one in by_gain(advice.tried)],
            "-rr--",
        )
    if advice.not_tried:
        text.line(f"not tried (--most): {', '.join(advice.not_tried)}")


def _order(one: TriedAction) -> tuple[bool, float]:
    speedup = one.estimate.median if one.estimate is not None else 0.0
    return (one.verdict is not TrialVerdict.GAIN, -speedup)


def _cells(one: TriedAction) -> list[str]:
    estimate = one.estimate
    return [
        one.action,
        "-" if estimate is None else f"{estimate.median:.3f}x",
        "-" if estimate is None else f"{estimate.low:.3f} to {estimate.high:.3f}",
        verdict_text(one),
        f"{one.what} ({one.reason})" if one.reason else one.what,
    ]


def _low(one: LowPerformer) -> dict[str, object]:
    operator = one.operator
    return {
        "name": operator.name,
        "op_names": list(operator.op_names),
        "kind": operator.kind,
        "median_us": round(operator.median_us, _DIGITS),
        "lost_us": None if operator.lost_us is None else round(operator.lost_us, _DIGITS),
        "causes": [{"cause": found.cause.value, "detail": found.detail} for found in one.causes],
    }


def _action(one: TriedAction) -> dict[str, object]:
    estimate = one.estimate
    return {
        "action": one.action,
        "what": one.what,
        "op_names": list(one.op_names),
        "needs_retraining": one.needs_retraining,
        "about_us": round(one.room_us, _DIGITS),
        "verdict": one.verdict.value,
        "speedup": None if estimate is None else round(estimate.median, _DIGITS),
        "speedup_low": None if estimate is None else round(estimate.low, _DIGITS),
        "speedup_high": None if estimate is None else round(estimate.high, _DIGITS),
        "pairs": 0 if estimate is None else estimate.pairs,
        "reason": one.reason,
    }
