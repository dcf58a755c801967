"""The converting process: its request, its answer, and its start and end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol, Self

from aoe.child_python import python_command

REQUEST, ANSWER, RESULT, LOG = "request.json", "answer.json", "model.om", "log.txt"
_BOOT = "from aoe.online.worker import main; main(sys.argv[1])"
_GRACE_S = 15.0
"""For a process that is to end to remove its files and end its workers."""
_LOG_CHARS = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """Request to look a model up, or to tune it."""

    model: str  # Its file
    shapes: Mapping[str, tuple[int | str, ...]]  # Of its inputs; `1~8` for an extent of a range
    core_num: int  # Threads
    lookup_only: bool  # True to take what the bank has, False to tune
    tuning_time_limit_s: float | None = None  # Seconds for tuning
    trials: int | None = None  # Most candidates for one operator; None for the default
    # Whether figures taken on a busy machine are believed; None for what the variable says.
    accept_busy: bool | None = None
    operators: tuple[str, ...] = ()  # Libraries of operators ONNX Runtime does not have

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return a request that was written by `to_text`."""
        value = json.loads(text)
        shapes = {name: tuple(shape) for name, shape in value["shapes"].items()}
        return cls(**{**value, "shapes": shapes, "operators": tuple(value["operators"])})

    def to_text(self) -> str:
        """Return the text of the file that a converting process reads."""
        return json.dumps(asdict(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class Converted:
    """Result of a conversion."""

    om_file: Path | None = None  # The tuned model; None if it would be the untuned one
    kernels: int = 0  # How many kernels it has
    written_as: str = ""  # In which form its model is written; empty for the imported one
    speedup: float = 1.0  # Measured when it was tuned; 1 if nothing was measured or gained
    problem: str = ""  # Why there is no answer, empty if there is one


class ConversionRun(Protocol):
    """A conversion that goes on."""

    def wait(self) -> Converted:
        """Return the result of the conversion once it is over."""
        ...

    def stop(self) -> None:
        """End it, from any thread; `wait` returns then."""
        ...


class StartConversion(Protocol):
    """Starts a conversion."""

    def __call__(self, asked: Conversion, folder: Path, env: Mapping[str, str]) -> ConversionRun:
        """Start it; `folder` is empty, and there until it was waited for."""
        ...


class ConvertingProcess:
    """A conversion in a process of its own, of the lowest priority; it ends when we do."""

    def __init__(self, asked: Conversion, folder: Path, env: Mapping[str, str]) -> None:
        self._folder = folder
        (folder / REQUEST).write_text(asked.to_text(), "utf-8")
        with (folder / LOG).open("wb") as log:
            self._process = subprocess.Popen(
                python_command(_BOOT, str(folder)),
                env=dict(env),
                stdin=subprocess.PIPE,  # its end is ours
                stdout=log,
                stderr=log,
                start_new_session=True,  # a Ctrl-C is for us, and all of it can be ended
            )

    @property
    def pid(self) -> int:
        """Number of the process."""
        return self._process.pid

    def wait(self) -> Converted:
        """Return the result of the conversion; see `ConversionRun`."""
        code = self._process.wait()
        self._close()
        try:
            value: dict[str, Any] = json.loads((self._folder / ANSWER).read_text("utf-8"))
        except (OSError, ValueError):
            return Converted(problem=f"the converting process ended with code {code}{self._log()}")
        found = Converted(**value)
        is_other = bool(found.kernels or found.written_as)
        return replace(found, om_file=self._folder / RESULT) if is_other else found

    def stop(self) -> None:
        """End it and all it has started."""
        if self._process.poll() is None:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_GRACE_S)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._close()

    def _close(self) -> None:
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()

    def _log(self) -> str:
        with suppress(OSError):
            text = (self._folder / LOG).read_text("utf-8", "replace").strip()
            return f": {text[-_LOG_CHARS:]}" if text else ""
        return ""
