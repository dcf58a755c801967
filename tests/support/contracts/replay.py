"""Replay: run a search against recorded trials, without hardware and without noise.

A recording is a text of JSON lines, one a configuration:
`{"configuration": {"vector": 16}, "outcome": "correct", "latency_us": 12.5}`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from aoe.measurement import Outcome
from aoe.schedule import Choice, Configuration, Knob, Space
from aoe.tuner.search.protocol import Search, Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """A space and the trial of each of its configurations."""

    space: Space  # What may be proposed; its legal configurations are the recorded ones
    latencies_us: Mapping[Configuration, float]  # Latency of each correct configuration
    failures: Mapping[Configuration, Outcome]  # Outcome of each other one

    def __post_init__(self) -> None:
        if not self.latencies_us:
            raise ValueError("a recording needs a correct configuration (got none)")

    @property
    def optimum_us(self) -> float:
        """The least latency recorded."""
        return min(self.latencies_us.values())

    @property
    def reference_us(self) -> float:
        """What speed-ups are relative to: the first guess if it is correct, else the slowest."""
        guesses = (Configuration(guess) for guess in self.space.first_guesses)
        known = [self.latencies_us[guess] for guess in guesses if guess in self.latencies_us]
        return known[0] if known else max(self.latencies_us.values())

    def trial(self, configuration: Configuration) -> Trial:
        """Return the recorded trial of a configuration."""
        latency_us = self.latencies_us.get(configuration)
        if latency_us is None:
            return Trial(outcome=self.failures[configuration])
        return Trial(
            outcome=Outcome.CORRECT,
            speedup=self.reference_us / latency_us,
            latency_us=latency_us,
        )


def replay(search: Search, recording: Recording, trials: int, batch: int = 1) -> tuple[float, ...]:
    """Return the fraction of the optimum reached after each trial, 0 before a correct one.

    Args:
        search: A fresh search of the recording's space.
        recording: Answers the trials.
        trials: Trials at most; the last fraction is repeated if the search ends earlier.
        batch: Configurations asked for at once.
    """
    fractions: list[float] = []
    best_us = float("inf")
    while len(fractions) < trials:
        asked = search.ask(min(batch, trials - len(fractions)))
        if not asked:
            break
        for configuration in asked:
            trial = recording.trial(configuration)
            search.tell(configuration, trial)
            best_us = min(best_us, trial.latency_us or best_us)
            fractions.append(recording.optimum_us / best_us)
    last = fractions[-1] if fractions else 0.0
    return (*fractions, *[last] * (trials - len(fractions)))


def load_recording(path: Path) -> Recording:
    """Read a recording; a last line that was torn off while it was written is left out.

    Raises:
        ValueError: another line is not a recorded trial; the message names path and line.
    """
    return parse_recording(path.read_text(encoding="utf-8"), where=str(path))


def parse_recording(text: str, *, where: str = "recording") -> Recording:
    """Return the recording that a text of JSON lines holds."""
    latencies_us: dict[Configuration, float] = {}
    failures: dict[Configuration, Outcome] = {}
    lines = text.split("\n")
    # What follows the last line end was torn off, or is nothing.
    for number, line in enumerate(lines[:-1], start=1):
        if not line.strip():
            continue
        try:
            configuration, outcome, latency_us = _parse_line(line)
        except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
            raise ValueError(f"{where}:{number}: is not a recorded trial ({error})") from error
        if latency_us is None:
            failures[configuration] = outcome
        else:
            latencies_us[configuration] = latency_us
    recorded = (*latencies_us, *failures)
    knobs = _knobs(recorded, where)
    known = frozenset(recorded)
    space = Space(knobs=knobs, constraint=lambda values: Configuration(values) in known)
    return Recording(space=space, latencies_us=latencies_us, failures=failures)


def serialize_recording(recording: Recording) -> str:
    """Return a recording as JSON lines, correct configurations first."""
    correct = (
        _line(configuration, Outcome.CORRECT, latency_us)
        for configuration, latency_us in recording.latencies_us.items()
    )
    failed = (
        _line(configuration, outcome, None) for configuration, outcome in recording.failures.items()
    )
    return "".join((*correct, *failed))


def _line(configuration: Configuration, outcome: Outcome, latency_us: float | None) -> str:
    fields = {
        "configuration": dict(configuration),
        "outcome": outcome,
        "latency_us": latency_us,
    }
    return json.dumps({key: value for key, value in fields.items() if value is not None}) + "\n"


def _parse_line(line: str) -> tuple[Configuration, Outcome, float | None]:
    fields = json.loads(line)
    configuration = Configuration(fields["configuration"])
    outcome = Outcome(fields.get("outcome", "correct"))
    if outcome is not Outcome.CORRECT:
        return configuration, outcome, None
    latency_us = float(fields["latency_us"])
    if not 0 < latency_us < float("inf"):
        raise ValueError(f"latency_us: must be positive and finite (got {latency_us})")
    return configuration, outcome, latency_us


def _knobs(recorded: Iterable[Configuration], where: str) -> tuple[Knob, ...]:
    choices: dict[str, dict[Choice, None]] = {}
    names: tuple[str, ...] | None = None
    for configuration in recorded:
        names = names or tuple(configuration)
        if tuple(configuration) != names:
            raise ValueError(f"{where}: records differ in their knobs (got {configuration})")
        for name, value in configuration.items():
            choices.setdefault(name, {})[value] = None
    return tuple(_knob(name, tuple(values)) for name, values in choices.items())


def _knob(name: str, values: tuple[Choice, ...]) -> Knob:
    if all(type(value) is int for value in values):
        return Knob(name, tuple(sorted(values, key=int)))
    return Knob(name, values)
