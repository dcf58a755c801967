"""The background of a session: one form after another, those called most often first."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace

from aoe.online.work import ServedShape, ShapeWork, Stage, shapes_of
from aoe.ort.serving.swapping import CallForm
from aoebank import AoebankError

_MOST_SEEN = 256
"""Forms that are counted; a model with more of them is not one for fixed shapes."""


@dataclass(slots=True)
class _Seen:
    served: ServedShape
    calls: int = 0
    is_taken: bool = False


class Background:
    """Looks up, and tunes if asked to, what a session is called with.

    A thread waits for the converting process as long as there is something to do; there is none
    otherwise.

    Args:
        work: What is done for one form.
        tune: True to tune, False to look up only.
        most_forms: Forms that something is done for; 0 for none.
    """

    def __init__(self, work: ShapeWork, *, tune: bool, most_forms: int) -> None:
        self.work = work
        self._tune = tune
        self._most_forms = most_forms
        self._forms: dict[CallForm, _Seen] = {}
        self._state = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False

    @property
    def forms(self) -> tuple[ServedShape, ...]:
        """The forms seen so far, in that order."""
        with self._state:
            return tuple(seen.served for seen in self._forms.values())

    def look_up_now(self, form: CallForm) -> ServedShape:
        """Look a form up while the caller waits; it is tuned later if that was asked for."""
        served = self.work.look_up(form)
        with self._state:
            self._forms[form] = _Seen(served, is_taken=True)
            self._wake()
        return served

    def saw(self, form: CallForm) -> None:
        """Note a call the model itself computes."""
        with self._state:
            seen = self._forms.get(form)
            if seen is None:
                if len(self._forms) >= _MOST_SEEN or self._closed:
                    return
                served = ServedShape(shapes=shapes_of(form), stage=Stage.SEEN)
                seen = self._forms[form] = _Seen(served)
                self._wake()
            seen.calls += 1

    def wait(self, timeout_s: float | None) -> bool:
        """Wait until nothing is left to do; return whether that came in time."""
        with self._state:
            return self._state.wait_for(lambda: self._thread is None, timeout_s)

    def close(self) -> None:
        """End what goes on; what was found stays in use."""
        with self._state:
            self._closed = True
            thread = self._thread
        self.work.stop()
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _wake(self) -> None:
        if self._thread is None and self._next() is not None:
            self._thread = threading.Thread(target=self._go, name="aoe-online", daemon=True)
            self._thread.start()

    def _next(self) -> CallForm | None:
        """Return the next call form to look up or else to tune, None if nothing is left."""
        if self._closed:
            return None
        taken = sum(seen.is_taken for seen in self._forms.values())
        wanted = (Stage.SEEN, Stage.LOOKED_UP) if self._tune else (Stage.SEEN,)
        for stage in wanted:
            forms = [
                form
                for form, seen in self._forms.items()
                if seen.served.stage is stage and (seen.is_taken or taken < self._most_forms)
            ]
            if forms:
                return max(forms, key=lambda form: self._forms[form].calls)
        return None

    def _go(self) -> None:
        while True:
            with self._state:
                form = self._next()
                if form is None:
                    self._thread = None
                    self._state.notify_all()
                    return
                self._forms[form].is_taken = True
                before = self._forms[form].served
            after = self._step(form, before)
            with self._state:
                self._forms[form].served = after

    def _step(self, form: CallForm, before: ServedShape) -> ServedShape:
        try:
            if before.stage is Stage.SEEN:
                return self.work.look_up(form)
            after = self.work.tune(form)
        except (AoebankError, OSError) as error:
            return replace(before, stage=Stage.FAILED, problem=str(error))
        if after.kernels:
            return after
        kept = after.stage if not after.problem else Stage.FAILED
        return replace(before, stage=kept, problem=after.problem)
