"""A tuning with scripted measurements as a program that is killed at a step of its own.

    python -m support.engine.killed_tuning STEP [MODE [full]]

in a folder with `net.onnx` and `bank`. Steps are calls of the measuring process and changes of
files below the folder. At the one of that number, from 1, the process ends as by kill -9; with 0 it
runs to its end and writes how many there were into `steps`, and how many before kernels of
subgraphs into `groups`. With `full` it is not killed: from that step on no file can be written, as
on a full disk, and an error ends it with exit code 3.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from pathlib import Path
from typing import Any

import aoe
import aoe.runs.subgraphs.run
import aoe.validation.kernel_assembly
from aoe.errors import AoeError
from aoe.execute.messages import ModelPart
from aoe.graph.rewrites.registry import RULES
from aoe.tuner.parts import EngineParts
from aoebank import AoebankError
from support.engine.fakes import ScriptedRunner
from support.engine.subgraphs import by_kernels, by_splits

_CHANGES = ("os.rename", "os.remove", "os.link", "os.mkdir", "os.truncate")
_WRITING = os.O_WRONLY | os.O_RDWR
_NEEDS_SPACE = ("open", "os.mkdir", "os.link")
_FULL = 3
_RULE = "convolution-split"


class Steps:
    """Counts steps, and ends the process at one.

    Args:
        last: Number of that step, 0 for none.
        root: Folder changes of files count in.
        full: True to leave no space from that step on, instead of killing.
    """

    def __init__(self, last: int, root: Path, *, full: bool = False) -> None:
        self.count = 0
        self._full = full
        self._last = last
        self._root = str(root)

    def take(self) -> None:
        """Count a step."""
        self.count += 1
        if self.count == self._last and not self._full:
            os.kill(os.getpid(), signal.SIGKILL)

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Count changes of files: what the interpreter tells before it makes them."""
        is_change = event in _CHANGES
        if event == "open" and isinstance(arguments[2], int):
            is_change = bool(arguments[2] & _WRITING)
        if is_change and str(arguments[0]).startswith(self._root):
            self.take()
            if self._full and event in _NEEDS_SPACE and 0 < self._last <= self.count:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(arguments[0]))


def main() -> None:
    """Tune, up to the step the command line names; operators unless it names another mode."""
    root = Path.cwd()
    full = "full" in sys.argv
    steps = Steps(int(sys.argv[1]), root, full=full)
    mode = sys.argv[2] if len(sys.argv) > 2 else "opat"
    script = _loses if mode == "opat" else _by_forms_and_kernels
    tune_fusion_groups = aoe.runs.subgraphs.run.tune_fusion_groups

    def counted_groups(*arguments: Any, **named: Any) -> Any:
        (root / "scopes").write_text(str(steps.count))
        return tune_fusion_groups(*arguments, **named)

    class CountingRunner(ScriptedRunner):
        def call(self, task: str, **arguments: Any) -> Any:
            steps.take()
            return super().call(task, **arguments)

    # operators win alone and lose together; nothing is compiled
    engine = EngineParts(
        open_runner=lambda *_: CountingRunner(model=script, jitter=0.0005, drift=0.0),
        rules={_RULE: RULES[_RULE]},
    )
    aoe.runs.subgraphs.run.tune_fusion_groups = counted_groups  # type: ignore[assignment]
    aoe.validation.kernel_assembly.Assembly.build = lambda *_, **__: {}  # type: ignore[method-assign]
    sys.addaudithook(steps.audit)
    try:
        aoe.tune(
            root / "net.onnx",
            job_type=mode,
            bank=root / "bank",
            output=root / "out",
            trials=3,
            engine=engine,
        )
    except (AoeError, AoebankError, OSError) as error:
        if not full or "No space left" not in str(error):
            raise
        sys.exit(_FULL)
    if sys.argv[1] == "0":
        (root / "steps").write_text(str(steps.count))


def _loses(baseline: ModelPart, tuned: ModelPart) -> float:
    return 0.9


def _by_forms_and_kernels(baseline: ModelPart, tuned: ModelPart) -> float:
    """Return a speed-up of models that depends on nothing but what was chosen."""
    return by_splits(1.2)(baseline, tuned) * by_kernels(1.1)(baseline, tuned)


if __name__ == "__main__":
    main()
