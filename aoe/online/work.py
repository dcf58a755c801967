"""Background work of a session: one form of calls after another is looked up, or tuned."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from aoe.folders.scratch import ScratchFolder
from aoe.om.loading import open_offline_model
from aoe.online.conversions import Conversion, ConversionRun, Converted, StartConversion
from aoe.online.kept import BankRoots, KeptModels, key_of
from aoe.ort.serving.swapping import CallForm, Substitutes
from aoebank import AoebankError

if TYPE_CHECKING:
    import onnxruntime as ort


_SCHEMA = "aoe.online/1"
_MODEL = "model.onnx"


class Stage(StrEnum):
    """Progress of a form of calls."""

    SEEN = "seen"
    """ONNX Runtime computes it as it is; its turn may come."""
    LOOKED_UP = "looked up"
    """It has what the bank had for it."""
    TUNED = "tuned"
    """It was tuned here."""
    FAILED = "failed"
    """Looking up or tuning was not possible; see `problem`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedShape:
    """A form of calls and who computes it."""

    # Of the inputs, by name; `1~8` for an extent of a range.
    shapes: Mapping[str, tuple[int | str, ...]]
    stage: Stage  # What was done for it
    kernels: int = 0  # Tuned kernels it is computed with; 0 if ONNX Runtime computes all of it
    written_as: str = ""  # In which form its model is written; empty for the imported one
    # Of the whole model over the untuned one, measured when it was tuned; 1 otherwise.
    speedup: float = 1.0
    problem: str = ""  # Why looking up or tuning failed, or the empty string

    @property
    def is_tuned(self) -> bool:
        """True if it is computed otherwise than by ONNX Runtime as it is."""
        return bool(self.kernels or self.written_as)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModelFile:
    """The model of a session."""

    path: Path | None  # Its file, absolute; None for one in memory
    content: bytes | None  # Its bytes; None for one in a file
    sha256: str  # Of all that makes it, weights in other files and libraries of operators included
    # Libraries of operators ONNX Runtime does not have, absolute.
    operators: tuple[Path, ...] = ()

    def in_folder(self, folder: Path) -> Path:
        """Return its file, written into a folder if it has none."""
        if self.path is not None:
            return self.path
        assert self.content is not None
        (folder / _MODEL).write_bytes(self.content)
        return folder / _MODEL


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningLimits:
    """Limits of time and trials for tuning one form; see `aoe.tune`."""

    tuning_time_limit_s: float | None
    trials: int | None
    accept_busy: bool | None


@dataclass(slots=True, eq=False, kw_only=True)
class ShapeWork:
    """Converts a model for one form after another, and puts the result into the session's table."""

    model: ServedModelFile  # What is converted
    core_num: int  # Threads it runs on
    limits: TuningLimits  # For tuning
    banks: BankRoots  # Where records are looked up
    versions: Mapping[str, str]  # What else the result depends on
    kept: KeptModels  # Conversions of earlier starts
    env: Mapping[str, str]  # Environment of the converting process; it names the bank
    substitutes: Substitutes  # Table of the session
    adjust: Callable[[ort.SessionOptions], None]  # Changes the options of sessions of tuned models
    start: StartConversion  # Starts a conversion
    _state: threading.Lock = field(default_factory=threading.Lock, init=False)
    _run: ConversionRun | None = field(default=None, init=False)
    _stopped: bool = field(default=False, init=False)

    def look_up(self, form: CallForm) -> ServedShape:
        """Let a form be computed with what the bank has for it."""
        records = self.banks.digest()
        if not records:
            return ServedShape(shapes=shapes_of(form), stage=Stage.LOOKED_UP)
        key = self._key(form, records)
        file = self.kept.find(key)
        if file is not None:
            found = self._used(form, Stage.LOOKED_UP, file, 1.0)
            if not found.problem:
                return found  # else it is damaged, and made again
        elif self.kept.knows(key):
            return ServedShape(shapes=shapes_of(form), stage=Stage.LOOKED_UP)
        return self._converted(form, Stage.LOOKED_UP, lambda: key)

    def tune(self, form: CallForm) -> ServedShape:
        """Tune a form; what it is computed with until then stays if nothing better is found."""
        return self._converted(form, Stage.TUNED, lambda: self._key(form, self.banks.digest()))

    def stop(self) -> None:
        """End what goes on, from any thread, and begin nothing new."""
        with self._state:
            self._stopped = True
            run = self._run
        if run is not None:
            run.stop()

    def _converted(self, form: CallForm, stage: Stage, key: Callable[[], str]) -> ServedShape:
        asked = Stage.LOOKED_UP is stage
        with ScratchFolder("online") as folder:
            converted = self._answer(form, folder, lookup_only=asked)
            if converted.problem:
                return _failed(form, converted.problem)
            if converted.om_file is None:
                if asked:
                    self.kept.put(key(), None)
                return ServedShape(shapes=shapes_of(form), stage=stage)
            self.kept.put(key(), converted.om_file)
            return self._used(form, stage, converted.om_file, converted.speedup)

    def _answer(self, form: CallForm, folder: Path, *, lookup_only: bool) -> Converted:
        limits = self.limits
        asked = Conversion(
            model=str(self.model.in_folder(folder)),
            shapes=shapes_of(form),
            core_num=self.core_num,
            lookup_only=lookup_only,
            tuning_time_limit_s=None if lookup_only else limits.tuning_time_limit_s,
            trials=limits.trials,
            accept_busy=limits.accept_busy,
            operators=tuple(map(str, self.model.operators)),
        )
        (folder / "run").mkdir()
        with self._state:
            if self._stopped:
                return Converted(problem="the session was closed")
            run = self._run = self.start(asked, folder / "run", self.env)
        try:
            return run.wait()
        except BaseException:  # Ctrl-C while somebody waits for a look-up
            run.stop()
            raise
        finally:
            with self._state:
                self._run = None

    def _used(self, form: CallForm, stage: Stage, file: Path, speedup: float) -> ServedShape:
        """Open a tuned model, and let it compute a form from the next call on."""
        try:
            model, _ = open_offline_model(
                file,
                threads=self.core_num,
                operators=self.model.operators,
                adjust=self.adjust,
            )
        except (AoebankError, OSError) as error:
            return _failed(form, str(error))
        if model.fallback_reason:
            return _failed(form, model.fallback_reason)
        self.substitutes.put(form, model.session)
        return ServedShape(
            shapes=shapes_of(form),
            stage=stage,
            kernels=len(model.manifest.kernels),
            written_as=model.manifest.written_as,
            speedup=speedup,
        )

    def _key(self, form: CallForm, records: str) -> str:
        facts = {
            "schema": _SCHEMA,
            "model": self.model.sha256,
            "form": [list(part) for part in form],
            "core_num": self.core_num,
            "soc_version": self.banks.soc_version,
            "versions": dict(self.versions),
            "records": records,
        }
        return key_of(facts)


def shapes_of(form: CallForm) -> dict[str, tuple[int | str, ...]]:
    """Return the shapes of a form by name."""
    return {name: shape for name, _, shape in form}


def _failed(form: CallForm, problem: str) -> ServedShape:
    return ServedShape(shapes=shapes_of(form), stage=Stage.FAILED, problem=problem)


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
        if after.is_tuned:
            return after
        kept = after.stage if not after.problem else Stage.FAILED
        return replace(before, stage=kept, problem=after.problem)
