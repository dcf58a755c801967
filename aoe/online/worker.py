"""The converting process: looks a model up or tunes it, and writes an answer.

It is of the lowest priority, and ends, with its own workers, when whoever started it ends.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from dataclasses import asdict
from pathlib import Path
from types import FrameType

from aoe.online.conversions import ANSWER, REQUEST, RESULT, Conversion, Converted

_LOWEST_PRIORITY = 19
_GRACE_S = 15.0
_STDIN = 0


def main(folder: str) -> None:
    """Convert as the request in a folder says."""
    os.setpriority(os.PRIO_PROCESS, 0, _LOWEST_PRIORITY)
    signal.signal(signal.SIGTERM, _end)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    place = Path(folder)
    asked = Conversion.parse((place / REQUEST).read_text("utf-8"))
    answer = json.dumps({**asdict(convert(asked, place)), "om_file": None})
    (place / ANSWER).write_text(answer, "utf-8")


def convert(asked: Conversion, folder: Path) -> Converted:
    """Write the tuned model into a folder, if there is anything tuned in it."""
    from aoe.om.file import read_manifest
    from aoe.runs.run import tune
    from aoe.workload import shapes_text
    from aoebank import AoebankError

    try:
        tuned = tune(
            asked.model,
            input_shape=shapes_text(asked.shapes) or None,
            output=folder / RESULT,
            custom_ops_library=asked.operators,
            aicore_num=asked.core_num,
            lookup_only=asked.lookup_only,
            tuning_time_limit=asked.tuning_time_limit_s,
            trials=asked.trials,
            accept_busy=asked.accept_busy,
        )
    except AoebankError as error:
        return Converted(problem=str(error))
    assert tuned.om_file is not None
    manifest = read_manifest(tuned.om_file)
    return Converted(
        kernels=len(manifest.kernels), written_as=manifest.written_as, speedup=tuned.speedup
    )


def _end(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _end_with_parent() -> None:
    """Wait for the end of the pipe nobody writes to, then end this process and its group."""
    # not `sys.stdin`: its lock, held by a thread that never returns, is fatal when Python ends
    while os.read(_STDIN, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_GRACE_S)
    os.killpg(0, signal.SIGKILL)
