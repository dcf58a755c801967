"""Callbacks of a run: what it tells its user while it works."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from aoe.errors import OptionError
from aoebank import plural

if TYPE_CHECKING:
    from aoe.results.progress_log import ProgressLog


class Progress(Protocol):
    """Receives the steps of a run; the command line draws them, tests record them."""

    def step(self, text: str) -> None:
        """Report a finished or a starting step of the whole run."""

    def detail(self, text: str) -> None:
        """Report what only somebody who wants to know why cares for."""

    def plan(self, operators: int) -> None:
        """Say how many operators will be tuned."""

    def trial(self, op_name: str, done: int, budget: int, best: float | None) -> None:
        """Report trials of the operator at work; `best` is the best speed-up so far."""

    def operator(self, op_name: str, text: str) -> None:
        """Report an operator that is done."""

    def warn(self, text: str) -> None:
        """Report something the user should know, and the run survives."""


class SilentProgress:
    """Tells nobody."""

    def step(self, text: str) -> None:
        """Ignore."""

    def detail(self, text: str) -> None:
        """Ignore."""

    def plan(self, operators: int) -> None:
        """Ignore."""

    def trial(self, op_name: str, done: int, budget: int, best: float | None) -> None:
        """Ignore."""

    def operator(self, op_name: str, text: str) -> None:
        """Ignore."""

    def warn(self, text: str) -> None:
        """Ignore."""


class ContinuedProgress:
    """Counts through the parts of a run, its shapes and modes: each plans for itself alone.

    Attributes:
        inner: What is told.
    """

    def __init__(self, inner: Progress) -> None:
        self.inner = inner
        self._told = 0
        self._before = 0
        self._planned = 0

    def begin_part(self) -> None:
        """Count what is planned from now on behind the operators of earlier parts."""
        self._before = self._told

    def step(self, text: str) -> None:
        """Pass it on."""
        self.inner.step(text)

    def detail(self, text: str) -> None:
        """Pass it on."""
        self.inner.detail(text)

    def plan(self, operators: int) -> None:
        """Report the number of operators, with the operators of the parts before."""
        self._planned = max(self._before + operators, self._told)
        self.inner.plan(self._planned)

    def trial(self, op_name: str, done: int, budget: int, best: float | None) -> None:
        """Pass it on."""
        self.inner.trial(op_name, done, budget, best)

    def operator(self, op_name: str, text: str) -> None:
        """Count it, and pass it on; one that nobody planned, as of a second graph, is one more."""
        self._told += 1
        if 0 < self._planned < self._told:
            self.plan(self._told - self._before)
        self.inner.operator(op_name, text)

    def warn(self, text: str) -> None:
        """Pass it on."""
        self.inner.warn(text)


class LoggedProgress(ContinuedProgress):
    """Tells the progress of a run, and the log of the mode, which `aoe watch` reads.

    Args:
        inner: What is told.
        log: Of the mode.
    """

    def __init__(self, inner: Progress, log: ProgressLog) -> None:
        super().__init__(inner)
        self._log = log

    def step(self, text: str) -> None:
        """Note it, and pass it on."""
        self._log.step(text)
        super().step(text)

    def trial(self, op_name: str, done: int, budget: int, best: float | None) -> None:
        """Note it, and pass it on."""
        self._log.trial(op_name, done, budget, best)
        super().trial(op_name, done, budget, best)

    def warn(self, text: str) -> None:
        """Note it, and pass it on."""
        self._log.warn(text)
        super().warn(text)


def continued(progress: Progress) -> ContinuedProgress:
    """Return a progress that counts on from where `progress` is, or begins."""
    found = progress if isinstance(progress, ContinuedProgress) else ContinuedProgress(progress)
    found.begin_part()
    return found


class ProgressKind(StrEnum):
    """Kind of an event; see the methods of `Progress`."""

    STEP = "step"
    DETAIL = "detail"
    PLAN = "plan"
    TRIAL = "trial"
    OPERATOR = "operator"
    WARNING = "warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressEvent:
    """One call of a method of `Progress`, as a value."""

    kind: ProgressKind  # What it is about
    text: str  # The same in words
    op_name: str = ""  # The operator of a trial, or one that is done
    done: int = 0  # Trials of the operator so far
    total: int = 0  # Most trials of it; of a plan, operators that will be tuned
    speedup: float | None = None  # The best so far of the operator at work; None if there is none


TellProgress = Callable[[ProgressEvent], object]
"""A function that is told what happens."""


class CallbackProgress:
    """Tells a function, one event for each call of a method of `Progress`."""

    def __init__(self, on_event: TellProgress) -> None:
        self._on_event = on_event

    def step(self, text: str) -> None:
        """Tell of a step of the whole run."""
        self._on_event(ProgressEvent(kind=ProgressKind.STEP, text=text))

    def detail(self, text: str) -> None:
        """Report a detail, for users who ask for everything."""
        self._on_event(ProgressEvent(kind=ProgressKind.DETAIL, text=text))

    def plan(self, operators: int) -> None:
        """Tell how many operators will be tuned."""
        text = f"{plural(operators, 'operator')} to tune"
        self._on_event(ProgressEvent(kind=ProgressKind.PLAN, text=text, total=operators))

    def trial(self, op_name: str, done: int, budget: int, best: float | None) -> None:
        """Tell of trials of the operator at work."""
        so_far = f", best {best:.2f}x" if best is not None else ""
        event = ProgressEvent(
            kind=ProgressKind.TRIAL,
            text=f"{op_name}: trial {done} of {budget}{so_far}",
            op_name=op_name,
            done=done,
            total=budget,
            speedup=best,
        )
        self._on_event(event)

    def operator(self, op_name: str, text: str) -> None:
        """Tell of an operator that is done."""
        event = ProgressEvent(
            kind=ProgressKind.OPERATOR, text=f"{op_name}: {text}", op_name=op_name
        )
        self._on_event(event)

    def warn(self, text: str) -> None:
        """Tell a warning."""
        self._on_event(ProgressEvent(kind=ProgressKind.WARNING, text=text))


def progress_of(given: Progress | TellProgress | None) -> Progress:
    """Return a caller's progress: an object with the methods, a function, or none.

    Raises:
        OptionError: it is neither.
    """
    if given is None:
        return SilentProgress()
    if callable(getattr(given, "step", None)):
        return given  # type: ignore[return-value]
    if not callable(given):
        raise OptionError(
            "progress",
            "nothing that can be told",
            got=type(given).__name__,
            expected="a function of one ProgressEvent, or an object with the methods of Progress",
        )
    return CallbackProgress(given)
