"""Advice on every model of a directory, and what their causes and actions have in common."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from aoe.advice.run import ModelAdvice, advise_file
from aoe.advice.trying import TrialVerdict
from aoe.errors import ERRORS_OF_A_MODEL, AoeError
from aoe.tuner.precision.settings import KEEP_FLOAT32, PrecisionSettings

if TYPE_CHECKING:
    from aoe.advice.causes import Cause
    from aoe.entry.folder import FoundModel
    from aoe.profiling.run import ProfileSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvisedModel:
    """A model of a directory."""

    path: Path  # Its file
    advice: ModelAdvice | None = None  # None if there is an error
    error: AoeError | None = None  # Why it could not be profiled


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseSummary:
    """One cause in all models."""

    cause: Cause  # The cause
    models: int  # How many have it
    operators: int  # Low performers with it
    room_us: float  # What these lose; an operator of two causes counts for both


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionSummary:
    """One action in all models."""

    action: str  # Its name
    needs_retraining: bool  # True if models compute something else with it
    tried: int  # Models it was tried on
    gains: tuple[str, ...]  # Names of the models it gains on
    best: float  # The largest speed-up among these, 1 if there is none


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderAdvice:
    """Advice for the models of a directory."""

    folder: Path  # The directory
    models: tuple[AdvisedModel, ...]  # Sorted by name

    @property
    def advised(self) -> tuple[tuple[Path, ModelAdvice], ...]:
        """Models that could be profiled."""
        return tuple((one.path, one.advice) for one in self.models if one.advice is not None)

    def causes(self) -> tuple[CauseSummary, ...]:
        """Return each cause that was found, the one that loses most first."""
        found: dict[Cause, list[tuple[Path, float]]] = {}
        for path, advice in self.advised:
            for low in advice.low:
                for cause in dict.fromkeys(one.cause for one in low.causes):
                    found.setdefault(cause, []).append((path, low.room_us))
        summaries = [
            CauseSummary(
                cause=cause,
                models=len({path for path, _ in places}),
                operators=len(places),
                room_us=sum(room_us for _, room_us in places),
            )
            for cause, places in found.items()
        ]
        return tuple(sorted(summaries, key=lambda one: (-one.room_us, one.cause)))

    def actions(self) -> tuple[ActionSummary, ...]:
        """Return each action that was tried, the one that gains on most models first."""
        names = dict.fromkeys(one.action for _, advice in self.advised for one in advice.tried)
        summaries = [self._action(name) for name in names]
        return tuple(sorted(summaries, key=lambda one: (-len(one.gains), -one.best, one.action)))

    def _action(self, name: str) -> ActionSummary:
        tried = [
            (path, one)
            for path, advice in self.advised
            for one in advice.tried
            if one.action == name
        ]
        gained = [(path, one) for path, one in tried if one.verdict is TrialVerdict.GAIN]
        return ActionSummary(
            action=name,
            needs_retraining=any(one.needs_retraining for _, one in tried),
            tried=len({path for path, _ in tried}),
            gains=tuple(dict.fromkeys(path.name for path, _ in gained)),
            best=max((one.estimate.median for _, one in gained if one.estimate), default=1.0),
        )


def advise_folder(
    settings: ProfileSettings,
    models: Sequence[FoundModel],
    *,
    most: int,
    actions: Collection[str] = (),
    precision: PrecisionSettings = KEEP_FLOAT32,
    on_event: Callable[[str], None] = lambda text: None,
) -> Iterator[AdvisedModel]:
    """Advise on models one after another, and yield each when it is done.

    Args:
        settings: Of the profiles; model, framework and weights are replaced.
        models: In this order.
        most: Actions that are tried at most on each.
        actions: See `advise_file`, as for the next one.
        precision: What the user allows.
        on_event: Is told which model comes next, and what `advise_file` tells.

    Raises:
        AoeError: about more than one model.
    """
    for number, model in enumerate(models, start=1):
        on_event(f"model {number} of {len(models)}: {model.path.name}")
        own = replace(settings, model=model.path, framework=model.framework, weight=model.weight)
        try:
            advice = advise_file(
                own, most=most, actions=actions, precision=precision, on_event=on_event
            )
            yield AdvisedModel(path=model.path, advice=advice)
        except ERRORS_OF_A_MODEL as error:
            yield AdvisedModel(path=model.path, error=error)
