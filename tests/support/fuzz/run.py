"""The loop: inputs by number, finds noted, work counted and never timed."""

from __future__ import annotations

import cProfile
import json
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType
from typing import Protocol

from support.fuzz.inputs import FuzzInput, make_input
from support.fuzz.oracles import check_input
from support.fuzz.reader import FindError

COUNTED_EVERY = 20  # inputs; counting costs half as much again
CALLS_FREE = 150_000  # what any input may take, however short it is
CALLS_PER_BYTE = 60
HANGS_AFTER_CPU_S = 60  # no bound of the product: what takes so long in C is a find of its own
SAVED_EVERY = 500


@dataclass(slots=True, kw_only=True)
class FuzzState:
    """How far a run came."""

    first: int = 0  # Number of the first input
    done: int = 0  # Inputs run
    # Number and reason of inputs that broke something.
    finds: list[tuple[int, str]] = field(default_factory=list)
    # The most calls an input took, of those counted, and its size in bytes.
    most_calls: tuple[int, int] = (0, 0)


def load_state(place: Path | None, *, first: int = 0) -> FuzzState:
    """Return the state of an earlier run, or a new one."""
    if place is None or not place.exists():
        return FuzzState(first=first)
    members = json.loads(place.read_text())
    members["finds"] = [(number, reason) for number, reason in members["finds"]]
    calls, size = members["most_calls"]
    members["most_calls"] = (calls, size)
    return FuzzState(**members)


def fuzz(
    state: FuzzState,
    *,
    inputs: int,
    place: Path | None = None,
    on_event: Callable[[str], None] = lambda _: None,
    attempt: Callable[[int, Path, FuzzState], str] | None = None,
) -> None:
    """Run inputs until as many are done; each find is told, noted, and ends nothing.

    Args:
        place: File for the state.
        on_event: Gets a line per find.
        attempt: Says why a number is a find, or nothing; None for `try_number`.
    """
    attempt = attempt or try_number
    with tempfile.TemporaryDirectory(prefix="aoebank-fuzz-", dir=_memory()) as scratch:
        while state.done < inputs:
            number = state.first + state.done
            reason = attempt(number, Path(scratch), state)
            if reason:
                state.finds.append((number, reason))
                on_event(f"find {number}: {reason.splitlines()[-1]}")
            state.done += 1
            if place is not None and (reason or state.done % SAVED_EVERY == 0):
                place.write_text(json.dumps(asdict(state), indent=1))
        if place is not None:
            place.write_text(json.dumps(asdict(state), indent=1))


def run_command(
    fuzzer: Fuzzer, *, inputs: int, first: int, place: Path | None, noted_every: int
) -> int:
    """Try inputs until as many are done; return 1 if there is a find.

    Args:
        fuzzer: Tries them.
        inputs: How many, those of the file counted.
        first: Number of the first one.
        place: File to go on from.
        noted_every: After as many, it is written.
    """
    state = load_state(place, first=first)
    start, done = time.perf_counter(), state.done
    while state.done < inputs:
        until = min(inputs, state.done + noted_every)
        fuzz(state, inputs=until, place=place, on_event=_say, attempt=fuzzer.attempt)
    seconds, tried = time.perf_counter() - start, state.done - done
    if fuzzer.seen:
        _say(", ".join(f"{count} {what}" for what, count in sorted(fuzzer.seen.items())))
    _say(f"{tried} inputs in {seconds:.0f} s, {state.done} in all, {len(state.finds)} finds")
    return int(bool(state.finds))


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


class Fuzzer(Protocol):
    """Tries numbers."""

    seen: Counter[str]  # How often what came up, by its name

    def attempt(self, number: int, scratch: Path, state: FuzzState, /) -> str:
        """Return why a number is a find, or nothing."""


def try_number(number: int, scratch: Path, state: FuzzState) -> str:
    """Return why an input is a find, or nothing."""
    tried = make_input(number)
    try:
        with _no_hang():
            if number % COUNTED_EVERY:
                check_input(tried, scratch)
            else:
                _check_counted(tried, scratch, state)
    except Exception:  # any error is what we look for
        return traceback.format_exc(limit=-6).strip()
    return ""


def _check_counted(tried: FuzzInput, scratch: Path, state: FuzzState) -> None:
    """Check an input, and that the calls it takes are bounded by its size."""
    profile = cProfile.Profile(builtins=True)
    profile.runcall(check_input, tried, scratch)
    calls = sum(entry.callcount for entry in profile.getstats())
    size = sum(map(len, (tried.base, tried.ours, tried.theirs)))
    state.most_calls = max(state.most_calls, (calls, size))
    if calls > CALLS_FREE + CALLS_PER_BYTE * size:
        raise FindError(f"{calls} calls for {size} bytes")


@contextmanager
def _no_hang() -> Iterator[None]:
    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise FindError(f"more than {HANGS_AFTER_CPU_S} s of CPU time")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, HANGS_AFTER_CPU_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def _memory() -> str | None:
    """Return a folder in memory, where there is one."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None
