"""What a run tells its user while it works."""

from __future__ import annotations

from typing import Protocol


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
